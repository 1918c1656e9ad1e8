package agent

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// notFound is the name in an entity_config for an agent that the backend does not know yet. No entity can have it.
const notFound = "not found"

// TransportOptions are the settings of a Transport. The callbacks run on the transport's goroutines: they must not
// block, and may call Send. All are optional. If the comment of a field does not say what 0 means, 0 or an empty value is
// replaced by the value of DefaultTransportOptions.
type TransportOptions struct {
	Name          string // of the agent; required
	Namespace     string
	Subscriptions []string
	User          string // credentials are left out if TLS has a certificate
	Password      string
	// ws or wss, port 8081 if none is given; tried in turn from a random one
	BackendURLs []string

	TLS              func() *tls.Config // called for each connection; default: system roots
	HandshakeTimeout time.Duration
	// HeartbeatInterval is the time between pings. HeartbeatTimeout is how long the connection is trusted after a pong; a
	// value no longer than the interval becomes 10/6 of the interval.
	HeartbeatInterval time.Duration
	HeartbeatTimeout  time.Duration
	// AnswerTimeout is how long a lapwing backend may leave the handshake or events, and then a ping, without any answer
	// before the transport goes to another backend. It counts only if there is another one, and this one has not slowed
	// the agent down.
	AnswerTimeout time.Duration
	// ConfigTimeout bounds how long sending waits after a connect for the backend's definition of the agent.
	ConfigTimeout time.Duration

	// Waits between attempts: RetryMin, then longer by RetryMultiplier and a random part, up to RetryMax.
	RetryMin        time.Duration
	RetryMax        time.Duration
	RetryMultiplier float64
	// InOrder tries the backends from the first one on after each lost connection, instead of in turn from a random
	// one, which spreads agents evenly. While connected to a later backend the transport retries the earlier ones, with
	// the same waits, and moves to the first that accepts it. It then ignores the members that a backend names.
	InOrder bool
	// MaxSession ends each connection at a random age between half of it and all of it, so that agents spread over the
	// backends again. 0 is never.
	MaxSession time.Duration

	// BatchDelay bounds how long an unchanged OK result or a keepalive waits to share a message to a lapwing backend.
	// Other events leave at once and take the waiting ones along. 0 is no wait.
	BatchDelay time.Duration
	// BufferEvents and BufferBytes bound the unacknowledged events.
	BufferEvents int
	BufferBytes  int
	// BufferAge bounds the age of an unacknowledged event. 0 is no bound.
	BufferAge time.Duration
	// SpoolDir keeps unacknowledged events on disk, so that they survive the process. It belongs to one transport
	// alone. Default none.
	SpoolDir string
	// SensuOnly uses Sensu's protocol even with a lapwing backend: an event counts as delivered once written.
	SensuOnly bool

	// OnConnect is called after a handshake, OnReady when events may be sent, OnDisconnect when a connection for which
	// OnConnect was called has ended. err is nil if Run's context ended.
	OnConnect    func(Connection)
	OnReady      func()
	OnDisconnect func(err error)
	// OnEntityConfig gets the agent's entity as the backend has it, or nil if the backend has none: before OnReady, and
	// at each change.
	OnEntityConfig func(*resource.EntityConfig)
	OnCheckRequest func(*resource.CheckRequest)
	// OnSchedule gets the checks that a lapwing backend leaves to the agent; with replace, those are all. It must not
	// keep the entries' bytes. The backend sends no requests for these checks, so a transport without OnSchedule runs
	// none of them.
	OnSchedule func(replace bool, entries []wire.ScheduleEntry)
	// OnMembers is called when a backend has named other members of its cluster than before.
	OnMembers func()
	// Acked reports that all events numbered seq and lower are delivered: durable at a lapwing backend, written to the
	// connection of another one.
	Acked func(seq uint64)

	Logger  *slog.Logger
	Metrics *Metrics // default: counted but not registered
}

// Connection describes an established connection.
type Connection struct {
	URL       string
	BackendID string
	Lapwing   bool // events travel in batches and are acknowledged
	Encoding  wire.Encoding
}

