package local

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	// forgetSeries is how long a series without new samples is sent.
	forgetSeries = 5 * time.Minute
	// maxValues bounds the values of a timer, and the members of a set, between two flushes.
	maxValues = 10_000
	// maxAllValues bounds them over all timers and sets. A value is a number and a member a hash, so they take some 30
	// MB at most.
	maxAllValues = 1_000_000
	// maxName bounds a series' name with its tags, in bytes: each series keeps them.
	maxName = 1024
	// percentile is the percentile of timers.
	percentile = 90
)

// statsd sums up samples between two flushes.
type statsd struct {
	max int
	now func() time.Time

	mu       sync.Mutex // guards the fields below
	series   map[seriesKey]*series
	kept     int // values and members, over all series
	lastSent time.Time
	hash     maphash.Seed // for members: a sender must not be able to choose their hashes
}

type seriesKey struct {
	kind byte
	name string
	tags string // as sent, sorted, with the sender
}

// The kinds of series, in the order in which they are sent.
const (
	counter byte = iota
	timer
	gauge
	set
)

type series struct {
	tags    []resource.MetricTag
	touched time.Time

	value   float64             // of a counter or gauge
	values  []float64           // of a timer
	count   float64             // of a timer, corrected by its sample rate
	members map[uint64]struct{} // of a set, by their hash
}

func newStatsD(maxSeries int, now func() time.Time) *statsd {
	return &statsd{max: maxSeries, now: now, series: map[seriesKey]*series{}, lastSent: now(), hash: maphash.MakeSeed()}
}

// sample is a parsed line.
type sample struct {
	kind  byte
	name  string
	value float64 // of all but sets
	text  string  // as it was sent
	rate  float64
	tags  []string
}

var (
	errSample   = errors.New("it is not like name:value|type")
	errLongName = fmt.Errorf("its name or tags are longer than %d bytes", maxName)
)

// parseSample reads name:value|type[|@rate][|#tag:value,tag:value]. Characters that names may not have are removed or
// replaced.
func parseSample(line string) (sample, error) {
	name, rest, ok := strings.Cut(line, ":")
	if len(name) > maxName {
		return sample{}, errLongName
	}
	fields := strings.Split(rest, "|")
	if !ok || len(fields) < 2 {
		return sample{}, errSample
	}
	p := sample{name: cleanName(name), text: fields[0], rate: 1}
	if p.name == "" || p.text == "" {
		return sample{}, errSample
	}
	switch fields[1] {
	case "c":
		p.kind = counter
	case "g":
		p.kind = gauge
	case "ms", "h":
		p.kind = timer
	case "s":
		p.kind = set
	default:
		return sample{}, errors.New("there is no such type")
	}
	if p.kind != set {
		var err error
		if p.value, err = strconv.ParseFloat(p.text, 64); err != nil || math.IsNaN(p.value) || math.IsInf(p.value, 0) {
			return sample{}, errors.New("its value is not a number")
		}
	}
	for _, field := range fields[2:] {
		if len(field) > maxName {
			return sample{}, errLongName
		}
		switch {
		case strings.HasPrefix(field, "@"):
			var err error
			if p.rate, err = strconv.ParseFloat(field[1:], 64); err != nil || !(p.rate > 0) || math.IsInf(p.rate, 0) {
				return sample{}, errors.New("its rate is not a number above 0")
			}
		case strings.HasPrefix(field, "#"):
			for tag := range strings.SplitSeq(field[1:], ",") {
				if tag != "" {
					p.tags = append(p.tags, tag)
				}
			}
		}
	}
	return p, nil
}

func cleanName(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ' || r == '\t':
			return '_'
		case r == '/':
			return '-'
		case r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-':
			return r
		}
		return -1
	}, name)
}

// add adds a sample. It returns false if there are too many series, or too many values of timers and members of sets.
func (d *statsd) add(p *sample, sender string) bool {
	slices.Sort(p.tags)
	key := seriesKey{p.kind, p.name, strings.Join(p.tags, ",") + "\x00" + sender}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.series[key]
	if s == nil {
		if len(d.series) >= d.max {
			return false
		}
		s = &series{tags: tagsOf(p.tags, sender)}
		d.series[key] = s
	}
	s.touched = d.now()
	switch p.kind {
	case counter:
		s.value += p.value / p.rate
	case gauge:
		s.value = p.value // whatever its sign, as Sensu's agents take it
	case timer:
		s.count += 1 / p.rate
		if len(s.values) < maxValues {
			if d.kept >= maxAllValues {
				return false
			}
			d.kept++
			s.values = append(s.values, p.value)
		}
	case set:
		member := maphash.String(d.hash, p.text)
		if _, ok := s.members[member]; ok || len(s.members) >= maxValues {
			break
		}
		if d.kept >= maxAllValues {
			return false
		}
		d.kept++
		if s.members == nil {
			s.members = map[uint64]struct{}{}
		}
		s.members[member] = struct{}{}
	}
	return true
}

