package allow

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/internal/filewatch"
)

// DefaultEvery is the time between two looks at the files, as with carbon.
const DefaultEvery = 10 * time.Second

// Watcher keeps the lists of files that change, and counts what they refuse. A file that goes is an empty list.
type Watcher struct {
	*filewatch.Content[*Lists]
	blacklisted, notWhitelisted refusals
}

// Watch reads the files, as Load does, and reads them again when they change. The caller sets o.Changed, o.Logger and
// o.Registerer. After a change it forgets its verdicts.
func Watch(whitelist, blacklist string, o filewatch.ContentOptions[*Lists]) (*Watcher, error) {
	o.What, o.Paths, o.Every = "lists of names", []string{whitelist, blacklist}, cmp.Or(o.Every, DefaultEvery)
	o.Load = func() (*Lists, []filewatch.Warning, error) { return Load(whitelist, blacklist) }
	o.Reloads = prometheus.CounterOpts{Name: "lapwing_metric_allow_reloads_total",
		Help: "Reads of changed whitelists and blacklists, by result; after an error the old ones stay."}
	content, err := filewatch.NewContent(o)
	if err != nil {
		return nil, err
	}
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_metric_allow_refused_total",
		Help: "Points refused, by the list that did not allow their names."}, []string{"list"})
	if o.Registerer != nil {
		o.Registerer.MustRegister(refused)
	}
	w := &Watcher{Content: content}
	w.blacklisted.metric = refused.WithLabelValues(Blacklisted.String())
	w.notWhitelisted.metric = refused.WithLabelValues(NotWhitelisted.String())
	return w, nil
}

// refusals counts points that a list has refused.
type refusals struct {
	metric prometheus.Counter
	n      atomic.Uint64
}

func (r *refusals) add(points int) {
	r.metric.Add(float64(points))
	r.n.Add(uint64(points))
}

// Count counts points that were refused by a verdict.
func (w *Watcher) Count(v Verdict, points int) {
	switch v {
	case Blacklisted:
		w.blacklisted.add(points)
	case NotWhitelisted:
		w.notWhitelisted.add(points)
	}
}

// Counts returns what Count was told since the start: carbon's blacklistMatches and whitelistRejects.
func (w *Watcher) Counts() (blacklistMatches, whitelistRejects uint64) {
	return w.blacklisted.n.Load(), w.notWhitelisted.n.Load()
}
