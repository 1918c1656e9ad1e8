package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

func reportPath(namespace, kind string, q url.Values) string {
	return ours + escape(namespace) + "/reports/" + escape(kind) + "?" + q.Encode()
}

// Report returns a report of a kind: availability, response, noisiest or flapping. The parameters are the API's.
func (c *Client) Report(ctx context.Context, namespace, kind string, q url.Values) (*StateReport, error) {
	out := new(StateReport)
	if err := c.Do(ctx, http.MethodGet, reportPath(namespace, kind, q), nil, out); err != nil {
		return nil, fmt.Errorf("get report %s: %w", kind, err)
	}
	return out, nil
}

// ReportAs returns a report in the format of the parameters: csv or html.
func (c *Client) ReportAs(ctx context.Context, namespace, kind string, q url.Values) (answer []byte, err error) {
	if err := c.Do(ctx, http.MethodGet, reportPath(namespace, kind, q), nil, &answer); err != nil {
		return nil, fmt.Errorf("get report %s: %w", kind, err)
	}
	return answer, nil
}

// StateHistory returns the changes of a check's state from since up to and without until, newest first, and the state
// that was in force before them; nil if it is not known.
func (c *Client) StateHistory(ctx context.Context, namespace, entity, check string, since, until time.Time) (
	changes []StateChange, before *StateChange, err error,
) {
	path := ours + escape(namespace) + "/events/" + escape(entity) + "/" + escape(check) + "/history?"
	q := url.Values{"until": {until.Format(time.RFC3339Nano)}, "limit": {"1000"}}
	for {
		var page []StateChange
		header, err := c.Exchange(ctx, http.MethodGet, path+q.Encode(), nil, &page)
		if err != nil {
			return nil, nil, fmt.Errorf("get history of %s/%s: %w", entity, check, err)
		}
		for i := range page {
			switch at := page[i].Time; {
			case at.Before(since):
				return changes, &page[i], nil
			case at.Before(until):
				changes = append(changes, page[i])
			}
		}
		next := header.Get("Sensu-Continue")
		if next == "" {
			return changes, nil, nil
		}
		q.Set("continue", next)
	}
}

// Percent returns the row's uptime in percent, rounded down; "" if no time counts.
func (r *StateReportRow) Percent() string {
	if r.UptimePpm == nil {
		return ""
	}
	return strconv.FormatInt(*r.UptimePpm/10_000, 10) + fmt.Sprintf(".%04d", *r.UptimePpm%10_000)
}
