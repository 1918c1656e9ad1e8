package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
)

// eventFilters are the flags of "event list" for what operators ask most. The server evaluates them.
type eventFilters struct {
	failing, silenced, notSilenced, acknowledged bool
	states, entities, checks                     []string
	since, sort                                  string
	limit                                        int
}

func (e *eventFilters) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&e.failing, "failing", false, "only events in any state but passing")
	f.StringSliceVar(&e.states, "state", nil,
		"only events of these states, comma separated: ok, warning, critical, unknown, a status like 127, or flapping")
	f.StringVar(&e.since, "since", "", "only events whose state changed since then: "+timeForms)
	f.StringSliceVar(&e.checks, "check", nil, "only events of these checks, comma separated")
	f.StringSliceVar(&e.entities, "entity", nil, "only events of these entities, comma separated")
	f.BoolVar(&e.silenced, "silenced", false, "only silenced events")
	f.BoolVar(&e.notSilenced, "no-silenced", false, "only events that are not silenced")
	f.BoolVar(&e.acknowledged, "acknowledged", false, "only acknowledged events; --acknowledged=false: only the others")
	f.IntVarP(&e.limit, "limit", "n", 0, "show this number of events at most, those with the newest changes of state; 0 for all")
	f.StringVar(&e.sort, "sort", "", `order: name, or changed (the newest change of state first) (default "name", with --limit "changed")`)
	cmd.MarkFlagsMutuallyExclusive("silenced", "no-silenced")
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions([]string{"name", "changed"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("state",
		cobra.FixedCompletions([]string{"ok", "warning", "critical", "unknown", "flapping"}, cobra.ShellCompDirectiveNoFileComp))
}

// quotedName escapes a name for a selector.
var quotedName = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// apply adds the flags to the options of a list, or of a live stream, which takes selectors only.
func (e *eventFilters) apply(cmd *cobra.Command, opts *client.ListOptions, watch bool) error {
	var terms []string
	if e.failing {
		terms = append(terms, "event.check.state != passing")
	}
	if len(e.states) > 0 {
		term, err := stateTerm(trimmed(e.states))
		if err != nil {
			return err
		}
		terms = append(terms, term)
	}
	terms = append(terms, nameTerms(e.entities, e.checks)...)
	if e.silenced || e.notSilenced {
		terms = append(terms, fmt.Sprintf("event.is_silenced == %t", e.silenced))
	}
	if opts.FieldSelector != "" && len(terms) > 0 {
		terms = append([]string{"(" + opts.FieldSelector + ")"}, terms...)
	}
	if len(terms) > 0 {
		opts.FieldSelector = strings.Join(terms, " && ")
	}
	more := url.Values{}
	if e.since != "" {
		since, err := moment("since", e.since, time.Local, time.Now())
		if err != nil {
			return err
		}
		more.Set("changed_since", since.Format(time.RFC3339Nano))
	}
	if cmd.Flags().Changed("acknowledged") {
		more.Set("acknowledged", strconv.FormatBool(e.acknowledged))
	}
	switch {
	case e.limit < 0:
		return errors.New("--limit must not be negative")
	case e.sort == "changed", e.sort == "" && e.limit > 0:
		more.Set("order", "changed")
	case e.sort != "" && e.sort != "name":
		return fmt.Errorf("--sort %q: it must be name or changed", e.sort)
	}
	if watch && (len(more) > 0 || e.limit > 0) {
		return errors.New("--watch goes with neither --since, --acknowledged, --limit nor --sort")
	}
	if len(more) > 0 || e.limit > 0 {
		more.Set("order", cmp.Or(more.Get("order"), "name")) // with an order, the list is one page, which the limit cuts
		opts.More, opts.ChunkSize = more, e.limit
	}
	return nil
}

// knownNames makes sure that the entities and checks that an empty list was asked for exist: there is nothing of a misspelt
// name, which looks like good news.
func (s *invocation) knownNames(ctx context.Context, namespace string, entities, checks []string) error {
	entities, checks = trimmed(entities), trimmed(checks)
	if namespace == "" || len(entities)+len(checks) == 0 {
		return nil
	}
	if err := s.knownNamespace(ctx, namespace); err != nil {
		return err
	}
	entity, _ := kindByName("entity")
	for _, name := range entities {
		if _, err := client.Get(ctx, s.client, client.Entities, namespace, name); absent(err) {
			return missingNamed(entity, name, err)
		}
	}
	check, _ := kindByName("check")
	for _, name := range checks {
		_, err := client.Get(ctx, s.client, client.Checks, namespace, name)
		if !absent(err) {
			continue
		}
		// Programs may send results of checks that are not defined.
		of := client.ListOptions{FieldSelector: fmt.Sprintf(`event.check.name == "%s"`, quotedName.Replace(name))}
		if list, failed := client.List(ctx, s.client, client.Events, namespace, of); failed == nil && len(list) == 0 {
			return missingNamed(check, name, err)
		}
	}
	return nil
}

// mostAskedNames is how many names are looked up one by one.
const mostAskedNames = 20

// warnOfNames warns of entities and checks among several of which there is nothing, since the others hide that. has reports
// whether there is anything of an entity or a check, the other being "".
func (s *invocation) warnOfNames(ctx context.Context, namespace string, entities, checks []string, has func(entity, check string) bool) {
	told := false
	warn := func(entities, checks []string, entity, check string) {
		if has(entity, check) {
			return
		}
		err := s.knownNames(ctx, namespace, entities, checks)
		if err == nil {
			return
		}
		if !told { // to look for similar names may take a while
			err = s.missing(ctx, err)
		}
		told = true
		fmt.Fprintln(s.errOut, printable("Warning: "+strings.ReplaceAll(err.Error(), "\n", ". ")))
	}
	if len(entities) > 1 {
		for _, name := range entities[:min(len(entities), mostAskedNames)] {
			warn([]string{name}, nil, name, "")
		}
	}
	if len(checks) > 1 {
		for _, name := range checks[:min(len(checks), mostAskedNames)] {
			warn(nil, []string{name}, "", name)
		}
	}
}

// nameTerms returns the conditions for events of one of some entities and of one of some checks, each if there are any.
func nameTerms(entities, checks []string) (terms []string) {
	for _, of := range []struct {
		field string
		names []string
	}{{"event.entity.name", entities}, {"event.check.name", checks}} {
		var any []string
		for _, name := range trimmed(of.names) {
			any = append(any, fmt.Sprintf(`%s == "%s"`, of.field, quotedName.Replace(name)))
		}
		if any != nil {
			terms = append(terms, "("+strings.Join(any, " || ")+")")
		}
	}
	return terms
}

// used reports whether there are flags that may make a list empty.
func (e *eventFilters) used(cmd *cobra.Command) bool {
	return e.failing || len(e.states) > 0 || e.since != "" || len(e.entities)+len(e.checks) > 0 || e.silenced || e.notSilenced ||
		cmd.Flags().Changed("acknowledged")
}

// statusTerms are the conditions for a check's status, by the words for it.
var statusTerms = map[string]string{
	"ok": "== 0", "passing": "== 0", "warning": "== 1", "critical": "== 2", "unknown": "> 2",
}

// stateTerm returns the condition for one of some states.
func stateTerm(states []string) (string, error) {
	var terms []string
	for _, name := range states {
		status, isStatus := statusTerms[strings.ToLower(name)]
		if _, err := strconv.ParseUint(name, 10, 32); err == nil {
			status, isStatus = "== "+name, true
		}
		switch {
		case isStatus:
			terms = append(terms, "event.check.status "+status)
		case strings.EqualFold(name, "flapping"), strings.EqualFold(name, "failing"):
			terms = append(terms, "event.check.state == "+strings.ToLower(name))
		default:
			known := []string{"ok", "warning", "critical", "unknown", "passing", "failing", "flapping"}
			err := fmt.Errorf("--state %q: it must be one of %s, or a status like 127", name, strings.Join(known, ", "))
			if near := optionerr.Nearest(name, known); near != "" {
				err = fmt.Errorf("%w: did you mean %q?", err, near)
			}
			return "", err
		}
	}
	return "(" + strings.Join(terms, " || ") + ")", nil
}