// Transport keeps one agent connected to a backend and delivers its events, at least once and in order. Agent and load
// generators use it. An idle one costs two goroutines and 12 KB in all (BenchmarkIdleTransport), so thousands fit in a
// process.
//
// With a lapwing backend each event stays in memory until the backend acknowledges it, and is sent again under its
// number after a reconnect. Sensu's protocol has no acknowledgement: there an event is kept until it is written.
type Transport struct {
	opts      TransportOptions
	log       *slog.Logger
	rare      *rarelog.Log // for messages that depend on events and the backend's input
	metrics   *Metrics
	addresses *addresses
	found     *found // the connection to use next; for Run, and for seek and move while they run
	seeking   backoff
	epoch     string // of this process's numbers; empty to send none

	batchBytes int // largest batch, unless one event is larger; for Run only

	outbox    outbox
	wake      chan struct{} // there may be events to send
	urgent    atomic.Bool   // and they must not wait for others
	greeted   atomic.Bool   // this connection has sent a keepalive
	connected atomic.Bool
	link      atomic.Pointer[link] // the connection, while it is served
	overflow  overflow

	mu      sync.Mutex          // guards failing
	failing map[string]struct{} // checks whose last result was not OK
}

// overflow logs once that the buffer is full, and once how many events that has cost.
type overflow struct {
	full  atomic.Bool
	count atomic.Int64 // events given up since
}

// DefaultTransportOptions returns the default settings.
func DefaultTransportOptions() TransportOptions {
	return TransportOptions{
		Namespace: "default", BackendURLs: []string{"ws://127.0.0.1:8081"},
		HandshakeTimeout: 15 * time.Second, HeartbeatInterval: 30 * time.Second, HeartbeatTimeout: 45 * time.Second,
		AnswerTimeout: 6 * time.Second, ConfigTimeout: 10 * time.Second,
		RetryMin: time.Second, RetryMax: 120 * time.Second, RetryMultiplier: 2,
		BatchDelay: time.Second, BufferEvents: 10_000, BufferBytes: 64 << 20,
	}
}

