package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/client/load/report"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// probes are a few additional agents, whose results are followed to the API and to a handler that reports to this
// process.
type probes struct {
	fleet    *Fleet
	client   *client.Client
	name     string // of the check, the handler and the subscription
	opts     FleetOptions
	listener net.Listener
	cancel   context.CancelFunc
	ctx      context.Context
	running  sync.WaitGroup

	mu   sync.Mutex // guards sent
	sent map[probeKey]time.Time
}

type probeKey struct {
	entity string
	n      int64
}

const (
	probeInterval = 1                    // seconds
	pollEvery     = 2 * time.Millisecond // at first; a late result is polled less often, to keep the load small
	pollLate      = 10                   // then at every tenth part of the time that has passed
	giveUpAfter   = time.Minute
)

// newProbes prepares count probes that are like the agents of opts. The handler reports to an address on host.
func newProbes(ctx context.Context, c *client.Client, opts FleetOptions, count int, host string, log *slog.Logger) (*probes, error) {
	p := &probes{client: c, name: opts.Run + "-probe", sent: map[probeKey]time.Time{}}
	opts.BaseName, opts.First, opts.Count = p.name, 0, count
	opts.Subscriptions = []string{p.name}
	opts.Mix, opts.FlapRate, opts.Churn, opts.HugeEvents, opts.BatchDelay = nil, 0, 0, 0, 0
	p.opts = opts
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, fmt.Errorf("listen for the probes' handler: %w", err)
	}
	p.listener = l
	fleet, err := NewFleet(opts, log)
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	fleet.measures.latencies[report.LatencyVisible] = &recorder{hist: newHistogram()}
	fleet.measures.latencies[report.LatencyAPI] = &recorder{hist: newHistogram()}
	fleet.measures.latencies[report.LatencyHandler] = &recorder{hist: newHistogram()}
	fleet.onSend = p.onSend
	p.fleet = fleet
	return p, nil
}

// start creates the probes' check and handler, and connects the probes.
func (p *probes) start(ctx context.Context) error {
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	host, port, err := net.SplitHostPort(p.listener.Addr().String())
	if err != nil {
		return fmt.Errorf("address of the probes' handler: %w", err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return fmt.Errorf("address of the probes' handler: %w", err)
	}
	meta := resource.ObjectMeta{Namespace: p.opts.Namespace, Name: p.name, Labels: map[string]string{Label: p.opts.Run}, Annotations: map[string]string{}}
	handler := &resource.Handler{Metadata: meta, Type: "tcp", Socket: &resource.HandlerSocket{Host: host, Port: uint32(number)}, Timeout: 10}
	if err := client.Put(ctx, p.client, client.Handlers, meta.Namespace, meta.Name, handler); err != nil {
		return fmt.Errorf("create handler %s: %w", meta.Name, err)
	}
	c := &resource.CheckConfig{
		Metadata: meta, Command: "true", Interval: probeInterval, Publish: true, Subscriptions: []string{p.name}, Handlers: []string{p.name},
		RuntimeAssets: []string{}, CheckHooks: []resource.HookList{}, EnvVars: []string{}, OutputMetricHandlers: []string{},
	}
	if err := client.Put(ctx, p.client, client.Checks, meta.Namespace, meta.Name, c); err != nil {
		return fmt.Errorf("create check %s: %w", meta.Name, err)
	}
	p.running.Go(p.accept)
	return p.fleet.Start(ctx)
}

// cleanup removes what start has created.
func (p *probes) cleanup(ctx context.Context) error {
	return errors.Join(
		client.Delete(ctx, p.client, client.Checks, p.opts.Namespace, p.name),
		client.Delete(ctx, p.client, client.Handlers, p.opts.Namespace, p.name),
	)
}

func (p *probes) stop() error {
	err := p.fleet.Stop()
	_ = p.listener.Close()
	if p.cancel != nil {
		p.cancel()
	}
	p.running.Wait()
	return err
}

// onSend runs when a probe's result is sent. It delays the probe, so it must be quick.
func (p *probes) onSend(a *simAgent, r *result) {
	now := time.Now()
	p.mu.Lock()
	p.sent[probeKey{a.name, int64(r.n)}] = now
	p.mu.Unlock()
	p.running.Go(func() { p.poll(a.name, r.check.name, int64(r.n), now) })
}

// poll asks the API for a result until it is there.
func (p *probes) poll(entity, check string, n int64, sent time.Time) {
	ctx, cancel := context.WithTimeout(p.ctx, giveUpAfter)
	defer cancel()
	for ctx.Err() == nil {
		asked := time.Now()
		ev, err := client.Get(ctx, p.client, client.Events, p.opts.Namespace, client.EventName(entity, check))
		if err == nil {
			p.fleet.measures.latencies[report.LatencyAPI].record(time.Since(asked))
		}
		if err == nil && ev.Sequence >= n {
			p.fleet.measures.latencies[report.LatencyVisible].record(time.Since(sent))
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(max(pollEvery, time.Since(sent)/pollLate)):
		}
	}
	if p.ctx.Err() == nil {
		p.fleet.measures.fail(fmt.Errorf("result %d of %s was not visible within %v", n, entity, giveUpAfter))
	}
}

// accept receives the handler's deliveries: one event per connection.
func (p *probes) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		at := time.Now()
		p.running.Go(func() {
			defer conn.Close()
			stop := context.AfterFunc(p.ctx, func() { conn.Close() })
			defer stop()
			_ = conn.SetReadDeadline(at.Add(10 * time.Second))
			var ev struct {
				Sequence int64           `json:"sequence"`
				Entity   resource.Entity `json:"entity"`
			}
			if err := json.NewDecoder(conn).Decode(&ev); err != nil {
				return
			}
			k := probeKey{ev.Entity.Metadata.Name, ev.Sequence}
			p.mu.Lock()
			sent, ok := p.sent[k]
			delete(p.sent, k) // counted once, even if the event is delivered again
			p.mu.Unlock()
			if ok {
				p.fleet.measures.latencies[report.LatencyHandler].record(at.Sub(sent))
			}
		})
	}
}
