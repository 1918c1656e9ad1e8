//go:build unix

package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// startAgent starts an agent connected to b and returns it with its session, after the first keepalive.
func startAgent(t *testing.T, b *fakeBackend, change func(*Options)) (*Agent, *fakeSession) {
	t.Helper()
	opts := Options{
		Name:        "web-1",
		BackendURLs: []string{b.url},
		RetryMin:    time.Millisecond,
		RetryMax:    time.Millisecond,
		Labels:      map[string]string{"rack": "r7"},
		Registerer:  prometheus.NewRegistry(),
	}
	if change != nil {
		change(&opts)
	}
	a, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Stop() })
	s := b.accept(t)
	s.sendNotFound()
	if got := s.readN(1); !got[0].keepalive {
		t.Fatalf("got %+v before the first keepalive", got)
	}
	return a, s
}

// shellCheck is a check that passes validation.
func shellCheck(name, command string) *resource.CheckConfig {
	return &resource.CheckConfig{
		Metadata:      resource.ObjectMeta{Name: name, Namespace: "default"},
		Command:       command,
		Interval:      60,
		Subscriptions: []string{"linux"},
	}
}

// request has the agent run a check and returns its result.
func (s *fakeSession) request(req *resource.CheckRequest) *resource.Event {
	s.t.Helper()
	s.send(wire.TypeCheckRequest, req)
	return s.readCheck(req.Config.Metadata.Name)
}

