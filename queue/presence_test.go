package queue

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// members returns the names of a ring's agents, as the ring has them.
func (p *Presence) members(subscription string) (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.ring(Group{resource.Name{Namespace: "default", Name: "check"}, subscription}); r != nil {
		for _, a := range r.agents {
			names = append(names, a.name)
		}
	}
	return names
}

func TestAfter(t *testing.T) {
	p := newPresence("m", "1")
	linux := p.of(resource.Name{Namespace: "default", Name: "linux"})
	if !linux.empty() {
		t.Errorf("a new ring has %v", linux.agents)
	}
	for _, name := range []string{"c", "a", "e"} {
		p.Connected(resource.Name{Namespace: "default", Name: name}, []string{"linux"})
	}
	for name, want := range map[string]string{"": "a", "a": "c", "b": "c", "c": "e", "e": "a", "z": "a"} {
		linux.settle()
		for near := range 4 {
			if got := linux.agents[linux.after(name, near)].name; got != want {
				t.Errorf("after %q comes %s, want %s", name, got, want)
			}
		}
	}
	linux.turns = []uint32{1, 2, 3}
	p.Connected(resource.Name{Namespace: "default", Name: "b"}, []string{"linux"})
	p.Gone(resource.Name{Namespace: "default", Name: "a"})
	p.Connected(resource.Name{Namespace: "default", Name: "e"}, []string{"linux"})
	if linux.settle(); !slices.Equal(linux.turns, []uint32{0, 2, 3}) {
		t.Errorf("b, c and e have had %v turns, want none, 2 and 3", linux.turns)
	}
}

// TestPresence: three members that tell each other about their agents know the same in the end, even if messages get lost. Each
// agent has its own subscription, and some have that of others too.
func TestPresence(t *testing.T) {
	list := []string{"sub-0", "sub-1", "sub-2", "sub-0\x00sub-1", "entity:agent-0", "entity:agent-1"}
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 0))
			lives := []int{1, 1, 1}
			var all [3]*Presence
			var connected [3]map[string][]string // by member: the subscriptions of its agents
			for i := range all {
				all[i], connected[i] = newPresence(fmt.Sprint("m", i), "1"), map[string][]string{}
			}
			spread := func(from int, lossy bool) {
				for more := true; more; {
					var message []byte
					if message, more = all[from].changes(20); message == nil {
						return
					}
					for to, p := range all {
						if lossy && rng.IntN(4) == 0 {
							continue
						}
						if err := p.hear(message); err != nil {
							t.Fatalf("member %d: %v", to, err)
						}
					}
				}
			}
			for range 60 {
				at := rng.IntN(3)
				name := fmt.Sprint("agent-", rng.IntN(8))
				switch rng.IntN(12) {
				case 0: // the member starts anew
					lives[at]++
					all[at], connected[at] = newPresence(fmt.Sprint("m", at), fmt.Sprint(lives[at])), map[string][]string{}
				case 1:
					all[at].lost(fmt.Sprint("m", rng.IntN(3)))
				case 2, 3, 4:
					delete(connected[at], name)
					all[at].Gone(resource.Name{Namespace: "default", Name: name})
				default:
					var subscriptions []string
					for range rng.IntN(4) {
						subscriptions = append(subscriptions, list[rng.IntN(len(list))])
					}
					subscriptions = resource.AddEntitySubscription(subscriptions, name)
					connected[at][name] = subscriptions
					all[at].Connected(resource.Name{Namespace: "default", Name: name}, subscriptions)
				}
				if rng.IntN(3) == 0 {
					spread(at, true)
				}
				all[at].members(list[rng.IntN(len(list))])
			}
			for from := range all {
				spread(from, true)
				for to, p := range all {
					if from == to {
						continue
					}
					if _, wanted := p.heard(fmt.Sprint("m", from), fmt.Sprint(lives[from]), all[from].Number()); wanted {
						if err := p.take(all[from].copy()); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			for _, subscription := range list {
				want := map[string]bool{}
				for _, agents := range connected {
					for name, has := range agents {
						if slices.Contains(has, subscription) {
							want[name] = true
						}
					}
				}
				names := slices.Sorted(maps.Keys(want))
				for at, p := range all {
					if got := p.members(subscription); !slices.Equal(got, names) {
						t.Errorf("member %d has %v in %s, want %v", at, got, subscription, names)
					}
				}
			}
			for at, p := range all {
				for name := range p.rings {
					if p.members(name.Name) == nil {
						t.Errorf("member %d keeps the empty %s", at, name.Name)
					}
				}
				for name := range connected[at] {
					p.Gone(resource.Name{Namespace: "default", Name: name})
				}
				for other := range all {
					p.lost(fmt.Sprint("m", other))
				}
				if len(p.agents)+len(p.older)+len(p.homes)+len(p.rings) > 0 {
					t.Errorf("without agents member %d has %v, %v, %v and %v", at, p.agents, p.older, p.homes, p.rings)
				}
			}
		})
	}
}

// FuzzPresence: a message from elsewhere is read or refused.
func FuzzPresence(f *testing.F) {
	p := newPresence("m", "1")
	p.Connected(resource.Name{Namespace: "default", Name: "a"}, []string{"linux", "web"})
	f.Add(p.copy())
	p.Gone(resource.Name{Namespace: "default", Name: "a"})
	message, _ := p.changes(100)
	f.Add(message)
	f.Fuzz(func(t *testing.T, message []byte) {
		other := newPresence("o", "1")
		if err := other.take(message); err != nil && !strings.Contains(err.Error(), "message about agents") {
			t.Error(err)
		}
	})
}

// BenchmarkPresence measures what 50,000 agents with some subscriptions each cost at a member that they are not connected
// to: bytes in all for each subscription of an agent, and the time to find the next agent.
//
//	go test ./queue -run '^$' -bench Presence
func BenchmarkPresence(b *testing.B) {
	const agents = 50_000
	for _, each := range []int{2, 3, 5, 6, 20} {
		b.Run(fmt.Sprint(each), func(b *testing.B) {
			subscriptions := make([]string, each)
			for i := range subscriptions {
				subscriptions[i] = fmt.Sprint("subscription-", i)
			}
			from := newPresence("a", "1")
			for i := range agents {
				name := fmt.Sprintf("host-%05d", i)
				from.Connected(resource.Name{Namespace: "default", Name: name}, resource.AddEntitySubscription(subscriptions, name))
			}
			before := inUse()
			to := newPresence("b", "1")
			for more := true; more; {
				var message []byte
				message, more = from.changes(1 << 20)
				if err := to.hear(message); err != nil {
					b.Fatal(err)
				}
			}
			var first *ring
			for _, subscription := range subscriptions {
				first = to.of(resource.Name{Namespace: "default", Name: subscription})
				first.settle()
			}
			name, at := "", 0
			for b.Loop() {
				at = first.after(name, at)
				name = first.agents[at].name
			}
			b.ReportMetric(float64(inUse()-before)/(agents*float64(each)), "B/subscription")
			runtime.KeepAlive(to)
			runtime.KeepAlive(from)
		})
	}
}

// inUse returns how many bytes are in use.
func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
