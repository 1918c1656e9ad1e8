package session

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/wire"
)

type serverMetrics struct {
	sessions    *prometheus.GaugeVec
	handshakes  *prometheus.CounterVec
	received    prometheus.Counter
	badFrames   prometheus.Counter
	dropped     prometheus.Counter
	requests    prometheus.Counter
	skipped     prometheus.Counter
	overloaded  prometheus.Gauge
	lateness    prometheus.Histogram
	slowWrites  prometheus.Counter
	schedules   prometheus.Counter
	pace        prometheus.Gauge
	paceChanges *prometheus.CounterVec
	draining    prometheus.Gauge
	suspended   prometheus.Gauge
	moved       *prometheus.CounterVec

	idleClosed, slowMessages, relieved prometheus.Counter
}

func newServerMetrics(r prometheus.Registerer, s *Server) serverMetrics {
	m := serverMetrics{
		sessions: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "lapwing_agent_sessions", Help: "Open agent sessions, by namespace.",
		}, []string{"namespace"}),
		handshakes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_agent_handshakes_total", Help: "Agents' handshakes, by HTTP status.",
		}, []string{"status"}),
		received: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_agent_received_bytes_total", Help: "Bytes of agents' messages.",
		}),
		badFrames: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_agent_bad_frames_total", Help: "Agents' messages that are not of the protocol.",
		}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_agent_dropped_frames_total", Help: "Frames for agents that were dropped because the agent did not read.",
		}),
		requests: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_check_requests_total", Help: "Check requests sent to agents."}),
		skipped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_check_requests_skipped_total",
			Help: "Check requests that were not sent: the backend is overloaded, and a later request of the same check took their place.",
		}),
		overloaded: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lapwing_overloaded_since_seconds",
			Help: "Since when the backend has been overloaded and holds agents back, in Unix time; 0 when it does not.",
		}),
		slowWrites: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_agent_slow_writes_total", Help: "Writes to agents that the socket did not take at once; all of them with TLS.",
		}),
		schedules: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_agent_schedules_sent_total", Help: "Messages to lapwing agents about their schedules.",
		}),
		pace: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lapwing_agent_pace", Help: "The pace that lapwing agents were told: 0 go, 1 slow, 2 spool.",
		}),
		paceChanges: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_agent_pace_changes_total", Help: "Changes of that pace, by the new one.",
		}, []string{"pace"}),
		idleClosed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_agent_idle_closed_total",
			Help: "Connections of agents that were closed because nothing came, not even the answer to a ping.",
		}),
		slowMessages: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_agent_slow_messages_total",
			Help: "Connections of agents that were closed because a message took too long to arrive.",
		}),
		relieved: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_agent_relieved_total",
			Help: "Connections of agents that were closed because the system had no memory for sockets left.",
		}),
		draining: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lapwing_agent_draining", Help: "Whether the backend sends its agents to other backends and takes none: 0 or 1.",
		}),
		suspended: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lapwing_agent_suspended", Help: "1 while the backend refuses all agents because it cannot take events, else 0.",
		}),
		moved: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_agent_sessions_moved_total", Help: "Agents that were sent to other backends, by reason.",
		}, []string{"reason"}),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "lapwing_agent_request_lateness_seconds",
			Help:    "How long after its agent's moment a check request was written, once for all that left together.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 15, 60},
		}),
	}
	for _, status := range []int{101, 400, 401, 403, 404, 503} {
		m.handshakes.WithLabelValues(strconv.Itoa(status))
	}
	for _, p := range []wire.Pace{wire.PaceGo, wire.PaceSlow, wire.PaceSpool} {
		m.paceChanges.WithLabelValues(p.String())
	}
	for _, why := range []moveReason{forBalance, forDrain, forSuspension} {
		m.moved.WithLabelValues(string(why))
	}
	m.sessions.WithLabelValues("default")
	if r != nil {
		duplicates := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "lapwing_agent_duplicate_names", Help: "Names under which several agents are connected.",
		}, func() float64 { return float64(s.duplicates.count()) })
		r.MustRegister(m.sessions, m.handshakes, m.received, m.badFrames, m.dropped, m.requests, m.skipped, m.overloaded,
			m.lateness, m.slowWrites, m.schedules, m.pace, m.paceChanges, m.draining, m.suspended, m.moved,
			m.idleClosed, m.slowMessages, m.relieved, queueCollector{s}, duplicates)
	}
	return m
}

