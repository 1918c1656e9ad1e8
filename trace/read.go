package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
)

// Outcome is the result of one event in all its workflows.
type Outcome struct {
	Event      string `json:"event"`
	Namespace  string `json:"namespace"`
	Entity     string `json:"entity"`
	Check      string `json:"check"`
	Status     uint32 `json:"status"`
	Incident   bool   `json:"incident,omitempty"`
	Resolution bool   `json:"resolution,omitempty"`
	// Received is when the backend received it, Unix milliseconds.
	Received   int64      `json:"received"`
	Deliveries []Delivery `json:"deliveries"`
}

// Query selects outcomes of a check's events.
type Query struct {
	Namespace string `json:"namespace"`
	Entity    string `json:"entity"`
	Check     string `json:"check"`
	// Until leaves out events that were received later, Unix milliseconds; 0 leaves out none.
	Until int64 `json:"until,omitempty"`
	// Limit is how many events there are at most; 0 is all.
	Limit int `json:"limit"`
}

// Of returns the outcomes of a check's events, the newest first.
func (s *Store) Of(q Query) ([]Outcome, error) {
	events, err := s.outcomes(q, 0)
	return events.Outcomes, err
}

// Newest has what the newest records of a check tell.
type Newest struct {
	Outcomes []Outcome `json:"outcomes"`
	// Cut says that there are older records.
	Cut bool `json:"cut,omitempty"`
}

const (
	// newestRecords bounds the records that Newest reads of a check.
	newestRecords = 500
	// newestOutput is what it keeps of the output of an attempt.
	newestOutput = 256
)

// Newest is Of for many checks at a time: it reads a bounded number of records, and leaves out most of the outputs.
func (s *Store) Newest(q Query) (Newest, error) {
	found, err := s.outcomes(q, newestRecords)
	for i := range found.Outcomes {
		for j := range found.Outcomes[i].Deliveries {
			d := &found.Outcomes[i].Deliveries[j]
			for k := range d.Attempts {
				cut(&d.Attempts[k].Output, newestOutput)
			}
		}
	}
	return found, err
}

// outcomes reads the newest records of a check, or all if most is 0.
func (s *Store) outcomes(q Query, most int) (found Newest, err error) {
	pair := pairName{q.Namespace, q.Entity, q.Check}
	s.writeMu.Lock()
	if err := s.flush(); err != nil {
		s.writeMu.Unlock()
		return found, err
	}
	generations := slices.Clone(s.generations)
	s.writeMu.Unlock()

	var records []*Delivery // newest first
	for _, g := range slices.Backward(generations) {
		left := 0
		if most > 0 {
			if left = most - len(records); left == 0 {
				found.Cut = true
				break
			}
		}
		more, err := s.read(g.id, pair, left, func(d *Delivery) { records = append(records, d) })
		if err != nil {
			return found, fmt.Errorf("read traces of %s/%s: %w", q.Entity, q.Check, err)
		}
		if found.Cut = more; more {
			break
		}
	}
	var all []*Delivery
	byID := map[string]*Delivery{}
	for _, d := range slices.Backward(records) {
		if before := byID[d.ID]; before != nil {
			before.Merge(d)
			continue
		}
		byID[d.ID] = d
		all = append(all, d)
	}
	// The record that a repeat refers to may be trimmed before it.
	all = slices.DeleteFunc(all, func(d *Delivery) bool { return d.EventID == "" })
	s.addRuns(all)
	found.Outcomes = q.group(all)
	return found, nil
}

// read calls f with the records of a check in a generation, the newest first, and reports whether there are more than most.
// A most of 0 is no bound.
func (s *Store) read(id uint32, pair pairName, most int, f func(*Delivery)) (more bool, err error) {
	from, to := pairRange(id, pair)
	it, err := s.opts.DB.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	n := 0
	for ok := it.Last(); ok; ok = it.Prev() {
		if n++; most > 0 && n > most {
			return true, nil
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return false, err
		}
		d := new(Delivery)
		if err := json.Unmarshal(value, d); err != nil {
			s.log.Error("trace cannot be read", "key", string(it.Key()), "err", err)
			continue
		}
		f(d)
	}
	return false, it.Error()
}

// addRuns adds the repeats that are not stored yet.
func (s *Store) addRuns(all []*Delivery) {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	for _, d := range all {
		r := s.runs[s.hash(d.Namespace, d.Entity, d.Check, d.Pipeline, d.Workflow, d.Handler)]
		if r != nil && r.id == d.ID && r.repeats > d.Repeats {
			d.Repeats, d.Last = r.repeats, r.last
		}
	}
}

