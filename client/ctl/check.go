package ctl

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

type check = resource.CheckConfig

var checkKind = newKind(client.Checks, display[check]{
	namespace: func(c *check) string { return c.Metadata.Namespace },
	columns: []cellOf[check]{
		{column{title: "Name"}, func(c *check) string { return c.Metadata.Name }},
		{column{title: "Command", text: true}, func(c *check) string { return c.Command }},
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
		{label: "Name", text: func(c *check) string { return c.Metadata.Name }},
		{label: "Interval", text: func(c *check) string { return number(c.Interval) }},
		{label: "Command", text: func(c *check) string { return c.Command }},
		{label: "Cron", text: func(c *check) string { return c.Cron }},
		{label: "Timeout", text: func(c *check) string { return number(c.Timeout) }},
		{label: "TTL", text: func(c *check) string { return number(c.TTL) }},
		{label: "Subscriptions", text: func(c *check) string { return commaSpace(c.Subscriptions) }},
		{label: "Handlers", text: func(c *check) string { return commaSpace(c.Handlers) }},
		{label: "Runtime Assets", text: func(c *check) string { return commaSpace(c.RuntimeAssets) }},
		{label: "Hooks", text: func(c *check) string { return hooks(c.CheckHooks) }},
		{label: "Publish?", text: func(c *check) string { return yesNo(c.Publish) }},
		{label: "Stdin?", text: func(c *check) string { return yesNo(c.Stdin) }},
		{label: "Depends On", text: func(c *check) string { return commaSpace(c.DependsOn) },
			unset: func(c *check) bool { return len(c.DependsOn) == 0 }},
		{label: "Run Within", text: func(c *check) string { return commaSpace(c.Calendars.RunWithin) },
			unset: func(c *check) bool { return c.Calendars.Empty() }},
		{label: "Not Within", text: func(c *check) string { return commaSpace(c.Calendars.NotWithin) },
			unset: func(c *check) bool { return c.Calendars.Empty() }},
		{label: "Secrets", text: checkSecrets, unset: func(c *check) bool { return len(c.Secrets) == 0 }},
		{label: "Proxy Entity Name", text: func(c *check) string { return c.ProxyEntityName }},
		{label: "Namespace", text: func(c *check) string { return c.Metadata.Namespace }},
		{label: "Metric Format", text: func(c *check) string { return c.OutputMetricFormat }},
		{label: "Metric Handlers", text: func(c *check) string { return commaSpace(c.OutputMetricHandlers) }},
	},
	addition: lastRun,
	create:   checkFields,
	createExamples: `  lapwing check create cpu --command check-cpu --subscriptions linux --interval 60
  lapwing check create backup -c check-backup -s db,files --cron '0 6 * * *' --handlers mail --timeout 30`,
	can:   canList | canInfo | canDelete | canCreate | canUpdate,
	extra: checkCommands(),
})

// checkSecrets says what becomes of a check that wants secrets.
func checkSecrets(c *check) string {
	for _, u := range resource.UnsupportedIn(c) {
		if strings.Contains(u.Text, "secrets") {
			return u.String()
		}
	}
	return ""
}

var checkFields = []flagField{
	{flag: "command", short: "c", field: "command", required: true, usage: "command that the agents run"},
	{flag: "cron", field: "cron", usage: "cron schedule, instead of --interval"},
	{flag: "run-within", field: "calendars.run_within", kind: listField, unasked: true,
		usage: "calendars at whose times alone the check runs, comma separated (not in Sensu)"},
	{flag: "not-within", field: "calendars.not_within", kind: listField, unasked: true,
		usage: "calendars at whose times the check does not run, comma separated (not in Sensu)"},
	{flag: "depends-on", field: "depends_on", kind: listField, unasked: true,
		usage: "dependencies of the check: check, entity/check or entity/, comma separated"},
	{flag: "handlers", field: "handlers", kind: listField, usage: "handlers of the check's events, comma separated"},
	{flag: "high-flap-threshold", field: "high_flap_threshold", kind: numberField,
		usage: "percentage of state change at which the check starts flapping"},
	{flag: "interval", short: "i", field: "interval", kind: numberField, usage: "seconds between two runs"},
	{flag: "low-flap-threshold", field: "low_flap_threshold", kind: numberField,
		usage: "percentage of state change below which the check stops flapping"},
	{flag: "output-metric-format", field: "output_metric_format", usage: "format of metrics in the output, for example nagios_perfdata"},
	{flag: "output-metric-handlers", field: "output_metric_handlers", kind: listField,
		usage: "handlers of the metrics in the output, comma separated"},
	{flag: "proxy-entity-name", field: "proxy_entity_name", usage: "entity of the check's events (default the agent's own)"},
	{flag: "publish", short: "p", field: "publish", kind: yesNoField, initial: "true", usage: "schedule the check"},
	{flag: "round-robin", field: "round_robin", kind: yesNoField, usage: "run each request on only one agent of a subscription, in turn"},
	{flag: "runtime-assets", short: "r", field: "runtime_assets", kind: listField, usage: "assets that the command needs, comma separated"},
	{flag: "stdin", field: "stdin", kind: yesNoField, usage: "write the event's JSON to the command's standard input"},
	{flag: "subscriptions", short: "s", field: "subscriptions", kind: listField, required: true,
		usage: "subscriptions whose agents run the check, comma separated"},
	{flag: "timeout", short: "t", field: "timeout", kind: numberField, usage: "seconds after which the command is stopped"},
	{flag: "ttl", field: "ttl", kind: numberField, usage: "seconds without a result after which a failing event is made"},
}

