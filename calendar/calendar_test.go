package calendar

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// made compiles a calendar without others.
func made(t *testing.T, def *resource.Calendar) *Calendar {
	t.Helper()
	def.Metadata = resource.ObjectMeta{Namespace: "default", Name: "c"}
	if err := def.Validate(); err != nil {
		t.Fatal(err)
	}
	d, err := compile(def)
	if err != nil {
		t.Fatal(err)
	}
	return &Calendar{own: d.own, except: d.except}
}

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// listed returns the windows in a range as text, in UTC.
func listed(t *testing.T, c *Calendar, from, to string) string {
	t.Helper()
	windows, _ := c.Windows(instant(t, from), instant(t, to), 100)
	var out []string
	for _, w := range windows {
		const layout = "2006-01-02T15:04"
		out = append(out, strings.TrimSpace(w.Begin.UTC().Format(layout)+" "+w.End.UTC().Format(layout)+" "+w.Name))
	}
	return strings.Join(out, "\n")
}

const berlin = "Europe/Berlin"

// TestExcepted: what is excepted is named if it takes something from the calendar.
func TestExcepted(t *testing.T) {
	window := func(dates ...string) resource.CalendarWindow { return resource.CalendarWindow{Dates: dates} }
	meta := func(name string) resource.ObjectMeta { return resource.ObjectMeta{Namespace: "default", Name: name} }
	holidays := &resource.Calendar{Metadata: meta("holidays"), Windows: []resource.CalendarWindow{
		window("2026-11-30 St Andrew", "2026-11-29 Sunday", "2026-12-25 Christmas")}}
	work := &resource.Calendar{Metadata: meta("work"), Windows: []resource.CalendarWindow{
		{RRule: "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR", Begin: "08:00", End: "18:00"}},
		Except: []resource.CalendarWindow{{Calendar: "holidays"}, window("2026-12-01", "2026-12-02 Fair")}}
	made, err := New(nil).Draft(config.With(config.Empty(), config.Calendars, holidays), work)
	if err != nil || made.Problem != "" {
		t.Fatal(err, made.Problem)
	}
	from := time.Date(2026, 11, 27, 18, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		days, limit int
		want        string
	}{
		{2, 10, ""}, // not Sunday: it would not be active then
		{7, 10, "St Andrew 30 00:00-01 00:00, Fair 02 00:00-03 00:00"},
		{7, 1, "St Andrew 30 00:00-01 00:00"},
		{40, 10, "St Andrew 30 00:00-01 00:00, Fair 02 00:00-03 00:00, Christmas 25 00:00-26 00:00"},
	} {
		var got []string
		for _, w := range made.Excepted(from, from.AddDate(0, 0, tc.days), tc.limit) {
			got = append(got, w.Name+" "+w.Begin.UTC().Format("02 15:04")+"-"+w.End.UTC().Format("02 15:04"))
		}
		if text := strings.Join(got, ", "); text != tc.want {
			t.Errorf("%d days: got %s, want %s", tc.days, text, tc.want)
		}
	}
	for at, want := range map[string]string{
		"2026-11-29T10:00:00Z": "", "2026-11-30T07:59:59Z": "", "2026-11-30T08:00:00Z": "St Andrew", "2026-11-30T17:59:59Z": "St Andrew",
		"2026-11-30T18:00:00Z": "", "2026-12-01T10:00:00Z": "", "2026-12-02T10:00:00Z": "Fair", "2026-12-03T10:00:00Z": "",
	} {
		moment, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		if active, got := made.ActiveOr(moment); got != want || active != made.Active(moment) {
			t.Errorf("%s is excepted by %q, want %q, and active is %v", at, got, want, active)
		}
	}
}

