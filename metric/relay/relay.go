// Package relay sends points on to other receivers: carbon's caches and relays, and all programs that understand their
// protocols.
//
// New series are routed once, by rules or a hash ring as carbon has them; the caller keeps the destinations of a series
// and adds its points to them. Each Destination has its own queue in memory, its own files for what does not fit, and
// its own connection, so that one that is slow or away delays no other. The relay knows nothing about listeners and
// parsing.
//
// It has neither carbon's fast-hashing nor its router that moves series while a destination is away: points wait on
// disk.
package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/metric/ring"
)

// Method is how a series' destinations are found (carbon's RELAY_METHOD).
type Method uint8

const (
	// Constant sends everything to all destinations.
	Constant Method = iota
	// Rules uses relay-rules.conf.
	Rules
	// ConsistentHashing uses a hash ring.
	ConsistentHashing
	// AggregatedConsistentHashing hashes the names that aggregation makes of a series, so that all inputs of an aggregate
	// meet. A series without any is hashed by its own name.
	AggregatedConsistentHashing
)

var methodNames = [...]string{Constant: "constant", Rules: "rules", ConsistentHashing: "consistent-hashing",
	AggregatedConsistentHashing: "aggregated-consistent-hashing"}

// String returns the name as carbon.conf has it.
func (m Method) String() string {
	if int(m) < len(methodNames) {
		return methodNames[m]
	}
	return fmt.Sprintf("method %d", uint8(m))
}

// ParseMethod reads constant, rules, consistent-hashing or aggregated-consistent-hashing.
func ParseMethod(name string) (Method, error) {
	if i := slices.Index(methodNames[:], name); i >= 0 {
		return Method(i), nil
	}
	return 0, fmt.Errorf("%q is no relay method: use %s", name, strings.Join(methodNames[:], ", "))
}

// Options are the settings of a relay.
type Options struct {
	Method       Method
	Destinations []DestinationOptions
	// Rules are for the method Rules. Destinations of rules that are not among Destinations are ignored, with a warning.
	Rules []Rule
	// Ring and Replication are for the hashing methods. Replication is 1 by default.
	Ring        ring.Options
	Replication int
	// AggregateNames appends the names that aggregation makes of a series, for AggregatedConsistentHashing.
	AggregateNames func(name string, dst []string) []string
	// SpillDir gets a directory for each destination that has no SpillDir of its own. Empty means that no points wait on
	// disk.
	SpillDir string
	Logger   *slog.Logger
	// Registerer may be nil.
	Registerer prometheus.Registerer
}

// Relay routes series to destinations. Its methods may be called by several goroutines.
type Relay struct {
	opts         Options
	destinations []*Destination
	rules        []compiledRule
	ring         *ring.Ring
	stopOnce     sync.Once
	stopErr      error
}

type compiledRule struct {
	match        func(name string) bool
	destinations []*Destination
	goOn         bool
}

// New checks the options and opens the files of points that wait. Nothing is sent before Start.
func New(o Options) (*Relay, error) {
	setDefault(&o.Replication, 1)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Relay{opts: o}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	if err := r.open(); err != nil {
		_ = r.Stop(context.Background())
		return nil, fmt.Errorf("relay: %w", err)
	}
	if o.Registerer != nil {
		if err := o.Registerer.Register(newCollector(r)); err != nil {
			_ = r.Stop(context.Background())
			return nil, fmt.Errorf("relay: register metrics: %w", err)
		}
	}
	return r, nil
}

func (r *Relay) check() (err error) {
	o := r.opts
	var all []ring.Destination
	for _, d := range o.Destinations {
		if slices.Contains(all, d.Destination) {
			return fmt.Errorf("destination %s is there twice", d.Destination)
		}
		all = append(all, d.Destination)
	}
	switch o.Method {
	case Constant, Rules:
	case ConsistentHashing, AggregatedConsistentHashing:
		if r.ring, err = ring.New(all, o.Ring); err != nil {
			return err
		}
		if o.Replication < 1 {
			return fmt.Errorf("replication is %d: the least is 1", o.Replication)
		}
		if o.Method == AggregatedConsistentHashing && o.AggregateNames == nil {
			return fmt.Errorf("method %v needs the names of aggregates", o.Method)
		}
	default:
		return fmt.Errorf("unknown %v", o.Method)
	}
	if len(all) == 0 || len(all) > ring.MaxDestinations {
		return fmt.Errorf("%d destinations: give 1 to %d", len(all), ring.MaxDestinations)
	}
	return nil
}

