package oncall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/calendar"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func meta(name string) resource.ObjectMeta {
	return resource.ObjectMeta{Namespace: "default", Name: name}
}

func at(t *testing.T, text string) time.Time {
	t.Helper()
	when, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return when
}

func directory(sn *config.Snapshot) *Directory {
	return New(func() *config.Snapshot { return sn }, calendar.New(nil))
}

func TestTurns(t *testing.T) {
	sn := config.Empty()
	sn = config.With(sn, config.Calendars, &resource.Calendar{Metadata: meta("office"), TimeZone: "Europe/Berlin",
		Windows: []resource.CalendarWindow{{RRule: "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR", Begin: "08:00", End: "18:00"}}})
	d := directory(sn)
	rota := resource.Rota{Metadata: meta("ops"), TimeZone: "Europe/Berlin", Contacts: []string{"a", "b"}, Start: "2026-10-20T09:00", Shift: 86400}
	for _, c := range []struct {
		name     string
		change   func(*resource.Rota)
		from, to string
		want     string
	}{
		{"turns begin at the same time of day, also where the clocks are set back", nil, "2026-10-24T00:00:00Z", "2026-10-27T00:00:00Z",
			"b 24 02:00-09:00, a 24 09:00-25 09:00, b 25 09:00-26 09:00, a 26 09:00-27 01:00"},
		{"turns that begin in the hour that comes twice", func(r *resource.Rota) { r.Start = "2026-10-20T02:30" },
			"2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z", "a 24 14:00-25 02:30, b 25 02:30-26 02:30, a 26 02:30-13:00"},
		{"where they are set forward", func(r *resource.Rota) { r.Start = "2026-03-20T09:00" }, "2026-03-28T08:30:00Z", "2026-03-29T08:30:00Z",
			"a 28 09:30-29 09:00, b 29 09:00-10:30"},
		{"hours", func(r *resource.Rota) { r.Shift = 12 * 3600 }, "2026-10-20T08:00:00Z", "2026-10-21T08:00:00Z",
			"a 20 10:00-21:00, b 20 21:00-21 09:00, a 21 09:00-10:00"},
		{"before the start", nil, "2026-10-19T00:00:00Z", "2026-10-20T12:00:00Z", "a 20 09:00-14:00"},
		{"the last override counts", func(r *resource.Rota) {
			r.Overrides = []resource.RotaOverride{
				{Contact: "c", Begin: at(t, "2026-10-21T00:00:00+02:00").Unix(), End: at(t, "2026-10-22T00:00:00+02:00").Unix()},
				{Contact: "d", Begin: at(t, "2026-10-21T12:00:00+02:00").Unix(), End: at(t, "2026-10-21T13:00:00+02:00").Unix(), Reason: "lunch"},
			}
		}, "2026-10-20T20:00:00Z", "2026-10-22T06:00:00Z", "a 20 22:00-21 00:00, c! 21 00:00-12:00, d! 21 12:00-13:00, c! 21 13:00-22 00:00, b 22 00:00-08:00"},
		{"within a calendar", func(r *resource.Rota) { r.Within, r.Shift = []string{"office"}, 7*86400 }, "2026-10-23T10:00:00Z", "2026-10-26T10:00:00Z",
			"a 23 12:00-18:00, a 26 08:00-11:00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			def := rota
			if c.change != nil {
				c.change(&def)
			}
			def.Metadata = meta("ops")
			if err := def.Validate(); err != nil {
				t.Fatal(err)
			}
			got := d.OnCall(&def, at(t, c.from), at(t, c.to), 100)
			zone, _ := time.LoadLocation("Europe/Berlin")
			var parts []string
			for _, s := range got.Shifts {
				begin, end := time.Unix(s.Begin, 0).In(zone), time.Unix(s.End, 0).In(zone)
				mark, layout := "", "15:04"
				if s.Override {
					mark = "!"
				}
				if begin.Day() != end.Day() {
					layout = "02 15:04"
				}
				parts = append(parts, s.Contact+mark+" "+begin.Format("02 15:04")+"-"+end.Format(layout))
			}
			if have := strings.Join(parts, ", "); have != c.want {
				t.Errorf("on call are\n%s, want\n%s", have, c.want)
			}
			// The answer for a moment agrees with the list.
			turns := d.turns(sn, &def)
			for when := at(t, c.from); when.Before(at(t, c.to)); when = when.Add(7 * time.Minute) {
				i := slices.IndexFunc(got.Shifts, func(s resource.OnCallShift) bool { return s.Begin <= when.Unix() && when.Unix() < s.End })
				now, onCall, _ := turns.at(when)
				if onCall != (i >= 0) || onCall && got.Shifts[i].Contact != now.Contact {
					t.Fatalf("%s: %+v %v, and the list has %d", when, now, onCall, i)
				}
			}
		})
	}
	missing := rota
	missing.Within = []string{"gone"}
	if got := d.OnCall(&missing, at(t, "2026-10-24T00:00:00Z"), at(t, "2026-10-25T00:00:00Z"), 1); got.Problem == "" || !got.More || len(got.Shifts) != 1 {
		t.Errorf("a missing calendar: %+v", got)
	}
}

