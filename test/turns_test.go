package test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/broker/blocks"
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/client/load"
	"github.com/lapwing-monitoring/lapwing/client/load/scenario"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/queue"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// The size of TestTurns. A million turns: go test ./test -run 'TestTurns$' -v -turns-for 9m -turns-checks 1000
// -turns-agents 3000 -turns-kill-every 60s -timeout 1h. That needs 3,100 open files.
var (
	turnsFor       = flag.Duration("turns-for", 60*time.Second, "how long TestTurns runs")
	turnsChecks    = flag.Int("turns-checks", 50, "checks of TestTurns; each has two turns a second")
	turnsAgents    = flag.Int("turns-agents", 150, "agents of TestTurns")
	turnsKillEvery = flag.Duration("turns-kill-every", 15*time.Second, "time between two losses of a member in TestTurns")
)

// turnOf is a turn as the log has it.
type turnOf struct {
	check, subscription string
	tick                int64
}

// ran is a result of a turn.
type ran struct {
	agent    string
	tick     int64
	given    time.Time
	received int64 // Unix milliseconds
}

// TestTurns: of many round-robin checks, while agents die for good and members are killed, each tick has a result in the
// log. Hardly any has two, and the members know all that do. The turns are in order.
func TestTurns(t *testing.T) {
	const partitions = 2
	all := newMembers(t, 3, "--event-log-partitions", fmt.Sprint(partitions))
	all.start()
	var urls, metrics []string
	for _, p := range all {
		urls, metrics = append(urls, "ws://127.0.0.1:"+p.agent), append(metrics, "http://"+p.api+"/metrics")
	}
	subscriptions := []string{"one", "two"}
	s := &scenario.Scenario{
		Name: "turns", Run: "turns", Namespace: "default",
		Agents: []scenario.Agents{{
			Name: "turns", Count: *turnsAgents, Subscriptions: subscriptions, Protocol: load.ProtocolLapwing,
			Keepalive: scenario.Keepalive{Interval: 20 * time.Second, Warning: 10 * time.Minute},
		}},
		Entities: []scenario.Entities{{Name: "turns-entity-" + scenario.Numbered, Class: "proxy", Count: *turnsChecks}},
		Checks: []scenario.Checks{{
			Name: "turns-" + scenario.Numbered, Count: *turnsChecks, Interval: time.Second, Command: scenario.Command,
			Subscriptions: subscriptions, RoundRobin: true, ProxyEntity: "turns-entity-" + scenario.Numbered,
		}},
		Load: scenario.Settings{
			Duration: *turnsFor, WarmUp: 5 * time.Second, Protocol: load.ProtocolLapwing, EventBytes: 100, Seed: 1,
			AckDelay: 150 * time.Millisecond, KillAgents: 0.3, ChecksLast: true, CreateParallel: 8, ConnectRate: 500,
			Statuses: map[uint32]float64{0: 1},
		},
	}
	loaded := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_, err := load.Run(ctx, load.Options{
			Scenario: s, API: load.APIOptions{URL: "http://" + all[0].api, Username: testbackend.User, Password: testbackend.Password},
			Backends: urls, Metrics: metrics, AgentUser: testbackend.AgentUser, AgentPassword: testbackend.AgentPassword,
			RetryMin: 50 * time.Millisecond, RetryMax: time.Second, Progress: io.Discard, Logger: slog.New(slog.DiscardHandler),
			NoVerify: true, Keep: true,
		})
		loaded <- err
	}()
	eventually(t, 3*time.Minute, "turns are answered", func() bool {
		select {
		case err := <-loaded:
			t.Fatal("the load tool ended: ", err)
		default:
		}
		return all.sum("lapwing_queue_answered_total", "") > 100
	})
	kills, died := 0, []int64{}
	last := time.Now().Add(*turnsFor - 25*time.Second) // what a member leaves behind is done by the end
	for next := time.NewTicker(*turnsKillEvery); ; {
		select {
		case err := <-loaded:
			if err != nil {
				t.Fatal(err)
			}
		case <-next.C:
			if time.Now().After(last) {
				continue
			}
			p := all[1+kills%2] // the load tool asks the first one
			kills++
			died = append(died, time.Now().Unix())
			p.kill(syscall.SIGKILL)
			p.launch()
			p.ready()
			continue
		}
		break
	}
	flagged := flaggedTwice(t, all[0].client(), *turnsChecks)
	expired, late := all.sum("lapwing_queue_expired_total", ""), all.sum("lapwing_queue_late_total", "")
	for _, p := range all {
		p.kill(syscall.SIGTERM)
	}
	turns := loggedTurns(t, filepath.Join(all[0].dir, "state"), partitions)

	// The groups, and the ticks of all of them.
	groups := map[turnOf][]int64{} // with tick 0
	var newest int64
	twice, unknown := 0, 0
	for turn, runs := range turns {
		g := turn
		g.tick = 0
		groups[g] = append(groups[g], turn.tick)
		newest = max(newest, turn.tick)
		for _, run := range runs[1:] {
			if twice++; !flagged[turn][run.agent] && !flagged[turn][runs[0].agent] {
				unknown++
				t.Errorf("%+v has results of %s and of %s, and no member says so", turn, runs[0].agent, run.agent)
			}
		}
	}
	if want := *turnsChecks * len(subscriptions); len(groups) != want {
		t.Fatalf("%d groups had turns, want %d", len(groups), want)
	}
	lost := 0
	for g, ticks := range groups {
		slices.Sort(ticks)
		for tick, i := ticks[0], 0; tick < newest-20; tick++ { // the last ones may have had their results after the end
			if i < len(ticks) && ticks[i] == tick {
				i++
			} else if lost++; lost < 10 {
				t.Errorf("%s %s has no result of its tick %d, the first is %d and the newest %d; members died at %v",
					g.check, g.subscription, tick, ticks[0], newest, died)
			}
		}
	}
	if float64(twice) > 0.001*float64(len(turns))+5 {
		t.Errorf("%d of %d turns have two results", twice, len(turns))
	}
	unfair := strictTurns(t, turns, groups, len(urls))
	t.Logf("%d turns of %d groups, %d members killed: %d lost, %d with two results of which %d are not known, %d out of order; "+
		"the members know of %v that expired and of %v late results", len(turns), len(groups), kills, lost, twice, unknown, unfair, expired, late)
}

