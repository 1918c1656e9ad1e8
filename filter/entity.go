package filter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dop251/goja"

	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	// entityBudget is how much CPU time an expression may take for one entity.
	entityBudget = 50 * time.Millisecond
	// maxEntities is about how many entities a worker is asked at once.
	maxEntities = 64
)

var errLeftBehind = errors.New("another run of it has not ended")

// EntityExpression is an expression about an entity, read once: one of a check's proxy requests, or of an asset's filters. It
// sees `entity` with the names that JSON has, the metadata's fields both in `entity.metadata` and beside the others. It
// may be used by several goroutines at the same time.
type EntityExpression struct {
	source string
	pool   *Pool // nil if it runs in this process
	by     Definer
	def    *definition
	pace   pace

	program *program     // in this process
	stuck   atomic.Int32 // evaluations left behind in this process
}

// CompileEntity reads an expression that the pool runs. The error says why it cannot be read.
func CompileEntity(pool *Pool, by Definer, expression string) (*EntityExpression, error) {
	if err := CheckSyntax(expression); err != nil {
		return nil, fmt.Errorf("expression %q: %w: %w", cut(expression), errSyntax, err)
	}
	def := newDefinition(Definer{by.Kind, by.Namespace, "entity"}, true, []string{expression}, nil, nil)
	return &EntityExpression{source: expression, pool: pool, by: by, def: def}, nil
}

// CompileEntityHere reads an expression that runs in this process. Agents use it: authors of assets decide what an agent runs anyway.
func CompileEntityHere(expression string) (*EntityExpression, error) {
	x := &EntityExpression{source: expression, program: &program{kind: kindEntity, name: "entity", sources: []string{expression}}}
	x.program.compile()
	if err := x.program.scripts[0].err; err != nil {
		return nil, fmt.Errorf("expression %q: %w", cut(expression), err)
	}
	return x, nil
}

// Matches reports whether the expression is true of an entity. System is the agent's report about its host; nil hides it. An
// expression that throws or is out of time is an error; the answer comes within a moment in any case.
func (x *EntityExpression) Matches(cfg *resource.EntityConfig, system *resource.System) (truth bool, err error) {
	if x.program != nil {
		truth, err = x.here(cfg, system)
	} else {
		m := x.ask([]*resource.EntityConfig{cfg}, system)[0]
		truth, err = m.True, m.Err
	}
	if err != nil {
		return false, fmt.Errorf("expression %q: %w", cut(x.source), err)
	}
	return truth, nil
}

// Match is the answer of an expression about an entity.
type Match struct {
	True bool
	Err  error // it threw, or there is no answer
	// Answered reports that it ran to its end. Otherwise it may do so another time: its worker died, or none was free.
	Answered bool
}

// MatchAll asks about many entities, in the order of the list.
func (x *EntityExpression) MatchAll(list []*resource.EntityConfig) []Match {
	matches := make([]Match, 0, len(list))
	for len(matches) < len(list) {
		at := len(matches)
		if x.program != nil {
			truth, err := x.Matches(list[at], nil)
			matches = append(matches, Match{truth, err, true})
			continue
		}
		for _, m := range x.ask(list[at:min(at+maxEntities, len(list))], nil) {
			if m.Err != nil {
				m.Err = fmt.Errorf("expression %q: %w", cut(x.source), m.Err)
			}
			matches = append(matches, m)
		}
	}
	return matches
}

// ask asks the pool about entities. It answers for at least the first.
func (x *EntityExpression) ask(list []*resource.EntityConfig, system *resource.System) (matches []Match) {
	none := func(err error) []Match { return slices.Repeat([]Match{{Err: err}}, len(list)) }
	if _, why := x.pool.suspicion(x.by.Namespace, x.def.keys[0]); why != nil {
		return none(why)
	}
	j := &job{
		by: x.by, def: x.def, pace: &x.pace, text: func(int) string { return x.source }, wait: longest(entityBudget),
		question: func(only []int, quick bool) *asked {
			total := entityBudget
			if quick {
				total = quickTotal
			}
			body := appendQuestion(make([]byte, 0, 256*len(list)), x.def, time.Now().Unix(), entityBudget, total, only, false)
			for _, cfg := range list {
				body = appendEntity(body, cfg, system)
			}
			return &asked{body: body, patience: longest(total) + grace}
		},
	}
	j.got = func(only []int, body []byte, err error) (left []int, more bool) {
		r := readFields(body)
		for err == nil && r.Err() == nil && len(r.Rest) > 0 && len(matches) < len(list) {
			v := r.verdict()
			x.pace.ran(v.cpu)
			matches = append(matches, Match{v.truth && v.err == nil, v.err, true})
		}
		if len(matches) > 0 {
			return nil, false
		}
		if err == nil && r.Err() == nil {
			return only, true
		}
		matches = none(cmp.Or(err, r.Err())) // another entity would fare no better
		return nil, false
	}
	x.pool.run(context.Background(), j, []int{0})
	return matches
}

// here asks in this process. It leaves a run behind that cannot be interrupted.
func (x *EntityExpression) here(cfg *resource.EntityConfig, system *resource.System) (bool, error) {
	if x.stuck.Load() > 0 {
		return false, errLeftBehind
	}
	answers := make(chan verdict, 1)
	go func() {
		v, _ := x.program.entity(&question{now: time.Now().Unix(), budget: entityBudget, total: entityBudget}, cfg, system)
		answers <- v
	}()
	patience := time.NewTimer(longest(entityBudget) + grace)
	defer patience.Stop()
	select {
	case v := <-answers:
		return v.truth, v.err
	case <-patience.C:
	}
	x.stuck.Add(1)
	go func() {
		<-answers
		x.stuck.Add(-1)
	}()
	return false, errTimeout
}

func entityObject(vm *goja.Runtime, cfg *resource.EntityConfig, system *resource.System) *goja.Object {
	of := reflect.ValueOf(cfg).Elem()
	o := &object{vm: vm, of: of, fields: fieldsOfType(of.Type())}
	o.keep("metadata", structObject(vm, reflect.ValueOf(&cfg.Metadata).Elem()))
	if system != nil {
		o.keep("system", structObject(vm, reflect.ValueOf(system).Elem()))
	}
	return vm.NewDynamicObject(o)
}
