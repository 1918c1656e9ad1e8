// Package doctor finds out what limits a backend, or a `lapwing carbon`, now and says it in words. The doctor command in
// cmd/lapwing calls Fetch, which makes a scrape over HTTP, and Examine. FetchPostgres and ExaminePostgres do the same for
// the PostgreSQL server that a backend writes to.
//
// Of a backend it uses only the metrics. Examine compares two scrapes made some seconds apart with a list of rules. Each
// rule checks the figures of one part and may make a finding: what is wrong, how bad it is, the figures, and what to do
// about it. The rules are in the order of causes (a slow disk before a full log, a full log before agents that wait),
// and a finding that follows from another says so. Package doctor changes nothing on either.
package doctor

import (
	"slices"
	"time"
)

// Severity says how bad a finding is. Its number is the exit status of the command.
type Severity int

// The severities.
const (
	// Fine is the severity of a report without findings.
	Fine Severity = iota
	// Warning means that something is slower or fuller than it should be, or is left out.
	Warning
	// Critical means that events are not taken or incidents not handled, or that this is near.
	Critical
)

var severityNames = [...]string{"fine", "warning", "critical"}

func (s Severity) String() string { return severityNames[s] }

// MarshalText makes severities words in JSON.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Part is the subject of a finding.
type Part string

// The parts, in the order of Report.Use.
const (
	Disk      Part = "disk"
	Memory    Part = "memory"
	CPU       Part = "cpu"
	Files     Part = "files"   // file descriptors
	Cluster   Part = "cluster" // Finding.Subject names the member or the stream
	Log       Part = "log"
	Fold      Part = "fold"
	WriteBack Part = "write-back"
	Handler   Part = "handler" // Finding.Subject names the handler
	Pipeline  Part = "pipeline"
	Metrics   Part = "metrics" // Finding.Subject names the store, its disk, its series, senders or another server
	Deadlines Part = "deadlines"
	Schedule  Part = "schedule"
	Agents    Part = "agents"
	Clock     Part = "clock"
	Config    Part = "config"
	API       Part = "api"
	Process   Part = "process"
	Postgres  Part = "postgres" // Finding.Subject names the setting, table, session or slot; or the journal of a backend
)

// Finding is one problem.
type Finding struct {
	Severity Severity `json:"severity"`
	Part     Part     `json:"part"`
	// Subject names one of several: a handler, a member, a stream.
	Subject string `json:"subject,omitempty"`
	// Title is the problem in one line. Detail has the figures. Advice is what to do about it.
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Advice string `json:"advice"`
	// Limits says that this is a bottleneck: it bounds how many events the backend takes or handles now.
	Limits bool `json:"limits"`
	// Because is the part whose finding causes this one, if any. Then that finding's advice counts.
	Because Part `json:"because,omitempty"`
	// Present and Recommended are values of a setting. SQL has the statements that change it. Only PostgreSQL's have them.
	Present     string   `json:"present,omitempty"`
	Recommended string   `json:"recommended,omitempty"`
	SQL         []string `json:"sql,omitempty"`
}

// Name is the part, with its subject if it has one.
func (f *Finding) Name() string { return nameOf(f.Part, f.Subject) }

func nameOf(p Part, subject string) string {
	if subject == "" {
		return string(p)
	}
	return string(p) + " " + subject
}

// Use is the used share of a limited resource.
type Use struct {
	Part    Part    `json:"part"`
	Subject string  `json:"subject,omitempty"`
	Share   float64 `json:"share"` // 1 means all of it
	Text    string  `json:"text"`
}

// Summary is the backend's work.
type Summary struct {
	Version     string  `json:"version"`
	Uptime      float64 `json:"uptime_seconds"`
	Agents      float64 `json:"agents"`
	Pairs       float64 `json:"pairs"`
	Received    float64 `json:"received_per_second"`   // events, including keepalives
	Folded      float64 `json:"folded_per_second"`     // events
	Dispatched  float64 `json:"dispatched_per_second"` // deliveries to handlers
	CPUPerEvent float64 `json:"cpu_seconds_per_event"` // 0 if there were too few events
	DiskWritten float64 `json:"disk_written_bytes_per_second"`
	Points      float64 `json:"points_per_second"` // of metrics, received
	Stored      float64 `json:"stored_points_per_second"`
	Series      float64 `json:"series"` // of metrics, in memory
	// Events and Metrics say which halves the process has: `lapwing carbon` takes no events.
	Events  bool `json:"events"`
	Metrics bool `json:"metrics"`
}

// Report is the result of an examination.
type Report struct {
	Severity Severity `json:"severity"`
	Seconds  float64  `json:"seconds"` // between the scrapes
	Summary  Summary  `json:"summary"`
	// Limits names the bottlenecks: the parts of findings that limit and have no cause in another part.
	Limits   []string  `json:"limits"`
	Findings []Finding `json:"findings"` // the worst first
	Use      []Use     `json:"use"`
}

