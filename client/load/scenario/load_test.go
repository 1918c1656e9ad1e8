package scenario

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const folder = "../../../bench/scenarios"

// full uses every field that can be combined with the others.
const full = `name: full
description: everything
needs: [proxy_requests, pipelines, tcp_stream_handler]
namespace: load
agents:
  - name: a
    count: 1_000
    subscriptions: [one, two]
    keepalive: {interval: 60s, warning: 6m}
    protocol: lapwing
  - {name: b, count: 10, subscriptions: [two], subscriptions_per_agent: 1}
checks:
  - name: plain-{n}
    count: 5
    interval: 10s
    subscriptions: [one, two]
    handlers: [file]
    metrics: {format: graphite_plaintext, handlers: [file]}
    ttl: 1m
    timeout: 5s
    low_flap_threshold: 10
    high_flap_threshold: 30
  - name: proxies
    interval: 5s
    subscriptions: [one, two, nobody]
    round_robin: true
    proxy_requests: {labels: {kind: switch}, splay: true, splay_coverage: 90}
  - {name: proxy, cron: "* * * * *", subscriptions: [two], proxy_entity: switch-2, pipelines: [stream], command: "true", request_bytes: 1024}
handlers:
  - {name: file, type: pipe, command: cat >/dev/null, timeout: 10s, filters: [is_incident], mutator: only_check_output}
  - {name: socket, type: tcp, host: 127.0.0.1, port: 4000}
  - {name: hook, type: webhook, url: "http://127.0.0.1:4001/"}
  - {name: all, type: set, handlers: [file, socket]}
entities:
  - {name: "switch-{n}", count: 3, labels: {kind: switch}, subscriptions: [net]}
  - {name: router, class: proxy, labels: {kind: router}}
resources:
  - type: TCPStreamHandler
    api_version: pipeline/v1
    metadata: {name: stream}
    spec: {address: "127.0.0.1:9999", max_connections: 100}
  - type: Pipeline
    metadata: {name: stream, labels: {a: b}, annotations: {c: d}}
    spec:
      workflows: [{name: w, handler: {api_version: pipeline/v1, type: TCPStreamHandler, name: stream}}]
load:
  duration: 2m
  warm_up: 10s
  protocol: sensu
  connect_rate: 500
  event_bytes: 799
  statuses: {0: 0.9, 2: 0.1}
  flap_rate: 0.1
  metrics_per_event: 3
  churn: 1.5
  huge_events: 0.001
  huge_bytes: 1_000_000
  sources: [127.0.0.2, 127.0.0.3]
  processes: 2
  probes: 5
  seed: 7
  ack_delay: 150ms
  receipts: false
  kill_agents: 0.3
  checks_last: false
  create_parallel: 4
expect:
  loss: 0
  duplicates: 0
  order_violations: 0
  errors: 3
  disconnects: 0
  connected_min: 1010
  connect_seconds_max: 15
  events_per_second_min: 500
  cpu_micros_max: 20.5
  rss_bytes_max: 1e9
  log_bytes_max: 1100
  disk_bytes_max: 2000
  turns_per_second_min: 1
  turn_duplicates: 0
  latencies:
    handler: {p50_max: 10ms, p99_max: 50ms, max: 1s}
    ack: {p99_max: 2s}
`

