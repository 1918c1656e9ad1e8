//go:build linux

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
)

// follower watches the live stream of events, as `lapwing event list --watch` does. When its member fails, it goes on
// at the next one from the position that it had.
type follower struct {
	clients []*client.Client
	running sync.WaitGroup

	mu       sync.Mutex       // guards the fields below
	newest   map[string]int64 // by pair, the number of its newest event
	synced   bool
	moves    int
	resets   int
	problems []string
}

func newFollower(clients []*client.Client) *follower {
	return &follower{clients: clients, newest: map[string]int64{}}
}

func (f *follower) start(ctx context.Context) {
	f.running.Go(func() {
		position := ""
		for turn := 0; ctx.Err() == nil; turn++ {
			_ = f.clients[turn%len(f.clients)].StreamWith(ctx, namespace, client.StreamOptions{Position: &position}, f.take)
			f.mu.Lock()
			f.synced = false
			f.moves++
			f.mu.Unlock()
			pause(ctx.Done(), 200*time.Millisecond)
		}
	})
}

func (f *follower) take(ev client.StreamEvent) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := ev.Entity + "/" + ev.Check
	switch ev.Type {
	case client.StreamSynced:
		f.synced = true
	case client.StreamReset:
		f.resets++
		clear(f.newest)
	case client.StreamEventDelete:
		f.problems = append(f.problems, "live stream: "+name+" was deleted")
	case client.StreamEventPut:
		if ev.Check != "keepalive" {
			f.newest[name] = ev.Event.Check.Executed
		}
	}
	return nil
}

// compare returns how the follower's view differs from the events of a member, by pair.
func (f *follower) compare(have map[string]int64) (problems []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.synced {
		return []string{"live stream: it is not up to date"}
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if f.newest[name] != have[name] {
			problems = append(problems,
				fmt.Sprintf("live stream: %s is at event %d, but event %d is stored", name, f.newest[name], have[name]))
		}
	}
	return append(problems, f.problems...)
}
