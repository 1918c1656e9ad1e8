package metric

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "github.com/prometheus/prometheus/web/api/v1"

	"github.com/lapwing-monitoring/lapwing/internal/dirlock"
	"github.com/lapwing-monitoring/lapwing/internal/filewatch"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/internal/tlsfiles"
	"github.com/lapwing-monitoring/lapwing/metric/aggregator"
	"github.com/lapwing-monitoring/lapwing/metric/allow"
	"github.com/lapwing-monitoring/lapwing/metric/carbon"
	"github.com/lapwing-monitoring/lapwing/metric/graphite"
	"github.com/lapwing-monitoring/lapwing/metric/index"
	"github.com/lapwing-monitoring/lapwing/metric/ingest"
	"github.com/lapwing-monitoring/lapwing/metric/member"
	"github.com/lapwing-monitoring/lapwing/metric/promapi"
	"github.com/lapwing-monitoring/lapwing/metric/relay"
	"github.com/lapwing-monitoring/lapwing/metric/remote"
	"github.com/lapwing-monitoring/lapwing/metric/rewrite"
	"github.com/lapwing-monitoring/lapwing/metric/schema"
	"github.com/lapwing-monitoring/lapwing/metric/spill"
	"github.com/lapwing-monitoring/lapwing/metric/store"
)

// Server is the metrics half.
type Server struct {
	opts Options

	schemas    *filewatch.Content[*schema.Schemas]
	store      *store.Store // nil if it only relays
	index      *index.Index
	allow      *allow.Watcher                     // nil for none
	rewrite    *filewatch.Content[*rewrite.Rules] // nil for none
	aggregator *aggregator.Aggregator
	relay      *relay.Relay // nil for none
	remote     []*remote.Sender
	members    *member.Group // nil for none
	parts      parts
	handovers  *handovers
	histories  histories
	rare       *rarelog.Log
	table      *ingest.Table
	events     *ingest.Events
	notes      *graphite.Events
	graphite   *graphite.API
	prometheus *promapi.API
	rules      v1.RulesRetriever // nil for none
	listeners  []listener
	query      net.Listener // nil for none
	http       *http.Server

	began   time.Time   // of Start
	loading atomic.Bool // the index does not have all names yet
	waiting atomic.Bool // too few members are known, and no points of senders are taken
	queries gate
	life    context.Context // of the goroutines of the server itself
	endLife context.CancelFunc
	running sync.WaitGroup
	undo    []step

	mu      sync.Mutex // guards the fields below
	started bool
	stopped bool
}

// listener is a port of senders.
type listener struct {
	*carbon.Listener
	kind string // the protocol, or gzip or tls
}

// step is one thing to undo at Stop.
type step struct {
	name string
	do   func(context.Context) error
}

// New checks the options, opens the store and binds the listeners' ports.
func New(opts Options) (_ *Server, err error) {
	if err := opts.complete(); err != nil {
		return nil, err
	}
	s := &Server{opts: opts, rare: rarelog.New(opts.Logger)}
	s.life, s.endLife = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			err = errors.Join(err, s.unwind(ctx))
		}
	}()
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of metrics: %w", err)
	}
	lock, err := dirlock.Take(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("open the metrics: %w", err)
	}
	s.push("lock of the directory", func(context.Context) error { return lock.Unlock() })
	if err := s.buildStore(); err != nil {
		return nil, err
	}
	if err := s.buildMembers(); err != nil { // they stop after the aggregator, whose last points they pass on
		return nil, err
	}
	if err := s.buildRules(); err != nil {
		return nil, err
	}
	if err := s.buildOutputs(); err != nil {
		return nil, err
	}
	if err := s.buildTable(); err != nil {
		return nil, err
	}
	if err := s.buildQueries(); err != nil {
		return nil, err
	}
	s.push("queries", func(context.Context) error {
		s.queries.close() // they read the store, which is closed after them
		return nil
	})
	if err := s.buildListeners(); err != nil {
		return nil, err
	}
	if err := s.refuseOwnAddress(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Server) push(name string, do func(context.Context) error) {
	s.undo = append(s.undo, step{name, do})
}

