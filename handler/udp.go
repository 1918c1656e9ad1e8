package handler

import (
	"context"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// runUDP sends the data as one datagram. Whether it arrives nobody knows, so it is not tried again.
func runUDP(ctx context.Context, h *resource.Handler, dl *Delivery) error {
	return writeOnce(ctx, "udp", h, dl.Data)
}
