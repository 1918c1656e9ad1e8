package state

import (
	"strings"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
)

// question evaluates a selector for a partition's pairs, as far as memory allows. Terms about an entity have the same
// answer for all its pairs, so their answers are remembered; likewise for checks and traits.
type question struct {
	p     *partition
	sel   *selector.Selector
	now   int64
	terms []asked

	slot     uint32 // of the present pair
	pair     *pair
	silences func(*resource.Silenceable) []string // nil while there are none
	subject  resource.Silenceable                 // of the pair
	entities []*resource.EntityConfig             // those looked up so far, if partition.configs is not kept up to date
	reused   uint64                               // traitSet.reused when the answers were remembered
	renamed  uint64                               // partition.renamed at that time
}

// asked is a term and its answers so far.
type asked struct {
	term *selector.Term
	// constant is the answer for all pairs, or Unknown.
	constant selector.Verdict
	// Where the value comes from. One of these is set, or both of the last two. If none is, the event itself must be
	// read.
	ofPair   func(*question) selector.Value
	ofCheck  bool // the check's name
	ofTraits func(*resource.Traits) selector.Value
	ofEntity func(q *question, entity uint32) selector.Value

	answers       []selector.Verdict // by check or traits
	entityAnswers []selector.Verdict // by entity
}

// absent is an answer for traits without such a label: the entity's labels decide.
const absent = selector.Yes + 1

func newQuestion(p *partition, sel *selector.Selector, now int64) *question {
	q := &question{p: p, now: now}
	if p.state.opts.Silences != nil {
		q.silences = p.state.opts.Silences()
	}
	for _, t := range sel.Terms() {
		q.terms = append(q.terms, q.ask(t))
	}
	q.sel = sel.Ordered(func(i int) int { return q.terms[i].cost() })
	return q
}

// cost orders terms: cheaper ones are evaluated first. Values of the pair are at hand; entities and their definitions
// are elsewhere, and there are more of them than of checks and traits.
func (a *asked) cost() int {
	cost := 0
	switch {
	case a.constant != selector.Unknown:
		return 0
	case a.ofPair != nil && (a.term.Name == "event.is_silenced" || a.term.Name == "event.check.is_silenced"):
		cost = 9
	case a.ofPair != nil:
		cost = 2
	case a.ofCheck:
		cost = 4
	case a.ofEntity != nil:
		cost = 8
	case a.ofTraits != nil:
		cost = 4
	default:
		cost = 10
	}
	if a.term.Slow() {
		cost += 3
	}
	return cost
}

// ask returns where a term's value comes from.
func (q *question) ask(t *selector.Term) asked {
	a := asked{term: t}
	key, isLabel := t.Name, t.Label
	if !isLabel {
		key, isLabel = strings.CutPrefix(t.Name, "event.labels.")
	}
	if isLabel {
		a.ofTraits = func(tr *resource.Traits) selector.Value {
			if v, ok := tr.EventLabels[key]; ok {
				return selector.Text(v)
			}
			return labelOf(tr.CheckLabels, key)
		}
		a.ofEntity = func(q *question, e uint32) selector.Value {
			c := q.entity(e)
			return selector.LabelOf(&c.Metadata, c, key)
		}
		return a
	}
	if f := pairFields[t.Name]; f != nil {
		a.ofPair = f
		return a
	}
	if f := traitFields[t.Name]; f != nil {
		a.ofTraits = f
		return a
	}
	switch {
	case t.Name == "event.check.name":
		a.ofCheck = true
	case t.Name == "event.entity.name":
		a.ofEntity = func(q *question, e uint32) selector.Value { return selector.Text(q.p.entities[e].name) }
	case t.Name == "event.namespace", t.Name == "event.check.namespace":
		a.ofEntity = func(q *question, e uint32) selector.Value { return selector.Text(q.p.entities[e].namespace) }
	case selector.Knows(entityPrefix, (*resource.EntityConfig)(nil), t.Name):
		a.ofEntity = func(q *question, e uint32) selector.Value {
			return selector.Of(entityPrefix, q.entity(e)).Field(t.Name)
		}
	case selector.Knows(entityPrefix, (*resource.Entity)(nil), t.Name):
		a.ofEntity = func(q *question, e uint32) selector.Value {
			return selector.Of(entityPrefix, q.whole(e)).Field(t.Name)
		}
	case !selector.Knows("event", (*resource.Event)(nil), t.Name):
		a.constant = verdict(t.Test(selector.Value{}, q.now))
	default:
		if key, ok := strings.CutPrefix(t.Name, "event.check.labels."); ok {
			a.ofTraits = func(tr *resource.Traits) selector.Value { return labelOf(tr.CheckLabels, key) }
		}
	}
	return a
}

