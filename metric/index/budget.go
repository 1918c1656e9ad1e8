package index

import (
	"context"
	"fmt"
)

// Budget bounds one query. A field of 0 is the one of Options.
type Budget struct {
	// Nodes is how many nodes of the index the query may look at.
	Nodes int
	// Results is how many nodes or series it may return.
	Results int
}

// Reasons of a BudgetError.
const (
	ReasonNodes   = "nodes"
	ReasonResults = "results"
	ReasonTime    = "time"
)

// BudgetError is the error of a query that needs more than it may use.
type BudgetError struct {
	// Query is the pattern, or the tag expressions.
	Query string
	// Reason is ReasonNodes, ReasonResults or ReasonTime.
	Reason string
	// Allowed is the bound, and Visited the nodes that the query looked at.
	Allowed Budget
	Visited int
	// Err is the context's error if Reason is ReasonTime.
	Err error
}

// Error says which query it was, what it was allowed, and what to do.
func (e *BudgetError) Error() string {
	switch e.Reason {
	case ReasonResults:
		return fmt.Sprintf("%s matches more than the %d results that are allowed: make it narrower, for example with "+
			"names in place of wildcards", e.Query, e.Allowed.Results)
	case ReasonTime:
		return fmt.Sprintf("%s ran out of time after %d nodes of the index: %v: make it narrower, for example with "+
			"names in place of its first wildcards", e.Query, e.Visited, e.Err)
	}
	return fmt.Sprintf("%s looks at more than the %d nodes of the index that are allowed: make it narrower, for example "+
		"with names in place of its first wildcards", e.Query, e.Allowed.Nodes)
}

// Unwrap returns the context's error, if that ended the query.
func (e *BudgetError) Unwrap() error { return e.Err }

// chunk is how many steps a query takes before it frees its lock for a moment and looks at its context. A step is
// about a microsecond, so a writer waits for about 0.1 ms.
const chunk = 64

// locker is the read side of a lock.
type locker interface {
	RLock()
	RUnlock()
}

// meter counts what a query uses. Its owner holds the lock between begin and end, except within step.
type meter struct {
	ctx     context.Context
	query   string
	allowed Budget
	lock    locker
	visited int
	results int
	work    int // since the lock was taken
	pauses  int
}

func (m *meter) begin() error {
	if err := m.ctx.Err(); err != nil {
		return m.late(err)
	}
	m.lock.RLock()
	return nil
}

func (m *meter) end() { m.lock.RUnlock() }

func (m *meter) late(err error) error {
	return &BudgetError{Query: m.query, Reason: ReasonTime, Allowed: m.allowed, Visited: m.visited, Err: err}
}

// visit counts nodes that were looked at.
func (m *meter) visit(nodes, work int) error {
	m.visited += nodes
	m.work += work
	if m.visited > m.allowed.Nodes {
		return &BudgetError{Query: m.query, Reason: ReasonNodes, Allowed: m.allowed, Visited: m.visited}
	}
	return nil
}

// result counts one result.
func (m *meter) result() error {
	if m.results++; m.results > m.allowed.Results {
		return &BudgetError{Query: m.query, Reason: ReasonResults, Allowed: m.allowed, Visited: m.visited}
	}
	return nil
}

// pause frees the lock for a moment if the query has held it long enough, and reports whether it did: then cursors are
// no longer valid. On an error the lock is held too.
func (m *meter) pause() (bool, error) {
	if m.work < chunk {
		return false, nil
	}
	m.work = 0
	m.pauses++
	m.lock.RUnlock()
	err := m.ctx.Err()
	m.lock.RLock()
	if err != nil {
		return true, m.late(err)
	}
	return true, nil
}
