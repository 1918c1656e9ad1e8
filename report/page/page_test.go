package page

import (
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/report"
)

func example(kind report.Kind) *report.Report {
	at := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	first, uptime, mttr := at.Add(time.Hour), int64(987_654), int64(61_000)
	row := report.Row{
		Entity: `<script>alert("x")</script>`, Check: "=cmd|x", Pairs: 1, OK: 90_000_000, Critical: 999, UptimePPM: &uptime, MTTR: &mttr,
		Incidents: 1, Resolved: 1, Changes: 2, Band: strings.Repeat("-", 20) + strings.Repeat("o", 30) + strings.Repeat("c", 10),
	}
	return &report.Report{
		Kind: kind, By: report.ByPair, Namespace: "default", Since: at, Until: at.AddDate(0, 1, 0), Begin: at, FirstData: &first,
		Total: row, Rows: []report.Row{row, {Entity: "db1", Check: "disk", NoData: 1000}}, More: 3,
	}
}

func TestHTML(t *testing.T) {
	for _, kind := range report.Kinds {
		var out strings.Builder
		if err := HTML(&out, example(kind), time.UTC); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		if strings.Contains(text, "<script") || regexp.MustCompile(`(?i)(src|href)=|url\(|@import|https?:`).MatchString(text) {
			t.Errorf("%s: a script or an external resource in\n%s", kind, text)
		}
		for _, want := range []string{
			"&lt;script&gt;", "from 2026-10-01 00:00:00 UTC to 2026-11-01", "first known state is of 2026-10-01 01:00", "3 more rows",
			`<rect class="ok" width="98.7654" height="12"/>`, `<rect class="ok" x="20" width="30" height="12"/>`,
			`<rect class="critical" x="50" width="10" height="12"/>`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %s in\n%s", kind, want, text)
			}
		}
		dec := xml.NewDecoder(strings.NewReader(text))
		dec.Strict, dec.AutoClose, dec.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
		for {
			if _, err := dec.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v in\n%s", kind, err, text)
			}
		}
	}
}

func TestCSV(t *testing.T) {
	for kind, want := range map[report.Kind]string{
		report.Availability: "entity,check,uptime_percent,ok_ms,warning_ms,critical_ms,unknown_ms,missing_ms,no_data_ms,silenced_ms\n" +
			"\"<script>alert(\"\"x\"\")</script>\",'=cmd|x,98.7654,90000000,0,999,0,0,0,0\ndb1,disk,,0,0,0,0,0,1000,0\n",
		report.Response: "entity,check,incidents,carried,open,acknowledged,mtta_ms,resolved,mttr_ms,longest_ms\n" +
			"\"<script>alert(\"\"x\"\")</script>\",'=cmd|x,1,0,0,0,,1,61000,0\ndb1,disk,0,0,0,0,,0,,0\n",
	} {
		var out strings.Builder
		if err := CSV(&out, example(kind)); err != nil || out.String() != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", kind, err, out.String(), want)
		}
	}
}

// TestSourceAndNoLabel has what the command's table has, too.
func TestSourceAndNoLabel(t *testing.T) {
	rep := example(report.Availability)
	rep.By, rep.Source, rep.SourceNote = report.ByLabel+"team", report.Embedded, "PostgreSQL lags by more than 60 s"
	write := func() string {
		var out strings.Builder
		if err := HTML(&out, rep, time.UTC); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	text := write()
	for _, want := range []string{"<td>(none)</td>", "<p>Source: the backend&#39;s own history. PostgreSQL lags by more than 60 s.</p>"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	rep.Source, rep.SourceNote = report.PostgreSQL, ""
	if text := write(); !strings.Contains(text, "<p>Source: PostgreSQL.</p>") {
		t.Error(text)
	}
	var out strings.Builder
	if err := CSV(&out, rep); err != nil || strings.Contains(out.String(), "(none)") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestDuration(t *testing.T) {
	for ms, want := range map[int64]string{
		0: "0ms", 999: "999ms", 1000: "1s", 59_999: "59s", 60_000: "1m", 61_000: "1m1s", 3_599_000: "59m59s", 3_600_000: "1h",
		86_340_000: "23h59m", 86_400_000: "1d", 90_000_000: "1d1h", 2_682_000_000: "31d1h",
	} {
		if got := Duration(ms); got != want {
			t.Errorf("%d ms is %s, want %s", ms, got, want)
		}
	}
}
