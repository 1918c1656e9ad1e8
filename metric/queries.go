package metric

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	v1 "github.com/prometheus/prometheus/web/api/v1"

	"github.com/lapwing-monitoring/lapwing/metric/graphite"
	"github.com/lapwing-monitoring/lapwing/metric/ingest"
	"github.com/lapwing-monitoring/lapwing/metric/promapi"
	"github.com/lapwing-monitoring/lapwing/metric/render"
	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// buildQueries makes the query APIs.
func (s *Server) buildQueries() (err error) {
	s.notes, err = graphite.OpenEvents(graphite.EventOptions{
		Dir: filepath.Join(s.opts.Dir, "notes"), Logger: s.opts.Logger, Registerer: s.opts.Registerer,
	})
	if err != nil {
		return err
	}
	s.push("notes", func(context.Context) error { return s.notes.Close() })
	s.graphite, err = graphite.New(graphite.Options{
		Source: func(r *http.Request) (graphite.Source, error) { return s.sourceOf(r.Context(), viewOf(r)), nil },
		MayWrite: func(r *http.Request) error {
			if !viewOf(r).Write {
				return &graphite.StatusError{Status: http.StatusForbidden, Message: "this needs the right to create metrics"}
			}
			return nil
		},
		Events: s.notes, SeesEvents: func(r *http.Request) bool { return viewOf(r).All },
		QueryTimeout: s.opts.QueryTimeout, Now: s.opts.Now, Logger: s.opts.Logger, Registerer: s.opts.Registerer,
		MaxSeries: s.opts.MaxSeries, MaxPoints: int64(s.opts.MaxPoints), DisableJSONP: true,
	})
	if err != nil {
		return err
	}
	s.prometheus, err = promapi.New(promapi.Options{
		Queryable: func(r *http.Request) (storage.Queryable, error) { return s.queryableOf(r.Context(), viewOf(r)), nil },
		Writer: func(r *http.Request) (promapi.Writer, error) {
			if !viewOf(r).Write {
				return nil, promapi.ErrForbidden
			}
			if s.waiting.Load() {
				return nil, fmt.Errorf("no other member is known yet: %w", promapi.ErrFull)
			}
			return finishing{s.table.Writer(r.Context())}, nil
		},
		Rules: func(r *http.Request) (v1.RulesRetriever, error) {
			if !viewOf(r).All {
				return nil, nil // rules are evaluated over all series, and alerts show their labels
			}
			return s.rules, nil
		},
		Version: s.opts.Version, Timeout: s.opts.QueryTimeout, Log: s.opts.Logger, Registerer: s.opts.Registerer,
	})
	return err
}

// finishing is a Writer whose Flush also waits until the points are safe at other members: the answer to remote write
// is a promise.
type finishing struct{ *ingest.Writer }

// Add implements promapi.Writer.
func (f finishing) Add(name []byte, unixMilli int64, value float64) error {
	err := f.Writer.Add(name, unixMilli, value)
	if errors.Is(err, ingest.ErrRefused) {
		return promapi.ErrRefused
	}
	return err
}

// Flush implements promapi.Writer.
func (f finishing) Flush() error { return errors.Join(f.Writer.Flush(), f.Finish()) }

// Graphite answers a request to Graphite's API, with the series that the view shows.
func (s *Server) Graphite(w http.ResponseWriter, r *http.Request, v View) {
	w, r = s.noting(w, r)
	s.answer(s.graphite, w, r, v)
}

func (s *Server) answer(api http.Handler, w http.ResponseWriter, r *http.Request, v View) {
	ctx, leave, ok := s.queries.enter(r.Context())
	if !ok {
		http.Error(w, "the server is stopping", http.StatusServiceUnavailable)
		return
	}
	defer leave()
	api.ServeHTTP(w, withView(r.WithContext(ctx), v))
}

// Prometheus answers a request to Prometheus' API, with the series that the view shows.
func (s *Server) Prometheus(w http.ResponseWriter, r *http.Request, v View) {
	w, r = s.noting(w, r)
	s.answer(s.prometheus, w, r, v)
}

// PromQL evaluates a PromQL expression each step seconds, counted back from until.
func (s *Server) PromQL(ctx context.Context, v View, expr string, from, until, step int64) ([]*render.Series, error) {
	from = until - (until-from)/step*step
	ctx, complete := s.completely(ctx)
	q, err := s.prometheus.Engine().NewRangeQuery(ctx, s.queryableOf(ctx, v), nil, expr, time.Unix(from, 0),
		time.Unix(until, 0), time.Duration(step)*time.Second)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	matrix, err := q.Exec(ctx).Matrix()
	if err != nil {
		return nil, fmt.Errorf("evaluate: %w", err)
	}
	if err := complete(); err != nil {
		return nil, err
	}
	var out []*render.Series
	for _, found := range matrix {
		one := &render.Series{Name: found.Metric.String(), Tags: found.Metric.Map(), Start: from, Step: step,
			End: until + step}
		one.Values = nulls(int((until-from)/step) + 1)
		for _, p := range found.Floats {
			if i := (p.T/1000 - from) / step; i >= 0 && i < int64(len(one.Values)) {
				one.Values[i] = p.F
			}
		}
		out = append(out, one)
	}
	return out, nil
}

// Rules returns what rules are evaluated with: the engine, and all series.
func (s *Server) Rules() (promql.QueryEngine, storage.Queryable) {
	return s.prometheus.Engine(), queryable{s.store, View{All: true}}
}

// ShowRules has Prometheus' API answer with rules, to requests that see all series. It must be called before Start.
func (s *Server) ShowRules(r v1.RulesRetriever) { s.rules = r }

// Emitter returns a writer for the results of rules. It is for one goroutine at a time.
func (s *Server) Emitter() *ingest.Writer { return s.table.Emitter(s.life) }

// CheckTarget returns why a Graphite target is not right, or nil: it evaluates the target without any series.
func CheckTarget(target string) error {
	engine, err := render.New(render.Options{Source: noSource{}})
	if err != nil {
		return err
	}
	_, err = engine.Evaluate(context.Background(), []string{target}, render.Request{From: 0, Until: 600, Now: 600})
	var (
		parse    *render.ParseError
		argument *render.ArgumentError
	)
	if errors.As(err, &parse) || errors.As(err, &argument) {
		return err
	}
	return nil // without series some functions cannot do their work
}

// noSource has no series.
type noSource struct{}

func (noSource) Find(context.Context, string) ([]string, error)         { return nil, nil }
func (noSource) FindTagged(context.Context, []string) ([]string, error) { return nil, nil }
func (noSource) Fetch(context.Context, []string, int64, int64, int64) ([]series.Range, error) {
	return nil, nil
}

// CheckPromQL returns why a PromQL expression is not right, or nil.
func CheckPromQL(expr string) error {
	_, err := parser.ParseExpr(expr)
	return err
}

// SeriesOf returns the names of the series of a check's points.
func (s *Server) SeriesOf(ctx context.Context, namespace, entity, check string) ([]string, error) {
	src := s.sourceOf(ctx, View{All: true})
	return src.FindTagged(ctx, []string{
		ingest.NamespaceTag + "=" + namespace, ingest.EntityTag + "=" + entity, ingest.CheckTag + "=" + check,
	})
}