func TestAgentKeepalive(t *testing.T) {
	t.Parallel()
	b := new(fakeBackend).start(t)
	a, err := New(Options{
		Name:                     "web-1",
		Namespace:                "prod",
		Subscriptions:            []string{"linux"},
		BackendURLs:              []string{b.url},
		KeepaliveInterval:        100 * time.Millisecond, // a second, for the backend
		KeepaliveWarningTimeout:  5 * time.Second,
		KeepaliveCriticalTimeout: 10 * time.Second,
		KeepaliveHandlers:        []string{"pager"},
		KeepalivePipelines:       []string{"core/v2.Pipeline.down.hard", "nonsense"},
		Labels:                   map[string]string{"rack": "r7"},
		Annotations:              map[string]string{"note": "n"},
		Deregister:               true,
		DeregistrationHandler:    "goodbye",
		RetryMin:                 time.Millisecond,
		RetryMax:                 time.Millisecond,
		Version:                  "1.2.3",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer a.Stop()
	s := b.accept(t)
	s.sendNotFound()

	before := time.Now().Unix()
	// Events are counted in each connection, and numbered for the life of the agent. On a slow machine a keepalive may
	// replace the one before, so neither need be 1.
	first := s.readN(1)[0]
	ev := first.event
	if err := ev.Validate(); err != nil {
		t.Errorf("invalid: %v", err)
	}
	if ev.Timestamp < before || ev.Sequence != int64(first.seq) || len(ev.ID) != 16 || ev.Metadata.Namespace != "prod" {
		t.Errorf("got event %+v", ev)
	}
	if want := []resource.ResourceReference{{APIVersion: "core/v2", Type: "Pipeline", Name: "down.hard"}}; !slices.Equal(ev.Pipelines, want) {
		t.Errorf("got pipelines %+v", ev.Pipelines)
	}
	c := ev.Check
	if c.Metadata.Name != "keepalive" || c.Metadata.Namespace != "prod" || c.Interval != 1 || c.Timeout != 5 || c.TTL != 10 {
		t.Errorf("got check %+v", c)
	}
	e := ev.Entity
	if e.Metadata.Name != "web-1" || e.Metadata.Namespace != "prod" || e.Metadata.Labels["rack"] != "r7" || e.Metadata.Annotations["note"] != "n" ||
		e.EntityClass != "agent" || e.User != "agent" || !slices.Equal(e.Subscriptions, []string{"linux"}) || !slices.Equal(e.Redact, DefaultRedact) ||
		!e.Deregister || e.Deregistration.Handler != "goodbye" || !slices.Equal(e.KeepaliveHandlers, []string{"pager"}) ||
		e.SensuAgentVersion != "1.2.3" || e.LastSeen < before {
		t.Errorf("got entity %+v", e)
	}
	if e.System.Hostname == "" || e.System.OS != runtime.GOOS || e.System.Arch != runtime.GOARCH {
		t.Errorf("got system %+v", e.System)
	}
	if again := s.readN(1)[0]; !again.keepalive || again.event.Sequence <= ev.Sequence || again.event.Sequence != int64(again.seq) ||
		bytes.Equal(again.event.ID, ev.ID) {
		t.Errorf("got second keepalive %+v", again)
	}

	// The backend's definition replaces the agent's options until the connection ends.
	s.send(wire.TypeEntityConfig, &resource.EntityConfig{
		Metadata: resource.ObjectMeta{Name: "web-1", Namespace: "prod", Labels: map[string]string{"rack": "r8"}}, EntityClass: "agent", Subscriptions: []string{"db", "entity:web-1"},
	})
	pushed := s.next("keepalive of the definition", func(r received) bool { return r.event.Entity.Metadata.Labels["rack"] == "r8" })
	if e := pushed.event.Entity; !slices.Equal(e.Subscriptions, []string{"db", "entity:web-1"}) || e.SensuAgentVersion != "1.2.3" || e.System.Hostname == "" {
		t.Errorf("got entity %+v", e)
	}
	s.Close(wire.CloseGoingAway, "bye")
	s = b.accept(t)
	s.sendNotFound()
	// Keepalives that were not acknowledged come again; the first one of this connection is counted anew.
	s.next("keepalive of the options", func(r received) bool {
		return r.event.Sequence < int64(r.seq) && r.event.Entity.Metadata.Labels["rack"] == "r7"
	})
}

func TestAgentCheckResult(t *testing.T) {
	t.Parallel()
	for _, stock := range []bool{false, true} {
		t.Run(fmt.Sprint("stock ", stock), func(t *testing.T) {
			t.Parallel()
			b := (&fakeBackend{stock: stock}).start(t)
			_, s := startAgent(t, b, nil)
			config := shellCheck("disk", "echo {{ .labels.rack }} $WHERE; exit 1")
			config.Metadata.Labels = map[string]string{"team": "infra"}
			config.Metadata.CreatedBy = "admin"
			config.EnvVars = []string{"WHERE={{ .name }}"}
			config.Handlers = []string{"pager"}
			config.Pipelines = []resource.ResourceReference{{APIVersion: "core/v2", Type: "Pipeline", Name: "p"}}
			config.Timeout = 30
			config.TTL = 120
			config.Scheduler = "memory"
			config.Secrets = []resource.Secret{{Name: "A", Secret: "b"}}
			config.MaxOutputSize = 2
			config.ProxyEntityName = "router"
			before := time.Now().Unix()
			ev := s.request(&resource.CheckRequest{Config: config, Secrets: []string{"A=secret"}, Issued: 1234})

			if err := ev.Validate(); err != nil {
				t.Errorf("invalid: %v", err)
			}
			if ev.Timestamp < before || len(ev.ID) != 16 || ev.Sequence != 1 || ev.Metadata.Namespace != "default" || ev.Entity.Metadata.Name != "web-1" ||
				!slices.Equal(ev.Pipelines, config.Pipelines) || ev.Metrics != nil {
				t.Errorf("got event %+v", ev)
			}
			if ev.Check.Executed < before || ev.Check.Duration <= 0 || ev.Check.Duration > 20 {
				t.Errorf("executed %d, took %v s", ev.Check.Executed, ev.Check.Duration)
			}
			ev.Check.Executed, ev.Check.Duration = 0, 0
			want := &resource.Check{
				Metadata:        resource.ObjectMeta{Name: "disk", Namespace: "default", Labels: map[string]string{"team": "infra"}},
				Command:         config.Command, // as defined
				EnvVars:         []string{"WHERE=web-1"},
				Handlers:        config.Handlers,
				Pipelines:       config.Pipelines,
				Interval:        60,
				Timeout:         30,
				TTL:             120,
				Subscriptions:   config.Subscriptions,
				Scheduler:       "memory",
				MaxOutputSize:   2,
				ProxyEntityName: "router",
				Issued:          1234,
				Output:          "r7 web-1\n",
				Status:          1,
				ProcessedBy:     "web-1",
			}
			if !reflect.DeepEqual(ev.Check, want) {
				t.Errorf("got  %+v\nwant %+v", ev.Check, want)
			}
			config.Command = "true"
			if ev := s.request(&resource.CheckRequest{Config: config, Secrets: []string{"A=secret"}, Issued: 1235}); ev.Sequence != 2 ||
				ev.Check.Status != 0 || ev.Check.Output != "" {
				t.Errorf("second: got %+v", ev)
			}
		})
	}
}

func TestAgentCheckKinds(t *testing.T) {
	t.Parallel()
	b := new(fakeBackend).start(t)
	_, s := startAgent(t, b, func(o *Options) { o.MaxOutput = 10_000 })
	for _, tt := range []struct {
		name    string
		command string
		change  func(*resource.CheckRequest)
		status  uint32
		output  string // a prefix of it
		expect  func(t *testing.T, ev *resource.Event)
	}{
		{name: "timeout", command: "echo partial; sleep 300", change: func(r *resource.CheckRequest) { r.Config.Timeout = 1 }, status: 2, output: "Execution timed out\npartial\n"},
		{name: "signal", command: "kill -9 $$", status: 137},
		{name: "missing command", command: "no-such-command-here", status: 127},
		{name: "secrets", command: "echo $TOKEN $A", change: func(r *resource.CheckRequest) {
			r.Secrets = []string{"TOKEN=s3cret", "A=1", "malformed"}
			r.Config.EnvVars = []string{"A=2"}
		}, output: "s3cret 2\n"},
		{name: "much output", command: "head -c 20000 /dev/zero | tr '\\0' x", expect: func(t *testing.T, ev *resource.Event) {
			if want := strings.Repeat("x", 10_000) + "\n[output cut here, 10000 more bytes]\n"; ev.Check.Output != want {
				t.Errorf("got %d bytes", len(ev.Check.Output))
			}
		}},
		{name: "bytes that are no text", command: `printf '\377\000a'`, output: "\xff\x00a"},
		{name: "load test", command: TestCommand, expect: func(t *testing.T, ev *resource.Event) {
			if len(ev.Check.Output) != 799 || ev.Check.Output[0] != '\n' || ev.Check.Duration != 0 || ev.Check.ProcessedBy != "web-1" {
				t.Errorf("got %+v", ev.Check)
			}
		}},
		{name: "stdin", command: "cat", change: func(r *resource.CheckRequest) {
			r.Config.Stdin = true
			r.Issued = 77
		}, expect: func(t *testing.T, ev *resource.Event) {
			var in resource.Event
			if err := json.Unmarshal([]byte(ev.Check.Output), &in); err != nil {
				t.Fatalf("%v in %q", err, ev.Check.Output)
			}
			if in.Entity.Metadata.Name != "web-1" || in.Check.Metadata.Name != "stdin" || in.Check.Issued != 77 || in.Check.Executed != ev.Check.Executed || in.Sequence != 1 || in.Check.Output != "" {
				t.Errorf("the command was given %+v", in)
			}
		}},
		{name: "metrics", command: "echo 'OK | load=1.5;2 users=4'", change: func(r *resource.CheckRequest) {
			r.Config.OutputMetricFormat = "nagios_perfdata"
			r.Config.OutputMetricHandlers = []string{"graphite"}
			r.Config.OutputMetricTags = []resource.MetricTag{{Name: "host", Value: "{{ .name }}"}}
			r.Config.OutputMetricThresholds = []resource.MetricThreshold{{Name: "load", Thresholds: []resource.MetricThresholdRule{{Max: "1", Status: 2}}}}
			r.Config.DiscardOutput = true
			r.Config.CheckHooks = []resource.HookList{{Type: "critical", Hooks: []string{"who"}}}
			r.Hooks = []resource.HookConfig{{Metadata: resource.ObjectMeta{Name: "who"}, Command: "jq . >/dev/null 2>&1; echo hooked", Stdin: true}}
		}, status: 2, expect: func(t *testing.T, ev *resource.Event) {
			tags := []resource.MetricTag{{Name: "host", Value: "web-1"}}
			want := &resource.Metrics{Handlers: []string{"graphite"}, Points: []resource.MetricPoint{
				{Name: "load", Value: 1.5, Timestamp: ev.Check.Executed, Tags: tags}, {Name: "users", Value: 4, Timestamp: ev.Check.Executed, Tags: tags},
			}}
			if !reflect.DeepEqual(ev.Metrics, want) {
				t.Errorf("got metrics %+v", ev.Metrics)
			}
			if ev.Check.Output != "" {
				t.Errorf("got output %q", ev.Check.Output)
			}
			if keys := slices.Sorted(maps.Keys(ev.Metadata.Annotations)); !slices.Equal(keys, []string{"sensu.io/notifications/critical", "sensu.io/output_metric_thresholds/load/max/critical"}) {
				t.Errorf("got annotations %q", keys)
			}
			if len(ev.Check.Hooks) != 1 || ev.Check.Hooks[0].Output != "hooked\n" {
				t.Errorf("got hooks %+v", ev.Check.Hooks)
			}
		}},
		{name: "thresholds of a failed check", command: "echo 'OK | load=1.5'; exit 1", change: func(r *resource.CheckRequest) {
			r.Config.OutputMetricFormat = "nagios_perfdata"
			r.Config.OutputMetricThresholds = []resource.MetricThreshold{{Name: "load", Thresholds: []resource.MetricThresholdRule{{Max: "1", Status: 2}}}}
		}, status: 1, output: "OK | load"},
		{name: "metric handlers alone", command: "echo a 1 2", change: func(r *resource.CheckRequest) { r.Config.OutputMetricHandlers = []string{"graphite"} },
			output: "a 1 2\n", expect: func(t *testing.T, ev *resource.Event) {
				if ev.Metrics == nil || len(ev.Metrics.Points) != 0 || !slices.Equal(ev.Metrics.Handlers, []string{"graphite"}) {
					t.Errorf("got metrics %+v", ev.Metrics)
				}
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := &resource.CheckRequest{Config: shellCheck(strings.ReplaceAll(tt.name, " ", "-"), tt.command), Issued: 1}
			if tt.change != nil {
				tt.change(req)
			}
			ev := s.request(req)
			if ev.Check.Status != tt.status || !strings.HasPrefix(ev.Check.Output, tt.output) {
				t.Errorf("got status %d, output %q", ev.Check.Status, ev.Check.Output)
			}
			if tt.expect != nil {
				tt.expect(t, ev)
			}
		})
	}
}

func TestAgentFailures(t *testing.T) {
	t.Parallel()
	b := new(fakeBackend).start(t)
	_, s := startAgent(t, b, nil)
	for _, tt := range []struct {
		name   string
		change func(*resource.CheckRequest)
		status uint32
		output string // a prefix of it
	}{
		{"unmatched-token", func(r *resource.CheckRequest) { r.Config.Command = "echo '{{ .labels.nope }}'" }, 3,
			`error while substituting check tokens: command: unmatched token: template: command:1:16: executing "command" at <.labels.nope>: map has no entry for key "nope"`},
		{"asset", func(r *resource.CheckRequest) {
			r.Assets = []resource.Asset{{Metadata: resource.ObjectMeta{Name: "sensu-ruby"}, Sha512: "ab"}}
		}, 3,
			"error getting assets for check: asset sensu-ruby: its checksum is no SHA-512"},
		{"asset-token", func(r *resource.CheckRequest) {
			r.Assets = []resource.Asset{{Metadata: resource.ObjectMeta{Name: "sensu-ruby"}, URL: "http://{{ .labels.nope }}/"}}
		}, 3,
			"error getting assets for check: asset sensu-ruby: error while substituting tokens: url: unmatched token"},
		{"invalid", func(r *resource.CheckRequest) { r.Config.Interval = 0 }, 3, "given check is invalid: check interval must be greater than 0"},
		{"status-of-its-own", func(r *resource.CheckRequest) {
			r.Config.Interval = 0
			r.Config.Metadata.Annotations = map[string]string{"allow_list_on_deny_status": "1"}
		}, 1, "given check is invalid: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := &resource.CheckRequest{Config: shellCheck(tt.name, "echo ran"), Issued: 5}
			req.Config.Pipelines = []resource.ResourceReference{{APIVersion: "core/v2", Type: "Pipeline", Name: "p"}}
			tt.change(req)
			before := time.Now().Unix()
			ev := s.request(req)
			c := ev.Check
			if c.Status != tt.status || !strings.HasPrefix(c.Output, tt.output) || c.Command != req.Config.Command || c.Issued != 5 {
				t.Errorf("got check %+v", c)
			}
			if len(ev.ID) != 0 || c.Duration != 0 || c.ProcessedBy != "" || ev.Timestamp < before || c.Executed < before || ev.Entity.Metadata.Name != "web-1" || len(ev.Pipelines) != 1 {
				t.Errorf("got event %+v", ev)
			}
		})
	}
	// The agent survives an invalid request.
	s.send(wire.TypeCheckRequest, &resource.CheckRequest{Issued: 5})
	if ev := s.request(&resource.CheckRequest{Config: shellCheck("alive", "echo ran"), Issued: 5}); ev.Check.Output != "ran\n" {
		t.Errorf("got %+v", ev.Check)
	}
}

func TestAgentHooks(t *testing.T) {
	t.Parallel()
	b := new(fakeBackend).start(t)
	_, s := startAgent(t, b, nil)
	config := shellCheck("disk", "echo full; exit 2")
	config.EnvVars = []string{"SECRET=x"}
	config.CheckHooks = []resource.HookList{
		{Type: "ok", Hooks: []string{"never"}},
		{Type: "critical", Hooks: []string{"first", "missing"}},
		{Type: "non-zero", Hooks: []string{"first", "stdin"}},
		{Type: "2", Hooks: []string{"slow", "token", "asset"}},
	}
	hook := func(name, command string) resource.HookConfig {
		return resource.HookConfig{Metadata: resource.ObjectMeta{Name: name, Namespace: "default"}, Command: command, Timeout: 10}
	}
	req := &resource.CheckRequest{Config: config, Issued: 1, Hooks: []resource.HookConfig{
		hook("never", "echo never"), hook("first", "echo {{ .name }} $SECRET.; exit 7"), hook("stdin", "cat"), hook("slow", "sleep 300"), hook("token", "echo {{ .labels.nope }}"), hook("asset", "true"),
	}}
	req.Hooks[2].Stdin = true
	req.Hooks[3].Timeout = 1
	req.HookAssets = map[string]resource.AssetList{"asset": {Assets: []resource.Asset{{Metadata: resource.ObjectMeta{Name: "a"}}}}}
	hooks := s.request(req).Check.Hooks
	var names []string
	for _, h := range hooks {
		names = append(names, h.Metadata.Name)
	}
	if want := []string{"first", "missing", "stdin", "slow", "token", "asset"}; !slices.Equal(names, want) {
		t.Fatalf("ran %q, want %q", names, want)
	}
	first, missing, stdin, slow, token, asset := hooks[0], hooks[1], hooks[2], hooks[3], hooks[4], hooks[5]
	if first.Command != "echo {{ .name }} $SECRET.; exit 7" || first.Output != "web-1 .\n" || first.Status != 7 || first.Duration <= 0 || first.Executed == 0 || first.Timeout != 10 {
		t.Errorf("first: got %+v", first)
	}
	if missing.Output != "hook missing: missing hook config\n" || missing.Status != 2 {
		t.Errorf("missing: got %+v", missing)
	}
	var in resource.Event
	if err := json.Unmarshal([]byte(stdin.Output), &in); err != nil || in.Check.Output != "full\n" || in.Check.Status != 2 || in.Check.ProcessedBy != "web-1" {
		t.Errorf("stdin: got %+v, error %v", in.Check, err)
	}
	if slow.Status != 2 || slow.Output != "Execution timed out\n" {
		t.Errorf("slow: got %+v", slow)
	}
	if token.Status != 2 || !strings.Contains(token.Output, "unmatched token") {
		t.Errorf("token: got %+v", token)
	}
	if asset.Status != 2 || !strings.Contains(asset.Output, "error getting assets for hook: asset a: ") {
		t.Errorf("asset: got %+v", asset)
	}
}

// fifo makes a named pipe that a check waits to read from.
func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := makeFIFO(path); err != nil {
		t.Skip(err)
	}
	return path
}

