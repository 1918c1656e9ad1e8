// Package broker runs the embedded NATS server whose JetStream keeps definitions, the event log and the audit log.
// Package backend starts and stops it; config, eventlog and audit use its streams.
//
// The server runs in this process and is reached through an in-process connection: a single backend opens no port for
// it. Every write is synced to disk before it is acknowledged. A store that stops answering writes is closed and opened
// again (see Broker.TimedOut). What a stream holds is up to the package that owns it.
package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
)

// maxControlLine bounds a message's subject and reply subject together. The server closes a connection that exceeds it,
// so config refuses keys long before.
const maxControlLine = 64 << 10

// Options says where the broker keeps its data.
type Options struct {
	// Dir is the directory of the streams. Required.
	Dir string
	// Name is this server's name; it must differ between the backends of a cluster. Default "lapwing".
	Name string
	// MaxMessage bounds one message, in bytes. Default 8 MiB: a full buffer of the event log fits, and the largest event.
	MaxMessage int32
	// StartTimeout bounds the wait for the server to be ready, which includes reading its streams. Default 60 s.
	StartTimeout time.Duration
	Logger       *slog.Logger
	// Registerer takes the metrics. Default none.
	Registerer prometheus.Registerer
}

// Broker is the embedded server and this process's connection to it.
type Broker struct {
	opts    Options
	repairs prometheus.Counter
	rare    *rarelog.Log
	failed  chan error // capacity 1

	mu       sync.Mutex // guards the fields below
	srv      *server.Server
	conn     *nats.Conn
	js       jetstream.JetStream
	marks    map[string]*Mark
	stopping bool

	repairing sync.Mutex // held while the store is reopened
	repaired  time.Time  // when that was last done; guarded by repairing
}

// New checks the options; Start does the work.
func New(opts Options) (*Broker, error) {
	if opts.Dir == "" {
		return nil, errors.New("broker: no directory")
	}
	if opts.Name == "" {
		opts.Name = "lapwing"
	}
	if opts.MaxMessage == 0 {
		opts.MaxMessage = 8 << 20
	}
	if opts.StartTimeout == 0 {
		opts.StartTimeout = 60 * time.Second
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	log := opts.Logger.With("component", "broker")
	b := &Broker{opts: opts, rare: rarelog.New(log), failed: make(chan error, 1), marks: map[string]*Mark{}}
	b.repairs = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lapwing_broker_repairs_total", Help: "Times the broker's store was opened again because writes to it timed out.",
	})
	if opts.Registerer != nil {
		opts.Registerer.MustRegister(b.repairs, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "lapwing_broker_up", Help: "1 while the broker serves and this process is connected to it, else 0.",
		}, func() float64 {
			if b.Err() != nil {
				return 0
			}
			return 1
		}))
	}
	return b, nil
}

// Start runs the server and connects to it.
func (b *Broker) Start(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.srv != nil {
		return errors.New("start broker: already started")
	}
	srv, err := server.NewServer(&server.Options{
		ServerName: b.opts.Name,
		DontListen: true,
		NoSigs:     true,
		JetStream:  true,
		StoreDir:   b.opts.Dir,
		SyncAlways: true,
		MaxPayload: b.opts.MaxMessage,

		MaxControlLine: maxControlLine,
		// The limits are not ours to guess: the event log watches the disk itself and is trimmed by position.
		JetStreamMaxStore:  1 << 50,
		JetStreamMaxMemory: 1 << 30,
	})
	if err != nil {
		return fmt.Errorf("start broker in %s: %w", b.opts.Dir, err)
	}
	srv.SetLoggerV2(serverLog{b.opts.Logger.With("component", "broker")}, false, false, false)
	srv.Start()
	if !srv.ReadyForConnections(b.opts.StartTimeout) || !srv.JetStreamEnabled() {
		srv.Shutdown()
		srv.WaitForShutdown()
		return fmt.Errorf("start broker in %s: not ready after %s; its log says why", b.opts.Dir, b.opts.StartTimeout)
	}
	conn, err := nats.Connect("", nats.InProcessServer(srv), nats.MaxReconnects(-1), nats.Name("lapwing backend"),
		nats.ReconnectWait(100*time.Millisecond), nats.ClosedHandler(b.connectionClosed))
	if err != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
		return fmt.Errorf("connect to broker: %w", err)
	}
	js, err := jetstream.New(conn)
	if err != nil {
		conn.Close()
		srv.Shutdown()
		srv.WaitForShutdown()
		return fmt.Errorf("connect to broker: %w", err)
	}
	b.srv, b.conn, b.js = srv, conn, js
	return nil
}

// connectionClosed runs when the connection is closed for good. The client library reconnects a broken connection by
// itself and gives up only when the server refused what was sent.
func (b *Broker) connectionClosed(conn *nats.Conn) {
	b.mu.Lock()
	stopping := b.stopping
	b.mu.Unlock()
	if stopping {
		return
	}
	b.failed <- errors.Join(errors.New("the connection to the broker was closed for good: the process must start again"), conn.LastError())
}

