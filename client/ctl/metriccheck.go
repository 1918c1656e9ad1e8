package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/duration"
	"github.com/lapwing-monitoring/lapwing/resource"
)

type metricCheck = resource.MetricCheck

var metricCheckKind = newKind(client.MetricChecks, display[metricCheck]{
	namespace: func(m *metricCheck) string { return m.Metadata.Namespace },
	columns: []cellOf[metricCheck]{
		{column{title: "Name"}, func(m *metricCheck) string { return m.Metadata.Name }},
		{column{title: "Expression", text: true}, func(m *metricCheck) string { return m.Expr }},
		{column{title: "Warning"}, func(m *metricCheck) string { return metricThreshold(m.Warning) }},
		{column{title: "Critical"}, func(m *metricCheck) string { return metricThreshold(m.Critical) }},
		{column{title: "Interval", right: true}, func(m *metricCheck) string { return number(m.Interval) }},
		{column{title: "Result"}, metricCheckResult},
	},
	title: func(m *metricCheck) string { return m.Metadata.Name },
	fields: []fieldOf[metricCheck]{
		{label: "Name", text: func(m *metricCheck) string { return m.Metadata.Name }},
		{label: "Source", text: metricSource},
		{label: "Expression", text: func(m *metricCheck) string { return m.Expr }},
		{label: "Warning", text: func(m *metricCheck) string { return metricThreshold(m.Warning) }},
		{label: "Critical", text: func(m *metricCheck) string { return metricThreshold(m.Critical) }},
		{label: "For", text: func(m *metricCheck) string { return number(m.For) }},
		{label: "Keep Firing For", text: func(m *metricCheck) string { return number(m.KeepFiringFor) }},
		{label: "Window", text: func(m *metricCheck) string { return strconv.FormatInt(m.WindowSeconds(), 10) }},
		{label: "Interval", text: func(m *metricCheck) string { return number(m.Interval) }},
		{label: "Result", text: metricCheckResult},
		{label: "Handlers", text: func(m *metricCheck) string { return commaSpace(m.Result.Handlers) }},
		{label: "Namespace", text: func(m *metricCheck) string { return m.Metadata.Namespace }},
	},
	create: []flagField{
		{flag: "expr", field: "expr", usage: "Graphite target or PromQL expression; each series of it is compared with the thresholds"},
		{flag: "source", field: "source", initial: "graphite", usage: "language of --expr: graphite or promql"},
		{flag: "critical-above", field: "critical.above", kind: decimalField, usage: "value above which a series is critical"},
		{flag: "critical-below", field: "critical.below", kind: decimalField, usage: "value below which a series is critical"},
		{flag: "warning-above", field: "warning.above", kind: decimalField, usage: "value above which a series is a warning"},
		{flag: "warning-below", field: "warning.below", kind: decimalField, usage: "value below which a series is a warning"},
		{flag: "interval", short: "i", field: "interval", kind: numberField, initial: "60", usage: "seconds between two evaluations"},
		{flag: "window", field: "window", kind: numberField, usage: "seconds that a value counts; a series without one is absent (default five intervals)"},
		{flag: "reduce", field: "reduce", usage: "what is compared of the values in the window: last, average, max, min or sum (default last)"},
		{flag: "for", field: "for", kind: numberField, usage: "seconds that a series must be beyond a threshold"},
		{flag: "keep-firing-for", field: "keep_firing_for", kind: numberField, usage: "seconds that a series must be back until the check passes again"},
		{flag: "absent-status", field: "absent_status", kind: numberField, usage: "status of a series without values (default 3)"},
		{flag: "absent-for", field: "absent_for", kind: numberField,
			usage: "seconds without values after which the event of a series is resolved and removed (default 86400)"},
		{flag: "entity-node", field: "entity_node", kind: numberField, usage: "node of the series' name that names the entity, from 0; negative from the end"},
		{flag: "entity-label", field: "entity_label", usage: "tag or label of the series that names the entity"},
		{flag: "entity", field: "result.entity", usage: "entity of the result (default the metric check's name)"},
		{flag: "check", field: "result.check", usage: "check of the result (default the metric check's name)"},
		{flag: "handlers", field: "result.handlers", kind: listField, usage: "handlers of the result, comma separated"},
	},
	createExamples: `  lapwing metric-check create idle --expr 'servers.*.cpu.total.idle' --entity-node 1 --warning-below 20 --critical-below 5 --for 120 --handlers slack
  lapwing metric-check create errors --source promql --expr 'rate(http_errors_total[5m])' --entity-label instance --critical-above 1`,
	can:   canList | canInfo | canDelete | canCreate | canUpdate,
	extra: []func(*kind) *cobra.Command{previewMetricCheckCommand},
})

