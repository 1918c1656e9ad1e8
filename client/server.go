package client

import (
	"context"
	"fmt"
	"net/http"
)

// Version returns the versions of the server, which may be a Sensu backend, and of its API. It needs no credentials.
func (c *Client) Version(ctx context.Context) (*ServerVersion, error) {
	v := new(ServerVersion)
	if _, err := c.do(ctx, request{method: http.MethodGet, path: "/version", out: v, public: true}); err != nil {
		return nil, fmt.Errorf("get version: %w", err)
	}
	return v, nil
}

// Health returns the health of the cluster. It needs no credentials.
func (c *Client) Health(ctx context.Context) (*Health, error) {
	h := new(Health)
	if _, err := c.do(ctx, request{method: http.MethodGet, path: "/health", out: h, public: true}); err != nil {
		return nil, fmt.Errorf("get health: %w", err)
	}
	return h, nil
}

// ClusterID returns the identity of the cluster.
func (c *Client) ClusterID(ctx context.Context) (string, error) {
	var id string
	if err := c.Do(ctx, http.MethodGet, "/api/core/v2/cluster/id", nil, &id); err != nil {
		return "", fmt.Errorf("get cluster id: %w", err)
	}
	return id, nil
}

// GrantAPIKey makes an API key for a user and returns its path. The last segment is the secret.
func (c *Client) GrantAPIKey(ctx context.Context, username string) (location string, err error) {
	in := map[string]any{"metadata": map[string]any{}, "username": username}
	header, err := c.Exchange(ctx, http.MethodPost, APIKeys.Path("", ""), in, nil)
	if err != nil {
		return "", fmt.Errorf("grant API key: %w", err)
	}
	return header.Get("Location"), nil
}

// Ready returns nil when the server accepts requests. It needs no credentials.
func (c *Client) Ready(ctx context.Context) error {
	if _, err := c.do(ctx, request{method: http.MethodGet, path: "/ready", public: true}); err != nil {
		return fmt.Errorf("ask whether ready: %w", err)
	}
	return nil
}
