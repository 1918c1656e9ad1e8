//go:build unix

package agent

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// turnRequest requests a turn of a check; the turn's value may be "" for none.
func turnRequest(check, value string, issued int64) *resource.CheckRequest {
	config := shellCheck(check, TestCommand)
	config.RoundRobin = true
	if value != "" {
		config.Metadata.Annotations = map[string]string{resource.TurnAnnotation: value}
	}
	return &resource.CheckRequest{Config: config, Issued: issued}
}

// TestTurnComesBack: every result of a turn has its annotation, beside the user's own annotations.
func TestTurnComesBack(t *testing.T) {
	t.Parallel()
	denied := func(o *Options) {
		o.AllowList = filepath.Join(t.TempDir(), "allow.yml")
		if err := os.WriteFile(o.AllowList, []byte(`[{exec: /bin/nothing-else, args: [""]}]`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name    string
		command string
		options func(*Options)
		change  func(*resource.CheckRequest)
		status  uint32
	}{
		{name: "ok", command: "true"},
		{name: "failing", command: "exit 2", status: 2},
		{name: "load-test", command: TestCommand},
		{name: "denied", command: "true", options: denied, status: 3},
		{name: "invalid", command: "true", change: func(r *resource.CheckRequest) { r.Config.Interval = 0 }, status: 3},
		{name: "unmatched-token", command: "echo {{ .labels.nope }}", status: 3},
		{name: "without-its-secret", command: "true", change: func(r *resource.CheckRequest) {
			r.Config.Secrets = []resource.Secret{{Name: "A", Secret: "a"}}
		}, status: 3},
		{name: "without-its-asset", command: "true", change: func(r *resource.CheckRequest) {
			r.Assets = []resource.Asset{{Metadata: resource.ObjectMeta{Name: "a"}, Sha512: "ab"}}
		}, status: 3},
		{name: "proxied", command: "true", change: func(r *resource.CheckRequest) { r.Config.ProxyEntityName = "switch-1" }},
		{name: "hooked", command: "exit 1", change: func(r *resource.CheckRequest) {
			r.Config.CheckHooks = []resource.HookList{{Type: "warning", Hooks: []string{"who"}}}
			r.Hooks = []resource.HookConfig{{Metadata: resource.ObjectMeta{Name: "who"}, Command: "id"}}
		}, status: 1},
		{name: "collected", command: "builtin:no-such-collector", status: 3},
	} {
		for _, stock := range []bool{false, true} {
			t.Run(tt.name+map[bool]string{true: " for a Sensu backend"}[stock], func(t *testing.T) {
				t.Parallel()
				_, s := startAgent(t, (&fakeBackend{stock: stock}).start(t), tt.options)
				req := turnRequest(tt.name, "1700000000 {{ .name }}", 1)
				req.Config.Command = tt.command
				req.Config.Metadata.Annotations["runbook"] = "https://example.com/{{ .name }}"
				if tt.change != nil {
					tt.change(req)
				}
				c := s.request(req).Check
				if c.Status != tt.status || c.ProxyEntityName != req.Config.ProxyEntityName || len(c.Hooks) != len(req.Hooks) {
					t.Errorf("got %+v", c)
				}
				if got := c.Metadata.Annotations[resource.TurnAnnotation]; got != "1700000000 {{ .name }}" {
					t.Errorf("the turn comes back as %q", got)
				}
				if stock && len(s.receipts) > 0 {
					t.Errorf("a Sensu backend got %+v", s.receipts)
				}
				if got := c.Metadata.Annotations["runbook"]; !strings.HasPrefix(got, "https://example.com/") {
					t.Errorf("got annotations %q", c.Metadata.Annotations)
				}
			})
		}
	}
}

// turnTaker is an agent in a bubble of synctest that runs one check at a time, and its connection.
type turnTaker struct {
	*pipe
	agent *Agent
}

func newTurnTaker(t *testing.T, about Connection) *turnTaker {
	t.Helper()
	a, err := New(Options{Name: "web-1", MaxConcurrency: 1, CacheDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.checkCtx = ctx
	t.Cleanup(func() {
		cancel()
		a.running.Wait()
	})
	return &turnTaker{newPipe(t, a.transport, about), a}
}

func (tt *turnTaker) request(req *resource.CheckRequest) {
	tt.t.Helper()
	msg, err := wire.Append(nil, wire.TypeCheckRequest, wire.Protobuf, req)
	if err != nil {
		tt.t.Fatal(err)
	}
	tt.send(msg)
}

// hold lets checks wait until release.
func (tt *turnTaker) hold()    { tt.agent.slots <- struct{}{} }
func (tt *turnTaker) release() { <-tt.agent.slots }

// take returns what was received since the last take or want.
func (tt *turnTaker) take() []string {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	got := tt.got
	tt.got = nil
	return got
}

func TestReceipts(t *testing.T) {
	t.Parallel()
	const one, two = "1700000000 linux", "1700000001 linux"
	const (
		sameSecond = "the agent has another run of the check for the same second"
		later      = "the agent has taken a later request of the check"
		busy       = "another run of the check is in progress"
		stops      = "the agent is stopping"
	)
	proxied := func(entity string, req *resource.CheckRequest) *resource.CheckRequest {
		req.Config.ProxyEntityName = entity
		return req
	}
	for _, tt := range []struct {
		name  string
		about Connection
		run   func(a *turnTaker)
	}{
		{"a fast check sends none", toLapwing, func(a *turnTaker) {
			a.request(turnRequest("disk", one, 100))
			a.want(60, "0: disk")
		}},
		{"one that waits for a slot sends one after a while", toLapwing, func(a *turnTaker) {
			a.hold()
			a.request(turnRequest("disk", one, 100))
			a.want(1.999)
			a.want(2, "2: running disk "+one)
			a.want(60)
			a.release()
			a.want(61, "60: disk")
		}},
		{"one that runs does so, too", toLapwing, func(a *turnTaker) {
			if runtime.GOOS != "linux" {
				a.t.Skip("the collector may run a command here, which the bubble's clock does not wait for")
			}
			req := turnRequest("cpu", one, 100)
			req.Config.Command = "builtin:cpu --sample 10s"
			a.request(req)
			a.want(1.999)
			a.want(9.999, "2: running cpu "+one)
			a.want(60, "10: cpu")
		}},
		{"one that ends just in time does not", toLapwing, func(a *turnTaker) {
			a.hold()
			a.request(turnRequest("disk", one, 100))
			a.at(1.999)
			a.release()
			a.want(60, "1.999: disk")
		}},
		{"other turns are declined while it runs", toLapwing, func(a *turnTaker) {
			a.hold()
			a.request(turnRequest("disk", one, 100))
			a.at(0.5)
			a.request(turnRequest("disk", two, 101))
			a.want(0.5, "0.5: declined disk "+two+": "+busy)
			a.request(turnRequest("disk", two, 100))
			a.want(0.5, "0.5: declined disk "+two+": "+sameSecond)
			a.request(turnRequest("disk", two, 99))
			a.want(0.5, "0.5: declined disk "+two+": "+later)
			a.release()
			a.want(0.5, "0.5: disk")
			a.request(turnRequest("disk", two, 99)) // it does not matter any more whether it runs
			a.want(0.5, "0.5: declined disk "+two+": "+later)
			a.request(turnRequest("disk", two, 101))
			a.want(60, "0.5: disk")
		}},
		{"the same turn again is not run again", toLapwing, func(a *turnTaker) {
			a.hold()
			a.request(turnRequest("disk", one, 100))
			a.at(0.5)
			a.request(turnRequest("disk", one, 100))
			a.want(0.5, "0.5: running disk "+one)
			a.request(turnRequest("disk", one, 107)) // from a member that does not know of the first request
			a.want(0.5, "0.5: running disk "+one)
			a.release()
			a.want(0.5, "0.5: disk")
			a.request(turnRequest("disk", one, 100))
			a.request(turnRequest("disk", one, 108))
			a.want(60)
		}},
		{"each proxy entity has turns of its own", toLapwing, func(a *turnTaker) {
			a.hold()
			a.request(proxied("sw-1", turnRequest("ping", one, 100)))
			a.request(proxied("sw-2", turnRequest("ping", one, 100)))
			a.request(proxied("sw-2", turnRequest("ping", two, 101)))
			a.want(1, "0: declined ping/sw-2 "+two+": "+busy)
			a.at(5)
			got := a.take()
			slices.Sort(got) // the timers of both end at once
			if want := []string{"2: running ping/sw-1 " + one, "2: running ping/sw-2 " + one}; !slices.Equal(got, want) {
				a.t.Errorf("received %q, want %q", got, want)
			}
			a.release()
			a.at(6)
			if got := a.take(); strings.Count(strings.Join(got, ""), " ping") != 2 { // in one message or two
				a.t.Errorf("received %q, want two results", got)
			}
		}},
		{"a request without a turn has none", toLapwing, func(a *turnTaker) {
			a.hold()
			for _, issued := range []int64{100, 101, 100, 99} {
				a.request(turnRequest("disk", "", issued))
			}
			a.want(10)
			a.request(turnRequest("disk", one, 102))
			a.want(10, "10: declined disk "+one+": "+busy)
			a.release()
			a.want(60, "10: disk")
		}},
		{"a tick of the agent's schedule has none", toLapwing, func(a *turnTaker) {
			a.hold()
			a.agent.acceptTick(a.agent.checkCtx, turnRequest("disk", one, 100))
			a.want(10)
			a.request(turnRequest("disk", one, 101))
			a.want(10, "10: declined disk "+one+": "+busy)
			a.release()
			a.want(60, "10: disk")
		}},
		{"a Sensu backend gets none", toSensu, func(a *turnTaker) {
			a.hold()
			a.request(turnRequest("disk", one, 100))
			a.request(turnRequest("disk", one, 100))
			a.request(turnRequest("disk", two, 101))
			a.want(10)
			a.agent.requests.stop()
			a.request(turnRequest("disk", two, 102))
			a.release()
			a.want(60, "10: disk")
		}},
		{"the pace does not hold them up", toLapwing, func(a *turnTaker) {
			a.send(wire.AppendPace(nil, wire.PaceSpool, 0))
			a.hold()
			a.request(turnRequest("disk", one, 100))
			a.request(turnRequest("disk", two, 101))
			a.want(1, "0: declined disk "+two+": "+busy)
			a.want(10, "2: running disk "+one)
			a.release()
			a.want(60) // the result waits
		}},
		{"they are sent until the connection ends", toLapwing, func(a *turnTaker) {
			a.failing("cpu")
			a.want(0, "0: cpu")
			a.send(wire.AppendPace(nil, wire.PaceLeave, 0)) // "cpu" is not acknowledged yet
			a.hold()
			a.request(turnRequest("disk", one, 100))
			a.want(4, "2: running disk "+one)
			a.want(60, "5: closed 1001")
			a.release()
		}},
		{"one without a connection is lost", toLapwing, func(a *turnTaker) {
			a.hold()
			a.request(turnRequest("disk", one, 100))
			a.at(1)
			_ = a.stop()
			a.want(5, "1: closed 1001")
			a.pipe = newPipe(a.t, a.agent.transport, toLapwing)
			a.want(5)
			a.release()
			a.want(60, "5: disk")
		}},
		{"an agent that stops declines what comes", toLapwing, func(a *turnTaker) {
			a.agent.requests.stop()
			a.request(turnRequest("disk", one, 100))
			a.want(60, "0: declined disk "+one+": "+stops)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { tt.run(newTurnTaker(t, tt.about)) })
		})
	}
}

// TestReceiptsAreCounted: the counter of requests says what became of turns.
func TestReceiptsAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newTurnTaker(t, toLapwing)
		a.hold()
		a.request(turnRequest("disk", "1 linux", 100))
		a.request(turnRequest("disk", "1 linux", 100))
		a.release()
		a.at(1)
		a.request(turnRequest("disk", "1 linux", 100))
		a.agent.requests.stop()
		a.request(turnRequest("disk", "2 linux", 101))
		got := map[verdict]float64{}
		for _, v := range []verdict{accepted, duplicate, outdated, inProgress, turnRuns, turnDone, stopping} {
			if n := value(t, a.agent.checkMetrics.requests.WithLabelValues(string(v))); n != 0 {
				got[v] = n
			}
		}
		if want := map[verdict]float64{accepted: 1, turnRuns: 1, turnDone: 1, stopping: 1}; !maps.Equal(got, want) {
			t.Errorf("counted %v, want %v", got, want)
		}
	})
}

