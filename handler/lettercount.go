package handler

import (
	"maps"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// letterCount counts the dead letters of each handler that are stored.
type letterCount struct {
	mu      sync.Mutex // guards the fields below
	of      map[resource.Name]int
	sum     int
	coming  map[string]*ledger // dead letters that a report will add, by key
	answers map[uint64]int     // how many dead letters each request of this backend got, once it is folded
	expired time.Time          // when old ones were last removed
}

// take expects one more, unless the limit is reached.
func (c *letterCount) take(key []byte, l *ledger, limit int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sum+len(c.coming) >= limit {
		return false
	}
	if c.coming == nil {
		c.coming = map[string]*ledger{}
	}
	c.coming[string(key)] = l
	return true
}

// abandon expects none of a ledger any more.
func (c *letterCount) abandon(l *ledger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.coming, func(_ string, of *ledger) bool { return of == l })
}

// folded adds what a record has changed. The dead letters under its keys are not expected any more.
func (c *letterCount) folded(keys map[string]bool, counts map[resource.Name]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range keys {
		delete(c.coming, key)
	}
	for name, n := range counts {
		if c.of == nil {
			c.of = map[resource.Name]int{}
		}
		if c.of[name] += n; c.of[name] == 0 {
			delete(c.of, name)
		}
		c.sum += n
	}
}

// expect has answer keep the result of a request until answered.
func (c *letterCount) expect(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answers == nil {
		c.answers = map[uint64]int{}
	}
	c.answers[id] = 0
}

// answer records how many dead letters a request got, if it is one of this backend.
func (c *letterCount) answer(id uint64, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, expected := c.answers[id]; expected {
		c.answers[id] = n
	}
}

// answered returns the result of a request, and forgets it.
func (c *letterCount) answered(id uint64) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.answers[id]
	delete(c.answers, id)
	return n
}

// byName returns how many each handler has.
func (c *letterCount) byName() map[resource.Name]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.of)
}

// count returns how many a handler has.
func (c *letterCount) count(name resource.Name) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[name]
}

// mayExpire returns true once a minute.
func (c *letterCount) mayExpire(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.expired) < time.Minute {
		return false
	}
	c.expired = now
	return true
}
