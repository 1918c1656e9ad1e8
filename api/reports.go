package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/report"
	reportpage "github.com/lapwing-monitoring/lapwing/report/page"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/state"
)

const (
	// reportsAtOnce is how many reports are computed at a time.
	reportsAtOnce = 2
	// reportTime is the time limit of one, with its wait for a turn.
	reportTime = 2 * time.Minute
	// reportsAnswered is how many are in memory at a time, being computed or sent.
	reportsAnswered = 8
	// reportSend is how long a client may take to receive one.
	reportSend = time.Minute
	// reportRows bounds the rows of a report in memory.
	reportRows = 100_000
	// reportPage is how many rows a page has unless the request says it.
	reportPage = 500
	// reportSpan is the default time of a report.
	reportSpan = 30 * 24 * time.Hour
)

func (a *API) serveReports() {
	for _, kind := range report.Kinds {
		a.route(ours+"namespaces/{namespace}/reports/"+string(kind), access{resource: "events", labels: true},
			methods{http.MethodGet: func(w *response, r *request) error { return a.report(w, r, kind) }})
	}
}

// report computes a report over the history of a namespace.
func (a *API) report(w *response, r *request, kind report.Kind) error {
	if a.opts.Reports == nil {
		return &apiError{status: http.StatusNotImplemented, code: codeInternal, message: "this backend has no history for reports"}
	}
	q, place, err := a.reportQuery(r, kind)
	if err != nil {
		return err
	}
	format := r.URL.Query().Get("format")
	write := map[string]func(*report.Report) error{
		"": func(rep *report.Report) error { return w.object(rep) }, "json": func(rep *report.Report) error { return w.object(rep) },
		"csv": func(rep *report.Report) error {
			w.Header().Set("Content-Type", "text/csv; charset=utf-8")
			return reportpage.CSV(w, rep)
		},
		"html": func(rep *report.Report) error {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
			return reportpage.HTML(w, rep, place)
		},
	}[format]
	if write == nil {
		return invalid("format must be json, csv or html, not %q", format)
	}
	if format == "html" && q.Limit == 0 {
		q.Limit = reportPage
	}
	ctx, cancel := context.WithTimeout(r.Context(), reportTime)
	defer cancel()
	w.patient()
	if err := turn(ctx, a.reports); err != nil {
		return err
	}
	defer func() { <-a.reports }()
	rep, err := a.computeReport(ctx, r, q)
	if err != nil {
		return err
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(reportSend)) // others may wait for this client
	// Of the other formats, only JSON has these numbers.
	w.Header().Set("Lapwing-Report-Checks", strconv.FormatInt(rep.Total.Pairs, 10))
	w.Header().Set("Lapwing-Report-More", strconv.Itoa(rep.More))
	return write(rep)
}

// turn waits for one of limited places. The caller gives it back.
func turn(ctx context.Context, places chan struct{}) error {
	select {
	case places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return &apiError{status: http.StatusServiceUnavailable, code: codeInternal, message: "too many reports are under way"}
	}
}

// computeReport computes a report when it is its turn.
func (a *API) computeReport(ctx context.Context, r *request, q *report.Query) (*report.Report, error) {
	if err := turn(ctx, a.reporting); err != nil {
		return nil, err
	}
	defer func() { <-a.reporting }()
	if err := a.selectPairs(ctx, r, q); err != nil {
		return nil, err
	}
	src, name, note, err := a.reportSource(ctx, q.Range)
	if err != nil {
		return nil, err
	}
	rep, err := report.Run(ctx, src, *q)
	var none *report.NoHistoryError
	switch {
	case errors.As(err, &none):
		return nil, invalid("%v", none)
	case errors.Is(err, report.ErrTooLarge):
		return nil, invalid("%v: select fewer checks, set a limit, or ask for rows by entity, check or label", err)
	case err != nil:
		return nil, err
	}
	if rep.Total.Pairs == 0 { // a deleted namespace may have a history
		if err := a.needNamespace(q.Namespace); err != nil {
			return nil, err
		}
	}
	rep.Source, rep.SourceNote = name, note
	return rep, nil
}

// reportSource chooses where the changes of a time come from. It is PostgreSQL if that is up to date and complete, unless
// the embedded history has more of the time.
func (a *API) reportSource(ctx context.Context, in report.Range) (src report.Source, name, note string, err error) {
	if a.opts.LongHistory == nil || !a.opts.LongHistory.Configured() {
		return a.opts.Reports, report.Embedded, "", nil
	}
	begin, err := a.opts.Reports.Begin(ctx, in.Namespace)
	if err != nil {
		return nil, "", "", fmt.Errorf("find the begin of the history: %w", err)
	}
	c := a.opts.LongHistory.Covers(ctx, in.Since, in.Until)
	const gaps = "PostgreSQL lacks changes of this time: the view lapwing.gaps says which and why"
	switch {
	case c.Reason != "":
		return a.opts.Reports, report.Embedded, c.Reason, nil
	case c.Begin.After(in.Since) && begin.Before(c.Begin):
		note = "PostgreSQL has changes from " + c.Begin.UTC().Format(time.RFC3339) + " on"
		return a.opts.Reports, report.Embedded, note, nil
	case c.Gaps > 0 && !begin.After(in.Since):
		return a.opts.Reports, report.Embedded, gaps, nil
	case c.Gaps > 0:
		note = gaps
	}
	return a.opts.LongHistory, report.PostgreSQL, note, nil
}

