package metric

import (
	"context"
	"sync"
)

// gate lets queries in until it is closed, and waits for them then.
type gate struct {
	mu      sync.Mutex // guards the fields below
	closed  bool
	inside  sync.WaitGroup
	cancels map[int]context.CancelFunc
	next    int
}

// enter returns the context of a query, which ends when the gate is closed. The caller calls leave at its end.
func (g *gate) enter(ctx context.Context) (_ context.Context, leave func(), ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, nil, false
	}
	if g.cancels == nil {
		g.cancels = map[int]context.CancelFunc{}
	}
	ctx, cancel := context.WithCancel(ctx)
	id := g.next
	g.next++
	g.cancels[id] = cancel
	g.inside.Add(1)
	return ctx, func() {
		g.mu.Lock()
		delete(g.cancels, id)
		g.mu.Unlock()
		cancel()
		g.inside.Done()
	}, true
}

// close ends the queries, and returns when none is left.
func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	for _, cancel := range g.cancels {
		cancel()
	}
	g.mu.Unlock()
	g.inside.Wait()
}
