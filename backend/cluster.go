package backend

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lapwing-monitoring/lapwing/cluster"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/session"
)

// membership is this backend's place in the cluster, and what it sends about itself to the other members. The parts
// that know this are built after the cluster, which the fold asks.
type membership struct {
	*cluster.Cluster
	info cluster.Info // what does not change
	dir  string
	log  *eventlog.Log
	rare *rarelog.Log

	parts atomic.Pointer[parts] // nil until they are built
}

// startMembership begins to hear the other members, and to send them that this one is not ready yet.
func (b *Backend) startMembership(ctx context.Context, s *storage) (err error) {
	c := &b.opts.Cluster
	info := cluster.Info{Version: b.opts.Version, Started: time.Now().Unix()}
	s.members = &membership{dir: s.dir.path, log: s.log, info: info, rare: rarelog.New(b.log)}
	if !c.on() {
		s.members.Cluster = cluster.Alone(s.id.Cluster)
		return nil
	}
	s.members.info.APIURL = b.url("http", c.AdvertiseHost, b.ports.api)
	s.members.info.AgentURL = b.url("ws", c.AdvertiseHost, b.ports.agents)
	s.members.Cluster, err = cluster.New(cluster.Options{
		ID: s.id.Cluster, Name: c.Name, Size: c.size(), Log: s.log, Bus: s.broker.Bus(), Describe: s.members.describe,
		Logger: b.log, Registerer: b.opts.Registry,
	})
	if err != nil {
		return err
	}
	if err := b.start(ctx, "membership", s.members); err != nil {
		return err
	}
	return s.members.Handle(revisionQuestion, answerRevision(s.config))
}

// url returns where another host reaches one of the listeners.
func (b *Backend) url(scheme, host string, port net.Listener) string {
	if scheme == "http" && b.tls.api != nil || scheme == "ws" && b.tls.agents != nil {
		scheme += "s"
	}
	_, number, _ := net.SplitHostPort(port.Addr().String())
	return scheme + "://" + net.JoinHostPort(host, number)
}

// describe returns what this member sends about itself to the others.
func (m *membership) describe() cluster.Info {
	info := m.info
	if free, err := eventlog.FreeSpace(m.dir); err == nil {
		info.DiskFree = free
	}
	p := m.parts.Load()
	if p == nil {
		return info
	}
	since, _, _ := p.sessions.Draining()
	info.Sessions, info.Draining = p.sessions.Sessions(), !since.IsZero()
	info.Received = p.intake.Received()
	info.Presence, info.Overloaded = p.queue.Presence().Number(), p.sessions.Overloaded()
	definitions := p.config.Snapshot()
	info.Revision, info.DefinitionsDigest = definitions.Revision(), definitions.Digest()
	for i := range m.log.Partitions() {
		folded, replay := p.state.Folded(i)
		info.Folded, info.Replay = append(info.Folded, folded), append(info.Replay, replay)
		info.Digests = append(info.Digests, p.state.Digest(i))
	}
	return info
}

const revisionQuestion = "revision"

const (
	// peerWait bounds how long the write of a definition waits for members that are heard. One that is silent for longer
	// may not act.
	peerWait = 3 * time.Second
	// silentWait bounds how long it waits for a member on the roster that is not heard. Others may hear it, but most likely
	// it is gone.
	silentWait = 300 * time.Millisecond
	// askAgain is the pause after a question that failed at once.
	askAgain = 20 * time.Millisecond
)

// waitRevision returns when the other members have a revision of the definitions, or do not answer in time.
func (m *membership) waitRevision(ctx context.Context, revision uint64) error {
	if m == nil {
		return nil // the definitions start before the membership
	}
	question := binary.AppendUvarint(nil, revision)
	var asked sync.WaitGroup
	for _, o := range m.Others() {
		if !o.Heard && !o.OnRoster {
			continue
		}
		wait := peerWait
		if !o.Heard {
			wait = silentWait
		}
		asked.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, wait)
			defer cancel()
			if err := m.askRevision(ctx, o.ID, question); err != nil {
				m.rare.Warn("a member may not have the newest definitions yet", o.ID, "member", o.Name, "err", err)
			}
		})
	}
	asked.Wait()
	return nil
}

// askRevision asks one member whether it has a revision. A question can fail at once, for example while the brokers connect
// anew: it is asked again for as long as a silent member is waited for.
func (m *membership) askRevision(ctx context.Context, id string, question []byte) error {
	begin := time.Now()
	for {
		_, err := m.Ask(ctx, id, revisionQuestion, question)
		if err == nil || ctx.Err() != nil || time.Since(begin) > silentWait {
			return err
		}
		select {
		case <-time.After(askAgain):
		case <-ctx.Done():
		}
	}
}