// reportQuery reads the parameters of a report, and the time zone of its page.
func (a *API) reportQuery(r *request, kind report.Kind) (*report.Query, *time.Location, error) {
	values, now := r.URL.Query(), a.opts.Now()
	q := &report.Query{Kind: kind, By: values.Get("by"), Limit: pageOf(r, nil).limit, MaxRows: reportRows}
	q.Namespace = r.PathValue("namespace")
	place, err := time.LoadLocation(values.Get("zone"))
	if err != nil {
		return nil, nil, invalid("zone: %q is no time zone such as Europe/Berlin", values.Get("zone"))
	}
	if q.Since, q.Until, err = reportTimes(values.Get("month"), values.Get("since"), values.Get("until"), place, now); err != nil {
		return nil, nil, err
	}
	if q.SkipSilenced, err = boolean(values.Get("skip_silenced")); err != nil {
		return nil, nil, invalid("skip_silenced must be true or false, not %q", values.Get("skip_silenced"))
	}
	name, byLabel := strings.CutPrefix(q.By, report.ByLabel)
	switch {
	case kind == report.Incidents && q.By != "" && q.By != report.ByPair:
		return nil, nil, invalid("by must be %s in a report of incidents: each row is an incident of a check", report.ByPair)
	case byLabel && name != "":
		q.Label = a.labelOfPair(q.Namespace, name)
	case byLabel, q.By != "" && q.By != report.ByPair && q.By != report.ByEntity && q.By != report.ByCheck:
		return nil, nil, invalid("by must be %s, %s, %s or %sNAME, not %q", report.ByPair, report.ByEntity, report.ByCheck, report.ByLabel, q.By)
	}
	return q, place, nil
}

func boolean(text string) (bool, error) {
	if text == "" {
		return false, nil
	}
	return strconv.ParseBool(text)
}

// reportTimes returns the time of a report. It ends now at the latest.
func reportTimes(month, since, until string, place *time.Location, now time.Time) (from, to time.Time, err error) {
	if month != "" {
		if since != "" || until != "" {
			return from, to, invalid("month goes with neither since nor until")
		}
		if from, to, err = report.Month(month, place, now); err != nil {
			return from, to, invalid("%v", err)
		}
	} else {
		if from, err = instant(since, now); err != nil {
			return from, to, err
		}
		if to, err = instant(until, now); err != nil {
			return from, to, err
		}
		if from.IsZero() {
			from = now.Add(-reportSpan)
		}
	}
	if to.IsZero() || to.After(now) {
		to = now
	}
	if !from.Before(to) {
		return from, to, invalid("the report would begin at %s, which is not before its end", from.UTC().Format(time.RFC3339))
	}
	return from, to, nil
}

// labelOfPair returns a function that finds a label's value for a check of an entity: that of the check's definition, or
// else the entity's.
func (a *API) labelOfPair(namespace, label string) func(entity, check string) string {
	definitions := a.opts.Config.Snapshot()
	return func(entity, check string) string {
		if c, ok := config.Get(definitions, config.Checks, namespace, check); ok {
			if value, ok := c.Metadata.Labels[label]; ok {
				return value
			}
		}
		if e, ok := config.Get(definitions, config.Entities, namespace, entity); ok {
			return selector.LabelOf(&e.Metadata, e, label).String()
		}
		return ""
	}
}

// selectPairs limits a report to the checks that a request selects and its sender may see. The selectors decide about
// the present events. Of an event that is gone only the names are known: it is selected if they decide, and not for a
// role that is limited by labels.
func (a *API) selectPairs(ctx context.Context, r *request, q *report.Query) error {
	p := pageOf(r, (*resource.Event)(nil))
	if p.err != nil || p.selector == nil {
		return p.err
	}
	type pair struct{ entity, check string }
	find := func(s *selector.Selector) (map[pair]bool, error) {
		found, err := a.opts.State.Select(ctx, state.Query{Namespace: q.Namespace, Selector: s})
		if err != nil {
			return nil, fmt.Errorf("select checks: %w", err)
		}
		out := make(map[pair]bool, found.Len())
		for k := range found.Keys() {
			out[pair{k.Entity, k.Check}] = true
		}
		return out, nil
	}
	chosen, err := find(p.selector)
	if err != nil {
		return err
	}
	var present map[pair]bool
	if r.permit.Selector() == nil {
		if present, err = find(nil); err != nil {
			return err
		}
	}
	q.Keep = func(namespace, entity, check string) bool {
		k := pair{entity, check}
		if chosen[k] || present == nil || present[k] {
			return chosen[k]
		}
		return selectsNames(p.selector, namespace, entity, check)
	}
	return nil
}

// nameFields are the fields that an event's names decide.
var nameFields = map[string]bool{
	"event.name": true, "event.namespace": true, "event.entity.name": true, "event.entity.namespace": true,
	"event.check.name": true, "event.check.namespace": true,
}

// selectsNames reports whether a selector selects an event of these names; all other fields are unknown.
func selectsNames(s *selector.Selector, namespace, entity, check string) bool {
	fields := selector.Event(&resource.Event{
		Entity: &resource.Entity{Metadata: resource.ObjectMeta{Namespace: namespace, Name: entity}},
		Check:  &resource.Check{Metadata: resource.ObjectMeta{Namespace: namespace, Name: check}},
	})
	terms := s.Terms()
	return s.Decide(func(i int) selector.Verdict {
		switch t := terms[i]; {
		case t.Label || !nameFields[t.Name]:
			return selector.Unknown
		case t.Match(fields, 0):
			return selector.Yes
		}
		return selector.No
	}) == selector.Yes
}
