package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// ClusterStatus returns how the members of the cluster stand, as the server that is asked sees it: the JSON of a type
// ClusterStatus, with the fields of a newer server.
func (c *Client) ClusterStatus(ctx context.Context) (json.RawMessage, error) {
	var raw json.RawMessage
	if err := c.Do(ctx, http.MethodGet, "/api/lapwing/v1/cluster", nil, &raw); err != nil {
		return nil, fmt.Errorf("get status of the cluster: %w", err)
	}
	return raw, nil
}

// RemoveMember removes a member of the cluster that is gone for good.
func (c *Client) RemoveMember(ctx context.Context, name string) error {
	if err := c.Do(ctx, http.MethodDelete, "/api/lapwing/v1/cluster/members/"+escape(name), nil, nil); err != nil {
		return fmt.Errorf("remove member %s: %w", name, err)
	}
	return nil
}