func TestAgentRequestsAndConcurrency(t *testing.T) {
	t.Parallel()
	b := new(fakeBackend).start(t)
	a, s := startAgent(t, b, func(o *Options) { o.MaxConcurrency = 1 })
	path, order := fifo(t), filepath.Join(t.TempDir(), "order")
	blocked := shellCheck("blocked", "cat "+path+" && echo blocked >>"+order)
	send := func(config *resource.CheckConfig, issued int64) {
		t.Helper()
		s.send(wire.TypeCheckRequest, &resource.CheckRequest{Config: config, Issued: issued})
	}
	send(blocked, 10)
	w, err := os.OpenFile(path, os.O_WRONLY, 0) // opens when the check does
	if err != nil {
		t.Fatal(err)
	}
	send(blocked, 10) // for another subscription
	send(blocked, 9)
	send(blocked, 11)
	waiting := shellCheck("waiting", "echo waiting >>"+order+" && echo done")
	send(waiting, 10)
	requests := func(v verdict) float64 { return value(t, a.checkMetrics.requests.WithLabelValues(string(v))) }
	waitFor(t, "both are accepted", func() bool { return requests(accepted) == 2 }) // requests are taken in order
	if requests(duplicate) != 1 || requests(outdated) != 1 || requests(inProgress) != 1 {
		t.Errorf("duplicate %v, outdated %v, in progress %v", requests(duplicate), requests(outdated), requests(inProgress))
	}
	if n := value(t, a.checkMetrics.running); n != 1 {
		t.Errorf("%v checks are running", n)
	}
	if _, err := w.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	outputs := map[string]string{}
	for _, r := range s.readN(2) { // a result may overtake that of the check before it
		outputs[r.check()] = r.event.Check.Output
	}
	if want := map[string]string{"blocked": "go\n", "waiting": "done\n"}; !maps.Equal(outputs, want) {
		t.Errorf("got %q", outputs)
	}
	if ran, err := os.ReadFile(order); err != nil || string(ran) != "blocked\nwaiting\n" {
		t.Errorf("the checks ran as %q, error %v", ran, err)
	}
	s.Close(wire.CloseGoingAway, "bye")
	s = b.accept(t)
	s.sendNotFound()
	s.send(wire.TypeCheckRequest, &resource.CheckRequest{Config: waiting, Issued: 10}) // remembered
	s.send(wire.TypeCheckRequest, &resource.CheckRequest{Config: waiting, Issued: 12})
	s.next("run of the second request", func(r received) bool {
		if r.keepalive || r.check() != "waiting" {
			return false
		}
		if r.event.Sequence != 1 {
			t.Errorf("number %d after a reconnect, or the check ran again: %+v", r.event.Sequence, r.event)
		}
		return r.event.Check.Issued == 12
	})
}

