package report_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/report"
	"github.com/lapwing-monitoring/lapwing/report/reporttest"
)

// memory is a source in memory, the simplest one.
type memory struct {
	begin    time.Time
	fixtures []reporttest.Fixture
}

func (m *memory) Begin(context.Context, string) (time.Time, error) { return m.begin, nil }

func (m *memory) Changes(_ context.Context, in report.Range, keep func(namespace, entity, check string) bool) iter.Seq2[report.History, error] {
	return func(yield func(report.History, error) bool) {
		for _, f := range m.fixtures {
			if f.Namespace != in.Namespace || !keep(f.Namespace, f.Entity, f.Check) {
				continue
			}
			base := -1
			for i, c := range f.Changes {
				if c.Time.Before(in.Since) {
					base = i
				}
			}
			h := report.History{Namespace: f.Namespace, Entity: f.Entity, Check: f.Check}
			for i, c := range f.Changes {
				if i == base || !c.Time.Before(in.Since) && c.Time.Before(in.Until) {
					h.Changes = append(h.Changes, c)
				}
			}
			if len(h.Changes) > 0 && !yield(h, nil) {
				return
			}
		}
	}
}

func TestSuite(t *testing.T) {
	reporttest.Suite(t, func(_ *testing.T, fixtures []reporttest.Fixture) report.Source { return &memory{fixtures: fixtures} })
}

// TestBegin reports on a time that is longer than the history.
func TestBegin(t *testing.T) {
	at := func(seconds int) time.Time { return reporttest.Start.Add(time.Duration(seconds) * time.Second) }
	src := &memory{begin: at(1500), fixtures: []reporttest.Fixture{
		{Namespace: "default", Entity: "web1", Check: "disk", Changes: reporttest.Changes("1200:0 1600:2")},
	}}
	q := report.Query{Kind: report.Availability, Range: report.Range{Namespace: "default", Since: at(1000), Until: at(2000)}}
	rep, err := report.Run(t.Context(), src, q)
	if err != nil {
		t.Fatal(err)
	}
	if !rep.Since.Equal(at(1000)) || !rep.Begin.Equal(at(1500)) || rep.Total.OK != 100_000 || rep.Total.Critical != 400_000 || rep.Total.NoData != 0 {
		t.Errorf("%+v", rep)
	}
	q.Until = at(1500)
	var none *report.NoHistoryError
	if _, err := report.Run(t.Context(), src, q); !errors.As(err, &none) || !none.Begin.Equal(at(1500)) {
		t.Errorf("before the begin: %v", err)
	}
}

// TestWholeMilliseconds reports on a time that begins between two milliseconds: the history does not begin later.
func TestWholeMilliseconds(t *testing.T) {
	q := report.Query{Kind: report.Availability, Range: report.Range{
		Namespace: "default", Since: reporttest.Start.Add(159852 * time.Microsecond), Until: reporttest.Start.Add(time.Hour),
	}}
	rep, err := report.Run(t.Context(), &memory{}, q)
	if err != nil || rep.Begin.After(rep.Since) || !rep.Since.Equal(reporttest.Start.Add(160*time.Millisecond)) {
		t.Errorf("%v: begins at %v, since %v", err, rep.Begin, rep.Since)
	}
}

