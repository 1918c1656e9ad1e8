package client

import (
	"context"
	"fmt"
	"net/http"
)

func queuePath(namespace string) string {
	if namespace == "" {
		namespace = "-"
	}
	return ours + escape(namespace) + "/queue"
}

// Queue lists the groups of round-robin checks of a namespace, "" for all.
func (c *Client) Queue(ctx context.Context, namespace string) (groups []GroupStatus, err error) {
	if err := c.Do(ctx, http.MethodGet, queuePath(namespace), nil, &groups); err != nil {
		return nil, fmt.Errorf("list the groups of round-robin checks: %w", err)
	}
	return groups, nil
}

// QueueGroups returns the groups of a round-robin check with their turns.
func (c *Client) QueueGroups(ctx context.Context, namespace, check string) (groups []GroupDetail, err error) {
	if err := c.Do(ctx, http.MethodGet, queuePath(namespace)+"/"+escape(check), nil, &groups); err != nil {
		return nil, fmt.Errorf("get the groups of check %s: %w", check, err)
	}
	return groups, nil
}
