package asset

import (
	"errors"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// maxExpressions bounds the cache of compiled expressions.
const maxExpressions = 1000

// Compile compiles an expression of an asset of a namespace.
type Compile func(namespace, expression string) (*filter.EntityExpression, error)

// About returns an Options.Applies. It evaluates the filters of assets, which are JavaScript over `entity`, for the
// entity that the function returns. Each namespace has its own expressions, so that one author's code cannot affect
// those of another namespace.
func About(entity func() *resource.Entity, compile Compile) func(namespace string, filters []string) (bool, error) {
	var mu sync.Mutex // guards read
	read := map[[2]string]*filter.EntityExpression{}
	compiled := func(namespace, source string) (*filter.EntityExpression, error) {
		key := [2]string{namespace, source}
		mu.Lock()
		defer mu.Unlock()
		if x := read[key]; x != nil {
			return x, nil
		}
		x, err := compile(namespace, source)
		if err != nil {
			return nil, err
		}
		if len(read) >= maxExpressions {
			clear(read)
		}
		read[key] = x
		return x, nil
	}
	return func(namespace string, filters []string) (bool, error) {
		if len(filters) == 0 {
			return true, nil
		}
		e := entity()
		if e == nil {
			return false, errors.New("the facts of this host are not known yet")
		}
		cfg := resource.EntityConfigOf(e)
		for _, source := range filters {
			x, err := compiled(namespace, source)
			if err != nil {
				return false, err
			}
			if truth, err := matches(x, cfg, &e.System); err != nil || !truth {
				return false, err
			}
		}
		return true, nil
	}
}

// A busy host may not give an expression enough time, and such a host needs its checks most. So a failed expression is
// tried again after growing pauses, 3 s in all.
const (
	tries = 5
	pause = 200 * time.Millisecond
)

func matches(x *filter.EntityExpression, cfg *resource.EntityConfig, system *resource.System) (truth bool, err error) {
	for try := range tries {
		if try > 0 {
			<-time.After(pause << (try - 1))
		}
		if truth, err = x.Matches(cfg, system); err == nil {
			return truth, nil
		}
	}
	return false, err
}
