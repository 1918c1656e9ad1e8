package ctl

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
)

func dependenciesCommand(k *kind) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dependencies ENTITY CHECK",
		Short: "show what an event depends on, and whether it is inhibited",
		Long: `Show the dependencies of an event, nearest first: the entries in depends_on of its check and its entity, and their own
dependencies. While one of them fails, the event's incidents are not handled. A dependency that itself depends on the
event is ignored.`,
		Example: `  lapwing event dependencies web1 http`,
		Args:    args("ENTITY", "CHECK"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			path := "/api/lapwing/v1/namespaces/" + url.PathEscape(s.namespace) + "/events/" +
				url.PathEscape(args[0]) + "/" + url.PathEscape(args[1]) + "/dependencies"
			var raw json.RawMessage
			if err := s.client.Do(ctx, http.MethodGet, path, nil, &raw); err != nil {
				return missingNamed(k, strings.Join(args, "/"), err)
			}
			return s.printPlain(raw, s.showDependencies)
		}),
	}
	completeNames(cmd, k)
	formatFlag(cmd)
	return cmd
}

func (s *invocation) showDependencies(raw json.RawMessage) (shown, error) {
	d, err := decode[client.DependencyReport](raw)
	if err != nil {
		return nil, err
	}
	verdict := "no"
	switch {
	case d.Cut:
		verdict = "no, because there are more dependencies than are looked at"
	case d.Inhibited:
		verdict = "yes, by " + strings.Join(d.By, " → ")
	}
	t := &table{color: s.color, columns: []column{{title: "Depends On"}, {title: "Through"}, {title: "State"}}}
	for _, one := range d.Dependencies {
		state := "fine"
		switch {
		case one.Failing && one.Circular:
			state = "failing, but depends on the event"
		case one.Failing:
			state = "failing"
		case one.Circular:
			state = "fine, depends on the event"
		}
		t.rows = append(t.rows, []string{one.Name, strings.Join(one.Through, " → "), state})
	}
	return both{&infoBlock{title: "Dependencies", lines: []infoLine{{"Inhibited", verdict}}}, t}, nil
}

// both shows one thing above another.
type both [2]shown

func (b both) show(s *invocation) error {
	if err := b[0].show(s); err != nil {
		return err
	}
	return b[1].show(s)
}
