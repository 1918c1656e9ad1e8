package session

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// TestDebtPasses: an agent that keeps to its rate again is soon free, and then forgotten if it has gone.
func TestDebtPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuotas(Quotas{AgentEvents: 10, NamespaceEvents: 100}, nil, prometheus.NewRegistry())
		m, again := q.meter("default", "flood"), q.meter("default", "flood")
		for range 100_000 {
			q.spend(m)
		}
		if wait, _ := q.wait(m); wait <= 0 || wait > maxHeld {
			t.Errorf("after a flood an event has to wait %s", wait)
		}
		q.leave(m)
		q.leave(again)
		if again = q.meter("default", "flood"); again.agent != m.agent {
			t.Error("connecting anew has ended the debt")
		}
		time.Sleep(maxHeld + rateBurst)
		if wait, _ := q.wait(again); wait != 0 {
			t.Errorf("later an event has to wait %s", wait)
		}
		q.spend(again)
		q.leave(again)
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(q.users); n != 1 {
			t.Errorf("%d users are known, want the namespace alone", n)
		}
	})
}

// TestKeepalivesPassTheRate: an agent over its quota is held up for events, alone and in batches, and not for keepalives.
func TestKeepalivesPassTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startBare(t, time.Second)
		i := s.opts.Intake
		i.quotas = newQuotas(Quotas{AgentEvents: 10}, nil, prometheus.NewRegistry())
		i.metrics = newIntakeMetrics(nil)
		agent := s.join(t, "agent", true)
		agent.meter = i.quotas.meter("default", "agent")
		for range 1000 {
			agent.spend()
		}
		// Neither can be decoded, so neither is stored: what counts is whether it has to wait.
		keepalive := wire.AppendEvents(nil, 1, []wire.Item{{Keepalive: true, Event: []byte{0xff}}})
		mixed := wire.AppendEvents(nil, 2, []wire.Item{{Keepalive: true, Event: []byte{0xff}}, {Event: []byte{0xff}}, {Event: []byte{0xff}}})
		for name, msg := range map[string][]byte{"message": []byte(wire.TypeKeepalive + "\n\n\xff"), "batch": keepalive} {
			if err := agent.onMessage(context.Background(), msg, brief); err != nil {
				t.Errorf("a keepalive in a %s: %v", name, err)
			}
		}
		if err := agent.onMessage(context.Background(), []byte(wire.TypeEvent+"\n\n\xff"), brief); !errors.Is(err, errMustWait) {
			t.Errorf("an event: %v", err)
		}
		if err := agent.onMessage(context.Background(), mixed, brief); !errors.Is(err, errMustWait) || agent.taken != 1 {
			t.Errorf("a batch: %v, %d were taken", err, agent.taken)
		}
		begin := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), maxHeld/2)
		defer cancel()
		if err := agent.onMessage(ctx, mixed, patient); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != maxHeld/2 {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
	})
}

// TestHeldUpLine: the log line names whose quota holds an agent up, and is one for all agents of a namespace.
func TestHeldUpLine(t *testing.T) {
	for name, tt := range map[string]struct {
		quotas Quotas
		want   []string
	}{
		"agent's": {Quotas{AgentEvents: 10, NamespaceEvents: 1e6}, []string{
			`"agent is held up: it sends more events than its quota allows" quota=agent-quota-events agent=a namespace=default`,
			`"agent is held up: it sends more events than its quota allows" quota=agent-quota-events agent=b namespace=default`,
		}},
		"namespace's": {Quotas{AgentEvents: 1e6, NamespaceEvents: 10}, []string{
			`quota=namespace-quota-events namespace=default for_example=a`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				s := startBare(t, time.Second)
				s.rare = rarelog.New(slog.New(slog.NewTextHandler(&out, nil)))
				i := s.opts.Intake
				i.quotas = newQuotas(tt.quotas, nil, prometheus.NewRegistry())
				for _, name := range []string{"a", "b"} {
					agent := s.join(t, name, true)
					agent.meter = i.quotas.meter("default", name)
					for range 1000 {
						agent.spend()
					}
					if err := agent.holdUp(t.Context(), patient); err != nil {
						t.Fatal(err)
					}
				}
				lines := strings.Split(strings.TrimSpace(out.String()), "\n")
				if len(lines) != len(tt.want) {
					t.Fatalf("logged:\n%s", out.String())
				}
				for n, want := range tt.want {
					if !strings.Contains(lines[n], want) || strings.Contains(lines[n], "its quota") != (name == "agent's") {
						t.Errorf("line %d: %s", n, lines[n])
					}
				}
			})
		})
	}
}

// TestUsesAreCounted: what an agent uses is counted once, and forgotten with the last entity.
func TestUsesAreCounted(t *testing.T) {
	q := newQuotas(Quotas{AgentEntities: 10, AgentBytes: 100, NamespaceBytes: 1000, NamespaceEntities: -1}, nil, prometheus.NewRegistry())
	want := func(when string, bytes int64, users int) {
		t.Helper()
		if _, got := q.used("default", "a"); got != bytes || len(q.users) != users {
			t.Errorf("%s: %d bytes and %d users, want %d and %d", when, got, len(q.users), bytes, users)
		}
	}
	store := func(agent, entity string, size int, refused bool) {
		t.Helper()
		if err := q.store("default", agent, entity, "check", size); (err != nil) != refused {
			t.Errorf("%s: %v", entity, err)
		}
	}
	store("a", "large", 101, true)
	want("refused", 0, 1)
	if _, ok := q.known.Load(resource.Name{Namespace: "default", Name: "large"}); ok {
		t.Error("an entity is known of which nothing is stored")
	}
	if err := q.mayMake(nil, "default", "stranger"); len(q.users) != 1 || err != nil {
		t.Errorf("%d users after a question, %v", len(q.users), err)
	}
	store("a", "one", 10, false)
	store("a", "two", 20, false)
	q.forgetEvent("default", "two", "check")
	want("one", 10, 2)
	q.made("default", "a", "three") // of which nothing is stored
	q.forget("default", "one")
	want("an entity without bytes", 0, 2)
	store("a", "three", 30, false)
	want("the same agent", 30, 2)
	q.forget("default", "three")
	want("none", 0, 1)

	store("", "api", 40, false)
	store("a", "api", 50, false)
	want("after a user of the API", 50, 2)
	store("a", "beside", 60, true)
	q.forget("default", "api")
	want("none again", 0, 1)
	if all := q.namespace("default"); all.bytes.Load() != 0 {
		t.Errorf("the namespace has %d bytes", all.bytes.Load())
	}
}