// TestWindows: in Berlin clocks go forward on 2026-03-29 and 2027-03-28, and back on 2026-10-25.
func TestWindows(t *testing.T) {
	for _, tc := range []struct {
		name     string
		zone     string
		windows  []resource.CalendarWindow
		except   []resource.CalendarWindow
		from, to string
		want     string
	}{
		{"working hours keep their place on the clock when it goes back", berlin,
			[]resource.CalendarWindow{{RRule: "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR", Begin: "08:00", End: "18:00"}}, nil,
			"2026-10-23T00:00:00Z", "2026-10-27T00:00:00Z",
			"2026-10-23T06:00 2026-10-23T16:00\n2026-10-26T07:00 2026-10-26T17:00"},
		{"a night over the change ends by the clock with end", berlin,
			[]resource.CalendarWindow{{RRule: "FREQ=DAILY", Begin: "22:00", End: "06:00"}}, nil,
			"2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z", "2026-03-28T21:00 2026-03-29T04:00"},
		{"and after its duration without", berlin,
			[]resource.CalendarWindow{{RRule: "FREQ=DAILY", Begin: "22:00", Duration: 8 * 3600}}, nil,
			"2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z", "2026-03-28T21:00 2026-03-29T05:00"},
		{"a whole day has 23 hours in March and 25 in October", berlin,
			[]resource.CalendarWindow{{Dates: []string{"2026-03-29 short", "10-25 long"}}}, nil,
			"2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z", "2026-03-28T23:00 2026-03-29T22:00 short\n2026-10-24T22:00 2026-10-25T23:00 long"},
		{"a range, a yearly range over the year's end, and times of day", "",
			[]resource.CalendarWindow{{Dates: []string{"12-31/01-01 new year"}}, {Dates: []string{"2026-12-23/2026-12-24"}, Begin: "20:00", End: "02:00"}}, nil,
			"2026-12-01T00:00:00Z", "2028-01-01T00:00:00Z",
			"2026-12-23T20:00 2026-12-24T02:00\n2026-12-24T20:00 2026-12-25T02:00\n2026-12-31T00:00 2027-01-02T00:00 new year\n2027-12-31T00:00 2028-01-01T00:00 new year"},
		{"29 February is only in leap years, and a range to it ends a day earlier in others", "",
			[]resource.CalendarWindow{{Dates: []string{"02-29 leap", "02-28/02-29 end"}}}, nil,
			"2027-01-01T00:00:00Z", "2029-01-01T00:00:00Z",
			"2027-02-28T00:00 2027-03-01T00:00 end\n2028-02-28T00:00 2028-03-01T00:00 end\n2028-02-29T00:00 2028-03-01T00:00 leap"},
		{"a cron in its zone", berlin, []resource.CalendarWindow{{Cron: "30 2 * * SUN", Duration: 3600}}, nil,
			"2026-10-24T00:00:00Z", "2026-11-02T00:00:00Z",
			"2026-10-25T00:30 2026-10-25T02:30\n2026-11-01T01:30 2026-11-01T02:30"},
		{"every second week counts from the first begin, however long ago", "",
			[]resource.CalendarWindow{{RRule: "FREQ=WEEKLY;INTERVAL=2", Begin: "2006-11-06T08:00", Duration: 3600}}, nil,
			"2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z", "2026-11-09T08:00 2026-11-09T09:00\n2026-11-23T08:00 2026-11-23T09:00"},
		{"the last day of every third month", "",
			[]resource.CalendarWindow{{RRule: "FREQ=MONTHLY;INTERVAL=3;BYMONTHDAY=-1", Begin: "2000-01-31T00:00", Duration: 60}}, nil,
			"2026-01-01T00:00:00Z", "2026-08-01T00:00:00Z", "2026-01-31T00:00 2026-01-31T00:01\n2026-04-30T00:00 2026-04-30T00:01\n2026-07-31T00:00 2026-07-31T00:01"},
		{"every fourth year", "",
			[]resource.CalendarWindow{{RRule: "FREQ=YEARLY;INTERVAL=4", Begin: "2000-02-29T00:00", Duration: 60}}, nil,
			"2026-01-01T00:00:00Z", "2030-08-01T00:00:00Z", "2028-02-29T00:00 2028-02-29T00:01"},
		{"a rule of its own DTSTART with COUNT", "",
			[]resource.CalendarWindow{{RRule: "DTSTART:20261230T230000Z\nRRULE:FREQ=DAILY;COUNT=3\nEXDATE:20261231T230000Z", Duration: 7200}}, nil,
			"2026-12-30T00:00:00Z", "2027-02-01T00:00:00Z", "2026-12-30T23:00 2026-12-31T01:00\n2027-01-01T23:00 2027-01-02T01:00"},
		{"working hours without a holiday, and without an hour", "",
			[]resource.CalendarWindow{{RRule: "FREQ=WEEKLY;BYDAY=TH,FR", Begin: "08:00", End: "18:00"}},
			[]resource.CalendarWindow{{Dates: []string{"12-25"}}, {Cron: "0 12 * * *", Duration: 3600}},
			"2026-12-24T00:00:00Z", "2026-12-26T00:00:00Z", "2026-12-24T08:00 2026-12-24T12:00\n2026-12-24T13:00 2026-12-24T18:00"},
	} {
		c := made(t, &resource.Calendar{TimeZone: tc.zone, Windows: tc.windows, Except: tc.except})
		if got := listed(t, c, tc.from, tc.to); got != tc.want {
			t.Errorf("%s: got\n%s\nwant\n%s", tc.name, got, tc.want)
		}
		checkAgainstWindows(t, tc.name, c, instant(t, tc.from), instant(t, tc.to))
	}
}

