package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

type aggregate = resource.Aggregate

var aggregateKind = newKind(client.Aggregates, display[aggregate]{
	namespace: func(a *aggregate) string { return a.Metadata.Namespace },
	columns: []cellOf[aggregate]{
		{column{title: "Name"}, func(a *aggregate) string { return a.Metadata.Name }},
		{column{title: "Members", text: true}, aggregateMembers},
		{column{title: "Group By"}, func(a *aggregate) string { return a.GroupBy }},
		{column{title: "Warning"}, func(a *aggregate) string { return threshold(a.Warning) }},
		{column{title: "Critical"}, func(a *aggregate) string { return threshold(a.Critical) }},
		{column{title: "Interval", right: true}, func(a *aggregate) string { return number(a.Interval) }},
		{column{title: "Result"}, aggregateResult},
	},
	title: func(a *aggregate) string { return a.Metadata.Name },
	fields: []fieldOf[aggregate]{
		{label: "Name", text: func(a *aggregate) string { return a.Metadata.Name }},
		{label: "Members", text: aggregateMembers},
		{label: "Failing", text: func(a *aggregate) string { return a.Failing }},
		{label: "Group By", text: func(a *aggregate) string { return a.GroupBy }},
		{label: "Warning", text: func(a *aggregate) string { return threshold(a.Warning) }},
		{label: "Critical", text: func(a *aggregate) string { return threshold(a.Critical) }},
		{label: "Min Members", text: func(a *aggregate) string { return number(a.MinMembers) }},
		{label: "Interval", text: func(a *aggregate) string { return number(a.Interval) }},
		{label: "Result", text: aggregateResult},
		{label: "Handlers", text: func(a *aggregate) string { return commaSpace(a.Result.Handlers) }},
		{label: "Pipelines", text: func(a *aggregate) string {
			var names []string
			for _, p := range a.Result.Pipelines {
				names = append(names, p.Name)
			}
			return commaSpace(names)
		}},
		{label: "Namespace", text: func(a *aggregate) string { return a.Metadata.Namespace }},
	},
	create: []flagField{
		{flag: "field-selector", field: "field_selector", usage: "field selector of the members, for example 'event.check.name == disk'"},
		{flag: "label-selector", field: "label_selector", usage: "label selector of the members, for example 'region == eu'"},
		{flag: "critical-percent", field: "critical.percent", kind: numberField,
			usage: "least percentage of failing members for a critical result"},
		{flag: "critical-count", field: "critical.count", kind: numberField,
			usage: "least number of failing members for a critical result"},
		{flag: "warning-percent", field: "warning.percent", kind: numberField, usage: "least percentage of failing members for a warning"},
		{flag: "warning-count", field: "warning.count", kind: numberField, usage: "least number of failing members for a warning"},
		{flag: "interval", short: "i", field: "interval", kind: numberField, initial: "60", usage: "seconds between two evaluations"},
		{flag: "group-by", field: "group_by", usage: "field to group by, for example entity.labels.rack; each value has a result of its own"},
		{flag: "failing", field: "failing", usage: "field selector of the members that count as failing (default members that are not OK)"},
		{flag: "min-members", field: "min_members", kind: numberField, usage: "least number of members; with fewer the result is unknown"},
		{flag: "entity", field: "result.entity", usage: "entity of the result (default the aggregate's name)"},
		{flag: "check", field: "result.check", usage: `check of the result (default "aggregate")`},
		{flag: "handlers", field: "result.handlers", kind: listField, usage: "handlers of the result, comma separated"},
	},
	createExamples: `  lapwing aggregate create disks --field-selector 'event.check.name == disk' --warning-percent 10 --critical-percent 30 --handlers slack
  lapwing aggregate create racks --field-selector 'event.check.name == keepalive' --group-by entity.labels.rack --critical-percent 50 -i 30`,
	can:   canList | canInfo | canDelete | canCreate | canUpdate,
	extra: []func(*kind) *cobra.Command{evaluateCommand},
})

func aggregateMembers(a *aggregate) string {
	var parts []string
	for _, s := range []string{a.FieldSelector, a.LabelSelector} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, " && ")
}

func aggregateResult(a *aggregate) string {
	name := a.EntityName()
	if a.GroupBy != "" {
		name += "-…"
	}
	return name + "/" + a.CheckName()
}

// threshold returns a threshold like "30% or 5".
func threshold(t *resource.AggregateThreshold) string {
	var parts []string
	if t != nil && t.Percent > 0 {
		parts = append(parts, fmt.Sprintf("%g%%", t.Percent))
	}
	if t != nil && t.Count > 0 {
		parts = append(parts, number(t.Count))
	}
	return strings.Join(parts, " or ")
}

// evaluateCommand shows an aggregate's result at this moment.
func evaluateCommand(k *kind) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "evaluate NAME",
		Short:   "show the present result of one aggregate, without making an event",
		Example: "  lapwing aggregate evaluate my-aggregate\n  lapwing aggregate evaluate my-aggregate --format json",
		Args:    args("NAME"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			var raw json.RawMessage
			if err := s.client.Do(ctx, http.MethodGet, k.Path(s.namespace, args[0])+"/evaluation", nil, &raw); err != nil {
				return missingNamed(k, args[0], err)
			}
			return s.printPlain(raw, s.showEvaluation)
		}),
	}
	completeNames(cmd, k)
	formatFlag(cmd)
	return cmd
}

func (s *invocation) showEvaluation(raw json.RawMessage) (shown, error) {
	results, err := decode[[]resource.AggregateEvaluation](raw)
	if err != nil {
		return nil, err
	}
	t := &table{color: s.color, columns: []column{
		{title: "Entity"}, {title: "Check"}, {title: "State", keep: true, color: wordColor},
		{title: "Members", right: true}, {title: "Failing", right: true}, {title: "Percent", right: true},
	}}
	for _, r := range *results {
		t.rows = append(t.rows, []string{r.Entity, r.Check, stateWord(r.Status), fmt.Sprint(r.Members),
			fmt.Sprint(r.Failing), fmt.Sprintf("%.1f", r.Percent)})
	}
	return t, nil
}
