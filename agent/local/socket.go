package local

import (
	"bufio"
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
	// maxResult bounds a result, in bytes.
	maxResult = 1 << 20
	// maxClients bounds the clients served at a time; more wait.
	maxClients = 64
	// patience bounds how long a client may take to send a result.
	patience = 5 * time.Second
)

// result is a check's result in the form of Sensu 1.
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

// errIncomplete says that a result lacks a required field.
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

// take forwards a result.
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
		return // UDP has no reply
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
			case <-time.After(100 * time.Millisecond): // for example too many open files
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

// serveSocket takes one result and replies as soon as it is complete, whether or not the client has closed its end.
func (s *Server) serveSocket(conn net.Conn) {
	if conn.SetDeadline(time.Now().Add(patience)) != nil {
		return
	}
	answer := func(text string) { _, _ = io.WriteString(conn, text) }
	got, err := readResult(io.LimitReader(conn, maxResult))
	switch {
	case errors.Is(err, errNothing):
	case errors.Is(err, errPing):
		answer("pong")
	case err != nil:
		s.metrics.refused.WithLabelValues("tcp").Inc()
		// The deadline for reading may have passed.
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		answer("invalid")
	default:
		switch err := s.take(got, "tcp"); {
		case err == nil:
			answer("ok")
		case !errors.Is(err, errIncomplete): // Sensu sends no reply to these
			answer("invalid")
		}
	}
}

// Inputs that are no result: only white space, or a ping.
var (
	errNothing = errors.New("nothing was sent")
	errPing    = errors.New("a ping was sent")
)

// readResult reads one JSON value. It reads each byte once, regardless of how small the pieces are.
func readResult(from io.Reader) (json.RawMessage, error) {
	r := bufio.NewReader(from)
	first, err := r.ReadByte()
	for err == nil && isSpace(first) {
		first, err = r.ReadByte()
	}
	if err != nil {
		return nil, errNothing
	}
	if err := r.UnreadByte(); err != nil {
		return nil, err
	}
	if first == 'p' {
		if word, err := r.Peek(len("ping")); string(word) == "ping" {
			return nil, errPing
		} else if err != nil {
			return nil, err
		}
	}
	var value json.RawMessage
	d := json.NewDecoder(r)
	if err := d.Decode(&value); err != nil {
		return nil, err
	}
	return value, onlySpace(d.Buffered())
}

// onlySpace fails if anything but white space follows a result.
func onlySpace(r io.Reader) error {
	b, err := io.ReadAll(r) // a buffer of the decoder
	if err == nil && len(bytes.TrimSpace(b)) > 0 {
		return errors.New("more than one value was sent")
	}
	return err
}

func isSpace(b byte) bool {
	return b == ' ' || b == '\t' || b == '\n' || b == '\v' || b == '\f' || b == '\r'
}
