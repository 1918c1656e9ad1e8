// Package queries asks a Graphite server what dashboards ask it, and measures how long the answers take.
//
// A file names the dashboards (bench/dashboards has one). Each viewer opens one dashboard after the other, and sends its
// requests one behind the other. Heavy queries can run beside them, without a pause. `lapwing load queries` is its command.
package queries

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
)

// File is what the viewers ask.
type File struct {
	// Hosts is the number of hosts that {host} in a query stands for: 0000 to Hosts-1.
	Hosts      int
	Dashboards []Dashboard
	// Heavy has targets of /render that many series or values go into.
	Heavy []string
	// From is where the heavy queries begin, as graphite-web writes it: "-1h".
	From string
}

// Dashboard is one page of graphs.
type Dashboard struct {
	Name string
	// Find has patterns for /metrics/find, as variables of a dashboard have.
	Find []string
	// Panels has the targets of each graph.
	Panels [][]string
	// From is where the graphs begin: "-1h".
	From string
}

// Parse reads a file.
func Parse(text []byte) (*File, error) {
	var f File
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("read the dashboards: %w", err)
	}
	if len(f.Dashboards) == 0 {
		return nil, errors.New("read the dashboards: there are none")
	}
	if f.Hosts < 1 {
		return nil, fmt.Errorf("read the dashboards: hosts is %d, it must be at least 1", f.Hosts)
	}
	return &f, nil
}

// Options describes a run.
type Options struct {
	File *File
	// URL is the server's Graphite API. Required.
	URL string
	// Viewers is how many dashboards are open, Every how often each of them is loaded. Default 10 and 5 s.
	Viewers int
	Every   time.Duration
	// Heavy is how many heavy queries run at a time. Default none.
	Heavy int
	// Duration is how long to ask. Default 1 minute.
	Duration time.Duration
}

// Result is the times of all answers, in order of their length, by kind: find, render or heavy.
type Result struct {
	Times map[string][]time.Duration
	// Refused counts heavy queries that the server has refused because it had too many.
	Refused int
	// Failed counts the other requests without a good answer, with the first error.
	Failed int
	Err    error
}

type run struct {
	o      *Options
	client *http.Client

	mu sync.Mutex // guards the field below
	r  Result
}

// Run asks until Duration has passed or ctx ends.
func Run(ctx context.Context, o Options) (*Result, error) {
	if o.File == nil || o.URL == "" {
		return nil, errors.New("the dashboards or the URL are missing")
	}
	if o.Viewers == 0 {
		o.Viewers = 10
	}
	if o.Every == 0 {
		o.Every = 5 * time.Second
	}
	if o.Duration == 0 {
		o.Duration = time.Minute
	}
	if o.Viewers < 0 || o.Heavy < 0 || o.Every < 0 || o.Duration < 0 {
		return nil, errors.New("a number of the options is negative")
	}
	if o.Heavy > 0 && len(o.File.Heavy) == 0 {
		return nil, errors.New("the file has no heavy queries")
	}
	ctx, cancel := context.WithTimeout(ctx, o.Duration)
	defer cancel()
	transport := &http.Transport{MaxIdleConnsPerHost: o.Viewers + o.Heavy}
	defer transport.CloseIdleConnections()
	r := &run{o: &o, client: &http.Client{Transport: transport}, r: Result{Times: map[string][]time.Duration{}}}
	var asking sync.WaitGroup
	for i := range o.Viewers {
		asking.Go(func() { r.view(ctx, i) })
	}
	for i := range o.Heavy {
		asking.Go(func() { r.strain(ctx, i) })
	}
	asking.Wait()
	for _, times := range r.r.Times {
		slices.Sort(times)
	}
	return &r.r, nil
}

// view loads one dashboard after the other. Viewers begin spread over Every.
func (r *run) view(ctx context.Context, viewer int) {
	timer := time.NewTimer(r.o.Every * time.Duration(viewer) / time.Duration(r.o.Viewers))
	defer timer.Stop()
	for i := viewer; ; i++ {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		d := &r.o.File.Dashboards[i%len(r.o.File.Dashboards)]
		host := fmt.Sprintf("%04d", rand.IntN(r.o.File.Hosts))
		for _, pattern := range d.Find {
			r.ask(ctx, "find", "/metrics/find", url.Values{"query": {strings.ReplaceAll(pattern, "{host}", host)}})
		}
		for _, targets := range d.Panels {
			r.ask(ctx, "render", "/render", render(targets, host, d.From))
		}
		timer.Reset(max(0, r.o.Every-time.Since(began)))
	}
}

// failedPause is between a heavy query that was refused or that failed and the next one.
const failedPause = 100 * time.Millisecond

// strain asks heavy queries without a pause, except after one without a good answer.
func (r *run) strain(ctx context.Context, first int) {
	for i := first; ctx.Err() == nil; i++ {
		target := r.o.File.Heavy[i%len(r.o.File.Heavy)]
		if r.ask(ctx, "heavy", "/render", render([]string{target}, "0000", r.o.File.From)) == http.StatusOK {
			continue
		}
		select {
		case <-time.After(failedPause):
		case <-ctx.Done():
		}
	}
}

func render(targets []string, host, from string) url.Values {
	v := url.Values{"from": {from}, "until": {"now"}, "format": {"json"}, "maxDataPoints": {"1000"}}
	for _, t := range targets {
		v.Add("target", strings.ReplaceAll(t, "{host}", host))
	}
	return v
}

// ask sends a request, notes the time until its answer, and returns the answer's status.
func (r *run) ask(ctx context.Context, kind, path string, form url.Values) (status int) {
	began := time.Now()
	status, err := r.post(ctx, path, form)
	took := time.Since(began)
	if ctx.Err() != nil {
		return status
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case kind == "heavy" && status == http.StatusServiceUnavailable:
		r.r.Refused++
	case err != nil:
		r.r.Failed++
		if r.r.Err == nil {
			r.r.Err = err
		}
	default:
		r.r.Times[kind] = append(r.r.Times[kind], took)
	}
	return status
}

func (r *run) post(ctx context.Context, path string, form url.Values) (status int, err error) {
	base := strings.TrimSuffix(r.o.URL, "/")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, strings.NewReader(form.Encode()))
	if err != nil {
		return 0, fmt.Errorf("ask for %s: %w", path, err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := r.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 300))
		return res.StatusCode, fmt.Errorf("%s: %d %s", path, res.StatusCode, strings.TrimSpace(string(text)))
	}
	if n, err := io.Copy(io.Discard, res.Body); err != nil {
		return res.StatusCode, fmt.Errorf("%s: read the answer: %w", path, err)
	} else if n <= int64(len("[]")) {
		return res.StatusCode, fmt.Errorf("%s: the answer to %q is empty", path, form.Encode())
	}
	return res.StatusCode, nil
}

// Quantile returns the time within which this part of the answers came, q from 0 to 1. The times are in order.
func Quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	return times[min(len(times)-1, int(q*float64(len(times))))]
}