// Failed gets at most one error. After it the broker serves nothing and the process must end.
func (b *Broker) Failed() <-chan error { return b.failed }

// Stop closes the connection and waits for the server to end. It may be called more than once.
func (b *Broker) Stop() error {
	b.mu.Lock()
	if b.srv == nil {
		b.mu.Unlock()
		return nil
	}
	b.stopping = true
	conn, srv := b.conn, b.srv
	b.mu.Unlock()
	conn.Close()
	srv.Shutdown()
	srv.WaitForShutdown()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.srv = nil
	var errs []error
	for _, m := range b.marks {
		errs = append(errs, m.marker.Close())
	}
	clear(b.marks)
	return errors.Join(errs...)
}

const (
	// minRepairPause is the least time between the starts of two repairs.
	minRepairPause = 15 * time.Second
	// longOutage is how long writes must go unanswered before the store counts as broken. A store that is only busy,
	// for example when ten thousand agents register at once, answers some writes late; opening it again would stop all
	// answers for a while.
	longOutage = 15 * time.Second
)

// Outage measures for one writer how long the store has not answered. The zero value is ready.
type Outage struct {
	begin atomic.Int64 // Unix nanoseconds of the first write since the last answer that timed out; 0 if none did
}

// Answered ends the outage.
func (s *Outage) Answered() {
	if s.begin.Load() != 0 {
		s.begin.Store(0)
	}
}

// TimedOut notes that a write was not answered in time. It repairs the store when the outage has lasted long.
func (b *Broker) TimedOut(s *Outage) error {
	now := time.Now().UnixNano()
	if s.begin.CompareAndSwap(0, now) || time.Duration(now-s.begin.Load()) < longOutage {
		return nil
	}
	return b.repair()
}

// repair closes the store and opens it again, at most every 15 s. A stream that failed to write, for example on a full
// disk, takes no more writes until then, even when there is space again. Readers resume by themselves. No acknowledged
// write is lost: opening reads what is on disk.
func (b *Broker) repair() error {
	b.repairing.Lock()
	defer b.repairing.Unlock()
	if time.Since(b.repaired) < minRepairPause {
		return nil
	}
	b.mu.Lock()
	srv := b.srv
	b.mu.Unlock()
	if srv == nil {
		return nil
	}
	b.opts.Logger.Warn("writes to the broker's store time out: it is opened again", "component", "broker")
	b.repairs.Inc()
	opened := srv.JetStreamConfig()
	opened.StoreDir = b.opts.Dir // the server appends its own directory to it
	err := srv.ShutdownJetStream()
	if err == nil {
		err = srv.EnableJetStream(opened)
	}
	b.repaired = time.Now()
	if err != nil {
		return fmt.Errorf("open broker's store again: %w", err)
	}
	return nil
}

// headerRoom is the part of a message that is kept for its headers, in bytes.
const headerRoom = 4096

// MaxPayload is the largest payload of a message, in bytes. More cannot be stored at once: package config bounds
// definitions with it, package eventlog records and batches of them.
func (b *Broker) MaxPayload() int { return int(b.opts.MaxMessage) - headerRoom }

// JetStream is the connection's stream interface, for packages config and eventlog. It is valid from Start on.
func (b *Broker) JetStream() jetstream.JetStream { return b.js }

// Err returns why the broker cannot serve, or nil.
func (b *Broker) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.srv == nil:
		return errors.New("broker is not running")
	case !b.srv.JetStreamEnabled():
		return errors.New("broker has disabled its store, most likely because the disk is full")
	case !b.conn.IsConnected():
		return errors.New("broker connection is down")
	}
	return nil
}

// serverLog hands the server's log lines to slog. The server's notices do not help the operator of a single backend, so
// they are debug lines here.
type serverLog struct{ log *slog.Logger }

func (l serverLog) Noticef(f string, v ...any) {
	l.log.Debug("broker notice", "text", fmt.Sprintf(f, v...))
}
func (l serverLog) Warnf(f string, v ...any) {
	if strings.Contains(f, "Missing stream metafile") { // the files were checked before, and the stream's owner writes it anew
		l.Noticef(f, v...)
		return
	}
	l.log.Warn("broker warning", "text", fmt.Sprintf(f, v...))
}
func (l serverLog) Fatalf(f string, v ...any) {
	l.log.Error("broker failed", "text", fmt.Sprintf(f, v...))
}
func (l serverLog) Errorf(f string, v ...any) {
	l.log.Error("broker error", "text", fmt.Sprintf(f, v...))
}
func (l serverLog) Debugf(f string, v ...any) {
	l.log.Debug("broker debug", "text", fmt.Sprintf(f, v...))
}
func (l serverLog) Tracef(f string, v ...any) {}
