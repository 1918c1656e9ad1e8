package carbon

import (
	"bytes"
	"errors"
	"net"
	"time"

	"golang.org/x/net/ipv4"
)

const (
	// maxDatagram is more than a datagram can have.
	maxDatagram = 64 << 10
	// datagramBatch is how many datagrams are read at once, where the system can do that.
	datagramBatch = 32
)

// readDatagrams takes lines from datagrams until the Listener stops.
func (l *Listener) readDatagrams() {
	defer func() { _ = l.udp.Close() }()
	w := l.opts.NewDroppingWriter()
	defer func() {
		if err := w.Close(); err != nil {
			l.log.Warn("cannot close the writer for datagrams", "err", err)
		}
	}()
	parser := Parser{MaxName: l.opts.MaxName, MaxLine: maxDatagram, KeepInfinite: l.opts.KeepInfinite, Now: l.opts.Now}
	batch := make([]ipv4.Message, datagramBatch)
	memory := make([]byte, datagramBatch*maxDatagram)
	for i := range batch {
		batch[i].Buffers = [][]byte{memory[i*maxDatagram : (i+1)*maxDatagram]}
	}
	// A batch is read the same way from sockets of IPv6.
	socket := ipv4.NewPacketConn(l.udp)
	for {
		if l.stopping.Load() {
			now := time.Now()
			if now.After(l.drainEnd) {
				return
			}
			_ = l.udp.SetReadDeadline(now.Add(drainQuiet))
		}
		n, err := socket.ReadBatch(batch, 0)
		for _, m := range batch[:max(0, n)] {
			l.metrics.bytes.Add(float64(m.N))
			parser.Datagram(m.Buffers[0][:m.N], w)
			l.report(&parser, m.Addr)
		}
		if n > 0 {
			l.flushDatagrams(w)
		}
		switch {
		case err == nil:
		case l.stopping.Load(), errors.Is(err, net.ErrClosed):
			return
		default:
			l.rare.Warn("cannot read a datagram", "", "err", err)
			select {
			case <-time.After(5 * time.Millisecond):
			case <-l.stop:
			}
		}
	}
}

func (l *Listener) flushDatagrams(w DroppingWriter) {
	dropped, err := w.Flush()
	if dropped > 0 {
		l.dropped.Add(uint64(dropped))
		l.metrics.dropped.Add(float64(dropped))
		l.rare.Warn("points that arrived by UDP were dropped, because the writer has no room", "", "points", dropped)
	}
	if err != nil {
		l.rare.Warn("points that arrived by UDP cannot be written", "", "err", err)
	}
}

// Datagram reads all lines of a datagram. The last one may have no line feed.
func (p *Parser) Datagram(data []byte, to Adder) {
	n, err := p.Lines(data, to)
	if rest := data[n:]; err == nil && len(rest) > 0 {
		err = p.Line(bytes.TrimRight(rest, "\x00"), to) // some senders count the end of a C string
	}
	if err != nil {
		p.reject(LineTooLong, data[n:], nil)
	}
}