func mustParse(t *testing.T, text string) *Scenario {
	t.Helper()
	s, err := parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestParse(t *testing.T) {
	s := mustParse(t, full)
	switch {
	case s.Name != "full", s.Run != "full", s.Namespace != "load", s.AgentCount() != 1010,
		s.Agents[0].Keepalive != Keepalive{time.Minute, 6 * time.Minute}, s.Agents[0].Protocol != "lapwing",
		s.Agents[1].Keepalive != Keepalive{20 * time.Second, 2 * time.Minute}, s.Agents[1].Protocol != "sensu",
		s.Checks[0].Command != Command, s.Checks[1].Count != 1, s.Checks[1].ProxyRequests.Coverage != 90,
		s.Entities[0].Class != "proxy", s.Resources[1].APIVersion != "core/v2",
		s.Load.AckDelay != 150*time.Millisecond, s.Load.KillAgents != 0.3, s.Agents[1].SubscriptionsPerAgent != 1,
		*s.Expect.TurnsPerSecondMin != 1, *s.Expect.TurnDuplicates != 0, s.Checks[2].RequestBytes != 1024,
		s.Load.Statuses[2] != 0.1, s.Load.Sources[1].String() != "127.0.0.3", s.Load.Seed != 7, s.Load.HugeBytes != 1e6,
		*s.Expect.Errors != 3, *s.Expect.CPUMicrosMax != 20.5, s.Expect.Latencies["handler"].P99Max != 50*time.Millisecond,
		s.Expect.Latencies["ack"].Max != 0:
		t.Errorf("read %+v", s)
	}
	// 5 checks × 1,010 agents / 10 s, and on 2 subscriptions with members 3 switches / 5 s. The cron check is not
	// counted.
	if got, want := s.EventsPerSecond(), 505+1.2; math.Abs(got-want) > 1e-9 {
		t.Errorf("%v events/s, want %v", got, want)
	}
	if handler := s.Resources[1].Spec["workflows"].([]any)[0].(map[string]any)["handler"].(map[string]any); handler["name"] != "stream" {
		t.Errorf("the pipeline's handler is %v", handler)
	}
}

func TestParseErrors(t *testing.T) {
	f := func(old, instead string, want ...string) {
		t.Helper()
		if !strings.Contains(full, old) {
			t.Fatalf("there is no %q", old)
		}
		_, err := parse("f.yaml", []byte(strings.Replace(full, old, instead, 1)))
		if err == nil {
			t.Errorf("%q is taken", instead)
			return
		}
		got := strings.Split(err.Error(), "\n")
		if len(got) != len(want) {
			t.Errorf("errors %q, want %q", got, want)
			return
		}
		for i := range want {
			if !strings.HasPrefix(got[i], want[i]) {
				t.Errorf("error %q, want %q", got[i], want[i])
			}
		}
	}
	f("name: full", "name: full\nnames: 3", "f.yaml:2: names: there is no such field; those there are: name, description,")
	f("    interval: 10s", "    intervall: 10s", "f.yaml:15: checks[0].intervall: there is no such field; those there are: name, count,")
	f("    interval: 10s", "    interval: 10", `f.yaml:15: checks[0].interval: "10" is not a time such as 10s`)
	f("    interval: 10s", "    interval: 10500ms", "f.yaml:15: checks[0].interval: must be whole seconds")
	f("    interval: 10s", "    interval: 10s\n    interval: 20s", "f.yaml:16: checks[0].interval: is there twice")
	f("    interval: 10s", "    command: x", "f.yaml:13: checks[0]: must have an interval or a cron, and not both")
	f("    interval: 10s", "    interval: 10s\n    cron: '* * * * *'", "f.yaml:13: checks[0]: must have an interval or a cron, and not both")
	f("    interval: 10s", "    interval: [10s]", "f.yaml:15: checks[0].interval: must be a time such as 10s, not a list")
	f("    interval: 10s", "    interval:", "f.yaml:15: checks[0].interval: has no value")
	f("    subscriptions: [one, two]\n    handlers", "    handlers", "f.yaml:13: checks[0].subscriptions: no agent would run it")
	f("    ttl: 1m", "    ttl: 5s", "f.yaml:13: checks[0]: ttl")
	f("name: plain-{n}", "name: plain", `f.yaml:13: checks[0].name: "plain" must hold {n}, since there are 5`)
	f("name: plain-{n}", `name: "plain {n}"`, `f.yaml:13: checks[0].name: "plain {n}" is not a name`)
	f("name: plain-{n}\n    count: 5", `name: plain-{n}`+"\n    count: 0x5", `f.yaml:14: checks[0].count: "0x5" is not a whole number`)
	f("name: proxies", "name: plain-3", `f.yaml:23: checks[1].name: there is another "plain-3"`)
	f("kind: switch}, splay", "kind: hub}, splay", "f.yaml:27: checks[1].proxy_requests.labels: none of the entities has them")
	f("proxy_entity: switch-2", "proxy_entity: switch-4", `f.yaml:28: checks[2].proxy_entity: "switch-4" is not among the entities`)
	f("needs: [proxy_requests, ", "needs: [telepathy, ", `f.yaml:3: needs[0]: "telepathy" is not known; there are proxy_requests, pipelines, tcp_stream_handler`,
		"f.yaml:27: checks[1].proxy_requests: the scenario's needs do not name proxy_requests")
	f("pipelines, tcp_stream_handler", "proxy_requests",
		"f.yaml:28: checks[2].pipelines: the scenario's needs do not name pipelines", "f.yaml:38: resources[0]: the scenario's needs do not name tcp_stream_handler",
		"f.yaml:42: resources[1]: the scenario's needs do not name pipelines")
	f("count: 1_000", "count: 0", "f.yaml:7: agents[0].count: must be from 1 to 1000000")
	f("count: 1_000", "count: -1", "f.yaml:7: agents[0].count: must be from 1 to 1000000")
	f("count: 1_000", "count: 99999999999999999999", `f.yaml:7: agents[0].count: "99999999999999999999" is not a whole number of a sensible size`)
	f("{name: b, count: 10", "{name: a, count: 10", `f.yaml:11: agents[1].name: another group is called "a"`)
	f("protocol: lapwing", "protocol: mqtt", `f.yaml:10: agents[0].protocol: "mqtt" is neither sensu nor lapwing`)
	f("warning: 6m", "warning: 60s", "f.yaml:9: agents[0].keepalive.warning: must be whole seconds, at least 5, and more than the interval of 1m0s")
	f("type: tcp, host", "type: tpc, host", "f.yaml:31: handlers[1]: unknown handler type: tpc")
	f("port: 4000", "port: 400000", `f.yaml:31: handlers[1].port: "400000" is not a whole number from 0 on of a sensible size`)
	f("class: proxy", "class: agent", "f.yaml:36: entities[1].class: agents bring their own entities")
	f("type: Pipeline", "type: Pipe", `f.yaml:42: resources[1].type: core/v2 "Pipe" is not a kind that a scenario can create`)
	f("{0: 0.9, 2: 0.1}", "{ok: 0.9}", `f.yaml:52: load.statuses.ok: "ok" is not a whole number from 0 on`)
	f("{0: 0.9, 2: 0.1}", "{0: 0}", "f.yaml:52: load.statuses: none is ever taken")
	f("flap_rate: 0.1", "flap_rate: 10", "f.yaml:53: load.flap_rate: is a share and must be from 0 to 1")
	f("127.0.0.3", "localhost", "f.yaml:58: load.sources[1]: ParseAddr")
	f("loss: 0", "loss: none", `f.yaml:68: expect.loss: "none" is not a whole number from 0 on`)
	f("rss_bytes_max: 1e9", "rss_bytes_max: .inf", `f.yaml:77: expect.rss_bytes_max: ".inf" is not a number`)
	f("rss_bytes_max: 1e9", "rss_bytes_max: inf", `f.yaml:77: expect.rss_bytes_max: "inf" is not a number of a sensible size`)
	f("    ack: {p99_max: 2s}", "    acknowledge: {p99_max: 2s}", "f.yaml:84: expect.latencies.acknowledge: there is no such latency; those there are: ack,")
	f("splay: true", "splay: maybe", `f.yaml:27: checks[1].proxy_requests.splay: "maybe" is neither true nor false`)
	f("subscriptions: [two], sub", "subscriptions: two, sub", `f.yaml:11: agents[1].subscriptions: must be a list, not "two"`)
	f("{name: b, count: 10, subscriptions: [two], subscriptions_per_agent: 1}", "b", `f.yaml:11: agents[1]: must be a mapping of names to values, not "b"`)
	f("agents:", "agents: &a", "f.yaml:5: agents: anchors and aliases are not allowed here")
	f("agent: 1}", "agent: 2}", "f.yaml:11: agents[1].subscriptions_per_agent: must be from 0 to the number of subscriptions, 1")
	f("request_bytes: 1024", "request_bytes: -1", "f.yaml:28: checks[2].request_bytes: must be from 0 to 1048576")
	f("ack_delay: 150ms", "ack_delay: -1s", `f.yaml:62: load.ack_delay: "-1s" is not a time such as 10s, 5m or 500ms`)
	f("receipts: false", "receipts: true", "f.yaml:11: agents[1].protocol: Sensu's agents send no receipts")
	f("create_parallel: 4", "create_parallel: -4", "f.yaml:66: load.create_parallel: must not be below 0")
	f("kill_agents: 0.3", "kill_agents: 30", "f.yaml:64: load.kill_agents: is a share and must be from 0 to 1")
	f("description: everything", "description: 'every", "f.yaml: yaml: line ")
	f("description: everything", "---", "f.yaml: there is more than one document")
	_, err := parse("f.yaml", nil)
	if err == nil || err.Error() != "f.yaml:1: the file is empty" {
		t.Errorf("error %v", err)
	}
	_, err = parse("f.yaml", []byte("name: x"))
	if err == nil || err.Error() != "f.yaml:1: agents: there must be some" {
		t.Errorf("error %v", err)
	}
}

func TestLoadNoFile(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "no.yaml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

var (
	saysAgents = regexp.MustCompile(`([\d,]+) agents?\b`)
	saysRate   = regexp.MustCompile(`([\d,]+) (?:events|turns)/s`)
)

// TestFiles reads every scenario of the repository, and checks that the file does what its description says.
func TestFiles(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(paths) < 18 {
		t.Fatalf("found %d scenarios, error %v", len(paths), err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		t.Run(name, func(t *testing.T) {
			s, err := Load(path)
			if err != nil {
				t.Fatal(err)
			}
			if s.Name != name {
				t.Errorf("it is called %s", s.Name)
			}
			said := func(what *regexp.Regexp) int {
				m := what.FindStringSubmatch(s.Description)
				if m == nil {
					t.Fatalf("the description does not say %v", what)
				}
				n, err := strconv.Atoi(strings.ReplaceAll(m[1], ",", ""))
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			if want := said(saysAgents); s.AgentCount() != want {
				t.Errorf("%d agents, the description says %d", s.AgentCount(), want)
			}
			rate := s.EventsPerSecond()
			if want := said(saysRate); math.Abs(rate-float64(want)) > 0.5 {
				t.Errorf("%v events/s, the description says %d", rate, want)
			}
			if s.Expect.ConnectedMin == nil || *s.Expect.ConnectedMin != float64(s.AgentCount()) {
				t.Error("not all agents are expected to be connected")
			}
			over := s.Load.Overload.Duration > 0 // then less is folded than is sent
			least := s.Expect.EventsPerSecondMin
			if s.Load.Receipts {
				least = s.Expect.TurnsPerSecondMin // there are no events
			}
			if rate > 0 && (least == nil || *least > rate || *least < 0.9*rate && !over) {
				t.Error("the rate is not expected, or cannot be had")
			}
			if big := strings.HasPrefix(name, "sensu-perf-") && !strings.HasSuffix(name, "-small"); !big &&
				s.AgentCount()/max(1, s.Load.Processes) > 18500 {
				t.Errorf("%d agents do not fit into %d load processes", s.AgentCount(), s.Load.Processes)
			}
			if rate > 0 && s.Expect.Loss == nil && !s.Load.Receipts {
				t.Error("events may be lost")
			}
			if s.Load.Receipts && s.Expect.TurnDuplicates == nil {
				t.Error("turns may be given twice")
			}
		})
	}
}

// TestSuites compares the sensu-perf suites with the published figures.
func TestSuites(t *testing.T) {
	f := func(name string, groups, agents, checks int, rate float64) {
		t.Helper()
		s, err := Load(filepath.Join(folder, name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, c := range s.Checks {
			n += c.Count
			if c.Interval != 10*time.Second || c.Command != Command || len(c.Handlers) > 0 || c.TTL != 0 {
				t.Errorf("%s: check %+v", name, c)
			}
		}
		for _, g := range s.Agents {
			if g.Keepalive != (Keepalive{time.Minute, 6 * time.Minute}) || len(g.Subscriptions) != 1 {
				t.Errorf("%s: agents %+v", name, g)
			}
		}
		if len(s.Agents) != groups || s.AgentCount() != agents || n != checks || s.EventsPerSecond() != rate || s.Load.EventBytes != 799 {
			t.Errorf("%s: %d groups, %d agents, %d checks, %v events/s", name, len(s.Agents), s.AgentCount(), n, s.EventsPerSecond())
		}
	}
	f("sensu-perf-6k", 3, 6000, 30, 6000)
	f("sensu-perf-14k", 4, 14000, 40, 14000)
	f("sensu-perf-20k", 4, 20000, 40, 20000)
	f("sensu-perf-40k", 4, 40000, 45, 45000)
	f("sensu-perf-20k-proxy", 4, 20000, 1000, 5000)
	f("sensu-perf-20k-tcp", 4, 20000, 40, 20000)
}

// TestQueueLab compares the stages of the queue laboratory with the published figures.
func TestQueueLab(t *testing.T) {
	for _, subscriptions := range []int{2, 3, 5, 6, 20} {
		s, err := Load(filepath.Join(folder, "queue-lab.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.CutSubscriptions(subscriptions); err != nil {
			t.Fatal(err)
		}
		g, c := s.Agents[0], &s.Checks[0]
		if len(s.Agents) != 1 || len(s.Checks) != 1 || !slices.Equal(g.Subscriptions, c.Subscriptions) || len(g.Subscriptions) != subscriptions {
			t.Fatalf("%d subscriptions: agents %+v, checks %+v", subscriptions, s.Agents, s.Checks)
		}
		if s.AgentCount() != 50_000 || math.Abs(s.EventsPerSecond()-40_000) > 4 || !c.RoundRobin || g.Protocol != protocolLapwing {
			t.Errorf("%d subscriptions: %d agents, %v turns/s", subscriptions, s.AgentCount(), s.EventsPerSecond())
		}
		if least := *s.Expect.TurnsPerSecondMin; least > s.EventsPerSecond() {
			t.Errorf("%d subscriptions: %v turns/s are expected of %v", subscriptions, least, s.EventsPerSecond())
		}
		if s.Load.AckDelay != 150*time.Millisecond || s.Load.Duration != 5*time.Minute || c.RequestBytes != 1024 || !s.Load.Receipts {
			t.Errorf("%d subscriptions: load %+v", subscriptions, s.Load)
		}
	}
}

func TestCutSubscriptions(t *testing.T) {
	const text = `name: lab
agents:
  - {name: a, count: 3, subscriptions: [one, two, three], subscriptions_per_agent: 2}
  - {name: b, count: 3, subscriptions: [two, four]}
checks:
  - {name: "robin-{n}", count: 30, interval: 1s, subscriptions: [one, two, three, four], round_robin: true}
  - {name: "plain-{n}", count: 7, interval: 1s, subscriptions: [four, two]}
  - {name: single, interval: 1s, subscriptions: [one, three], round_robin: true}
  - {name: "all-{n}", count: 5, interval: 1s, subscriptions: [two, one], round_robin: true}
`
	type cut struct {
		subscriptions string
		number        int // of the subscriptions of each agent, or of the checks
	}
	for n, want := range map[int][]cut{
		4: {
			{"one two three", 2}, {"two four", 0},
			{"one two three four", 30}, {"four two", 7}, {"one three", 1}, {"two one", 5},
		},
		3: {
			{"one two three", 2}, {"two", 0},
			{"one two three", 40}, {"two", 7}, {"one three", 1}, {"two one", 5},
		},
		2: {
			{"one two", 2}, {"two", 0},
			{"one two", 60}, {"two", 7}, {"one", 1}, {"two one", 5},
		},
	} {
		s := mustParse(t, text)
		if err := s.CutSubscriptions(n); err != nil {
			t.Fatal(err)
		}
		var got []cut
		for _, g := range s.Agents {
			got = append(got, cut{strings.Join(g.Subscriptions, " "), g.SubscriptionsPerAgent})
		}
		for _, c := range s.Checks {
			got = append(got, cut{strings.Join(c.Subscriptions, " "), c.Count})
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d subscriptions: %v, want %v", n, got, want)
		}
	}
	for n, want := range map[int]string{
		0:  "the scenario has 4 subscriptions, not 0",
		-1: "the scenario has 4 subscriptions, not -1",
		5:  "the scenario has 4 subscriptions, not 5",
		1:  "agents b have none of the first 1 subscriptions",
	} {
		if err := mustParse(t, text).CutSubscriptions(n); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d subscriptions: error %v, want %s", n, err, want)
		}
	}
	s := mustParse(t, strings.Replace(text, "[four, two]", "[four]", 1))
	if err := s.CutSubscriptions(2); err == nil || !strings.Contains(err.Error(), "checks plain-{n} have none") {
		t.Errorf("error %v of checks that no agent would run", err)
	}
	s = mustParse(t, strings.Replace(text, "count: 30", "count: 60000", 1))
	if err := s.CutSubscriptions(2); err == nil || !strings.Contains(err.Error(), "120000 checks") {
		t.Errorf("error %v of too many checks", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(full))
	f.Add([]byte("name: a\nagents: [{name: a, count: 1}]"))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("? [a]\n: b"))
	f.Add([]byte("resources: [{spec: {1: 2, a: ~, b: 2001-01-01, c: !!binary aGk=}}]"))
	paths, _ := filepath.Glob(filepath.Join(folder, "*.yaml"))
	for _, path := range paths {
		if text, err := os.ReadFile(path); err == nil {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parse("f.yaml", text)
		if err != nil {
			return
		}
		if rate := s.EventsPerSecond(); rate < 0 || math.IsNaN(rate) {
			t.Errorf("%v events/s", rate)
		}
	})
}

// TestReadme reads the example of the README.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(text), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	if s := mustParse(t, example); s.AgentCount() != 20 || s.EventsPerSecond() != 10 {
		t.Errorf("the example has %d agents and %v events/s", s.AgentCount(), s.EventsPerSecond())
	}
}
