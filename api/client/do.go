package client

import (
	"context"
	"fmt"
)

// Do sends a request for what this package has no Kind for. The path is encoded and begins with /api/; in is sent as JSON and
// the answer's JSON is read into out, both unless nil.
func (c *Client) Do(ctx context.Context, method, path string, in, out any) error {
	if _, err := c.do(ctx, request{method: method, path: path, in: in, out: out}); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}
