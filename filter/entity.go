package filter

import (
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dop251/goja"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// entityBudget is how much CPU time an expression may take for one entity.
const entityBudget = 50 * time.Millisecond

// EntityExpression is an expression about an entity, read once: one of a check's proxy requests, or of an asset's filters. It
// sees `entity` with the names that JSON has, the metadata's fields both in `entity.metadata` and beside the others. It
// may be used by several goroutines at the same time.
type EntityExpression struct {
	script    script
	sandboxes sync.Pool
	stuck     atomic.Int32 // evaluations left behind
}

// CompileEntity reads an expression. The error says why it cannot be read.
func CompileEntity(expression string) (*EntityExpression, error) {
	x := &EntityExpression{script: compile("entity", expression)}
	if x.script.err != nil {
		return nil, fmt.Errorf("expression %q: %w", expression, x.script.err)
	}
	x.sandboxes.New = func() any { return newSandbox(time.Now) }
	return x, nil
}

// Matches says whether the expression is true of an entity. System is what its agent reports, or nil if that is not to be
// seen. An expression that throws or is out of time is an error; the answer comes within a moment whatever it does, and what
// cannot be interrupted is left behind.
func (x *EntityExpression) Matches(cfg *resource.EntityConfig, system *resource.System) (bool, error) {
	if x.stuck.Load() > 0 {
		return false, fmt.Errorf("expression %q: %w", x.script.source, errBusy)
	}
	type answer struct {
		truth bool
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		truth, err := x.evaluate(cfg, system)
		answers <- answer{truth, err}
	}()
	patience := time.NewTimer(longest(entityBudget) + grace)
	defer patience.Stop()
	var a answer
	select {
	case a = <-answers:
	case <-patience.C:
		x.stuck.Add(1)
		go func() {
			<-answers
			x.stuck.Add(-1)
		}()
		a.err = errTimeout
	}
	if a.err != nil {
		return false, fmt.Errorf("expression %q: %w", x.script.source, a.err)
	}
	return a.truth, nil
}

func (x *EntityExpression) evaluate(cfg *resource.EntityConfig, system *resource.System) (bool, error) {
	box := x.sandboxes.Get().(*sandbox)
	if err := box.vm.Set("entity", entityObject(box.vm, cfg, system)); err != nil {
		return false, err // the runtime is not kept
	}
	truth, err := box.run(&x.script, entityBudget)
	if box.spent {
		return truth, err
	}
	if box.vm.Set("entity", goja.Undefined()) == nil {
		x.sandboxes.Put(box)
	}
	return truth, err
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
