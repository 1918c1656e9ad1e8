// Package report holds the result of a load run and writes it: as JSON, as text, and as an HTML page with plots.
// Package load fills a Report; package scenario judges it; Compare writes a page about several runs. It measures
// nothing itself.
package report

import "time"

// Report is the result of one run.
type Report struct {
	Title     string            `json:"title"`
	Started   time.Time         `json:"started"`
	Seconds   float64           `json:"seconds"` // of the measured part, without connecting and cleaning up
	Command   string            `json:"command"`
	Version   string            `json:"version"` // of the load tool
	Machine   Machine           `json:"machine"`
	Seed      uint64            `json:"seed"`
	Protocol  string            `json:"protocol"` // sensu or lapwing
	Processes int               `json:"processes"`
	Settings  map[string]string `json:"settings"` // flags and scenario, as the user gave them
	Target    Target            `json:"target"`

	Summary   Summary              `json:"summary"`
	Turns     *Turns               `json:"turns,omitempty"`    // if the agents got turns of round-robin checks
	Overload  *Overload            `json:"overload,omitempty"` // of a scenario that overloads the backend
	Latencies map[string]Quantiles `json:"latencies"`          // by what was measured, see the Latency constants
	Series    []Sample             `json:"series"`             // one per second
	// for the reader: what could not be measured, what went wrong
	Notes []string `json:"notes"`

	Expectations []Expectation `json:"expectations,omitempty"` // of the scenario, if there are any
}

// Expectation is a condition that a scenario sets, and whether the run met it.
type Expectation struct {
	Name string `json:"name"` // as in the scenario's file
	Want string `json:"want"`
	Got  string `json:"got"`
	Met  bool   `json:"met"`
}

// Keys of Report.Latencies. All are in seconds.
const (
	LatencyAck      = "ack"      // event sent to acknowledgement received; lapwing protocol only
	LatencyVisible  = "visible"  // marked event sent to its being in the answer of the API
	LatencyAPI      = "api"      // a probe's request to the API
	LatencyHandler  = "handler"  // marked event sent to its handler's start
	LatencyRequest  = "request"  // tick of a check to its request's arrival at the agent
	LatencyConnect  = "connect"  // start of dialing to the first message of the backend
	LatencyInterval = "interval" // deviation of the time between two requests of a check from its interval

	LatencyTurnArrival = "turn_arrival" // tick of a turn to its request's arrival at the agent
	LatencyTurnAnswer  = "turn_answer"  // tick of a turn to its answer, as Turns.Answered counts it
)

// Machine is where the load ran.
type Machine struct {
	CPUs        int    `json:"cpus"`
	CPUModel    string `json:"cpu_model"`
	MemoryBytes uint64 `json:"memory_bytes"`
	Kernel      string `json:"kernel"`
	GoVersion   string `json:"go_version"`
}

// Target is the backend.
type Target struct {
	Kind    string   `json:"kind"` // lapwing or sensu
	Version string   `json:"version"`
	URLs    []string `json:"urls"`
}

// Summary is the whole run in figures. Figures that could not be measured, for example because the backend lacks the
// metric, are absent. If agents answer turns with receipts, figures per event are per answered turn.
type Summary struct {
	Agents         int     `json:"agents"`          // agents of the scenario
	Connected      int     `json:"connected"`       // at the end of connecting
	ConnectSeconds float64 `json:"connect_seconds"` // for all of them
	EventsSent     uint64  `json:"events_sent"`     // whole run, without keepalives
	// of the measured part: results that the backend has folded, if it reports them
	EventsPerSecond float64 `json:"events_per_second"`
	SentPerSecond   float64 `json:"sent_per_second"` // of the measured part: results that the agents have written
	// runs of checks that the backend did not request because it was overloaded
	Skipped          uint64   `json:"skipped"`
	KeepalivesSent   uint64   `json:"keepalives_sent"`    //
	Errors           uint64   `json:"errors"`             // of connections and of frames
	Disconnects      uint64   `json:"disconnects"`        // that the tool did not cause
	Moves            uint64   `json:"moves,omitempty"`    // of agents to other backends, at the request of one
	Killed           int      `json:"killed,omitempty"`   // agents that the tool has stopped for good, without a close frame
	Pairs            uint64   `json:"pairs"`              // (entity, check) pairs that the tool sent events of
	PairsVerified    uint64   `json:"pairs_verified"`     // whose stored event and history were compared with what was sent
	Lost             uint64   `json:"lost"`               // events
	Duplicates       uint64   `json:"duplicates"`         // events counted twice
	OrderViolations  uint64   `json:"order_violations"`   // pairs whose history is not in the order of sending
	BackendCPUMicros *float64 `json:"backend_cpu_micros"` // per event, of the measured part
	LoadCPUMicros    *float64 `json:"load_cpu_micros"`    // the same for the load tool's processes
	BackendRSSBytes  *float64 `json:"backend_rss_bytes"`  // at the end of the measured part
	LogBytesPerEvent *float64 `json:"log_bytes_per_event"`
	DiskBytes        *float64 `json:"disk_bytes"` // written by the backend's process, per event
	// Backends are the members of a cluster. The figures above are their sums.
	Backends []Backend `json:"backends,omitempty"`
}