const (
	storeStep = "store of metrics"
	// stepTimeout bounds each other step of Stop.
	stepTimeout = 5 * time.Second
)

func (s *Server) unwind(ctx context.Context) error {
	var errs []error
	for _, step := range slices.Backward(s.undo) {
		stop, cancel := context.WithTimeout(ctx, stepTimeout) // a receiver that is away must not use up the store's time
		if step.name == storeStep {
			cancel()
			stop, cancel = context.WithCancel(ctx)
		}
		if err := step.do(stop); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", step.name, err))
		}
		cancel()
	}
	s.undo = nil
	s.endLife()
	s.running.Wait()
	return errors.Join(errs...)
}

// buildStore makes what keeps points, and the index of their names.
func (s *Server) buildStore() (err error) {
	o := &s.opts
	s.schemas, err = schema.Watch(o.SchemasFile, o.AggregationFile, filewatch.ContentOptions[*schema.Schemas]{
		Changed: func(*schema.Schemas) { s.policiesChanged() }, Logger: o.Logger, Registerer: o.Registerer,
	})
	if err != nil {
		return err
	}
	s.push("watch of the schemas", s.schemas.Stop)
	if s.index, err = index.New(index.Options{Registerer: o.Registerer}); err != nil {
		return err
	}
	if o.Relay.Only {
		return nil
	}
	so := o.Store
	so.Dir, so.Policy, so.Now = filepath.Join(o.Dir, "tiers"), s.policy, o.Now
	so.Log, so.Registerer = o.Logger, o.Registerer
	if s.store, err = store.New(so); err != nil {
		return fmt.Errorf("open the store of metrics: %w", err)
	}
	s.push(storeStep, s.store.Stop)
	return nil
}

func (s *Server) policy(name string) store.Policy {
	archives, method, xff, _ := s.schemas.Current().Match(name)
	return store.Policy{Archives: archives, Method: method, XFilesFactor: xff}
}

// policiesChanged applies changed schemas to the series in memory.
func (s *Server) policiesChanged() {
	if s.store == nil {
		return
	}
	if err := s.store.Refresh(s.life); err != nil && s.life.Err() == nil {
		s.opts.Logger.Error("cannot apply the changed schemas to all series", "err", err)
	}
}

// buildRules makes what decides about names.
func (s *Server) buildRules() (err error) {
	o := &s.opts
	if o.WhitelistFile != "" || o.BlacklistFile != "" {
		s.allow, err = allow.Watch(o.WhitelistFile, o.BlacklistFile, filewatch.ContentOptions[*allow.Lists]{
			Changed: func(*allow.Lists) { s.table.Changed() }, Logger: o.Logger, Registerer: o.Registerer,
		})
		if err != nil {
			return err
		}
		s.push("watch of the lists of names", s.allow.Stop)
	}
	if o.RewriteFile != "" {
		s.rewrite, err = rewrite.Watch(o.RewriteFile, filewatch.ContentOptions[*rewrite.Rules]{
			Changed: func(*rewrite.Rules) { s.table.Changed() }, Logger: o.Logger, Registerer: o.Registerer,
		})
		if err != nil {
			return err
		}
		s.push("watch of the rewrite rules", s.rewrite.Stop)
	}
	ao := o.Aggregator
	ao.RulesFile, ao.Emit, ao.Changed = o.AggregationRulesFile, s.emitter(), func() { s.table.Changed() }
	ao.Logger, ao.Registerer = o.Logger, o.Registerer
	if s.aggregator, err = aggregator.New(ao); err != nil {
		return err
	}
	return nil
}