// checkAgainstWindows compares Active and Next with the windows, at all their ends and a second beside them.
func checkAgainstWindows(t *testing.T, name string, c *Calendar, from, to time.Time) {
	t.Helper()
	windows, _ := c.Windows(from, to, 1000)
	covered := func(at time.Time) bool {
		return slices.ContainsFunc(windows, func(w Window) bool { return !at.Before(w.Begin) && at.Before(w.End) })
	}
	for _, w := range windows {
		for _, edge := range []time.Time{w.Begin, w.End} {
			for _, at := range []time.Time{edge.Add(-time.Second), edge} {
				if at.Before(from) || !at.Before(to) {
					continue
				}
				if got := c.Active(at); got != covered(at) {
					t.Errorf("%s: active at %s is %v", name, at.UTC(), got)
				}
			}
		}
		if at := w.Begin; at.After(from) && !covered(at.Add(-time.Second)) {
			if next := c.Next(at.Add(-time.Second)); !next.Equal(at) {
				t.Errorf("%s: the change after %s is at %s", name, at.Add(-time.Second).UTC(), next.UTC())
			}
		}
	}
}

// TestNextLooksFarAhead: a change far behind the remembered times is found, and one beyond the horizon is not.
func TestNextLooksFarAhead(t *testing.T) {
	from := instant(t, "2026-01-01T00:00:00Z")
	c := made(t, &resource.Calendar{Windows: []resource.CalendarWindow{{Dates: []string{"2029-05-01/2029-12-31"}}}})
	if got, want := c.Next(from), instant(t, "2029-05-01T00:00:00Z"); !got.Equal(want) {
		t.Errorf("next is %s", got)
	}
	if got, want := c.Next(instant(t, "2029-05-01T00:00:00Z")), instant(t, "2030-01-01T00:00:00Z"); !got.Equal(want) {
		t.Errorf("next from within is %s", got)
	}
	if got := c.Next(instant(t, "2030-01-01T00:00:00Z")); !got.IsZero() {
		t.Errorf("next behind the end is %s", got)
	}
	always := made(t, &resource.Calendar{Windows: []resource.CalendarWindow{{RRule: "FREQ=DAILY", Begin: "00:00", End: "24:00"}}})
	if got := always.Next(from); !got.IsZero() || !always.Active(from) {
		t.Errorf("one that is always active changes at %s", got)
	}
	// A question about the past does not disturb the present.
	if !c.Active(instant(t, "2029-06-01T00:00:00Z")) || c.Active(from) || !c.Active(instant(t, "2029-06-01T00:00:00Z")) {
		t.Error("the past is mixed with the present")
	}
}

