package load

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/lapwing-monitoring/lapwing/client/load/report"
	"github.com/lapwing-monitoring/lapwing/client/load/scenario"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// Protocols an agent may speak.
const (
	ProtocolSensu   = "sensu"
	ProtocolLapwing = "lapwing"
)

// Label is on all objects of a run. Its value is the name of the run.
const Label = scenario.Label

// slot is the precision of the agents' times.
const slot = 10 * time.Millisecond

const slots = int64(time.Second / slot)

// FleetOptions describes agents of one kind in one process.
type FleetOptions struct {
	Run           string // name of the run, in a label of each entity
	Backends      []string
	Namespace     string
	User          string
	Password      string
	BaseName      string // an agent's name is this, a dash and its index
	First, Count  int    // indexes First to First+Count-1, of the whole run
	Subscriptions []string
	// SubscriptionsPerAgent is how many of Subscriptions each agent has, 0 for all. Each subscription has about the same
	// number of agents.
	SubscriptionsPerAgent int
	Protocol              string // ProtocolSensu or ProtocolLapwing
	// Sources are addresses of this machine to connect from, in turn. Default: the system's choice.
	Sources []netip.Addr

	KeepaliveInterval time.Duration
	KeepaliveTimeout  time.Duration // after which the backend warns
	ConnectRate       float64       // agents per second; 0 for no limit
	RetryMin          time.Duration // before connecting again; doubled up to RetryMax
	RetryMax          time.Duration
	HandshakeTimeout  time.Duration

	BatchDelay      time.Duration // how long the result of a check that stays OK waits for others, in the lapwing protocol
	EventBytes      int           // length of a result's output
	HugeEvents      float64       // share of results with an output of HugeBytes
	HugeBytes       int
	Mix             []Share // statuses; default all 0
	FlapRate        float64 // chance that a status is drawn again, per result
	MetricsPerEvent int
	Churn           float64       // connections ended on purpose per second
	AckDelay        time.Duration // from the arrival of a turn to its answer, to the precision of a slot
	Receipts        bool          // turns are answered with receipts rather than results; lapwing protocol only
	KillAgents      float64       // share of the agents that stop for good in the measured part
	Seed            uint64
	Version         string // version that the agents report
}

func (o *FleetOptions) validate() error {
	switch {
	case o.Count <= 0:
		return errors.New("fleet: no agents")
	case len(o.Backends) == 0:
		return errors.New("fleet: no backend")
	case o.Protocol != ProtocolSensu && o.Protocol != ProtocolLapwing:
		return fmt.Errorf("fleet: unknown protocol %q", o.Protocol)
	case o.BatchDelay < 0 || o.BatchDelay%time.Second != 0:
		return errors.New("fleet: the batch delay must be whole seconds")
	case o.KeepaliveInterval < time.Second:
		return errors.New("fleet: the keepalive interval must be at least a second")
	case o.SubscriptionsPerAgent < 0 || o.SubscriptionsPerAgent > len(o.Subscriptions):
		return fmt.Errorf("fleet: an agent cannot have %d of %d subscriptions", o.SubscriptionsPerAgent, len(o.Subscriptions))
	case o.AckDelay < 0:
		return errors.New("fleet: the delay of answers must not be below 0")
	case o.Receipts && o.Protocol != ProtocolLapwing:
		return errors.New("fleet: only agents of the lapwing protocol can answer with receipts")
	case o.KillAgents < 0 || o.KillAgents > 1:
		return errors.New("fleet: the share of agents to kill must be from 0 to 1")
	}
	return nil
}

// Fleet runs agents.
type Fleet struct {
	opts        FleetOptions
	log         *slog.Logger
	outcomes    outcomes
	measures    *measures
	smallOutput string
	hugeOutput  string
	metricNames []string
	header      http.Header // for the handshake, without what differs from agent to agent
	turnLog     *turnLog    // of the process; nil if there is none
	delayed     delayQueue
	// subscriptions are those of the options twice, so that the subscriptions of each agent are a part of them.
	subscriptions []string

	agents  []*simAgent
	connect chan *simAgent // agents that must connect
	quiet   atomic.Int64   // no results since then, in Unix seconds; 0 if they go on
	onSend  func(a *simAgent, r *result)

	cancel  context.CancelFunc
	ctx     context.Context
	running sync.WaitGroup

	mu      sync.RWMutex      // guards the maps
	checks  map[string]*check // by their definition as it came, encoded
	numbers map[string]int    // of checks, by name
	bySlot  [slots][]*simAgent
	slotOf  map[*simAgent]int64
}

