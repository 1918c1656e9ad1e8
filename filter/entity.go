package filter

import (
	"context"
	"errors"
	"fmt"
	"reflect"
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
	quick  atomic.Bool

	program *program     // in this process
	stuck   atomic.Int32 // evaluations left behind in this process
}

// CompileEntity reads an expression that the pool runs. The error says why it cannot be read.
func CompileEntity(pool *Pool, by Definer, expression string) (*EntityExpression, error) {
	if err := CheckSyntax(expression); err != nil {
		return nil, fmt.Errorf("expression %q: %w: %w", cut(expression), errSyntax, err)
	}
	return &EntityExpression{source: expression, pool: pool, by: by, def: newDefinition(kindEntity, "entity", true, []string{expression}, nil, nil)}, nil
}

// CompileEntityHere reads an expression that runs in this process: that of an agent, whom its operator tells what to run.
func CompileEntityHere(expression string) (*EntityExpression, error) {
	x := &EntityExpression{source: expression, program: &program{kind: kindEntity, name: "entity", sources: []string{expression}}}
	x.program.compile()
	if err := x.program.scripts[0].err; err != nil {
		return nil, fmt.Errorf("expression %q: %w", cut(expression), err)
	}
	return x, nil
}

// Matches says whether the expression is true of an entity. System is what its agent reports, or nil if that is not to be
// seen. An expression that throws or is out of time is an error; the answer comes within a moment whatever it does.
func (x *EntityExpression) Matches(cfg *resource.EntityConfig, system *resource.System) (truth bool, err error) {
	if x.program != nil {
		truth, err = x.here(cfg, system)
	} else {
		x.ask([]*resource.EntityConfig{cfg}, system, func(_ int, t bool, e error) { truth, err = t, e })
	}
	if err != nil {
		return false, fmt.Errorf("expression %q: %w", cut(x.source), err)
	}
	return truth, nil
}

// MatchAll says of which entities the expression is true, for how many it gave no answer, and why for the last of those.
func (x *EntityExpression) MatchAll(list []*resource.EntityConfig) (truths []bool, failed int, err error) {
	truths = make([]bool, len(list))
	for at := 0; at < len(list); {
		if x.program != nil {
			truth, e := x.Matches(list[at], nil)
			if truths[at] = truth; e != nil {
				failed, err = failed+1, e
			}
			at++
			continue
		}
		answered := 0
		x.ask(list[at:min(at+maxEntities, len(list))], nil, func(i int, truth bool, e error) {
			answered++
			truths[at+i] = truth && e == nil
			if e != nil {
				failed++
				err = fmt.Errorf("expression %q: %w", cut(x.source), e)
			}
		})
		at += answered
	}
	return truths, failed, err
}

// ask asks the pool about entities. It answers for at least the first.
func (x *EntityExpression) ask(list []*resource.EntityConfig, system *resource.System, answer func(i int, truth bool, err error)) {
	if _, aside := x.pool.suspicion(x.def.keys[0]); aside {
		for i := range list {
			answer(i, false, errAside)
		}
		return
	}
	j := &job{
		by: x.by, def: x.def, text: func(int) string { return x.source }, quick: x.quick.Load(), wait: longest(entityBudget),
		question: func(only []int) *asked {
			body := appendQuestion(make([]byte, 0, 256*len(list)), x.def, time.Now().Unix(), entityBudget, only, false)
			for _, cfg := range list {
				body = appendEntity(body, cfg, system)
			}
			// A worker stops at the first entity after the budget.
			return &asked{def: x.def, body: body, patience: 2*longest(entityBudget) + grace}
		},
	}
	x.pool.run(context.Background(), j, []int{0}, func(_ []int, body []byte, err error) bool {
		n := 0
		for r := (&fieldReader{b: body}); err == nil && len(r.b) > 0 && n < len(list); n++ {
			v := r.verdict()
			x.quick.Store(v.cpu < slow)
			answer(n, v.truth, v.err)
		}
		if n == 0 { // of what failed for one, the others would fail too
			if err == nil {
				err = errFrame
			}
			for i := range list {
				answer(i, false, err)
			}
		}
		return false
	})
}

// here asks in this process. What cannot be interrupted is left behind.
func (x *EntityExpression) here(cfg *resource.EntityConfig, system *resource.System) (bool, error) {
	if x.stuck.Load() > 0 {
		return false, errLeftBehind
	}
	answers := make(chan verdict, 1)
	go func() {
		answers <- x.program.entity(&question{now: time.Now().Unix(), budget: entityBudget}, cfg, system)
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
