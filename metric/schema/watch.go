package schema

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/internal/filewatch"
)

// DefaultEvery is the time between two looks at the files, as with carbon.
const DefaultEvery = time.Minute

// Watch reads the files, as Load does, and reads them again when they change. The caller sets o.Changed, o.Logger and
// o.Registerer.
func Watch(schemasFile, aggregationFile string, o filewatch.ContentOptions[*Schemas]) (
	*filewatch.Content[*Schemas], error,
) {
	o.What, o.Paths, o.Every = "storage schemas", []string{schemasFile, aggregationFile}, cmp.Or(o.Every, DefaultEvery)
	o.Load = func() (*Schemas, []filewatch.Warning, error) { return Load(schemasFile, aggregationFile) }
	o.Reloads = prometheus.CounterOpts{Name: "lapwing_metric_schema_reloads_total",
		Help: "Reads of changed storage schema files, by result; after an error the old schemas stay."}
	return filewatch.NewContent(o)
}