func TestCompileRefuses(t *testing.T) {
	for want, w := range map[string]resource.CalendarWindow{
		"INTERVAL counts from the first day": {RRule: "FREQ=WEEKLY;BYDAY=MO;INTERVAL=2", Begin: "08:00", Duration: 60},
		"WEEKLY without BYDAY":               {RRule: "FREQ=WEEKLY", Duration: 60},
		"has no FREQ":                        {RRule: "EXDATE:20260101T000000Z", Duration: 60},
		"and not more often":                 {RRule: "FREQ=MINUTELY", Duration: 60},
		"COUNT must be":                      {RRule: "FREQ=DAILY;COUNT=10001", Begin: "2026-01-01T00:00", Duration: 60},
		"names 1440 times a day":             {Cron: "* * * * *", Duration: 60},
		"names no times of the day":          {Cron: "@every 1h", Duration: 60},
		"is no time of day":                  {Dates: []string{"12-25"}, Begin: "8", End: "9"},
		"write 2026-12-25":                   {Dates: []string{"25.12.2026"}},
		"ends before it begins":              {Dates: []string{"2026-12-25/2026-12-24"}},
		"more than 400 days":                 {Dates: []string{"2026-12-25/2036-12-24"}},
		"leave begin away":                   {RRule: "DTSTART:20261230T230000Z\nRRULE:FREQ=DAILY", Begin: "08:00", Duration: 60},
		"begin with BEGIN:VCALENDAR":         {ICS: "hello: world"},

		// The search for their times could last.
		"FREQ=MONTHLY or FREQ=YEARLY":       {RRule: "FREQ=HOURLY;BYMONTH=2;BYMONTHDAY=30", Duration: 60},
		"names no time":                     {RRule: "FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=30", Duration: 60},
		"BYSETPOS needs":                    {RRule: "FREQ=DAILY;BYSETPOS=2", Duration: 60},
		"either INTERVAL, or BYDAY":         {RRule: "FREQ=DAILY;INTERVAL=7;BYDAY=MO", Begin: "2026-01-06T00:00", Duration: 60},
		"an INTERVAL that divides 24":       {RRule: "FREQ=HOURLY;INTERVAL=168;BYDAY=MO", Begin: "2026-01-06T00:00", Duration: 60},
		"must be in the years 1900 to 2200": {RRule: "DTSTART:00010101T000000Z\nRRULE:FREQ=HOURLY", Duration: 60},
		"INTERVAL must be 1000 at most":     {RRule: "FREQ=YEARLY;INTERVAL=5000", Begin: "2026-01-06T00:00", Duration: 60},
	} {
		err := Check(&resource.Calendar{Windows: []resource.CalendarWindow{w}})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "windows 1: ") {
			t.Errorf("%+v: %v, want %q", w, err, want)
		}
	}
}

// TestManyTimes: the times of a calendar, and of one with those that it includes, are bounded: a search goes through all.
func TestManyTimes(t *testing.T) {
	hourly := func(n int) *resource.Calendar {
		def := &resource.Calendar{Windows: slices.Repeat([]resource.CalendarWindow{{RRule: "FREQ=HOURLY", Duration: 60}}, n)}
		return def
	}
	if err := Check(hourly(12)); err != nil {
		t.Error(err)
	}
	if err := Check(hourly(13)); err == nil || !strings.Contains(err.Error(), "windows 13: with it the calendar names more than") {
		t.Errorf("13 hourly windows: %v", err)
	}
	sn := config.Empty()
	one := &resource.Calendar{Metadata: resource.ObjectMeta{Namespace: "default", Name: "all"}}
	for _, name := range []string{"a", "b", "c"} {
		def := hourly(10)
		def.Metadata = resource.ObjectMeta{Namespace: "default", Name: name}
		one.Include = append(one.Include, name)
		sn = config.With(sn, config.Calendars, def)
	}
	sn = config.With(sn, config.Calendars, one)
	c := New(nil)
	if found := c.Find(sn, "default", "a"); found.Problem != "" {
		t.Error(found.Problem)
	}
	if found := c.Find(sn, "default", "all"); !strings.Contains(found.Problem, "with those that it includes") {
		t.Errorf("the problem is %q", found.Problem)
	}
}

