package relay

import (
	"iter"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Reasons for drops.
const (
	dropQueueFull = "queue_full"
	dropSpillFull = "spill_full"
	dropDisk      = "disk_error"
	dropUnusable  = "unusable"
	dropStopped   = "stopped"
)

// counts are of one destination.
type counts struct {
	attempted, sent, resent, batches, spilled, queuedUntilConnected   atomic.Uint64
	connects, connectErrors, disconnects, slowResets                  atomic.Uint64
	dropQueueFull, dropSpillFull, dropDisk, dropUnusable, dropStopped atomic.Uint64
	connected                                                         atomic.Bool
}

func (c *counts) drop(reason string, points uint64) {
	switch reason {
	case dropQueueFull:
		c.dropQueueFull.Add(points)
	case dropSpillFull:
		c.dropSpillFull.Add(points)
	case dropDisk:
		c.dropDisk.Add(points)
	case dropUnusable:
		c.dropUnusable.Add(points)
	case dropStopped:
		c.dropStopped.Add(points)
	}
}

// Stats are the counts of a destination since its start, in points if not said otherwise.
type Stats struct {
	// Attempted are all that were added, Sent those that were written to a connection, in Batches.
	Attempted, Sent, Batches uint64
	// Resent were written again after a connection broke.
	Resent uint64
	// FullQueueDrops found no room in memory and on disk.
	FullQueueDrops uint64
	// Dropped are all drops by reason, those of FullQueueDrops among them.
	Dropped map[string]uint64
	// QueuedUntilConnected were added while there was no connection.
	QueuedUntilConnected uint64
	// Spilled went to the disk.
	Spilled uint64
	// QueueLength is the number in memory, and MaxQueueLength the largest one since the last call of Stats.
	QueueLength, MaxQueueLength int
	// QueueBytes and SpillBytes are in memory and on disk now.
	QueueBytes, SpillBytes int64
	// SpillDamaged counts places of damage in the spill's files.
	SpillDamaged uint64
	// SlowConnectionResets counts connections that were ended because they took no data. Connects, ConnectErrors and
	// Disconnects count connections too.
	SlowConnectionResets, Connects, ConnectErrors, Disconnects uint64
	// Connected reports whether there is a connection.
	Connected bool
}

// Stats returns the counts so far. It begins a new interval for MaxQueueLength.
func (d *Destination) Stats() Stats {
	s := d.stats()
	d.mu.Lock()
	defer d.mu.Unlock()
	s.MaxQueueLength = d.maxPoints
	d.maxPoints = d.points
	return s
}

// stats is Stats without the maximum, for readers that begin no interval.
func (d *Destination) stats() Stats {
	c := &d.counts
	s := Stats{
		Attempted: c.attempted.Load(), Sent: c.sent.Load(), Batches: c.batches.Load(), Resent: c.resent.Load(),
		QueuedUntilConnected: c.queuedUntilConnected.Load(), Spilled: c.spilled.Load(),
		SlowConnectionResets: c.slowResets.Load(), Connects: c.connects.Load(), ConnectErrors: c.connectErrors.Load(),
		Disconnects: c.disconnects.Load(), Connected: c.connected.Load(),
		Dropped: map[string]uint64{
			dropQueueFull: c.dropQueueFull.Load(), dropSpillFull: c.dropSpillFull.Load(), dropDisk: c.dropDisk.Load(),
			dropUnusable: c.dropUnusable.Load(), dropStopped: c.dropStopped.Load(),
		},
	}
	s.FullQueueDrops = s.Dropped[dropQueueFull] + s.Dropped[dropSpillFull] + s.Dropped[dropDisk]
	if d.spill != nil {
		s.SpillBytes = d.spill.Bytes()
		s.SpillDamaged = d.spill.Stats().Damaged
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s.QueueLength = d.points
	s.QueueBytes = int64(len(d.queue)+1) * batchBytes
	if d.current.data == nil {
		s.QueueBytes -= batchBytes
	}
	return s
}

// CarbonName returns the part of carbon's self metrics that names the destination, as in
// carbon.relays.HOST-INST.destinations.<name>.sent.
func (d *Destination) CarbonName() string {
	o := d.opts.Destination
	instance := o.Instance
	if instance == "" {
		instance = "None"
	}
	o.Instance = ""
	return strings.ReplaceAll(strings.NewReplacer("[", "", "]", "").Replace(o.String())+":"+instance, ".", "_")
}

// Carbon yields the counts by the names of carbon's self metrics. Carbon reports the change over an interval; the
// caller subtracts the previous values, except for relayMaxQueueLength.
func (s Stats) Carbon() iter.Seq2[string, float64] {
	return func(yield func(string, float64) bool) {
		for _, m := range []struct {
			name  string
			value uint64
		}{
			{"attemptedRelays", s.Attempted},
			{"sent", s.Sent},
			{"batchesSent", s.Batches},
			{"fullQueueDrops", s.FullQueueDrops},
			{"queuedUntilConnected", s.QueuedUntilConnected},
			{"relayMaxQueueLength", uint64(s.MaxQueueLength)},
			{"slowConnectionReset", s.SlowConnectionResets},
		} {
			if !yield(m.name, float64(m.value)) {
				return
			}
		}
	}
}

// collector reads the destinations' counts when metrics are asked for.
type collector struct {
	relay *Relay

	attempted, sent, resent, batches, dropped, spilled, connects, connectErrors, slowResets *prometheus.Desc
	queuePoints, queueBytes, spillBytes, spillLimit, spillDamaged, connected                *prometheus.Desc
}

func newCollector(r *Relay) *collector {
	desc := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"destination"}, more...), nil)
	}
	return &collector{
		relay:     r,
		attempted: desc("lapwing_metric_relay_points_total", "Points that were routed to a destination."),
		sent: desc("lapwing_metric_relay_sent_points_total",
			"Points that were written to a destination's connection."),
		resent: desc("lapwing_metric_relay_resent_points_total",
			"Points that were written again after a connection broke."),
		batches: desc("lapwing_metric_relay_sent_batches_total",
			"Batches that were written to a destination's connection."),
		dropped: desc("lapwing_metric_relay_dropped_points_total",
			"Points that were dropped, by reason.", "reason"),
		spilled: desc("lapwing_metric_relay_spilled_points_total",
			"Points that went to the disk to wait for a destination."),
		connects:      desc("lapwing_metric_relay_connects_total", "Connections to a destination."),
		connectErrors: desc("lapwing_metric_relay_connect_errors_total", "Attempts to connect that failed."),
		slowResets: desc("lapwing_metric_relay_slow_resets_total",
			"Connections that were ended because they took no data."),
		queuePoints: desc("lapwing_metric_relay_queue_points", "Points that wait in memory."),
		queueBytes:  desc("lapwing_metric_relay_queue_bytes", "Memory of the points that wait in memory."),
		spillBytes:  desc("lapwing_metric_relay_spill_bytes", "Bytes of points that wait on disk."),
		spillLimit:  desc("lapwing_metric_relay_spill_limit_bytes", "Bytes of points that may wait on disk."),
		spillDamaged: desc("lapwing_metric_relay_spill_damaged_total",
			"Places in files on disk where points could not be read."),
		connected: desc("lapwing_metric_relay_connected", "1 while there is a connection to a destination."),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.attempted, c.sent, c.resent, c.batches, c.dropped, c.spilled, c.connects,
		c.connectErrors, c.slowResets, c.queuePoints, c.queueBytes, c.spillBytes, c.spillLimit, c.spillDamaged, c.connected} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	for _, d := range c.relay.destinations {
		s, label := d.stats(), d.String()
		counter := func(desc *prometheus.Desc, value uint64, more ...string) {
			labels := append([]string{label}, more...)
			ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(value), labels...)
		}
		gauge := func(desc *prometheus.Desc, value float64) {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, label)
		}
		counter(c.attempted, s.Attempted)
		counter(c.sent, s.Sent)
		counter(c.resent, s.Resent)
		counter(c.batches, s.Batches)
		for reason, n := range s.Dropped {
			counter(c.dropped, n, reason)
		}
		counter(c.spilled, s.Spilled)
		counter(c.connects, s.Connects)
		counter(c.connectErrors, s.ConnectErrors)
		counter(c.slowResets, s.SlowConnectionResets)
		counter(c.spillDamaged, s.SpillDamaged)
		gauge(c.queuePoints, float64(s.QueueLength))
		gauge(c.queueBytes, float64(s.QueueBytes))
		gauge(c.spillBytes, float64(s.SpillBytes))
		if d.spill != nil {
			gauge(c.spillLimit, float64(d.opts.MaxSpillBytes))
		}
		connected := 0.0
		if s.Connected {
			connected = 1
		}
		gauge(c.connected, connected)
	}
}