func TestBounds(t *testing.T) {
	src := &memory{fixtures: []reporttest.Fixture{
		{Namespace: "default", Entity: "web1", Check: "disk", Changes: reporttest.Changes("0:0")},
		{Namespace: "default", Entity: "web2", Check: "disk", Changes: reporttest.Changes("0:2")},
	}}
	q := report.Query{Kind: report.Availability, MaxRows: 1,
		Range: report.Range{Namespace: "default", Since: reporttest.Start, Until: reporttest.Start.Add(time.Hour)}}
	if _, err := report.Run(t.Context(), src, q); !errors.Is(err, report.ErrTooLarge) {
		t.Errorf("two rows: %v", err)
	}
	q.By = report.ByCheck
	if rep, err := report.Run(t.Context(), src, q); err != nil || len(rep.Rows) != 1 || rep.Rows[0].Pairs != 2 {
		t.Errorf("one row: %+v, %v", rep, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := report.Run(ctx, src, q); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	for _, bad := range []report.Query{
		{Kind: "other", Range: q.Range}, {Kind: report.Response, By: "host", Range: q.Range},
		{Kind: report.Response, By: report.ByLabel + "x", Range: q.Range}, {Kind: report.Response},
	} {
		if _, err := report.Run(t.Context(), src, bad); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
	slices.Reverse(src.fixtures)
	if rep, err := report.Run(t.Context(), src, report.Query{Kind: report.Availability, Limit: 1, Range: q.Range}); err != nil ||
		rep.More != 1 || rep.Rows[0].Entity != "web2" {
		t.Errorf("the first row: %+v, %v", rep, err)
	}
}

func TestMonth(t *testing.T) {
	for _, text := range []string{"", "2026", "2026-13", "2026-1", "2026-10-01", "next"} {
		if _, _, err := report.Month(text, time.UTC, time.Time{}); err == nil {
			t.Errorf("%q is a month", text)
		}
	}
	tokyo := time.FixedZone("Tokyo", 9*3600)
	for _, c := range []struct{ now, text, since, until string }{
		{"2026-12-31T14:59:59Z", "this", "2026-12-01", "2027-01-01"},
		{"2026-12-31T14:59:59Z", "last", "2026-11-01", "2026-12-01"},
		{"2026-12-31T15:00:00Z", "this", "2027-01-01", "2027-02-01"}, // it is January in Tokyo
		{"2026-12-31T15:00:00Z", "last", "2026-12-01", "2027-01-01"},
		{"2026-12-31T15:00:00Z", "2024-02", "2024-02-01", "2024-03-01"},
	} {
		now, err := time.Parse(time.RFC3339, c.now)
		if err != nil {
			t.Fatal(err)
		}
		since, until, err := report.Month(c.text, tokyo, now)
		const day = "2006-01-02T15:04:05 MST"
		if got, want := since.Format(day)+" to "+until.Format(day), c.since+"T00:00:00 Tokyo to "+c.until+"T00:00:00 Tokyo"; err != nil || got != want {
			t.Errorf("%s at %s: %s, %v; want %s", c.text, c.now, got, err, want)
		}
	}
}

// TestIncidents lists single incidents: carried, acknowledged, ended by a deletion, open and silenced ones.
func TestIncidents(t *testing.T) {
	src := &memory{fixtures: []reporttest.Fixture{
		{Namespace: "default", Entity: "web1", Check: "disk", Changes: reporttest.Changes("0:2 1100:0 1200:1 1210:2 1220:1 1260:0")},
		{Namespace: "default", Entity: "web2", Check: "disk", Changes: []report.Change{
			{Time: reporttest.Start.Add(1300 * time.Second), Status: 1}, {Time: reporttest.Start.Add(1310 * time.Second), Status: 1, Silenced: true},
			{Time: reporttest.Start.Add(1500 * time.Second), Deleted: true}, {Time: reporttest.Start.Add(1950 * time.Second), Status: 3},
		}},
	}}
	at := func(seconds int) time.Time { return reporttest.Start.Add(time.Duration(seconds) * time.Second) }
	q := report.Query{Kind: report.Incidents, Range: report.Range{Namespace: "default", Since: at(1000), Until: at(2000)}}
	show := func() (out []string) {
		t.Helper()
		rep, err := report.Run(t.Context(), src, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rep.Rows {
			i, end, ack := r.Incident, "open", "-"
			if i.End != nil {
				end = fmt.Sprint(i.End.Sub(reporttest.Start).Seconds())
			}
			if r.MTTA != nil {
				ack = fmt.Sprint(*r.MTTA / 1000)
			}
			out = append(out, fmt.Sprintf("%s %v-%s %ds status %d carried %v deleted %v ack %s", r.Entity, i.Begin.Sub(reporttest.Start).Seconds(), end,
				i.Duration/1000, i.Status, i.Carried, i.Deleted, ack))
		}
		return out
	}
	want := []string{
		"web2 1300-1500 200s status 1 carried false deleted true ack 10",
		"web1 1000-1100 100s status 2 carried true deleted false ack -",
		"web1 1200-1260 60s status 2 carried false deleted false ack -",
		"web2 1950-open 50s status 3 carried false deleted false ack -",
	}
	if got := show(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	q.SkipSilenced, q.Limit = true, 4
	want = []string{want[1], want[2], want[3], "web2 1300-1500 10s status 1 carried false deleted true ack 10"}
	if got := show(); !slices.Equal(got, want) {
		t.Errorf("without silenced time: %q, want %q", got, want)
	}
	q.By = report.ByEntity
	if _, err := report.Run(t.Context(), src, q); err == nil {
		t.Error("incidents by entity are accepted")
	}
}
