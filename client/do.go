package client

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Do sends a request for what this package has no Kind for. The path is encoded, begins with a slash and may end with a
// query; in is sent as JSON and the answer's JSON is read into out, both unless nil. An out of type *[]byte gets the
// answer as it is.
func (c *Client) Do(ctx context.Context, method, path string, in, out any) error {
	_, err := c.Exchange(ctx, method, path, in, out)
	return err
}

// Exchange is Do, and returns the answer's header.
func (c *Client) Exchange(ctx context.Context, method, path string, in, out any) (http.Header, error) {
	header, err := c.do(ctx, request{method: method, path: path, in: in, out: out})
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return header, nil
}

// GetPublic gets what needs no credentials.
func (c *Client) GetPublic(ctx context.Context, path string, out any) error {
	if _, err := c.do(ctx, request{method: http.MethodGet, path: path, out: out, public: true}); err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	return nil
}

// Warnings are the texts of an answer's Warning header: what the client should know although the request was done.
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
