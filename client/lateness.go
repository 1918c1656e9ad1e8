package client

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// The lateness of checks and of events has paths beside theirs, which only lapwing serves.
var (
	checkLateness = Kind[resource.CheckLateness]{&resource.Kind{
		Group: resource.AggregateAPIVersion, Plural: "checks/lateness", Namespaced: true,
	}}
	eventLateness = Kind[resource.EventLateness]{&resource.Kind{
		Group: resource.AggregateAPIVersion, Plural: "events/lateness", Namespaced: true,
	}}
	oneCheck = Kind[resource.CheckLateness]{&resource.Kind{
		Group: resource.AggregateAPIVersion, Plural: "checks", Namespaced: true,
	}}
	oneEvent = Kind[resource.EventLateness]{&resource.Kind{
		Group: resource.AggregateAPIVersion, Plural: "events", Namespaced: true, Paired: true,
	}}
)

// ChecksLateness returns when the checks of a namespace, or of all for "", last ran, and which are late.
func (c *Client) ChecksLateness(ctx context.Context, namespace string, opts ListOptions) ([]resource.CheckLateness, error) {
	return List(ctx, c, checkLateness, cmp.Or(namespace, "-"), opts)
}

// CheckLateness returns when a check last ran, and whether it is late.
func (c *Client) CheckLateness(ctx context.Context, namespace, name string) (*resource.CheckLateness, error) {
	return lateness(ctx, c, oneCheck, namespace, name)
}

// EventsLateness returns the overdue events of a namespace, or of all for "".
func (c *Client) EventsLateness(ctx context.Context, namespace string, opts ListOptions) ([]resource.EventLateness, error) {
	return List(ctx, c, eventLateness, cmp.Or(namespace, "-"), opts)
}

// EventLateness returns whether an event, ENTITY/CHECK, is overdue.
func (c *Client) EventLateness(ctx context.Context, namespace, name string) (*resource.EventLateness, error) {
	return lateness(ctx, c, oneEvent, namespace, name)
}

func lateness[T any](ctx context.Context, c *Client, k Kind[T], namespace, name string) (*T, error) {
	out := new(T)
	if err := c.Do(ctx, http.MethodGet, k.Path(namespace, name)+"/lateness", nil, out); err != nil {
		return nil, fmt.Errorf("get lateness of %s: %w", k.describe(namespace, name), err)
	}
	return out, nil
}
