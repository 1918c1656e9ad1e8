package cluster

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	rosters prometheus.Counter
}

func newMetrics(r prometheus.Registerer, c *Cluster) metrics {
	m := metrics{rosters: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lapwing_cluster_rosters_total", Help: "Rosters that were folded: each is a member that came or went, in one partition.",
	})}
	if r == nil {
		return m
	}
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f)
	}
	r.MustRegister(m.rosters, newCollector(c),
		gauge("lapwing_cluster_members", "Members on the newest roster of the first partition.", func() float64 {
			c.mu.RLock()
			defer c.mu.RUnlock()
			return float64(len(c.parts[0].rosters.newest().Members))
		}),
		gauge("lapwing_cluster_size", "Members that the cluster has when all are there; 0 on NATS servers.", func() float64 {
			return float64(c.opts.Size)
		}),
		gauge("lapwing_cluster_leased", "1 while this backend hears a majority that hears it, or can write to the event log "+
			"on NATS servers, and may act; else 0.", func() float64 {
			if c.Leased() {
				return 1
			}
			return 0
		}),
		gauge("lapwing_cluster_versions_differ_seconds",
			"How long the members that are heard have run different versions; 0 while all run the same.", func() float64 {
				c.mu.RLock()
				defer c.mu.RUnlock()
				if c.mixed.IsZero() {
					return 0
				}
				return time.Since(c.mixed).Seconds()
			}),
	)
	return m
}

// collector has the metrics by member. Their label is the member's name.
type collector struct {
	c *Cluster

	up, away, skew, disk, definitions, folded *prometheus.Desc
}

func newCollector(c *Cluster) *collector {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"member"}, nil)
	}
	return &collector{
		c:    c,
		up:   desc("lapwing_cluster_member_up", "1 while a member is heard, else 0. The backend itself is among them."),
		away: desc("lapwing_cluster_member_away_seconds", "How long a member has not been heard; 0 while it is."),
		skew: desc("lapwing_cluster_clock_skew_seconds",
			"How far another member's clock is ahead of this backend's; negative if it is behind."),
		disk: desc("lapwing_cluster_disk_free_bytes", "Space on the disk of another member's state directory."),
		definitions: desc("lapwing_cluster_definitions_lag",
			"Changes of definitions that a member has not got, and another one has."),
		folded: desc("lapwing_cluster_fold_lag_messages",
			"Messages of the event log that a member has not folded, and another one has; of the partition where they are most."),
	}
}

// Describe implements prometheus.Collector.
func (l *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range [...]*prometheus.Desc{l.up, l.away, l.skew, l.disk, l.definitions, l.folded} {
		to <- d
	}
}

// Collect implements prometheus.Collector. A name that several members had, one after the other on new disks, has the
// figures of the one that was heard last.
func (l *collector) Collect(to chan<- prometheus.Metric) {
	members := l.c.Members()
	newest := map[string]*Member{}
	for i := range members {
		m := &members[i]
		name := l.c.NameOf(m.ID)
		if other := newest[name]; other == nil || m.Silent < other.Silent {
			newest[name] = m
		}
	}
	gauge := func(d *prometheus.Desc, name string, value float64) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, name)
	}
	for name, m := range newest {
		if !m.Heard {
			gauge(l.up, name, 0)
			gauge(l.away, name, m.Silent.Seconds())
			continue
		}
		definitions, folded := m.Lag(members)
		gauge(l.up, name, 1)
		gauge(l.away, name, 0)
		if !m.Self { // its own disk has a metric already
			gauge(l.skew, name, m.Skew.Seconds())
			gauge(l.disk, name, float64(m.DiskFree))
		}
		gauge(l.definitions, name, float64(definitions))
		most := uint64(0)
		for _, n := range folded {
			most = max(most, n)
		}
		gauge(l.folded, name, float64(most))
	}
}
