package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/duration"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// adminCommand has the commands about running backends.
func adminCommand() *cobra.Command {
	return groupOf("admin", "change running backends", "log-level", logLevelCommand())
}

func logLevelCommand() *cobra.Command {
	var (
		component, member string
		all, reset        bool
		lasts             time.Duration
	)
	cmd := &cobra.Command{
		Use:   "log-level [LEVEL]",
		Short: "show or change what backends log, for some time",
		Long: `Show what a backend logs, or change it for some time without a restart: trace, debug, info, warn or error. Afterwards the
level of the configuration counts again, also if the backend restarts before. With --component, only lines of one part of
the backend change; the part is the attribute "component" of the lines.

Without --member and --all it is the backend at --api-url. It takes the right to create and delete cluster, and is in the
audit log.`,
		Example: "  lapwing admin log-level\n  lapwing admin log-level debug --component handler --for 10m\n" +
			"  lapwing admin log-level debug --all\n  lapwing admin log-level --reset --all",
		Args: func(cmd *cobra.Command, words []string) error {
			if len(words) < 2 {
				return nil
			}
			return hint(fmt.Errorf("%q takes one LEVEL, not %d arguments", cmd.CommandPath(), len(words)),
				"A component is a flag: lapwing admin log-level debug --component delivery")
		},
	}
	cmd.ValidArgs = []string{"trace", "debug", "info", "warn", "error"}
	cmd.RunE = run(func(ctx context.Context, s *invocation, args []string) error {
		switch {
		case reset && len(args) > 0:
			return hintUsage(cmd, errors.New("--reset goes with no level"))
		case all && member != "":
			return hintUsage(cmd, errors.New("--all and --member exclude each other"))
		case len(args) == 0 && (component != "" || cmd.Flags().Changed("for")):
			return hintUsage(cmd, errors.New("--component and --for need a level"))
		case lasts <= 0:
			return hintUsage(cmd, fmt.Errorf("--for %s: it must be from 1s to 24h", lasts))
		}
		members := []string{member}
		if all {
			raw, err := s.client.ClusterStatus(ctx)
			if err != nil {
				return err
			}
			status, err := decode[client.ClusterStatus](raw)
			if err != nil {
				return err
			}
			members = nil
			for i := range status.Members {
				members = append(members, status.Members[i].Name)
			}
		}
		results := make([]memberLevels, len(members))
		for i, name := range members {
			levels, err := s.logLevel(ctx, name, args, component, lasts, reset)
			if err != nil {
				return fmt.Errorf("log level%s: %w", ofMember(name), err)
			}
			results[i] = memberLevels{name, *levels}
		}
		raw, err := jsonOf(results)
		if err != nil {
			return err
		}
		return s.printPlain(raw, func(json.RawMessage) (shown, error) { return levelLines(results), nil })
	})
	f := cmd.Flags()
	f.StringVar(&component, "component", "", "change only the lines of this part of the backend")
	f.Var(duration.New(15*time.Minute, &lasts), "for", "how long the change lasts, 24h at most")
	f.StringVar(&member, "member", "", "name of the member to show or change (default the backend at --api-url)")
	f.BoolVar(&all, "all", false, "show or change all members of the cluster")
	f.BoolVar(&reset, "reset", false, "end all changes")
	formatFlag(cmd)
	return cmd
}

// memberLevels are the levels of one member; its name is "" for the backend that was asked.
type memberLevels struct {
	Member string `json:"member,omitempty"`
	resource.LogLevels
}

func ofMember(name string) string {
	if name == "" {
		return ""
	}
	return " of " + name
}

// logLevel shows or changes the levels of one member.
func (s *invocation) logLevel(
	ctx context.Context, member string, args []string, component string, lasts time.Duration, reset bool,
) (*resource.LogLevels, error) {
	path := "/api/lapwing/v1/log-level"
	if member != "" {
		path += "?member=" + url.QueryEscape(member)
	}
	method, body := http.MethodGet, any(nil)
	switch {
	case reset:
		method = http.MethodDelete
	case len(args) > 0:
		method = http.MethodPost
		body = resource.LogLevelRequest{Component: component, Level: args[0], Seconds: int64((lasts + time.Second - 1) / time.Second)}
	}
	levels := new(resource.LogLevels)
	if err := s.client.Do(ctx, method, path, body, levels); err != nil {
		return nil, bare(err)
	}
	return levels, nil
}

func levelLines(results []memberLevels) lines {
	var out lines
	for _, r := range results {
		prefix := ""
		if r.Member != "" {
			prefix = r.Member + ": "
		}
		general := slices.IndexFunc(r.Changed, func(c resource.LogLevel) bool { return c.Component == "" })
		if general < 0 {
			out = append(out, prefix+r.Level)
		}
		for _, c := range r.Changed {
			what := ""
			if c.Component != "" {
				what = "component " + c.Component + " "
			}
			out = append(out, fmt.Sprintf("%s%s%s until %s (%s)", prefix, what, c.Level, time.Unix(c.Until, 0).Format(time.TimeOnly), untilOrSince(c.Until)))
		}
		if general >= 0 {
			out = append(out, prefix+"then "+r.Level+" again")
		}
	}
	return out
}
