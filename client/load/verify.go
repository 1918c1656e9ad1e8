package load

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Verdict is the result of comparing a backend's state with what was sent. Its fields are exported for the connection
// between processes.
type Verdict struct {
	Pairs           uint64 // with results sent
	Verified        uint64 // that were compared
	Lost            uint64 // results
	Duplicates      uint64 // results that were counted twice
	OrderViolations uint64 // pairs whose history differs from what was sent
	Problems        []string
}

const maxProblems = 20

func (v *Verdict) add(o Verdict) {
	v.Pairs += o.Pairs
	v.Verified += o.Verified
	v.Lost += o.Lost
	v.Duplicates += o.Duplicates
	v.OrderViolations += o.OrderViolations
	v.Problems = append(v.Problems, o.Problems...)
	v.Problems = v.Problems[:min(len(v.Problems), maxProblems)]
}

// storedEvent is the compared part of an event in the API.
type storedEvent struct {
	Sequence int64 `json:"sequence"`
	Check    *struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Status      uint32 `json:"status"`
		Occurrences int64  `json:"occurrences"`
		History     []struct {
			Status   uint32 `json:"status"`
			Executed int64  `json:"executed"`
		} `json:"history"`
	} `json:"check"`
}

// EventReader reads the stored events of an entity.
type EventReader interface {
	EntityEvents(ctx context.Context, namespace, entity string, events any) error
}

const (
	verifiers    = 4
	verifyGrace  = 20 * time.Second // for events that are on their way when the results stop
	settleBefore = 250 * time.Millisecond
)

// Verify compares what a backend stores of every check with what the agents have sent: the number of the last result,
// the number of results in a row with its status, and the statuses and times of the last 21.
func (f *Fleet) Verify(ctx context.Context, api EventReader) (Verdict, error) {
	var (
		mu      sync.Mutex // guards total and failure
		total   Verdict
		failure error
		next    atomic.Int64
		workers sync.WaitGroup
	)
	deadline := time.Now().Add(verifyGrace)
	for range verifiers {
		workers.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(f.agents) || ctx.Err() != nil {
					return
				}
				v, err := f.verifyAgent(ctx, api, f.agents[i], deadline)
				mu.Lock()
				total.add(v)
				if err != nil && failure == nil {
					failure = err
				}
				stop := failure != nil
				mu.Unlock()
				if stop {
					return
				}
			}
		})
	}
	workers.Wait()
	if failure == nil {
		failure = ctx.Err()
	}
	return total, failure
}

// verifyAgent repeats the comparison of what is not complete yet, until the deadline. What a killed agent has sent may be
// lost, and is not compared.
func (f *Fleet) verifyAgent(ctx context.Context, api EventReader, a *simAgent, deadline time.Time) (Verdict, error) {
	for {
		a.mu.Lock()
		pairs, dead := slices.Clone(a.pairs), a.dead
		a.mu.Unlock()
		if dead || !slices.ContainsFunc(pairs, func(p pair) bool { return p.n > 0 }) {
			return Verdict{}, nil
		}
		var events []storedEvent
		if err := api.EntityEvents(ctx, f.opts.Namespace, a.name, &events); err != nil {
			return Verdict{}, fmt.Errorf("read events of %s: %w", a.name, err)
		}
		v := f.compare(a, pairs, events)
		if v.Lost == 0 || time.Now().After(deadline) {
			return v, nil
		}
		select {
		case <-ctx.Done():
			return v, ctx.Err()
		case <-time.After(settleBefore):
		}
	}
}

func (f *Fleet) compare(a *simAgent, pairs []pair, events []storedEvent) Verdict {
	var v Verdict
	stored := map[string]*storedEvent{}
	for i := range events {
		if c := events[i].Check; c != nil {
			stored[c.Metadata.Name] = &events[i]
		}
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	for name, number := range f.numbers {
		if number >= len(pairs) || pairs[number].n == 0 {
			continue
		}
		v.Pairs++
		n := pairs[number].n
		ev := stored[name]
		if ev == nil {
			v.Lost += uint64(n)
			v.Problems = append(v.Problems, fmt.Sprintf("%s/%s: sent %d results, the backend has none", a.name, name, n))
			continue
		}
		v.Verified++
		occurrences, history := f.outcomes.expected(a.index, checkHash(name), n)
		var got []uint32
		ordered := true
		for i, h := range ev.Check.History {
			got = append(got, h.Status)
			ordered = ordered && (i == 0 || h.Executed >= ev.Check.History[i-1].Executed)
		}
		switch {
		case ev.Sequence < int64(n):
			v.Lost += uint64(int64(n) - ev.Sequence)
			v.Problems = append(v.Problems, fmt.Sprintf("%s/%s: sent %d results, the backend has number %d", a.name, name, n, ev.Sequence))
		case ev.Check.Occurrences < occurrences:
			v.Lost += uint64(occurrences - ev.Check.Occurrences)
			v.Problems = append(v.Problems, fmt.Sprintf("%s/%s: %d results in a row with status %d, the backend has %d", a.name, name, occurrences, ev.Check.Status, ev.Check.Occurrences))
		case ev.Check.Occurrences > occurrences:
			v.Duplicates += uint64(ev.Check.Occurrences - occurrences)
			v.Problems = append(v.Problems, fmt.Sprintf("%s/%s: %d results in a row with status %d, the backend has %d", a.name, name, occurrences, ev.Check.Status, ev.Check.Occurrences))
		case !ordered || !slices.Equal(got, history):
			v.OrderViolations++
			v.Problems = append(v.Problems, fmt.Sprintf("%s/%s: sent %v, the backend has %v", a.name, name, history, got))
		}
	}
	v.Problems = v.Problems[:min(len(v.Problems), maxProblems)]
	return v
}
