package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Scrape is a backend's metrics at a moment.
type Scrape struct {
	At       time.Time
	Families map[string]*dto.MetricFamily
}

// maxScrape bounds an answer, in bytes. Parsed metrics take up to twenty times the memory of their text. A backend with
// 20,000 checks and 500 handlers has some 6 MB.
const maxScrape = 16 << 20

// errTooLong says that an answer is above maxScrape.
var errTooLong = fmt.Errorf("the answer is longer than %d MiB, and no more is read: is this the address of a lapwing "+
	"backend's metrics?", maxScrape>>20)

// ErrNotLapwing says that the metrics are not a lapwing backend's.
var ErrNotLapwing = errors.New("these are not the metrics of a lapwing backend")

// Parse parses metrics in the text format.
func Parse(r io.Reader, at time.Time) (*Scrape, error) {
	families, err := parse(r)
	if err != nil {
		return nil, fmt.Errorf("parse metrics: %w", err)
	}
	// An agent has a build too, but neither a log nor points. `lapwing carbon` has points only.
	events, points := families["lapwing_eventlog_position"], families["lapwing_metric_points_total"]
	if families["lapwing_build_info"] == nil || events == nil && points == nil {
		return nil, ErrNotLapwing
	}
	return &Scrape{At: at, Families: families}, nil
}

// parse calls the parser. It panics on some invalid texts, for example "{}".
func parse(r io.Reader) (families map[string]*dto.MetricFamily, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("not in the text format: %v", p)
		}
	}()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(r)
}

// Fetch reads a backend's metrics, with a header Authorization unless that is "".
func Fetch(ctx context.Context, client *http.Client, url, authorization string) (*Scrape, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", url, err)
	}
	req.Header.Set("Accept", "text/plain")
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err) // the error contains the URL
	}
	defer resp.Body.Close()
	at := time.Now()
	switch {
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		return nil, fmt.Errorf("read %s: status %s: the metrics are not public there; sign in with lapwing configure, "+
			"or give --api-key, as a user who may get them",
			url, resp.Status)
	case resp.StatusCode == http.StatusServiceUnavailable: // a starting backend says what it waits for
		return nil, fmt.Errorf("read %s: status %s%s", url, resp.Status, saidIn(resp.Body))
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("read %s: status %s", url, resp.Status)
	}
	text, err := readAnswer(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", url, err)
	}
	s, err := Parse(strings.NewReader(text), at)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", url, err)
	}
	return s, nil
}

// readAnswer reads an answer to its end. It comes before Parse, so that an endless answer is never parsed.
func readAnswer(body io.Reader) (string, error) {
	var text strings.Builder
	n, err := io.Copy(&text, io.LimitReader(body, maxScrape+1))
	switch {
	case n > maxScrape:
		return "", errTooLong
	case err != nil:
		return "", fmt.Errorf("the answer breaks off after %d bytes: %w", n, err)
	}
	return text.String(), nil
}

// maxSaid bounds the part of a refusal that is shown, in bytes.
const maxSaid = 4 << 10

// saidIn returns the text of a refusal, in one line after a colon; "" if there is none, or only a proxy's web page.
func saidIn(body io.Reader) string {
	text, _ := io.ReadAll(io.LimitReader(body, maxSaid)) // a part is better than nothing
	words := strings.Fields(strings.ToValidUTF8(string(text), ""))
	if len(words) == 0 || strings.HasPrefix(words[0], "<") {
		return ""
	}
	return ": " + strings.Join(words, " ")
}

// value returns the value of a counter or a gauge.
func value(m *dto.Metric) float64 {
	v := m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
	if math.IsNaN(v) {
		return 0
	}
	return v
}

// has reports whether there is such a metric.
func (s *Scrape) has(name string) bool { return len(s.Families[name].GetMetric()) > 0 }

// sum returns a counter or a gauge, summed over its labels; 0 if there is none.
func (s *Scrape) sum(name string) (sum float64) {
	for _, m := range s.Families[name].GetMetric() {
		sum += value(m)
	}
	return sum
}

// most returns the largest value of a gauge over its labels.
func (s *Scrape) most(name string) (most float64) {
	for _, m := range s.Families[name].GetMetric() {
		most = max(most, value(m))
	}
	return most
}

// by returns a counter or a gauge by the values of a label.
func (s *Scrape) by(name, label string) map[string]float64 {
	sums := map[string]float64{}
	for _, m := range s.Families[name].GetMetric() {
		if v, ok := labelOf(m, label); ok {
			sums[v] += value(m)
		}
	}
	return sums
}

// label returns a label's value in the first of a metric's series.
func (s *Scrape) label(name, label string) string {
	for _, m := range s.Families[name].GetMetric() {
		if v, ok := labelOf(m, label); ok {
			return v
		}
	}
	return ""
}

func labelOf(m *dto.Metric, label string) (string, bool) {
	for _, l := range m.GetLabel() {
		if l.GetName() == label {
			return l.GetValue(), true
		}
	}
	return "", false
}

func matches(m *dto.Metric, want []string) bool {
	for i := 0; i+1 < len(want); i += 2 {
		if v, _ := labelOf(m, want[i]); v != want[i+1] {
			return false
		}
	}
	return true
}

// histogram returns the sum of the series with the wanted labels, given as names and values in turn.
func (s *Scrape) histogram(name string, want ...string) histogram {
	h := histogram{buckets: map[float64]float64{}}
	for _, m := range s.Families[name].GetMetric() {
		if !matches(m, want) {
			continue
		}
		one := m.GetHistogram()
		h.count += float64(one.GetSampleCount())
		h.sum += one.GetSampleSum()
		for _, b := range one.GetBucket() {
			h.buckets[b.GetUpperBound()] += float64(b.GetCumulativeCount())
		}
	}
	return h
}

// histogram counts for each bound the observations up to it.
type histogram struct {
	count, sum float64
	buckets    map[float64]float64
}

func (h histogram) since(before histogram) histogram {
	d := histogram{count: max(0, h.count-before.count), sum: max(0, h.sum-before.sum), buckets: map[float64]float64{}}
	for bound, n := range h.buckets {
		d.buckets[bound] = max(0, n-before.buckets[bound])
	}
	return d
}

func (h histogram) mean() float64 {
	if h.count == 0 {
		return 0
	}
	return h.sum / h.count
}

// quantile returns a bound that the share q of the observations does not exceed, as exact as the buckets are; +Inf if
// it is above all bounds, 0 if there are no observations.
func (h histogram) quantile(q float64) float64 {
	if h.count == 0 {
		return 0
	}
	for _, bound := range slices.Sorted(maps.Keys(h.buckets)) {
		if h.buckets[bound] >= q*h.count {
			return bound
		}
	}
	return math.Inf(1)
}