// NewFleet makes the agents; Start connects them.
func NewFleet(opts FleetOptions, log *slog.Logger) (*Fleet, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	f := &Fleet{
		opts: opts, log: log, outcomes: newOutcomes(opts.Seed, opts.Mix, opts.FlapRate),
		measures: newMeasures(report.LatencyAck, report.LatencyRequest, report.LatencyConnect, report.LatencyInterval,
			report.LatencyTurnArrival, report.LatencyTurnAnswer),
		subscriptions: slices.Concat(opts.Subscriptions, opts.Subscriptions),
		smallOutput:   filler(opts.EventBytes), hugeOutput: filler(opts.HugeBytes),
		header: http.Header{}, connect: make(chan *simAgent, opts.Count), onSend: func(*simAgent, *result) {},
		checks: map[string]*check{}, numbers: map[string]int{}, slotOf: map[*simAgent]int64{},
	}
	for i := range opts.MetricsPerEvent {
		f.metricNames = append(f.metricNames, "load.metric"+strconv.Itoa(i))
	}
	f.header.Set("Accept", wire.ContentType(wire.Protobuf))
	f.header.Set(wire.HeaderNamespace, opts.Namespace)
	f.header.Set(wire.HeaderUser, opts.User)
	for i := opts.First; i < opts.First+opts.Count; i++ {
		a := &simAgent{fleet: f, index: i, name: opts.BaseName + "-" + strconv.Itoa(i), subscriptions: f.subscriptionsOf(i)}
		a.id, a.entity = max(1, uint32(stringHash(a.name))), f.entity(a).AppendProto(nil)
		f.agents = append(f.agents, a)
	}
	return f, nil
}

// subscriptionsOf returns the subscriptions of an agent. If it has only some, they begin with another one from agent to
// agent.
func (f *Fleet) subscriptionsOf(index int) []string {
	all, n := len(f.opts.Subscriptions), f.opts.SubscriptionsPerAgent
	if n == 0 {
		return f.opts.Subscriptions
	}
	first := index % all
	return f.subscriptions[first : first+n : first+n]
}

// Start begins to connect the agents.
func (f *Fleet) Start(ctx context.Context) error {
	f.ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	limit := rate.NewLimiter(rate.Inf, 1)
	if f.opts.ConnectRate > 0 {
		limit = rate.NewLimiter(rate.Limit(f.opts.ConnectRate), max(1, int(f.opts.ConnectRate/50)))
	}
	for range dialers {
		f.running.Go(func() { f.dialAll(limit) })
	}
	for _, a := range f.agents {
		f.connect <- a
	}
	f.running.Go(f.keepTime)
	if f.opts.Churn > 0 {
		f.running.Go(f.churn)
	}
	return nil
}

// Quiet stops the agents' results; they stay connected and alive. Turns of earlier ticks are still answered.
func (f *Fleet) Quiet() { f.quiet.Store(time.Now().Unix()) }

// over reports whether the results of ticks at a second of Unix time are not wanted any more.
func (f *Fleet) over(tick int64) bool {
	quiet := f.quiet.Load()
	return quiet > 0 && tick > quiet
}

// Stop disconnects the agents and waits for their goroutines.
func (f *Fleet) Stop() error {
	if f.cancel == nil {
		return nil
	}
	f.cancel()
	var closing sync.WaitGroup
	for part := range slices.Chunk(f.agents, 256) {
		closing.Go(func() {
			for _, a := range part {
				a.mu.Lock()
				conn := a.conn
				a.mu.Unlock()
				if conn != nil {
					_ = conn.Close(wire.CloseGoingAway, "bye")
				}
			}
		})
	}
	closing.Wait()
	f.running.Wait()
	return nil
}

// ackLate is the age from which an event counts as unacknowledged.
const ackLate = 10 * time.Second

// heldUpLong is the length of a write from which an agent counts as blocked by TCP.
const heldUpLong = time.Second

// Snapshot returns the agents' work so far.
func (f *Fleet) Snapshot() Snapshot {
	now, s := time.Now(), f.measures.snapshot()
	for _, a := range f.agents {
		a.mu.Lock()
		for i := range a.unacked {
			u := &a.unacked[i]
			if heldBack := u.sequence > a.sent && !a.ripe.IsZero(); !heldBack && !u.sent.IsZero() && now.Sub(u.sent) > ackLate {
				s.Unacked++
			}
		}
		if !a.writing.IsZero() && now.Sub(a.writing) > heldUpLong {
			s.HeldUp++
		}
		if !a.dead {
			s.Turns.PerAgent[a.delivered-a.before]++
		}
		a.mu.Unlock()
	}
	return s
}