const entityPrefix = "event.entity"

// pairFields are the fields that each pair has itself.
var pairFields = map[string]func(*question) selector.Value{
	"event.name": func(q *question) selector.Value {
		return selector.Text(q.p.entities[q.pair.entity].name + "/" + q.p.checks.name(q.pair.check))
	},
	"event.check.status": func(q *question) selector.Value {
		return selector.Number(int64(q.pair.status(q.wide())))
	},
	"event.check.state": func(q *question) selector.Value {
		return selector.Text(q.pair.state(q.pair.status(q.wide())))
	},
	"event.check.executed":              func(q *question) selector.Value { return selector.Time(q.pair.lastExecuted(q.wide())) },
	"event.is_incident":                 func(q *question) selector.Value { return selector.Bool(q.pair.incident(q.wide())) },
	"event.check.last_ok":               func(q *question) selector.Value { return selector.Time(q.pair.lastOK) },
	"event.check.occurrences":           func(q *question) selector.Value { return selector.Number(q.pair.occurrences) },
	"event.check.occurrences_watermark": func(q *question) selector.Value { return selector.Number(q.pair.watermark) },
	"event.check.total_state_change":    func(q *question) selector.Value { return selector.Number(int64(q.pair.change)) },
	"event.is_silenced":                 silencedField,
	"event.check.is_silenced":           silencedField,
	"event.timestamp": func(q *question) selector.Value {
		if q.pair.timestamp == 0 {
			return selector.Value{} // not missing: see answer
		}
		return selector.Time(int64(q.pair.timestamp))
	},
}

// wide returns the pair's wide history, if it has one.
func (q *question) wide() []resource.CheckHistory {
	if q.pair.flags&pairWide == 0 {
		return nil
	}
	return q.p.wide[q.slot]
}

// silencedField returns whether the pair is silenced now.
func silencedField(q *question) selector.Value {
	silenced, known := q.silenced()
	if !known {
		return selector.Value{} // not missing: see answer
	}
	return selector.Bool(silenced)
}

// silenced reports whether the pair is silenced now, and whether that is known without its event.
func (q *question) silenced() (silenced, known bool) {
	switch {
	case q.p.state.opts.Silences == nil:
		return q.pair.flags&pairSilenced != 0, true
	case q.silences == nil:
		return false, true
	case !q.describe():
		return false, false
	}
	return len(q.silences(&q.subject)) > 0, true
}

// describe sets subject to the pair's, and returns false if only the event itself has it.
func (q *question) describe() bool {
	pr := q.pair
	if pr.traits == 0 {
		return false
	}
	e := &q.p.entities[pr.entity]
	q.subject = resource.Silenceable{
		Namespace: e.namespace, Entity: e.name, Check: q.p.checks.name(pr.check), Status: pr.status(q.wide()),
		Config: q.entity(pr.entity), Traits: q.p.traits.at(pr.traits), Sum: q.p.traits.entries[pr.traits-1].sum,
	}
	return true
}

// traitFields are the fields that come from the check's definition.
var traitFields = map[string]func(*resource.Traits) selector.Value{
	"event.check.handlers":       func(t *resource.Traits) selector.Value { return selector.List(t.Handlers) },
	"event.check.pipelines":      func(t *resource.Traits) selector.Value { return selector.List(t.Pipelines) },
	"event.check.publish":        func(t *resource.Traits) selector.Value { return selector.Bool(t.Publish) },
	"event.check.round_robin":    func(t *resource.Traits) selector.Value { return selector.Bool(t.RoundRobin) },
	"event.check.runtime_assets": func(t *resource.Traits) selector.Value { return selector.List(t.RuntimeAssets) },
	"event.check.subscriptions":  func(t *resource.Traits) selector.Value { return selector.List(t.Subscriptions) },
}

func labelOf(labels map[string]string, key string) selector.Value {
	if v, ok := labels[key]; ok {
		return selector.Text(v)
	}
	return selector.Value{}
}

func verdict(yes bool) selector.Verdict {
	if yes {
		return selector.Yes
	}
	return selector.No
}

