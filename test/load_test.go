package test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/client/load"
	"github.com/lapwing-monitoring/lapwing/client/load/report"
	"github.com/lapwing-monitoring/lapwing/client/load/scenario"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
)

// TestLoad runs the load tool against a real backend: agents connect, run checks in either protocol, and the backend
// has all that they sent.
func TestLoad(t *testing.T) {
	for name, delay := range map[string]time.Duration{load.ProtocolSensu: 0, load.ProtocolLapwing: 0, "held back": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			protocol := load.ProtocolLapwing
			if name == load.ProtocolSensu {
				protocol = name
			}
			b := testbackend.Start(t, nil)
			s := &scenario.Scenario{
				Name: "test", Run: "test", Namespace: "default",
				Agents: []scenario.Agents{{
					Name: "load", Count: 20, Subscriptions: []string{"load"}, Protocol: protocol,
					Keepalive: scenario.Keepalive{Interval: 5 * time.Second, Warning: 60 * time.Second},
				}},
				Checks: []scenario.Checks{{
					Name: "check-" + scenario.Numbered, Count: 5, Interval: time.Second, Command: scenario.Command, Subscriptions: []string{"load"},
				}},
				Load: scenario.Settings{
					Duration: 4 * time.Second, WarmUp: time.Second, Protocol: protocol, BatchDelay: delay,
					EventBytes: 100, Probes: 2, Seed: 1,
					Statuses: map[uint32]float64{0: 1, 1: 1, 2: 1}, FlapRate: 0.3,
				},
			}
			if delay > 0 {
				s.Load.Statuses[0] = 50 // most wait
			}
			if protocol == load.ProtocolLapwing {
				s.Load.Churn = 5 // nothing may be lost, nor counted twice
			}
			api := load.APIOptions{URL: "http://" + b.APIAddr().String(), Username: testbackend.User, Password: testbackend.Password}
			rep, err := load.Run(context.Background(), load.Options{
				Scenario:  s,
				API:       api,
				Backends:  []string{"ws://" + b.AgentAddr().String()},
				AgentUser: testbackend.AgentUser, AgentPassword: testbackend.AgentPassword,
				RetryMin: 50 * time.Millisecond, RetryMax: time.Second,
				Progress: os.Stderr, Logger: slog.New(slog.DiscardHandler), Keep: delay > 0,
			})
			if err != nil {
				t.Fatal(err)
			}
			c, err := client.New(client.Options{URL: api.URL, Username: api.Username, Password: api.Password})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, err = client.Get(t.Context(), c, client.Checks, "default", "check-1")
			if errors.Is(err, client.ErrNotFound) == (delay > 0) {
				t.Errorf("kept %v: the check: %v", delay > 0, err)
			}
			sum := rep.Summary
			if sum.Connected != 20 || sum.Pairs != 100 || sum.PairsVerified != 100 || sum.Errors != 0 || sum.Disconnects != 0 {
				t.Errorf("got %+v; %q", sum, rep.Notes)
			}
			if sum.Lost != 0 || sum.Duplicates != 0 || sum.OrderViolations != 0 {
				t.Errorf("got %+v; %q", sum, rep.Notes)
			}
			if sum.EventsSent < 300 {
				t.Errorf("%d events were sent, want 100 per second", sum.EventsSent)
			}
			for _, name := range []string{report.LatencyVisible, report.LatencyHandler} {
				if rep.Latencies[name].Count < 4 {
					t.Errorf("latency %s was measured %d times, want two each second", name, rep.Latencies[name].Count)
				}
			}
		})
	}
}
