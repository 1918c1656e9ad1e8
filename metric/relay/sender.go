package relay

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	firstReconnectDelay = 100 * time.Millisecond
	// maxUnacknowledged bounds the batches that are kept until they are acknowledged, in bytes. The kernel's send buffers
	// are smaller, except for gzip.
	maxUnacknowledged = 8 << 20
	// acknowledgePoll is how often Stop looks for the last acknowledgement.
	acknowledgePoll = 5 * time.Millisecond
)

var errEnded = errors.New("the receiver has ended the connection")

// sentBatch is a batch that was written to a connection.
type sentBatch struct {
	batch
	// end is how many bytes the connection had taken behind it, or inFlight if the write failed.
	end int64
	// counted is set once the batch has been written as a whole.
	counted bool
}

const inFlight = math.MaxInt64

// connection writes batches to a receiver, and remembers those that are not acknowledged.
type connection struct {
	d       *Destination
	raw     *countedConn
	top     net.Conn // raw, or TLS over it
	zip     *gzip.Writer
	out     io.Writer // zip or top
	encoder encoder

	sent      []sentBatch // oldest first
	sentBytes int
	ended     chan struct{} // closed when the receiver ends the connection; nil for UDP
	reading   sync.WaitGroup
}

// countedConn counts the bytes that the kernel has taken.
type countedConn struct {
	net.Conn
	written atomic.Int64
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n))
	return n, err
}

// runSender connects, sends, and connects again, until the destination is stopped and all is sent or aborted.
func (d *Destination) runSender() {
	delay := firstReconnectDelay
	for d.ctx.Err() == nil {
		c, err := d.connect()
		if err == nil {
			d.counts.connected.Store(true)
			before := d.counts.batches.Load()
			err = d.serve(c)
			d.counts.connected.Store(false)
			if err == nil {
				return
			}
			d.counts.disconnects.Add(1)
			if d.counts.batches.Load() != before {
				delay = firstReconnectDelay
			}
		}
		if d.ctx.Err() != nil {
			return
		}
		d.log.Warn("no connection to a destination of points", d.String(), "destination", d.String(), "err", err)
		if !d.pause(min(delay, d.opts.MaxReconnectDelay)) {
			return
		}
		delay = min(time.Duration(float64(delay)*(1.5+rand.Float64()/2)), d.opts.MaxReconnectDelay)
	}
}

// pause waits before the next attempt to connect. It returns false if the sender should end.
func (d *Destination) pause(delay time.Duration) bool {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	stopping := d.stopping
	if isClosed(stopping) {
		if d.spill != nil {
			return false // the disk keeps the points
		}
		stopping = nil
	}
	select {
	case <-timer.C:
	case <-stopping:
		return d.spill == nil
	case <-d.ctx.Done():
		return false
	}
	return true
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// connect connects to the destination, and counts that.
func (d *Destination) connect() (*connection, error) {
	c, err := d.dial()
	if err != nil {
		d.counts.connectErrors.Add(1)
		return nil, err
	}
	d.counts.connects.Add(1)
	return c, nil
}

func (d *Destination) dial() (*connection, error) {
	to := d.opts.Destination
	ctx, cancel := context.WithTimeout(d.ctx, d.opts.DialTimeout)
	defer cancel()
	network := "tcp"
	if d.opts.Protocol == UDP {
		network = "udp"
	}
	conn, err := d.opts.Dial(ctx, network, to.Address())
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", to, err)
	}
	c := &connection{d: d, raw: &countedConn{Conn: conn}, encoder: encoder{protocol: d.opts.Protocol}}
	c.top = c.raw
	if d.opts.TLS != nil {
		config := d.opts.TLS().Clone()
		setDefault(&config.ServerName, to.Host)
		secured := tls.Client(c.raw, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, fmt.Errorf("TLS handshake with %s: %w", to, err)
		}
		c.top = secured
	}
	c.out = c.top
	if d.opts.Protocol == Gzip {
		c.zip = gzip.NewWriter(c.top)
		c.out = c.zip
	}
	if network == "tcp" {
		setUserTimeout(conn, d.opts.WriteTimeout)
		c.ended = make(chan struct{})
		// The receiver sends nothing. Reading notices the end of the connection before the next write does.
		c.reading.Go(func() {
			_, _ = io.Copy(io.Discard, c.top)
			close(c.ended)
		})
	}
	return c, nil
}

