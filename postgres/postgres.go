// Package postgres writes what happens into PostgreSQL, for reports over months: the latest event of each check, all
// events and changes of state, notifications, and the definitions of entities, checks and silences as they changed.
//
// The database is a projection: lapwing never waits for it and needs nothing of it. The fold's changes go into a journal
// on disk (package journal), and a Projection copies the journal in batches. Each transaction moves the positions of the
// partitions whose rows it has, so each change is written once, whatever crashes. The owner of a partition writes it.
// While PostgreSQL is away, or another owner was meant to write, the journal keeps the changes.
//
// A Reader reads the changes of checks' states, for reports and the histories of single checks (report.Source).
//
// The backend starts the journal before the fold and the Projection after it. Tables are in the schema lapwing_data, the
// views for people in lapwing (schema/). DESIGN.md has what was measured and refused.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/notification"
	"github.com/lapwing-monitoring/lapwing/postgres/journal"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// Settings are what an operator may change while the backend runs.
type Settings struct {
	// DSN names the database: a URL, or keywords and values. "" for none.
	DSN string
	// Events, Changes and Notifications are how long the rows of each are kept; 0 is for ever.
	Events, Changes, Notifications time.Duration
	// PoolSize bounds the connections of a Reader; 0 is 4. ConnLifetime is how long each is used; 0 is for ever.
	PoolSize     int
	ConnLifetime time.Duration
}

// check looks at all but the DSN: whether that can be used depends on files, too, which may be there later.
func (s Settings) check() error {
	if s.Events < 0 || s.Changes < 0 || s.Notifications < 0 {
		return errors.New("how long rows are kept must not be negative")
	}
	if s.PoolSize < 0 || s.ConnLifetime < 0 {
		return errors.New("the size of the pool and the life of its connections must not be negative")
	}
	return nil
}

// CheckDSN returns why a DSN cannot be used now. The text has no part of it.
func CheckDSN(dsn string) error {
	_, err := resource.ParseDSN(dsn, pgx.ParseConfig)
	return err
}

