package promapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/grafana/regexp"
	"github.com/prometheus/common/route"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/storage"
	v1 "github.com/prometheus/prometheus/web/api/v1"
)

// slot is one instance of Prometheus' API. That API has one store for all requests, and ours has a view for each, so
// a slot serves one request at a time. The number of slots is the number of requests at the same time.
type slot struct {
	view    storage.Queryable
	rules   v1.RulesRetriever
	handler http.Handler
}

func newSlot(engine promql.QueryEngine, build *v1.PrometheusVersion, log *slog.Logger, lookback time.Duration) *slot {
	s := &slot{}
	api := v1.NewAPI(
		engine, s,
		nil, // no appender: remote write is our own
		noExemplars{},
		func(context.Context) v1.ScrapePoolsRetriever { return nothing{} },
		func(context.Context) v1.TargetRetriever { return nothing{} },
		nil, // no Alertmanagers
		func() config.Config { return config.Config{} },
		nil, v1.GlobalURLOptions{},
		func(f http.HandlerFunc) http.HandlerFunc { return f },
		nil, "", false, // no administration
		log,
		func(context.Context) v1.RulesRetriever {
			if s.rules == nil {
				return nothing{}
			}
			return s.rules
		},
		0, 0, 0, // no remote read
		false,
		regexp.MustCompile("$^"), // no other origins: "$^" matches no origin
		nil, build, nil, nil, nil, nil, nil,
		false, nil, false, false, false, false, lookback, false,
	)
	router := route.New().WithPrefix(prefix[:len(prefix)-1])
	api.Register(router)
	s.handler = router
	return s
}

// Querier implements storage.Queryable with the view of the request that holds the slot.
func (s *slot) Querier(mint, maxt int64) (storage.Querier, error) { return s.view.Querier(mint, maxt) }

// ChunkQuerier implements storage.ChunkQueryable. Only remote read uses it, which is not served.
func (s *slot) ChunkQuerier(int64, int64) (storage.ChunkQuerier, error) {
	return nil, errors.New("the store has no chunks to read")
}

// nothing is what a store of pushed samples has of targets, and a server without rules has of rules.
type nothing struct{}

func (nothing) ScrapePools() []string                       { return nil }
func (nothing) TargetsActive() map[string][]*scrape.Target  { return nil }
func (nothing) TargetsDropped() map[string][]*scrape.Target { return nil }
func (nothing) TargetsDroppedCounts() map[string]int        { return nil }
func (nothing) RuleGroups() []*rules.Group                  { return nil }
func (nothing) AlertingRules() []*rules.AlertingRule        { return nil }

type noExemplars struct{}

func (noExemplars) ExemplarQuerier(context.Context) (storage.ExemplarQuerier, error) {
	return noExemplars{}, nil
}

func (noExemplars) Select(int64, int64, ...[]*labels.Matcher) ([]exemplar.QueryResult, error) {
	return []exemplar.QueryResult{}, nil
}