// TestUntil: a turn has its own end, also if the time that was asked for ends before, and an override that lasts for many
// turns has.
func TestUntil(t *testing.T) {
	def := resource.Rota{Metadata: meta("r"), Contacts: []string{"a", "b"}, Start: "2026-11-02T09:00", Shift: 604800,
		Overrides: []resource.RotaOverride{{Contact: "c", Begin: at(t, "2027-01-01T00:00:00Z").Unix(), End: at(t, "2090-01-01T00:00:00Z").Unix()}}}
	d := directory(config.Empty())
	for _, c := range [][3]string{
		{"2026-11-03T00:00:00Z", "2026-11-04T00:00:00Z", "2026-11-09T09:00:00Z"},
		{"2026-12-29T00:00:00Z", "2026-12-30T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"2027-02-01T00:00:00Z", "2027-02-02T00:00:00Z", "2090-01-01T00:00:00Z"},
	} {
		got := d.OnCall(&def, at(t, c[0]), at(t, c[1]), 10).Shifts
		if len(got) != 1 || got[0].End != at(t, c[1]).Unix() || got[0].Until != at(t, c[2]).Unix() {
			t.Errorf("from %s to %s: %+v, want an end at %s", c[0], c[1], got, c[2])
		}
	}
}

func TestRecipients(t *testing.T) {
	sn := config.Empty()
	for _, h := range []*resource.Handler{{Metadata: meta("mail"), Type: "email"}, {Metadata: meta("sms"), Type: "pipe"}, {Metadata: meta("all"), Type: "set"}} {
		sn = config.With(sn, config.Handlers, h)
	}
	sn = config.With(sn, config.Contacts, &resource.Contact{Metadata: meta("alice"), Handlers: []string{"mail", "sms"}})
	sn = config.With(sn, config.Contacts, &resource.Contact{Metadata: meta("bob"), Handlers: []string{"mail", "fax", "all"}})
	sn = config.With(sn, config.Rotas, &resource.Rota{Metadata: meta("ops"), Contacts: []string{"alice"}, Start: "2026-01-01T00:00", Shift: 86400})
	d := directory(sn)
	ev := &resource.Event{Entity: &resource.Entity{Metadata: resource.ObjectMeta{Labels: map[string]string{"team": "ops", "owner": " bob , zoe"}}},
		Check: &resource.Check{Metadata: resource.ObjectMeta{Labels: map[string]string{"team": "alice"}}}}
	type target = resource.EscalationTarget
	for _, c := range []struct {
		notify         []target
		want, problems string
	}{
		{[]target{{Contact: "alice"}, {Rota: "ops"}, {Handler: "sms"}}, "alice by mail, alice by sms, sms", ""},
		{[]target{{Rota: "ops"}}, "alice by mail (rota ops), alice by sms (rota ops)", ""},
		{[]target{{Label: "team"}}, "alice by mail, alice by sms", ""},
		{[]target{{Label: "owner"}}, "bob by mail",
			`there is no handler fax of contact bob; the handler all of contact bob is of type set, which notifies no one itself; label owner names "zoe", which is neither a contact nor a rota`},
		{[]target{{Label: "x"}, {Rota: "x"}, {Contact: "x"}, {Handler: "x"}}, "",
			"neither the check nor the entity has a label x; there is no rota x; there is no contact x; there is no handler x"},
	} {
		list, problems := d.Recipients("default", &resource.EscalationStep{Notify: c.notify}, ev, at(t, "2026-11-01T00:00:00Z"))
		var names []string
		for _, r := range list {
			names = append(names, r.String())
		}
		if got := strings.Join(names, ", "); got != c.want || strings.Join(problems, "; ") != c.problems {
			t.Errorf("%+v: notified %s; problems %q", c.notify, got, problems)
		}
	}
	many := &resource.Event{Check: &resource.Check{Metadata: resource.ObjectMeta{Labels: map[string]string{"team": strings.Repeat("alice,", 21)}}}}
	if list, problems := d.Recipients("default", &resource.EscalationStep{Notify: []target{{Label: "team"}}}, many, at(t, "2026-11-01T00:00:00Z")); len(list) != 2 || len(problems) != 1 {
		t.Errorf("a long label: %v, %q", list, problems)
	}
	list, problems := d.Recipients("default", &resource.EscalationStep{Notify: []target{{Rota: "ops"}}}, ev, at(t, "2025-11-01T00:00:00Z"))
	if len(list) > 0 || fmt.Sprint(problems) != "[rota ops has no one on call]" {
		t.Errorf("before the rota begins: %v, %q", list, problems)
	}
}

func TestLinks(t *testing.T) {
	calls := 0
	l := NewLinks("https://x/base/", func(context.Context) ([]byte, error) {
		if calls++; calls == 1 {
			return nil, errors.New("no store")
		}
		return []byte("key"), nil
	})
	now := time.Unix(1e9, 0)
	to := Link{Namespace: "default", Entity: "srv/1", Check: "disk", Contact: "alice", LastOK: 7}
	if _, err := l.URL(to, now); err == nil {
		t.Error("no error without a key")
	}
	link, err := l.URL(to, now)
	token, ok := strings.CutPrefix(link, "https://x/base"+LinkPath)
	if err != nil || !ok {
		t.Fatal(link, err)
	}
	got, err := l.Read(token, now.Add(29*24*time.Hour))
	if err != nil || got.Entity != to.Entity || got.LastOK != 7 {
		t.Errorf("read %+v, %v", got, err)
	}
	if _, err := l.Read(token, now.Add(31*24*time.Hour)); !errors.Is(err, ErrLink) {
		t.Errorf("a month later: %v", err)
	}
	if none, err := NewLinks("", nil).URL(to, now); none != "" || err != nil {
		t.Errorf("without a URL: %q, %v", none, err)
	}
}

func FuzzLink(f *testing.F) {
	l := NewLinks("https://x", func(context.Context) ([]byte, error) { return []byte("key"), nil })
	good, _ := l.URL(Link{Entity: "e"}, time.Unix(1e9, 0))
	token := strings.TrimPrefix(good, "https://x"+LinkPath)
	f.Add(token)
	f.Add("e30.e30")
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := l.Read(text, time.Unix(1e9, 0)); err == nil && got.Entity != "e" {
			t.Errorf("%q is taken: %+v", text, got)
		}
	})
}
