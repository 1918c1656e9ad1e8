package metric

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/lapwing-monitoring/lapwing/metric/graphite"
	"github.com/lapwing-monitoring/lapwing/metric/index"
	"github.com/lapwing-monitoring/lapwing/metric/ingest"
	"github.com/lapwing-monitoring/lapwing/metric/name"
	"github.com/lapwing-monitoring/lapwing/metric/promname"
	"github.com/lapwing-monitoring/lapwing/metric/series"
	"github.com/lapwing-monitoring/lapwing/metric/store"
)

// View is what a request may see.
type View = series.View

// viewKey is the key under which a request's context has its View: the query APIs are handlers, which know requests
// only.
type viewKey struct{}

func withView(r *http.Request, v View) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), viewKey{}, v))
}

func viewOf(r *http.Request) View {
	v, _ := r.Context().Value(viewKey{}).(View)
	return v
}

// namespacesOf is a regular expression that matches the namespaces of a view from the start of a value to its end.
func namespacesOf(v View) string {
	var quoted []string
	for _, ns := range v.Namespaces {
		if ns != "" { // it would match series without the tag
			quoted = append(quoted, regexp.QuoteMeta(ns))
		}
	}
	if len(quoted) == 0 {
		return "[^\\s\\S]" // nothing
	}
	return "(?:" + strings.Join(quoted, "|") + ")$"
}

// shows reports whether the view has a series.
func shows(v View, canonical string) bool {
	if v.All {
		return true
	}
	_, tags, err := name.Parse(canonical)
	return err == nil && slices.ContainsFunc(tags, func(t name.Tag) bool {
		return t.Name == ingest.NamespaceTag && slices.Contains(v.Namespaces, t.Value)
	})
}

// source is the store and the index as a view shows them. It implements graphite.Source.
type source struct {
	server *Server
	view   View
}

func (s *source) limited(exprs []string) []string {
	if s.view.All {
		return exprs
	}
	return append(slices.Clone(exprs), ingest.NamespaceTag+"=~"+namespacesOf(s.view))
}

// badRequest is an error that is the fault of a request.
type badRequest struct{ error }

// BadRequest implements what graphite asks of errors.
func (badRequest) BadRequest() bool { return true }

func (e badRequest) Unwrap() error { return e.error }

// asked tells errors of a query from those of the server.
func asked(err error) error {
	var (
		budget  *index.BudgetError
		expr    *index.ExprError
		pattern *index.PatternError
	)
	if errors.As(err, &budget) && budget.Reason != index.ReasonTime || errors.As(err, &expr) || errors.As(err, &pattern) {
		return badRequest{err}
	}
	return err
}