func (r *Relay) open() error {
	for _, o := range r.opts.Destinations {
		if o.SpillDir == "" && r.opts.SpillDir != "" {
			o.SpillDir = filepath.Join(r.opts.SpillDir, directoryName(o.Destination))
		}
		d, err := newDestination(o, r.opts.Logger)
		if err != nil {
			return err
		}
		r.destinations = append(r.destinations, d)
	}
	r.warnOfStrangers()
	if r.opts.Method == Rules {
		return r.compileRules()
	}
	return nil
}

// directoryName is the destination with other characters than letters, digits, dots and dashes as hexadecimal digits.
func directoryName(d ring.Destination) string {
	var b strings.Builder
	for _, c := range []byte(d.String()) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '-':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "_%02x", c)
		}
	}
	return b.String()
}

// warnOfStrangers logs directories of destinations that are configured no more. Their points stay on disk.
func (r *Relay) warnOfStrangers() {
	if r.opts.SpillDir == "" {
		return
	}
	entries, err := os.ReadDir(r.opts.SpillDir)
	if err != nil {
		r.opts.Logger.Warn("cannot list the points that wait on disk", "dir", r.opts.SpillDir, "err", err)
		return
	}
	known := map[string]bool{}
	for _, o := range r.opts.Destinations {
		known[directoryName(o.Destination)] = true
	}
	for _, e := range entries {
		files, _ := filepath.Glob(filepath.Join(r.opts.SpillDir, e.Name(), "*.spill"))
		if e.IsDir() && !known[e.Name()] && len(files) > 0 {
			r.opts.Logger.Warn("points wait on disk for a destination that is not configured",
				"dir", filepath.Join(r.opts.SpillDir, e.Name()))
		}
	}
}

// compileRules finds the rules' destinations, and puts the default rule last.
func (r *Relay) compileRules() error {
	if err := checkRules(r.opts.Rules); err != nil {
		return err
	}
	byName := map[ring.Destination]*Destination{}
	for _, d := range r.destinations {
		byName[d.opts.Destination] = d
	}
	var last compiledRule
	for _, rule := range r.opts.Rules {
		if !rule.Default && rule.match == nil {
			if err := rule.compile(); err != nil {
				return fmt.Errorf("relay rules: section [%s]: %w", rule.Name, err)
			}
		}
		c := compiledRule{match: rule.match, goOn: rule.Continue}
		for _, to := range rule.Destinations {
			if d := byName[to]; d != nil {
				c.destinations = append(c.destinations, d)
			} else {
				r.opts.Logger.Warn("a relay rule has a destination that is not configured", "rule", rule.Name,
					"destination", to.String())
			}
		}
		if rule.Default {
			last = c
			continue
		}
		r.rules = append(r.rules, c)
	}
	last.match = func(string) bool { return true }
	r.rules = append(r.rules, last)
	return nil
}

// Start begins to connect and to send.
func (r *Relay) Start() {
	for _, d := range r.destinations {
		d.start()
	}
}

// Stop refuses further points, sends what waits in memory until ctx ends, and keeps the rest on disk. It may be called
// twice, and before Start.
func (r *Relay) Stop(ctx context.Context) error {
	r.stopOnce.Do(func() {
		errs := make([]error, len(r.destinations))
		var wg sync.WaitGroup
		for i, d := range r.destinations {
			wg.Go(func() { errs[i] = d.stop(ctx) })
		}
		wg.Wait()
		if r.stopErr = errors.Join(errs...); r.stopErr != nil {
			r.stopErr = fmt.Errorf("stop the relay: %w", r.stopErr)
		}
	})
	return r.stopErr
}

// Destinations returns all destinations, in the order of the options.
func (r *Relay) Destinations() []*Destination { return r.destinations }

// Route appends the destinations of a series to dst, each once, and returns dst. Callers call it once for a new series
// and keep the result.
func (r *Relay) Route(name string, dst []*Destination) []*Destination {
	first := len(dst)
	add := func(d *Destination) {
		if !slices.Contains(dst[first:], d) {
			dst = append(dst, d)
		}
	}
	switch r.opts.Method {
	case Constant:
		return append(dst, r.destinations...)
	case Rules:
		for i := range r.rules {
			rule := &r.rules[i]
			if !rule.match(name) {
				continue
			}
			for _, d := range rule.destinations {
				add(d)
			}
			if !rule.goOn {
				break
			}
		}
		return dst
	}
	var names []string
	if r.opts.Method == AggregatedConsistentHashing {
		names = r.opts.AggregateNames(name, nil)
	}
	if len(names) == 0 {
		names = append(names, name)
	}
	var nodes []int
	for _, n := range names {
		nodes = r.ring.Nodes([]byte(n), r.opts.Replication, nodes[:0])
		for _, node := range nodes {
			add(r.destinations[node])
		}
	}
	return dst
}
