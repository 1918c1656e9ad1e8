package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/words"
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
		{label: "Overrides", text: func(r *resource.Rota) string { return overridesText(r, "; ") }},
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
		Use:   "oncall",
		Short: "show who is on call",
		Long: `Show who is on call in each rota of the namespace, until when, and who is next, in the time zone of this computer. With
--from or --to, show all turns of that time, each with its own end, also if that is later than --to.`,
		Example: "  lapwing oncall\n  lapwing oncall --from 2026-12-24 --to 2026-12-27\n  lapwing oncall --format json --to 2026-12-31",
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
			if err := s.knownIfNone(ctx, raw); err != nil {
				return err
			}
			turns := when.from != "" || when.to != ""
			return s.printPlain(raw, func(raw json.RawMessage) (shown, error) { return s.showOnCall(raw, turns) })
		}),
	}
	when.flags(cmd, "7 days")
	formatFlag(cmd)
	return cmd
}

const shiftLayout = "Mon 2006-01-02 15:04 MST"

func shiftTime(unix int64) string { return time.Unix(unix, 0).Format(shiftLayout) }

func (s *invocation) showOnCall(raw json.RawMessage, turns bool) (shown, error) {
	rotas, err := decode[[]resource.OnCall](raw)
	if err != nil {
		return nil, err
	}
	if len(*rotas) == 0 {
		fmt.Fprintf(s.errOut, "there are no rotas in namespace %s; make one with: lapwing rota create NAME --contacts …\n", s.namespace)
	}
	t := &table{color: s.color, columns: []column{{title: "Rota"}, {title: "On Call"}, {title: "Until"}, {title: "Next"}, {title: "Note"}}}
	if turns {
		t.columns = []column{{title: "Rota"}, {title: "On Call"}, {title: "From"}, {title: "Until"}, {title: "Note"}}
	}
	for i := range *rotas {
		one := &(*rotas)[i]
		fmt.Fprint(s.out, zoneLine("rota", one.Rota, one.TimeZone))
		if turns {
			t.rows = append(t.rows, turnRows(one)...)
			continue
		}
		row := []string{one.Rota, "no one", "", "", one.Problem}
		shifts := one.Shifts
		if len(shifts) > 0 && shifts[0].Begin == one.From {
			row[1], row[2] = shifts[0].Contact, shiftTime(untilOf(&shifts[0]))
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
	}
	return t, nil
}

// turnRows returns a row for each turn of a rota in the time that was asked for, and for each time without one.
func turnRows(one *resource.OnCall) (rows [][]string) {
	at := one.From
	for i := range one.Shifts {
		shift := &one.Shifts[i]
		if shift.Begin > at {
			rows = append(rows, []string{one.Rota, "no one", shiftTime(at), shiftTime(shift.Begin), ""})
		}
		rows = append(rows, []string{one.Rota, shift.Contact, shiftTime(shift.Begin), shiftTime(untilOf(shift)), shiftNote(shift)})
		at = shift.End
	}
	switch {
	case one.More:
		rows = append(rows, []string{one.Rota, "… more", shiftTime(at), "", ""})
	case len(rows) == 0:
		rows = append(rows, []string{one.Rota, "no one", shiftTime(at), "", ""})
	}
	if one.Problem != "" {
		rows[0][4] = strings.Trim(rows[0][4]+"; "+one.Problem, "; ")
	}
	return rows
}

// untilOf returns when a turn ends. Earlier releases do not say when that is behind the time that was asked for.
func untilOf(shift *resource.OnCallShift) int64 { return cmp.Or(shift.Until, shift.End) }

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
		t.rows = append(t.rows, []string{shiftTime(shift.Begin), shiftTime(untilOf(shift)), shift.Contact, shiftNote(shift)})
	}
	if one.More {
		t.rows = append(t.rows, []string{"… more", "", "", ""})
	}
	return t, nil
}

// withOverrides returns a rota of a file with the overrides that it has on the server, unless the file has some: they are made
// with 'rota override', and no file names them. Other objects are returned as they are.
func (s *invocation) withOverrides(ctx context.Context, o *object) (*object, error) {
	if _, named := o.body["overrides"]; named || o.kind.Type != client.Rotas.Type {
		return o, nil
	}
	def, err := client.Get(ctx, s.client, client.Rotas, o.namespace, o.name)
	switch {
	case hidden(err): // a user without the right to read it may write it
		return o, nil
	case err != nil:
		return nil, err
	case len(def.Overrides) == 0:
		return o, nil
	}
	with := *o
	with.body = maps.Clone(o.body)
	with.body["overrides"] = def.Overrides
	return &with, nil
}

// overriding has the flags of 'rota override'.
type overriding struct {
	from, to, reason string
	remove           bool
}

