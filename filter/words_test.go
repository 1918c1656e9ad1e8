package filter

import (
	"fmt"
	"strings"
	"testing"
)

func TestWordsOf(t *testing.T) {
	for _, c := range []struct{ expression, want string }{
		{"event.check.occurrences == 1", ""},
		{"event.check.occurences == 1", "event.check.occurences (event.check.occurrences?)"},
		{"event.chek.status > 0 || event.chek.state == 'x'", "event.chek (event.check?)"},
		{"event['check']['statuss'] != 0", "event.check.statuss (event.check.status?)"},
		{"event?.check?.qqq", "event.check.qqq"},
		{"event.entity.labels.anything == 'x' && event.check.annotations['a/b']", "[anything]"},
		{"event.check.labels['a-b'].length > 1 && event.labels.x && event.entity.labels.hasOwnProperty('y')", ""},
		{"!event.entity.labels.a1 && event.entity.labels.b1 === undefined && null != event.entity.labels.c1 && event.entity.labels.d1", "[d1]"},
		{"event.entity.labels.mine = 'x'; event.entity.labels.mine === 'x'", ""},
		{"event.check.name == 'x' && event.entity.namespace", ""},
		{"event.check.metadata.name == 'x'", "event.check.metadata"}, // its fields are beside the others
		{"event.is_incident && event.has_metrics && !event.is_silenced && event.check.is_silenced", ""},
		{"event.check.history[0].status == 1 && event.check.history.length > 2", ""},
		{"event.check.history[0].stat == 1", "event.check.history.0.stat (event.check.history.0.status?)"},
		{"event.check.output.length > 1 && event.check.output.indexOf('x') >= 0", ""},
		{"event.check.outptu.indexOf('x') >= 0", "event.check.outptu (event.check.output?)"},
		{"event.entity.system.hostname == 'x' && event.metrics.points.length", ""},
		{"event.check.mine = 1; event.check.mine == 1", ""},
		{"var event = {}; event.foo", ""},
		{"in_calender('office')", "in_calender (in_calendar?)"},
		{"in_calendar('office') && in_calendar(\"b\", event.timestamp) || in_calendar(event.check.name)", "[b office]"},
		{"function f(x) { return x }; f(1) && (g => g(2))(f)", ""},
		{"var [a, {b}] = [hour, {b: minute}]; a(1) + b(2)", ""},
		{"try { q() } catch (e) { e() }", "q"},
		{"hour(event.timestamp) > 8 && parseInt('1') && Math.max(1, 2) && sensu.EventStatus('a', 'b')", ""},
		{"weekdy(event.timestamp) == 1", "weekdy (weekday?)"},
		{"event.check.status ==", ""}, // it does not parse
		{"event.check.status = 1", "="},
		{"event.is_incident && !(event.check.state = 'failing')", "="},
		{"event.check.mine = 1; event.check.mine === 1", ""},
		{"var x = 1; x = 2", ""},
		{"event.check.occurrences += 1", ""},
		{strings.Repeat("in_calendar('a'); ", 500) + "nosuch()", ""},
	} {
		w := WordsOf(c.expression)
		var said []string
		if w.Assigns {
			said = append(said, "=")
		}
		for _, u := range append(w.Members, w.Functions...) {
			said = append(said, u.String())
		}
		if len(w.Calendars) > 0 {
			said = append(said, fmt.Sprint(w.Calendars))
		}
		if len(w.Labels) > 0 {
			said = append(said, fmt.Sprint(w.Labels))
		}
		if got := strings.Join(said, " "); got != c.want && len(c.expression) <= MaxExpression {
			t.Errorf("%s: %q, want %q", c.expression, got, c.want)
		}
	}
	var many strings.Builder
	for i := range 500 {
		fmt.Fprintf(&many, "event.x%d;event.entity.labels.l%[1]d;f%[1]d();in_calendar('%[1]d');", i)
	}
	if w := WordsOf(many.String()[:MaxExpression-9] + ";"); len(w.Members) > maxWords || len(w.Functions) > maxWords || len(w.Calendars) > maxWords ||
		len(w.Labels) > maxWords {
		t.Errorf("too many: %d, %d, %d, %d", len(w.Members), len(w.Functions), len(w.Calendars), len(w.Labels))
	}
}

func FuzzWordsOf(f *testing.F) {
	for _, e := range []string{"event.chek.x == in_calendar('y')", "var {a, ...b} = event; b.c()", "event?.[0]?.a`x${f()}`", "class A { #b = event.c }"} {
		f.Add(e)
	}
	f.Fuzz(func(_ *testing.T, e string) { WordsOf(e) })
}
