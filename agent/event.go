package agent

import (
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// newEvent starts the event of a check that begins now. config is the check with its tokens replaced; command still has
// its tokens, which may stand for secrets.
func (a *Agent) newEvent(config *resource.CheckConfig, command string, issued int64) *resource.Event {
	check := resource.CheckOf(config)
	check.Command = command
	check.Executed = time.Now().Unix()
	check.Issued = issued
	return &resource.Event{
		Metadata:  resource.ObjectMeta{Namespace: config.Metadata.Namespace},
		Entity:    a.self.entity(),
		Check:     check,
		Pipelines: config.Pipelines,
		Sequence:  a.sequences.next(config.Metadata.Name),
	}
}

// newKeepalive returns a keepalive: with the timeouts and handlers for when the keepalives stop.
func (a *Agent) newKeepalive() *resource.Event {
	entity := a.self.entityWithProcesses()
	namespace := entity.Metadata.Namespace
	s := a.settings.Load()
	return &resource.Event{
		Timestamp: time.Now().Unix(),
		ID:        resource.NewEventID(),
		Sequence:  a.sequences.next(keepaliveCheck),
		Metadata:  resource.ObjectMeta{Namespace: namespace, Labels: s.KeepaliveLabels, Annotations: s.KeepaliveAnnotations},
		Pipelines: s.pipelines,
		Entity:    entity,
		Check: &resource.Check{
			Metadata: resource.ObjectMeta{Name: "keepalive", Namespace: namespace},
			Interval: uint32(seconds(s.KeepaliveInterval)),
			Timeout:  uint32(seconds(s.KeepaliveWarningTimeout)),
			TTL:      seconds(s.KeepaliveCriticalTimeout),
		},
	}
}

// seconds rounds up: a period of less than a second must not become 0.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