// hooks returns a check's hooks like "critical: [ps, df], 1: [log]".
func hooks(lists []resource.HookList) string {
	var out []string
	for _, l := range lists {
		out = append(out, fmt.Sprintf("%s: [%s]", l.Type, commaSpace(l.Hooks)))
	}
	return commaSpace(out)
}

// checkCommands returns the commands that set and remove single fields, and a few others.
func checkCommands() []func(*kind) *cobra.Command {
	out := []func(*kind) *cobra.Command{nextRunsCommand, targetsCommand, executeCommand, setHooksCommand, removeHookCommand, setProxyRequestsCommand}
	for _, field := range checkFields {
		out = append(out, func(k *kind) *cobra.Command { return setFieldCommand(k, field) })
	}
	for _, field := range checkFields {
		switch field.flag {
		case "handlers", "high-flap-threshold", "low-flap-threshold", "output-metric-format", "output-metric-handlers",
			"proxy-entity-name", "runtime-assets", "timeout", "ttl":
			out = append(out, func(k *kind) *cobra.Command { return removeFieldCommand(k, field.flag, field.field, field.empty()) })
		}
	}
	return append(out, func(k *kind) *cobra.Command { return removeFieldCommand(k, "proxy-requests", "proxy_requests", nil) })
}

func setFieldCommand(k *kind, field flagField) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "set-" + field.flag + " NAME VALUE",
		Short:   "set " + strings.ReplaceAll(field.flag, "-", " ") + " of a check",
		Example: fmt.Sprintf("  lapwing check set-%s cpu '%s'", field.flag, exampleValue(field)),
		Args:    args("NAME", "VALUE"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			value, err := field.parse(args[1])
			if err != nil {
				return err
			}
			instead := ""
			return s.modify(ctx, k, args[0], func(body map[string]any) error {
				switch field.flag { // a check has either of the two
				case "cron":
					instead = s.insteadOf("interval", args[0], body)
					body["interval"] = 0
				case "interval":
					instead = s.insteadOf("cron", args[0], body)
					delete(body, "cron")
				}
				return setPath(body, field.field, value)
			}, "Updated", &instead)
		}),
	}
	completeNames(cmd, k)
	return cmd
}

// insteadOf says that a check loses its interval or cron because it gets the other one, and how to undo that; "" if it has none.
func (s *invocation) insteadOf(field, name string, body map[string]any) string {
	old := fmt.Sprint(body[field])
	if body[field] == nil || old == "" || old == "0" {
		return ""
	}
	return fmt.Sprintf("its %s %s is gone; %s", field, old, s.undo("check", "set-"+field, name, old))
}

func removeFieldCommand(k *kind, flag, field string, empty any) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "remove-" + flag + " NAME",
		Short:   "remove " + strings.ReplaceAll(flag, "-", " ") + " from a check",
		Example: fmt.Sprintf("  lapwing check remove-%s cpu", flag),
		Args:    args("NAME"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			return s.modify(ctx, k, args[0], func(body map[string]any) error {
				body[field] = empty
				return nil
			}, "Removed "+strings.ReplaceAll(flag, "-", " ")+" of")
		}),
	}
	completeNames(cmd, k)
	return cmd
}

func setProxyRequestsCommand(k *kind) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "set-proxy-requests NAME",
		Short: "set proxy requests of a check from a file or standard input",
		Long: `Set the proxy requests of a check from a file or standard input, as JSON or YAML, for example

  entity_attributes: ['entity.entity_class == "proxy"']
  splay: true
  splay_coverage: 90`,
		Example: "  lapwing check set-proxy-requests ping --file proxies.yaml\n  lapwing check set-proxy-requests ping",
		Args:    args("NAME"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			if file == "" {
				file = "-"
			}
			sources, err := readSources(ctx, s, []string{file}, false)
			if err != nil {
				return err
			}
			if len(sources) != 1 {
				return fmt.Errorf("%s is not one file", file)
			}
			data, err := yaml.YAMLToJSON(sources[0].data)
			if err != nil {
				return fmt.Errorf("in %s: %w", sources[0].name, err)
			}
			requests, err := decodeMap(data)
			if err != nil {
				return fmt.Errorf("in %s: %w", sources[0].name, err)
			}
			if _, err := decode[resource.ProxyRequests](data); err != nil {
				return fmt.Errorf("in %s: %w", sources[0].name, err)
			}
			return s.modify(ctx, k, args[0], func(body map[string]any) error {
				body["proxy_requests"] = requests
				return nil
			}, "Updated")
		}),
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "file with the proxy requests (default standard input)")
	completeNames(cmd, k)
	return cmd
}

