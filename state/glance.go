package state

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
)

// Glance is what memory knows of an event: enough to count, order and group events without reading them.
type Glance struct {
	Key
	Status   uint32
	Flapping bool
	// Silenced says whether a silence or an acknowledgement applies to an event that is not OK. It is false for others.
	Silenced bool
	// Since is when the check became OK, or stopped being OK, in Unix seconds: the first of its last 21 results that says
	// the same as the newest. If all say it, Since is when a failing check was OK last, and else 0, not known.
	Since int64
	// Timestamp is when the newest event happened, in Unix seconds; 0 if only the event has it.
	Timestamp   int64
	Occurrences int64
	// Labels has the values of the labels that the viewer asked for, in their order; "" for missing ones.
	Labels []string
}

// SinceOf returns Glance.Since of an event's check.
func SinceOf(c *resource.Check) int64 {
	at := int64(0)
	for _, h := range slices.Backward(c.History) {
		if (h.Status == 0) != (c.Status == 0) {
			return at
		}
		at = h.Executed
	}
	switch {
	case len(c.History) < historyLen:
		return at
	case c.Status == 0:
		return 0
	}
	return c.LastOK
}

// since returns Glance.Since of a pair, as SinceOf does, but without a copy of its history.
func since(pr *pair, wide []resource.CheckHistory) int64 {
	at, ok := int64(0), pr.status(wide) == 0
	for i := int(pr.n) - 1; i >= 0; i-- {
		if (pr.statusAt(i, wide) == 0) != ok {
			return at
		}
		at = pr.executedAt(i, wide)
	}
	switch {
	case pr.n < historyLen:
		return at
	case ok:
		return 0
	}
	return pr.lastOK
}

// Viewer looks at the events that a selector selects. It reads events only for terms that memory cannot answer. It keeps
// answers, so it is good for one moment, and for one goroutine for each partition.
type Viewer struct {
	state     *State
	namespace string
	selector  *selector.Selector
	labels    []string
	asked     []*question // by partition
}

// Viewer returns a viewer of the events of a namespace, or of all for "", that a selector selects. labels are the keys of
// the labels that glances have.
func (s *State) Viewer(namespace string, sel *selector.Selector, labels []string) *Viewer {
	return &Viewer{state: s, namespace: namespace, selector: sel, labels: labels, asked: make([]*question, len(s.parts))}
}

// Partitions returns how many partitions the events are in.
func (v *Viewer) Partitions() int { return len(v.asked) }

// All passes each selected event of a partition to yield, in no order. Events that are added or deleted meanwhile may be
// missing.
func (v *Viewer) All(ctx context.Context, partition int, yield func(Glance)) error {
	p := v.state.parts[partition]
	var found []Glance
	var doubtful []eventKey
	for first, more := uint32(0), true; more; first += chunkLen {
		found, doubtful = found[:0], doubtful[:0]
		p.mu.Lock()
		q := v.question(p)
		last := min(first+chunkLen, p.used)
		more = last < p.used
		for slot := first; slot < last; slot++ {
			pr := p.at(slot)
			if pr.flags&pairUsed == 0 || v.namespace != "" && p.entities[pr.entity].namespace != v.namespace {
				continue
			}
			found, doubtful = v.look(q, slot, found, doubtful)
		}
		p.mu.Unlock()
		for i := range found {
			yield(found[i])
		}
		if err := v.read(ctx, p, doubtful, yield); err != nil {
			return err
		}
	}
	return nil
}

// look adds a pair to found if it is selected, or to doubtful if memory cannot tell. The caller holds mu.
func (v *Viewer) look(q *question, slot uint32, found []Glance, doubtful []eventKey) ([]Glance, []eventKey) {
	switch v.decide(q, slot) {
	case selector.Yes:
		found = append(found, v.glance(q))
	case selector.Unknown:
		e := &q.p.entities[q.pair.entity]
		doubtful = append(doubtful, eventKey{q.p, e.namespace, e.name, q.p.checks.name(q.pair.check)})
	}
	return found, doubtful
}

// Entity passes each selected event of an entity to yield, in no order.
func (v *Viewer) Entity(ctx context.Context, namespace, name string, yield func(Glance)) error {
	if v.namespace != "" && v.namespace != namespace {
		return ctx.Err()
	}
	p := v.state.parts[v.state.opts.Log.Partition(namespace, name)]
	var found []Glance
	var doubtful []eventKey
	p.mu.Lock()
	if i, ok := p.findEntity(namespace, name, false); ok {
		q := v.question(p)
		for slot := p.entities[i].first; slot != 0; slot = p.at(slot - 1).next {
			found, doubtful = v.look(q, slot-1, found, doubtful)
		}
	}
	p.mu.Unlock()
	for i := range found {
		yield(found[i])
	}
	return v.read(ctx, p, doubtful, yield)
}