// dialers is how many agents connect at the same time.
const dialers = 64

func (f *Fleet) dialAll(limit *rate.Limiter) {
	for {
		select {
		case <-f.ctx.Done():
			return
		case a := <-f.connect:
			if limit.Wait(f.ctx) != nil {
				return
			}
			if err := f.dial(a); err != nil {
				if f.ctx.Err() != nil {
					return
				}
				f.measures.fail(fmt.Errorf("connect %s: %w", a.name, err))
				a.backoff = min(max(2*a.backoff, f.opts.RetryMin), f.opts.RetryMax)
				f.retry(a, a.backoff)
			}
		}
	}
}

// retry makes an agent connect later, with a random part.
func (f *Fleet) retry(a *simAgent, after time.Duration) {
	time.AfterFunc(after/2+rand.N(after/2+1), func() { f.connect <- a })
}

func (f *Fleet) dial(a *simAgent) error {
	header := f.header.Clone()
	header.Set(wire.HeaderAgentName, a.name)
	header.Set(wire.HeaderSubscriptions, strings.Join(a.subscriptions, ","))
	request := http.Request{Header: header}
	request.SetBasicAuth(f.opts.User, f.opts.Password)
	if f.opts.Protocol == ProtocolLapwing {
		header.Set(wire.HeaderProtocol, wire.ProtocolVersion)
		header.Set(wire.HeaderMembers, wire.MembersFollow)
		header.Set(wire.HeaderEpoch, fmt.Sprintf("%016x", mix64(f.opts.Seed^mix64(uint64(a.index)))|1))
	}
	opts := wire.DialOptions{HandshakeTimeout: f.opts.HandshakeTimeout, Proxy: func(*http.Request) (*url.URL, error) { return nil, nil }}
	if len(f.opts.Sources) > 0 {
		opts.LocalAddr = f.opts.Sources[a.index%len(f.opts.Sources)]
	}
	if a.killed() {
		return nil
	}
	begin := time.Now()
	conn, reply, err := wire.Dial(f.ctx, a.address(), header, opts)
	if err != nil {
		return err
	}
	lapwing := reply.Get(wire.HeaderProtocol) == wire.ProtocolVersion
	if f.opts.Protocol == ProtocolLapwing && !lapwing {
		_ = conn.Close(wire.CloseGoingAway, "bye")
		return errors.New("the backend does not speak the lapwing protocol")
	}
	if !slices.Contains(reply.Values("Accept"), wire.ContentType(wire.Protobuf)) {
		_ = conn.Close(wire.CloseGoingAway, "bye")
		return errors.New("the backend does not speak protobuf")
	}
	a.mu.Lock()
	if a.dead {
		a.mu.Unlock()
		conn.Abort()
		return nil
	}
	if lapwing {
		a.held = nil // receipts for turns that came on an earlier connection
	}
	a.conn, a.lapwing, a.dialed, a.configured, a.sent, a.pace, a.writing = conn, lapwing, begin, false, 0, wire.PaceGo, time.Time{}
	a.ripe = time.Time{} // all that waits is sent as soon as the backend takes it
	a.cluster.leaving, a.cluster.tries = false, 0
	a.backoff = 0 // before serve, which may drop the connection to another dialer
	a.mu.Unlock()
	f.measures.connected.Add(1)
	f.running.Go(func() { f.drop(a, conn, a.serve(conn)) })
	return nil
}

// drop ends a connection for good, once, and makes the agent connect again.
func (f *Fleet) drop(a *simAgent, conn *wire.Conn, err error) {
	a.mu.Lock()
	mine := a.conn == conn && conn != nil
	if mine {
		a.conn, a.configured = nil, false
	}
	a.mu.Unlock()
	if !mine {
		return
	}
	_ = conn.Close(wire.CloseGoingAway, "bye")
	f.measures.connected.Add(-1)
	if f.ctx.Err() != nil {
		return
	}
	if errors.Is(err, errMoved) {
		f.measures.moves.Add(1)
		f.connect <- a // has room for all agents
		return
	}
	if !errors.Is(err, errChurn) {
		f.measures.disconnects.Add(1)
		text := fmt.Sprintf("%s was disconnected: %v", a.name, err)
		f.measures.lastError.Store(&text)
	}
	f.retry(a, f.opts.RetryMin)
}

// errChurn is the end of a connection by the scenario's churn.
var errChurn = errors.New("ended on purpose")

