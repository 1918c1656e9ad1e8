package metric

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/lapwing-monitoring/lapwing/metric/graphite"
	"github.com/lapwing-monitoring/lapwing/metric/name"
	"github.com/lapwing-monitoring/lapwing/metric/render"
	"github.com/lapwing-monitoring/lapwing/metric/series"
	"github.com/lapwing-monitoring/lapwing/metric/store"
)

// queryTimeout is how long another member has to answer.
const queryTimeout = 5 * time.Second

// fetchNames is how many series a member is asked for at a time.
const fetchNames = 2000

// missing notes the members that have not answered during a request.
type missing struct {
	factor int

	mu    sync.Mutex // guards the fields below
	names map[string]bool
}

func (m *missing) add(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.names == nil {
		m.names = map[string]bool{}
	}
	m.names[name] = true
}

func (m *missing) has(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.names[name]
}

func (m *missing) list() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.names))
}

// incomplete returns an error if the answer may lack series: as many members as store each series did not answer.
func (m *missing) incomplete() error {
	if names := m.list(); len(names) > 0 && len(names) >= m.factor {
		return fmt.Errorf("the answer may be incomplete: no answer from %s", strings.Join(names, ", "))
	}
	return nil
}

// missingHeader is the header of an answer that names the members that have not answered.
const missingHeader = "X-Lapwing-Missing"

// missingWriter writes the headers about missing members before the first byte of an answer.
type missingWriter struct {
	http.ResponseWriter
	missing *missing
	done    bool
}

func (w *missingWriter) headers() {
	if w.done {
		return
	}
	w.done = true
	if names := w.missing.list(); len(names) > 0 {
		w.Header().Set(missingHeader, strings.Join(names, ","))
	}
	if err := w.missing.incomplete(); err != nil {
		w.Header().Add("Warning", fmt.Sprintf("299 lapwing %q", err.Error()))
	}
}

// WriteHeader implements http.ResponseWriter.
func (w *missingWriter) WriteHeader(status int) {
	w.headers()
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *missingWriter) Write(b []byte) (int, error) {
	w.headers()
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController find the writer.
func (w *missingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// missingKey is the key under which a request's context has its missing members.
type missingKey struct{}

// noting makes a request that notes the members that do not answer it, and a writer that names them.
func (s *Server) noting(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request) {
	if s.members == nil {
		return w, r
	}
	m := &missing{factor: s.members.Factor()}
	return &missingWriter{ResponseWriter: w, missing: m}, r.WithContext(context.WithValue(r.Context(), missingKey{}, m))
}

// sourceOf returns what a view shows of all members' series.
func (s *Server) sourceOf(ctx context.Context, v View) graphite.Source {
	own := &source{s, v}
	if s.members == nil {
		return own
	}
	return &gathered{source: own, missing: s.missingOf(ctx)}
}

func (s *Server) missingOf(ctx context.Context) *missing {
	if m, ok := ctx.Value(missingKey{}).(*missing); ok {
		return m
	}
	return &missing{factor: s.members.Factor()}
}

// meetTime is how long after its start this member asks also those that it has not heard yet: they may well be there.
const meetTime = 10 * time.Second

// askAll asks all members at the same time, this one included, and returns the answers in the order of the members'
// ids. It fails only if this member fails. The others are noted as missing then.
func (s *Server) askAll(ctx context.Context, q *question, m *missing) ([]*answer, error) {
	q.Version = questionVersion
	payload, err := msgpack.Marshal(q)
	if err != nil {
		return nil, fmt.Errorf("encode a question about metrics: %w", err)
	}
	members, self := s.members.Members()
	answers := make([]*answer, len(members))
	var under sync.WaitGroup
	for i, other := range members {
		switch {
		case i == self:
		case m.has(other.Name): // it has not answered an earlier question of the request, and is not waited for again
		case other.Away && time.Since(s.began) > meetTime:
			m.add(other.Name)
		default:
			under.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, queryTimeout)
				defer cancel()
				a, err := s.askPatiently(ctx, other.ID, payload)
				if err == nil && a.Bad != "" {
					err = errors.New(a.Bad)
				}
				if err != nil {
					m.add(other.Name)
					s.rare.Warn("a member has not answered a question about metrics", other.Name, "member", other.Name,
						"err", err)
					return
				}
				answers[i] = a
			})
		}
	}
	answers[self], err = s.answerHere(ctx, q)
	under.Wait()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(answers, func(a *answer) bool { return a == nil }), nil
}

