package eventfile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// PlatformOptions configures a Platform. Callers begin with DefaultPlatformOptions.
type PlatformOptions struct {
	// Path is the file. Required. Its directory must be there.
	Path string
	// Interval is the time between two samples of all metrics. Required.
	Interval time.Duration
	// MaxBytes, MaxAge and Keep are as in Options.
	MaxBytes   int64
	MaxAge     time.Duration
	Keep       int
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Gatherer has the metrics that are written. Required.
	Gatherer prometheus.Gatherer
}

// DefaultPlatformOptions returns the default settings. Path and Gatherer have none.
func DefaultPlatformOptions() PlatformOptions {
	return PlatformOptions{Interval: time.Minute, MaxBytes: 100 << 20, MaxAge: 24 * time.Hour, Keep: 7}
}

// Platform writes the backend's own metrics to a file at each interval, in the line protocol of InfluxDB. What cannot
// be written is given up: the next sample has the counters again.
type Platform struct {
	opts    PlatformOptions
	log     *slog.Logger
	file    *file
	errors  prometheus.Counter
	failing bool

	start, stop sync.Once
	stopping    chan struct{}
	done        sync.WaitGroup
}

// NewPlatform checks the options.
func NewPlatform(opts PlatformOptions) (*Platform, error) {
	switch {
	case opts.Path == "" || opts.Gatherer == nil:
		return nil, errors.New("platform metrics: path and gatherer are required")
	case opts.Interval <= 0:
		return nil, fmt.Errorf("platform metrics %s: interval (%v) must be positive", opts.Path, opts.Interval)
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Platform{opts: opts, log: opts.Logger.With("component", "eventfile"), stopping: make(chan struct{})}
	p.errors = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lapwing_platform_metrics_errors_total",
		Help: "Attempts to collect, write or rotate the file of platform metrics that failed.",
	})
	if opts.Registerer != nil {
		opts.Registerer.MustRegister(p.errors)
	}
	p.file = &file{path: opts.Path, maxBytes: opts.MaxBytes, maxAge: opts.MaxAge, keep: opts.Keep, warn: func(err error) {
		p.errors.Inc()
		p.log.Warn("the file of platform metrics cannot be rotated; it grows", "err", err)
	}}
	return p, nil
}

// Start begins to write. The first lines come after one interval.
func (p *Platform) Start(context.Context) error {
	p.start.Do(func() { p.done.Go(p.run) })
	return nil
}

// Stop ends the writing and closes the file.
func (p *Platform) Stop() (err error) {
	p.stop.Do(func() {
		close(p.stopping)
		p.done.Wait()
		err = p.file.close()
	})
	return err
}

// Reopen closes the file and opens its name again, after a program has renamed the file.
func (p *Platform) Reopen() {
	if err := p.file.reopen(); err != nil {
		p.errors.Inc() // the next sample tries again, and reports it
	}
}

func (p *Platform) run() {
	ticks := time.NewTicker(p.opts.Interval)
	defer ticks.Stop()
	for {
		select {
		case now := <-ticks.C:
			p.report(p.write(now))
		case <-p.stopping:
			return
		}
	}
}

// write writes a sample of all metrics that can be collected.
func (p *Platform) write(now time.Time) error {
	families, failed := p.opts.Gatherer.Gather()
	at := model.TimeFromUnixNano(now.UnixNano())
	samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{Timestamp: at}, families...)
	var lines []byte
	for _, s := range samples {
		lines = appendInflux(lines, s)
	}
	if len(lines) > 0 {
		_, written := p.file.append(lines)
		err = errors.Join(err, written)
	}
	return errors.Join(failed, err)
}

// report counts an error. The log gets the first of several, and that they are over.
func (p *Platform) report(err error) {
	if err != nil {
		p.errors.Inc()
		if !p.failing {
			p.log.Error("platform metrics cannot be written; samples are left out", "err", err)
		}
	} else if p.failing {
		p.log.Info("platform metrics are written again", "path", p.opts.Path)
	}
	p.failing = err != nil
}

// influxEscape escapes names and values of tags. The protocol has no way to write the end of a line.
var influxEscape = strings.NewReplacer(",", `\,`, "=", `\=`, " ", `\ `, "\n", `\ `, "\r", `\ `)

// appendInflux appends a sample as NAME,TAG=VALUE… value=NUMBER NANOSECONDS. The protocol has no NaN and no infinity.
func appendInflux(line []byte, s *model.Sample) []byte {
	value := float64(s.Value)
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return line
	}
	line = append(line, s.Metric[model.MetricNameLabel]...)
	for _, name := range slices.Sorted(maps.Keys(s.Metric)) {
		tag := string(s.Metric[name])
		if name == model.MetricNameLabel || tag == "" {
			continue
		}
		// A backslash at the end of a value would escape what follows.
		if strings.HasSuffix(tag, `\`) {
			tag += " "
		}
		line = append(append(append(append(line, ','), name...), '='), influxEscape.Replace(tag)...)
	}
	line = append(line, " value="...)
	line = strconv.AppendFloat(line, value, 'g', -1, 64)
	line = strconv.AppendInt(append(line, ' '), s.Timestamp.UnixNano(), 10)
	return append(line, '\n')
}