func metricSource(m *metricCheck) string {
	if m.Source == "" {
		return resource.GraphiteSource
	}
	return m.Source
}

func metricCheckResult(m *metricCheck) string {
	entity := m.EntityName()
	switch {
	case m.EntityLabel != "":
		entity = "{" + m.EntityLabel + "}"
	case m.EntityNode != nil:
		entity = fmt.Sprintf("{node %d}", *m.EntityNode)
	}
	return entity + "/" + m.CheckName()
}

// metricThreshold returns a threshold like "above 5 or below 1".
func metricThreshold(t *resource.MetricCheckThreshold) string {
	text := ""
	if t != nil && t.Above != nil {
		text = fmt.Sprintf("above %g", *t.Above)
	}
	if t != nil && t.Below != nil {
		if text != "" {
			text += " or "
		}
		text += fmt.Sprintf("below %g", *t.Below)
	}
	return text
}

// previewMetricCheckCommand shows what a metric check would have done.
func previewMetricCheckCommand(k *kind) *cobra.Command {
	var last time.Duration
	cmd := &cobra.Command{
		Use:   "preview NAME",
		Short: "show what one metric check would have done in the last hours",
		Long: `Show what a metric check would have done in the last hours with its present definition: how many times it would have
begun to fail, and for each entity the changes of its status. Nothing is stored or sent.`,
		Example: "  lapwing metric-check preview idle --last 24h",
		Args:    args("NAME"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			now := time.Now()
			path := fmt.Sprintf("%s/preview?since=%d&until=%d", k.Path(s.namespace, args[0]), now.Add(-last).Unix(), now.Unix())
			var raw json.RawMessage
			if err := s.client.Do(ctx, http.MethodGet, path, nil, &raw); err != nil {
				return missingNamed(k, args[0], err)
			}
			return s.printPlain(raw, s.showMetricPreview)
		}),
	}
	cmd.Flags().Var(duration.New(6*time.Hour, &last), "last", "how far back to look")
	completeNames(cmd, k)
	formatFlag(cmd)
	return cmd
}

func (s *invocation) showMetricPreview(raw json.RawMessage) (shown, error) {
	p, err := decode[resource.MetricPreview](raw)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(s.out, "would have fired %d times from %s until %s\n", p.Fired, clockTime(p.From), clockTime(p.Until))
	t := &table{color: s.color, columns: []column{
		{title: "Entity"}, {title: "Check"}, {title: "State", keep: true, color: wordColor}, {title: "Changes"}, {title: "Output"},
	}}
	for i := range p.Findings {
		f := &p.Findings[i]
		t.rows = append(t.rows, []string{f.Entity, f.Check, stateWord(f.Status), changesOf(f.Changes), f.Output})
	}
	return t, nil
}

// changesOf lists the last changes of a status.
func changesOf(changes []resource.MetricStatusChange) string {
	const most = 6
	text := ""
	if len(changes) > most {
		text = fmt.Sprintf("… %d before, ", len(changes)-most)
		changes = changes[len(changes)-most:]
	}
	for i, c := range changes {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%d at %s", c.Status, clockTime(c.At))
	}
	return text
}

// clockTime writes a time of the last days.
func clockTime(unix int64) string { return time.Unix(unix, 0).Format("Jan 2 15:04:05") }