// Of passes each of the named events to yield. selected is false if the selector does not select the event, or it was
// deleted; then the glance has only its names.
func (v *Viewer) Of(ctx context.Context, keys []Key, yield func(g Glance, selected bool)) error {
	for _, key := range keys {
		p := v.state.parts[v.state.opts.Log.Partition(key.Namespace, key.Entity)]
		var g Glance
		verdict := selector.No
		p.mu.Lock()
		if slot, ok := p.find(key.Namespace, key.Entity, key.Check); ok && (v.namespace == "" || v.namespace == key.Namespace) {
			q := v.question(p)
			if verdict = v.decide(q, slot); verdict == selector.Yes {
				g = v.glance(q)
			}
		}
		p.mu.Unlock()
		if verdict == selector.Unknown {
			verdict = selector.No
			err := v.read(ctx, p, []eventKey{{p, key.Namespace, key.Entity, key.Check}}, func(read Glance) { g, verdict = read, selector.Yes })
			if err != nil {
				return err
			}
		}
		g.Key = key
		yield(g, verdict == selector.Yes)
	}
	return ctx.Err()
}

// question returns the partition's question. The caller holds mu.
func (v *Viewer) question(p *partition) *question {
	if v.asked[p.id] == nil {
		v.asked[p.id] = newQuestion(p, v.selector, time.Now().Unix())
	}
	return v.asked[p.id]
}

// decide is question.decide, but Unknown also if the glance needs traits that are not known yet. The caller holds mu.
func (v *Viewer) decide(q *question, slot uint32) selector.Verdict {
	pr := q.p.at(slot)
	answer := q.decide(slot, pr)
	if answer == selector.Yes && pr.traits == 0 && (len(v.labels) > 0 || pr.incident(q.wide())) {
		return selector.Unknown
	}
	return answer
}

// read passes those events to yield that the selector selects by their content.
func (v *Viewer) read(ctx context.Context, p *partition, keys []eventKey, yield func(Glance)) error {
	if len(keys) == 0 {
		return ctx.Err()
	}
	slices.SortFunc(keys, compareKeys)
	from, err := newWalk(p)
	if err != nil {
		return err
	}
	defer from.it.Close()
	for _, k := range keys {
		if err := ctx.Err(); err != nil {
			return err
		}
		ev, err := p.lookAt(from, k)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if !v.selector.Match(selector.Event(ev)) {
			continue
		}
		p.mu.Lock()
		slot, ok := p.find(k.namespace, k.entity, k.check)
		var g Glance
		if ok {
			q := v.question(p)
			q.slot, q.pair = slot, p.at(slot)
			q.forgetRenamed()
			g = v.glance(q)
		}
		p.mu.Unlock()
		if ok {
			yield(g)
		}
	}
	return nil
}

// glance describes the pair that q was asked about last. The caller holds mu.
func (v *Viewer) glance(q *question) Glance {
	pr, wide, e := q.pair, q.wide(), &q.p.entities[q.pair.entity]
	g := Glance{
		Key:    Key{e.namespace, e.name, q.p.checks.name(pr.check)},
		Status: pr.status(wide), Flapping: pr.flags&pairFlapping != 0, Since: since(pr, wide),
		Timestamp: int64(pr.timestamp), Occurrences: pr.occurrences,
	}
	if g.Status != 0 {
		silenced, known := q.silenced()
		g.Silenced = silenced || !known && pr.flags&pairSilenced != 0
	}
	if len(v.labels) > 0 {
		g.Labels = make([]string, len(v.labels))
		for i, key := range v.labels {
			g.Labels[i] = q.label(key)
		}
	}
	return g
}

// label returns a label of the pair as selectors see it; "" if it is missing. The caller holds mu.
func (q *question) label(key string) string {
	if q.pair.traits != 0 {
		traits := q.p.traits.at(q.pair.traits)
		if value, ok := traits.EventLabels[key]; ok {
			return value
		}
		if value, ok := traits.CheckLabels[key]; ok {
			return value
		}
	}
	cfg := q.entity(q.pair.entity)
	return selector.LabelOf(&cfg.Metadata, cfg, key).String()
}