// Examine compares two scrapes of one backend. before may be the same as after: then rules that need time find nothing.
func Examine(before, after *Scrape) *Report {
	e := newExam(before, after)
	for _, rule := range rules {
		rule(e)
	}
	r := &Report{Seconds: e.seconds, Summary: e.summary(), Use: e.use(), Findings: e.findings, Limits: []string{}}
	if r.Findings == nil {
		r.Findings = []Finding{}
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		r.Severity = max(r.Severity, f.Severity)
		if f.Limits && f.Because == "" && !slices.Contains(r.Limits, f.Name()) {
			r.Limits = append(r.Limits, f.Name())
		}
	}
	// The order of causes stays among findings of the same severity.
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return int(b.Severity) - int(a.Severity) })
	return r
}

// exam is a running examination.
type exam struct {
	before, after *Scrape
	seconds       float64
	restarted     bool
	findings      []Finding

	// Figures for several rules.
	cpu        float64 // cores used
	cores      float64 // number of cores
	partitions float64 // of the event log
}

func newExam(before, after *Scrape) *exam {
	e := &exam{before: before, after: after}
	if started := e.after.sum("process_start_time_seconds"); started != e.before.sum("process_start_time_seconds") {
		e.restarted = true
		e.before = after // nothing can be compared
	}
	e.seconds = max(0, e.after.At.Sub(e.before.At).Seconds())
	e.cpu = e.rate("process_cpu_seconds_total")
	e.cores = max(1, e.after.sum("go_sched_gomaxprocs_threads"))
	e.partitions = max(1, float64(len(e.after.by("lapwing_eventlog_position", "partition"))))
	return e
}

// grown returns by how much a counter, summed over its labels, has grown.
func (e *exam) grown(name string) float64 { return max(0, e.after.sum(name)-e.before.sum(name)) }

// rate is grown per second.
func (e *exam) rate(name string) float64 { return e.perSecond(e.grown(name)) }

func (e *exam) perSecond(n float64) float64 {
	if e.seconds == 0 {
		return 0
	}
	return n / e.seconds
}

// grownBy returns by how much a counter has grown, by a label's values. It leaves out values that did not grow.
func (e *exam) grownBy(name, label string) map[string]float64 {
	was := e.before.by(name, label)
	grown := map[string]float64{}
	for value, n := range e.after.by(name, label) {
		if n > was[value] {
			grown[value] = n - was[value]
		}
	}
	return grown
}

// histogram returns what a histogram has observed between the scrapes. want are names and values of labels.
func (e *exam) histogram(name string, want ...string) histogram {
	return e.after.histogram(name, want...).since(e.before.histogram(name, want...))
}

func (e *exam) find(f Finding) { e.findings = append(e.findings, f) }

// found reports whether a part limits and is the cause itself.
func (e *exam) found(p Part) bool {
	return slices.ContainsFunc(e.findings, func(f Finding) bool { return f.Part == p && f.Limits })
}

// because returns the first of the parts that was found to limit, or "".
func (e *exam) because(parts ...Part) Part {
	for _, p := range parts {
		if e.found(p) {
			return p
		}
	}
	return ""
}

// busyCPU is the used share of the cores from which on CPU is the bottleneck.
const busyCPU = 0.9

func (e *exam) cpuShare() float64 { return e.cpu / e.cores }

func (e *exam) summary() Summary {
	s := Summary{
		Version:     e.after.label("lapwing_build_info", "version"),
		Agents:      e.after.sum("lapwing_agent_sessions"),
		Pairs:       e.after.sum("lapwing_state_pairs"),
		Received:    e.rate("lapwing_events_received_total"),
		Folded:      e.rate("lapwing_events_folded_total"),
		Dispatched:  e.rate("lapwing_handler_dispatched_total"),
		DiskWritten: e.rate("lapwing_process_disk_written_bytes_total"),
		Points:      e.rate("lapwing_metric_points_total"),
		Stored:      e.rate("lapwing_metric_store_points_total"),
		Series:      e.after.sum("lapwing_metric_store_series"),
		Events:      e.after.has("lapwing_eventlog_position"),
		Metrics:     e.metricsServed(),
	}
	if started := e.after.sum("process_start_time_seconds"); started > 0 {
		s.Uptime = max(0, float64(e.after.At.UnixMilli())/1000-started)
	}
	if n := e.grown("lapwing_events_folded_total"); n >= 100 {
		s.CPUPerEvent = e.grown("process_cpu_seconds_total") / n
	}
	return s
}

// Interval is a sufficient time between two scrapes for the rules.
const Interval = 5 * time.Second