// find returns named calendars.
func find(of map[string]*Calendar) func(string) *Calendar {
	return func(name string) *Calendar {
		if c := of[name]; c != nil {
			return c
		}
		return missing(name)
	}
}

func TestGate(t *testing.T) {
	day := made(t, &resource.Calendar{Windows: []resource.CalendarWindow{{RRule: "FREQ=DAILY", Begin: "08:00", End: "18:00"}}})
	noon := made(t, &resource.Calendar{Windows: []resource.CalendarWindow{{RRule: "FREQ=DAILY", Begin: "12:00", End: "13:00"}}})
	names := find(map[string]*Calendar{"day": day, "noon": noon})
	from, to := instant(t, "2026-11-27T00:00:00Z"), instant(t, "2026-11-28T00:00:00Z")
	for _, tc := range []struct {
		within, without []string
		missing         int
		closed          string
	}{
		{[]string{"day"}, nil, 0, "0-8 18-24"},
		{nil, []string{"day"}, 0, "8-18"},
		{[]string{"day"}, []string{"noon"}, 0, "0-8 12-13 18-24"},
		{[]string{"day", "gone"}, []string{"noon"}, 1, "12-13"}, // the check runs rather than not
		{nil, []string{"gone"}, 1, ""},
		{nil, nil, 0, ""},
	} {
		g, missing := NewGate(&resource.CheckCalendars{RunWithin: tc.within, NotWithin: tc.without}, names)
		var got []string
		for _, w := range g.Closed(from, to, 100) {
			got = append(got, hours(w, from))
		}
		if text := strings.Join(got, " "); text != tc.closed || len(missing) != tc.missing {
			t.Errorf("%v without %v: closed %s, missing %v", tc.within, tc.without, text, missing)
		}
		for hour := range 24 {
			at := from.Add(time.Duration(hour) * time.Hour)
			closed := slices.ContainsFunc(g.Closed(from, to, 100), func(w Window) bool { return !at.Before(w.Begin) && at.Before(w.End) })
			if g.Open(at) == closed {
				t.Errorf("%v without %v: at %d:00 it is open and closed, or neither", tc.within, tc.without, hour)
			}
		}
	}
	g, _ := NewGate(&resource.CheckCalendars{RunWithin: []string{"day"}}, names)
	for _, tc := range []struct{ from, to, want string }{
		{"2026-11-27T09:00:00Z", "2026-11-27T17:00:00Z", ""},
		{"2026-11-27T07:30:00Z", "2026-11-27T08:30:00Z", "2026-11-27T08:00:00Z"}, // it was closed a moment ago
		{"2026-11-27T17:30:00Z", "2026-11-27T19:00:00Z", "2026-11-28T08:00:00Z"}, // it is closed now
	} {
		got := g.ClosedUntil(instant(t, tc.from), instant(t, tc.to))
		if tc.want == "" && !got.IsZero() || tc.want != "" && !got.Equal(instant(t, tc.want)) {
			t.Errorf("closed between %s and %s until %s", tc.from, tc.to, got)
		}
	}
}

func hours(w Window, from time.Time) string {
	h := func(at time.Time) string { return at.Sub(from).Truncate(time.Hour).String() }
	return strings.NewReplacer("h0m0s", "", "0s", "0").Replace(h(w.Begin) + "-" + h(w.End))
}

