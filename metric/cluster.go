package metric

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/lapwing-monitoring/lapwing/metric/ingest"
	"github.com/lapwing-monitoring/lapwing/metric/member"
)

// Cluster is what the server needs of a cluster, in which each series is stored on some of the members.
type Cluster struct {
	// Self is this member's id. It stays the same for ever.
	Self string
	// Members returns all members that are known now, with those that are away.
	Members func() []member.Info
	// Least is how many members, this one included, must be known before points of senders are taken. Senders wait until
	// then, and remote write is told to come again, because a point would have fewer copies than Options.Replication says.
	// Default 1.
	Least int
	// Ask sends a question to a member and returns its answer.
	Ask func(ctx context.Context, id, question string, payload []byte) ([]byte, error)
	// Handle has f answer the other members' questions of a name. It is called by Start.
	Handle func(question string, f func(ctx context.Context, payload []byte) ([]byte, error)) error
	// HandoverDelay is the time between a change of the members and the handover of series: points that are on their way
	// arrive, and changes that follow each other are handled together. Default 10 s.
	HandoverDelay time.Duration
	// HandoverAgain is the time until a handover that some member has not taken is tried again. Default 1 min.
	HandoverAgain time.Duration
}

// buildMembers makes the ways to the other members.
func (s *Server) buildMembers() (err error) {
	c := s.opts.Cluster
	if c == nil || s.store == nil {
		return nil
	}
	c.HandoverDelay, c.HandoverAgain = cmp.Or(c.HandoverDelay, 10*time.Second), cmp.Or(c.HandoverAgain, time.Minute)
	s.handovers, s.histories.server = newHandovers(s.opts.Registerer), s
	s.members, err = member.New(member.Options{
		Self: c.Self, Factor: s.opts.Replication, Dir: filepath.Join(s.opts.Dir, "members"), SpillBytes: s.opts.MemberSpillBytes,
		Members: c.Members, Ask: c.Ask, Changed: s.membersChanged,
		NewSink: func(ctx context.Context) member.Sink { return s.table.Received(ctx) },
		Logger:  s.opts.Logger, Registerer: s.opts.Registerer,
	})
	if err != nil {
		return err
	}
	s.push("points for other members", s.members.Stop)
	return nil
}

// placeOn has the table place series on the members.
func (s *Server) placeOn(o *ingest.Options) {
	if s.members == nil {
		return
	}
	o.Place = func(name string) (here bool, others []ingest.Member) {
		here, peers := s.members.Owners(name)
		for _, p := range peers {
			others = append(others, p)
		}
		return here, others
	}
	o.Computes = func(output string) ingest.Member {
		if p := s.members.Computes(output); p != nil {
			return p
		}
		return nil
	}
	o.Settle, o.Room = s.settle, s.members.Wait
}

// settleTimeout bounds how long the end of a connection waits for its points to be safe.
const settleTimeout = 10 * time.Second

func (s *Server) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	return s.members.Settle(ctx)
}

// knowsMembers reports whether the points of senders can have their copies. A member that was known once counts.
func (s *Server) knowsMembers() bool {
	if s.members == nil {
		return true
	}
	all, _ := s.members.Members()
	return len(all) >= min(s.opts.Cluster.Least, s.members.Factor())
}

// membersPoll is how often it is looked whether enough members are known.
const membersPoll = 100 * time.Millisecond

// listenLater starts the listeners when enough members are known. It ends with the server.
func (s *Server) listenLater() {
	s.opts.Logger.Info("the listeners of metrics wait until another member is known")
	tick := time.NewTicker(membersPoll)
	defer tick.Stop()
	for !s.knowsMembers() {
		select {
		case <-tick.C:
		case <-s.life.Done():
			return
		}
	}
	s.waiting.Store(false)
	if err := s.listen(s.life); err != nil && s.life.Err() == nil {
		s.opts.Logger.Info("the listeners of metrics do not begin", "err", err) // Stop came first
	}
}

func (s *Server) membersChanged() {
	s.table.Changed()
	s.handovers.changed()
}

// startMembers begins to take points of the other members, and to send them theirs.
func (s *Server) startMembers() error {
	if s.members == nil {
		return nil
	}
	s.members.Start()
	s.running.Go(s.learnRemoved)
	s.push("handover of series", s.stopHandovers)
	if err := s.startHandovers(); err != nil {
		return err
	}
	handle := s.opts.Cluster.Handle
	return errors.Join(
		handle(member.PointsQuestion, func(ctx context.Context, batch []byte) ([]byte, error) {
			return nil, s.members.Receive(ctx, batch)
		}),
		handle(questionQuery, s.answerQuery),
		handle(questionPart, s.parts.part),
		handle(questionHistory, s.histories.answer),
	)
}

// learnInterval is the time between two questions about removed members.
const learnInterval = time.Minute

// learnRemoved asks the others which members are gone for good: this one may have been away when they were removed.
func (s *Server) learnRemoved() {
	tick := time.NewTicker(learnInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.learn()
		case <-s.life.Done():
			return
		}
	}
}

func (s *Server) learn() {
	answers, err := s.askAll(s.life, &question{About: aboutRemoved}, &missing{})
	if err != nil {
		return
	}
	gone := united(answers)
	members, _ := s.members.Members()
	for _, m := range members {
		if m.Away && slices.Contains(gone, m.ID) {
			if err := s.members.Forget(m.ID); err != nil {
				s.rare.Error("a removed member still counts for metrics", "", "err", err)
			}
		}
	}
}

// Forget leaves members out that are gone for good: their series go to others.
func (s *Server) Forget(ids ...string) error {
	if s.members == nil {
		return nil
	}
	if err := s.members.Forget(slices.Clone(ids)...); err != nil {
		return fmt.Errorf("forget a member: %w", err)
	}
	return nil
}
