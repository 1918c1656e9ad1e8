package ctl

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/api/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

type check = resource.CheckConfig

var checkKind = newKind(client.Checks, display[check]{
	singular:  "check",
	namespace: func(c *check) string { return c.Metadata.Namespace },
	columns: []cellOf[check]{
		{column{title: "Name"}, func(c *check) string { return c.Metadata.Name }},
		{column{title: "Command"}, func(c *check) string { return c.Command }},
		{column{title: "Interval", right: true}, func(c *check) string { return number(c.Interval) }},
		{column{title: "Cron"}, func(c *check) string { return c.Cron }},
		{column{title: "Timeout", right: true}, func(c *check) string { return number(c.Timeout) }},
		{column{title: "TTL", right: true}, func(c *check) string { return number(c.TTL) }},
		{column{title: "Subscriptions"}, func(c *check) string { return comma(c.Subscriptions) }},
		{column{title: "Handlers"}, func(c *check) string { return comma(c.Handlers) }},
		{column{title: "Assets"}, func(c *check) string { return comma(c.RuntimeAssets) }},
		{column{title: "Hooks"}, func(c *check) string { return hooks(c.CheckHooks) }},
		{column{title: "Publish?"}, func(c *check) string { return yesNo(c.Publish) }},
		{column{title: "Stdin?"}, func(c *check) string { return yesNo(c.Stdin) }},
		{column{title: "Metric Format"}, func(c *check) string { return c.OutputMetricFormat }},
		{column{title: "Metric Handlers"}, func(c *check) string { return comma(c.OutputMetricHandlers) }},
	},
	title: func(c *check) string { return c.Metadata.Name },
	fields: []fieldOf[check]{
		{"Name", func(c *check) string { return c.Metadata.Name }},
		{"Interval", func(c *check) string { return number(c.Interval) }},
		{"Command", func(c *check) string { return c.Command }},
		{"Cron", func(c *check) string { return c.Cron }},
		{"Timeout", func(c *check) string { return number(c.Timeout) }},
		{"TTL", func(c *check) string { return number(c.TTL) }},
		{"Subscriptions", func(c *check) string { return commaSpace(c.Subscriptions) }},
		{"Handlers", func(c *check) string { return commaSpace(c.Handlers) }},
		{"Runtime Assets", func(c *check) string { return commaSpace(c.RuntimeAssets) }},
		{"Hooks", func(c *check) string { return hooks(c.CheckHooks) }},
		{"Publish?", func(c *check) string { return yesNo(c.Publish) }},
		{"Stdin?", func(c *check) string { return yesNo(c.Stdin) }},
		{"Proxy Entity Name", func(c *check) string { return c.ProxyEntityName }},
		{"Namespace", func(c *check) string { return c.Metadata.Namespace }},
		{"Metric Format", func(c *check) string { return c.OutputMetricFormat }},
		{"Metric Handlers", func(c *check) string { return commaSpace(c.OutputMetricHandlers) }},
	},
	extra: []func(*kind) *cobra.Command{createCheckCommand},
})

// hooks shows a check's hooks like "critical: [ps, df], 1: [log]".
func hooks(lists []resource.HookList) string {
	var out []string
	for _, l := range lists {
		out = append(out, fmt.Sprintf("%s: [%s]", l.Type, commaSpace(l.Hooks)))
	}
	return commaSpace(out)
}

func createCheckCommand(k *kind) *cobra.Command {
	var c check
	cmd := newCreateCommand(k, `  lapwing check create cpu --command check-cpu --subscriptions linux --interval 60
  lapwing check create backup -c check-backup -s db,files --cron '0 6 * * *' --handlers mail --timeout 30`,
		func(s *session, name string) any {
			c.Metadata = resource.ObjectMeta{Name: name, Namespace: s.namespace}
			for _, list := range []*[]string{&c.Subscriptions, &c.Handlers, &c.OutputMetricHandlers, &c.RuntimeAssets} {
				*list = trimmed(*list)
			}
			return &c
		})
	f := cmd.Flags()
	f.StringVarP(&c.Command, "command", "c", "", "command the agents run")
	f.StringVar(&c.Cron, "cron", "", "cron schedule, in place of an interval")
	f.StringSliceVar(&c.Handlers, "handlers", nil, "handlers of the check's events, comma separated")
	f.Uint32Var(&c.HighFlapThreshold, "high-flap-threshold", 0, "percentage of state change from which on the check is flapping")
	f.Uint32VarP(&c.Interval, "interval", "i", 0, "seconds between two runs")
	f.Uint32Var(&c.LowFlapThreshold, "low-flap-threshold", 0, "percentage of state change below which the check is no longer flapping")
	f.StringVar(&c.OutputMetricFormat, "output-metric-format", "", "format of metrics in the output, such as nagios_perfdata")
	f.StringSliceVar(&c.OutputMetricHandlers, "output-metric-handlers", nil, "handlers of these metrics, comma separated")
	f.StringVar(&c.ProxyEntityName, "proxy-entity-name", "", "entity that the check's events are about, if not the agent's")
	f.BoolVarP(&c.Publish, "publish", "p", true, "schedule the check")
	f.BoolVar(&c.RoundRobin, "round-robin", false, "run on one agent of a subscription at a time")
	f.StringSliceVarP(&c.RuntimeAssets, "runtime-assets", "r", nil, "assets the command needs, comma separated")
	f.BoolVar(&c.Stdin, "stdin", false, "hand the command its event's JSON on standard input")
	f.StringSliceVarP(&c.Subscriptions, "subscriptions", "s", nil, "subscriptions whose agents run the check, comma separated")
	f.Uint32VarP(&c.Timeout, "timeout", "t", 0, "seconds after which the command is stopped")
	f.SetAnnotation("timeout", shadows, []string{"true"})
	f.Int64Var(&c.TTL, "ttl", 0, "seconds without a result after which a warning is raised")
	cmd.MarkFlagRequired("command")
	cmd.MarkFlagRequired("subscriptions")
	return cmd
}
