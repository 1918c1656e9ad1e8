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
	made    map[string]bool // what the files define, in the words of warnings: handler "slack"
	waiting []expectedWarning
}

type expectedWarning struct{ path, about, text string }

// aboutMissing matches the server's warnings about names that name nothing. Its first group is what is missing.
var aboutMissing = regexp.MustCompile(`^([a-z]+(?: [a-z]+)* "[^"]*")(?: does not exist|: no entity has it)`)

// expect says that the command writes some objects.
func (s *settings) expect(objects []*object) {
	e := &expected{made: map[string]bool{}}
	for _, o := range objects {
		e.made[fmt.Sprintf("%s %q", strings.ReplaceAll(o.kind.Command, "-", " "), o.name)] = true
		if o.kind.Type == client.Entities.Type || o.kind.Type == client.EntityConfigs.Type {
			list, _ := o.body["subscriptions"].([]any)
			for _, one := range list {
				e.made[fmt.Sprintf("subscription %q", one)] = true
			}
		}
	}
	s.expected = e
}

// later keeps a warning's parts that may come true, and returns the others.
func (e *expected) later(path, text string) (rest string) {
	var others []string
	for _, part := range strings.Split(text, "; ") {
		if m := aboutMissing.FindStringSubmatch(part); m != nil {
			e.waiting = append(e.waiting, expectedWarning{path, m[1], part})
			continue
		}
		others = append(others, part)
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
		if !s.expected.made[one.about] && !told[line] {
			fmt.Fprintln(w, line)
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