// decide returns the answer for the pair in a slot; Unknown if its event must be read. The caller holds mu.
func (q *question) decide(slot uint32, pr *pair) selector.Verdict {
	q.slot, q.pair = slot, pr
	q.forgetRenamed()
	if q.sel == nil {
		return selector.Yes
	}
	if q.reused != q.p.traits.reused {
		q.reused = q.p.traits.reused
		for i := range q.terms {
			if q.terms[i].ofTraits != nil {
				clear(q.terms[i].answers)
			}
		}
	}
	return q.sel.Decide(q.answer)
}

// forgetRenamed drops the answers about entities and checks if an index was reused since. Deletions and additions
// between the steps of a search do that.
func (q *question) forgetRenamed() {
	if q.renamed == q.p.renamed {
		return
	}
	q.renamed = q.p.renamed
	clear(q.entities)
	for i := range q.terms {
		clear(q.terms[i].entityAnswers)
		if q.terms[i].ofCheck {
			clear(q.terms[i].answers)
		}
	}
}

func (q *question) answer(i int) selector.Verdict {
	a := &q.terms[i]
	switch {
	case a.constant != selector.Unknown:
		return a.constant
	case a.ofPair != nil:
		v := a.ofPair(q)
		if v.Missing() {
			return selector.Unknown // the pair's traits are not known yet
		}
		return verdict(a.term.Test(v, q.now))
	case a.ofCheck:
		known := remembered(&a.answers, q.pair.check)
		if *known == selector.Unknown {
			*known = verdict(a.term.Test(selector.Text(q.p.checks.name(q.pair.check)), q.now))
		}
		return *known
	}
	if a.ofTraits != nil {
		if q.pair.traits == 0 {
			return selector.Unknown
		}
		known := remembered(&a.answers, q.pair.traits)
		if *known == selector.Unknown {
			v := a.ofTraits(q.p.traits.at(q.pair.traits))
			*known = verdict(a.term.Test(v, q.now))
			if v.Missing() && a.ofEntity != nil {
				*known = absent
			}
		}
		if *known != absent {
			return *known
		}
	}
	if a.ofEntity == nil {
		return selector.Unknown
	}
	known := remembered(&a.entityAnswers, q.pair.entity)
	if *known == selector.Unknown {
		*known = verdict(a.term.Test(a.ofEntity(q, q.pair.entity), q.now))
	}
	return *known
}

// remembered returns the place of an answer.
func remembered(answers *[]selector.Verdict, i uint32) *selector.Verdict {
	if int(i) >= len(*answers) {
		*answers = append(*answers, make([]selector.Verdict, int(i)+1-len(*answers)+256)...)
	}
	return &(*answers)[i]
}

// entity returns an entity's configuration. The caller holds mu.
func (q *question) entity(i uint32) *resource.EntityConfig {
	known := &q.entities
	if q.p.state.opts.EntityChanges != nil {
		known = &q.p.configs
	}
	if int(i) >= len(*known) {
		*known = append(*known, make([]*resource.EntityConfig, len(q.p.entities)-len(*known))...)
	}
	if (*known)[i] == nil {
		e := &q.p.entities[i]
		(*known)[i] = q.p.state.entityConfig(e.namespace, e.name)
	}
	return (*known)[i]
}

// entityChanged drops an entity's configuration, and notifies the live feeds of its events. A search reads and remembers
// configurations with mu held, so it cannot keep one that was replaced before this call.
func (s *State) entityChanged(namespace, name string) {
	p := s.parts[s.opts.Log.Partition(namespace, name)]
	p.mu.Lock()
	if i, ok := p.findEntity(namespace, name, false); ok {
		p.forgetConfig(i)
	}
	p.mu.Unlock()
	if !s.Watched() {
		return
	}
	for _, pair := range s.PairsOf(namespace, name) {
		s.tails.notify(Update{Namespace: namespace, Entity: name, Check: pair.Check})
	}
}

// forgetConfig drops an entity's configuration. The caller holds mu.
func (p *partition) forgetConfig(i uint32) {
	if int(i) < len(p.configs) {
		p.configs[i] = nil
	}
}

// whole returns an entity with the facts of its host, except its processes. The caller holds mu.
func (q *question) whole(i uint32) *resource.Entity {
	e := &q.p.entities[i]
	st := new(resource.EntityState)
	facts, _ := SplitFacts(e.body)
	if e.body == nil || st.UnmarshalProto(facts) != nil {
		return resource.JoinEntity(q.entity(i), nil)
	}
	st.LastSeen = max(st.LastSeen, q.p.lastSeen(i))
	return resource.JoinEntity(q.entity(i), st)
}