func TestAgentStop(t *testing.T) {
	t.Parallel()
	b := new(fakeBackend).start(t)
	path := fifo(t)
	a, s := startAgent(t, b, nil)
	if !a.Connected() || a.Name() != "web-1" {
		t.Error("not connected")
	}
	s.send(wire.TypeCheckRequest, &resource.CheckRequest{Config: shellCheck("endless", "sleep 300 & echo $! >"+path+"; wait"), Issued: 1})
	pid, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := a.Stop(); err != nil {
			t.Error(err)
		}
	}
	waitGone(t, atoi(t, pid))
	if a.Connected() {
		t.Error("connected after Stop")
	}
	if a.Start(t.Context()) == nil {
		t.Error("started again")
	}
	never, err := New(Options{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if err := never.Stop(); err != nil {
		t.Error(err)
	}
	if never.Start(t.Context()) == nil {
		t.Error("started after Stop")
	}
}

func TestAgentOptions(t *testing.T) {
	t.Parallel()
	a, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if o := a.opts; !resource.ValidName(o.Name) || o.Namespace != "default" || o.User != "agent" || o.Password != "P@ssw0rd!" || o.KeepaliveInterval != 20*time.Second ||
		o.KeepaliveWarningTimeout != 120*time.Second || o.KeepaliveCriticalTimeout != 0 || !slices.Equal(o.Redact, DefaultRedact) || o.MaxConcurrency != 50 || o.MaxOutput != 2<<20 {
		t.Errorf("defaults: %+v", o)
	}
	for want, o := range map[string]Options{
		`name "a b"`:               {Name: "a b"},
		"KeepaliveInterval":        {KeepaliveInterval: -1},
		"KeepaliveWarningTimeout":  {KeepaliveWarningTimeout: time.Second},
		"longer than the interval": {KeepaliveInterval: 10 * time.Second, KeepaliveWarningTimeout: 10 * time.Second},
		"KeepaliveCriticalTimeout": {KeepaliveCriticalTimeout: 100 * time.Second},
		"MaxOutput":                {MaxOutput: -1},
		"scheme":                   {BackendURLs: []string{"https://x"}},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error about %q, got %v", want, err)
		}
	}
	var logged strings.Builder
	a, err = New(Options{Name: "a", KeepalivePipelines: []string{"x"}, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	if err != nil || len(a.settings.Load().pipelines) != 0 || !strings.Contains(logged.String(), "pipeline=x") {
		t.Errorf("%v, %v, log %q", a.settings.Load().pipelines, err, logged.String())
	}
}

func TestAgentCollectors(t *testing.T) {
	t.Parallel()
	b := new(fakeBackend).start(t)
	_, s := startAgent(t, b, nil)
	config := shellCheck("files", "builtin:files --warning {{ .labels.files | default `0` }}")
	config.OutputMetricFormat = "graphite_plaintext"
	config.OutputMetricTags = []resource.MetricTag{{Name: "rack", Value: "17"}}
	ev := s.request(&resource.CheckRequest{Config: config, Issued: 1})
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells")
	}
	if ev.Check.Status != 1 || !strings.HasPrefix(ev.Check.Output, "FILES WARNING: ") || ev.Check.Command != config.Command {
		t.Errorf("got %+v", ev.Check)
	}
	if ev.Metrics == nil || len(ev.Metrics.Points) != 3 {
		t.Fatalf("got %+v", ev.Metrics)
	}
	point := ev.Metrics.Points[2]
	if point.Name != "servers.web-1.files.max" || point.Value < 1000 || point.Timestamp < ev.Check.Executed || len(point.Tags) != 1 || point.Tags[0].Name != "rack" {
		t.Errorf("got %+v", point)
	}
	config.Command, config.Timeout, config.OutputMetricFormat = "builtin:cpu --sample 1m", 1, ""
	ev = s.request(&resource.CheckRequest{Config: config, Issued: 2})
	if ev.Check.Status != 2 || !strings.HasPrefix(ev.Check.Output, "Execution timed out\n") || ev.Metrics != nil {
		t.Errorf("out of time: got %+v, %+v", ev.Check, ev.Metrics)
	}
}

// TestLongNames: an agent whose name no backend would take does not start.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("n", 256)
	for want, opts := range map[string]Options{
		"name ":     {Name: long},
		"namespace": {Name: "web-1", Namespace: long},
	} {
		if _, err := New(opts); err == nil || !strings.HasPrefix(err.Error(), "agent: "+want) || !strings.Contains(err.Error(), "255 bytes") {
			t.Errorf("%s: got %v", want, err)
		}
	}
}