// overrideRotaCommand puts a contact on call for some time.
func overrideRotaCommand(k *kind) *cobra.Command {
	var o overriding
	cmd := &cobra.Command{
		Use:   "override NAME CONTACT",
		Short: "put a contact on call for some time, in place of the turns",
		Long: `Put a contact on call for some time, in place of the turns, because one is ill or two have swapped. Overrides that are over
are removed from the rota.

With --remove, --from and --to, the contact's override of that time is removed. Without --to, all of the contact are removed that
end after --from. Each that is removed is printed, with the command that makes it again.

Times are in the rota's time zone, unless they have another one. A day means the time of day at which the rota hands over, that
of its start: with a rota that starts at 09:00, --from 2026-12-21 --to 2026-12-28 is the week from Monday 09:00 to Monday 09:00.`,
		Example: `  lapwing rota override primary bob --from 2026-12-24 --to 2026-12-26 --reason 'swapped with alice'
  lapwing rota override primary bob --from 2026-12-24 --to 2026-12-26 --remove
  lapwing rota override primary bob --remove`,
		Args: args("NAME", "CONTACT"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			if o.to == "" && !o.remove {
				return errors.New("--to is missing: say when the override ends, as 2026-12-26 or 2026-12-26T08:00")
			}
			def, tag, err := client.GetTagged(ctx, s.client, client.Rotas, s.namespace, args[0])
			if err != nil {
				return hintMissing(k, err)
			}
			now := time.Now()
			begin, end := now, time.Time{}
			for _, one := range []struct {
				flag, text string
				at         *time.Time
			}{{"from", o.from, &begin}, {"to", o.to, &end}} {
				if one.text == "" {
					continue
				}
				if *one.at, err = rotaTime(def, one.text); err != nil {
					return fmt.Errorf("read --%s: %w", one.flag, err)
				}
			}
			if o.to != "" && !begin.Before(end) {
				return fmt.Errorf("--to %s must be later than --from %s: a day means the hand-over of the rota on that day, at %s",
					o.to, cmp.Or(o.from, "(now, as it is not set)"), inRota(def, end))
			}
			if !o.remove && !end.After(now) {
				return fmt.Errorf("the override would be over: --to %s is %s, and has passed", o.to, inRota(def, end))
			}
			var said []string
			if o.remove {
				said, err = s.removeOverrides(def, args[1], begin, end)
			} else {
				said, err = s.addOverride(ctx, def, args[1], resource.RotaOverride{
					Contact: args[1], Begin: begin.Unix(), End: end.Unix(), Reason: o.reason,
				})
			}
			if err != nil {
				return err
			}
			def.Overrides = slices.DeleteFunc(def.Overrides, func(one resource.RotaOverride) bool { return one.End <= now.Unix() })
			if err := client.PutIf(ctx, s.client, client.Rotas, s.namespace, args[0], tag, def); err != nil {
				return err
			}
			for _, line := range said {
				fmt.Fprintln(s.out, line)
			}
			return nil
		}),
	}
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "", "day, or time as 2026-12-24T08:00, at which the override begins, in the rota's time zone (default now)")
	f.StringVar(&o.to, "to", "", "day, or time, at which the override ends; a day is the time of day at which the rota hands over")
	f.StringVar(&o.reason, "reason", "", "why the contact is on call then")
	f.BoolVar(&o.remove, "remove", false, "remove the contact's override from --from to --to, or without --to all that end after --from")
	completeNames(cmd, k)
	return cmd
}

// addOverride adds an override to a rota. It returns what to print.
func (s *invocation) addOverride(ctx context.Context, def *resource.Rota, contact string, o resource.RotaOverride) ([]string, error) {
	if _, err := client.Get(ctx, s.client, client.Contacts, s.namespace, contact); absent(err) {
		return nil, missingNamed(contactKind, contact, err)
	}
	def.Overrides = append(def.Overrides, o)
	undo := s.commandLine("rota", "override", def.Metadata.Name, contact, "--remove", "--from", exactTime(o.Begin), "--to", exactTime(o.End))
	return []string{fmt.Sprintf("%s is on call in rota %s from %s to %s; undo: %s", contact, def.Metadata.Name,
		inRota(def, time.Unix(o.Begin, 0)), inRota(def, time.Unix(o.End, 0)), undo)}, nil
}

// removeOverrides removes overrides of a contact from a rota: the one from begin to end, or without an end all that end after
// begin. It returns what to print.
func (s *invocation) removeOverrides(def *resource.Rota, contact string, begin, end time.Time) (said []string, err error) {
	def.Overrides = slices.DeleteFunc(def.Overrides, func(o resource.RotaOverride) bool {
		if o.Contact != contact || end.IsZero() && o.End <= begin.Unix() || !end.IsZero() && (o.Begin != begin.Unix() || o.End != end.Unix()) {
			return false
		}
		again := []string{"rota", "override", def.Metadata.Name, contact, "--from", exactTime(o.Begin), "--to", exactTime(o.End)}
		if o.Reason != "" {
			again = append(again, "--reason", o.Reason)
		}
		said = append(said, fmt.Sprintf("removed the override of %s; undo: %s", overrideText(def, &o), s.commandLine(again...)))
		return true
	})
	if said != nil {
		return said, nil
	}
	err = fmt.Errorf("rota %s has no such override of %s", def.Metadata.Name, contact)
	if len(def.Overrides) > 0 {
		return nil, hint(err, "It has: %s", overridesText(def, "; "))
	}
	return nil, hint(err, "It has no overrides at all.")
}

