package handler

import (
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// letterCount counts the dead letters of each handler.
type letterCount struct {
	mu      sync.Mutex // guards the fields below
	of      map[resource.Name]int
	sum     int
	expired time.Time // when old ones were last removed
}

func (c *letterCount) add(name resource.Name, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addLocked(name, n)
}

// take counts one more, unless the limit is reached.
func (c *letterCount) take(name resource.Name, limit int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sum >= limit {
		return false
	}
	c.addLocked(name, 1)
	return true
}

func (c *letterCount) addLocked(name resource.Name, n int) {
	if c.of == nil {
		c.of = map[resource.Name]int{}
	}
	if c.of[name] += n; c.of[name] == 0 {
		delete(c.of, name)
	}
	c.sum += n
}

// byHandler returns the sums over all namespaces.
func (c *letterCount) byHandler() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	sums := map[string]int{}
	for name, n := range c.of {
		sums[name.Name] += n
	}
	return sums
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
