package rulefile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/prometheus/rules"
)

// State is the state of an alert.
type State uint8

// The states.
const (
	Inactive State = iota
	Pending
	Firing
)

// String returns the name that Prometheus has for the state.
func (s State) String() string {
	switch s {
	case Pending:
		return "pending"
	case Firing:
		return "firing"
	}
	return "inactive"
}

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *State) UnmarshalText(text []byte) error {
	for _, c := range []State{Inactive, Pending, Firing} {
		if c.String() == string(text) {
			*s = c
			return nil
		}
	}
	return fmt.Errorf("%q is no state of an alert: use inactive, pending or firing", text)
}

// AlertState is an alert after an evaluation.
type AlertState struct {
	File  string `json:"file"`
	Group string `json:"group"`
	Rule  string `json:"rule"`
	// Labels identify the alert within its rule. They contain alertname.
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations,omitempty"`
	State       State             `json:"state"`
	// Previous is the state that was reported before. Changed is false if this is a repetition.
	Previous State `json:"-"`
	Changed  bool  `json:"-"`
	// Removed is true if the alert became inactive because its rule is gone.
	Removed bool `json:"-"`
	// ActiveAt is when the expression became true, FiredAt when the alert began to fire.
	ActiveAt time.Time `json:"active_at"`
	FiredAt  time.Time `json:"fired_at,omitzero"`
	// Value is the last result of the expression. It is NaN if it was no number.
	Value float64 `json:"-"`
	// At is the time of the evaluation.
	At time.Time `json:"at"`
}

// tracked is an alert that is pending or firing.
type tracked struct {
	AlertState
	reported time.Time
	// restored is true if the alert is from a snapshot and was not seen since. goesOn is false if the snapshot is too old.
	restored, goesOn bool
}

// states are the alerts as they were reported last.
type states struct {
	mu    sync.Mutex // guards the fields below, and everything below rules
	rules map[string]map[string]*tracked
	seen  map[string]bool // rules that were observed
}

// observe compares the alerts of a rule with what was reported, and returns what to report now. Before that, it gives
// alerts that have begun anew the state that they had: after a restart, and after a group's limit has cleared them.
func (s *states) observe(g *rules.Group, rule *rules.AlertingRule, key string, at time.Time, repeat time.Duration,
) (out []AlertState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[string]bool{}
	}
	s.seen[key] = true
	before := s.rules[key]
	now := map[string]*tracked{}
	rule.ForEachActiveAlert(func(a *rules.Alert) {
		if a.State == rules.StateInactive {
			return // Prometheus remembers an ended alert for a while.
		}
		id := a.Labels.String()
		t := before[id]
		if t == nil {
			t = &tracked{AlertState: AlertState{File: g.File(), Group: g.Name(), Rule: rule.Name(), Labels: a.Labels.Map()}}
		} else if t.goesOn && a.State == rules.StatePending {
			t.giveBack(a, at)
		}
		t.restored, t.goesOn = false, true
		state := Pending
		if a.State == rules.StateFiring {
			state = Firing
		}
		t.Previous, t.State, t.Changed = t.State, state, t.State != state
		t.Annotations, t.ActiveAt, t.FiredAt, t.Value, t.At = a.Annotations.Map(), a.ActiveAt, a.FiredAt, a.Value, at
		now[id] = t
		if t.Changed || at.Sub(t.reported) >= repeat {
			t.reported = at
			out = append(out, t.AlertState)
		}
	})
	// From the first evaluation on, the states are right, so the series ALERTS can be written.
	rule.SetRestored(true)
	for id, t := range before {
		if now[id] == nil {
			out = append(out, t.end(at))
		}
	}
	if s.rules == nil {
		s.rules = map[string]map[string]*tracked{}
	}
	if s.rules[key] = now; len(now) == 0 {
		delete(s.rules, key)
	}
	sortStates(out)
	return out
}