// serve sends until the connection breaks. It returns nil when the destination is stopped and nothing is left to send.
func (d *Destination) serve(c *connection) (err error) {
	// A deadline ends writes and reads, and unlike Close it leaves the count of unacknowledged bytes.
	release := context.AfterFunc(d.ctx, func() { _ = c.raw.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		release()
		d.unsent = append(c.unacknowledged(), d.unsent...)
		c.raw.Close()
		c.reading.Wait()
	}()
	for len(d.unsent) > 0 {
		first := d.unsent[0]
		d.unsent = slices.Delete(d.unsent, 0, 1)
		if err := c.write(first.batch, first.counted); err != nil {
			return err
		}
	}
	timer := time.NewTimer(time.Minute)
	defer timer.Stop()
	for {
		if c.ended != nil && isClosed(c.ended) {
			return errEnded
		}
		stopping := d.stopping
		if isClosed(stopping) {
			if stopping = nil; d.hasSpilled() {
				return c.finish()
			}
		}
		b, ok, wait := d.take(stopping == nil)
		if ok {
			if err := c.write(b, false); err != nil {
				return err
			}
			continue
		}
		if stopping == nil && !d.isMoving() {
			return c.finish()
		}
		timer.Reset(wait)
		select {
		case <-d.wake:
		case <-timer.C:
		case <-stopping:
		case <-c.ended:
		case <-d.ctx.Done():
			return d.ctx.Err()
		}
	}
}

func (d *Destination) hasSpilled() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.spilled
}

func (d *Destination) isMoving() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.moving
}

// write sends a batch, and keeps it until it is acknowledged.
func (c *connection) write(b batch, again bool) error {
	d := c.d
	err := c.send(b, again)
	end := c.raw.written.Load()
	if err != nil {
		end = inFlight
	}
	c.keep(sentBatch{b, end, again || err == nil})
	if err == nil {
		return nil
	}
	var timeout net.Error // of the write's deadline, or of TCP_USER_TIMEOUT
	if errors.As(err, &timeout) && timeout.Timeout() && d.ctx.Err() == nil {
		d.counts.slowResets.Add(1)
	}
	return fmt.Errorf("write to %s: %w", d, err)
}

func (c *connection) send(b batch, again bool) error {
	d := c.d
	out, points := c.encoder.encode(b.data)
	if c.encoder.unusable > 0 && !again {
		d.counts.drop(dropUnusable, uint64(c.encoder.unusable))
	}
	if points == 0 {
		return nil
	}
	if err := c.raw.SetWriteDeadline(time.Now().Add(d.opts.WriteTimeout)); err != nil {
		return err
	}
	if err := d.ctx.Err(); err != nil {
		return err // the deadline may have replaced the one that ends writes
	}
	if d.opts.Protocol == UDP {
		start := 0
		for _, end := range c.encoder.ends {
			// The first write after a datagram that was refused reports that.
			if _, err := c.out.Write(out[start:end]); err != nil {
				if _, err := c.out.Write(out[start:end]); err != nil {
					return err
				}
			}
			start = end
		}
	} else {
		if _, err := c.out.Write(out); err != nil {
			return err
		}
		if c.zip != nil {
			if err := c.zip.Flush(); err != nil {
				return err
			}
		}
	}
	d.counts.batches.Add(1)
	if again {
		d.counts.resent.Add(uint64(points))
	} else {
		d.counts.sent.Add(uint64(points))
	}
	return nil
}

// keep remembers a batch, and forgets those that are acknowledged.
func (c *connection) keep(s sentBatch) {
	full := s.data
	if len(full) < batchBytes/2 {
		s.data = bytes.Clone(full)
	} else {
		full = nil
	}
	c.sent = append(c.sent, s)
	c.sentBytes += len(s.data)
	acknowledged := c.acknowledged()
	n := 0
	for n < len(c.sent) && (c.sent[n].end <= acknowledged || c.sentBytes > maxUnacknowledged) {
		c.sentBytes -= len(c.sent[n].data)
		n++
	}
	d := c.d
	d.mu.Lock()
	if full != nil {
		d.recycle(full)
	}
	for _, s := range c.sent[:n] {
		d.recycle(s.data)
	}
	d.mu.Unlock()
	c.sent = slices.Delete(c.sent, 0, n)
}

// acknowledged returns how many bytes the receiver's host has. All that were written count where that is not known.
func (c *connection) acknowledged() int64 {
	written := c.raw.written.Load()
	if n, ok := unacknowledged(c.raw.Conn); ok {
		return written - n
	}
	return written
}

// unacknowledged returns the batches that must be sent again.
func (c *connection) unacknowledged() []sentBatch {
	acknowledged := c.acknowledged()
	return slices.DeleteFunc(c.sent, func(s sentBatch) bool { return s.end <= acknowledged })
}

// finish ends the connection in order, and waits until the receiver's host has everything.
func (c *connection) finish() error {
	if c.ended == nil {
		return nil
	}
	_ = c.raw.SetWriteDeadline(time.Now().Add(c.d.opts.WriteTimeout))
	if c.zip != nil {
		_ = c.zip.Close()
	}
	if secured, ok := c.top.(*tls.Conn); ok {
		_ = secured.CloseWrite()
	}
	if half, ok := c.raw.Conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	tick := time.NewTicker(acknowledgePoll)
	defer tick.Stop()
	for {
		if n, ok := unacknowledged(c.raw.Conn); !ok || n == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-c.ended:
			return nil
		case <-c.d.ctx.Done():
			return nil
		}
	}
}
