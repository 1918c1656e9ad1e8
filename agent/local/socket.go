package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"regexp"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	// maxResult is the largest result that is taken, in bytes.
	maxResult = 1 << 20
	// maxClients is how many are served at a time; more wait.
	maxClients = 64
	// patience is how long a client may take to send what it has to send.
	patience = 5 * time.Second
)

// result is a check's result as Sensu 1 took it.
type result struct {
	Name        string   `json:"name"`
	Output      string   `json:"output"`
	Status      uint32   `json:"status"`
	Source      string   `json:"source"`
	Client      string   `json:"client"`
	Handlers    []string `json:"handlers"`
	Handler     string   `json:"handler"`
	Command     string   `json:"command"`
	Subscribers []string `json:"subscribers"`
	Interval    uint32   `json:"interval"`
	Issued      int64    `json:"issued"`
	Executed    int64    `json:"executed"`
	Duration    float64  `json:"duration"`
}

// errIncomplete says that a result lacks what it must have.
var errIncomplete = errors.New("name and output are required")

// event makes an event of a result.
func (s *Server) event(b []byte) (*resource.Event, error) {
	var r result
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, err
	}
	if r.Name == "" || r.Output == "" {
		return nil, errIncomplete
	}
	ev := &resource.Event{Check: &resource.Check{
		Metadata: resource.ObjectMeta{Name: r.Name}, Output: r.Output, Status: r.Status, Handlers: r.Handlers, Command: r.Command,
		Subscriptions: r.Subscribers, Interval: r.Interval, Issued: r.Issued, Executed: r.Executed, Duration: r.Duration,
	}}
	if len(r.Handlers) == 0 && r.Handler != "" {
		ev.Check.Handlers = []string{r.Handler}
	}
	if r.Source == "" {
		r.Source = r.Client
	}
	if r.Source != "" {
		ev.Entity = &resource.Entity{Metadata: resource.ObjectMeta{Name: r.Source}}
	}
	return ev, s.prepare(ev)
}

// take sends a result on.
func (s *Server) take(b []byte, through string) error {
	ev, err := s.event(b)
	if err != nil {
		s.metrics.refused.WithLabelValues(through).Inc()
		s.log.Debug("result refused", "interface", through, "err", err)
		return err
	}
	s.opts.Send(ev)
	s.metrics.events.WithLabelValues(through).Inc()
	return nil
}

func (s *Server) takeDatagram(b []byte, _ net.Addr) {
	if isPing(b) || len(bytes.TrimSpace(b)) == 0 {
		return // there is no answer by UDP
	}
	_ = s.take(b, "udp") // counted and logged
}

var pings = regexp.MustCompile(`^\s*ping\s*$`)

func isPing(b []byte) bool { return pings.Match(b) }

func (s *Server) acceptSockets(ctx context.Context, l net.Listener) {
	room := make(chan struct{}, maxClients)
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.rare.Warn("connection not accepted", "", "err", err)
			select {
			case <-time.After(100 * time.Millisecond): // such as too many open files
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			conn.Close()
			return
		}
		s.running.Go(func() {
			defer func() { <-room }()
			release := context.AfterFunc(ctx, func() { conn.Close() })
			defer release()
			defer conn.Close()
			s.serveSocket(conn)
		})
	}
}

// serveSocket takes one result and answers as soon as it is whole, whether or not the client has closed its end.
func (s *Server) serveSocket(conn net.Conn) {
	if conn.SetDeadline(time.Now().Add(patience)) != nil {
		return
	}
	answer := func(text string) { _, _ = io.WriteString(conn, text) }
	var got []byte
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		got = append(got, buf[:n]...)
		switch {
		case isPing(got):
			answer("pong")
			return
		case json.Valid(got):
			switch err := s.take(got, "tcp"); {
			case err == nil:
				answer("ok")
			case !errors.Is(err, errIncomplete): // to that Sensu says nothing
				answer("invalid")
			}
			return
		case err != nil, len(got) > maxResult:
			if len(got) > 0 {
				s.metrics.refused.WithLabelValues("tcp").Inc()
				// Its time may be over.
				_ = conn.SetDeadline(time.Now().Add(time.Second))
				answer("invalid")
			}
			return
		}
	}
}
