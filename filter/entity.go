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
	// entityBudget bounds the CPU time of an expression for one entity.
	entityBudget = 50 * time.Millisecond
	// maxEntities is about how many entities one question to a worker has.
	maxEntities = 64
)

var errLeftBehind = errors.New("another run of it has not ended")

// EntityExpression is a parsed expression about an entity: one of a check's proxy requests, or of an asset's filters.
// It sees `entity` with the names of JSON, the metadata's fields both in `entity.metadata` and beside the others. It is
// safe for concurrent use.
type EntityExpression struct {
	source string
	pool   *Pool // nil if it runs in this process
	by     Definer
	def    *definition
	pace   pace

	program *program     // for evaluation in this process
	stuck   atomic.Int32 // evaluations abandoned in this process
}

// CompileEntity parses an expression that the pool runs.
func CompileEntity(pool *Pool, by Definer, expression string) (*EntityExpression, error) {
	if err := CheckSyntax(expression); err != nil {
		return nil, fmt.Errorf("expression %q: %w: %w", cut(expression), errSyntax, err)
	}
	def := newDefinition(Definer{by.Kind, by.Namespace, "entity"}, true, []string{expression}, nil, nil)
	return &EntityExpression{source: expression, pool: pool, by: by, def: def}, nil
}

// CompileEntityHere parses an expression that runs in this process. Agents use it: authors of assets decide what an
// agent runs anyway.
func CompileEntityHere(expression string) (*EntityExpression, error) {
	x := &EntityExpression{source: expression, program: &program{kind: kindEntity, name: "entity", sources: []string{expression}}}
	x.program.compile()
	if err := x.program.scripts[0].err; err != nil {
		return nil, fmt.Errorf("expression %q: %w", cut(expression), err)
	}
	return x, nil
}

// Matches reports whether the expression is true for an entity. system is the agent's report about its host; nil hides
// it. An expression that throws or is out of time is an error. The answer comes within a moment in any case.
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

// Match is an expression's answer about an entity.
type Match struct {
	True bool
	Err  error // it threw, or there is no answer
	// Answered reports that the expression ran to its end. If not, it may do so later: its worker died, or none was
	// free.
	Answered bool
}

// MatchAll evaluates the expression for many entities, in the order of the list.
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

// ask sends entities to the pool. It answers for at least the first.
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
		matches = none(cmp.Or(err, r.Err())) // another entity would have the same error
		return nil, false
	}
	x.pool.run(context.Background(), j, []int{0})
	return matches
}

// here evaluates in this process. It abandons a run that cannot be interrupted.
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
