package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
)

// graphitePath is where the API has Graphite's.
const graphitePath = "/api/lapwing/v1/graphite"

// RenderedSeries is a series in the answer of Render.
type RenderedSeries struct {
	Target string            `json:"target"`
	Tags   map[string]string `json:"tags"`
	// Datapoints are pairs of a value, null if there is none, and a time in Unix seconds.
	Datapoints [][2]*float64 `json:"datapoints"`
}

// FoundMetric is a node in the answer of FindMetrics.
type FoundMetric struct {
	Path   string `json:"path"`
	IsLeaf bool   `json:"is_leaf"`
}

// RenderRequest are the parameters of Render. From and Until are as Graphite has them: -1h, now, noon yesterday.
type RenderRequest struct {
	Targets       []string
	From, Until   string
	MaxDataPoints int
	// More has further parameters, for images: width, height, title.
	More url.Values
}

func (r *RenderRequest) query(format string) string {
	q := url.Values{"target": r.Targets, "from": {r.From}, "until": {r.Until}, "format": {format}}
	if r.MaxDataPoints > 0 {
		q.Set("maxDataPoints", fmt.Sprint(r.MaxDataPoints))
	}
	for key, values := range r.More {
		q[key] = values
	}
	return graphitePath + "/render?" + q.Encode()
}

// Render evaluates Graphite targets.
func (c *Client) Render(ctx context.Context, r *RenderRequest) (series []RenderedSeries, err error) {
	if err := c.Do(ctx, http.MethodGet, r.query("json"), nil, &series); err != nil {
		return nil, fmt.Errorf("render: %w", err)
	}
	return series, nil
}

// RenderAs evaluates Graphite targets, and returns the answer in another format: png, svg, csv, raw, pickle or msgpack.
func (c *Client) RenderAs(ctx context.Context, r *RenderRequest, format string) (answer []byte, err error) {
	if err := c.Do(ctx, http.MethodGet, r.query(format), nil, &answer); err != nil {
		return nil, fmt.Errorf("render: %w", err)
	}
	return answer, nil
}

// FindMetrics returns the nodes of the path that match a pattern.
func (c *Client) FindMetrics(ctx context.Context, pattern string) (found []FoundMetric, err error) {
	q := url.Values{"query": {pattern}, "format": {"json"}}
	if err := c.Do(ctx, http.MethodGet, graphitePath+"/metrics/find?"+q.Encode(), nil, &found); err != nil {
		return nil, fmt.Errorf("find metrics: %w", err)
	}
	return found, nil
}
