// Package conformance plays event sequences to a backend and compares the answers with the specification of Sensu's
// event model. Only its tests call it: they play the sequences to lapwing, and to a Sensu backend if the environment
// names one.
//
// The sequences are data (testdata/*.yaml, see docs/conformance.md). They need only Sensu's HTTP API and agent socket,
// so the same ones run against lapwing and Sensu. Each sequence has its own namespace. All run concurrently, so that
// waits in real time overlap.
package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
)

// Sequence is a series of steps, each with its expectations.
type Sequence struct {
	Name string `yaml:"name"`
	// Spec is the section of the specification with the expectations.
	Spec string `yaml:"spec"`
	// About describes the sequence if its name is not enough.
	About string `yaml:"about"`
	// Slow marks a sequence that waits for timeouts, in seconds. Slow sequences start first and are left out of short
	// runs.
	Slow int `yaml:"slow"`
	// Agent, if not nil, connects and registers before the first step: the same as a step `agent` with `register: true`.
	Agent *Agent `yaml:"agent"`
	Steps []Step `yaml:"steps"`
}

// Step is one action with its expectations. One of the fields from Agent to Await is set.
type Step struct {
	About string `yaml:"about"`

	Agent     *Agent         `yaml:"agent"`     // connect an agent
	Close     string         `yaml:"close"`     // the agent that disconnects
	Closed    string         `yaml:"closed"`    // the agent that the backend must disconnect
	Keepalive map[string]any `yaml:"keepalive"` // send a keepalive
	Event     map[string]any `yaml:"event"`     // send a result, or post one
	Table     *Table         `yaml:"table"`     // send several results
	Frame     *Frame         `yaml:"frame"`     // a frame that the backend must send to an agent
	Handler   map[string]any `yaml:"handler"`   // define a handler; without a type it sends to the runner
	Put       map[string]any `yaml:"put"`       // PUT bodies by path
	Post      map[string]any `yaml:"post"`      // POST bodies by path
	Delete    string         `yaml:"delete"`    // DELETE a path
	Silence   map[string]any `yaml:"silence"`   // make a silence, and wait until it takes effect
	Unsilence string         `yaml:"unsilence"` // delete a silence, and wait until that takes effect
	Settle    bool           `yaml:"settle"`    // wait until a silence that ended on its own has no effect any more
	Get       string         `yaml:"get"`       // GET a path until it is as expected
	Wait      float64        `yaml:"wait"`      // seconds to wait

	// Code is the status of the HTTP request. Default: any of 200 to 299.
	Code int `yaml:"code"`
	// Within is how many seconds Get, Frame, Closed and Deliver wait. Default 5.
	Within float64 `yaml:"within"`
	// Expect is what the event, the answer or the frame must contain.
	Expect any `yaml:"expect"`
	// Deliver has the events that the handlers must have got since the last check, by handler.
	Deliver map[string][]any `yaml:"deliver"`
}

// Table is a series of results of one check, one per column.
type Table struct {
	Send map[string]any    `yaml:"send"` // the common fields
	With map[string]string `yaml:"with"` // the fields of each result, by field
	// the expected fields of the stored event after each, by field; "." is not checked
	Rows map[string]string `yaml:"rows"`
}

// Agent is one connection to the agent socket.
type Agent struct {
	Name          string            `yaml:"name"`
	Subscriptions []string          `yaml:"subscriptions"`
	JSON          bool              `yaml:"json"`     // speak JSON instead of protobuf
	Register      bool              `yaml:"register"` // send a keepalive, and wait until it is stored
	Refused       int               `yaml:"refused"`  // the status with which the handshake must be refused
	Headers       map[string]string `yaml:"headers"`
	Keepalive     map[string]any    `yaml:"keepalive"` // fields of the keepalive that registers it
	Entity        map[string]any    `yaml:"entity"`    // fields of the entity in its events
}

// Frame is a message that an agent must receive.
type Frame struct {
	Agent string `yaml:"agent"`
	Type  string `yaml:"type"`
}

// Load reads the sequences of all files in a directory.
func Load(dir string) ([]*Sequence, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("list sequences: %w", err)
	}
	var all []*Sequence
	names := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read sequences: %w", err)
		}
		var list []*Sequence
		dec := yaml.NewDecoder(bytes.NewReader(text))
		dec.KnownFields(true)
		if err := dec.Decode(&list); err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("read sequences of %s: %w", path, err)
		}
		for _, s := range list {
			switch {
			case s.Name == "" || s.Spec == "" || len(s.Steps) == 0:
				return nil, fmt.Errorf("read sequences of %s: %q needs a name, a spec and steps", path, s.Name)
			case names[s.Name] != "":
				return nil, fmt.Errorf("read sequences of %s: %s is in %s too", path, s.Name, names[s.Name])
			case s.expectations() == 0:
				return nil, fmt.Errorf("read sequences of %s: %s expects nothing", path, s.Name)
			}
			names[s.Name] = path
		}
		all = append(all, list...)
	}
	return all, nil
}

// expectations counts the steps that can fail.
func (s *Sequence) expectations() (n int) {
	for _, st := range s.Steps {
		if st.Expect != nil || st.Deliver != nil || st.Table != nil && len(st.Table.Rows) > 0 || st.Code != 0 ||
			st.Closed != "" || st.Frame != nil || st.Agent != nil && st.Agent.Refused != 0 {
			n++
		}
	}
	return n
}

// Problem is a deviation from an expectation.
type Problem struct {
	Sequence, Step, Field string
	Want, Got             string
}

func (p Problem) String() string {
	return fmt.Sprintf("%s step %s: %s is %s, want %s", p.Sequence, p.Step, p.Field, p.Got, p.Want)
}

// Record is a backend's answer after a step, with values that differ from run to run replaced by words.
type Record struct {
	Step, What string
	Doc        any
}

// Result is the result of one sequence.
type Result struct {
	Sequence *Sequence
	Steps    int // actions; each column of a table is one
	Checked  int // fields that were compared
	Problems []Problem
	Records  []Record
	Took     time.Duration
}

// Options configures Run.
type Options struct {
	// Parallel is how many sequences are played at a time. Slow sequences do not count: they are mostly idle. Default
	// 24.
	Parallel int
	// Dir is an empty directory to which handlers' commands write.
	Dir string
}

// Run plays the sequences to a target and returns a result for each, in the same order.
func Run(ctx context.Context, t *Target, sequences []*Sequence, opts Options) ([]*Result, error) {
	if opts.Parallel == 0 {
		opts.Parallel = 24
	}
	if err := t.prepare(ctx, sequences); err != nil {
		return nil, err
	}
	results := make([]*Result, len(sequences))
	var wg sync.WaitGroup
	for i, s := range sequences {
		if s.Slow > 0 {
			wg.Go(func() { results[i] = play(ctx, t, s, opts.Dir) })
		}
	}
	turn := make(chan struct{}, opts.Parallel)
	for i, s := range sequences {
		if s.Slow == 0 {
			turn <- struct{}{}
			wg.Go(func() {
				results[i] = play(ctx, t, s, opts.Dir)
				<-turn
			})
		}
	}
	wg.Wait()
	return results, nil
}