// answerRevision answers when this member has a revision of the definitions.
func answerRevision(definitions *config.Store) cluster.Handler {
	return func(ctx context.Context, question []byte) ([]byte, error) {
		revision, n := binary.Uvarint(question)
		if n <= 0 {
			return nil, errors.New("no revision")
		}
		return nil, definitions.WaitRevision(ctx, revision)
	}
}

// leave has other members act for this one, within a time that a stop can wait. Without a majority they take over when
// they hear each other again.
func (b *Backend) leave(m *membership) error {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	if err := m.Leave(ctx); err != nil {
		b.log.Warn("the other members do not know that this one stops", "err", err)
	}
	return nil
}

// leaveTimeout bounds how long a stop waits for the others to take over.
const leaveTimeout = 5 * time.Second

// acts returns a function that reports whether this backend acts for a lane.
func (m *membership) acts(lane string) func() bool { return func() bool { return m.Acts(lane) } }

// sessionMembers returns the members that take agents, for the sessions.
func (m *membership) sessionMembers() []session.Member {
	var members []session.Member
	for _, o := range m.Members() {
		if (o.Self || o.Heard && o.Ready) && !o.Leaving && !o.Draining {
			members = append(members, session.Member{
				ID: o.ID, Life: o.Life, URL: o.AgentURL, Sessions: o.Sessions, Self: o.Self,
			})
		}
	}
	return members
}

const (
	// leaseEvery is the time between two looks at the lease.
	leaseEvery = 500 * time.Millisecond
	// leaseGrace is how long a backend keeps its agents without a lease: a short break of the network passes. After the
	// process stood still it is twice as long: what agents have sent in that time is in the sockets, and a stock agent would
	// not send it again.
	leaseGrace = 2500 * time.Millisecond
	// natsLeaseGrace is leaseGrace on NATS servers that are run beside the members. These take up to 9 s for an election,
	// in which no member has a lease.
	natsLeaseGrace = 10 * time.Second
	// leaseAtStart bounds awaitLease. It is longer than an election takes.
	leaseAtStart = 15 * time.Second
)

// awaitLease returns when this backend has its lease: agents that come earlier would have to go again. A backend that gets
// none, because its disk is full for example, starts without agents.
func (m *membership) awaitLease(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaseAtStart)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !m.Leased() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// newLeaseWatch makes a watch of this backend's lease.
func (b *Backend) newLeaseWatch(p *parts) *leaseWatch {
	w := &leaseWatch{
		members: p.members, sessions: p.sessions, grace: leaseGrace,
		reason: "this backend does not hear a majority of the cluster's members, or cannot write to the event log",
	}
	if b.opts.Cluster.NATS.on() {
		w.grace, w.reason = natsLeaseGrace, "this backend cannot write to the event log on NATS"
	}
	return w
}

// leaseWatch closes the agents' sessions while this backend has no lease: the majority goes on without it, and agents
// that stay would not be heard.
type leaseWatch struct {
	members  *membership
	sessions *session.Server
	grace    time.Duration // how long agents stay without a lease
	reason   string        // why they have to go
	cancel   context.CancelFunc
	done     sync.WaitGroup
}

// Start begins to watch.
func (w *leaseWatch) Start(ctx context.Context) error {
	ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if w.members.Alone() {
		return nil
	}
	if !w.members.Leased() {
		w.sessions.Suspend(w.reason)
	}
	w.done.Go(func() { w.run(ctx) })
	return nil
}

// Stop ends it.
func (w *leaseWatch) Stop() error {
	w.cancel()
	w.done.Wait()
	return nil
}

func (w *leaseWatch) run(ctx context.Context) {
	tick := time.NewTicker(leaseEvery)
	defer tick.Stop()
	kept := keeping{grace: w.grace, leased: time.Now(), looked: time.Now()}
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		switch leased := w.members.Leased(); {
		case !kept.look(time.Now(), leased):
			w.sessions.Suspend(w.reason)
		case leased:
			w.sessions.Resume()
		}
	}
}

// keeping decides how long a backend keeps its agents without a lease.
type keeping struct {
	grace  time.Duration
	leased time.Time // when it last had its lease, or was given time because it had stood still
	looked time.Time // when look was last called
	stood  bool      // the process has stood still since it last had its lease
}

// look is called several times in a grace, and reports whether the agents may stay.
func (k *keeping) look(now time.Time, leased bool) bool {
	pause := now.Sub(k.looked)
	k.looked = now
	switch {
	case leased:
		k.leased, k.stood = now, false
	case pause > k.grace && !k.stood:
		k.leased, k.stood = now.Add(k.grace), true
	}
	return now.Sub(k.leased) <= k.grace
}