// group gathers the deliveries of each event.
func (q *Query) group(all []*Delivery) []Outcome {
	index := map[string]int{}
	events := []Outcome{}
	for _, d := range all {
		if q.Until != 0 && d.Received > q.Until {
			continue
		}
		i, ok := index[d.EventID]
		if !ok {
			i = len(events)
			index[d.EventID] = i
			events = append(events, Outcome{
				Event: d.EventID, Namespace: d.Namespace, Entity: d.Entity, Check: d.Check, Status: d.Status,
				Incident: d.Incident, Resolution: d.Resolution, Received: d.Received,
			})
		}
		events[i].Deliveries = append(events[i].Deliveries, *d)
	}
	slices.SortStableFunc(events, func(a, b Outcome) int {
		switch {
		case a.Received > b.Received:
			return -1
		case a.Received < b.Received:
			return 1
		}
		return -strings.Compare(a.Event, b.Event)
	})
	if q.Limit > 0 && len(events) > q.Limit {
		events = events[:q.Limit]
	}
	return events
}

// Merge adds a later report on the same delivery. A new verdict and its reason replace the earlier ones; a step
// replaces the same step, and an attempt the one of the same time. Others are added.
func (d *Delivery) Merge(later *Delivery) {
	if later.Verdict != "" {
		d.Verdict, d.Reason = later.Verdict, later.Reason
	}
	if later.Into != "" {
		d.Into = later.Into
	}
	for _, p := range [...]struct{ to, from *string }{
		{&d.EventID, &later.EventID}, {&d.Pipeline, &later.Pipeline}, {&d.Workflow, &later.Workflow}, {&d.Handler, &later.Handler},
	} {
		if *p.to == "" {
			*p.to = *p.from
		}
	}
	d.Status = max(d.Status, later.Status)
	d.Incident, d.Resolution = d.Incident || later.Incident, d.Resolution || later.Resolution
	if d.Received == 0 {
		d.Received = later.Received
	}
	d.Updated = max(d.Updated, later.Updated)
	d.Repeats, d.Last = max(d.Repeats, later.Repeats), max(d.Last, later.Last)
	for _, st := range later.Steps {
		i := slices.IndexFunc(d.Steps, func(old Step) bool {
			return old.Kind == st.Kind && old.Name == st.Name && old.Expression == st.Expression
		})
		if i >= 0 {
			d.Steps[i] = st
		} else {
			d.Steps = append(d.Steps, st)
		}
	}
	for _, at := range later.Attempts {
		i := slices.IndexFunc(d.Attempts, func(old Attempt) bool { return old.At == at.At })
		if i >= 0 {
			d.Attempts[i] = at
		} else {
			d.Attempts = append(d.Attempts, at)
		}
	}
	d.clamp()
}

// Bounds of one delivery.
const (
	maxSteps    = 64
	maxSaw      = 32
	maxAttempts = 50
	maxText     = 1024
	maxValue    = 512
	maxOutput   = 4096
)

// clamp cuts off what is too long. Of the attempts it keeps the first one and the last ones. It does not write to
// fields within the bounds: deliveries may share their steps.
func (d *Delivery) clamp() {
	cut(&d.Reason, maxText)
	cut(&d.Into, maxText)
	if len(d.Steps) > maxSteps {
		d.Steps = d.Steps[:maxSteps]
	}
	for i := range d.Steps {
		st := &d.Steps[i]
		cut(&st.Expression, maxText)
		cut(&st.Error, maxText)
		if len(st.Saw) > maxSaw {
			st.Saw = st.Saw[:maxSaw]
		}
		for j := range st.Saw {
			cut(&st.Saw[j].Name, maxValue)
			cut(&st.Saw[j].Value, maxValue)
		}
	}
	if n := len(d.Attempts); n > maxAttempts {
		d.Attempts = slices.Concat(d.Attempts[:1:1], d.Attempts[n-maxAttempts+1:])
	}
	for i := range d.Attempts {
		cut(&d.Attempts[i].Output, maxOutput)
		cut(&d.Attempts[i].Error, maxText)
	}
}

// cut shortens a text between two characters, and frees the memory of the rest.
func cut(text *string, limit int) {
	if len(*text) <= limit {
		return
	}
	const mark = "…"
	end := limit - len(mark)
	for end > 0 && (*text)[end]&0xc0 == 0x80 {
		end--
	}
	*text = (*text)[:end] + mark
}
