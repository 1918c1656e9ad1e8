package intake

import (
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Sink takes the metric points of events at the intake, so that nothing behind the log has to decode them.
type Sink interface {
	// Put takes the points of an event about an entity, once its record is in the log's buffer. check is "" for an event
	// with metrics alone. It may keep the points, and must not wait: it runs on the goroutine that reads from agents. If
	// an agent sends an event again after a lost connection, its points come again.
	Put(namespace, entity, check string, points []resource.MetricPoint)
}

// putPoints passes the sink the points of an event whose record is in the log.
func (i *Intake) putPoints(rec *eventlog.Record, metrics *resource.Metrics) {
	if i.opts.Metrics != nil && metrics != nil && len(metrics.Points) > 0 {
		i.opts.Metrics.Put(rec.Namespace, rec.Entity, rec.Check, metrics.Points)
	}
}

// putEncodedPoints is putPoints for the metrics of an event given as protobuf. Without a sink they are not decoded.
func (i *Intake) putEncodedPoints(rec *eventlog.Record, encoded []byte) {
	if i.opts.Metrics == nil || len(encoded) == 0 {
		return
	}
	var metrics resource.Metrics
	if err := metrics.UnmarshalProto(encoded); err != nil {
		i.rare.Warn("cannot decode the metrics of an event: the event is taken without them",
			rec.Namespace+"/"+rec.Entity, "namespace", rec.Namespace, "entity", rec.Entity, "check", rec.Check, "err", err)
		return
	}
	i.putPoints(rec, &metrics)
}
