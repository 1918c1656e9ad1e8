package client

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

const drainPath = "/api/lapwing/v1/drain"

// Drain makes the server send its agents to other backends, spread over a time in whole seconds, and refuse new ones.
// This ends with Undrain or a restart of the server. Drain returns at once.
func (c *Client) Drain(ctx context.Context, over time.Duration) (*resource.Drain, error) {
	d := new(resource.Drain)
	seconds := int64(over / time.Second)
	in := DrainRequest{OverSeconds: &seconds}
	if _, err := c.do(ctx, request{method: http.MethodPost, path: drainPath, in: in, out: d}); err != nil {
		return nil, fmt.Errorf("drain: %w", err)
	}
	return d, nil
}

// Draining returns whether the server is sending its agents away, and how many are left.
func (c *Client) Draining(ctx context.Context) (*resource.Drain, error) {
	d := new(resource.Drain)
	if _, err := c.do(ctx, request{method: http.MethodGet, path: drainPath, out: d}); err != nil {
		return nil, fmt.Errorf("ask whether it drains: %w", err)
	}
	return d, nil
}

// Undrain makes the server accept agents again.
func (c *Client) Undrain(ctx context.Context) error {
	if _, err := c.do(ctx, request{method: http.MethodDelete, path: drainPath}); err != nil {
		return fmt.Errorf("end drain: %w", err)
	}
	return nil
}
