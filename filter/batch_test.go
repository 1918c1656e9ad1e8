package filter_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/internal/longtest"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// numbers has events of which each check's status is the number in its name.
type numbers struct{}

func (numbers) Event(_, _, check string) (*resource.Event, error) {
	n, err := strconv.Atoi(check)
	ev := incident()
	ev.Check.Status = uint32(n)
	return ev, err
}

func (numbers) Events(string, string, string, int) ([]*resource.Event, string, error) {
	return nil, "", nil
}

// batches returns an engine with its own pool, and a function that fails the test if a worker died.
func batches(t *testing.T) (*filter.Engine, func()) {
	t.Helper()
	registry := prometheus.NewRegistry()
	p := startPool(t, filter.PoolOptions{Registerer: registry})
	e := engine(func(o *filter.Options) { o.Pool, o.Events, o.SlowShare = p, numbers{}, time.Hour })
	return e, func() {
		t.Helper()
		for _, name := range []string{"lapwing_expression_worker_deaths_total", "lapwing_expression_retries_total", "lapwing_expression_unanswered_total"} {
			if n := total(t, registry, name); n != 0 {
				t.Errorf("%s is %v", name, n)
			}
		}
	}
}

// TestLookUpsInBatches asks many questions at once, of which a quarter look up events. Each answer must belong to its
// own question, which the values that the expression saw show.
func TestLookUpsInBatches(t *testing.T) {
	const askers = 64
	questions := longtest.Size(100, 25)
	e, healthy := batches(t)
	var wg sync.WaitGroup
	for n := range askers {
		looks, passes := n%4 == 0, n%3 == 0
		expression := fmt.Sprintf("event.check.occurrences %% 2 == %d && event.check.interval == %d", n%2, n)
		if looks {
			expression = fmt.Sprintf(`sensu.FetchEvent("web1", "%d").check.status + sensu.FetchEvent("web1", "1").check.status == %d && `, n, n+1) + expression
		}
		if !passes {
			expression = "!(" + expression + ")"
		}
		def := definition("allow", expression)
		e.Ask(t.Context(), def, incident()) // the first is asked alone
		wg.Go(func() {
			for i := range questions {
				ev := incident()
				ev.Check.Interval, ev.Check.Occurrences = uint32(n), int64(1000*n+2*i+n%2)
				a := e.Ask(t.Context(), def, ev)
				if len(a.Asked) != 1 || a.Asked[0].Err != nil || a.Passes != passes {
					t.Errorf("%s: %+v", expression, a)
					return
				}
				saw := map[string]string{}
				for _, v := range a.Asked[0].Saw {
					saw[v.Name] = v.Value
				}
				if saw["event.check.occurrences"] != fmt.Sprint(ev.Check.Occurrences) {
					t.Errorf("%s saw %v instead of %d", expression, saw, ev.Check.Occurrences)
				}
				if looked := saw[fmt.Sprintf(`sensu.FetchEvent("web1", "%d")`, n)]; looks && looked != fmt.Sprint("status ", n) {
					t.Errorf("%s saw %v", expression, saw)
				}
			}
		})
	}
	wg.Wait()
	healthy()
}

// TestLargeBatches has more questions and more answers than pipes hold.
func TestLargeBatches(t *testing.T) {
	e, healthy := batches(t)
	ev := incident()
	ev.Check.Output = strings.Repeat("x", 40<<10)
	var sum []string
	for i := range 15 {
		ev.Check.Metadata.Labels = with(ev.Check.Metadata.Labels, fmt.Sprint("l", i), strings.Repeat("v", 200))
		sum = append(sum, fmt.Sprintf("event.check.labels.l%d", i))
	}
	var expressions []string
	for i := range 40 {
		expressions = append(expressions, strings.Join(sum, " && ")+fmt.Sprint(" && event.check.occurrences != ", i+10))
	}
	var wg sync.WaitGroup
	for n := range 48 {
		all := expressions
		if n%8 == 0 {
			all = append([]string{`sensu.FetchEvent("web1", "3").check.status == 3`}, expressions...)
		}
		def := definition("allow", all...)
		e.Ask(t.Context(), def, ev) // the first is asked alone
		wg.Go(func() {
			for range longtest.Size(8, 2) {
				a := e.Ask(t.Context(), def, ev)
				size := 0
				for _, one := range a.Asked {
					if one.Err != nil {
						t.Errorf("%s: %v", one.Expression, one.Err)
					}
					for _, v := range one.Saw {
						size += len(v.Value)
					}
				}
				if !a.Passes || len(a.Asked) != len(all) || size < 100<<10 {
					t.Errorf("passes is %v, %d expressions were asked, they saw %d bytes", a.Passes, len(a.Asked), size)
				}
			}
		})
	}
	wg.Wait()
	healthy()
}

func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}