// Turns is the agents' work on round-robin checks: on requests that carry a turn, which is a tick of a check for one of
// its subscriptions. The counts are those since the beginning of the measured part, until its turns are answered.
type Turns struct {
	Received uint64 `json:"received"` // requests
	// Answered counts answers. One in the lapwing protocol that is a result counts when the backend acknowledges it,
	// any other when it is written.
	Answered  uint64 `json:"answered"`
	Different uint64 `json:"different"` // turns that were answered
	// AnsweredTwice counts turns that more than one agent answered, of all load processes. It misses a second answer
	// that comes more than five minutes after the first.
	AnsweredTwice uint64  `json:"answered_twice"`
	PerSecond     float64 `json:"per_second"` // answers, of the measured part
	Receipts      bool    `json:"receipts"`   // the answers were receipts, rather than results
	// PerAgent is the number of requests of each agent that was not killed, of the measured part.
	PerAgent Distribution `json:"per_agent"`
}

// Distribution describes how agents differ in a whole number. It has at most ten bins, for the numbers from Min to Max.
// All bins have the same count of numbers, so the last one may go beyond Max.
type Distribution struct {
	Agents    int     `json:"agents"`
	Min       float64 `json:"min"`
	Max       float64 `json:"max"`
	Mean      float64 `json:"mean"`
	Deviation float64 `json:"deviation"` // standard
	Bins      []Bin   `json:"bins"`
}

// Bin is the agents whose number is From, To or between them.
type Bin struct {
	From   float64 `json:"from"`
	To     float64 `json:"to"`
	Agents int     `json:"agents"`
}

// Backend is one of several backends.
type Backend struct {
	Metrics   string   `json:"metrics"`    // URL of its metrics
	CPUMicros *float64 `json:"cpu_micros"` // its CPU per event of the whole cluster, of the measured part
	RSSBytes  *float64 `json:"rss_bytes"`  // at the end of the measured part
}

// Overload is the effect on a backend while other processes use up the CPU, and afterwards.
type Overload struct {
	Seconds         float64              `json:"seconds"`           // for which it was overloaded on purpose
	EventsPerSecond float64              `json:"events_per_second"` // in that time
	Latencies       map[string]Quantiles `json:"latencies"`         // in that time
	// CaughtUpSeconds is the time from the end of the overload until marked events were visible within a second again,
	// in three consecutive samples. Absent if they never were.
	CaughtUpSeconds *float64 `json:"caught_up_seconds,omitempty"`
	// FalseDeadlines are agents and checks that the backend took for silent in the whole run, though none was. Absent
	// if the backend does not report them.
	FalseDeadlines *float64 `json:"false_deadlines,omitempty"`
}

// Quantiles are the quantiles of one latency, in seconds.
type Quantiles struct {
	Count uint64  `json:"count"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p999"`
	Max   float64 `json:"max"`
}

// Sample is one second of a run.
type Sample struct {
	At         float64              `json:"at"` // seconds since Report.Started; below 0 while connecting
	Agents     int                  `json:"agents"`
	Events     uint64               `json:"events"` // sent in this second
	Errors     uint64               `json:"errors"`
	Turns      uint64               `json:"turns,omitempty"` // answered in this second
	Latencies  map[string]Quantiles `json:"latencies"`       // of this second
	BackendCPU *float64             `json:"backend_cpu"`     // cores
	LoadCPU    *float64             `json:"load_cpu"`        // cores
	BackendRSS *float64             `json:"backend_rss"`     // bytes
	Queues     map[string]float64   `json:"queues"`          // depths, by queue
	Counters   map[string]float64   `json:"counters"`        // rates per second of the backend's counters, by name
}