func tagsOf(tags []string, sender string) []resource.MetricTag {
	all := make([]resource.MetricTag, 0, len(tags)+1)
	for _, tag := range tags {
		name, value, _ := strings.Cut(tag, ":")
		all = append(all, resource.MetricTag{Name: name, Value: value})
	}
	return append(all, resource.MetricTag{Name: "s", Value: sender})
}

// flush returns the samples since the last flush as points, and starts again. A series without new samples is still
// sent for a while: as 0, or a gauge with its last value.
func (d *statsd) flush() []resource.MetricPoint {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	seconds := max(now.Sub(d.lastSent).Seconds(), 0.001)
	d.lastSent, d.kept = now, 0
	keys := make([]seriesKey, 0, len(d.series))
	for key, s := range d.series {
		if now.Sub(s.touched) > forgetSeries {
			delete(d.series, key)
			continue
		}
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b seriesKey) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name), cmp.Compare(a.tags, b.tags))
	})
	var points []resource.MetricPoint
	for _, key := range keys {
		s := d.series[key]
		put := func(suffix string, v float64) {
			// Sensu's agents send these times in nanoseconds, and their consumers expect it.
			points = append(points, resource.MetricPoint{Name: key.name + suffix, Value: v, Timestamp: now.UnixNano(), Tags: s.tags})
		}
		switch key.kind {
		case counter:
			v := math.Trunc(s.value)
			put(".value", v)
			put(".per_second", v/seconds)
			s.value = 0
		case timer:
			s.timer(put, seconds)
			s.values, s.count = nil, 0 // 50,000 series that keep the capacity of their busiest interval would take 4 GB
		case gauge:
			put(".value", s.value)
		case set:
			put(".value", float64(len(s.members)))
			s.members = nil
		}
	}
	return points
}

// timer reports a timer's statistics. The percentile is that of the lower nine tenths.
func (s *series) timer(put func(string, float64), seconds float64) {
	v := s.values
	slices.Sort(v)
	n := len(v)
	if n == 0 {
		for _, name := range []string{".min", ".max", ".count", ".per_second", ".mean", ".median", ".stddev", ".sum", ".sum_squares"} {
			put(name, 0)
		}
		return
	}
	sums := func(v []float64) (sum, squares float64) {
		for _, x := range v {
			sum += x
			squares += x * x
		}
		return sum, squares
	}
	sum, squares := sums(v)
	mean := sum / float64(n)
	median := v[n/2]
	if n%2 == 0 {
		median = (v[n/2-1] + v[n/2]) / 2
	}
	deviation := 0.0
	for _, x := range v {
		deviation += (x - mean) * (x - mean)
	}
	put(".min", v[0])
	put(".max", v[n-1])
	put(".count", s.count)
	put(".per_second", s.count/seconds)
	put(".mean", mean)
	put(".median", median)
	put(".stddev", math.Sqrt(deviation/float64(n)))
	put(".sum", sum)
	put(".sum_squares", squares)
	lower := v
	if n > 1 {
		lower = v[:int(math.Floor(percentile/100.0*float64(n)+0.5))]
	}
	sum, squares = sums(lower)
	put(".percentile_count_90", float64(len(lower)))
	put(".percentile_mean_90", sum/float64(len(lower)))
	put(".percentile_sum_90", sum)
	put(".percentile_sum_squares_90", squares)
	put(".percentile_upper_90", lower[len(lower)-1])
}

func (s *Server) takeStatsD(b []byte, from net.Addr) {
	sender := ""
	if udp, ok := from.(*net.UDPAddr); ok {
		sender = udp.IP.String()
	}
	for line := range bytes.Lines(b) {
		text := string(bytes.TrimSpace(line))
		if text == "" {
			continue
		}
		p, err := parseSample(text)
		switch {
		case err != nil:
			s.metrics.bad.Inc()
			s.log.Debug("line ignored", "interface", "statsd", "line", text[:min(len(text), 100)], "err", err)
		case s.statsd.add(&p, sender):
			s.metrics.samples.Inc()
		default:
			s.metrics.dropped.Inc()
		}
	}
}

func (s *Server) flushStatsD(ctx context.Context) {
	tick := time.NewTicker(s.opts.StatsDFlush)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		points := s.statsd.flush()
		if len(points) == 0 {
			continue
		}
		s.opts.Send(&resource.Event{
			Timestamp: s.opts.Now().Unix(), Entity: s.opts.Entity(),
			Metrics: &resource.Metrics{Handlers: s.opts.StatsDHandlers, Points: points},
		})
	}
}
