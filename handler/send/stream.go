package send

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	// streamIdle is how long an unused connection is kept.
	streamIdle = 10 * time.Minute
	// streamReads is how many bytes a receiver may send on one connection. It has no reason to send any.
	streamReads = 16 << 20
	// maxStreams is how many handlers' pools are kept before those without a connection are dropped.
	maxStreams = 256
)

// runStream writes the data and a separator to a connection that stays open from one event to the next.
//
// Only a receiver that closes the connection without an error would confirm the data, and here it does not. But
// nothing is written to a connection that its receiver has closed, or that is broken.
func (s *Sender) runStream(ctx context.Context, h *resource.Handler, job Job) Result {
	if h.Socket == nil {
		return permanent(errNoSocket)
	}
	data, err := job.data()
	if err != nil {
		return permanent(err)
	}
	opts := h.Stream
	if opts == nil {
		opts = &resource.HandlerStream{}
	}
	// One write of both: connections may be shared, and the data must not be changed.
	message := append(append(make([]byte, 0, len(data)+8), data...), cmp.Or(opts.Separator, "\n")...)
	return s.stream(ctx, h, target{
		addr: address(h.Socket.Host, h.Socket.Port), host: h.Socket.Host, tls: opts.TLS,
		connections: int(opts.Connections),
	}, message)
}

// target is where a stream goes.
type target struct {
	addr, host  string
	tls         *resource.HandlerTLS // nil means none
	connections int
}

func (s *Sender) stream(ctx context.Context, h *resource.Handler, to target, message []byte) Result {
	var config *tls.Config
	var id identity
	if to.tls != nil {
		var err error
		if config, id, err = s.files.tlsConfig(to.tls); err != nil {
			return unreadable(err)
		}
		config.ServerName = cmp.Or(config.ServerName, to.host)
	}
	owner := h.Metadata.Namespace + "/" + h.Metadata.Name
	p, err := s.streams.pool(owner, fmt.Sprintf("%s %t %x %d", to.addr, to.tls != nil, id, to.connections), max(1, to.connections))
	if err != nil {
		return temporary(err)
	}
	if err := p.write(ctx, message, func() (net.Conn, error) { return s.dial.secure(ctx, to.addr, config) }); err != nil {
		return temporary(err)
	}
	return Result{}
}

// secure connects, with TLS if there is a configuration.
func (d dialer) secure(ctx context.Context, addr string, config *tls.Config) (net.Conn, error) {
	conn, err := d.dial(ctx, "tcp", addr)
	if err != nil || config == nil {
		return conn, err
	}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, fmt.Errorf("TLS handshake with %s: %w", addr, err)
	}
	return secured, nil
}

// streams has the open connections of all handlers.
type streams struct {
	mu     sync.Mutex
	pools  map[string]*streamPool // by handler
	closed bool
	wg     sync.WaitGroup // of readers
}

// streamPool has the connections of one handler, as it is defined now.
type streamPool struct {
	all   *streams
	what  string        // address and settings
	slots chan struct{} // capacity: connections at a time

	mu   sync.Mutex
	idle []*streamConn
	gone bool // the handler was changed: connections are not kept any more
}

// streamConn is a connection with a goroutine that reads from it, to notice its end.
type streamConn struct {
	net.Conn
	ended chan struct{} // closed when the receiver has ended the connection
	timer *time.Timer   // closes it after streamIdle
}

func (s *streams) pool(owner, what string, connections int) (*streamPool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("stopping")
	}
	p := s.pools[owner]
	if p != nil && p.what == what {
		return p, nil
	}
	if p != nil {
		p.retire()
	}
	if len(s.pools) >= maxStreams {
		for name, old := range s.pools {
			if old.unused() {
				delete(s.pools, name)
			}
		}
	}
	if s.pools == nil {
		s.pools = map[string]*streamPool{}
	}
	p = &streamPool{all: s, what: what, slots: make(chan struct{}, connections)}
	s.pools[owner] = p
	return p, nil
}

func (s *streams) close() {
	s.mu.Lock()
	s.closed = true
	for _, p := range s.pools {
		p.retire()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// open returns how many connections are kept.
func (s *streams) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, p := range s.pools {
		p.mu.Lock()
		n += len(p.idle)
		p.mu.Unlock()
		n += len(p.slots)
	}
	return n
}

func (p *streamPool) retire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	for _, c := range p.idle {
		c.close()
	}
	p.idle = nil
}

func (p *streamPool) unused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle) == 0 && len(p.slots) == 0
}

// write writes a message to an open connection, or to a new one.
func (p *streamPool) write(ctx context.Context, message []byte, dial func() (net.Conn, error)) error {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for the connection: %w", ctx.Err())
	}
	defer func() { <-p.slots }()
	for c := p.take(); c != nil; c = p.take() {
		// A failure of an old connection says nothing about the receiver, which may have restarted.
		if err := c.write(ctx, message); err == nil {
			p.put(c)
			return nil
		}
		c.close()
		if ctx.Err() != nil {
			return fmt.Errorf("write to %s: %w", c.RemoteAddr(), ctx.Err())
		}
	}
	conn, err := dial()
	if err != nil {
		return err
	}
	c := &streamConn{Conn: conn, ended: make(chan struct{})}
	c.timer = time.AfterFunc(streamIdle, func() { p.drop(c) })
	p.all.wg.Go(func() {
		c.watch()
		p.drop(c)
	})
	if err := c.write(ctx, message); err != nil {
		c.close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return fmt.Errorf("write to %s: %w", conn.RemoteAddr(), err)
	}
	p.put(c)
	return nil
}

// take returns an open connection, or nil.
func (p *streamPool) take() *streamConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.idle) > 0 {
		c := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		select {
		case <-c.ended:
			c.close()
		default:
			if c.timer.Stop() {
				return c
			}
			c.close()
		}
	}
	return nil
}

func (p *streamPool) put(c *streamConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		c.close()
		return
	}
	c.timer.Reset(streamIdle)
	p.idle = append(p.idle, c)
}

// drop removes a connection that is not being written to, and closes it.
func (p *streamPool) drop(c *streamConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, other := range p.idle {
		if other == c {
			p.idle = append(p.idle[:i], p.idle[i+1:]...)
			c.close()
			return
		}
	}
}

// watch reads until the receiver ends the connection, or sends too much.
func (c *streamConn) watch() {
	_, _ = io.CopyN(io.Discard, c.Conn, streamReads)
	close(c.ended)
	c.close()
}

func (c *streamConn) close() {
	c.timer.Stop()
	c.Conn.Close()
}

func (c *streamConn) write(ctx context.Context, message []byte) error {
	if deadline, ok := ctx.Deadline(); ok {
		_ = c.SetWriteDeadline(deadline)
	}
	release := context.AfterFunc(ctx, func() { c.Conn.Close() })
	_, err := c.Conn.Write(message)
	if !release() && err == nil {
		return ctx.Err()
	}
	return err
}