// Options configures a Projection. If the comment of a field does not say what 0 means, 0 is replaced by the value of
// DefaultOptions.
type Options struct {
	// Journal has the changes. Required.
	Journal *journal.Journal
	// State has the latest events. Required.
	State *state.State
	// Member names this backend in the database. Required.
	Member string
	// Owns reports whether this backend writes a partition, and by which roster. Required.
	Owns func(partition int) (roster uint64, owns bool)
	// Definitions returns all definitions. Nil: none are written.
	Definitions func() *config.Snapshot
	// ActsDefinitions reports whether this backend writes definitions. Required with Definitions.
	ActsDefinitions func() bool
	// Notifications are this backend's own, which it copies. Nil: none are written.
	Notifications *notification.Store
	// MemberID names this backend in the database for ever, whatever its name becomes. Required with Notifications.
	MemberID string
	// Interval is the least time between two transactions.
	Interval time.Duration
	// BatchEvents and BatchBytes bound a transaction.
	BatchEvents, BatchBytes int
	// Share is the part of its time that the writer works while it catches up, in percent: the backend and PostgreSQL
	// need the processors, too.
	Share int
	// ConnectTimeout bounds a connection attempt, and Timeout a transaction.
	ConnectTimeout, Timeout time.Duration
	// RetryMax is the longest time between two attempts to connect.
	RetryMax time.Duration
	// Patience is how long the writer waits for another member to write what its own journal does not have.
	Patience   time.Duration
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// DefaultOptions returns the default settings.
func DefaultOptions() Options {
	return Options{
		Interval: 400 * time.Millisecond, BatchEvents: 10_000, BatchBytes: 8 << 20, Share: 50, ConnectTimeout: 10 * time.Second,
		Timeout: 2 * time.Minute, RetryMax: 15 * time.Second, Patience: 30 * time.Second,
	}
}

// Projection writes the journal into PostgreSQL.
type Projection struct {
	opts    Options
	log     *slog.Logger
	rare    *rarelog.Log
	metrics metrics
	streams []uint64

	firstNewest uint64 // the newest notification when the backend started
	notified    bool   // the writer has copied notifications since then; only the writer uses it

	diary diary

	refused  int       // changes since refusing; only the writer uses both
	refusing time.Time // when the present hour of refusals began

	mu       sync.Mutex // guards the fields below
	settings Settings
	current  context.Context // ends when the settings are replaced
	replace  context.CancelFunc
	status   Status
	upTo     time.Time // all that was received before is written, of what this backend writes
	failing  time.Time // since when nothing was written, or not all; zero if all is

	lifecycle sync.Mutex // guards the fields below
	started   bool
	stopped   bool
	cancel    context.CancelFunc
	done      sync.WaitGroup
}

// Status is how far PostgreSQL is.
type Status struct {
	// Configured is false without a DSN.
	Configured bool `json:"configured"`
	// Server is the address of the database, without the password.
	Server string `json:"server,omitempty"`
	// Connected is set while transactions succeed, Error has why the last attempt failed, and Since when it first did.
	Connected bool      `json:"connected"`
	Error     string    `json:"error,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	// Lag is how long ago the oldest change was received that this backend has to write and has not, in seconds.
	Lag float64 `json:"lag"`
	// Positions has the newest written message of each partition.
	Positions []uint64 `json:"positions"`
	// Gaps counts the ranges that were skipped since the start.
	Gaps int `json:"gaps"`
	// Journal has the changes that are not written yet.
	Journal journal.Usage `json:"journal"`
}

// New checks the options.
func New(opts Options) (*Projection, error) {
	if opts.Journal == nil || opts.State == nil || opts.Member == "" || opts.Owns == nil {
		return nil, errors.New("postgres: journal, state, member and owns are required")
	}
	if opts.Definitions != nil && opts.ActsDefinitions == nil {
		return nil, errors.New("postgres: Definitions need ActsDefinitions")
	}
	if opts.Notifications != nil && opts.MemberID == "" {
		return nil, errors.New("postgres: Notifications need MemberID")
	}
	defaults := DefaultOptions()
	for _, o := range []struct{ v, d *time.Duration }{
		{&opts.Interval, &defaults.Interval}, {&opts.ConnectTimeout, &defaults.ConnectTimeout},
		{&opts.Timeout, &defaults.Timeout}, {&opts.RetryMax, &defaults.RetryMax}, {&opts.Patience, &defaults.Patience},
	} {
		if *o.v == 0 {
			*o.v = *o.d
		}
	}
	for _, o := range []struct{ v, d *int }{
		{&opts.BatchEvents, &defaults.BatchEvents}, {&opts.BatchBytes, &defaults.BatchBytes}, {&opts.Share, &defaults.Share},
	} {
		if *o.v == 0 {
			*o.v = *o.d
		}
	}
	if opts.Share < 1 || opts.Share > 100 {
		return nil, fmt.Errorf("postgres: Share is %d, from 1 to 100 is possible", opts.Share)
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Projection{opts: opts, log: opts.Logger.With("component", "postgres"), streams: opts.Journal.Streams(), upTo: time.Now()}
	if opts.Notifications != nil {
		p.firstNewest = opts.Notifications.Newest()
	}
	p.current, p.replace = context.WithCancel(context.Background())
	p.rare = rarelog.New(p.log)
	p.metrics = newMetrics(opts.Registerer, p)
	return p, nil
}

// Configure replaces the settings. The writer connects anew. If the DSN cannot be used, for example because a file is
// missing that it names, the writer tries again as after any other failure, and the journal keeps the changes.
func (p *Projection) Configure(s Settings) error {
	if err := s.check(); err != nil {
		return err
	}
	if s.DSN != "" {
		if err := p.opts.Journal.SwitchOn(); err != nil {
			return err
		}
	} else {
		p.opts.Journal.SwitchOff()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s != p.settings {
		p.replace()
		p.settings, p.status, p.upTo, p.failing = s, Status{Configured: s.DSN != ""}, time.Now(), time.Time{}
		p.current, p.replace = context.WithCancel(context.Background())
	}
	return nil
}

// Start begins to write. It does not wait for PostgreSQL.
func (p *Projection) Start(context.Context) error {
	p.lifecycle.Lock()
	defer p.lifecycle.Unlock()
	if p.started || p.stopped {
		return errors.New("start projection: started or stopped before")
	}
	p.started = true
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	p.done.Go(func() { p.run(ctx) })
	if p.opts.Definitions != nil {
		p.done.Go(func() { p.keepDiary(ctx) })
	}
	return nil
}

// Stop ends the writer. A transaction that is under way is given up.
func (p *Projection) Stop() error {
	p.lifecycle.Lock()
	defer p.lifecycle.Unlock()
	p.stopped = true
	if p.started {
		p.cancel()
		p.mu.Lock()
		p.replace()
		p.mu.Unlock()
		p.done.Wait()
	}
	return nil
}

// Status returns how far PostgreSQL is.
func (p *Projection) Status() Status {
	usage := p.opts.Journal.Usage()
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.status
	s.Journal = usage
	s.Positions = append([]uint64{}, s.Positions...)
	if s.Configured && !p.upTo.IsZero() {
		s.Lag = time.Since(p.upTo).Seconds()
	}
	return s
}

// run connects, writes until something fails, and begins again.
func (p *Projection) run(ctx context.Context) {
	for wait := time.Second; ctx.Err() == nil; {
		p.mu.Lock()
		settings, current := p.settings, p.current
		p.mu.Unlock()
		if settings.DSN == "" {
			<-current.Done()
			continue
		}
		begun := time.Now()
		err := p.session(current, settings)
		if current.Err() != nil {
			wait = time.Second
			continue
		}
		p.failed(err)
		if wait = min(2*wait, p.opts.RetryMax); time.Since(begun) > time.Minute {
			wait = time.Second
		}
		select {
		case <-time.After(wait):
		case <-current.Done():
		}
	}
}

const (
	lags = "PostgreSQL lags: events go on, and are written to it later"
	// caughtUp is the lag below which PostgreSQL is said to have all changes.
	caughtUp = 5 * time.Second
)

// failed notes why nothing is written.
func (p *Projection) failed(err error) {
	p.metrics.failures.Inc()
	p.rare.Warn(lags, "postgres", "err", err)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.status.Error == "" {
		p.status.Since = time.Now()
	}
	if p.failing.IsZero() {
		p.failing = p.status.Since
	}
	p.status.Connected, p.status.Error = false, err.Error()
}

// wrote notes that all events are written that were received before a time. beside is why definitions or notifications
// are not.
func (p *Projection) wrote(upTo time.Time, positions []uint64, beside error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upTo = upTo
	if !p.failing.IsZero() {
		p.recovered()
	}
	p.status.Connected = true
	if beside == nil {
		p.status.Error, p.status.Since = "", time.Time{}
	} else if p.status.Error == "" {
		p.status.Error, p.status.Since = beside.Error(), time.Now()
	}
	p.status.Positions = append(p.status.Positions[:0], positions...)
}

// recovered logs that PostgreSQL takes changes again, and when it has all of them. The caller holds mu.
func (p *Projection) recovered() {
	behind := time.Since(p.upTo)
	switch {
	case behind < caughtUp:
		p.log.Info("PostgreSQL has all changes again", "after", time.Since(p.failing).Round(time.Second))
		p.failing = time.Time{}
	case !p.status.Connected:
		p.log.Info("PostgreSQL takes changes again, and lags", "behind", behind.Round(time.Second))
	}
	p.rare.Over(lags, "postgres")
}