func (f *Fleet) churn() {
	limit := rate.NewLimiter(rate.Limit(f.opts.Churn), 1)
	for limit.Wait(f.ctx) == nil {
		a := f.agents[rand.IntN(len(f.agents))]
		a.mu.Lock()
		conn := a.conn
		a.mu.Unlock()
		if conn != nil {
			f.drop(a, conn, errChurn)
		}
	}
}

// keepTime sends keepalives and runs schedules. It handles each slot of time once, late if necessary.
func (f *Fleet) keepTime() {
	tick := time.NewTicker(slot)
	defer tick.Stop()
	last := time.Now().UnixMilli() / slot.Milliseconds()
	alive := 0 // agents up to this index have had their keepalive in this round
	round := time.Now()
	for {
		select {
		case <-f.ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		f.sendDelayed(now)
		for ; last < now.UnixMilli()/slot.Milliseconds(); last++ {
			f.runSlot(last)
			f.measures.lag.Store(int64(time.Since(time.UnixMilli((last + 1) * slot.Milliseconds()))))
		}
		target := int(float64(now.Sub(round)) / float64(f.opts.KeepaliveInterval) * float64(len(f.agents)))
		for ; alive < min(target, len(f.agents)); alive++ {
			a := f.agents[alive]
			a.mu.Lock()
			conn := a.conn
			a.mu.Unlock()
			if conn == nil {
				continue
			}
			if err := a.sendKeepalive(conn); err != nil {
				f.drop(a, conn, err)
			}
		}
		if target >= len(f.agents) {
			alive, round = 0, now
		}
	}
}

func (f *Fleet) runSlot(number int64) {
	f.mu.RLock()
	agents := f.bySlot[number%slots]
	f.mu.RUnlock()
	for _, a := range agents {
		a.runDue(number / slots)
	}
}

// planChanged files an agent under the slot of its schedule. All of its checks are due in the same part of a second.
// The caller holds a.mu.
func (f *Fleet) planChanged(a *simAgent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if old, ok := f.slotOf[a]; ok {
		f.bySlot[old] = slices.DeleteFunc(slices.Clone(f.bySlot[old]), func(o *simAgent) bool { return o == a })
		delete(f.slotOf, a)
	}
	if len(a.plan) == 0 {
		return
	}
	at := a.plan[0].phase % 1000 / slot.Milliseconds()
	f.bySlot[at] = append(slices.Clip(f.bySlot[at]), a)
	f.slotOf[a] = at
}

// request is a parsed check request.
type request struct {
	check  *check
	issued int64
	turn   turn
}

// request parses a check request. It decodes each definition once.
func (f *Fleet) request(payload []byte) (request, error) {
	req, err := f.parseRequest(payload)
	if err != nil {
		return request{}, fmt.Errorf("read check request: %w", err)
	}
	return req, nil
}

func (f *Fleet) parseRequest(payload []byte) (req request, err error) {
	var definition []byte
	for at := 0; at < len(payload); {
		part, n, err := nextField(payload[at:])
		if err != nil {
			return req, err
		}
		switch {
		case part.is(fieldDefinition, protowire.BytesType):
			definition = part.content
		case part.is(fieldIssued, protowire.VarintType):
			req.issued = int64(part.number)
		}
		at += n
	}
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	rest, value, err := cutTurn(s.buf[:0], definition)
	if err != nil {
		return req, err
	}
	if value != nil {
		s.buf = rest
		if req.turn, err = parseTurn(value); err != nil {
			return req, err
		}
	}
	if req.check, err = f.check(rest); err != nil {
		return req, err
	}
	req.turn.key ^= req.check.turnHash
	return req, nil
}

// check returns the check with an encoded definition.
func (f *Fleet) check(definition []byte) (*check, error) {
	f.mu.RLock()
	c, ok := f.checks[string(definition)]
	f.mu.RUnlock()
	if ok {
		return c, nil
	}
	var config resource.CheckConfig
	if err := config.UnmarshalProto(definition); err != nil {
		return nil, err
	}
	c = newCheck(&config)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.checks[string(definition)] = c
	return c, nil
}

// number returns the number of the checks with the given name. Turns do not need one: agents count their results by
// number, and there may be tens of thousands of round-robin checks.
func (f *Fleet) number(name string) int {
	f.mu.RLock()
	number, ok := f.numbers[name]
	f.mu.RUnlock()
	if ok {
		return number
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if number, ok = f.numbers[name]; !ok {
		number = len(f.numbers)
		f.numbers[name] = number
	}
	return number
}