func setHooksCommand(k *kind) *cobra.Command {
	hooks := []flagField{
		{flag: "type", short: "t", required: true, usage: "when the hooks run: an exit status, ok, warning, critical, unknown or non-zero"},
		{flag: "hooks", short: "k", kind: listField, required: true, usage: "hooks, comma separated"},
	}
	var fields *fieldFlags
	var interactive bool
	cmd := &cobra.Command{
		Use:     "set-hooks NAME",
		Short:   "add hooks to a check",
		Example: "  lapwing check set-hooks cpu --type critical --hooks ps,df",
		Args:    args("NAME"),
	}
	cmd.RunE = run(func(ctx context.Context, s *invocation, args []string) error {
		answers := map[string]any{}
		if interactive {
			if err := fields.ask(s.questions(), answers); err != nil {
				return err
			}
		} else if err := fields.missing(); err != nil {
			return hintUsage(cmd, err)
		}
		if _, err := fields.apply(answers); err != nil {
			return err
		}
		if _, err := s.get(ctx, k, args[0]); err != nil {
			return err
		}
		typ, _ := answers["type"].(string)
		path := k.Path(s.namespace, args[0]) + "/hooks/" + url.PathEscape(typ)
		if err := s.client.Do(ctx, http.MethodPut, path, map[string]any{typ: answers["hooks"]}, nil); err != nil {
			return fmt.Errorf("add hooks to check %q: %w", args[0], bare(err))
		}
		s.did("Added hooks to", k, args[0])
		return nil
	})
	for i := range hooks {
		hooks[i].field = hooks[i].flag
	}
	fields = addFieldFlags(cmd.Flags(), hooks, true)
	cmd.Flags().BoolVar(&interactive, "interactive", false, "ask for type and hooks")
	completeNames(cmd, k)
	return cmd
}

func removeHookCommand(k *kind) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "remove-hook NAME TYPE HOOK",
		Short:   "remove a hook from a check",
		Example: "  lapwing check remove-hook cpu critical ps",
		Args:    args("NAME", "TYPE", "HOOK"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			if _, err := s.get(ctx, k, args[0]); err != nil {
				return err
			}
			path := k.Path(s.namespace, args[0]) + "/hooks/" + url.PathEscape(args[1]) + "/hook/" + url.PathEscape(args[2])
			if err := s.client.Do(ctx, http.MethodDelete, path, nil, nil); err != nil {
				return fmt.Errorf("remove hook %q of type %s from check %q: %w", args[2], args[1], args[0], bare(err))
			}
			s.did("Removed hook "+args[2]+" of", k, args[0])
			return nil
		}),
	}
	completeNames(cmd, k)
	return cmd
}

func executeCommand(k *kind) *cobra.Command {
	var (
		reason, subscriptions string
		all                   bool
	)
	cmd := &cobra.Command{
		Use:     "execute NAME",
		Short:   "run a check once, now",
		Long:    "Run a check once, now: on all agents with one of its subscriptions, or if it is round robin on one agent of each.",
		Example: "  lapwing check execute cpu\n  lapwing check execute cpu --subscriptions entity:srv1 --reason 'after the repair'",
		Args:    args("NAME"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			in := map[string]any{"metadata": map[string]any{"name": args[0]}, "creator": s.user()}
			if subs := splitList(subscriptions); len(subs) > 0 {
				in["subscriptions"] = subs
			}
			if all {
				in["all"] = true
			}
			if reason != "" {
				in["reason"] = reason
			}
			if err := s.client.Do(ctx, http.MethodPost, k.Path(s.namespace, args[0])+"/execute", in, nil); err != nil {
				return hintMissing(k, fmt.Errorf("execute check %q: %w", args[0], bare(err)))
			}
			s.did("Issued", k, args[0])
			return nil
		}),
	}
	cmd.Flags().StringVarP(&reason, "reason", "r", "", "reason, for other people to read")
	cmd.Flags().StringVarP(&subscriptions, "subscriptions", "s", "", "subscriptions to use instead of the check's own, comma separated")
	cmd.Flags().BoolVar(&all, "all", false, "run a round-robin check on all agents too")
	completeNames(cmd, k)
	return cmd
}
