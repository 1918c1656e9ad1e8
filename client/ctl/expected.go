package ctl

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
)

// expected holds the server's warnings about names that name nothing, until the command has written all its files: what a
// warning misses may be in one of them.
type expected struct {
	made    map[string]bool    // what the files define, by namespace and in the words of warnings: default handler "slack"
	objects map[string]*object // of the files, by path; of several definitions of one name, the one that was sent last
	waiting []expectedWarning
}

type expectedWarning struct {
	path, about, text string
	of                *object // nil if no file has it
}

// aboutNeeding matches the calendars that need a missing one.
var aboutNeeding = regexp.MustCompile(`the calendar (\S+) needs another`)

// aboutMissing matches the server's warnings about names that name nothing. Its first group is what is missing.
var aboutMissing = regexp.MustCompile(`^([a-z]+(?: [a-z]+)* "[^"]*")(?: does not exist|: no entity has it|: no role binding)`)

// aboutCalendar matches those about calendars, which also say what it means that one is missing.
var aboutCalendar = regexp.MustCompile(`the (calendar) (\S+) is not defined`)

// inNamespace matches the namespace in the path of a request.
var inNamespace = regexp.MustCompile(`/namespaces/([^/]+)/`)

// expect says that the command writes some objects.
func (s *settings) expect(objects []*object) {
	e := &expected{made: map[string]bool{}, objects: map[string]*object{}}
	for _, o := range objects {
		e.objects[o.path()] = o
		e.made[fmt.Sprintf("%s %s %q", o.namespace, strings.ReplaceAll(o.kind.Command, "-", " "), o.name)] = true
		if o.kind.Type == client.Entities.Type || o.kind.Type == client.EntityConfigs.Type {
			list, _ := o.body["subscriptions"].([]any)
			for _, one := range list {
				e.made[fmt.Sprintf("%s subscription %q", o.namespace, one)] = true
			}
		}
		if o.kind.Type == client.RoleBindings.Type || o.kind.Type == client.ClusterRoleBindings.Type {
			list, _ := o.body["subjects"].([]any)
			for _, one := range list {
				if s, _ := one.(map[string]any); s["type"] == "Group" {
					e.made[fmt.Sprintf(" group %q", s["name"])] = true
				}
			}
		}
	}
	s.expected = e
}

// sends says that the next warnings about a path are of this object: files may define one name twice.
func (e *expected) sends(o *object) { e.objects[o.path()] = o }

// later keeps a warning's parts that may come true, and returns the others.
func (e *expected) later(path, text string) (rest string) {
	var others []string
	for _, part := range strings.Split(text, "; ") {
		about := ""
		if m := aboutMissing.FindStringSubmatch(part); m != nil {
			about = m[1]
		} else if m := aboutCalendar.FindStringSubmatch(part); m != nil {
			about = fmt.Sprintf("%s %q", m[1], m[2])
		}
		if about == "" {
			others = append(others, part)
			continue
		}
		e.keep(expectedWarning{path: path, about: about, text: part, of: e.objects[path]})
	}
	return strings.Join(others, "; ")
}

// keep keeps a warning in the place of an earlier one about the same: a dry run comes before the write.
func (e *expected) keep(w expectedWarning) {
	for i := range e.waiting {
		if old := &e.waiting[i]; old.path == w.path && old.about == w.about && old.of == w.of {
			e.waiting[i] = w
			return
		}
	}
	e.waiting = append(e.waiting, w)
}

// tellExpected prints the warnings that have not come true, each with its place.
func (s *settings) tellExpected(w io.Writer) {
	if s.expected == nil {
		return
	}
	for i := range s.expected.waiting {
		one := &s.expected.waiting[i]
		namespace := ""
		if m := inNamespace.FindStringSubmatch(one.path); m != nil {
			namespace = m[1]
		}
		if s.expected.made[namespace+" "+one.about] || s.expected.made[" "+one.about] { // users belong to no namespace
			continue
		}
		if s.expected.mended(namespace, one) {
			continue
		}
		where := shortPath(one.path)
		if one.of != nil {
			where = one.of.placed(one.of.lineAbout(one))
		}
		fmt.Fprintln(w, printable("Warning: "+where+": "+one.text+s.expected.near(namespace, one)))
	}
	s.expected = nil
}