// giveBack gives a, which has just begun, the state of t.
func (t *tracked) giveBack(a *rules.Alert, at time.Time) {
	switch {
	case t.State == Firing:
		a.State, a.ActiveAt, a.FiredAt = rules.StateFiring, t.ActiveAt, t.FiredAt
	case t.restored:
		// Only the time that the server was there to see it counts.
		a.ActiveAt = t.ActiveAt.Add(at.Sub(t.At))
	case a.ActiveAt.After(t.ActiveAt):
		a.ActiveAt = t.ActiveAt
	}
}

func (t *tracked) end(at time.Time) AlertState {
	e := t.AlertState
	e.Previous, e.State, e.Changed, e.At = e.State, Inactive, true, at
	return e
}

// prune ends the alerts of rules that are not there.
func (s *states) prune(there map[string]bool, at time.Time) (out []AlertState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, alerts := range s.rules {
		if there[key] {
			continue
		}
		for _, t := range alerts {
			e := t.end(at)
			e.Removed = true
			out = append(out, e)
		}
		delete(s.rules, key)
	}
	maps.DeleteFunc(s.seen, func(key string, _ bool) bool { return !there[key] })
	sortStates(out)
	return out
}

func (s *states) hasSeen(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[key]
}

func sortStates(all []AlertState) {
	slices.SortStableFunc(all, func(a, b AlertState) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Rule, b.Rule),
			cmp.Compare(fmt.Sprint(a.Labels), fmt.Sprint(b.Labels)))
	})
}

func (s *states) count() (pending, firing int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, alerts := range s.rules {
		for _, t := range alerts {
			if t.State == Firing {
				firing++
			} else {
				pending++
			}
		}
	}
	return pending, firing
}

func (s *states) all() (out []AlertState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, alerts := range s.rules {
		for _, t := range alerts {
			out = append(out, t.AlertState)
		}
	}
	sortStates(out)
	return out
}

// savedAlert is an alert in a snapshot.
type savedAlert struct {
	AlertState
	Key   string   `json:"key"`
	ID    string   `json:"id"`
	Value *float64 `json:"value,omitempty"` // JSON has no NaN
}

type savedStates struct {
	Version int          `json:"version"`
	At      time.Time    `json:"at"`
	Alerts  []savedAlert `json:"alerts"`
}

const snapshotVersion = 1

func (s *states) snapshot(at time.Time) ([]byte, error) {
	saved := savedStates{Version: snapshotVersion, At: at, Alerts: []savedAlert{}}
	s.mu.Lock()
	for key, alerts := range s.rules {
		for id, t := range alerts {
			a := savedAlert{AlertState: t.AlertState, Key: key, ID: id}
			if v := t.Value; !math.IsNaN(v) && !math.IsInf(v, 0) {
				a.Value = &v
			}
			saved.Alerts = append(saved.Alerts, a)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(saved.Alerts, func(a, b savedAlert) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.ID, b.ID))
	})
	text, err := json.Marshal(saved)
	if err != nil {
		return nil, fmt.Errorf("write the states of alerts: %w", err)
	}
	return text, nil
}

// load reads a snapshot. Its alerts count as reported.
func (s *states) load(text []byte, tolerance time.Duration, now time.Time) error {
	if len(text) == 0 {
		return nil
	}
	var saved savedStates
	if err := json.Unmarshal(text, &saved); err != nil {
		return fmt.Errorf("read the states of alerts: %w", err)
	}
	if saved.Version != snapshotVersion {
		return fmt.Errorf("read the states of alerts: the version is %d, not %d", saved.Version, snapshotVersion)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = map[string]map[string]*tracked{}
	for _, a := range saved.Alerts {
		if a.State == Inactive {
			continue
		}
		t := &tracked{AlertState: a.AlertState, restored: true, goesOn: now.Sub(saved.At) <= tolerance}
		t.AlertState.Value = math.NaN()
		if a.Value != nil {
			t.AlertState.Value = *a.Value
		}
		if s.rules[a.Key] == nil {
			s.rules[a.Key] = map[string]*tracked{}
		}
		s.rules[a.Key][a.ID] = t
	}
	return nil
}