// TestAgentDeclinesWhatItStops: an agent that stops declines the turns whose commands it kills, before it disconnects.
func TestAgentDeclinesWhatItStops(t *testing.T) {
	t.Parallel()
	a, s := startAgent(t, new(fakeBackend).start(t), nil)
	s.request(turnRequest("over", "1700000000 linux", 1)) // has ended before
	path := fifo(t)
	for _, value := range []string{"1700000000 linux", ""} {
		req := turnRequest("endless"+value[:min(1, len(value))], value, 1)
		req.Config.Command = "echo >" + path + "; sleep 300"
		s.send(wire.TypeCheckRequest, req)
		if _, err := os.ReadFile(path); err != nil { // it runs
			t.Fatal(err)
		}
	}
	go a.Stop()
	_ = s.SetReadDeadline(time.Now().Add(patience))
	for {
		msg, err := s.Read()
		if closed, ok := errors.AsType[*wire.CloseError](err); ok && closed.Code == wire.CloseGoingAway {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if typ, payload, _ := wire.Split(msg); typ == wire.TypeReceipt {
			r, err := wire.DecodeReceipt(payload)
			if err != nil {
				t.Fatal(err)
			}
			if r.Outcome != wire.OutcomeRunning { // on a slow machine it runs for long enough
				s.receipts = append(s.receipts, r)
			}
		}
	}
	want := wire.Receipt{Check: "endless1", Turn: "1700000000 linux", Outcome: wire.OutcomeDeclined, Reason: "the agent is stopping"}
	if !slices.Equal(s.receipts, []wire.Receipt{want}) {
		t.Errorf("got %+v, want %+v", s.receipts, want)
	}
}