var (
	queueDesc      = prometheus.NewDesc("lapwing_agent_queue_frames", "Frames that wait to be written to agents, in all.", nil, nil)
	queueBytesDesc = prometheus.NewDesc("lapwing_agent_queue_bytes",
		"Bytes of the frames that wait to be written to agents, in all.", nil, nil)
	queueAgeDesc = prometheus.NewDesc("lapwing_agent_queue_age_seconds",
		"How long the oldest frame has waited to be written to its agent; up to the spread is meant to be.", nil, nil)
	queueLimitDesc = prometheus.NewDesc("lapwing_agent_queue_limit", "Frames that may wait for one agent; further ones are dropped.", nil, nil)
	heldDesc       = prometheus.NewDesc("lapwing_agents_held_back",
		"Agents that are asked for fewer runs because the backend is overloaded.", nil, nil)
	ackDesc = prometheus.NewDesc("lapwing_agent_unacknowledged_events",
		"Events of lapwing agents that have arrived and were not acknowledged yet, in all.", nil, nil)
	partialDesc = prometheus.NewDesc("lapwing_agent_partial_bytes",
		"Bytes of agents' messages that are not complete yet, in all.", nil, nil)
	waitingDesc = prometheus.NewDesc("lapwing_agent_waiting_bytes",
		"Bytes of agents' messages that are complete and have to wait, or are being dealt with, in all.", nil, nil)
	partialMaxDesc = prometheus.NewDesc("lapwing_agent_partial_limit_bytes",
		"Bytes of agents' messages, not complete or waiting, at which no more is read of long ones.", nil, nil)
	stoppedDesc = prometheus.NewDesc("lapwing_agent_reads_stopped",
		"Agents whose long messages are not read further because as many bytes are held as may be.", nil, nil)
	unreadDesc = prometheus.NewDesc("lapwing_agents_unread",
		"Agents whose messages stay in their sockets because the event log has no room.", nil, nil)
	ackBytesDesc = prometheus.NewDesc("lapwing_agent_unacknowledged_bytes",
		"Bytes of the events that were not acknowledged yet, in all.", nil, nil)
)

// queueCollector reads all sessions when metrics are collected.
type queueCollector struct{ s *Server }

func (c queueCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

func (c queueCollector) Collect(ch chan<- prometheus.Metric) {
	var frames, bytes, heldBack, events, eventBytes int
	now := time.Now().UnixMilli()
	oldest := now
	c.s.registry.each(func(one *session) {
		if n := len(one.out.frames); n > 0 {
			frames += n
			bytes += one.out.bytes
			if one.out.hold.some {
				heldBack++
			} else {
				oldest = min(oldest, one.out.since)
			}
		}
		n, size := one.acks.outstanding()
		events += n
		eventBytes += size
	})
	unread := 0
	for _, p := range c.s.pollers {
		unread += p.Holding()
	}
	held := c.s.partials.Use()
	for d, v := range map[*prometheus.Desc]float64{
		queueDesc: float64(frames), queueBytesDesc: float64(bytes), heldDesc: float64(heldBack), queueAgeDesc: float64(now-oldest) / 1000,
		queueLimitDesc: float64(c.s.opts.SendQueue), ackDesc: float64(events), ackBytesDesc: float64(eventBytes),
		partialDesc: float64(held.Arriving), waitingDesc: float64(held.Kept), partialMaxDesc: float64(c.s.opts.PartialBytes),
		stoppedDesc: float64(held.Stopped), unreadDesc: float64(unread),
	} {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
}
