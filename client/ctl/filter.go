package ctl

import (
	"strings"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

type filter = resource.EventFilter

var filterKind = newKind(client.Filters, display[filter]{
	namespace: func(f *filter) string { return f.Metadata.Namespace },
	columns: []cellOf[filter]{
		{column{title: "Name"}, func(f *filter) string { return f.Metadata.Name }},
		{column{title: "Action"}, func(f *filter) string { return f.Action }},
		{column{title: "Expressions", text: true}, expressions},
	},
	title: func(f *filter) string { return f.Metadata.Name },
	fields: []fieldOf[filter]{
		{label: "Name", text: func(f *filter) string { return f.Metadata.Name }},
		{label: "Namespace", text: func(f *filter) string { return f.Metadata.Namespace }},
		{label: "Action", text: func(f *filter) string { return f.Action }},
		{label: "Expressions", text: func(f *filter) string { return strings.Join(f.Expressions, " && ") }},
		{label: "When", text: func(f *filter) string { return weekly(f.When) }, unset: func(f *filter) bool { return f.When == nil }},
		{label: "RuntimeAssets", text: func(f *filter) string { return commaSpace(f.RuntimeAssets) }},
	},
	create: []flagField{
		{flag: "action", short: "a", field: "action", required: true,
			usage: "allow: only events for which all expressions are true pass; deny: only those for which none is"},
		{flag: "expressions", short: "s", field: "expressions", kind: expressionField, required: true,
			usage: "JavaScript expressions over event, comma separated"},
	},
	createExamples: `  lapwing filter create production --action allow --expressions 'event.entity.labels.env == "production"'
  lapwing filter create night -a deny -s 'hour(event.timestamp) < 6, event.check.status == 1'`,
	can: canList | canInfo | canDelete | canCreate | canUpdate,
})

// weekly returns a weekly window like "monday 9:00AM-5:00PM, 6:00PM-7:00PM; friday 9:00AM-1:00PM (UTC)".
func weekly(w *resource.TimeWindowWhen) string {
	var days []string
	for _, day := range []struct {
		name   string
		ranges []resource.TimeWindowTimeRange
	}{
		{"all", w.Days.All}, {"monday", w.Days.Monday}, {"tuesday", w.Days.Tuesday}, {"wednesday", w.Days.Wednesday},
		{"thursday", w.Days.Thursday}, {"friday", w.Days.Friday}, {"saturday", w.Days.Saturday}, {"sunday", w.Days.Sunday},
	} {
		var ranges []string
		for _, r := range day.ranges {
			ranges = append(ranges, r.Begin+"-"+r.End)
		}
		if ranges != nil {
			days = append(days, day.name+" "+commaSpace(ranges))
		}
	}
	return strings.Join(days, "; ") + " (UTC)"
}

// expressions returns a filter's expressions like "(a) && (b)": all must be true.
func expressions(f *filter) string {
	out := make([]string, len(f.Expressions))
	for i, e := range f.Expressions {
		out[i] = "(" + e + ")"
	}
	return strings.Join(out, " && ")
}