// NewTransport returns a Transport that is not connected; call Run.
func NewTransport(opts TransportOptions) (*Transport, error) {
	if opts.Name == "" {
		return nil, errors.New("transport: no agent name")
	}
	defaults := DefaultTransportOptions()
	opts.Namespace = cmp.Or(opts.Namespace, defaults.Namespace)
	if len(opts.BackendURLs) == 0 {
		opts.BackendURLs = defaults.BackendURLs
	}
	opts.HandshakeTimeout = cmp.Or(opts.HandshakeTimeout, defaults.HandshakeTimeout)
	opts.HeartbeatInterval = cmp.Or(opts.HeartbeatInterval, defaults.HeartbeatInterval)
	opts.HeartbeatTimeout = cmp.Or(opts.HeartbeatTimeout, defaults.HeartbeatTimeout)
	if opts.HeartbeatTimeout <= opts.HeartbeatInterval {
		opts.HeartbeatTimeout = opts.HeartbeatInterval * 10 / 6
	}
	opts.AnswerTimeout = cmp.Or(opts.AnswerTimeout, defaults.AnswerTimeout)
	opts.ConfigTimeout = cmp.Or(opts.ConfigTimeout, defaults.ConfigTimeout)
	opts.RetryMin = cmp.Or(opts.RetryMin, defaults.RetryMin)
	opts.RetryMax = cmp.Or(opts.RetryMax, defaults.RetryMax)
	opts.RetryMultiplier = cmp.Or(opts.RetryMultiplier, defaults.RetryMultiplier)
	opts.BufferEvents = cmp.Or(opts.BufferEvents, defaults.BufferEvents)
	opts.BufferBytes = cmp.Or(opts.BufferBytes, defaults.BufferBytes)
	for name, d := range map[string]time.Duration{
		"HandshakeTimeout": opts.HandshakeTimeout, "HeartbeatInterval": opts.HeartbeatInterval, "HeartbeatTimeout": opts.HeartbeatTimeout,
		"AnswerTimeout": opts.AnswerTimeout, "ConfigTimeout": opts.ConfigTimeout,
		"RetryMin": opts.RetryMin, "RetryMax": opts.RetryMax, "BatchDelay": opts.BatchDelay,
	} {
		if d < 0 {
			return nil, fmt.Errorf("transport: %s %v is negative", name, d)
		}
	}
	if opts.RetryMultiplier < 1 {
		return nil, fmt.Errorf("transport: RetryMultiplier %v is less than 1", opts.RetryMultiplier)
	}
	if opts.BufferEvents < 0 || opts.BufferBytes < 0 {
		return nil, errors.New("transport: BufferEvents or BufferBytes is negative")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Metrics == nil {
		opts.Metrics = NewMetrics(nil)
	}

	t := &Transport{
		opts:       opts,
		log:        opts.Logger.With("agent", opts.Name),
		metrics:    opts.Metrics,
		batchBytes: maxBatchBytes,
		outbox:     outbox{maxEvents: opts.BufferEvents, maxBytes: opts.BufferBytes, maxAge: opts.BufferAge},
		wake:       make(chan struct{}, 1),
	}
	t.rare = rarelog.New(t.log)
	if !opts.SensuOnly {
		t.epoch = fmt.Sprintf("%016x", 1+rand.Uint64N(math.MaxUint64)) // 0 means none
	}
	if opts.SpoolDir != "" {
		t.openSpool()
	}
	var err error
	if t.addresses, err = newAddresses(opts.BackendURLs, opts.InOrder); err != nil {
		return nil, fmt.Errorf("transport: %w", err)
	}
	return t, nil
}

// openSpool restores what an earlier process left. If the spool fails, the agent continues without it.
func (t *Transport) openSpool() {
	t.outbox.trouble = func(err error) {
		if err != nil {
			t.log.Error("events that wait for a backend are kept in memory only: the spool cannot be written", "dir", t.opts.SpoolDir, "err", err)
			return
		}
		t.log.Info("events that wait for a backend are on disk again", "dir", t.opts.SpoolDir)
	}
	s, entries, damaged, err := openSpool(t.opts.SpoolDir)
	if err != nil {
		t.log.Error("events that wait for a backend are kept in memory only: the spool cannot be opened", "dir", t.opts.SpoolDir, "err", err)
		return
	}
	if !s.broken.IsZero() {
		t.log.Error("events that wait for a backend are kept in memory until the disk of the spool has room", "dir", t.opts.SpoolDir)
	}
	if damaged != nil {
		t.log.Error("the spool is damaged: events in it were lost", "dir", t.opts.SpoolDir, "saved", len(entries), "err", damaged)
	}
	t.outbox.restore(s, entries)
	t.metrics.buffered.Add(float64(len(entries)))
	if t.epoch != "" {
		t.epoch = fmt.Sprintf("%016x", s.epoch)
	}
	if len(entries) > 0 {
		t.log.Info("events of an earlier run wait for a backend", "count", len(entries))
	}
}

// Close releases the spool. The Transport must not be used any more.
func (t *Transport) Close() error {
	t.outbox.mu.Lock()
	defer t.outbox.mu.Unlock()
	if t.outbox.spool == nil {
		return nil
	}
	s := t.outbox.spool
	t.outbox.spool = nil
	return s.close()
}

// handshakeHeader is built for each attempt, to save memory in between.
func (t *Transport) handshakeHeader(c *tls.Config) http.Header {
	opts := &t.opts
	h := http.Header{}
	h.Set(wire.HeaderAgentName, opts.Name)
	h.Set(wire.HeaderNamespace, opts.Namespace)
	h.Set(wire.HeaderSubscriptions, strings.Join(opts.Subscriptions, ","))
	h.Set("Accept", wire.ContentType(wire.Protobuf))
	// A backend that authenticates agents by certificate must not get the default password.
	if c == nil || len(c.Certificates) == 0 && c.GetClientCertificate == nil {
		h.Set(wire.HeaderUser, opts.User)
		h.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(opts.User+":"+opts.Password)))
	}
	if t.epoch != "" {
		h.Set(wire.HeaderProtocol, wire.ProtocolVersion)
		h.Set(wire.HeaderEpoch, t.epoch)
		h.Set(wire.HeaderMembers, wire.MembersFollow)
		if opts.InOrder {
			h.Set(wire.HeaderMembers, wire.MembersStay)
		}
	}
	return h
}

