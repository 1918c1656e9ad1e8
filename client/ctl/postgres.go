package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
)

// postgresCommand has the commands about the copy of events in PostgreSQL.
func postgresCommand() *cobra.Command {
	return groupOf("postgres", "show the copy of events in PostgreSQL", "status", postgresStatusCommand())
}

func postgresStatusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "show how the copy of events in PostgreSQL stands",
		Long: `Show how the copy of events in PostgreSQL stands, as each backend writes it. Each backend writes the partitions of the event
log that it owns. Lag is how long ago the oldest change was received that the backend has to write and has not. Journal is
what it keeps on disk for PostgreSQL, of the bound at which the oldest changes are lost. Gaps counts what was lost since the
backend started. Why a backend does not write is below the table.

The exit status is 0 if each backend that answers writes, 2 if one does not or its journal fails, and 1 if the status cannot
be read. So the command can be a check of its own. Without PostgreSQL it is 0.`,
		Example: "  lapwing postgres status\n  lapwing postgres status --format json",
		Args:    args(),
		RunE: run(func(ctx context.Context, s *invocation, _ []string) error {
			members, err := s.client.Postgres(ctx)
			if err != nil {
				return err
			}
			raw, err := jsonOf(members)
			if err != nil {
				return err
			}
			if err := s.printPlain(raw, func(json.RawMessage) (shown, error) { return postgresTable(members, time.Now()), nil }); err != nil {
				return err
			}
			if slices.ContainsFunc(members, func(m client.PostgresStatus) bool {
				return m.Configured && (!m.Connected || m.Journal.Error != "")
			}) {
				return errNo
			}
			return nil
		}),
	}
	formatFlag(cmd)
	return cmd
}

// postgresMembers is a table with the members' errors below, which are long.
type postgresMembers struct {
	table
	errors []string
}

func postgresTable(members []client.PostgresStatus, now time.Time) *postgresMembers {
	t := &postgresMembers{table: table{columns: []column{
		{title: "Member"}, {title: "Server"}, {title: "Connected"}, {title: "Lag", right: true},
		{title: "Journal", right: true}, {title: "Gaps since start", right: true},
	}}}
	for i := range members {
		m := &members[i]
		switch {
		case m.Unknown != "":
			t.rows = append(t.rows, []string{m.Member, "", "unknown", "", "", ""})
			t.errors = append(t.errors, m.Member+": unknown: "+m.Unknown)
			continue
		case !m.Configured:
			t.rows = append(t.rows, []string{m.Member, "not configured", "", "", "", ""})
			continue
		}
		connected := "yes"
		if !m.Connected {
			connected = "no"
		}
		if m.Error != "" {
			t.errors = append(t.errors, fmt.Sprintf("%s: failing for %s: %s", m.Member, span(now.Sub(m.Since)), m.Error))
		}
		if u := &m.Journal; u.Error != "" {
			t.errors = append(t.errors, fmt.Sprintf("%s: the journal fails for %s: %s", m.Member, span(now.Sub(u.Since)), u.Error))
		}
		t.rows = append(t.rows, []string{m.Member, m.Server, connected, seconds(m.Lag), journalUse(&m.Journal), fmt.Sprint(m.Gaps)})
	}
	return t
}

func (t *postgresMembers) show(s *invocation) error {
	if err := t.table.show(s); err != nil {
		return err
	}
	for _, text := range t.errors {
		if _, err := fmt.Fprintf(s.out, "\n%s\n", printable(strings.Join(strings.Fields(text), " "))); err != nil {
			return err
		}
	}
	return nil
}

// journalUse is how much of the journal PostgreSQL needs.
func journalUse(u *client.Usage) string {
	if u.MaxBytes == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f of %.1f GB", float64(u.OwedBytes)/1e9, float64(u.MaxBytes)/1e9)
}
