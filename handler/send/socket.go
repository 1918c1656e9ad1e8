package send

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/lapwing-monitoring/lapwing/resource"
)

var errNoSocket = errors.New("handler has no socket")

// runTCP connects, writes the data unchanged, and closes.
func (s *Sender) runTCP(ctx context.Context, h *resource.Handler, job Job) Result {
	return s.writeOnce(ctx, "tcp", h, job)
}

// runUDP sends the data as one datagram. Its arrival is not known.
func (s *Sender) runUDP(ctx context.Context, h *resource.Handler, job Job) Result {
	res := s.writeOnce(ctx, "udp", h, job)
	res.Temporary = false // a failure is about the datagram's size, or an answer to an earlier one
	return res
}

// writeOnce makes one write to the handler's socket. The handler's timeout covers connecting and writing together.
func (s *Sender) writeOnce(ctx context.Context, network string, h *resource.Handler, job Job) Result {
	if h.Socket == nil {
		return permanent(errNoSocket)
	}
	data, err := job.data()
	if err != nil {
		return permanent(err)
	}
	if err := s.dial.write(ctx, network, address(h.Socket.Host, h.Socket.Port), data); err != nil {
		return temporary(err)
	}
	return Result{}
}

func address(host string, port uint32) string {
	return net.JoinHostPort(host, strconv.FormatUint(uint64(port), 10))
}

// write connects, makes one write and closes.
func (d dialer) write(ctx context.Context, network, addr string, data []byte) error {
	conn, err := d.dial(ctx, network, addr)
	if err != nil {
		return err
	}
	release := context.AfterFunc(ctx, func() { conn.Close() })
	defer release()
	_, err = conn.Write(data)
	err = errors.Join(err, conn.Close())
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("write to %s: %w", addr, ctx.Err())
	}
	return err
}

// writeDatagrams sends each piece as a datagram.
func (d dialer) writeDatagrams(ctx context.Context, addr string, pieces [][]byte) error {
	conn, err := d.dial(ctx, "udp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, piece := range pieces {
		if _, err := conn.Write(piece); err != nil {
			return err
		}
	}
	return nil
}