// emitter returns the function that takes the points that the server makes itself. It has a Writer of its own.
func (s *Server) emitter() func(name string, unixSeconds int64, value float64) {
	var mu sync.Mutex
	var w *ingest.Writer
	return func(name string, unixSeconds int64, value float64) {
		mu.Lock()
		defer mu.Unlock()
		if w == nil {
			w = s.table.Emitter(s.life)
		}
		if err := errors.Join(w.Add([]byte(name), unixSeconds*1000, value), w.Flush()); err != nil && s.life.Err() == nil {
			s.opts.Logger.Error("a point of an aggregate is lost", "err", err)
		}
	}
}

// buildOutputs makes what sends points on.
func (s *Server) buildOutputs() error {
	o := &s.opts
	if len(o.Relay.Destinations) > 0 {
		var rules []relay.Rule
		if o.Relay.RulesFile != "" {
			f, err := os.Open(o.Relay.RulesFile)
			if err != nil {
				return fmt.Errorf("relay rules: %w", err)
			}
			rules, err = relay.ParseRules(f)
			_ = f.Close()
			if err != nil {
				return fmt.Errorf("relay rules %s: %w", o.Relay.RulesFile, err)
			}
		}
		ro, err := o.relayOptions(s.aggregator.OutputNames, rules)
		if err != nil {
			return err
		}
		ro.SpillDir = filepath.Join(o.Dir, "relay")
		if s.relay, err = relay.New(ro); err != nil {
			return err
		}
		s.push("relay", s.relay.Stop)
	}
	receivers, err := o.remoteOptions()
	if err != nil {
		return err
	}
	for _, ro := range receivers {
		overflow, err := spill.Open(spill.Options{Dir: o.remoteDir(ro.Name), MaxBytes: 1 << 30})
		if err != nil {
			return fmt.Errorf("open the queue of remote write to %q: %w", ro.Name, err)
		}
		s.push("queue of remote write to "+ro.Name, func(context.Context) error { return overflow.Close() })
		ro.Overflow = overflow
		sender, err := remote.New(ro)
		if err != nil {
			return err
		}
		s.push("remote write to "+ro.Name, sender.Stop)
		s.remote = append(s.remote, sender)
	}
	return nil
}

// buildTable makes the way of points through all of these.
func (s *Server) buildTable() (err error) {
	s.push("aggregation", s.aggregator.Stop) // before what its last results go to
	o := ingest.Options{
		Store: s.store, Aggregator: s.aggregator, Relay: s.relay, Known: func(name string) { s.index.Add(name) },
		Remote:  s.remote,
		Metrics: ingest.NewMetrics(s.opts.Registerer), MaxBytes: s.opts.Store.MemoryLimit / 2, Logger: s.opts.Logger,
	}
	if s.allow != nil {
		o.Allow, o.Refused = func(name string) allow.Verdict { return s.allow.Current().Check(name) }, s.allow.Count
	}
	if s.rewrite != nil {
		o.Pre = func(name string) string { return s.rewrite.Current().Pre.Rewrite(name) }
		o.Post = func(name string) string { return s.rewrite.Current().Post.Rewrite(name) }
	}
	if s.relay != nil {
		o.Own = s.isOwnFigure
	}
	s.placeOn(&o)
	if s.table, err = ingest.New(o); err != nil {
		return err
	}
	s.events = ingest.NewEvents(s.table, s.opts.Now)
	return nil
}

