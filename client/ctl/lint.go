package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// lintUnseen is the severity of a kind that the server did not look at for the user.
const lintUnseen = "unseen"

// lintCommand looks for what is doubtful about stored definitions.
func lintCommand() *cobra.Command {
	var all, notes bool
	cmd := &cobra.Command{
		Use:   "lint [TYPE…]",
		Short: "show what is doubtful about the stored definitions",
		Long: `Show what is doubtful about the stored definitions: names that name nothing, checks that no agent runs, pipelines that
can never fire, silences without end, secrets that lapwing has no provider for, roles with a resource that there is
not. With --notes, also what may be on purpose: definitions that no other one names, checks that are not published or
notify no one. Kinds that you may not list all of are not looked at: the last line names them.

The exit status is 2 if there are warnings, so it can be a check of its own.`,
		Example: "  lapwing lint\n  lapwing lint checks handlers --all-namespaces\n  lapwing lint --notes -o json",
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			kinds := map[string]bool{}
			for _, name := range args {
				k, ok := kindByName(name)
				if !ok {
					return unknownType(name, "lint looks at what is stored. To look at files before they are applied: lapwing diff -f %s")
				}
				kinds[k.Command] = true
			}
			path := s.ownPath("lint")
			if all {
				path = "/api/lapwing/v1/namespaces/-/lint"
			} else if err := s.knownNamespace(ctx, s.namespace); err != nil {
				return err
			}
			found := []resource.LintFinding{}
			if err := s.client.Do(ctx, http.MethodGet, path, nil, &found); err != nil {
				return err
			}
			found = slices.DeleteFunc(found, func(f resource.LintFinding) bool {
				return f.Severity == "note" && !notes || len(kinds) > 0 && !kinds[f.Kind]
			})
			raw, err := jsonOf(found)
			if err != nil {
				return err
			}
			if err := s.printPlain(raw, func(json.RawMessage) (shown, error) { return s.lintLines(found), nil }); err != nil {
				return err
			}
			if slices.ContainsFunc(found, func(f resource.LintFinding) bool { return f.Severity == "warning" }) {
				return errNo
			}
			return nil
		}),
	}
	cmd.ValidArgs = typeNames()
	cmd.Flags().BoolVar(&all, "all-namespaces", false, "look at all namespaces")
	cmd.Flags().BoolVar(&notes, "notes", false, "also show what may be on purpose")
	formatFlag(cmd)
	return cmd
}

func (s *invocation) lintLines(found []resource.LintFinding) lines {
	var out lines
	var unseen []string
	for _, f := range found {
		if f.Severity == lintUnseen {
			unseen = append(unseen, f.Resource)
			continue
		}
		where := f.Kind + "/" + f.Name
		if f.Namespace != "" && f.Namespace != s.namespace {
			where = f.Namespace + " " + where
		}
		color := yellow
		if f.Severity != "warning" {
			color = ""
		}
		line := fmt.Sprintf("%s %s: %s", paint(s.color, color, f.Severity), printable(where), printable(f.Text))
		if f.Hint != "" {
			line += "; see: " + strings.TrimSpace(f.Hint)
		}
		out = append(out, line)
	}
	switch {
	case len(out) > 0:
	case len(unseen) > 0:
		out = lines{"nothing found among what you may list"}
	default:
		return lines{"nothing found"}
	}
	if len(unseen) > 0 {
		out = append(out, "not looked at, since you may not list all of them: "+printable(commaSpace(unseen)))
	}
	return out
}
