package handler

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/lapwing-monitoring/lapwing/resource"
)

var errNoSocket = errors.New("handler has no socket")

// runTCP connects, writes the data as it is, and closes.
func runTCP(ctx context.Context, h *resource.Handler, dl *Delivery) error {
	err := writeOnce(ctx, "tcp", h, dl.Data)
	if err != nil && !errors.Is(err, errNoSocket) {
		return &temporaryError{err: err}
	}
	return err
}

// writeOnce makes one write to the handler's socket. The handler's timeout is for connecting and writing together.
func writeOnce(ctx context.Context, network string, h *resource.Handler, data []byte) error {
	if h.Socket == nil {
		return errNoSocket
	}
	ctx, cancel := context.WithTimeout(ctx, timeout(h))
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, net.JoinHostPort(h.Socket.Host, strconv.FormatUint(uint64(h.Socket.Port), 10)))
	if err != nil {
		return err
	}
	release := context.AfterFunc(ctx, func() { conn.Close() })
	defer release()
	_, err = conn.Write(data)
	err = errors.Join(err, conn.Close())
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("write to %s: %w", conn.RemoteAddr(), ctx.Err())
	}
	return err
}
