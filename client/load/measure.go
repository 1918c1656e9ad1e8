package load

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lapwing-monitoring/lapwing/client/load/report"
)

// Latencies are recorded in microseconds, up to two minutes, with an error of 1%.
const (
	lowestLatency  = 1
	highestLatency = int64(2 * time.Minute / time.Microsecond)
)

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(lowestLatency, highestLatency, 2)
}

// recorder collects one latency.
type recorder struct {
	mu   sync.Mutex // guards hist
	hist *hdrhistogram.Histogram
}

func (r *recorder) record(d time.Duration) {
	us := min(max(int64(d/time.Microsecond), lowestLatency), highestLatency)
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.hist.RecordValue(us) // cannot be out of range
}

// swap returns what was recorded since the last swap.
func (r *recorder) swap(empty *hdrhistogram.Histogram) *hdrhistogram.Histogram {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.hist
	r.hist = empty
	return h
}

// measures are the counts and times of the agents of one process.
type measures struct {
	connected   atomic.Int64
	arrived     atomic.Int64  // agents that were connected and configured once
	events      atomic.Uint64 // written, each time they were
	created     atomic.Uint64 // results, each counted once however often it was sent
	inProgress  atomic.Uint64 // requests that were not answered because the answer to an earlier one waits
	keepalives  atomic.Uint64
	requests    atomic.Uint64
	errors      atomic.Uint64
	disconnects atomic.Uint64 // that the tool did not cause
	moves       atomic.Uint64 // to other backends, at the request of one
	turns       atomic.Uint64 // requests that carry a turn
	answers     answerList    // to turns
	killed      atomic.Int64  // agents
	lag         atomic.Int64  // by how much the pacer is behind, in nanoseconds
	latencies   map[string]*recorder
	lastError   atomic.Pointer[string]
}

func newMeasures(latencies ...string) *measures {
	m := &measures{latencies: map[string]*recorder{}}
	for _, name := range latencies {
		m.latencies[name] = &recorder{hist: newHistogram()}
	}
	return m
}

func (m *measures) fail(err error) {
	m.errors.Add(1)
	text := err.Error()
	m.lastError.Store(&text)
}

// Snapshot is the work of one process's agents so far, with their latencies and answers since the last snapshot. Its
// fields are exported for the connection between processes.
type Snapshot struct {
	First, Last time.Time // when it was taken; of several processes the first and the last
	Connected   int64
	Arrived     int64 // agents that were connected once
	HeldUp      int64 // agents that TCP blocks
	Events      uint64
	Created     uint64
	InProgress  uint64 // requests that were not answered because the answer to an earlier one waits
	Keepalives  uint64
	Requests    uint64
	Errors      uint64
	Disconnects uint64
	Moves       uint64 // to other backends, at the request of one
	Turns       TurnCounts
	Killed      int64         // agents
	Unacked     uint64        // sent a while ago
	Lag         time.Duration // by how much the process is behind its own schedule
	CPU         time.Duration // user and system, of the process
	LastError   string
	Latencies   map[string]*hdrhistogram.Snapshot
	Answers     []TurnAnswer
}

// TurnCounts are the turns of one process's agents so far.
type TurnCounts struct {
	Received uint64 // requests
	Answered uint64 // answers; Fleet.onAnswered says when they count
	// Different and Twice count turns that were answered, and turns that several agents answered. The run counts them
	// over all processes.
	Different, Twice uint64
	// PerAgent is, of the agents that were not killed, how many had which number of turns since Fleet.Begin.
	PerAgent map[uint32]uint32
}

func (m *measures) snapshot() Snapshot {
	now := time.Now()
	s := Snapshot{
		First: now, Last: now, Arrived: m.arrived.Load(), InProgress: m.inProgress.Load(), Connected: m.connected.Load(),
		Events: m.events.Load(), Created: m.created.Load(), Keepalives: m.keepalives.Load(),
		Requests: m.requests.Load(), Errors: m.errors.Load(), Disconnects: m.disconnects.Load(), Moves: m.moves.Load(),
		Turns: TurnCounts{
			Received: m.turns.Load(), PerAgent: map[uint32]uint32{},
		},
		Killed: m.killed.Load(),
		Lag:    time.Duration(m.lag.Load()), CPU: ProcessCPU(), Latencies: map[string]*hdrhistogram.Snapshot{},
	}
	s.Answers, s.Turns.Answered = m.answers.swap()
	if text := m.lastError.Load(); text != nil {
		s.LastError = *text
	}
	for name, r := range m.latencies {
		if h := r.swap(newHistogram()); h.TotalCount() > 0 {
			s.Latencies[name] = h.Export()
		}
	}
	return s
}

// add merges the snapshot of another process at the same time.
func (s *Snapshot) add(o Snapshot) {
	if s.First.IsZero() || !o.First.IsZero() && o.First.Before(s.First) {
		s.First = o.First
	}
	if o.Last.After(s.Last) {
		s.Last = o.Last
	}
	s.Connected += o.Connected
	s.Arrived += o.Arrived
	s.HeldUp += o.HeldUp
	s.InProgress += o.InProgress
	s.Events += o.Events
	s.Created += o.Created
	s.Keepalives += o.Keepalives
	s.Requests += o.Requests
	s.Errors += o.Errors
	s.Disconnects += o.Disconnects
	s.Moves += o.Moves
	s.Turns.add(&o.Turns)
	s.Answers = append(s.Answers, o.Answers...)
	s.Killed += o.Killed
	s.Unacked += o.Unacked
	s.Lag = max(s.Lag, o.Lag)
	s.CPU += o.CPU
	if o.LastError != "" {
		s.LastError = o.LastError
	}
	for name, h := range o.Latencies {
		if s.Latencies == nil {
			s.Latencies = map[string]*hdrhistogram.Snapshot{}
		}
		s.Latencies[name] = merged(s.Latencies[name], h)
	}
}

func (t *TurnCounts) add(o *TurnCounts) {
	t.Received += o.Received
	t.Answered += o.Answered
	if t.PerAgent == nil {
		t.PerAgent = map[uint32]uint32{}
	}
	for turns, agents := range o.PerAgent {
		t.PerAgent[turns] += agents
	}
}

func merged(a, b *hdrhistogram.Snapshot) *hdrhistogram.Snapshot {
	if a == nil {
		return b
	}
	h := hdrhistogram.Import(a)
	h.Merge(hdrhistogram.Import(b))
	return h.Export()
}

// quantiles converts a histogram into the units of a report.
func quantiles(h *hdrhistogram.Histogram) report.Quantiles {
	at := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1e6 }
	return report.Quantiles{Count: uint64(h.TotalCount()), P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: float64(h.Max()) / 1e6}
}
