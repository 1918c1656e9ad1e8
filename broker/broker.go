// Package broker runs the embedded NATS server whose JetStream keeps definitions, the event log and the audit log.
// Package backend starts and stops it; config, eventlog and audit use its streams, and package cluster its Bus. With
// Options.External it runs no server: the streams are those of NATS servers that are run beside lapwing (external.go).
//
// The server runs in this process and is reached through an in-process connection. A backend that is alone opens no
// port for it. With Options.Cluster the servers of several backends (the members) form one JetStream cluster: their
// streams are replicated, and each member serves reads from its own replica.
//
// Every write is synced to disk before it is acknowledged; in a cluster the raft log of a majority is. A store that
// stops answering writes is closed and opened again (see Broker.TimedOut). What a stream holds is up to the package
// that owns it, and so is what the members say to each other.
package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
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
	// Dir is the directory of the streams. Required, except with External.
	Dir string
	// Name is this server's name. In a cluster it is required and belongs to this member and its directory alone: a
	// member whose directory is empty needs a new name, because the others know what the old one has acknowledged.
	// Default "lapwing".
	Name string
	// MaxMessage bounds one message, in bytes. Default 8 MiB: a full buffer of the event log fits, and the largest event.
	MaxMessage int32
	// StartTimeout bounds the wait for the server to be ready, which includes reading its streams. Default 60 s.
	StartTimeout time.Duration
	// Unsynced has writes acknowledged before they are on the disk. The caller syncs the files once the broker has
	// stopped. For filling new streams.
	Unsynced bool
	Logger   *slog.Logger
	// Registerer takes the metrics. Default none.
	Registerer prometheus.Registerer
	// Cluster makes the server a member of a cluster. Default nil: it is alone.
	Cluster *Cluster
	// External has the broker use NATS servers that are run beside lapwing, and run none. Default nil.
	External *External
	// Waiting is called with what Start and OpenStream wait for, whenever that changes. Default: it is only logged.
	Waiting func(what string)
}

// Broker is the embedded server and this process's connection to it, or only a connection to NATS servers.
type Broker struct {
	opts    Options
	log     *slog.Logger
	access  *access // of a cluster's member; nil alone
	repairs prometheus.Counter
	moved   prometheus.Counter // leaders that were given away
	rebuilt prometheus.Counter // replicas that stood still
	rare    *rarelog.Log
	failed  chan error            // capacity 1
	denied  atomic.Pointer[error] // what NATS servers have refused last that the account may not use
	current current

	life     context.Context // ends with Stop
	end      context.CancelFunc
	stopOnce sync.Once
	stopErr  error // of Stop
	tasks    sync.WaitGroup

	mu       sync.Mutex     // guards the fields below
	srv      *server.Server // nil with Options.External
	store    server.JetStreamConfig
	routes   []string // that the server of a cluster's member makes
	port     int      // where it takes those of the others
	conn     *nats.Conn
	js       jetstream.JetStream
	marks    map[string]*Mark
	opened   map[string]struct{} // streams that OpenStream has opened
	gathered time.Time           // when a majority of the members had answered; only in a cluster
	cluster  string              // the mark of the cluster that the store belongs to; see Broker.gather
	brings   string              // the id of the data that this member is about to bring, "" for none
	filled   []string            // the streams that it has made for them, in order
	expects  string              // the member that is about to bring data, "" for none
	stopping bool

	describing sync.Mutex // held while the description of a stream is replaced

	repairing sync.Mutex              // held while the store is reopened; guards the fields below
	repaired  time.Time               // when that was last done
	stuck     map[string]*stuckStream // by stream; only in a cluster
}

