package ctl

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
)

// namesInFlags are the flags whose values are names of resources, with the command of the kind.
var namesInFlags = map[string]string{
	"namespace": "namespace", "namespaces": "namespace", "check": "check", "entity": "entity", "handler": "handler", "handlers": "handler",
	"keepalive-handlers": "handler", "output-metric-handlers": "handler", "remind-handlers": "handler", "pipeline": "pipeline",
	"runtime-assets": "asset", "user": "user", "users": "user", "as": "user", "filters": "filter", "mutator": "mutator",
	"calendars": "calendar", "run-within": "calendar", "not-within": "calendar", "within": "calendar", "contacts": "contact",
	"proxy-entity-name": "entity", "cluster-role": "cluster-role", "role": "role",
}

// filesInFlags are the flags whose values are files.
var filesInFlags = []string{"file", "output", "trusted-ca-file", "cert-file", "key-file"}

// wordsInFlags returns the values of flags that have few of them.
func wordsInFlags(flag string, k *kind) []string {
	switch flag {
	case "type":
		switch {
		case k == nil:
		case k.Type == client.Handlers.Type:
			return resource.HandlerTypes
		case k.Command == "mutator":
			return []string{"pipe", "javascript"}
		}
	case "by":
		return []string{"pair", "entity", "check", "label:"}
	case "result":
		return []string{"ok", "failed", "timeout", "error"}
	case "since", "until":
		return []string{"today", "yesterday", "1h", "24h", "7d", "30d"}
	case "week", "month":
		return []string{"last", "this"}
	case "action":
		return []string{"create", "update", "delete", "execute"}
	case "missing":
		return []string{"entity", "check"}
	case "severity":
		return []string{"ok", "warning", "critical", "unknown"}
	case "output-metric-format":
		return []string{"nagios_perfdata", "graphite_plaintext", "opentsdb_line", "influxdb_line", "prometheus_text"}
	case "omit":
		return typeNames()
	}
	return nil
}

// completeFlags lets the shell complete the values of a command's flags, unless the command does it by itself.
func completeFlags(cmd *cobra.Command, k *kind) {
	if strings.Contains(cmd.Use, "TYPE,...") && len(cmd.ValidArgs) > 0 {
		types := cmd.ValidArgs
		cmd.ValidArgs = nil
		cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return inList(typed, func() []string { return types }), cobra.ShellCompDirectiveNoFileComp
		}
	}
	complete := func(f *pflag.Flag) {
		if _, has := cmd.GetFlagCompletionFunc(f.Name); has || slices.Contains(filesInFlags, f.Name) {
			return
		}
		_ = cmd.RegisterFlagCompletionFunc(f.Name, func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			if f.Name == "config-dir" {
				return nil, cobra.ShellCompDirectiveFilterDirs
			}
			if f.Name == "field-selector" {
				return fieldsBeginning(k, typed), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
			}
			return inList(typed, func() []string {
				if words := wordsInFlags(f.Name, k); words != nil {
					return words
				}
				if named := kindByCommand(namesInFlags[f.Name]); named != nil {
					return namesOf(cmd, named, nil)
				}
				return nil
			}), cobra.ShellCompDirectiveNoFileComp
		}) // fails only if the flag has a function
	}
	cmd.Flags().VisitAll(complete)
	cmd.PersistentFlags().VisitAll(complete)
}

func kindByCommand(name string) *kind {
	for _, k := range kinds {
		if k.Command == name && name != "" {
			return k
		}
	}
	return nil
}

// inList completes the last element of a list with commas; the others stay, and are not offered again.
func inList(typed string, all func() []string) []string {
	before, last := "", typed
	if i := strings.LastIndexByte(typed, ','); i >= 0 {
		before, last = typed[:i+1], typed[i+1:]
	}
	var out []string
	for _, word := range all() {
		if strings.HasPrefix(word, last) && !slices.Contains(strings.Split(before, ","), word) {
			out = append(out, before+word)
		}
	}
	return out
}

// fieldsBeginning completes the last word of a field selector with the fields of a kind. Commands without a kind select
// events. Fields of the next level have a dot at the end, so that the list stays short.
func fieldsBeginning(k *kind, typed string) []string {
	goType := reflect.TypeFor[resource.Event]()
	if k != nil && k.Type != client.Silences.Type {
		goType = k.goType
	}
	i := strings.LastIndexAny(typed, " (!") + 1
	level := strings.Count(typed[i:], ".") + 1
	found := map[string]bool{}
	for _, field := range selector.NamesOf(reflect.New(goType).Interface()).Fields() {
		if !strings.HasPrefix(field, typed[i:]) {
			continue
		}
		if parts := strings.SplitAfter(field, "."); len(parts) > level {
			field = strings.Join(parts[:level], "")
		}
		found[typed[:i]+field] = true
	}
	return slices.Sorted(maps.Keys(found))
}
