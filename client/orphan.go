package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// OrphanOptions selects orphans.
type OrphanOptions struct {
	Missing   string        // entity or check; "" for either
	OlderThan time.Duration // whole seconds
}

func (o *OrphanOptions) query() url.Values {
	q := url.Values{"older_than": {strconv.FormatInt(int64(o.OlderThan/time.Second), 10)}}
	if o.Missing != "" {
		q.Set("missing", o.Missing)
	}
	return q
}

// Orphans lists the events whose entity or check is gone, in a namespace or, for "", in all.
func (c *Client) Orphans(ctx context.Context, namespace string, opts OrphanOptions) (found []resource.Orphan, err error) {
	if _, err := c.do(ctx, request{method: http.MethodGet, path: orphansPath(namespace), query: opts.query(), out: &found}); err != nil {
		return nil, fmt.Errorf("list orphans: %w", err)
	}
	return found, nil
}

// DeleteOrphans deletes orphans and returns how many there were. With resolve, failing ones are resolved first.
func (c *Client) DeleteOrphans(ctx context.Context, namespace string, opts OrphanOptions, resolve bool) (n int, err error) {
	q := opts.query()
	if resolve {
		q.Set("events", "resolve")
	}
	var report OrphanReport
	if _, err := c.do(ctx, request{method: http.MethodDelete, path: orphansPath(namespace), query: q, out: &report}); err != nil {
		return 0, fmt.Errorf("delete orphans: %w", err)
	}
	return report.Removed, nil
}

func orphansPath(namespace string) string {
	if namespace == "" {
		namespace = "-" // all
	}
	return "/api/lapwing/v1/namespaces/" + url.PathEscape(namespace) + "/orphans"
}
