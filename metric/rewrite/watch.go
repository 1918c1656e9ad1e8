package rewrite

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/internal/filewatch"
)

// DefaultEvery is the time between two looks at the file, as with carbon.
const DefaultEvery = 10 * time.Second

// Watch reads the file, as Load does, and reads it again when it changes. The caller sets o.Changed, o.Logger and
// o.Registerer. After a change it forgets the names that it has rewritten.
func Watch(file string, o filewatch.ContentOptions[*Rules]) (*filewatch.Content[*Rules], error) {
	o.What, o.Paths, o.Every = "rewrite rules", []string{file}, cmp.Or(o.Every, DefaultEvery)
	o.Load = func() (*Rules, []filewatch.Warning, error) { return Load(file) }
	o.Reloads = prometheus.CounterOpts{Name: "lapwing_metric_rewrite_reloads_total",
		Help: "Reads of a changed file of rewrite rules, by result; after an error the old rules stay."}
	return filewatch.NewContent(o)
}