// buildListeners binds the ports of senders and of queries.
func (s *Server) buildListeners() error {
	for _, l := range []struct {
		flag     string
		address  string
		protocol carbon.Protocol
		kind     string
	}{
		{"--carbon-listen-address", s.opts.LineAddress, carbon.LineTCP, "line"},
		{"--carbon-gzip-listen-address", s.opts.GzipAddress, carbon.LineTCP, "gzip"},
		{"--carbon-tls-listen-address", s.opts.TLSAddress, carbon.LineTCP, "tls"},
		{"--carbon-udp-listen-address", s.opts.UDPAddress, carbon.LineUDP, "udp"},
		{"--carbon-pickle-listen-address", s.opts.PickleAddress, carbon.Pickle, "pickle"},
		{"--carbon-protobuf-listen-address", s.opts.ProtobufAddress, carbon.Protobuf, "protobuf"},
	} {
		if l.address == "" {
			continue
		}
		o := s.opts.Listen
		o.Address, o.Protocol, o.Gzip, o.Now = l.address, l.protocol, l.kind == "gzip", s.opts.Now
		o.NewWriter = func() carbon.Writer { return s.table.Writer(s.life) }
		o.NewDroppingWriter = s.table.Datagrams
		o.Logger, o.Registerer = s.opts.Logger, s.opts.Registerer
		if l.kind == "tls" {
			var err error
			if o.TLS, err = s.listenTLS(); err != nil {
				return fmt.Errorf("TLS of the carbon listener: %w", err)
			}
		}
		bound, err := carbon.New(o)
		if err != nil {
			return optionerr.Listen(l.flag, l.address, err)
		}
		s.push(l.kind+" listener", bound.Stop)
		s.listeners = append(s.listeners, listener{bound, l.kind})
	}
	if s.opts.QueryAddress == "" {
		return nil
	}
	var err error
	if s.query, err = net.Listen("tcp", s.opts.QueryAddress); err != nil {
		return optionerr.Listen("--graphite-listen-address", s.opts.QueryAddress, err)
	}
	s.push("port of Graphite queries", func(context.Context) error {
		if err := s.query.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	return nil
}

// listenTLS reads the files of the encrypted listener. Its configuration has their newest content.
func (s *Server) listenTLS() (*tls.Config, error) {
	o := s.opts.ListenTLS.files()
	o.Logger, o.Registerer = s.opts.Logger, s.opts.Registerer
	files, err := tlsfiles.New(o)
	if err != nil {
		return nil, err
	}
	return files.Server()
}

// Addr returns the address of the listener of a protocol, nil if there is none.
func (s *Server) Addr(p carbon.Protocol) net.Addr {
	for _, l := range s.listeners {
		if l.kind == string(p) {
			return l.Addr()
		}
	}
	return nil
}

// Ports returns the names and addresses of all listeners, as attributes of a log line.
func (s *Server) Ports() (attributes []any) {
	for _, l := range s.listeners {
		attributes = append(attributes, "carbon_"+l.kind, l.Addr().String())
	}
	if s.query != nil {
		attributes = append(attributes, "graphite", s.query.Addr().String())
	}
	return attributes
}

// QueryAddr returns the address of the HTTP APIs, nil if there is none.
func (s *Server) QueryAddr() net.Addr {
	if s.query == nil {
		return nil
	}
	return s.query.Addr()
}

// Events takes the points of events: it is intake's Sink.
func (s *Server) Events() *ingest.Events { return s.events }

// Start starts the parts, those that take points last.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started || s.stopped {
		return errors.New("start metrics: started or stopped before")
	}
	s.started, s.began = true, time.Now()
	s.schemas.Start()
	if s.store != nil {
		if err := s.store.Start(); err != nil {
			return fmt.Errorf("start the store of metrics: %w", err)
		}
		s.loading.Store(true)
		s.running.Go(s.loadNames)
	}
	s.running.Go(s.sweep)
	if s.allow != nil {
		s.allow.Start()
	}
	if s.rewrite != nil {
		s.rewrite.Start()
	}
	if s.relay != nil {
		s.relay.Start()
	}
	for _, r := range s.remote {
		if err := r.Start(); err != nil {
			return fmt.Errorf("start remote write: %w", err)
		}
	}
	s.aggregator.Start()
	if err := s.startMembers(); err != nil {
		return err
	}
	if err := s.events.Start(ctx); err != nil {
		return err
	}
	s.push("points of events", s.events.Stop)
	if s.opts.SelfInterval > 0 && len(s.listeners) > 0 {
		s.running.Go(s.reportSelf)
	}
	if s.knowsMembers() {
		if err := s.listen(ctx); err != nil {
			return err
		}
	} else {
		s.waiting.Store(true)
		s.running.Go(s.listenLater)
	}
	s.serveQueries()
	return nil
}