// New checks the options; Start does the work.
func New(opts Options) (*Broker, error) {
	if opts.Dir == "" && opts.External == nil {
		return nil, errors.New("broker: no directory")
	}
	if opts.External != nil {
		if opts.Cluster != nil {
			return nil, errors.New("broker: members have no servers of their own with NATS servers that are run beside lapwing")
		}
		e := opts.External
		if err := errors.Join(e.CheckURLs(), e.CheckPrefix(), e.CheckReplicas()); err != nil {
			return nil, fmt.Errorf("broker: NATS servers: %w", err)
		}
		external := *opts.External
		external.Prefix = cmp.Or(external.Prefix, DefaultPrefix)
		opts.External = &external
	}
	if opts.Cluster != nil {
		if err := opts.Cluster.check(opts.Name); err != nil {
			return nil, fmt.Errorf("broker: %w", err)
		}
	}
	opts.Name = cmp.Or(opts.Name, "lapwing")
	opts.MaxMessage = cmp.Or(opts.MaxMessage, 8<<20)
	opts.StartTimeout = cmp.Or(opts.StartTimeout, 60*time.Second)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Waiting == nil {
		opts.Waiting = func(string) {}
	}
	log := opts.Logger.With("component", "broker")
	b := &Broker{
		opts: opts, log: log, rare: rarelog.New(log), failed: make(chan error, 1),
		marks: map[string]*Mark{}, opened: map[string]struct{}{}, stuck: map[string]*stuckStream{},
	}
	if opts.Cluster != nil {
		b.brings = opts.Cluster.Brings
	}
	b.life, b.end = context.WithCancel(context.Background())
	b.repairs = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lapwing_broker_repairs_total", Help: "Times the broker's store was opened again because writes to it timed out.",
	})
	b.moved = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lapwing_broker_leaders_moved_total",
		Help: "Streams whose leadership this member gave away because it led more than its share.",
	})
	b.rebuilt = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lapwing_broker_replicas_rebuilt_total",
		Help: "Replicas of this member that were dropped and made anew because they stood still.",
	})
	if opts.Registerer != nil {
		opts.Registerer.MustRegister(b.repairs, b.moved, b.rebuilt, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
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

// Start runs the server and connects to it. In a cluster it waits until a majority of the members has a leader, and with
// External until the servers answer, for as long as ctx allows. It logs and passes to Options.Waiting what it waits for.
// Stop ends the wait.
func (b *Broker) Start(ctx context.Context) error {
	if b.opts.External != nil {
		return b.startExternal(ctx)
	}
	if err := b.checkDir(); err != nil {
		return err
	}
	if b.opts.Cluster == nil {
		opts := b.serverOptions()
		opts.DontListen, opts.JetStream = true, true
		return b.run(opts)
	}
	b.access = newAccess()
	routes, err := b.gather(ctx)
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.routes = routes
	b.mu.Unlock()
	opts := b.memberOptions(routes)
	opts.JetStream = true
	if err := b.run(opts); err != nil {
		return err
	}
	if err := b.join(ctx); err != nil {
		return errors.Join(err, b.Stop())
	}
	return nil
}

// run runs the server and connects to it, for good.
func (b *Broker) run(opts *server.Options) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.stopping:
		return fmt.Errorf("start broker: %w", errStopped)
	case b.srv != nil:
		return errors.New("start broker: it was started before")
	}
	srv, err := b.boot(opts)
	if err != nil {
		return err
	}
	b.current.srv.Store(srv)
	conn, err := b.connect(&b.current, backendUser, nats.ClosedHandler(b.connectionClosed))
	if err != nil {
		end(srv, nil)
		return err
	}
	js, err := jetstream.New(conn)
	if err != nil {
		end(srv, conn)
		return fmt.Errorf("connect to broker: %w", err)
	}
	b.srv, b.conn, b.js, b.store = srv, conn, js, *srv.JetStreamConfig()
	b.store.StoreDir = b.opts.Dir // the server has appended its own directory to it
	if addr := srv.ClusterAddr(); addr != nil {
		b.port = addr.Port
	}
	return nil
}

// current makes in-process connections to the server that runs now. It implements nats.InProcessConnProvider.
type current struct{ srv atomic.Pointer[server.Server] }

func (c *current) InProcessConn() (net.Conn, error) { return c.srv.Load().InProcessConn() }

// boot starts a server.
func (b *Broker) boot(opts *server.Options) (*server.Server, error) {
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("start broker in %s: %w", b.opts.Dir, err)
	}
	if b.access != nil {
		b.access.system.Store(srv.SystemAccount)
	}
	fatal := make(chan string, 1)
	srv.SetLoggerV2(serverLog{b.log, rarelog.New(b.log), fatal}, false, false, false)
	srv.Start()
	err = b.waitReady(srv, fatal)
	if err == nil && srv.JetStreamEnabled() != opts.JetStream {
		err = errors.New("it has no store; its log says why")
	}
	if err != nil {
		end(srv, nil)
		if err = fmt.Errorf("start broker in %s: %w", b.opts.Dir, err); b.opts.Cluster != nil {
			err = fmt.Errorf("%w; if its files are damaged, remove this member (lapwing cluster remove, at another one), and start it "+
				"with an empty state directory", err)
		}
		return nil, err
	}
	return srv, nil
}

// waitReady waits until a server has started, or failed to.
func (b *Broker) waitReady(srv *server.Server, fatal <-chan string) error {
	for begin := time.Now(); time.Since(begin) < b.opts.StartTimeout; {
		if srv.ReadyForConnections(readyPoll) {
			return nil
		}
		select {
		case why := <-fatal:
			return errors.New(why)
		case <-b.life.Done():
			return errStopped
		default:
		}
	}
	return fmt.Errorf("not ready after %s; its log says why", b.opts.StartTimeout)
}

