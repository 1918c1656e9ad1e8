package page

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"time"

	"github.com/lapwing-monitoring/lapwing/report"
)

//go:embed report.tmpl
var pageText string

var page = template.Must(template.New("report").Parse(pageText))

// titles are what people call the kinds of reports.
var titles = map[report.Kind]string{
	report.Availability: "Availability", report.Response: "Response to incidents", report.Noisiest: "Noisiest checks",
	report.Flapping: "Flapping checks", report.Incidents: "Longest incidents",
}

// view is a report as the template sees it.
type view struct {
	Title, Namespace, Since, Until string
	Begin                          string // "" if the history covers the whole time
	FirstData                      string // likewise
	Source                         string // where the changes come from, and why; "" if it is not known
	SkipSilenced                   bool
	Names, Figures                 []string
	Total                          viewRow
	Rows                           []viewRow
	More                           int
}

type viewRow struct {
	Names, Figures []string
	Up             string // width of the bar of uptime, of 100; "" for none
	Band           []block
}

// block is a run of equal letters in a band.
type block struct {
	X, Width int
	State    string // the class of its color
}

var states = map[byte]string{'o': "ok", 'w': "warning", 'u': "unknown", 'm': "missing", 'c': "critical"}

// HTML writes a page with a report. Its times are those of a place.
func HTML(w io.Writer, rep *report.Report, place *time.Location) error {
	named, figured := names(rep.By), figures[rep.Kind]
	v := view{
		Title: titles[rep.Kind], Namespace: rep.Namespace, Since: moment(rep.Since, place), Until: moment(rep.Until, place),
		Source: source(rep), SkipSilenced: rep.SkipSilenced, More: rep.More, Total: viewOf(&rep.Total, nil, figured),
	}
	if rep.Begin.After(rep.Since) {
		v.Begin = moment(rep.Begin, place)
	}
	if rep.FirstData != nil && rep.FirstData.After(rep.Begin) {
		v.FirstData = moment(*rep.FirstData, place)
	}
	for _, c := range named {
		v.Names = append(v.Names, c.title)
	}
	for _, c := range figured {
		v.Figures = append(v.Figures, c.title)
	}
	for i := range rep.Rows {
		v.Rows = append(v.Rows, viewOf(&rep.Rows[i], named, figured))
	}
	var out bytes.Buffer
	if err := page.Execute(&out, &v); err != nil {
		return fmt.Errorf("write the page of a report: %w", err)
	}
	if _, err := out.WriteTo(w); err != nil {
		return fmt.Errorf("write the page of a report: %w", err)
	}
	return nil
}

// source says where the changes of a report come from, and why not from PostgreSQL.
func source(rep *report.Report) string {
	text := map[string]string{report.Embedded: "the backend's own history", report.PostgreSQL: "PostgreSQL"}[rep.Source]
	if text != "" && rep.SourceNote != "" {
		text += ". " + rep.SourceNote
	}
	return text
}

func viewOf(r *report.Row, named, figured []column) viewRow {
	v := viewRow{Up: Uptime(r.UptimePPM)}
	for _, c := range named {
		v.Names = append(v.Names, c.text(r))
	}
	for _, c := range figured {
		v.Figures = append(v.Figures, c.text(r))
	}
	for i := 0; i < len(r.Band); {
		end := i + 1
		for end < len(r.Band) && r.Band[end] == r.Band[i] {
			end++
		}
		if state := states[r.Band[i]]; state != "" {
			v.Band = append(v.Band, block{i, end - i, state})
		}
		i = end
	}
	return v
}
