package backend

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/intake"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// compileFor has the pool run the expressions of proxy requests.
func compileFor(expressions *filter.Pool) func(namespace, check, expression string) (*filter.EntityExpression, error) {
	return func(namespace, check, expression string) (*filter.EntityExpression, error) {
		return filter.CompileEntity(expressions, filter.Definer{Kind: "check", Namespace: namespace, Name: check}, expression)
	}
}

const (
	// reportEvery is how often it is looked whether something was set aside, or is not defined any more.
	reportEvery = 2 * time.Second
	// setAside is in the names of the checks that say so: filter-set-aside-NAME.
	setAside = "-set-aside-"
)

// expressionReports reports by events which expressions were set aside. When a definition has changed, it resolves the event and
// has the pool forget the expression.
type expressionReports struct {
	pool   *filter.Pool
	config *config.Store
	state  *loadedState
	intake *intake.Intake
	log    *slog.Logger

	told   map[[2]string]bool // what is reported, by namespace and check
	cancel func()
	wg     sync.WaitGroup
}

func newExpressionReports(
	pool *filter.Pool, definitions *config.Store, state *loadedState, intake *intake.Intake, log *slog.Logger,
) *expressionReports {
	return &expressionReports{
		pool: pool, config: definitions, state: state, intake: intake, log: log.With("component", "backend"),
		told: map[[2]string]bool{}, cancel: func() {},
	}
}

// Start is part of a part's life.
func (r *expressionReports) Start(ctx context.Context) error {
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.wg.Go(func() { r.run(ctx) })
	return nil
}

// Stop waits for a report that is on its way.
func (r *expressionReports) Stop() error {
	r.cancel()
	r.wg.Wait()
	return nil
}

func (r *expressionReports) run(ctx context.Context) {
	r.remember()
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		r.look(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// remember finds what an earlier process reported: nothing is set aside when a backend starts.
func (r *expressionReports) remember() {
	for ns := range config.List(r.config.Snapshot(), config.Namespaces, "") {
		events, _, err := r.state.Events(ns.Name, resource.BackendEntity, "", 1000)
		if err != nil {
			r.log.Error("earlier reports on expressions are not known", "namespace", ns.Name, "err", err)
			continue
		}
		for _, ev := range events {
			if ev.Check != nil && ev.Check.Status != 0 && strings.Contains(ev.Check.Metadata.Name, setAside) {
				r.told[[2]string{ns.Name, ev.Check.Metadata.Name}] = true
			}
		}
	}
}

// look reports what has changed. What cannot be reported is tried again.
func (r *expressionReports) look(ctx context.Context) {
	list := r.pool.SetAside()
	if len(list) == 0 && len(r.told) == 0 {
		return
	}
	use := usedExpressions(r.config.Snapshot())
	now := map[[2]string]filter.SetAside{}
	for _, s := range list {
		if !use.Has(s) {
			r.pool.Release(s)
			r.log.Info("expression is forgotten that was set aside: nothing defines it any more",
				"kind", s.Kind, "namespace", s.Namespace, "name", s.Name)
			continue
		}
		now[[2]string{s.Namespace, s.Kind + setAside + s.Name}] = s
	}
	for key, s := range now {
		if !r.told[key] {
			text := fmt.Sprintf("%s %s: this is not run any more, since three worker processes died of it (%s); "+
				"it counts as one that throws. Change it: %s", s.Kind, s.Name, s.Reason, shortened(s.Source))
			r.report(ctx, key, 1, text)
		}
	}
	for key := range r.told {
		if _, ok := now[key]; !ok {
			r.report(ctx, key, 0, "nothing of it is set aside")
		}
	}
}

func (r *expressionReports) report(ctx context.Context, key [2]string, status uint32, output string) {
	if err := r.intake.Report(ctx, key[0], key[1], status, output); err != nil {
		if ctx.Err() == nil {
			r.log.Warn("report on an expression was not recorded", "namespace", key[0], "check", key[1], "err", err)
		}
		return
	}
	if status == 0 {
		delete(r.told, key)
	} else {
		r.told[key] = true
	}
}

// shortened is the begin of a source.
func shortened(source string) string {
	const most = 500
	if len(source) <= most {
		return source
	}
	return strings.ToValidUTF8(source[:most], "") + "…"
}

// usedExpressions are all that is defined.
func usedExpressions(sn *config.Snapshot) *filter.Use {
	use := &filter.Use{}
	for f := range config.List(sn, config.Filters, "") {
		use.Add("filter", f.Metadata.Namespace, f.Expressions...)
	}
	for m := range config.List(sn, config.Mutators, "") {
		use.Add("mutator", m.Metadata.Namespace, m.Eval)
	}
	for c := range config.List(sn, config.Checks, "") {
		if c.ProxyRequests != nil {
			use.Add("check", c.Metadata.Namespace, c.ProxyRequests.EntityAttributes...)
		}
	}
	for a := range config.List(sn, config.Assets, "") {
		use.Add("asset", a.Metadata.Namespace, a.Filters...)
		for _, b := range a.Builds {
			use.Add("asset", a.Metadata.Namespace, b.Filters...)
		}
	}
	return use
}

var _ part = (*expressionReports)(nil)