// Send takes an event for delivery and returns its number, counted from 1 for the life of the Transport. It encodes the
// event at once; the event remains the caller's. Send waits for no backend. With a spool it waits for a write to disk,
// and sometimes for a rewrite of the file after a long outage. When the buffer is full, an older event is given up.
func (t *Transport) Send(ev *resource.Event) (seq uint64) {
	return t.send(checkOf(ev), ev, false)
}

// SendReceipt reports to a connected lapwing backend what became of a turn. It waits for nothing and keeps nothing: a
// receipt is lost if no such backend is connected, if the connection ends first, or if too many wait because the backend
// does not read. The backend then gives the turn to another agent after a time.
func (t *Transport) SendReceipt(r *wire.Receipt) {
	if l := t.link.Load(); l != nil && l.about.Lapwing {
		l.addReceipt(r)
		t.wakeWriter()
	}
}

// SendKeepalive is Send for a keepalive. It is useful only while connected.
func (t *Transport) SendKeepalive(ev *resource.Event) (seq uint64) {
	return t.send(keepaliveCheck, ev, true)
}

func (t *Transport) send(check string, ev *resource.Event, keepalive bool) uint64 {
	scratch := scratches.Get().(*[]byte)
	*scratch = ev.AppendProto((*scratch)[:0])
	item := wire.Item{Keepalive: keepalive, Event: bytes.Clone(*scratch)} // in its exact size: it may be held for long
	if cap(*scratch) <= keepBatch {
		scratches.Put(scratch)
	}
	seq, dropped, more := t.outbox.add(check, item)
	t.metrics.buffered.Add(float64(more))
	t.giveUp(dropped)
	if t.isUrgent(check, ev, keepalive) {
		t.urgent.Store(true)
	}
	t.wakeWriter()
	return seq
}

