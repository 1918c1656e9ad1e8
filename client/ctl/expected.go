package ctl

import (
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/lapwing-monitoring/lapwing/client"
)

// expected holds the server's warnings about names that name nothing, until the command has written all its files: what a
// warning misses may be in one of them.
type expected struct {
	made    map[string]bool // what the files define, by namespace and in the words of warnings: default handler "slack"
	waiting []expectedWarning
}

type expectedWarning struct{ path, about, text string }

// aboutMissing matches the server's warnings about names that name nothing. Its first group is what is missing.
var aboutMissing = regexp.MustCompile(`^([a-z]+(?: [a-z]+)* "[^"]*")(?: does not exist|: no entity has it)`)

// aboutCalendar matches those about calendars, which also say what it means that one is missing.
var aboutCalendar = regexp.MustCompile(`the (calendar) (\S+) is not defined`)

// inNamespace matches the namespace in the path of a request.
var inNamespace = regexp.MustCompile(`/namespaces/([^/]+)/`)

// expect says that the command writes some objects.
func (s *settings) expect(objects []*object) {
	e := &expected{made: map[string]bool{}}
	for _, o := range objects {
		e.made[fmt.Sprintf("%s %s %q", o.namespace, strings.ReplaceAll(o.kind.Command, "-", " "), o.name)] = true
		if o.kind.Type == client.Entities.Type || o.kind.Type == client.EntityConfigs.Type {
			list, _ := o.body["subscriptions"].([]any)
			for _, one := range list {
				e.made[fmt.Sprintf("%s subscription %q", o.namespace, one)] = true
			}
		}
	}
	s.expected = e
}

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
		e.waiting = append(e.waiting, expectedWarning{path, about, part})
	}
	return strings.Join(others, "; ")
}

// tellExpected prints the warnings that have not come true, each once.
func (s *settings) tellExpected(w io.Writer) {
	if s.expected == nil {
		return
	}
	told := map[string]bool{}
	for _, one := range s.expected.waiting {
		line := "Warning: " + shortPath(one.path) + ": " + one.text
		namespace := ""
		if m := inNamespace.FindStringSubmatch(one.path); m != nil {
			namespace = m[1]
		}
		made := s.expected.made[namespace+" "+one.about] || s.expected.made[" "+one.about] // users belong to no namespace
		if !made && !told[line] {
			fmt.Fprintln(w, printable(line))
			told[line] = true
		}
	}
	s.expected = nil
}

// shortPath returns the end of an API path that names a resource: checks/disk.
func shortPath(path string) string {
	parts := strings.Split(strings.TrimSuffix(path, "/"), "/")
	return strings.Join(parts[max(0, len(parts)-2):], "/")
}
