package backend

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/api"
)

// clusterWatch looks at the streams' leaders and copies now and then, for metrics: a scrape must not wait for the
// broker. It also has the cluster forget members that were removed for good.
type clusterWatch struct {
	view *clusterView
	// Since when something is wrong, by stream or member; streams that are well and members without such copies are left
	// out. Only the watch's goroutine uses them.
	leaderless, behind map[string]time.Time

	withoutLeader, copiesBehind, led, differ, definitions *prometheus.GaugeVec

	cancel context.CancelFunc
	done   sync.WaitGroup
}

const (
	// watchPause is the time between two looks.
	watchPause = 5 * time.Second
	// manyMissing is how many changes a copy may lack while its member works. Under load it always lacks some.
	manyMissing = 500
	// copySilence is how long a member may be silent to the leader of a stream.
	copySilence = 5 * time.Second
)

func newClusterWatch(view *clusterView, r prometheus.Registerer) *clusterWatch {
	gauge := func(name, label, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{label})
	}
	w := &clusterWatch{
		view: view, leaderless: map[string]time.Time{}, behind: map[string]time.Time{},
		withoutLeader: gauge("lapwing_cluster_stream_leaderless_seconds", "stream",
			"How long a stream of the broker has had no leader that answers; 0 while it has one."),
		copiesBehind: gauge("lapwing_cluster_copies_behind_seconds", "member",
			"How long a member's copy of any stream has been offline, missing, or far behind its leader; 0 while all are well."),
		led: gauge("lapwing_cluster_streams_led", "member", "Streams of the broker that a member leads."),
		differ: gauge("lapwing_cluster_digests_differ", "member",
			"Partitions of the event log of which a member has read other messages than this backend."),
		definitions: gauge("lapwing_cluster_definitions_differ", "member",
			"1 while a member has other definitions than this backend, at the same revision, else 0."),
	}
	r.MustRegister(w.withoutLeader, w.copiesBehind, w.led, w.differ, w.definitions)
	return w
}

// Start begins to look. It does not keep the context.
func (w *clusterWatch) Start(context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	w.done.Go(func() {
		tick := time.NewTicker(watchPause)
		defer tick.Stop()
		for {
			w.look(ctx, time.Now())
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return nil
}

// Stop ends the looks.
func (w *clusterWatch) Stop() error {
	w.cancel()
	w.done.Wait()
	return nil
}

func (w *clusterWatch) look(ctx context.Context, now time.Time) {
	st := w.view.Status(ctx)
	if ctx.Err() != nil {
		return
	}
	w.judge(st, now)
	if all, err := w.view.servers(ctx); err == nil {
		w.forget(all)
	}
}

// judge sets the metrics after a look.
func (w *clusterWatch) judge(st *api.ClusterStatus, now time.Time) {
	led, behind := map[string]int{}, map[string]bool{}
	w.differ.Reset()
	w.definitions.Reset()
	for _, m := range st.Members {
		led[m.Name] = 0
		if !m.Self {
			w.differ.WithLabelValues(m.Name).Set(float64(len(m.DigestsDiffer)))
			w.definitions.WithLabelValues(m.Name).Set(one(m.DefinitionsDiffer))
		}
	}
	for _, s := range st.Streams {
		if s.Leader == "" {
			since, known := w.leaderless[s.Name]
			if !known {
				w.leaderless[s.Name], since = now, now
			}
			w.withoutLeader.WithLabelValues(s.Name).Set(now.Sub(since).Seconds())
			continue
		}
		delete(w.leaderless, s.Name)
		w.withoutLeader.WithLabelValues(s.Name).Set(0)
		led[s.Leader]++
		for _, name := range lacking(&s, st) {
			behind[name] = true
		}
	}
	w.led.Reset()
	w.copiesBehind.Reset()
	for name, n := range led {
		w.led.WithLabelValues(name).Set(float64(n))
		if !behind[name] {
			delete(w.behind, name)
			w.copiesBehind.WithLabelValues(name).Set(0)
		}
	}
	for name := range behind {
		if _, known := w.behind[name]; !known {
			w.behind[name] = now
		}
		w.copiesBehind.WithLabelValues(name).Set(now.Sub(w.behind[name]).Seconds())
	}
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// lacking returns the members whose copy of a stream is not what it should be.
func lacking(s *api.StreamStatus, st *api.ClusterStatus) (names []string) {
	for _, r := range s.Replicas {
		if r.Offline || r.Lag >= manyMissing || r.HeardSeconds > copySilence.Seconds() {
			names = append(names, r.Member)
		}
	}
	if 1+len(s.Replicas) >= s.Copies || len(st.Members) > s.Copies || st.NATS != "" {
		return names
	}
	for _, m := range st.Members {
		copied := slices.ContainsFunc(s.Replicas, func(r api.ReplicaStatus) bool { return r.Member == m.Name })
		if !copied && m.Name != s.Leader {
			names = append(names, m.Name)
		}
	}
	return names
}

// forget has the cluster forget members that are not heard and that the broker does not count any more.
func (w *clusterWatch) forget(all *servers) {
	for _, m := range w.view.members.Others() {
		if name := serverName(&m); !m.Heard && !m.OnRoster && name != "" && !all.has(name) {
			w.view.members.Forget(m.ID)
		}
	}
}
