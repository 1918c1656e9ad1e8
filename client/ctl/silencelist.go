package ctl

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/words"
)

// silenceText names a silence, its author, its reason and its end in a line.
func silenceText(s *silenced) string { return words.Silence(s, time.Now()) }

// mostWindowed bounds the silences of a list that the server is asked about one by one.
const mostWindowed = 20

// silenceState tells whether silences apply now and, if not, when they do next.
var silenceState = &addition{
	title: "State",
	list: func(ctx context.Context, c *client.Client, _ string, _ client.ListOptions) (cells, error) {
		asked := 0
		return func(raw json.RawMessage) string {
			s, err := decode[silenced](raw)
			if err != nil {
				return ""
			}
			if len(s.Windows)+len(s.Calendars) == 0 || asked == mostWindowed {
				return stateText(s, nil, time.Now())
			}
			asked++
			var p client.SilencePreview
			path := "/api/lapwing/v1/namespaces/" + url.PathEscape(s.Metadata.Namespace) + "/silenced/preview"
			if c.Do(ctx, http.MethodPost, path, raw, &p) != nil {
				return stateText(s, nil, time.Now())
			}
			return stateText(s, &p, time.Now())
		}, nil
	},
	one: noLine,
}

// stateText returns a silence's state; p is nil if only the silence itself is known.
func stateText(s *silenced, p *client.SilencePreview, now time.Time) string {
	begin := time.Unix(s.Begin, 0)
	switch {
	case s.Expired(now):
		return "expired"
	case p == nil && begin.After(now):
		return "begins in " + span(begin.Sub(now))
	case p == nil && len(s.Windows)+len(s.Calendars) > 0:
		return "recurs"
	case p == nil, p.Holds:
		return "active"
	case len(p.Spans) == 0:
		return "never again"
	}
	return "next in " + span(time.Unix(p.Spans[0].Begins, 0).Sub(now))
}
