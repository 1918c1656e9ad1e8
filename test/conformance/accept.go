package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Sides of an accepted difference.
const (
	SideLapwing = "lapwing" // lapwing deviates from Sensu's specification
	SideSensu   = "sensu"   // Sensu deviates from the sequence's expectation: a defect of Sensu, or of the specification
	SideBoth    = "both"    // the two answers differ in something that no sequence expects
)

// Accepted is a known difference with a reason. Sequence, Step and Field are regular expressions that must match
// completely. An empty one matches anything.
type Accepted struct {
	Side     string `yaml:"side"`
	Sequence string `yaml:"sequence"`
	Step     string `yaml:"step"`
	Field    string `yaml:"field"`
	// Got is a regular expression for that side's answer. lapwing needs one, so that a later change is noticed.
	Got    string `yaml:"got"`
	Reason string `yaml:"reason"`

	sequence, step, field, got *regexp.Regexp
	used                       bool
}

// LoadAccepted reads the file of accepted differences.
func LoadAccepted(path string) ([]*Accepted, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read accepted differences: %w", err)
	}
	var list []*Accepted
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&list); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read accepted differences: %w", err)
	}
	for i, a := range list {
		if a.Reason == "" || !slices.Contains([]string{SideLapwing, SideSensu, SideBoth}, a.Side) {
			return nil, fmt.Errorf("accepted difference %d needs a side and a reason", i+1)
		}
		if a.Side == SideLapwing && (a.Sequence == "" || a.Got == "") {
			return nil, fmt.Errorf("accepted difference %d: lapwing's need a sequence and what it says instead", i+1)
		}
		for _, f := range []struct {
			re   **regexp.Regexp
			text string
		}{{&a.sequence, a.Sequence}, {&a.step, a.Step}, {&a.field, a.Field}, {&a.got, a.Got}} {
			if f.text == "" {
				f.text = `[\s\S]*`
			}
			if *f.re, err = regexp.Compile(`^(?:` + f.text + `)$`); err != nil {
				return nil, fmt.Errorf("accepted difference %d: %w", i+1, err)
			}
		}
	}
	return list, nil
}

// Accept reports whether a problem is known, and why it is accepted.
func Accept(list []*Accepted, side string, p Problem) (reason string, ok bool) {
	for _, a := range list {
		if a.Side == side && a.sequence.MatchString(p.Sequence) && a.step.MatchString(p.Step) &&
			a.field.MatchString(p.Field) && a.got.MatchString(p.Got) {
			a.used = true
			return a.Reason, true
		}
	}
	return "", false
}

// Unused returns the accepted differences of a side that did not occur in the played sequences.
func Unused(list []*Accepted, side string, played []*Sequence) (unused []*Accepted) {
	for _, a := range list {
		if a.Side == side && !a.used && slices.ContainsFunc(played, func(s *Sequence) bool { return a.sequence.MatchString(s.Name) }) {
			unused = append(unused, a)
		}
	}
	return unused
}

// Compare returns the differences between two backends' answers to the same sequence, member by member, and how many
// members it compared.
func Compare(ours, theirs *Result) (compared int, differ []Problem) {
	find := func(r Record) (Record, bool) {
		for _, o := range theirs.Records {
			if o.Step == r.Step && o.What == r.What {
				return o, true
			}
		}
		return Record{}, false
	}
	for _, r := range ours.Records {
		if strings.HasPrefix(r.What, "delivery") {
			continue // deliveries of several handlers may come in any order; expectations check them
		}
		o, ok := find(r)
		if !ok || ours.failed(r.Step) || theirs.failed(r.Step) {
			continue // listed already
		}
		a, b := map[string]string{}, map[string]string{}
		flatten(r.Doc, "", a)
		flatten(o.Doc, "", b)
		all := maps.Clone(a)
		maps.Copy(all, b)
		for _, path := range slices.Sorted(maps.Keys(all)) {
			compared++
			if a[path] != b[path] {
				differ = append(differ, Problem{ours.Sequence.Name, r.Step, r.What + " " + path, b[path], a[path]})
			}
		}
	}
	return compared, differ
}

func (r *Result) failed(step string) bool {
	return slices.ContainsFunc(r.Problems, func(p Problem) bool { return p.Step == step })
}