// mended reports whether the warning is about a calendar that needs a missing one, and the files define that calendar without
// such a warning: the server judged by the one that it had.
func (e *expected) mended(namespace string, w *expectedWarning) bool {
	for _, m := range aboutNeeding.FindAllStringSubmatch(w.text, -1) {
		path := client.Calendars.Path(namespace, m[1])
		warned := func(other expectedWarning) bool { return other.path == path }
		if e.objects[path] != nil && !slices.ContainsFunc(e.waiting, warned) {
			return true
		}
	}
	return false
}

// forget drops the warnings about a resource: the server is asked again.
func (e *expected) forget(path string) {
	e.waiting = slices.DeleteFunc(e.waiting, func(w expectedWarning) bool { return w.path == path })
}

// near returns the nearest name in the files to one that is missing, as the server adds one of those that it has.
func (e *expected) near(namespace string, w *expectedWarning) string {
	what, quoted, ok := strings.Cut(w.about, ` "`)
	if !ok || strings.HasSuffix(w.text, "?)") {
		return ""
	}
	var names []string
	for made := range e.made {
		for _, before := range []string{namespace + " " + what, " " + what} {
			if rest, is := strings.CutPrefix(made, before+" "); is {
				if name, err := strconv.Unquote(rest); err == nil {
					names = append(names, name)
				}
			}
		}
	}
	slices.Sort(names)
	if near := optionerr.Nearest(strings.TrimSuffix(quoted, `"`), names); near != "" {
		return " (" + near + "?)"
	}
	return ""
}

// unpublished warns of a check that its files do not publish. after is the check as it will be; others may have published
// it.
func (e *expected) unpublished(o *object, after map[string]any) {
	if _, said := o.body["publish"]; said || o.kind.Type != client.Checks.Type || slices.Contains(o.meant, "publish") {
		return
	}
	if on, _ := after["publish"].(bool); !on {
		e.keep(expectedWarning{o.path(), "publish", "it has no publish: true, so it is not scheduled (it runs only on request)", o})
	}
}

// placed names the object with a line of its file, as mistakes do.
func (o *object) placed(line int) string {
	return fmt.Sprintf("%s:%d: %s %s", o.from.Source, line, o.kind.Type, o.name)
}

// lineAbout returns the line in the file that a warning is about: of the field that has the name, or else of the resource.
func (o *object) lineAbout(w *expectedWarning) int {
	if what, name, ok := strings.Cut(strings.TrimSuffix(w.about, `"`), ` "`); ok {
		if steps := stepsTo(o.body, name, what, []any{"spec"}); steps != nil {
			return o.from.At().Find(steps).Line
		}
	}
	return o.from.Line()
}

// stepsTo returns where a value has a name as text, or nil. A field that is called as what the name is of is better than
// another one.
func stepsTo(v any, name, what string, steps []any) (best []any) {
	named := func(steps []any) bool { return strings.Contains(fmt.Sprint(steps...), what) }
	try := func(v any, step any) {
		found := stepsTo(v, name, what, append(steps[:len(steps):len(steps)], step))
		if found != nil && (best == nil || !named(best) && named(found)) {
			best = found
		}
	}
	switch v := v.(type) {
	case string:
		if v == name {
			return steps
		}
	case []any:
		for i, item := range v {
			try(item, i)
		}
	case map[string]any:
		for _, key := range sortedKeys(v) {
			if key != "metadata" {
				try(v[key], key)
			}
		}
	}
	return best
}

// shortPath returns the end of an API path that names a resource: checks/disk.
func shortPath(path string) string {
	parts := strings.Split(strings.TrimSuffix(path, "/"), "/")
	return strings.Join(parts[max(0, len(parts)-2):], "/")
}
