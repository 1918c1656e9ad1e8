package client

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Do sends a request that no Kind covers. The path is encoded, begins with a slash and may end with a query. in is sent
// as JSON, and the answer's JSON is decoded into out; either may be nil. An out of type *[]byte gets the answer's
// bytes.
func (c *Client) Do(ctx context.Context, method, path string, in, out any) error {
	_, err := c.Exchange(ctx, method, path, in, out)
	return err
}

// Exchange is Do, but also returns the answer's header.
func (c *Client) Exchange(ctx context.Context, method, path string, in, out any) (http.Header, error) {
	header, err := c.do(ctx, request{method: method, path: path, in: in, out: out})
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return header, nil
}

// GetPublic gets a path that needs no credentials.
func (c *Client) GetPublic(ctx context.Context, path string, out any) error {
	if _, err := c.do(ctx, request{method: http.MethodGet, path: path, out: out, public: true}); err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	return nil
}

// Warnings returns the texts of an answer's Warning header. The request was done, but the user should know them.
func Warnings(header http.Header) (texts []string) {
	for _, value := range header.Values("Warning") {
		_, rest, _ := strings.Cut(value, " ") // code
		_, quoted, _ := strings.Cut(rest, " ")
		if text, err := strconv.Unquote(quoted); err == nil {
			texts = append(texts, text)
		}
	}
	return texts
}
