package load

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// scrape is the metrics at a moment, summed over their labels and over the backends. Each member of a cluster folds all
// events, so metricFolded is their mean.
type scrape struct {
	each     []*scrape // the backends' own, if there are several
	at, done time.Time // before the request for the metrics, and after the response
	counters map[string]float64
	gauges   map[string]float64
	version  string
}

// Metrics of every Go process.
const (
	metricCPU = "process_cpu_seconds_total"
	metricRSS = "process_resident_memory_bytes"
)

// queues are the gauges of a backend's queues.
var queues = map[string]string{
	"lapwing_agent_queue_frames":        "frames for agents",
	"lapwing_eventlog_pending_records":  "records to append",
	"lapwing_state_lag_messages":        "messages to fold",
	"lapwing_state_dirty":               "pairs to write back",
	"lapwing_handler_queue_depth":       "deliveries in memory",
	"lapwing_handler_queue_spilled":     "deliveries on disk",
	"sensu_go_eventd_event_queue_depth": "events to handle",
}

// watcher reads the metrics of backends.
type watcher struct {
	urls   []string
	client http.Client
}

func newWatcher(urls []string) *watcher {
	return &watcher{urls: urls, client: http.Client{Timeout: 5 * time.Second}}
}

func newScrape() *scrape {
	return &scrape{at: time.Now(), counters: map[string]float64{}, gauges: map[string]float64{}}
}

// read reads the metrics of all backends.
func (w *watcher) read(ctx context.Context) (*scrape, error) {
	s := newScrape()
	for _, url := range w.urls {
		one := newScrape()
		if err := w.readOne(ctx, url, one); err != nil {
			return nil, fmt.Errorf("read metrics of %s: %w", url, err)
		}
		if len(w.urls) == 1 {
			return one, nil
		}
		s.merge(one)
	}
	s.done = time.Now()
	if folded, ok := s.counters[metricFolded]; ok {
		s.counters[metricFolded] = folded / float64(len(s.each))
	}
	return s, nil
}

// merge adds the metrics of one backend.
func (s *scrape) merge(one *scrape) {
	s.each = append(s.each, one)
	s.version = one.version
	for name, v := range one.counters {
		s.counters[name] += v
	}
	for name, v := range one.gauges {
		s.gauges[name] += v
	}
}

func (w *watcher) readOne(ctx context.Context, url string, s *scrape) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", resp.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return fmt.Errorf("parse: %w", err)
	}
	for name, family := range families {
		s.add(name, family)
	}
	s.done = time.Now()
	return nil
}

func (s *scrape) add(name string, family *dto.MetricFamily) {
	ours := strings.HasPrefix(name, "lapwing_") || strings.HasPrefix(name, "sensu_go_")
	if !ours && name != metricCPU && name != metricRSS {
		return
	}
	for _, m := range family.GetMetric() {
		switch family.GetType() {
		case dto.MetricType_COUNTER:
			s.counters[name] += m.GetCounter().GetValue()
			if name == metricReceived {
				s.counters[received(m.GetLabel()[0].GetValue())] += m.GetCounter().GetValue()
			}
		case dto.MetricType_GAUGE:
			s.gauges[name] += m.GetGauge().GetValue()
		}
		if strings.HasSuffix(name, "_build_info") {
			for _, l := range m.GetLabel() {
				if l.GetName() == "version" {
					s.version = l.GetValue()
				}
			}
		}
	}
}

// Counters and gauges of a lapwing backend.
const (
	metricLogBytes   = "lapwing_eventlog_written_bytes_total"
	metricDiskBytes  = "lapwing_process_disk_written_bytes_total"
	metricDuplicates = "lapwing_events_duplicate_total"
	metricFolded     = "lapwing_events_folded_total"
	metricReceived   = "lapwing_events_received_total"
	metricSkipped    = "lapwing_check_requests_skipped_total"
	metricOverloaded = "lapwing_overloaded_since_seconds"
)

// received is the counter of events from one source.
func received(source string) string { return metricReceived + "/" + source }

// results returns how many results of checks a backend has folded since an earlier scrape, and in how many seconds;
// false if it does not report them. It uses only the backend's own figures, over the longest time in which the results
// can have been folded: even if the backend or the load tool stood still in between, the quotient is a real rate.
func (s *scrape) results(before *scrape) (n, seconds float64, ok bool) {
	if n, ok = s.since(before, metricFolded); !ok {
		return 0, 0, false
	}
	for _, source := range []string{"keepalive", "deadline", "api"} {
		other, _ := s.since(before, received(source))
		n -= other
	}
	return max(0, n), s.done.Sub(before.at).Seconds(), true
}

// since returns how much a counter has grown since an earlier scrape, and whether it exists.
func (s *scrape) since(before *scrape, name string) (float64, bool) {
	if s == nil || before == nil {
		return 0, false
	}
	now, ok := s.counters[name]
	return now - before.counters[name], ok
}