// listen has the listeners take points.
func (s *Server) listen(ctx context.Context) error {
	for _, l := range s.listeners {
		if err := l.Start(ctx); err != nil {
			return fmt.Errorf("start a listener of metrics: %w", err)
		}
	}
	return nil
}

// Stop takes the parts down in reverse: first those that take points. It may be called twice, and before Start.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	s.stopped = true
	return s.unwind(ctx)
}

// loadBatch is how many names the index gets at a time.
const loadBatch = 10_000

// loadNames tells the index the names that the store has from before. Senders and queries need not wait for it.
func (s *Server) loadNames() {
	defer s.loading.Store(false)
	names := make([]string, 0, loadBatch)
	err := s.store.Names(s.life, func(name string) bool {
		if names = append(names, name); len(names) == loadBatch {
			slices.Sort(names)
			s.index.AddMany(names)
			names = names[:0]
		}
		return true
	})
	slices.Sort(names)
	s.index.AddMany(names)
	if s.handovers != nil {
		close(s.handovers.loaded)
	}
	if err != nil && s.life.Err() == nil {
		s.opts.Logger.Error("cannot read all names of stored series: queries by pattern find only some", "err", err)
	}
}

// sweep forgets series without points, and takes names out of the index whose data are gone.
func (s *Server) sweep() {
	tick := time.NewTicker(max(time.Second, s.opts.Forget/2))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.table.Sweep(s.opts.Forget)
			if s.store == nil {
				continue
			}
			if err := s.dropNames(); err != nil && s.life.Err() == nil {
				s.opts.Logger.Error("cannot compare the index with the stored series", "err", err)
			}
		case <-s.life.Done():
			return
		}
	}
}

// dropNames takes the names out of the index that the store has no data of any more.
func (s *Server) dropNames() error {
	stored, err := index.New(index.Options{})
	if err != nil {
		return err
	}
	// The index is read first: a name that comes in between is then not taken for a gone one.
	var gone []string
	before := make([]string, 0, s.index.Len())
	if err := s.index.All(s.life, func(name string) bool { before = append(before, name); return true }); err != nil {
		return err
	}
	if err := s.store.Names(s.life, func(name string) bool { stored.Add(name); return true }); err != nil {
		return err
	}
	for _, name := range before {
		if !stored.Has(name) && !s.store.Has(name) { // the first point of a series may wait in a queue
			gone = append(gone, name)
		}
	}
	for _, name := range gone {
		s.index.Remove(name)
	}
	return nil
}

// serveQueries answers at the port of queries.
func (s *Server) serveQueries() {
	if s.query == nil {
		return
	}
	mux := http.NewServeMux()
	all := View{All: true}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		v := all
		// Notes and tags may be written, as with graphite-web. Its delSeries only forgets tags; ours deletes data.
		v.Write = strings.Trim(r.URL.Path, "/") != "tags/delSeries"
		s.Graphite(w, r, v)
	})
	prom := func(w http.ResponseWriter, r *http.Request) {
		s.Prometheus(w, r, View{All: true, Write: s.opts.RemoteWriteIn})
	}
	mux.HandleFunc("/api/v1/", prom)
	mux.HandleFunc("/-/ready", prom)
	s.serveHealth(mux)
	if !s.opts.RemoteWriteIn {
		mux.HandleFunc("/api/v1/write", http.NotFound)
	}
	s.http = &http.Server{
		Handler: mux, ReadTimeout: 30 * time.Second, WriteTimeout: s.opts.QueryTimeout + 30*time.Second,
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 64 << 10,
	}
	s.running.Go(func() {
		if err := s.http.Serve(s.query); !errors.Is(err, http.ErrServerClosed) && s.life.Err() == nil {
			s.opts.Logger.Error("the listener for Graphite queries has failed", "err", err)
		}
	})
	s.push("Graphite queries", func(context.Context) error {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if s.http.Shutdown(ctx) != nil {
			_ = s.http.Close()
		}
		return nil
	})
}
