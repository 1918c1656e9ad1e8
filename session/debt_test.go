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

	"github.com/lapwing-monitoring/lapwing/intake"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// TestKeepalivesPassTheRate: an agent over its quota is delayed for events, alone and in batches, but not for
// keepalives.
func TestKeepalivesPassTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startBare(t, time.Second)
		s.opts.Intake = bareIntake(t, intake.Quotas{AgentEvents: 10})
		agent := s.join(t, "agent", true)
		agent.meter = s.opts.Intake.Meter("default", "agent")
		for range 1000 {
			agent.meter.Spend()
		}
		// Neither can be decoded, so neither is stored. The test looks only at whether it has to wait.
		keepalive := wire.AppendEvents(nil, 1, []wire.Item{{Keepalive: true, Event: []byte{0xff}}})
		mixed := wire.AppendEvents(nil, 2, []wire.Item{{Keepalive: true, Event: []byte{0xff}}, {Event: []byte{0xff}}, {Event: []byte{0xff}}})
		for name, msg := range map[string][]byte{"message": []byte(wire.TypeKeepalive + "\n\n\xff"), "batch": keepalive} {
			if err := agent.onMessage(context.Background(), msg, brief); err != nil {
				t.Errorf("a keepalive in a %s: %v", name, err)
			}
		}
		if err := agent.onMessage(context.Background(), []byte(wire.TypeEvent+"\n\n\xff"), brief); !errors.Is(err, intake.ErrMustWait) {
			t.Errorf("an event: %v", err)
		}
		if err := agent.onMessage(context.Background(), mixed, brief); !errors.Is(err, intake.ErrMustWait) || agent.taken != 1 {
			t.Errorf("a batch: %v, %d were taken", err, agent.taken)
		}
		begin := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), intake.MaxHeld/2)
		defer cancel()
		if err := agent.onMessage(ctx, mixed, patient); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != intake.MaxHeld/2 {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
	})
}

// TestHeldUpLine: the log line names the owner of the quota that delays an agent. All agents of a namespace share one
// line.
func TestHeldUpLine(t *testing.T) {
	for name, tt := range map[string]struct {
		quotas intake.Quotas
		want   []string
	}{
		"agent's": {intake.Quotas{AgentEvents: 10, NamespaceEvents: 1e6}, []string{
			`"agent is held up: it sends more events than its quota allows" quota=agent-quota-events agent=a namespace=default`,
			`"agent is held up: it sends more events than its quota allows" quota=agent-quota-events agent=b namespace=default`,
		}},
		"namespace's": {intake.Quotas{AgentEvents: 1e6, NamespaceEvents: 10}, []string{
			`quota=namespace-quota-events namespace=default for_example=a`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				s := startBare(t, time.Second)
				s.rare = rarelog.New(slog.New(slog.NewTextHandler(&out, nil)))
				s.opts.Intake = bareIntake(t, tt.quotas)
				for _, name := range []string{"a", "b"} {
					agent := s.join(t, name, true)
					agent.meter = s.opts.Intake.Meter("default", name)
					for range 1000 {
						agent.meter.Spend()
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
