package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

var contactKind = newKind(client.Contacts, display[resource.Contact]{
	namespace: func(c *resource.Contact) string { return c.Metadata.Namespace },
	columns: []cellOf[resource.Contact]{
		{column{title: "Name"}, func(c *resource.Contact) string { return c.Metadata.Name }},
		{column{title: "Full Name"}, func(c *resource.Contact) string { return c.FullName }},
		{column{title: "Email"}, func(c *resource.Contact) string { return c.Email }},
		{column{title: "Handlers"}, func(c *resource.Contact) string { return comma(c.Handlers) }},
		{column{title: "User"}, func(c *resource.Contact) string { return c.User }},
	},
	title: func(c *resource.Contact) string { return c.Metadata.Name },
	fields: []fieldOf[resource.Contact]{
		{label: "Name", text: func(c *resource.Contact) string { return c.Metadata.Name }},
		{label: "Full Name", text: func(c *resource.Contact) string { return c.FullName }},
		{label: "Email", text: func(c *resource.Contact) string { return c.Email }},
		{label: "Handlers", text: func(c *resource.Contact) string { return commaSpace(c.Handlers) }},
		{label: "User", text: func(c *resource.Contact) string { return c.User }},
		{label: "Namespace", text: func(c *resource.Contact) string { return c.Metadata.Namespace }},
	},
	create: []flagField{
		{flag: "full-name", field: "full_name", usage: "name of the person or team"},
		{flag: "email", field: "email", usage: "mail address, which handlers use as {{.Contact.Email}}"},
		{flag: "handlers", field: "handlers", kind: listField, usage: "handlers that notify the contact, comma separated"},
		{flag: "user", field: "user", usage: "account of the contact: acknowledgements by link are in its name"},
	},
	createExamples: "  lapwing contact create alice --full-name 'Alice Example' --email alice@example.org --handlers mail --user alice",
	can:            canList | canInfo | canDelete | canCreate | canUpdate,
})

var rotaKind = newKind(client.Rotas, display[resource.Rota]{
	namespace: func(r *resource.Rota) string { return r.Metadata.Namespace },
	columns: []cellOf[resource.Rota]{
		{column{title: "Name"}, func(r *resource.Rota) string { return r.Metadata.Name }},
		{column{title: "Contacts"}, func(r *resource.Rota) string { return comma(r.Contacts) }},
		{column{title: "Shift"}, shiftOf},
		{column{title: "Start"}, startOf},
		{column{title: "Within"}, func(r *resource.Rota) string { return comma(r.Within) }},
		{column{title: "Overrides", right: true}, func(r *resource.Rota) string { return number(len(r.Overrides)) }},
		{column{title: "Description"}, func(r *resource.Rota) string { return r.Description }},
	},
	title: func(r *resource.Rota) string { return r.Metadata.Name },
	fields: []fieldOf[resource.Rota]{
		{label: "Name", text: func(r *resource.Rota) string { return r.Metadata.Name }},
		{label: "Description", text: func(r *resource.Rota) string { return r.Description }},
		{label: "Contacts", text: func(r *resource.Rota) string { return commaSpace(r.Contacts) }},
		{label: "Shift", text: shiftOf},
		{label: "Start", text: startOf},
		{label: "Within", text: func(r *resource.Rota) string { return commaSpace(r.Within) }},
		{label: "Overrides", text: func(r *resource.Rota) string { return number(len(r.Overrides)) }},
		{label: "Namespace", text: func(r *resource.Rota) string { return r.Metadata.Namespace }},
	},
	create: []flagField{
		{flag: "contacts", field: "contacts", kind: listField, usage: "contacts who are on call one after the other, comma separated"},
		{flag: "start", field: "start", usage: "time at which the first contact's first turn begins, as 2026-11-02T09:00"},
		{flag: "shift", field: "shift", kind: secondsField, initial: "1w", usage: "length of a turn, as 1w, 1d or 12h"},
		{flag: "time-zone", field: "time_zone", unasked: true, usage: "time zone of --start, as Europe/Berlin (default UTC)"},
		{flag: "within", field: "within", kind: listField, unasked: true,
			usage: "calendars outside of which the rota has no one on call, comma separated"},
		{flag: "description", field: "description", unasked: true, usage: "what the rota is for"},
	},
	createExamples: "  lapwing rota create primary --contacts alice,bob --start 2026-11-02T09:00 --shift 1w --time-zone Europe/Berlin",
	can:            canList | canInfo | canDelete | canCreate | canUpdate,
	extra:          []func(*kind) *cobra.Command{showRotaCommand, overrideRotaCommand},
})

func shiftOf(r *resource.Rota) string { return lengthOf(time.Duration(r.Shift) * time.Second) }