// Find implements render.Source.
func (s *source) Find(ctx context.Context, pattern string) ([]string, error) {
	names, err := s.server.index.Leaves(ctx, pattern, index.Budget{})
	if err != nil {
		return nil, asked(err)
	}
	if len(names) == 0 && s.server.loading.Load() && !strings.ContainsAny(pattern, `*?[]{}\`) {
		names = []string{pattern} // the index may not have it yet; without values it shows nothing
	}
	if !s.view.All {
		names = slices.DeleteFunc(names, func(n string) bool { return !shows(s.view, n) })
	}
	return names, nil
}

// FindTagged implements render.Source.
func (s *source) FindTagged(ctx context.Context, exprs []string) ([]string, error) {
	names, err := s.server.index.FindTagged(ctx, s.limited(exprs), index.Budget{})
	return names, asked(err)
}

// Fetch implements render.Source.
func (s *source) Fetch(ctx context.Context, names []string, from, until, now int64) ([]series.Range, error) {
	if s.server.store == nil {
		return nil, nil
	}
	return s.server.store.FetchMany(ctx, names, from, until, now)
}

// EstimatePoints implements render.Estimator: the values that Fetch would return, counted before it reads any.
func (s *source) EstimatePoints(_ context.Context, names []string, from, until, now int64) (int64, error) {
	var sum int64
	for _, n := range names {
		archives := s.server.policy(n).Archives
		step := archives[len(archives)-1].Step
		for _, a := range archives {
			if a.Retention() >= now-from {
				step = a.Step
				break
			}
		}
		sum += max(0, until-from)/step + 1
	}
	return sum, nil
}

// Nodes implements graphite.Source.
func (s *source) Nodes(ctx context.Context, pattern string) ([]graphite.Node, error) {
	found, err := s.server.index.Find(ctx, pattern, index.Budget{})
	if err != nil {
		return nil, asked(err)
	}
	var out []graphite.Node
	for _, n := range found {
		if s.view.All || shows(s.view, n.Path) {
			out = append(out, graphite.Node{Path: n.Path, Leaf: n.Leaf, Branch: n.Branch})
		}
	}
	return out, nil
}

// All implements graphite.Source.
func (s *source) All(ctx context.Context, f func(name string) bool) error {
	var names []string
	err := s.server.index.All(ctx, func(n string) bool {
		if shows(s.view, n) {
			names = append(names, n)
		}
		return true
	})
	if err != nil {
		return asked(err)
	}
	slices.Sort(names) // the index has them in the order of their nodes
	for _, n := range names {
		if !f(n) {
			return nil
		}
	}
	return nil
}

// Tags implements graphite.Source.
func (s *source) Tags(ctx context.Context, filter string, limit int) ([]string, error) {
	if s.view.All {
		tags, err := s.server.index.Tags(ctx, filter, limit)
		return tags, asked(err)
	}
	tags, err := s.server.index.AutoCompleteTags(ctx, s.limited(nil), "", 0)
	if err != nil {
		return nil, asked(err)
	}
	return matching(append(tags, ingest.NamespaceTag), filter, limit)
}

// matching returns the sorted texts that a regular expression matches at their start.
func matching(texts []string, filter string, limit int) ([]string, error) {
	re, err := regexp.Compile("^(?:" + filter + ")")
	if err != nil {
		return nil, badRequest{err}
	}
	texts = slices.DeleteFunc(texts, func(s string) bool { return !re.MatchString(s) })
	slices.Sort(texts)
	if limit > 0 && len(texts) > limit {
		texts = texts[:limit]
	}
	return texts, nil
}

// TagValues implements graphite.Source.
func (s *source) TagValues(ctx context.Context, tag, filter string, limit int) ([]graphite.TagValue, error) {
	var out []graphite.TagValue
	if s.view.All {
		values, err := s.server.index.TagValues(ctx, tag, filter, limit)
		for _, v := range values {
			out = append(out, graphite.TagValue{Value: v.Value, Count: v.Count})
		}
		return out, asked(err)
	}
	values, err := s.server.index.AutoCompleteValues(ctx, s.limited(nil), tag, "", 0)
	if err != nil {
		return nil, asked(err)
	}
	if values, err = matching(values, filter, limit); err != nil {
		return nil, err
	}
	for _, v := range values {
		names, err := s.FindTagged(ctx, []string{tag + "=" + v})
		if err != nil {
			return nil, err
		}
		out = append(out, graphite.TagValue{Value: v, Count: len(names)})
	}
	return out, nil
}

// AutoCompleteTags implements graphite.Source.
func (s *source) AutoCompleteTags(ctx context.Context, exprs []string, prefix string, limit int) ([]string, error) {
	tags, err := s.server.index.AutoCompleteTags(ctx, s.limited(exprs), prefix, limit)
	return tags, asked(err)
}

// AutoCompleteValues implements graphite.Source.
func (s *source) AutoCompleteValues(ctx context.Context, exprs []string, tag, prefix string,
	limit int) ([]string, error) {
	values, err := s.server.index.AutoCompleteValues(ctx, s.limited(exprs), tag, prefix, limit)
	return values, asked(err)
}

// TagSeries implements graphite.Source.
func (s *source) TagSeries(_ context.Context, path string) (string, error) {
	canonical, err := name.Canonical([]byte(path))
	if err != nil {
		return "", badRequest{err}
	}
	if most := s.server.opts.Store.MaxSeries; most > 0 && s.server.index.Len() >= most {
		return "", &graphite.StatusError{Status: http.StatusTooManyRequests,
			Message: fmt.Sprintf("there are %d series already, as many as may be", most)}
	}
	s.server.index.Add(string(canonical))
	return string(canonical), nil
}

// DeleteSeries implements graphite.Source.
func (s *source) DeleteSeries(ctx context.Context, paths []string) error {
	var names []string
	for _, path := range paths {
		canonical, err := name.Canonical([]byte(path))
		if err != nil {
			return badRequest{err}
		}
		if shows(s.view, string(canonical)) {
			names = append(names, string(canonical))
		}
	}
	if s.server.store != nil {
		if err := s.server.store.Delete(ctx, names); err != nil {
			return err
		}
	}
	for _, n := range names {
		s.server.index.Remove(n)
	}
	s.server.table.Changed() // senders that go on make the series known again
	return nil
}

// Metadata implements graphite.MetadataSource.
func (s *source) Metadata(_ context.Context, metric, key string) (any, error) {
	if key != "aggregationMethod" {
		return nil, badRequest{errors.New("the only key is aggregationMethod")}
	}
	return s.server.policy(metric).Method.String(), nil
}

// queryable is the store as a view shows it, for PromQL.
type queryable struct {
	store *store.Store
	view  View
}

// Querier implements storage.Queryable.
func (q queryable) Querier(mint, maxt int64) (storage.Querier, error) {
	if q.store == nil {
		return storage.NoopQuerier(), nil
	}
	all, err := q.store.Querier(mint, maxt)
	if err != nil {
		return nil, err
	}
	if q.view.All {
		return &promQuerier{Querier: all}, nil
	}
	only, err := labels.NewMatcher(labels.MatchRegexp, ingest.NamespaceTag, namespacesOf(q.view))
	if err != nil {
		return nil, errors.Join(err, all.Close())
	}
	return &promQuerier{all, only}, nil
}

// promQuerier sees the store's series with the labels that Prometheus' senders gave them (see package promname), and
// only those that a matcher matches, if there is one.
type promQuerier struct {
	storage.Querier
	only *labels.Matcher // nil for all
}

// matchers turns a query's matchers into those for stored labels.
func (q *promQuerier) matchers(ms []*labels.Matcher) []*labels.Matcher {
	out := make([]*labels.Matcher, 0, len(ms)+1)
	for _, m := range ms {
		tag, value := promname.Tag(m.Name), m.Value
		if m.Name == labels.MetricName {
			tag = m.Name
		}
		if m.Type == labels.MatchEqual || m.Type == labels.MatchNotEqual {
			if m.Name == labels.MetricName {
				value = promname.EscapeMetric(value)
			} else {
				value = promname.EscapeValue(value)
			}
		}
		if tag != m.Name || value != m.Value {
			m = labels.MustNewMatcher(m.Type, tag, value) // a regular expression that is right stays right
		}
		out = append(out, m)
	}
	if q.only != nil {
		out = append(out, q.only)
	}
	return out
}

// Select implements storage.Querier.
func (q *promQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints,
	ms ...*labels.Matcher) storage.SeriesSet {
	return &promSet{q.Querier.Select(ctx, sorted, hints, q.matchers(ms)...)}
}

// LabelValues implements storage.Querier.
func (q *promQuerier) LabelValues(ctx context.Context, label string, hints *storage.LabelHints, ms ...*labels.Matcher) (
	[]string, annotations.Annotations, error,
) {
	tag := label
	if label != labels.MetricName {
		tag = promname.Tag(label)
	}
	values, notes, err := q.Querier.LabelValues(ctx, tag, hints, q.matchers(ms)...)
	for i, v := range values {
		if strings.IndexByte(v, '%') >= 0 {
			v = promname.ToLabels("x;x=" + v).Get("x")
		}
		values[i] = strings.ToValidUTF8(v, "\ufffd")
	}
	return values, notes, err
}

// LabelNames implements storage.Querier.
func (q *promQuerier) LabelNames(ctx context.Context, hints *storage.LabelHints,
	ms ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return q.Querier.LabelNames(ctx, hints, q.matchers(ms)...)
}

// promSet is a set of series with the labels that senders gave them.
type promSet struct{ storage.SeriesSet }

// At implements storage.SeriesSet.
func (s *promSet) At() storage.Series {
	found := s.SeriesSet.At()
	escaped := false
	found.Labels().Range(func(l labels.Label) {
		escaped = escaped || !utf8.ValidString(l.Value) || strings.IndexByte(l.Value, '%') >= 0 ||
			strings.IndexByte(l.Name, '%') >= 0 || l.Name == "exported_name"
	})
	if !escaped {
		return found
	}
	return &promSeries{found, promname.ToLabels(store.Name(found.Labels()))}
}

type promSeries struct {
	storage.Series
	labels labels.Labels
}

// Labels implements storage.Series.
func (s *promSeries) Labels() labels.Labels { return s.labels }
