package client

import (
	"context"
	"fmt"
	"net/http"
)

// ServerVersion is what the server says of itself. Backend is lapwing's or Sensu's own version.
type ServerVersion struct {
	Backend   string            `json:"sensu_backend"`
	APIGroups map[string]string `json:"api_groups"`
}

// Version asks for the server's version. It needs no credentials.
func (c *Client) Version(ctx context.Context) (*ServerVersion, error) {
	v := new(ServerVersion)
	if _, err := c.do(ctx, request{method: http.MethodGet, path: "/version", out: v, public: true}); err != nil {
		return nil, fmt.Errorf("get version: %w", err)
	}
	return v, nil
}

// Health is the state of the servers of a cluster.
type Health struct {
	Members []MemberHealth `json:"ClusterHealth"`
	Header  struct {
		ClusterID uint64 `json:"cluster_id"`
		MemberID  uint64 `json:"member_id"`
	}
}

// MemberHealth is the state of one of them, as the others see it.
type MemberHealth struct {
	ID      uint64 `json:"MemberID"`
	Name    string
	Err     string // empty if healthy
	Healthy bool

	Draining bool // it sends its agents to other backends
}

// Health asks for the health of the cluster. It needs no credentials.
func (c *Client) Health(ctx context.Context) (*Health, error) {
	h := new(Health)
	if _, err := c.do(ctx, request{method: http.MethodGet, path: "/health", out: h, public: true}); err != nil {
		return nil, fmt.Errorf("get health: %w", err)
	}
	return h, nil
}

// ClusterID asks for the identity of the cluster.
func (c *Client) ClusterID(ctx context.Context) (string, error) {
	var id string
	if err := c.Do(ctx, http.MethodGet, "/api/core/v2/cluster/id", nil, &id); err != nil {
		return "", fmt.Errorf("get cluster id: %w", err)
	}
	return id, nil
}

// GrantAPIKey makes a key for a user and returns the path of the key, the last segment of which is the secret.
func (c *Client) GrantAPIKey(ctx context.Context, username string) (location string, err error) {
	in := map[string]any{"metadata": map[string]any{}, "username": username}
	header, err := c.Exchange(ctx, http.MethodPost, APIKeys.Path("", ""), in, nil)
	if err != nil {
		return "", fmt.Errorf("grant API key: %w", err)
	}
	return header.Get("Location"), nil
}

// Ready returns nil when the server takes requests. It needs no credentials.
func (c *Client) Ready(ctx context.Context) error {
	if _, err := c.do(ctx, request{method: http.MethodGet, path: "/ready", public: true}); err != nil {
		return fmt.Errorf("ask whether ready: %w", err)
	}
	return nil
}
