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

// Report returns a report of a kind: availability, response, incidents, noisiest or flapping. The parameters are the API's.
func (c *Client) Report(ctx context.Context, namespace, kind string, q url.Values) (*StateReport, error) {
	out := new(StateReport)
	if _, err := c.do(ctx, request{method: http.MethodGet, path: reportPath(namespace, kind, q), out: out}); err != nil {
		return nil, fmt.Errorf("get report %s: %w", kind, err)
	}
	return out, nil
}

// ReportText is a report as CSV or a page.
type ReportText struct {
	Text  []byte
	Empty bool // the report is of no check
	More  int  // rows that the limit left out
}

// ReportAs returns a report in the format of the parameters: csv or html.
func (c *Client) ReportAs(ctx context.Context, namespace, kind string, q url.Values) (*ReportText, error) {
	out := new(ReportText)
	header, err := c.do(ctx, request{method: http.MethodGet, path: reportPath(namespace, kind, q), out: &out.Text})
	if err != nil {
		return nil, fmt.Errorf("get report %s: %w", kind, err)
	}
	out.Empty = header.Get("Lapwing-Report-Checks") == "0"
	out.More, _ = strconv.Atoi(header.Get("Lapwing-Report-More")) // an older backend does not send it
	return out, nil
}

// StateHistory returns the changes of a check's state from since up to and without until, newest first, and the state
// that was in force before them; nil if it is not known.
func (c *Client) StateHistory(ctx context.Context, namespace, entity, check string, since, until time.Time) (
	changes []StateChange, before *StateChange, err error,
) {
	q := url.Values{"since": {instant(since)}, "until": {instant(until)}, "limit": {"1000"}}
	for {
		page, next, err := c.stateHistory(ctx, namespace, entity, check, q)
		if err != nil {
			return nil, nil, err
		}
		for i := range page {
			if page[i].Time.Before(until) {
				changes = append(changes, page[i])
			}
		}
		if next == "" {
			break
		}
		q.Set("continue", next)
	}
	before, err = c.newestChange(ctx, namespace, entity, check, url.Values{"until": {instant(since.Add(-time.Nanosecond))}})
	return changes, before, err
}

// HasStateHistory reports whether any change of a check's state is known.
func (c *Client) HasStateHistory(ctx context.Context, namespace, entity, check string) (bool, error) {
	newest, err := c.newestChange(ctx, namespace, entity, check, url.Values{})
	return newest != nil, err
}

// newestChange returns the newest change of a query; nil if there is none.
func (c *Client) newestChange(ctx context.Context, namespace, entity, check string, q url.Values) (*StateChange, error) {
	q.Set("limit", "1")
	for range 2 {
		page, _, err := c.stateHistory(ctx, namespace, entity, check, q)
		if err != nil {
			return nil, err
		}
		if len(page) > 0 {
			return &page[0], nil
		}
		q.Set("since", "0") // lets the backend ask PostgreSQL, which may have older ones
	}
	return nil, nil
}

func (c *Client) stateHistory(ctx context.Context, namespace, entity, check string, q url.Values) (
	page []StateChange, next string, err error,
) {
	path := ours + escape(namespace) + "/events/" + escape(entity) + "/" + escape(check) + "/history?" + q.Encode()
	header, err := c.do(ctx, request{method: http.MethodGet, path: path, out: &page})
	if err != nil {
		return nil, "", fmt.Errorf("get history of %s/%s: %w", entity, check, err)
	}
	return page, header.Get("Sensu-Continue"), nil
}

func instant(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// Percent returns the row's uptime in percent, rounded down; "" if no time counts.
func (r *StateReportRow) Percent() string {
	if r.UptimePpm == nil {
		return ""
	}
	return strconv.FormatInt(*r.UptimePpm/10_000, 10) + fmt.Sprintf(".%04d", *r.UptimePpm%10_000)
}