// readyPoll is how long the server is waited for at a time.
const readyPoll = time.Second

// end ends a server and the connection to it, which may be nil.
func end(srv *server.Server, conn *nats.Conn) {
	if conn != nil {
		conn.Close()
	}
	srv.Shutdown()
	srv.WaitForShutdown()
}

// serverOptions returns the options that all servers have.
func (b *Broker) serverOptions() *server.Options {
	return &server.Options{
		ServerName: b.opts.Name,
		NoSigs:     true,
		StoreDir:   b.opts.Dir,
		SyncAlways: !b.opts.Unsynced,
		MaxPayload: b.opts.MaxMessage,

		MaxControlLine: maxControlLine,
		// The limits are not ours to guess: the event log watches the disk itself and is trimmed by position.
		JetStreamMaxStore:  1 << 50,
		JetStreamMaxMemory: 1 << 30,
	}
}

// connect makes an in-process connection to a server. A broken one is made again.
func (b *Broker) connect(srv nats.InProcessConnProvider, user string, opts ...nats.Option) (*nats.Conn, error) {
	opts = append(opts, nats.InProcessServer(srv), nats.Name("lapwing "+user),
		nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if b.access != nil {
		opts = append(opts, nats.UserInfo(user, b.access.secret))
	}
	conn, err := nats.Connect("", opts...)
	if err != nil {
		return nil, fmt.Errorf("connect to broker: %w", err)
	}
	return conn, nil
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

// Stop closes the connection and waits for the server to end. It may be called more than once, and ends a Start that
// waits.
func (b *Broker) Stop() error {
	b.stopOnce.Do(func() { b.stopErr = b.stop() })
	return b.stopErr
}

func (b *Broker) stop() error {
	b.end()
	b.mu.Lock()
	b.stopping = true
	b.mu.Unlock()
	b.tasks.Wait()
	b.repairing.Lock() // it may replace the server
	defer b.repairing.Unlock()
	b.mu.Lock()
	conn, srv := b.conn, b.srv
	b.mu.Unlock()
	if srv == nil {
		if conn != nil {
			conn.Close()
		}
		return nil
	}
	end(srv, conn)
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
	case b.opts.External != nil:
		return b.externalErr()
	case b.srv == nil:
		return errors.New("broker is not running")
	case !b.srv.JetStreamEnabled():
		return errors.New("broker has disabled its store, most likely because the disk is full")
	case !b.conn.IsConnected():
		return errors.New("broker connection is down")
	}
	return nil
}

// serverLog hands the server's log lines to slog. The server's notices do not help an operator, so they are debug lines
// here.
type serverLog struct {
	log   *slog.Logger
	rare  *rarelog.Log  // of warnings and errors
	fatal chan<- string // gets the first reason why the server cannot start
}

// known begins lines of the server about what is no fault, or what the broker itself says.
var known = [...]string{
	"Missing stream metafile",                                      // the files were checked before; the owner writes it anew
	"Waiting for routing", "JetStream has not established contact", // see Broker.await
	"Error trying to connect to route", // of a member that does not run; see Broker.Peers
	"Metalayer blocking snapshot",      // how long it took, in milliseconds
}

func (l serverLog) Noticef(f string, v ...any) {
	l.log.Debug("broker notice", "text", fmt.Sprintf(f, v...))
}
func (l serverLog) Warnf(f string, v ...any) {
	l.unlessKnown(l.rare.Warn, "broker warning", fmt.Sprintf(f, v...))
}
func (l serverLog) Fatalf(f string, v ...any) {
	text := fmt.Sprintf(f, v...)
	l.log.Error("broker failed", "text", text)
	select {
	case l.fatal <- text:
	default:
	}
}
func (l serverLog) Errorf(f string, v ...any) {
	l.unlessKnown(l.rare.Error, "broker error", fmt.Sprintf(f, v...))
}
func (l serverLog) Debugf(f string, v ...any) {
	l.log.Debug("broker debug", "text", fmt.Sprintf(f, v...))
}
func (l serverLog) Tracef(f string, v ...any) {}

func (l serverLog) unlessKnown(write func(message, subject string, attrs ...any), message, text string) {
	for _, begin := range known {
		if strings.Contains(text, begin) {
			l.log.Debug("broker notice", "text", text)
			return
		}
	}
	write(message, numbered.ReplaceAllString(text, "$1"), "text", slog.StringValue(text)) // whole: the reason is at its end
}

// numbered are ports, and the server's numbers of connections. Lines that differ only in them have one cause: a member
// whose certificate is refused connects several times a second.
var numbered = regexp.MustCompile(`(\]|\.\d+|\b[a-z]id):\d+`)
