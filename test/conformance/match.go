package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Results have times that count up from a fixed one, so that an expectation can name the result it means.
const firstSecond = 1_600_000_000

var (
	dates   = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4} \S+`)
	seconds = regexp.MustCompile(`-?\d+ seconds`)
	uuids   = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
)

// eventID returns the identifier of the n-th event of a sequence.
func eventID(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// simplify replaces values that differ from run to run: the time of the run becomes "now", times of results t1, t2 and
// so on, identifiers id1 and so on if the runner chose them, else "uuid", and the sequence's namespace "NAMESPACE".
func simplify(v any, ns string, begin time.Time) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, e := range v {
			m[k] = simplify(e, ns, begin)
		}
		return m
	case []any:
		l := make([]any, len(v))
		for i, e := range v {
			l[i] = simplify(e, ns, begin)
		}
		return l
	case json.Number:
		n, err := v.Int64()
		switch {
		case err != nil:
			return v.String()
		case n > firstSecond && n < firstSecond+100_000:
			return "t" + strconv.FormatInt(n-firstSecond, 10)
		case n >= begin.Unix()-1 && n < begin.Unix()+3600:
			return "now"
		}
		return v.String()
	case string:
		if uuids.MatchString(v) {
			if n, ok := strings.CutPrefix(v, "00000000-0000-4000-8000-"); ok {
				return "id" + strings.TrimLeft(n, "0")
			}
			return "uuid"
		}
		return strings.ReplaceAll(v, ns, "NAMESPACE")
	}
	return v
}

// flatten lists the leaves of a document by path, for comparisons. It removes ages from texts, and treats absent and
// empty values alike.
func flatten(v any, path string, out map[string]string) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			flatten(e, strings.TrimPrefix(path+"."+k, "."), out)
		}
	case []any:
		for i, e := range v {
			flatten(e, path+"["+strconv.Itoa(i)+"]", out)
		}
	case nil:
	default:
		if s := text(v); s != "" && s != "0" && s != "false" {
			out[path] = seconds.ReplaceAllString(dates.ReplaceAllString(s, "DATE"), "N seconds")
		}
	}
}

// eventFields are the members of an event itself; in expectations all other members belong to its check.
var eventFields = []string{"id", "sequence", "timestamp", "metadata", "entity", "metrics", "check"}

// matcher compares documents with expectations.
type matcher struct {
	checked  int
	problems []Problem
}

func (m *matcher) add(field, want, got string) {
	m.problems = append(m.problems, Problem{Field: field, Want: want, Got: got})
}

// event compares an event.
func (m *matcher) event(want map[string]any, doc any) {
	ev, _ := doc.(map[string]any)
	check, _ := ev["check"].(map[string]any)
	for _, k := range slices.Sorted(maps.Keys(want)) {
		switch {
		case k == "event_pipelines":
			m.value(k, want[k], ev["pipelines"])
		case k == "check_metadata":
			m.value(k, want[k], check["metadata"])
		case slices.Contains(eventFields, k):
			m.value(k, want[k], ev[k])
		default:
			m.value(k, want[k], check[k])
		}
	}
}

// value compares a part of a document: maps may have more members than expected, lists may not. "(absent)" means absent
// or empty; "/.../" is a regular expression; a history can be written as its statuses.
func (m *matcher) value(field string, want, got any) {
	switch want := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok && len(want) > 0 {
			m.checked++
			m.add(field, text(want), text(got))
			return
		}
		for _, k := range slices.Sorted(maps.Keys(want)) {
			m.value(field+"."+k, want[k], g[k])
		}
	case []any:
		g, _ := got.([]any)
		m.checked++
		if len(g) != len(want) {
			m.add(field, text(want), text(got))
			return
		}
		for i := range want {
			m.value(field+"["+strconv.Itoa(i)+"]", want[i], g[i])
		}
	default:
		m.checked++
		w, g := text(want), text(got)
		if h, ok := got.([]any); ok && strings.HasSuffix(field, "history") {
			g = statuses(h)
		}
		switch {
		case w == "(absent)":
			if got != nil && g != "" && g != "0" && g != "{}" && g != "[]" {
				m.add(field, w, g)
			}
		case w == "(present)":
			if got == nil || g == "" {
				m.add(field, w, g)
			}
		case len(w) > 1 && w[0] == '/' && w[len(w)-1] == '/':
			if re, err := regexp.Compile(w[1 : len(w)-1]); err != nil || !re.MatchString(g) {
				m.add(field, w, g)
			}
		case w != g && !(got == nil && (w == "0" || w == "false" || w == "")):
			m.add(field, w, g)
		}
	}
}

// statuses returns the short form of a history.
func statuses(history []any) string {
	var l []string
	for _, e := range history {
		entry, _ := e.(map[string]any)
		l = append(l, text(entry["status"]))
	}
	return strings.Join(l, " ")
}

func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case []any, map[string]any:
		b, err := json.Marshal(v)
		if err != nil {
			return fmt.Sprint(v)
		}
		return string(b)
	}
	return fmt.Sprint(v)
}
