// Package extract parses metric points from the output of checks. The agent calls Points with a check's output and its
// output_metric_format.
//
// The five formats and their corner cases are Sensu Go 6's: its plugins yield the same points here. A line that does
// not parse is skipped and the others are kept; skipped lines are logged once per output. What becomes of the points is
// up to the agent.
package extract

import (
	"bufio"
	"log/slog"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// The values of output_metric_format.
const (
	Nagios     = "nagios_perfdata"
	Graphite   = "graphite_plaintext"
	Influx     = "influxdb_line"
	OpenTSDB   = "opentsdb_line"
	Prometheus = "prometheus_text"
)

// Points parses output in the given format. executed (Unix seconds) is the time of points whose format has no
// timestamps; points that lack an optional timestamp get the current time. tags are added to every point. The points
// own their tag lists, which are never nil; log may be nil.
func Points(format, output string, executed int64, now func() time.Time, tags []resource.MetricTag, log *slog.Logger) []resource.MetricPoint {
	p := parser{executed: executed, now: now, tags: tags}
	switch format {
	case Nagios:
		p.nagios(output)
	case Graphite:
		p.eachLine(output, p.graphiteLine)
	case Influx:
		p.eachLine(output, p.influxLine)
	case OpenTSDB:
		p.eachLine(output, p.openTSDBLine)
	case Prometheus:
		p.prometheus(output)
	default:
		p.skip(output, errUnknownFormat)
	}
	if p.skipped > 0 && log != nil {
		log.Warn("check output holds metrics that cannot be read", "format", format, "skipped", p.skipped, "first", p.firstBad, "err", p.firstErr)
	}
	return p.points
}

// parser collects the points of one output and the parts that could not be read.
type parser struct {
	executed int64
	now      func() time.Time
	tags     []resource.MetricTag

	points   []resource.MetricPoint
	skipped  int
	firstBad string
	firstErr error
}

type parseError string

func (e parseError) Error() string { return string(e) }

const (
	errUnknownFormat = parseError("unknown metric format")
	errPerfdata      = parseError("want the text, one bar and the performance data")
	errPair          = parseError("want name=value")
	errGraphite      = parseError("want path, value and timestamp with single spaces between")
	errInflux        = parseError("want measurement and tags, fields, and an optional timestamp")
	errOpenTSDB      = parseError("want name, timestamp, value and at least one tag with single spaces between")
)

// skip notes a part of the output that yields no point.
func (p *parser) skip(part string, err error) {
	p.skipped++
	if p.firstErr == nil {
		const enough = 120 // bytes; the line may be the whole output
		if len(part) > enough {
			part = part[:enough]
		}
		p.firstBad, p.firstErr = part, err
	}
}

// add appends a point whose tags are the concatenation of the lists given.
func (p *parser) add(name string, value float64, timestamp int64, tags ...[]resource.MetricTag) {
	n := 0
	for _, list := range tags {
		n += len(list)
	}
	all := make([]resource.MetricTag, 0, n)
	for _, list := range tags {
		all = append(all, list...)
	}
	p.points = append(p.points, resource.MetricPoint{Name: name, Value: value, Timestamp: timestamp, Tags: all})
}

// eachLine passes on every line that is not empty. It stops at a line of 64 KiB or more: the rest is hardly metrics.
func (p *parser) eachLine(output string, parse func(line string) error) {
	s := bufio.NewScanner(strings.NewReader(strings.TrimSpace(output)))
	for s.Scan() {
		line := s.Text()
		if line == "" {
			continue
		}
		if err := parse(line); err != nil {
			p.skip(line, err)
		}
	}
	if err := s.Err(); err != nil {
		p.skip("", err)
	}
}

// pair splits name=value, which must hold exactly one equals sign.
func pair(s string) (resource.MetricTag, error) {
	name, value, found := strings.Cut(s, "=")
	if !found || strings.Contains(value, "=") {
		return resource.MetricTag{}, errPair
	}
	return resource.MetricTag{Name: name, Value: value}, nil
}
