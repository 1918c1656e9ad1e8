package client

import (
	"context"
	"fmt"
	"net/http"
)

// Postgres returns how the copy of events in PostgreSQL stands, as each backend writes it.
func (c *Client) Postgres(ctx context.Context) (members []PostgresStatus, err error) {
	if _, err := c.do(ctx, request{method: http.MethodGet, path: "/api/lapwing/v1/postgres", out: &members}); err != nil {
		return nil, fmt.Errorf("get the status of PostgreSQL: %w", err)
	}
	return members, nil
}