// askPatiently asks a member again that refuses at once: it may have had too many questions at a time.
func (s *Server) askPatiently(ctx context.Context, id string, payload []byte) (*answer, error) {
	for pause := 20 * time.Millisecond; ; pause *= 4 {
		began := time.Now()
		a, err := s.askMember(ctx, id, payload)
		if err == nil || pause > 500*time.Millisecond || time.Since(began) > time.Second {
			return a, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// gathered is the series of all members. It implements graphite.Source.
type gathered struct {
	*source
	missing *missing
}

func (g *gathered) ask(ctx context.Context, q *question) ([]*answer, error) {
	q.View = g.view
	return g.server.askAll(ctx, q, g.missing)
}

// names unites the names of all answers; a limit of 0 is none.
func (g *gathered) names(ctx context.Context, q *question) ([]string, error) {
	answers, err := g.ask(ctx, q)
	if err != nil {
		return nil, err
	}
	names := united(answers)
	if q.Limit > 0 && len(names) > q.Limit {
		names = names[:q.Limit]
	}
	return names, nil
}

func united(answers []*answer) []string {
	var names []string
	for _, a := range answers {
		names = append(names, a.Names...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Find implements render.Source.
func (g *gathered) Find(ctx context.Context, pattern string) ([]string, error) {
	return g.names(ctx, &question{About: aboutFind, Text: pattern})
}

// FindTagged implements render.Source.
func (g *gathered) FindTagged(ctx context.Context, exprs []string) ([]string, error) {
	return g.names(ctx, &question{About: aboutTagged, Texts: exprs})
}

// Fetch implements render.Source.
func (g *gathered) Fetch(ctx context.Context, names []string, from, until, now int64) ([]series.Range, error) {
	out := make([]series.Range, 0, len(names))
	for some := range slices.Chunk(names, fetchNames) {
		answers, err := g.ask(ctx, &question{About: aboutFetch, Texts: some, From: from, Until: until, Now: now})
		if err != nil {
			return nil, err
		}
		found := map[string][]series.Range{}
		for _, a := range answers {
			for i := range a.Ranges {
				r := &a.Ranges[i]
				found[r.Name] = append(found[r.Name], series.Range{
					Name: r.Name, Start: r.Start, Step: r.Step, Values: unpackFloats(r.Values),
					Aggregation:  series.Method(r.Aggregation),
					XFilesFactor: r.XFilesFactor,
				})
			}
		}
		for _, n := range some {
			if all := found[n]; len(all) > 0 {
				out = append(out, mergeRanges(all))
			}
		}
	}
	return out, nil
}

// mergeRanges makes one range of those of several members: the finest, of these the one that knows most, and of equal
// ones the first. Values that it does not know come from the others of the same step.
func mergeRanges(all []series.Range) series.Range {
	known := func(r *series.Range) (n int) {
		for _, v := range r.Values {
			if !math.IsNaN(v) {
				n++
			}
		}
		return n
	}
	slices.SortStableFunc(all, func(a, b series.Range) int {
		return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(known(&b), known(&a)))
	})
	best := all[0]
	for _, r := range all[1:] {
		if r.Step != best.Step || (r.Start-best.Start)%best.Step != 0 {
			continue
		}
		for i, v := range r.Values {
			at := i + int((r.Start-best.Start)/best.Step)
			if at >= 0 && at < len(best.Values) && math.IsNaN(best.Values[at]) {
				best.Values[at] = v
			}
		}
	}
	return best
}

// Nodes implements graphite.Source.
func (g *gathered) Nodes(ctx context.Context, pattern string) ([]graphite.Node, error) {
	answers, err := g.ask(ctx, &question{About: aboutNodes, Text: pattern})
	if err != nil {
		return nil, err
	}
	all := map[string]graphite.Node{}
	for _, a := range answers {
		for _, n := range a.Nodes {
			old := all[n.Path]
			n.Leaf, n.Branch = n.Leaf || old.Leaf, n.Branch || old.Branch
			all[n.Path] = n
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b graphite.Node) int { return strings.Compare(a.Path, b.Path) }),
		nil
}

// All implements graphite.Source.
func (g *gathered) All(ctx context.Context, f func(name string) bool) error {
	names, err := g.names(ctx, &question{About: aboutAll})
	for _, n := range names {
		if !f(n) {
			break
		}
	}
	return err
}

// Tags implements graphite.Source.
func (g *gathered) Tags(ctx context.Context, filter string, limit int) ([]string, error) {
	return g.names(ctx, &question{About: aboutTags, Text: filter, Limit: limit})
}

// TagValues implements graphite.Source. The members' counts cannot be added, because several have the same series: the
// series are counted here.
func (g *gathered) TagValues(ctx context.Context, tag, filter string, limit int) ([]graphite.TagValue, error) {
	names, err := g.FindTagged(ctx, []string{tag + "=~."})
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for _, n := range names {
		short, tags, err := name.Parse(n)
		if err != nil {
			continue
		}
		if tag == "name" {
			counts[short]++
		}
		for _, t := range tags {
			if t.Name == tag {
				counts[t.Value]++
			}
		}
	}
	values, err := matching(slices.Collect(maps.Keys(counts)), filter, limit)
	out := make([]graphite.TagValue, 0, len(values))
	for _, v := range values {
		out = append(out, graphite.TagValue{Value: v, Count: counts[v]})
	}
	return out, err
}

// AutoCompleteTags implements graphite.Source.
func (g *gathered) AutoCompleteTags(ctx context.Context, exprs []string, prefix string, limit int) ([]string, error) {
	return g.names(ctx, &question{About: aboutTagsOf, Texts: exprs, Prefix: prefix, Limit: limit})
}

// AutoCompleteValues implements graphite.Source.
func (g *gathered) AutoCompleteValues(ctx context.Context, exprs []string, tag, prefix string,
	limit int) ([]string, error) {
	return g.names(ctx, &question{About: aboutValuesOf, Texts: exprs, Text: tag, Prefix: prefix, Limit: limit})
}

// TagSeries implements graphite.Source.
func (g *gathered) TagSeries(ctx context.Context, path string) (string, error) {
	names, err := g.names(ctx, &question{About: aboutTagSeries, Text: path})
	if err != nil {
		return "", err
	}
	return names[0], nil
}

// DeleteSeries implements graphite.Source.
func (g *gathered) DeleteSeries(ctx context.Context, paths []string) error {
	if _, err := g.ask(ctx, &question{About: aboutDelete, Texts: paths}); err != nil {
		return err
	}
	if names := g.missing.list(); len(names) > 0 {
		return &graphite.StatusError{Status: http.StatusServiceUnavailable, Message: fmt.Sprintf(
			"the series are deleted, but not at %s: delete them again when all members are there", strings.Join(names, ", "))}
	}
	return nil
}

// gatheredQueryable is the series of all members, for PromQL.
type gatheredQueryable struct {
	server  *Server
	view    View
	missing *missing
}

// queryableOf returns what a view shows of all members' series.
func (s *Server) queryableOf(ctx context.Context, v View) storage.Queryable {
	if s.members == nil {
		return queryable{s.store, v}
	}
	return gatheredQueryable{s, v, s.missingOf(ctx)}
}

// Querier implements storage.Queryable.
func (q gatheredQueryable) Querier(mint, maxt int64) (storage.Querier, error) {
	return &gatheredQuerier{q, mint, maxt}, nil
}

type gatheredQuerier struct {
	gatheredQueryable
	mint, maxt int64
}

func (q *gatheredQuerier) ask(ctx context.Context, about about, label string, limit int, labelsOnly bool,
	ms []*labels.Matcher) (
	[]*answer, annotations.Annotations, error,
) {
	asked := &question{
		About: about, View: q.view, Text: label, Limit: limit, From: q.mint, Until: q.maxt, LabelsOnly: labelsOnly,
	}
	for _, m := range ms {
		asked.Matchers = append(asked.Matchers, matcher{int(m.Type), m.Name, m.Value})
	}
	answers, err := q.server.askAll(ctx, asked, q.missing)
	var warnings annotations.Annotations
	if incomplete := q.missing.incomplete(); incomplete != nil {
		warnings.Add(incomplete)
	}
	return answers, warnings, err
}

// Select implements storage.Querier.
func (q *gatheredQuerier) Select(ctx context.Context, _ bool, hints *storage.SelectHints,
	ms ...*labels.Matcher) storage.SeriesSet {
	answers, warnings, err := q.ask(ctx, aboutSelect, "", 0, hints != nil && hints.Func == "series", ms)
	if err != nil {
		return storage.ErrSeriesSet(err)
	}
	var sets []storage.SeriesSet
	for _, a := range answers {
		set := &answerSet{at: -1}
		for i := range a.Series {
			one, err := unpackSeries(&a.Series[i])
			if err != nil {
				return storage.ErrSeriesSet(fmt.Errorf("read the series of a member: %w", err))
			}
			set.series = append(set.series, one)
		}
		slices.SortFunc(set.series, func(a, b *listSeries) int { return labels.Compare(a.labels, b.labels) })
		sets = append(sets, set)
	}
	return &warnedSet{storage.NewMergeSeriesSet(sets, 0, mergeSeconds), warnings}
}

// LabelValues implements storage.Querier.
func (q *gatheredQuerier) LabelValues(ctx context.Context, label string, hints *storage.LabelHints,
	ms ...*labels.Matcher) (
	[]string, annotations.Annotations, error,
) {
	return q.labels(ctx, aboutLabelValues, label, hints, ms)
}

// LabelNames implements storage.Querier.
func (q *gatheredQuerier) LabelNames(ctx context.Context, hints *storage.LabelHints, ms ...*labels.Matcher) (
	[]string, annotations.Annotations, error,
) {
	return q.labels(ctx, aboutLabelNames, "", hints, ms)
}

func (q *gatheredQuerier) labels(ctx context.Context, about about, label string, hints *storage.LabelHints,
	ms []*labels.Matcher) (
	[]string, annotations.Annotations, error,
) {
	limit := 0
	if hints != nil {
		limit = hints.Limit
	}
	answers, warnings, err := q.ask(ctx, about, label, limit, false, ms)
	names := united(answers)
	if limit > 0 && len(names) > limit {
		names = names[:limit]
	}
	return names, warnings, err
}

// Close implements storage.Querier.
func (q *gatheredQuerier) Close() error { return nil }

// warnedSet adds warnings to a set.
type warnedSet struct {
	storage.SeriesSet
	warnings annotations.Annotations
}

func (s *warnedSet) Warnings() annotations.Annotations {
	return s.warnings.Merge(s.SeriesSet.Warnings())
}

// Evaluate evaluates a Graphite target over (from, until], in Unix seconds. In a cluster it fails if the answer may be
// incomplete.
func (s *Server) Evaluate(ctx context.Context, v View, target string, from, until int64) ([]*render.Series, error) {
	ctx, complete := s.completely(ctx)
	engine, err := render.New(render.Options{
		Source: s.sourceOf(ctx, v), MaxSeries: s.opts.MaxSeries, MaxPoints: int64(s.opts.MaxPoints),
	})
	if err != nil {
		return nil, err
	}
	found, err := engine.Evaluate(ctx, []string{target},
		render.Request{From: from, Until: until, Now: s.opts.Now().Unix()})
	return found, cmp.Or(err, complete())
}

// completely returns a context for a query, and a function that reports whether its answer may be incomplete.
func (s *Server) completely(ctx context.Context) (context.Context, func() error) {
	if s.members == nil {
		return ctx, func() error { return nil }
	}
	m := &missing{factor: s.members.Factor()}
	return context.WithValue(ctx, missingKey{}, m), m.incomplete
}

// unpackSeries reads a series of a member's answer.
func unpackSeries(a *seriesAnswer) (*listSeries, error) {
	ls, err := store.Labels(a.Name)
	if err != nil {
		return nil, err
	}
	times, err := unpackTimes(a.Times)
	if err != nil {
		return nil, err
	}
	values := unpackFloats(a.Values)
	if len(values) != len(times) {
		return nil, fmt.Errorf("%s has %d times and %d values", a.Name, len(times), len(values))
	}
	return &listSeries{ls, times, values}, nil
}