// lengthOf writes whole weeks, days and hours: 1w, 1d, 12h.
func lengthOf(d time.Duration) string {
	const day, week = 24 * time.Hour, 7 * 24 * time.Hour
	switch {
	case d%week == 0:
		return fmt.Sprintf("%dw", d/week)
	case d%day == 0:
		return fmt.Sprintf("%dd", d/day)
	}
	return fmt.Sprintf("%dh", d/time.Hour)
}

func startOf(r *resource.Rota) string { return r.Start + " " + cmp.Or(r.TimeZone, "UTC") }

// timeRange is the time that a question about rotas or calendars asks for, from the flags --from and --to.
type timeRange struct {
	from, to string
	days     int // the longest range that the server answers
}

// flags adds the flags. usual is how long the range is without --to.
func (o *timeRange) flags(cmd *cobra.Command, usual string) {
	cmd.Flags().StringVar(&o.from, "from", "", "first day, or time as 2026-12-24T08:00 (default now)")
	cmd.Flags().StringVar(&o.to, "to", "", "day or time as 2026-12-24T08:00 at which the answer ends; the day itself does not belong to it (default "+usual+" after --from)")
}

// query returns the range as query parameters. An error names the flag that is wrong.
func (o *timeRange) query() (string, error) {
	query := url.Values{}
	begin, end := time.Now(), time.Time{}
	for _, one := range []struct {
		flag, name, text string
		at               *time.Time
	}{{"from", "since", o.from, &begin}, {"to", "until", o.to, &end}} {
		if one.text == "" {
			continue
		}
		at, err := dayOrTime(one.text)
		if err != nil {
			return "", fmt.Errorf("--%s: %w", one.flag, err)
		}
		*one.at = at
		query.Set(one.name, fmt.Sprint(at.Unix()))
	}
	switch {
	case o.to == "":
	case !begin.Before(end) && o.from == o.to:
		return "", hint(fmt.Errorf("--to %s is the time of --from, and must be later: a day means its beginning", o.to),
			"For one whole day: --from %s --to %s", begin.Format(time.DateOnly), begin.AddDate(0, 0, 1).Format(time.DateOnly))
	case !begin.Before(end):
		return "", fmt.Errorf("--to %s must be later than --from %s", o.to, cmp.Or(o.from, "(now, as it is not set)"))
	case end.Sub(begin) > time.Duration(o.days)*24*time.Hour:
		return "", fmt.Errorf("--to %s must be at most %d days later than --from %s", o.to, o.days, cmp.Or(o.from, "(now, as it is not set)"))
	}
	if len(query) == 0 {
		return "", nil
	}
	return "?" + query.Encode(), nil
}

// onCallCommand shows who is on call in all rotas.
func onCallCommand() *cobra.Command {
	when := timeRange{days: 400}
	cmd := &cobra.Command{
		Use:     "oncall",
		Short:   "show who is on call",
		Long:    `Show who is on call in each rota of the namespace, until when, and who is next, in the time zone of this computer.`,
		Example: "  lapwing oncall\n  lapwing oncall --from 2026-12-24T20:00\n  lapwing oncall --format json --to 2026-12-31",
		Args:    args(),
		RunE: run(func(ctx context.Context, s *invocation, _ []string) error {
			query, err := when.query()
			if err != nil {
				return err
			}
			var raw json.RawMessage
			if err := s.client.Do(ctx, http.MethodGet, s.ownPath("oncall")+query, nil, &raw); err != nil {
				return err
			}
			return s.printPlain(raw, s.showOnCall)
		}),
	}
	when.flags(cmd, "7 days")
	formatFlag(cmd)
	return cmd
}

const shiftLayout = "Mon 2006-01-02 15:04 MST"

func shiftTime(unix int64) string { return time.Unix(unix, 0).Format(shiftLayout) }

func (s *invocation) showOnCall(raw json.RawMessage) (shown, error) {
	rotas, err := decode[[]resource.OnCall](raw)
	if err != nil {
		return nil, err
	}
	if len(*rotas) == 0 {
		fmt.Fprintf(s.errOut, "there are no rotas in namespace %s; make one with: lapwing rota create NAME --contacts …\n", s.namespace)
	}
	t := &table{color: s.color, columns: []column{{title: "Rota"}, {title: "On Call"}, {title: "Until"}, {title: "Next"}, {title: "Note"}}}
	for i := range *rotas {
		one := &(*rotas)[i]
		row := []string{one.Rota, "no one", "", "", one.Problem}
		shifts := one.Shifts
		if len(shifts) > 0 && shifts[0].Begin == one.From {
			row[1], row[2] = shifts[0].Contact, shiftTime(shifts[0].End)
			row[4] = strings.Trim(shiftNote(&shifts[0])+"; "+one.Problem, "; ")
			shifts = shifts[1:]
		}
		if len(shifts) > 0 {
			row[3] = shifts[0].Contact + " from " + shiftTime(shifts[0].Begin)
			if shifts[0].NoContact {
				row[4] = strings.Trim(row[4]+"; next: "+noContact(&shifts[0]), "; ")
			}
		}
		t.rows = append(t.rows, row)
		fmt.Fprint(s.out, zoneLine("rota", one.Rota, one.TimeZone))
	}
	return t, nil
}

