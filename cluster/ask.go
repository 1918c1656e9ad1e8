package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Handler answers a question of another member. It runs on a goroutine of its own, within askTimeout.
type Handler func(ctx context.Context, question []byte) (answer []byte, err error)

const (
	// askTimeout bounds a question, unless the asker's context ends before.
	askTimeout = 10 * time.Second
	// maxAsked is how many questions are answered at a time. More are refused.
	maxAsked = 64
)

// The first byte of an answer.
const (
	answered = 0
	failed   = 1 // the rest is the error's text
)

// ErrAway is returned for a question to a member that is not heard.
var ErrAway = errors.New("the member is not connected")

func questionSubject(id, name string) string { return "lapwing.cluster.ask." + id + "." + name }

// Handle answers the other members' questions of a name, until Stop. It must be called after Start.
func (c *Cluster) Handle(name string, h Handler) error {
	if c.alone {
		return nil
	}
	stop, err := c.opts.Bus.Subscribe(questionSubject(c.opts.ID, name), func(reply string, question []byte) {
		if !c.asked.TryAcquire(1) {
			c.reply(reply, nil, errors.New("too many questions at a time"))
			return
		}
		c.done.Go(func() {
			defer c.asked.Release(1)
			ctx, cancel := context.WithTimeout(c.life, askTimeout)
			defer cancel()
			answer, err := h(ctx, question)
			c.reply(reply, answer, err)
		})
	})
	if err != nil {
		return fmt.Errorf("answer questions about %s: %w", name, err)
	}
	c.lifecycle.Lock()
	defer c.lifecycle.Unlock()
	c.stops = append(c.stops, stop)
	return nil
}

func (c *Cluster) reply(subject string, answer []byte, err error) {
	if subject == "" {
		return
	}
	if err != nil {
		answer = append([]byte{failed}, err.Error()...)
	} else {
		answer = append([]byte{answered}, answer...)
	}
	if err := c.opts.Bus.Publish(subject, answer); err != nil {
		c.rare.Warn("a member's question could not be answered", "", "err", err)
	}
}

// Ask asks one member.
func (c *Cluster) Ask(ctx context.Context, id, name string, question []byte) ([]byte, error) {
	if c.alone {
		return nil, ErrAway
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := c.opts.Bus.Request(ctx, questionSubject(id, name), question)
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask member %s about %s: %w", c.NameOf(id), name, err)
	case len(answer) == 0:
		return nil, fmt.Errorf("ask member %s about %s: empty answer", c.NameOf(id), name)
	case answer[0] != answered:
		return nil, fmt.Errorf("ask member %s about %s: %s", c.NameOf(id), name, answer[1:])
	}
	return answer[1:], nil
}

// Answer is what one member said.
type Answer struct {
	Member string // its id
	Body   []byte
	Err    error
}

// AskAll asks all other members that are heard, at the same time, and returns their answers in the order of their ids.
// Members on the roster that are not heard answer with ErrAway.
func (c *Cluster) AskAll(ctx context.Context, name string, question []byte) []Answer {
	var answers []Answer
	for _, m := range c.Others() {
		a := Answer{Member: m.ID}
		if !m.Heard {
			a.Err = fmt.Errorf("ask member %s about %s: %w", m.Name, name, ErrAway)
		}
		answers = append(answers, a)
	}
	var under sync.WaitGroup
	for i := range answers {
		if a := &answers[i]; a.Err == nil {
			under.Go(func() { a.Body, a.Err = c.Ask(ctx, a.Member, name, question) })
		}
	}
	under.Wait()
	return answers
}

// Member is a backend of the cluster as this one knows it.
type Member struct {
	Beat
	Self bool
	// Heard says that it was heard lately. Silent is how long it has not been heard; of a member that was never heard,
	// how long this backend has listened.
	Heard  bool
	Silent time.Duration
	// OnRoster says that it is on the newest roster of the first partition.
	OnRoster bool
	// Skew is how far its clock is ahead, when its newest heartbeat came; of itself 0.
	Skew time.Duration
}

// Members returns all backends that are on a roster or were heard, in the order of their ids.
func (c *Cluster) Members() []Member {
	if c.alone {
		return []Member{{Beat: Beat{ID: c.opts.ID, Ready: true, Leased: true}, Self: true, Heard: true, OnRoster: true}}
	}
	own := Member{Beat: c.own(), Self: true, Heard: true}
	c.mu.RLock()
	own.OnRoster = c.parts[0].rosters.newest().Has(c.opts.ID)
	c.mu.RUnlock()
	return inOrder(append(c.Others(), own))
}

// Others returns the Members without this one. Describe, which looks at all sessions, is not called: each write of a
// definition asks the others.
func (c *Cluster) Others() []Member {
	if c.alone {
		return nil
	}
	now := time.Now()
	c.mu.RLock()
	defer c.mu.RUnlock()
	newest := c.parts[0].rosters.newest()
	var members []Member
	for id, p := range c.peers {
		m := Member{
			Beat: p.beat, Heard: now.Sub(p.heard) < c.opts.Suspect, Silent: now.Sub(p.heard), OnRoster: newest.Has(id),
			Skew: p.skew,
		}
		if m.Heard || m.OnRoster || !p.forgotten {
			members = append(members, m)
		}
	}
	for _, id := range newest.Members {
		if id != c.opts.ID && c.peers[id] == nil {
			members = append(members, Member{Beat: Beat{ID: id}, Silent: now.Sub(c.began), OnRoster: true})
		}
	}
	return inOrder(members)
}

func inOrder(members []Member) []Member {
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	return members
}

// Forget leaves members that are gone for good out of Members, until they are heard again.
func (c *Cluster) Forget(ids ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if p := c.peers[id]; p != nil {
			p.forgotten = true
		}
	}
}

// Lag returns what a member has not got and another one has: changes of definitions, and messages of the event log to
// fold, by partition. A heartbeat is up to half a second old, so small numbers mean nothing.
func (m *Member) Lag(members []Member) (definitions uint64, folded []uint64) {
	folded = make([]uint64, len(m.Folded))
	if m.Revision == 0 { // it has not said yet
		return 0, folded
	}
	for i := range members {
		other := &members[i]
		definitions = max(definitions, other.Revision-min(m.Revision, other.Revision))
		for p := range min(len(folded), len(other.Folded)) {
			folded[p] = max(folded[p], other.Folded[p]-min(m.Folded[p], other.Folded[p]))
		}
	}
	return definitions, folded
}

// NameOf returns the name of a member, or its id if its name is not known.
func (c *Cluster) NameOf(id string) string {
	if c.alone {
		return id
	}
	if id == c.opts.ID {
		return c.opts.Name
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if p := c.peers[id]; p != nil && p.beat.Name != "" {
		return p.beat.Name
	}
	return id
}