// isUrgent reports whether an event must leave at once: a failure or its end, metrics without a check, and the first
// keepalive on a connection. A recovery from a failure before this process began is not recognised.
func (t *Transport) isUrgent(check string, ev *resource.Event, keepalive bool) bool {
	if keepalive {
		return !t.greeted.Swap(true)
	}
	if ev.Check == nil {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if ev.Check.Status != statusOK {
		if t.failing == nil {
			t.failing = map[string]struct{}{}
		}
		t.failing[check] = struct{}{}
		return true
	}
	_, failed := t.failing[check]
	delete(t.failing, check)
	return failed
}

// giveUp counts events that were dropped for newer ones.
func (t *Transport) giveUp(n int) {
	if n == 0 {
		return
	}
	t.metrics.dropped.Add(float64(n))
	t.overflow.count.Add(int64(n))
	if !t.overflow.full.Swap(true) {
		t.log.Warn("event buffer full: older events are given up until a backend takes them", "events", t.opts.BufferEvents, "bytes", t.opts.BufferBytes)
	}
}

// scratches pools buffers for encoding events.
var scratches = sync.Pool{New: func() any { return new([]byte) }}

// checkOf returns the check that an event is about, or a name for keepalives.
func checkOf(ev *resource.Event) string {
	if ev.Check == nil {
		return ""
	}
	return checkKey(ev.Check.Metadata.Name, ev.Check.ProxyEntityName)
}

func checkKey(check, proxyEntity string) string {
	if proxyEntity == "" {
		return check
	}
	return check + "/" + proxyEntity
}

func (t *Transport) wakeWriter() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Buffered is the number of events that are not delivered yet.
func (t *Transport) Buffered() int { return t.outbox.len() }

// Connected reports whether a connection is up.
func (t *Transport) Connected() bool { return t.connected.Load() }

// Run connects, and reconnects whenever the connection is lost, until ctx ends. It then sends the events that wait to
// share a message and closes with code 1001. Undelivered events stay in the buffer for another Run. Only one Run may be
// active.
func (t *Transport) Run(ctx context.Context) {
	retry := backoff{min: t.opts.RetryMin, max: t.opts.RetryMax, multiplier: t.opts.RetryMultiplier}
	t.seeking = retry
	for {
		started := time.Now()
		at, err := t.connect(ctx)
		if ctx.Err() != nil {
			t.found.close()
			t.found = nil
			return
		}
		lasted := time.Since(started)
		_, worked := errors.AsType[*lostError](err)
		worked = worked && lasted >= t.opts.RetryMin
		away := sentAway(err)
		if worked {
			retry.reset()
			t.addresses.left(at.url, away, t.opts.InOrder)
			if at.at == 0 && lasted >= t.opts.RetryMax {
				t.seeking.reset()
			}
		}
		if t.found != nil {
			continue
		}
		// Asking the same backend again is pointless, but each of the others can be asked at once. So can they after a
		// member that is out of reach.
		_, unreached := errors.AsType[*dialError](err)
		over := t.addresses.over()
		if !over && (away || unreached && at.member) {
			t.log.Info("backend does not take this agent: trying the next one", "url", at.url, "err", err)
			continue
		}
		if worked {
			t.log.Warn("not connected to a backend", "err", err)
			continue // a connection that worked for a while is replaced without a wait
		}
		pause := retry.wait()
		t.log.Warn("not connected to a backend", "err", err, "next_attempt_in", pause.Round(time.Millisecond))
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// dialError says that no handshake was made.
type dialError struct{ cause error }

func (e *dialError) Error() string { return e.cause.Error() }
func (e *dialError) Unwrap() error { return e.cause }

// lostError is the end of a connection that had become ready.
type lostError struct{ cause error }

func (e *lostError) Error() string { return "connection lost: " + e.cause.Error() }
func (e *lostError) Unwrap() error { return e.cause }

// sentAway reports whether a backend accepts no agents for now because it drains, stops or stands still.
func sentAway(err error) bool {
	if refused, ok := errors.AsType[*wire.HandshakeError](err); ok {
		return refused.Status == http.StatusServiceUnavailable
	}
	closed, ok := errors.AsType[*wire.CloseError](err)
	return ok && closed.Code == wire.CloseGoingAway || errors.Is(err, errParted) || errors.Is(err, errSilent)
}

// found is a new connection that is not served yet.
type found struct {
	conn   *wire.Conn
	answer http.Header
	at     address
}

func (f *found) close() {
	if f != nil {
		_ = f.conn.Close(wire.CloseGoingAway, "bye")
	}
}

// connect makes one attempt to connect and serves the connection until it ends. It returns the backend's address. The
// error is never nil, unless ctx has ended.
func (t *Transport) connect(ctx context.Context) (at address, err error) {
	f := t.found
	t.found = nil
	if f == nil {
		at = t.addresses.pick()
		if f, err = t.dial(ctx, at); err != nil {
			return at, err
		}
	}
	target, answer := f.at.url, f.answer
	about := Connection{
		URL:       target,
		BackendID: answer.Get(wire.HeaderBackendID),
		Lapwing:   !t.opts.SensuOnly && answer.Get(wire.HeaderProtocol) == wire.ProtocolVersion,
		Encoding:  wire.JSON,
	}
	if slices.Contains(answer.Values("Accept"), wire.ContentType(wire.Protobuf)) {
		about.Encoding = wire.Protobuf
	}
	t.log.Info("connected to a backend", "url", target, "backend", about.BackendID, "lapwing", about.Lapwing, "encoding", wire.ContentType(about.Encoding))

	l := newLink(t, f.conn, about)
	t.connected.Store(true)
	t.metrics.connected.Inc()
	if t.opts.OnConnect != nil {
		t.opts.OnConnect(about)
	}
	unseek := func() {}
	if t.opts.InOrder && f.at.at > 0 {
		unseek = t.seek(ctx, f.at.at, l)
	}
	err = l.serve(ctx)
	unseek()
	t.metrics.connected.Dec()
	t.connected.Store(false)
	if t.opts.OnDisconnect != nil {
		t.opts.OnDisconnect(err)
	}
	l.moving.Wait()
	return f.at, err
}

// seek tries the backends preferred to the one that l is connected to, until one accepts or the caller ends it. Then
// the new connection is stored in found, and l parts.
func (t *Transport) seek(ctx context.Context, at int, l *link) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(t.seeking.wait()):
			}
			for i, better := range t.addresses.configured[:at] {
				f, err := t.dial(ctx, address{url: better, at: i})
				if err == nil {
					t.found = f
					l.part()
					return
				}
				t.log.Debug("a preferred backend does not take this agent yet", "url", better, "err", err)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// move connects to the member that the backend has asked the agent to move to. Then the new connection is stored in
// found, and l parts. If the member cannot be reached, the agent stays.
func (t *Transport) move(ctx context.Context, member string, l *link) {
	f, err := t.dial(ctx, address{url: member, member: true, at: -1})
	if err != nil {
		t.log.Info("asked to move to a backend that does not take this agent: staying", "url", member, "err", err)
		return
	}
	t.log.Info("moving to another backend, as asked", "url", member)
	t.found = f
	l.part()
}

// otherTimeout bounds a handshake while there are other backends to try, and with a member, which may be out of the
// agent's reach.
const otherTimeout = 5 * time.Second

// dial makes the handshake on its own goroutine. Run's goroutine lives as long as the agent and would keep the stack
// that a handshake needs.
func (t *Transport) dial(ctx context.Context, at address) (f *found, err error) {
	f = &found{at: at}
	timeout := t.opts.HandshakeTimeout
	if at.at < 0 || !t.addresses.over() {
		timeout = min(timeout, otherTimeout)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var config *tls.Config
		if t.opts.TLS != nil {
			config = t.opts.TLS()
		}
		f.conn, f.answer, err = wire.Dial(ctx, at.url, t.handshakeHeader(config), wire.DialOptions{
			TLSConfig:        config,
			HandshakeTimeout: timeout,
		})
	}()
	<-done
	_, answered := errors.AsType[*wire.HandshakeError](err)
	t.addresses.reached(at.url, err == nil || answered)
	if err != nil {
		t.metrics.connects.WithLabelValues("error").Inc()
		return nil, &dialError{err}
	}
	t.metrics.connects.WithLabelValues("ok").Inc()
	return f, nil
}

// Members returns the members of the cluster that a backend has named last.
func (t *Transport) Members() []string { return t.addresses.known() }

// Recall takes what Members returned in an earlier process. It is called before Run.
func (t *Transport) Recall(members []string) { t.addresses.recall(members) }

// refused removes an event that the backend refuses for good, and logs it.
func (t *Transport) refused(seq uint64, reason string) {
	gone, ok := t.outbox.giveUp(seq)
	if !ok {
		return // acknowledged or given up before
	}
	t.metrics.refused.Inc()
	t.metrics.buffered.Dec()
	t.rare.Warn("the backend refused an event for good: it is not sent again", gone.check, "check", gone.check, "bytes", gone.size,
		"reason", reason)
}

// delivered removes acknowledged events and calls Acked.
func (t *Transport) delivered(seq uint64) {
	n, last := t.outbox.ack(seq)
	if t.overflow.full.Load() && t.outbox.roomy() && t.overflow.full.Swap(false) {
		t.log.Info("event buffer has room again", "given_up", t.overflow.count.Swap(0))
	}
	t.metrics.acked.Add(float64(n))
	t.metrics.buffered.Sub(float64(n))
	if t.opts.Acked != nil {
		t.opts.Acked(last)
	}
}

// encoded is an encoded event, ready as a message.
type encoded []byte

func (e encoded) AppendProto(b []byte) []byte { return append(b, e...) }

func (e encoded) UnmarshalProto([]byte) error {
	return errors.New("an encoded event cannot be decoded into")
}

func (e encoded) MarshalJSON() ([]byte, error) {
	var ev resource.Event
	if err := ev.UnmarshalProto(e); err != nil {
		return nil, fmt.Errorf("decode buffered event: %w", err)
	}
	return json.Marshal(&ev)
}
