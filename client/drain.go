package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// drainOf is a query that names a member of the cluster, "" for the server that is asked.
func drainOf(member string) url.Values {
	if member == "" {
		return nil
	}
	return url.Values{"member": {member}}
}

const drainPath = "/api/lapwing/v1/drain"

// Drain makes a member of the cluster send its agents to other backends, spread over a time in whole seconds, and refuse
// new ones. The member "" is the server itself. This ends with Undrain or a restart of the member. Drain returns at once.
func (c *Client) Drain(ctx context.Context, member string, over time.Duration) (*resource.Drain, error) {
	d := new(resource.Drain)
	seconds := int64(over / time.Second)
	in := DrainRequest{OverSeconds: &seconds}
	if _, err := c.do(ctx, request{method: http.MethodPost, path: drainPath, query: drainOf(member), in: in, out: d}); err != nil {
		return nil, fmt.Errorf("drain: %w", err)
	}
	return d, nil
}

// Draining returns whether a member is sending its agents away, and how many are left.
func (c *Client) Draining(ctx context.Context, member string) (*resource.Drain, error) {
	d := new(resource.Drain)
	if _, err := c.do(ctx, request{method: http.MethodGet, path: drainPath, query: drainOf(member), out: d}); err != nil {
		return nil, fmt.Errorf("ask whether it drains: %w", err)
	}
	return d, nil
}

// Undrain makes a member accept agents again.
func (c *Client) Undrain(ctx context.Context, member string) error {
	if _, err := c.do(ctx, request{method: http.MethodDelete, path: drainPath, query: drainOf(member)}); err != nil {
		return fmt.Errorf("end drain: %w", err)
	}
	return nil
}
