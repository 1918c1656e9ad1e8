package client

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

const drainPath = "/api/lapwing/v1/drain"

// Drain has the agents of the server leave it for others, spread over a time in whole seconds, and refuses those that come,
// until Undrain or a new start of the server. It returns at once.
func (c *Client) Drain(ctx context.Context, over time.Duration) (*resource.Drain, error) {
	d := new(resource.Drain)
	seconds := int64(over / time.Second)
	in := DrainRequest{OverSeconds: &seconds}
	if _, err := c.do(ctx, request{method: http.MethodPost, path: drainPath, in: in, out: d}); err != nil {
		return nil, fmt.Errorf("drain: %w", err)
	}
	return d, nil
}

// Draining says whether the server sends its agents away, and how many are left.
func (c *Client) Draining(ctx context.Context) (*resource.Drain, error) {
	d := new(resource.Drain)
	if _, err := c.do(ctx, request{method: http.MethodGet, path: drainPath, out: d}); err != nil {
		return nil, fmt.Errorf("ask whether it drains: %w", err)
	}
	return d, nil
}

// Undrain has the server take agents again.
func (c *Client) Undrain(ctx context.Context) error {
	if _, err := c.do(ctx, request{method: http.MethodDelete, path: drainPath}); err != nil {
		return fmt.Errorf("end drain: %w", err)
	}
	return nil
}
