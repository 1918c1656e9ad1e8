package load

import (
	"maps"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Fields of the event message.
const (
	fieldTimestamp = protowire.Number(1)
	fieldEntity    = protowire.Number(2)
	fieldCheck     = protowire.Number(3)
	fieldMetrics   = protowire.Number(4)
	fieldMetadata  = protowire.Number(5)
	fieldID        = protowire.Number(6)
	fieldSequence  = protowire.Number(7)
	fieldPipelines = protowire.Number(8)
)

// check is a check that agents were asked to run, shared by all of them.
type check struct {
	name      string
	id        uint64 // hash of the name
	turnHash  uint64 // part of the keys of its turns: hash of the name and the proxy entity
	interval  time.Duration
	result    resource.Check // the same part of each result
	metadata  []byte         // for its events
	pipelines []byte         // the field of its events, which an agent copies from the check
}

func newCheck(config *resource.CheckConfig) *check {
	c := &check{
		name: config.Metadata.Name, id: checkHash(config.Metadata.Name), interval: time.Duration(config.Interval) * time.Second,
		turnHash: mix64(mix64(stringHash(config.Metadata.Name)) ^ stringHash(config.ProxyEntityName)),
		result:   *resource.CheckOf(config),
		metadata: (&resource.ObjectMeta{Namespace: config.Metadata.Namespace}).AppendProto(nil),
	}
	for i := range config.Pipelines {
		c.pipelines = appendBytes(c.pipelines, fieldPipelines, config.Pipelines[i].AppendProto(nil))
	}
	return c
}

// result is one run of a check by an agent.
type result struct {
	check    *check
	number   int    // of the check in the fleet; not of a turn
	n        uint32 // number of the result among those of this agent and check, or among its turns, from 1
	issued   int64  // Unix seconds
	executed int64  // Unix seconds
	turn     turn
	created  bool // of a turn: it is counted in measures.created
}

// scratch is memory for the parts of an event whose length must be known before they are written.
type scratch struct {
	check       resource.Check
	metrics     resource.Metrics
	annotations map[string]string // of a turn's result
	buf         []byte
}

var scratches = sync.Pool{New: func() any { return &scratch{annotations: map[string]string{}} }}

// appendEvent appends the event of a result, as protobuf.
func (f *Fleet) appendEvent(dst []byte, a *simAgent, r *result) []byte {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.check = r.check.result
	s.check.Executed, s.check.Issued = r.executed, r.issued
	s.check.Status = f.outcomes.status(a.index, r.check.id, r.n)
	s.check.Duration = 0.01
	s.check.Output = f.output(a.index, r)
	s.check.ProcessedBy = ""
	if r.turn.text != "" {
		s.check.ProcessedBy = a.name
		clear(s.annotations)
		maps.Copy(s.annotations, r.check.result.Metadata.Annotations)
		s.annotations[resource.TurnAnnotation] = r.turn.text
		s.check.Metadata.Annotations = s.annotations
	}
	s.buf = s.check.AppendProto(s.buf[:0])

	dst = protowire.AppendTag(dst, fieldTimestamp, protowire.VarintType)
	dst = protowire.AppendVarint(dst, uint64(r.executed))
	dst = appendBytes(dst, fieldEntity, a.entity)
	dst = appendBytes(dst, fieldCheck, s.buf)
	if f.opts.MetricsPerEvent > 0 {
		s.metrics.Handlers = r.check.result.OutputMetricHandlers
		s.metrics.Points = s.metrics.Points[:0]
		for i := range f.opts.MetricsPerEvent {
			s.metrics.Points = append(s.metrics.Points, resource.MetricPoint{
				Name: f.metricNames[i], Value: float64(r.n), Timestamp: r.executed, Tags: []resource.MetricTag{},
			})
		}
		s.buf = s.metrics.AppendProto(s.buf[:0])
		dst = appendBytes(dst, fieldMetrics, s.buf)
	}
	dst = appendBytes(dst, fieldMetadata, r.check.metadata)
	id := f.outcomes.eventID(a.index, r.check.id, r.n)
	dst = appendBytes(dst, fieldID, id[:])
	dst = append(dst, r.check.pipelines...)
	dst = protowire.AppendTag(dst, fieldSequence, protowire.VarintType)
	return protowire.AppendVarint(dst, uint64(r.n))
}

func appendBytes(dst []byte, field protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, field, protowire.BytesType), b)
}

// output is what the check printed: the same for all events, except for a few huge ones.
func (f *Fleet) output(agent int, r *result) string {
	if f.opts.HugeEvents > 0 {
		draw := mix64(f.opts.Seed ^ mix64(uint64(agent)) ^ r.check.id ^ uint64(r.n)<<32)
		if float64(draw>>11)/(1<<53) < f.opts.HugeEvents {
			return f.hugeOutput
		}
	}
	return f.smallOutput
}

// filler is text of a given length.
func filler(n int) string {
	const line = "\nlapwing load: a line of the output of a check that found nothing to complain about"
	return strings.Repeat(line, n/len(line)+1)[:n]
}

// keepalive is an agent's keepalive.
func (f *Fleet) keepalive(a *simAgent, sequence int64) *resource.Event {
	return &resource.Event{
		Timestamp: time.Now().Unix(), ID: resource.NewEventID(), Sequence: sequence,
		Metadata: resource.ObjectMeta{Namespace: f.opts.Namespace},
		Entity:   f.entity(a),
		Check: &resource.Check{
			Metadata: resource.ObjectMeta{Namespace: f.opts.Namespace, Name: "keepalive"},
			Interval: uint32(f.opts.KeepaliveInterval / time.Second), Timeout: uint32(f.opts.KeepaliveTimeout / time.Second),
		},
	}
}

// entity is an agent's report about its host.
func (f *Fleet) entity(a *simAgent) *resource.Entity {
	return &resource.Entity{
		Metadata: resource.ObjectMeta{
			Namespace: f.opts.Namespace, Name: a.name, CreatedBy: f.opts.User,
			Labels: map[string]string{Label: f.opts.Run}, Annotations: map[string]string{},
		},
		EntityClass: resource.EntityAgentClass, Subscriptions: a.subscriptions, User: f.opts.User,
		SensuAgentVersion: f.opts.Version, KeepaliveHandlers: []string{}, Redact: []string{"password", "api_key", "secret"},
		System: resource.System{
			Hostname: a.name, OS: "linux", Platform: "debian", PlatformFamily: "debian", PlatformVersion: "12", Arch: "amd64",
			Network: resource.Network{Interfaces: []resource.NetworkInterface{
				{Name: "lo", Addresses: []string{"127.0.0.1/8"}},
				{Name: "eth0", MAC: "02:00:00:00:00:01", Addresses: []string{"192.0.2.1/24"}},
			}},
		},
	}
}
