package backend

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"

	"github.com/lapwing-monitoring/lapwing/api"
	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/cluster"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/metric"
	"github.com/lapwing-monitoring/lapwing/metric/alert"
	"github.com/lapwing-monitoring/lapwing/metric/member"
	"github.com/lapwing-monitoring/lapwing/metric/name"
	"github.com/lapwing-monitoring/lapwing/metric/render"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// metricServer is the metrics half as a part of the backend.
type metricServer struct{ *metric.Server }

// Start implements part.
func (m *metricServer) Start(ctx context.Context) error { return m.Server.Start(ctx) }

// Stop implements part.
func (m *metricServer) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout/2)
	defer cancel()
	return m.Server.Stop(ctx)
}

// buildMetrics makes the metrics half. It binds its ports, so it is stopped even if it was not started.
func (b *Backend) buildMetrics(p *parts) error {
	o := b.opts.Metric
	o.Dir = filepath.Join(p.dir.path, "metrics")
	o.SelfHost, o.Version = hostname("localhost"), b.opts.Version
	o.Logger, o.Registerer = b.log, b.opts.Registry
	if m := p.members; !m.Alone() {
		o.Cluster = &metric.Cluster{
			Self: m.Self(), Members: m.metricMembers, Ask: m.Ask, Least: b.opts.Cluster.majority(),
			Handle: func(question string, f func(context.Context, []byte) ([]byte, error)) error {
				return m.Handle(question, f)
			},
		}
	}
	s, err := metric.New(o)
	if err != nil {
		return err
	}
	p.metrics = &metricServer{s}
	b.push("metrics", p.metrics.Stop)
	return nil
}

// metricMembers returns the members that share the series.
func (m *membership) metricMembers() []member.Info {
	var all []member.Info
	for _, o := range m.Others() {
		all = append(all, member.Info{ID: o.ID, Name: m.NameOf(o.ID), Away: !o.Heard})
	}
	return all
}

// Forget is Cluster.Forget. The members' series go to others, too.
func (m *membership) Forget(ids ...string) {
	m.Cluster.Forget(ids...)
	if p := m.parts.Load(); p != nil && p.metrics != nil {
		if err := p.metrics.Forget(ids...); err != nil {
			m.rare.Error("a removed member still counts for metrics", "", "err", err)
		}
	}
}

// buildMetricChecks makes the checks on stored metrics.
func (b *Backend) buildMetricChecks(p *parts) (err error) {
	p.metricChecks, err = alert.New(alert.Options{
		Config: p.config, State: p.state, Intake: p.intake.Internal(), Query: b.metricQuery(p),
		Acts:   func(namespace, name string) bool { return p.members.Acts(cluster.MetricCheckLane(namespace, name)) },
		Logger: b.log, Registerer: b.opts.Registry,
	})
	return err
}

// buildRules makes the evaluation of Prometheus' rule files; without files there is none.
func (b *Backend) buildRules(p *parts) (err error) {
	if len(b.opts.RuleFiles) == 0 {
		return nil
	}
	engine, queryable := p.metrics.Rules()
	p.rules, err = alert.NewRules(alert.RulesOptions{
		Patterns: b.opts.RuleFiles, Snapshot: filepath.Join(p.dir.path, "metrics", "alerts.json"), Namespace: "default",
		Engine: engine, Queryable: queryable, Writer: p.metrics.Emitter(), State: p.state, Intake: p.intake.Internal(),
		Acts: func() bool { return p.members.Acts(cluster.RulesLane) }, Logger: b.log, Registerer: b.opts.Registry,
	})
	if err != nil {
		return fmt.Errorf("--prometheus-rule-files: %w", err)
	}
	p.metrics.ShowRules(p.rules)
	return nil
}

// storedMetrics implements api.StoredMetrics.
type storedMetrics struct{ *metric.Server }

// SeriesOf implements api.StoredMetrics.
func (s storedMetrics) SeriesOf(ctx context.Context, namespace, entity, check string) ([]api.EventSeries, error) {
	names, err := s.Server.SeriesOf(ctx, namespace, entity, check)
	if err != nil {
		return nil, err
	}
	out := make([]api.EventSeries, 0, len(names))
	for _, full := range names {
		short, tags, err := name.Parse(full)
		if err != nil {
			continue
		}
		one := api.EventSeries{Name: short, Target: full, Tags: map[string]string{}}
		for _, t := range tags {
			one.Tags[t.Name] = t.Value
		}
		out = append(out, one)
	}
	return out, nil
}

// metricQuery evaluates the expressions of metric checks with the rights of their authors.
func (b *Backend) metricQuery(p *parts) func(ctx context.Context, def *resource.MetricCheck, from, until int64) ([]alert.Series, error) {
	return func(ctx context.Context, def *resource.MetricCheck, from, until int64) ([]alert.Series, error) {
		view, err := metricViewOf(p.auth, p.config, b.opts.API.AgentAccess, def.Author)
		if err != nil {
			return nil, err
		}
		var found []*render.Series
		if def.Source == resource.PromQLSource {
			found, err = p.metrics.PromQL(ctx, view, def.Expr, from, until, int64(def.Interval))
		} else {
			found, err = p.metrics.Evaluate(ctx, view, def.Expr, from, until)
		}
		if err != nil {
			return nil, err
		}
		out := make([]alert.Series, 0, len(found))
		for _, f := range found {
			out = append(out, alert.Series{Name: f.Name, Labels: maps.Clone(f.Tags), Start: f.Start, Step: f.Step, Values: f.Values})
		}
		return out, nil
	}
}

// metricViewOf returns what the author of a definition may see of stored metrics: the same as in the API.
func metricViewOf(users *auth.Auth, store *config.Store, agents bool, by *resource.Author) (metric.View, error) {
	if by == nil {
		return metric.View{All: true}, nil // written by a restore
	}
	id, ok := users.Standing(by)
	if !ok {
		return metric.View{}, fmt.Errorf("its author %q may not sign in any more: write it again as another user", by.User)
	}
	if !agents {
		id = id.WithoutAgents()
	}
	v := api.MetricViewOf(users, store.Snapshot(), id)
	if !v.All && len(v.Namespaces) == 0 {
		if !users.GroupsKnown(by) {
			return metric.View{}, fmt.Errorf("its author %q has not signed in with provider %q for %s, so the groups are unknown: sign in as the "+
				"author, or write it again as another user", by.User, by.Provider, users.GroupsAge())
		}
		return metric.View{}, fmt.Errorf("its author %q may see no metrics: write it again as another user", by.User)
	}
	return v, nil
}

// parseMetricCheck checks the expression of a metric check.
func parseMetricCheck(def *resource.MetricCheck) error {
	if def.Source == resource.PromQLSource {
		if err := metric.CheckPromQL(def.Expr); err != nil {
			return fmt.Errorf("expr: %w", err)
		}
		return nil
	}
	if err := metric.CheckTarget(def.Expr); err != nil {
		return fmt.Errorf("expr: %w", err)
	}
	return nil
}
