package rulefile

import (
	"context"
	"errors"
	"math"
	"sync"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/storage"

	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/metric/promname"
)

// Series that Prometheus writes about its alerts.
const (
	seriesAlerts   = "ALERTS"
	seriesForState = "ALERTS_FOR_STATE"
)

// writer gives the results of rules to the Writer. It implements storage.Appendable and storage.Appender. A result that
// the Writer does not take is counted and logged, and does not fail its rule: alerts go on when the store is full.
type writer struct {
	withoutAlerts bool
	metrics       *metrics
	log           *rarelog.Log

	mu      sync.Mutex // guards the fields below
	to      Writer
	builder promname.Builder
	name    []byte
}

// Appender implements storage.Appendable.
func (w *writer) Appender(context.Context) storage.Appender { return w }

// Append implements storage.Appender. NaN is Prometheus' mark for the end of a series, or an unknown value; the store
// has neither.
func (w *writer) Append(_ storage.SeriesRef, ls labels.Labels, milli int64, v float64) (storage.SeriesRef, error) {
	if math.IsNaN(v) {
		return 0, nil
	}
	switch ls.Get(labels.MetricName) {
	case seriesForState:
		return 0, nil // The snapshot has it.
	case seriesAlerts:
		if w.withoutAlerts {
			return 0, nil
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.builder.Reset()
	ls.Range(func(l labels.Label) { w.builder.Add([]byte(l.Name), []byte(l.Value)) })
	var err error
	if w.name, err = w.builder.Append(w.name[:0]); err == nil {
		err = w.to.Add(w.name, milli, v)
	}
	if err != nil {
		w.metrics.lost.Inc()
		w.log.Warn("cannot write the result of a rule", "add", "series", ls.String(), "err", err)
		return 0, nil
	}
	w.metrics.written.Inc()
	return 0, nil
}

func (w *writer) flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Flush()
}

// Commit implements storage.Appender. The group flushes at its end.
func (w *writer) Commit() error { return nil }

// Rollback implements storage.Appender.
func (w *writer) Rollback() error { return nil }

// SetOptions implements storage.Appender.
func (w *writer) SetOptions(*storage.AppendOptions) {}

var errFloats = errors.New("the store takes numbers only, no histograms")

// AppendHistogram implements storage.Appender.
func (w *writer) AppendHistogram(storage.SeriesRef, labels.Labels, int64, *histogram.Histogram,
	*histogram.FloatHistogram) (storage.SeriesRef, error) {
	w.metrics.lost.Inc()
	return 0, errFloats
}

// AppendHistogramCTZeroSample implements storage.Appender.
func (w *writer) AppendHistogramCTZeroSample(storage.SeriesRef, labels.Labels, int64, int64, *histogram.Histogram,
	*histogram.FloatHistogram) (storage.SeriesRef, error) {
	return 0, errFloats
}

// AppendExemplar implements storage.Appender.
func (w *writer) AppendExemplar(storage.SeriesRef, labels.Labels, exemplar.Exemplar) (storage.SeriesRef, error) {
	return 0, errFloats
}

// UpdateMetadata implements storage.Appender.
func (w *writer) UpdateMetadata(storage.SeriesRef, labels.Labels, metadata.Metadata) (storage.SeriesRef, error) {
	return 0, nil
}

// AppendCTZeroSample implements storage.Appender.
func (w *writer) AppendCTZeroSample(storage.SeriesRef, labels.Labels, int64, int64) (storage.SeriesRef, error) {
	return 0, nil
}
