package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/lapwing-monitoring/lapwing/client/load/report"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Load reads a scenario from a file. Its error names the file, the line and the field of each mistake.
func Load(path string) (*Scenario, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read scenario: %w", err)
	}
	return parse(path, text)
}

func parse(path string, text []byte) (*Scenario, error) {
	var document yaml.Node
	r := yaml.NewDecoder(bytes.NewReader(text))
	if err := r.Decode(&document); errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s:1: the file is empty", path)
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := r.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: there is more than one document in the file", path)
	}
	s := new(Scenario)
	d := &decoder{file: path, lines: map[string]int{}}
	d.decode(document.Content[0], reflect.ValueOf(s).Elem(), "")
	if err := d.err(); err != nil {
		return nil, err
	}
	s.defaults()
	s.validate(d)
	if err := d.err(); err != nil {
		return nil, err
	}
	return s, nil
}

const classProxy = resource.EntityProxyClass

// Protocols of agents.
const (
	protocolSensu   = "sensu"
	protocolLapwing = "lapwing"
)

func (s *Scenario) defaults() {
	if s.Namespace == "" {
		s.Namespace = "default"
	}
	s.Run = s.Name
	for i := range s.Agents {
		g := &s.Agents[i]
		if g.Keepalive.Interval == 0 {
			g.Keepalive.Interval = 20 * time.Second
		}
		if g.Keepalive.Warning == 0 {
			g.Keepalive.Warning = 120 * time.Second
		}
		if g.Protocol == "" {
			g.Protocol = s.Load.Protocol
		}
	}
	for i := range s.Checks {
		c := &s.Checks[i]
		if c.Count == 0 {
			c.Count = 1
		}
		if c.Command == "" {
			c.Command = Command
		}
	}
	for i := range s.Entities {
		e := &s.Entities[i]
		if e.Count == 0 {
			e.Count = 1
		}
		if e.Class == "" {
			e.Class = classProxy
		}
	}
	for i := range s.Resources {
		if s.Resources[i].APIVersion == "" {
			s.Resources[i].APIVersion = coreVersion
		}
	}
}

// Limits so that a typing error cannot make a run that no machine could handle.
const (
	maxAgents  = 1_000_000
	maxObjects = 100_000 // of one kind
	maxRequest = 1 << 20
)

func (s *Scenario) validate(d *decoder) {
	if !resource.ValidName(s.Name) {
		d.failAt("name", "%q is not a name: letters, digits, underscores, dots, dashes and colons", s.Name)
	}
	if !resource.ValidName(s.Namespace) {
		d.failAt("namespace", "%q is not a name", s.Namespace)
	}
	for i, need := range s.Needs {
		if !slices.Contains(features, need) {
			d.failAt(item("needs", i), "%q is not known; there are %s", need, strings.Join(features, ", "))
		}
	}
	if len(s.Agents) == 0 {
		d.failAt("agents", "there must be some")
	}
	s.validateAgents(d)
	s.validateChecks(d, s.validateObjects(d))
	s.validateLoad(d)
	if o := s.Load.Overload; o.Duration < 0 || o.BusyCores < 0 || o.Duration > s.Load.Duration && s.Load.Duration > 0 {
		d.failAt("load.overload", "is to be a part of the measured time, with a number of processors")
	}
	for _, key := range slices.Sorted(maps.Keys(s.Expect.Latencies)) {
		l := s.Expect.Latencies[key]
		at := "expect.latencies." + key
		if !slices.Contains(latencies, key) {
			d.failAt(at, "there is no such latency; those there are: %s", strings.Join(latencies, ", "))
		}
		if l == (Latency{}) {
			d.failAt(at, "says nothing")
		}
	}
}

var latencies = []string{
	report.LatencyAck, report.LatencyVisible, report.LatencyAPI, report.LatencyHandler, report.LatencyRequest,
	report.LatencyConnect, report.LatencyInterval, report.LatencyTurnArrival, report.LatencyTurnAnswer,
}