// exactTime writes a time for --from and --to that is the same in all time zones.
func exactTime(unix int64) string { return time.Unix(unix, 0).UTC().Format(time.RFC3339) }

// overrideText says who is on call by an override, and when.
func overrideText(def *resource.Rota, o *resource.RotaOverride) string {
	return fmt.Sprintf("%s from %s to %s", o.Contact, inRota(def, time.Unix(o.Begin, 0)), inRota(def, time.Unix(o.End, 0))) +
		after(": ", o.Reason)
}

// overridesText joins the texts of all overrides of a rota.
func overridesText(def *resource.Rota, mark string) string {
	var all []string
	for i := range def.Overrides {
		all = append(all, overrideText(def, &def.Overrides[i]))
	}
	return strings.Join(all, mark)
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
		Long: `List the incidents that an escalation handler is at: how many steps it has taken, whom they notified, and when the next step
is due unless an acknowledgement comes first, with whom it would notify as of now. A contact whom no delivery has reached is
marked as failed, and one to whom the first is still under way as that, with the attempts that have failed and the error of
the last one. In a cluster only the backend that sends a delivery knows its error; another one that answers shows the number
of attempts and the time of the next one. A step that waits for a quiet time shows when that ends. 'event trace' tells each
step of one incident, and 'event ack' holds it.`,
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
		if err := s.knownIfNone(ctx, raw); err != nil && !all {
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
	now := time.Now()
	for i := range list.Escalations {
		e := &list.Escalations[i]
		row := []string{e.Entity, e.Check, e.Handler, millisTime(e.Began), number(e.Steps), notifiedText(e, now), escalationNext(e, now)}
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

// notifiedText says whom an escalation has notified, to whom a delivery is under way, and whom it failed to reach.
func notifiedText(e *resource.Escalation, now time.Time) string {
	names := slices.Clone(e.Notified)
	for _, one := range e.Sending {
		var tries []string
		for i := range e.Tries {
			if t := &e.Tries[i]; cmp.Or(t.Contact, t.Handler) == one {
				tries = append(tries, words.Try(t, now, func(millis int64) string { return dayClock(millis, now) }))
			}
		}
		names = append(names, one+" (under way"+strings.Join(tries, ";")+")")
	}
	for _, one := range e.Failed {
		names = append(names, one+" (failed)")
	}
	return commaSpace(names)
}

// escalationNext says when an escalation takes its next step and whom that notifies, or why none follows.
func escalationNext(e *resource.Escalation, now time.Time) string {
	text := ""
	switch {
	case e.Held != "":
		return e.Held
	case e.ReachesNoOne():
		return "none: reached no one in " + plural(e.Steps, "step")
	case e.Next == 0:
		return "none: gave up after " + plural(e.Steps, "step") + ", still failing"
	case e.Quiet != "" && e.QuietUntil > 0:
		text = "quiet until " + millisTime(e.QuietUntil) + ": calendar " + e.Quiet
	case e.Quiet != "":
		text = "quiet without end: calendar " + e.Quiet
	case e.Next <= now.UnixMilli():
		text = "within a minute"
	default:
		text = millisTime(e.Next)
	}
	return fmt.Sprintf("step %d: %s", e.Steps+1, text) + after(", ", nextNotifies(e))
}

func nextNotifies(e *resource.Escalation) string {
	switch {
	case len(e.NextNotifies) > 0:
		return "notifies " + commaSpace(e.NextNotifies)
	case e.NextProblem != "":
		return "reaches no one: " + e.NextProblem
	}
	return ""
}

// stepsText says whom the steps of an escalation notify, and when.
func stepsText(e *resource.HandlerEscalation) string {
	var parts []string
	for i := range e.Steps {
		step := &e.Steps[i]
		var whom []string
		for _, t := range step.Notify {
			switch {
			case t.Rota != "":
				whom = append(whom, "rota "+t.Rota)
			case t.Handler != "":
				whom = append(whom, "handler "+t.Handler)
			case t.Label != "":
				whom = append(whom, "label "+t.Label)
			default:
				whom = append(whom, "contact "+t.Contact)
			}
		}
		text := fmt.Sprintf("step %d", i+1)
		if step.After > 0 {
			text += " after " + span(time.Duration(step.After)*time.Second)
		}
		parts = append(parts, text+": "+commaSpace(whom))
	}
	if e.Repeat > 0 {
		parts = append(parts, "repeated "+times(int(e.Repeat)))
	}
	return strings.Join(parts, "; ")
}
