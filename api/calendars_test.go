package api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

const calendarsPath = "/api/lapwing/v1/namespaces/default/calendars"

func TestCalendars(t *testing.T) {
	s := newServer(t, nil)
	define := func(name, more string) string { return `{"metadata":{"name":"` + name + `"},` + more + `}` }
	warning := func(a *answer) string { return a.header.Get("Warning") }
	s.do("POST", calendarsPath, define("holidays", `"windows":[{"dates":["12-25 Christmas","2026-12-31"]}]`)).is(201)
	hours := define("hours", `"windows":[{"rrule":"FREQ=DAILY","begin":"08:00","end":"18:00"}],"except":[{"calendar":"holidays"}]`)
	if got := warning(s.do("POST", calendarsPath, hours).is(201)); got != "" {
		t.Errorf("the warning is %s", got)
	}
	if got := warning(s.do("POST", calendarsPath, define("lost", `"include":["gone"]`)).is(201)); !strings.Contains(got, "the calendar gone is not defined") {
		t.Errorf("the warning is %q", got)
	}
	for more, message := range map[string]string{
		`"windows":[]`: "resource is invalid: windows or include must be set",
		`"windows":[{"rrule":"FREQ=WEEKLY","duration":60}]`: `resource is invalid: windows 1: rrule "FREQ=WEEKLY": WEEKLY without BYDAY counts from the first day: set begin to it, as 2026-11-02T08:00`,
		`"include":["hours"],"time_zone":"Berlin"`:          `resource is invalid: there is no time zone "Berlin": write one such as Europe/Berlin`,
		`"windows":[{"calendar":"hours"}]`:                  "resource is invalid: windows 1: calendar is only for except: name other calendars in include",
	} {
		s.do("POST", calendarsPath, define("x", more)).refuses(400, codeInvalid, message)
	}
	s.do("PUT", calendarsPath+"/holidays", define("holidays", `"include":["hours"]`)).refuses(400, codeInvalid,
		"resource is invalid: the calendar holidays needs another: the calendar hours needs another: the calendar holidays includes itself, by way of others")
	var got resource.CalendarPreview
	s.do("GET", calendarsPath+"/hours/preview?since=1798100000&until=1798300000", "").is(200).has(&got) // 24 December 2026, 8:13 to 26 December, 15:46
	if !got.Active || got.Next != 1798135200 || len(got.Windows) != 2 || got.Windows[1].Begin != 1798272000 {
		t.Errorf("the preview is %+v", got)
	}
	s.do("GET", calendarsPath+"/lost/preview", "").is(200).has(&got)
	if !strings.Contains(got.Problem, "the calendar gone is not defined") || len(got.Windows) != 0 {
		t.Errorf("the preview is %+v", got)
	}
	s.do("GET", calendarsPath+"/hours/preview?since=2&until=1", "").is(400)

	check := `{"metadata":{"name":"c","namespace":"default"},"command":"true","interval":10,"subscriptions":["a"],"calendars":{"run_within":["hours"],"not_within":["gone"]}}`
	if got := warning(s.do("PUT", "/api/core/v2/namespaces/default/checks/c", check).is(201)); !strings.Contains(got, "the calendar gone is not defined: the check runs without regard to it") {
		t.Errorf("the warning is %q", got)
	}
	silence := `{"check":"c","calendars":["hours","gone"]}`
	if got := warning(s.do("POST", "/api/core/v2/namespaces/default/silenced", silence).is(201)); !strings.Contains(got, "the calendar gone is not defined: the silence does not act by it") {
		t.Errorf("the warning is %q", got)
	}
}

// TestCalendarsThatAreNotForTheUser: what counts as missing, and why, is for users who may list calendars.
func TestCalendarsThatAreNotForTheUser(t *testing.T) {
	s := newServer(t, func(o *Options) { f := new(someAgents); o.Schedule, o.Agents = f, f })
	s.do("POST", calendarsPath, `{"metadata":{"name":"sekret"},"include":["merger"]}`).is(201)
	full := resource.Rule{Verbs: []string{"*"}, Resources: []string{"checks", "silenced", "entities", "events"}}
	s.grant("authors", "default", full)
	full.Resources = append(full.Resources, "calendars")
	s.grant("planners", "default", full)
	check := `{"metadata":{"name":"c","namespace":"default"},"command":"true","interval":10,"subscriptions":["a"],"calendars":{"run_within":["sekret"]}}`
	const own = "/api/lapwing/v1/namespaces/default/"
	for group, sees := range map[string]bool{"authors": false, "planners": true} {
		auth := "Bearer " + s.user(group+"1", group)
		for _, q := range [][3]string{
			{"PUT", "/api/core/v2/namespaces/default/checks/c", check},
			{"POST", "/api/core/v2/namespaces/default/silenced", `{"check":"` + group + `","calendars":["sekret"]}`},
			{"PUT", calendarsPath + "/other", `{"metadata":{"name":"other"},"include":["sekret"]}`},
			{"GET", own + "checks/c/next", ""},
			{"GET", own + "checks/c/targets", ""},
		} {
			a := s.do(q[0], q[1], q[2], "Authorization", auth)
			told := a.body + a.header.Get("Warning")
			if a.status >= 300 && !strings.Contains(q[1], "/other") {
				t.Errorf("%s %s of %s: %d %s", q[0], q[1], group, a.status, a.body)
			}
			if got := strings.Contains(told, "merger"); got != sees {
				t.Errorf("%s %s: %s see why the calendar counts as missing: %v\n%s", q[0], q[1], group, got, told)
			}
			if strings.Contains(a.body, "time_zones") != (sees && strings.HasSuffix(q[1], "/next")) {
				t.Errorf("%s: time zones for %s: %s", q[1], group, a.body)
			}
		}
	}
}

// TestWarningsOfLargeRequests: a calendar that breaks a bound is not read, and warnings fit a header.
func TestWarningsOfLargeRequests(t *testing.T) {
	s := newServer(t, nil)
	wrong := strings.Repeat(`{"calendar":"hours"},`, 101)
	many := `{"metadata":{"name":"c"},"include":["gone"],"except":[` + strings.TrimSuffix(wrong, ",") + `]}`
	if a := s.do("POST", calendarsPath, many).is(400); strings.Contains(a.header.Get("Warning"), "counts as missing") ||
		strings.Contains(a.header.Get("Warning"), "needs another") {
		t.Errorf("the warning is %q", a.header.Get("Warning"))
	}
	names := strings.TrimSuffix(strings.Repeat(`"gone`+strings.Repeat("x", 200)+`",`, 1000), ",")
	check := `{"metadata":{"name":"c","namespace":"default"},"command":"true","interval":10,"subscriptions":["a"],"calendars":{"run_within":[` + names + `]}}`
	a := s.do("PUT", "/api/core/v2/namespaces/default/checks/c", check).is(400)
	if got := a.header.Get("Warning"); got == "" || len(got) > 2*maxWarning {
		t.Errorf("the warning has %d bytes", len(got))
	}
	handlers := &strings.Builder{}
	for i := range 500 {
		fmt.Fprintf(handlers, `,"h%d"`, i)
	}
	check = `{"metadata":{"name":"c","namespace":"default"},"command":"true","interval":10,"handlers":[` + handlers.String()[1:] + `]}`
	a = s.do("PUT", "/api/core/v2/namespaces/default/checks/c", check)
	if got := a.header.Get("Warning"); !strings.Contains(got, `h19\" does not exist; 480 more names do not exist`) {
		t.Errorf("the warning is %q", got)
	}
}