func item(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

func (s *Scenario) validateAgents(d *decoder) {
	seen := map[string]bool{}
	for i, g := range s.Agents {
		at := item("agents", i)
		if !resource.ValidName(g.Name) {
			d.failAt(at+".name", "%q is not a name", g.Name)
		}
		if seen[g.Name] {
			d.failAt(at+".name", "another group is called %q", g.Name)
		}
		seen[g.Name] = true
		if g.Count < 1 || g.Count > maxAgents {
			d.failAt(at+".count", "must be from 1 to %d", maxAgents)
		}
		if g.SubscriptionsPerAgent < 0 || g.SubscriptionsPerAgent > len(g.Subscriptions) {
			d.failAt(at+".subscriptions_per_agent", "must be from 0 to the number of subscriptions, %d", len(g.Subscriptions))
		}
		if s.Load.Receipts && g.Protocol == protocolSensu {
			d.failAt(at+".protocol", "Sensu's agents send no receipts")
		}
		if g.Keepalive.Interval < time.Second || g.Keepalive.Interval%time.Second != 0 {
			d.failAt(at+".keepalive.interval", "must be whole seconds")
		}
		if g.Keepalive.Warning <= g.Keepalive.Interval || g.Keepalive.Warning < 5*time.Second || g.Keepalive.Warning%time.Second != 0 {
			d.failAt(at+".keepalive.warning", "must be whole seconds, at least 5, and more than the interval of %v", g.Keepalive.Interval)
		}
		validateProtocol(d, at+".protocol", g.Protocol)
	}
}

func validateProtocol(d *decoder, at, protocol string) {
	if protocol != "" && protocol != protocolSensu && protocol != protocolLapwing {
		d.failAt(at, "%q is neither %s nor %s", protocol, protocolSensu, protocolLapwing)
	}
}

// names checks the names that a pattern makes, and that they are unique within the kind.
func names(d *decoder, at, pattern string, count int, seen map[string]bool) {
	switch {
	case count < 1 || count > maxObjects-len(seen):
		d.failAt(at+".count", "must be at least 1, and not more than %d in all", maxObjects)
		return
	case count > 1 && !strings.Contains(pattern, Numbered):
		d.failAt(at+".name", "%q must hold %s, since there are %d", pattern, Numbered, count)
		return
	case !resource.ValidName(numbered(pattern, 1)):
		d.failAt(at+".name", "%q is not a name", pattern)
		return
	}
	for n := 1; n <= count; n++ {
		name := numbered(pattern, n)
		if seen[name] {
			d.failAt(at+".name", "there is another %q", name)
			return
		}
		seen[name] = true
	}
}

func numbered(pattern string, n int) string {
	return strings.ReplaceAll(pattern, Numbered, strconv.Itoa(n))
}

func (s *Scenario) validateChecks(d *decoder, entities map[string]bool) {
	seen := map[string]bool{}
	for i := range s.Checks {
		c := &s.Checks[i]
		at := item("checks", i)
		before := len(d.errs)
		names(d, at, c.Name, c.Count, seen)
		if len(c.Subscriptions) == 0 {
			d.failAt(at+".subscriptions", "no agent would run it")
		}
		for _, f := range []struct {
			name string
			d    time.Duration
		}{{"interval", c.Interval}, {"ttl", c.TTL}, {"timeout", c.Timeout}} {
			if f.d%time.Second != 0 {
				d.failAt(at+"."+f.name, "must be whole seconds")
			}
		}
		if (c.Interval == 0) == (c.Cron == "") {
			d.failAt(at, "must have an interval or a cron, and not both")
		}
		if c.ProxyRequests != nil {
			s.require(d, at+".proxy_requests", NeedsProxyRequests)
			if len(c.ProxyRequests.Labels) == 0 {
				d.failAt(at+".proxy_requests.labels", "there must be some")
			} else if s.proxies(c.ProxyRequests.Labels) == 0 {
				d.failAt(at+".proxy_requests.labels", "none of the entities has them")
			}
		}
		if len(c.Pipelines) > 0 {
			s.require(d, at+".pipelines", NeedsPipelines)
		}
		if c.RequestBytes < 0 || c.RequestBytes > maxRequest {
			d.failAt(at+".request_bytes", "must be from 0 to %d", maxRequest)
		}
		if c.ProxyEntity != "" && !entities[c.proxyEntity(s, 1)] {
			// The backend would create it at the first event, and Cleanup would not remove it.
			d.failAt(at+".proxy_entity", "%q is not among the entities", c.ProxyEntity)
		}
		if len(d.errs) > before {
			continue
		}
		if err := c.config(s, 1).Validate(); err != nil {
			d.failAt(at, "%v", err)
		}
	}
}

// require checks that a scenario names the features it needs.
func (s *Scenario) require(d *decoder, at, feature string) {
	if !slices.Contains(s.Needs, feature) {
		d.failAt(at, "the scenario's needs do not name %s", feature)
	}
}

// validateObjects returns the names of the entities.
func (s *Scenario) validateObjects(d *decoder) (entities map[string]bool) {
	seen := map[string]bool{}
	for i := range s.Handlers {
		h := &s.Handlers[i]
		at := item("handlers", i)
		before := len(d.errs)
		names(d, at, h.Name, 1, seen)
		if h.Timeout%time.Second != 0 {
			d.failAt(at+".timeout", "must be whole seconds")
		}
		if len(d.errs) > before {
			continue
		}
		if err := h.handler(s).Validate(); err != nil {
			d.failAt(at, "%v", err)
		}
	}
	entities = map[string]bool{}
	for i := range s.Entities {
		e := &s.Entities[i]
		names(d, item("entities", i), e.Name, e.Count, entities)
		if e.Class == resource.EntityAgentClass {
			d.failAt(item("entities", i)+".class", "agents bring their own entities")
		}
	}
	for i := range s.Resources {
		r := &s.Resources[i]
		at := item("resources", i)
		if r.Metadata.Name == "" {
			d.failAt(at+".metadata.name", "is missing")
		}
		k, ok := kinds[r.APIVersion+"."+r.Type]
		if !ok {
			d.failAt(at+".type", "%s %q is not a kind that a scenario can create", r.APIVersion, r.Type)
			continue
		}
		if k.needs != "" {
			s.require(d, at, k.needs)
		}
	}
	return entities
}

func (s *Scenario) validateLoad(d *decoder) {
	l := &s.Load
	validateProtocol(d, "load.protocol", l.Protocol)
	for _, f := range []struct {
		name string
		v    float64
	}{
		{"connect_rate", l.ConnectRate}, {"churn", l.Churn}, {"batch_delay", float64(l.BatchDelay)}, {"event_bytes", float64(l.EventBytes)},
		{"huge_bytes", float64(l.HugeBytes)},
		{"metrics_per_event", float64(l.MetricsPerEvent)}, {"processes", float64(l.Processes)}, {"probes", float64(l.Probes)},
		{"create_parallel", float64(l.CreateParallel)}, {"ack_delay", float64(l.AckDelay)},
	} {
		if f.v < 0 {
			d.failAt("load."+f.name, "must not be below 0")
		}
	}
	for _, f := range []struct {
		name string
		v    float64
	}{{"flap_rate", l.FlapRate}, {"huge_events", l.HugeEvents}, {"kill_agents", l.KillAgents}} {
		if f.v < 0 || f.v > 1 {
			d.failAt("load."+f.name, "is a share and must be from 0 to 1")
		}
	}
	if l.BatchDelay%time.Second != 0 {
		d.failAt("load.batch_delay", "must be whole seconds")
	}
	sum := 0.0
	for _, status := range slices.Sorted(maps.Keys(l.Statuses)) {
		weight := l.Statuses[status]
		if weight < 0 {
			d.failAt("load.statuses."+strconv.Itoa(int(status)), "must not be below 0")
		}
		sum += weight
	}
	if l.Statuses != nil && sum <= 0 {
		d.failAt("load.statuses", "none is ever taken")
	}
}
