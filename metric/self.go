package metric

import (
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/process"

	"github.com/lapwing-monitoring/lapwing/metric/relay"
)

func nulls(n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = math.NaN()
	}
	return out
}

// self has the figures that carbon reports about itself since the last report.
type self struct {
	server  *Server
	process *process.Process // this one; nil if it cannot be looked at
	last    map[string]float64
	cpu     time.Duration
	at      time.Time
}

// reportSelf stores figures about the server under the names that carbon's own have, so that dashboards of a Graphite
// go on to work.
func (s *Server) reportSelf() {
	w := s.table.Emitter(s.life)
	me := &self{server: s, last: map[string]float64{}, at: s.opts.Now()}
	me.process, _ = process.NewProcess(int32(os.Getpid()))
	me.cpu, _ = me.use()
	tick := time.NewTicker(s.opts.SelfInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.life.Done():
			return
		}
		now := s.opts.Now()
		me.report(now, func(name string, value float64) {
			if err := w.Add([]byte(name), now.Unix()*1000, value); err != nil && s.life.Err() == nil {
				s.opts.Logger.Debug("a figure of the server about itself is lost", "name", name, "err", err)
			}
		})
		if err := w.Flush(); err != nil && s.life.Err() == nil {
			s.opts.Logger.Debug("figures of the server about itself are lost", "err", err)
		}
	}
}

// report calls add with each figure. Counts are those since the last report.
func (m *self) report(now time.Time, add func(name string, value float64)) {
	s := m.server
	host := s.opts.SelfHost
	agent := "carbon.agents." + host + "-a."
	since := func(name string, sum float64) {
		add(name, sum-m.last[name])
		m.last[name] = sum
	}
	var points, connections float64
	for _, l := range s.listeners {
		st := l.Stats()
		points += float64(st.Points)
		connections += float64(st.Connections)
	}
	cpu, memory := m.use()
	if took := now.Sub(m.at); took > 0 {
		add(agent+"cpuUsage", 100*float64(cpu-m.cpu)/float64(took))
	}
	m.cpu, m.at = cpu, now
	add(agent+"memUsage", memory)
	since(agent+"metricsReceived", points)
	add(agent+"activeConnections", connections)
	if s.allow != nil {
		blacklisted, rejected := s.allow.Counts()
		since(agent+"blacklistMatches", float64(blacklisted))
		since(agent+"whitelistRejects", float64(rejected))
	}
	if s.store != nil {
		st := s.store.Stats()
		add(agent+"cache.size", float64(st.Queued))
		add(agent+"cache.metrics", float64(st.Series))
		since(agent+"cache.overflow", float64(st.DroppedQueue))
		since(agent+"committedPoints", float64(st.Points))
		since(agent+"droppedCreates", float64(st.Refused))
		since(agent+"errors", float64(st.DroppedFailed+st.DroppedFull))
	}
	as := s.aggregator.Stats()
	aggregates := "carbon.aggregator." + host + "-a."
	add(aggregates+"allocatedBuffers", float64(as.Outputs))
	add(aggregates+"bufferedDatapoints", float64(as.Points))
	since(aggregates+"aggregateDatapointsSent", float64(as.Sent))
	if s.relay != nil {
		for _, d := range s.relay.Destinations() {
			prefix := s.ownPrefix(d)
			for name, value := range d.Stats().Carbon() {
				if name == "relayMaxQueueLength" {
					add(prefix+name, value)
				} else {
					since(prefix+name, value)
				}
			}
		}
	}
	add(agent+"runtime.GOMAXPROCS", float64(runtime.GOMAXPROCS(0)))
	add(agent+"runtime.NumGoroutine", float64(runtime.NumGoroutine()))
}

// ownPrefix is where the names of the figures about a destination begin.
func (s *Server) ownPrefix(d *relay.Destination) string {
	return "carbon.relays." + s.opts.SelfHost + "-a.destinations." + d.CarbonName() + "."
}

// isOwnFigure reports whether a name is that of a figure about one of the relay's destinations. The other figures have
// the names that a carbon on the same host gives to its own, and it may send them here.
func (s *Server) isOwnFigure(name string) bool {
	return strings.HasPrefix(name, "carbon.relays.") && slices.ContainsFunc(s.relay.Destinations(), func(d *relay.Destination) bool {
		return strings.HasPrefix(name, s.ownPrefix(d))
	})
}

// use returns the CPU time and the resident bytes of this process; 0 where they cannot be read.
func (m *self) use() (cpu time.Duration, memory float64) {
	if m.process == nil {
		return 0, 0
	}
	if t, err := m.process.Times(); err == nil {
		cpu = time.Duration((t.User + t.System) * float64(time.Second))
	}
	if info, err := m.process.MemoryInfo(); err == nil {
		memory = float64(info.RSS)
	}
	return cpu, memory
}