// shiftNote says that a shift is an override, and that it has no contact.
func shiftNote(shift *resource.OnCallShift) string {
	var parts []string
	if shift.NoContact {
		parts = append(parts, noContact(shift))
	}
	if shift.Override {
		parts = append(parts, strings.TrimSuffix("override: "+shift.Reason, ": "))
	}
	return strings.Join(parts, "; ")
}

func noContact(shift *resource.OnCallShift) string {
	return "no such contact as " + shift.Contact + ": reaches no one"
}

// showRotaCommand shows the turns of a rota.
func showRotaCommand(k *kind) *cobra.Command {
	when := timeRange{days: 400}
	cmd := &cobra.Command{
		Use:     "show NAME",
		Short:   "show the turns of a rota",
		Long:    `Show who is on call in a rota, turn by turn, in the time zone of this computer.`,
		Example: "  lapwing rota show primary\n  lapwing rota show primary --from 2026-12-01 --to 2027-01-15",
		Args:    args("NAME"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			query, err := when.query()
			if err != nil {
				return err
			}
			var raw json.RawMessage
			if err := s.client.Do(ctx, http.MethodGet, k.Path(s.namespace, args[0])+"/oncall"+query, nil, &raw); err != nil {
				return missingNamed(k, args[0], err)
			}
			return s.printPlain(raw, s.showTurns)
		}),
	}
	when.flags(cmd, "7 days")
	completeNames(cmd, k)
	formatFlag(cmd)
	return cmd
}

func (s *invocation) showTurns(raw json.RawMessage) (shown, error) {
	one, err := decode[resource.OnCall](raw)
	if err != nil {
		return nil, err
	}
	if one.Problem != "" {
		fmt.Fprintln(s.errOut, "Warning: "+one.Problem)
	}
	fmt.Fprint(s.out, zoneLine("rota", one.Rota, one.TimeZone))
	t := &table{color: s.color, columns: []column{{title: "Begin"}, {title: "End"}, {title: "Contact"}, {title: "Note"}}}
	for i := range one.Shifts {
		shift := &one.Shifts[i]
		t.rows = append(t.rows, []string{shiftTime(shift.Begin), shiftTime(shift.End), shift.Contact, shiftNote(shift)})
	}
	if one.More {
		t.rows = append(t.rows, []string{"… more", "", "", ""})
	}
	return t, nil
}

// overrideRotaCommand puts a contact on call for some time.
func overrideRotaCommand(k *kind) *cobra.Command {
	var from, to, reason string
	var remove bool
	cmd := &cobra.Command{
		Use:   "override NAME CONTACT",
		Short: "put a contact on call for some time, whatever the turns say",
		Long: `Put a contact on call for some time, whatever the turns say, because one is ill or two have swapped. Overrides that are over
are removed from the rota. With --remove, the contact's overrides that end after --from are removed.

Times are in the rota's time zone, unless they have another one. A day means the time of day at which the rota hands over, that
of its start: with a rota that starts at 09:00, --from 2026-12-21 --to 2026-12-28 is the week from Monday 09:00 to Monday 09:00.`,
		Example: `  lapwing rota override primary bob --from 2026-12-24 --to 2026-12-26 --reason 'swapped with alice'
  lapwing rota override primary bob --remove`,
		Args: args("NAME", "CONTACT"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			if to == "" && !remove {
				return errors.New("--to is missing: say when the override ends, as 2026-12-26 or 2026-12-26T08:00")
			}
			def, tag, err := client.GetTagged(ctx, s.client, client.Rotas, s.namespace, args[0])
			if err != nil {
				return hintMissing(k, err)
			}
			begin, end, now := time.Now(), time.Time{}, time.Now()
			for _, one := range []struct {
				flag, text string
				at         *time.Time
			}{{"from", from, &begin}, {"to", to, &end}} {
				if one.text == "" {
					continue
				}
				if *one.at, err = rotaTime(def, one.text); err != nil {
					return fmt.Errorf("read --%s: %w", one.flag, err)
				}
			}
			if !remove {
				if _, err := client.Get(ctx, s.client, client.Contacts, s.namespace, args[1]); absent(err) {
					return missingNamed(contactKind, args[1], err)
				}
			}
			def.Overrides = slices.DeleteFunc(def.Overrides, func(o resource.RotaOverride) bool {
				return o.End <= now.Unix() || remove && o.Contact == args[1] && o.End > begin.Unix()
			})
			said := "removed the overrides of " + args[1] + " from rota " + args[0]
			if !remove {
				def.Overrides = append(def.Overrides, resource.RotaOverride{
					Contact: args[1], Begin: begin.Unix(), End: end.Unix(), Reason: reason,
				})
				said = fmt.Sprintf("%s is on call in rota %s from %s to %s; undo: lapwing rota override %s %s --remove",
					args[1], args[0], inRota(def, begin), inRota(def, end), args[0], args[1])
			}
			if err := client.PutIf(ctx, s.client, client.Rotas, s.namespace, args[0], tag, def); err != nil {
				return err
			}
			fmt.Fprintln(s.out, said)
			return nil
		}),
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "day, or time as 2026-12-24T08:00, at which the override begins, in the rota's time zone (default now)")
	f.StringVar(&to, "to", "", "day, or time, at which the override ends; a day is the time of day at which the rota hands over")
	f.StringVar(&reason, "reason", "", "why the contact is on call then")
	f.BoolVar(&remove, "remove", false, "remove the contact's overrides")
	completeNames(cmd, k)
	return cmd
}