// TestActiveAllocatesNothing: once the times are remembered, a question costs a search.
func TestActiveAllocatesNothing(t *testing.T) {
	c := made(t, &resource.Calendar{TimeZone: berlin, Windows: []resource.CalendarWindow{{RRule: "FREQ=WEEKLY;BYDAY=MO", Begin: "08:00", End: "18:00"}}})
	at := time.Now()
	c.Active(at)
	if n := testing.AllocsPerRun(100, func() { c.Active(at) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzWindow(f *testing.F) {
	f.Add("FREQ=WEEKLY;BYDAY=MO", "", "12-25 x", "08:00", "18:00", int64(0))
	f.Add("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "", "", "2026-11-02T08:00", "", int64(60))
	f.Add("DTSTART;TZID=Europe/Berlin:19700101T000000\nRRULE:FREQ=HOURLY;INTERVAL=7;BYHOUR=3", "", "", "", "", int64(60))
	f.Add("", "0 2 * * *", "", "", "", int64(3600))
	f.Fuzz(func(t *testing.T, rule, cron, date, begin, end string, duration int64) {
		def := &resource.Calendar{Metadata: resource.ObjectMeta{Namespace: "n", Name: "c"}, TimeZone: berlin}
		w := resource.CalendarWindow{RRule: rule, Cron: cron, Begin: begin, End: end, Duration: duration}
		if date != "" {
			w.Dates = []string{date}
		}
		def.Windows = []resource.CalendarWindow{w}
		if def.Validate() != nil {
			return
		}
		d, err := compile(def)
		if err != nil {
			return
		}
		sane(t, &Calendar{own: d.own, except: d.except})
	})
}

// sane checks what holds for every calendar.
func sane(t *testing.T, c *Calendar) {
	at := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	windows, _ := c.Windows(at, at.Add(100*24*time.Hour), 10)
	last := at
	for _, w := range windows {
		if !w.Begin.Before(w.End) || w.Begin.Before(last) {
			t.Fatalf("windows %+v", windows)
		}
		last = w.Begin
		if !c.Active(w.Begin) || !c.Active(w.End.Add(-time.Second)) {
			t.Fatalf("not active in %+v", w)
		}
	}
	if next := c.Next(at); !next.IsZero() && !next.After(at) {
		t.Fatalf("the change after %s is at %s", at, next)
	}
}

// TestWrongWindowsCostLittle: a search for the times of a rule that has none must not last, and few such rules are read.
func TestWrongWindowsCostLittle(t *testing.T) {
	never := resource.CalendarWindow{RRule: "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30;COUNT=5", Begin: "00:00", End: "23:00"}
	def := &resource.Calendar{Windows: slices.Repeat([]resource.CalendarWindow{never}, 100)}
	allocated := testing.AllocsPerRun(1, func() {
		found := resource.Mistakes(Check(def))
		if len(found) != maxBad+1 || !strings.Contains(found[0].Error(), "names no time") || !strings.Contains(found[maxBad].Error(), "correct them first") {
			t.Errorf("%d mistakes: %v", len(found), found[len(found)-1])
		}
	})
	if most := 100_000.0; allocated > most {
		t.Errorf("%v allocations, want %v at most", allocated, most)
	}
	// 29 February is a Monday every 28 years.
	for _, begin := range []string{"1990-01-01T00:00", "2190-01-01T00:00"} {
		seldom := resource.CalendarWindow{RRule: "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO", Begin: begin, End: "23:00"}
		if err := Check(&resource.Calendar{Windows: []resource.CalendarWindow{seldom}}); err != nil {
			t.Error(err)
		}
	}
}

// TestFarQuestion: a question about a far time replaces nothing that is remembered of the present.
func TestFarQuestion(t *testing.T) {
	c := made(t, &resource.Calendar{Windows: []resource.CalendarWindow{{RRule: "FREQ=DAILY", Begin: "08:00", End: "18:00"}}})
	now := time.Now().UTC()
	c.Active(now)
	present := c.page.Load()
	if present == nil {
		t.Fatal("the present is not remembered")
	}
	for _, days := range []int{-1000, -30, 30, 1000} {
		day := now.AddDate(0, 0, days).Truncate(24 * time.Hour)
		if !c.Active(day.Add(9*time.Hour)) || c.Active(day.Add(19*time.Hour)) {
			t.Errorf("in %d days: it is not active from 8 to 18", days)
		}
		if c.page.Load() != present {
			t.Errorf("in %d days: what is remembered of the present was replaced", days)
		}
	}
}