// flaggedTwice returns the agents with the second results of turns, as the members know them.
func flaggedTwice(t *testing.T, c *client.Client, checks int) map[turnOf]map[string]bool {
	t.Helper()
	flagged := map[turnOf]map[string]bool{}
	for i := range checks {
		groups, err := c.QueueGroups(t.Context(), "default", fmt.Sprint("turns-", i+1))
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range groups {
			for _, d := range g.Twice {
				turn := turnOf{g.Check, g.Subscription, d.Tick}
				if flagged[turn] == nil {
					flagged[turn] = map[string]bool{}
				}
				flagged[turn][d.Second] = true
			}
		}
	}
	return flagged
}

// loggedTurns reads the results of turns from the files of a member's log, each agent's first, as they were received.
func loggedTurns(t *testing.T, state string, partitions int) map[turnOf][]ran {
	t.Helper()
	turns := map[turnOf][]ran{}
	var mu sync.Mutex // blocks are read at the same time
	intern := func(b []byte) string { return string(b) }
	for p := range partitions {
		stream := eventlog.Stored(p)
		stream.Valid = func(_, _, message []byte) error {
			batch, err := eventlog.OpenBatch(message, intern)
			var r eventlog.Record
			for more := err == nil; more; {
				if more, err = batch.Next(&r, intern); !more || err != nil {
					return err
				}
				if r.Kind != eventlog.KindEvent || r.Check == "keepalive" {
					continue
				}
				var ev resource.Event
				if err := ev.UnmarshalProto(r.Body); err != nil {
					return err
				}
				turn, subscriptions, given, ok := queue.ParseTurn(ev.Check.Metadata.Annotations[resource.TurnAnnotation], "")
				if !ok {
					continue
				}
				mu.Lock()
				for _, s := range subscriptions {
					k := turnOf{r.Check, s, turn.Tick}
					turns[k] = append(turns[k], ran{ev.Check.ProcessedBy, turn.Tick, given, r.Received})
				}
				mu.Unlock()
			}
			return err
		}
		report, err := blocks.Check(filepath.Join(state, "broker"), stream, true, blocks.Mark{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(report.Findings) > 0 {
			t.Fatalf("the log has %+v", report.Findings)
		}
	}
	for k, runs := range turns {
		slices.SortStableFunc(runs, func(a, b ran) int { return cmp.Compare(a.received, b.received) })
		var first []ran
		for _, run := range runs {
			if !slices.ContainsFunc(first, func(o ran) bool { return o.agent == run.agent }) {
				first = append(first, run)
			}
		}
		turns[k] = first
	}
	return turns
}

// strictTurns counts the turns of agents that had one although another agent, which was connected all the time, had none
// since their last. The load tool connects its agents to the members in turn, and those of the first member, which was
// never killed, stay there.
func strictTurns(t *testing.T, turns map[turnOf][]ran, groups map[turnOf][]int64, members int) (unfair int) {
	t.Helper()
	// An agent of the first member that had a turn at the end was there all the time.
	stayed := func(g turnOf, ticks []int64) map[string]bool {
		there := map[string]bool{}
		for _, tick := range ticks[max(0, len(ticks)-*turnsAgents-*turnsAgents/2):] {
			g.tick = tick
			var number int
			if _, err := fmt.Sscanf(turns[g][0].agent, "turns-%d", &number); err != nil {
				t.Fatalf("agent %q has no number", turns[g][0].agent)
			}
			if (number-1)%members == 0 {
				there[turns[g][0].agent] = true
			}
		}
		return there
	}
	for g, ticks := range groups {
		there := stayed(g, ticks)
		var order []ran
		for _, tick := range ticks {
			g.tick = tick
			order = append(order, turns[g]...)
		}
		slices.SortFunc(order, func(a, b ran) int { return a.given.Compare(b.given) })
		last := map[string]int{}
		for at, run := range order {
			if before, had := last[run.agent]; had {
				for other := range there {
					since, seen := last[other]
					if other != run.agent && seen && since < before {
						if unfair++; unfair < 10 {
							t.Errorf("%s %s: %s had the turns %d and %d, and %s none between them: %+v", g.check, g.subscription, run.agent,
								before, at, other, order[max(0, before-2):min(at+3, len(order))])
						}
					}
				}
			}
			last[run.agent] = at
		}
	}
	return unfair
}