// rotaTime reads a time in a rota's time zone, unless it has another one. A day is the rota's hand-over on that day.
func rotaTime(def *resource.Rota, text string) (time.Time, error) {
	zone, err := time.LoadLocation(cmp.Or(def.TimeZone, "UTC"))
	if err != nil {
		return time.Time{}, fmt.Errorf("the rota's time zone is not known here: %w", err)
	}
	if _, err := time.Parse(time.DateOnly, text); err == nil {
		_, clock, _ := strings.Cut(def.Start, "T")
		text += "T" + clock
	}
	return dayOrTimeIn(text, zone)
}

// inRota writes a time in a rota's time zone.
func inRota(def *resource.Rota, at time.Time) string {
	if zone, err := time.LoadLocation(cmp.Or(def.TimeZone, "UTC")); err == nil {
		at = at.In(zone)
	}
	return at.Format(shiftLayout)
}

// escalationCommand has the commands about escalations that are going on.
func escalationCommand() *cobra.Command {
	return groupOf("escalation", "show the escalations that are going on", "list", listEscalationsCommand())
}

func listEscalationsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "list the escalations that are going on",
		Long: `List the incidents that an escalation handler is at: whom it has notified, and when the next step is due unless
an acknowledgement comes first. A step that waits for a quiet time shows when that ends. 'event trace' tells each step
of one incident, and 'event ack' ends it.`,
		Example: "  lapwing escalation list\n  lapwing escalation list --all-namespaces --format json",
		Args:    args(),
	}
	var all bool
	cmd.RunE = run(func(ctx context.Context, s *invocation, _ []string) error {
		path := s.ownPath("escalations")
		if all {
			path = "/api/lapwing/v1/namespaces/-/escalations"
		}
		var raw json.RawMessage
		if err := s.client.Do(ctx, http.MethodGet, path, nil, &raw); err != nil {
			return err
		}
		return s.printPlain(raw, func(raw json.RawMessage) (shown, error) { return s.showEscalations(raw, all) })
	})
	cmd.Flags().BoolVar(&all, "all-namespaces", false, "list the escalations of all namespaces")
	formatFlag(cmd)
	return cmd
}

func (s *invocation) showEscalations(raw json.RawMessage, namespaces bool) (shown, error) {
	list, err := decode[resource.EscalationList](raw)
	if err != nil {
		return nil, err
	}
	if len(list.Escalations) == 0 {
		fmt.Fprintln(s.errOut, "no escalations are going on")
	}
	t := &table{color: s.color, columns: []column{
		{title: "Entity"}, {title: "Check"}, {title: "Handler"}, {title: "Began"}, {title: "Steps", right: true}, {title: "Notified"}, {title: "Next Step"},
	}}
	if namespaces {
		t.columns = append(t.columns, column{title: "Namespace"})
	}
	for i := range list.Escalations {
		e := &list.Escalations[i]
		next := e.Held
		switch {
		case e.Quiet != "" && e.QuietUntil > 0:
			next = "quiet until " + millisTime(e.QuietUntil) + ": calendar " + e.Quiet
		case e.Quiet != "":
			next = "quiet without end: calendar " + e.Quiet
		case e.Next > 0:
			next = millisTime(e.Next)
		case next == "":
			next = "all steps were taken"
		}
		row := []string{e.Entity, e.Check, e.Handler, millisTime(e.Began), number(e.Steps), comma(e.Notified), next}
		if namespaces {
			row = append(row, e.Namespace)
		}
		t.rows = append(t.rows, row)
	}
	if list.More {
		t.rows = append(t.rows, slices.Concat([]string{"… more"}, make([]string, len(t.columns)-1)))
	}
	return t, nil
}
