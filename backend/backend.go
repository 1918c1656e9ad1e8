// Package backend wires the parts of the server together. Command lapwing and tests make backends; no part imports this
// package, and no other package knows all parts.
//
// New checks the options and binds the ports. Start opens the state directory, builds the parts and starts them. Stop takes
// them down in reverse. Each part is built from the parts above it: the broker carries the definitions and the event log;
// state folds the log, and what it folded goes through the pipeline to the handlers; sessions, the API, the scheduler and
// the deadlines put events into the log. The two cycles have types of their own: deadlines and healthOnly.
package backend

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/lapwing-monitoring/lapwing/api"
	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/internal/clientaddr"
	"github.com/lapwing-monitoring/lapwing/schedule/timetable"
	"github.com/lapwing-monitoring/lapwing/telemetry"
)

// Backend is one running server.
type Backend struct {
	opts    Options
	log     *slog.Logger
	phases  timetable.Hash
	proxies clientaddr.Proxies
	signer  *auth.Signer // nil if the cluster's secret signs tokens
	ports   ports
	tls     listenerTLS

	starting atomic.Pointer[error]      // what Start does, or waits for
	reserve  atomic.Uint64              // Options.Log.MinFree, which Reload changes
	damaged  atomic.Pointer[damageNote] // what the database found damaged
	failed   failure

	// life ends when Stop is called, and with it a Start that has not ended.
	life    context.Context
	endLife context.CancelFunc

	turn    turn // guards the fields below
	started bool
	first   []func() // before the steps
	undo    []step
	running *parts // nil until all of them run
}

// New checks the options, reads the keys and certificates, and binds the ports. It makes nothing in the state directory: an
// address in use or a bad certificate is known before a first start has made the administrator. What needs the state
// directory is left to Start, because a start may wait for minutes, for space on the disk or for a repair.
//
// The ports are open until Stop.
func New(opts Options) (*Backend, error) {
	b, err := newBackend(opts)
	if err != nil {
		return nil, err
	}
	if err := b.prepare(); err != nil {
		return nil, errors.Join(err, b.Stop(context.Background()))
	}
	return b, nil
}

// newBackend is New without keys and ports, for work on a state directory.
func newBackend(opts Options) (*Backend, error) {
	if err := opts.Check(); err != nil {
		return nil, err
	}
	phases, err := timetable.ParseHash(opts.PhaseHash)
	if err != nil {
		return nil, err
	}
	proxies, err := clientaddr.Parse(opts.TrustedProxies)
	if err != nil {
		return nil, err
	}
	opts.complete()
	b := &Backend{
		opts: opts, log: opts.Logger, phases: phases, proxies: proxies, failed: failure{done: make(chan struct{})}, turn: newTurn(),
	}
	b.life, b.endLife = context.WithCancel(context.Background())
	b.reserve.Store(opts.Log.MinFree)
	b.say("ports")
	return b, nil
}

// prepare opens what a backend needs beside its state directory.
func (b *Backend) prepare() (err error) {
	if b.signer, err = b.opts.signer(); err != nil {
		return err
	}
	if b.tls, err = b.listenerTLS(); err != nil {
		return err
	}
	return b.bind()
}

// Start opens the state directory, builds the parts and starts them in order. It takes them down again, and closes the
// ports, if one fails or ctx ends.
func (b *Backend) Start(ctx context.Context) (err error) {
	if err := b.turn.take(ctx); err != nil {
		return err
	}
	defer b.turn.give()
	switch {
	case b.life.Err() != nil:
		return errors.New("start backend: it was stopped")
	case b.started:
		return errors.New("start backend: already started")
	}
	b.started = true
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.life, cancel)()
	defer func() {
		if err != nil {
			stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
			defer cancel()
			err = errors.Join(err, b.unwind(stopping))
		}
	}()
	begin := time.Now()

	// The ports answer from now on: a start that hangs is when profiles are wanted.
	if b.ports.pprof != nil {
		b.push("pprof server", b.serve("pprof", b.ports.pprof, nil, telemetry.PprofHandler(), 0))
	}
	if b.tls.revoked != nil {
		if err := b.start(ctx, "lists of revoked certificates", b.tls.revoked); err != nil {
			return err
		}
	}
	takeAPI := b.answerStarting(b.ports.api, b.tls.api, api.Waiting(b.Starting))
	takeAgents := b.answerStarting(b.ports.agents, b.tls.agents, http.HandlerFunc(b.agentsWhileStarting))

	stored, err := b.openStorage(ctx)
	if err != nil {
		return err
	}
	p, err := b.build(stored)
	if err != nil {
		return err
	}
	if err := b.startHandlers(ctx, p); err != nil {
		return err
	}
	if err := b.startEvents(ctx, p); err != nil {
		return err
	}
	b.removeAlone(stored)
	if !p.members.Alone() {
		b.say("waiting for its lease in the cluster")
		p.members.awaitLease(ctx)
	}
	takeAgents()
	if err := b.startAgents(ctx, p); err != nil {
		return err
	}
	takeAPI()
	b.serveAPI(p.api)
	b.running = p
	b.log.Info("backend is ready", append([]any{
		"id", stored.id.Cluster, "api", b.APIAddr().String(), "agents", b.AgentAddr().String(), "seconds", time.Since(begin).Seconds(),
	}, p.metrics.Ports()...)...)
	return nil
}

// APIAddr is where the API is served.
func (b *Backend) APIAddr() net.Addr { return b.ports.api.Addr() }

// AgentAddr is where agents connect.
func (b *Backend) AgentAddr() net.Addr { return b.ports.agents.Addr() }
