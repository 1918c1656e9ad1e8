package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

// Waiting returns what waits for the handlers of a namespace, "" for all. With a handler it returns what waits for that
// one, with up to limit parked deliveries. A handler for which nothing waits is left out.
func (c *Client) Waiting(ctx context.Context, namespace, handler string, limit int) (list []Waiting, err error) {
	if namespace == "" {
		namespace = "-"
	}
	path := ours + escape(namespace) + "/waiting"
	if handler != "" {
		path += "?" + url.Values{"handler": {handler}, "limit": {strconv.Itoa(limit)}}.Encode()
	}
	if err := c.Do(ctx, http.MethodGet, path, nil, &list); err != nil {
		return nil, fmt.Errorf("list what waits for handlers: %w", err)
	}
	return list, nil
}

// RetryWaiting makes the deliveries of a handler due that wait for their next attempt, and returns how many.
func (c *Client) RetryWaiting(ctx context.Context, namespace, handler string) (int, error) {
	var out RetriedCount
	if err := c.Do(ctx, http.MethodPost, ours+escape(namespace)+"/waiting/retry", HandlerToRetry{Handler: handler}, &out); err != nil {
		return 0, fmt.Errorf("retry what waits for handler %s: %w", handler, err)
	}
	return out.Count, nil
}
