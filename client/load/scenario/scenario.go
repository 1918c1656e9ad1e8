// Package scenario describes a load run: which agents connect, which checks they run, which other objects the backend
// must have, the rates, and what the run must show to pass. Package load plays a scenario, and the load command reads
// it.
//
// A scenario is a YAML file; bench/scenarios has lapwing's. Load parses one, Setup creates its objects through the HTTP
// API of lapwing or Sensu, Cleanup removes them, and Judge compares a report with the expectations. The agents are
// package load's.
package scenario

import (
	"log/slog"
	"net/netip"
	"slices"
	"time"
)

// Label is on everything that Setup creates, and on the entities of a run's agents. Its value is the name of the run.
const Label = "lapwing-load"

// Features of a backend that a scenario may need.
const (
	NeedsProxyRequests    = "proxy_requests"
	NeedsPipelines        = "pipelines"
	NeedsTCPStreamHandler = "tcp_stream_handler"
)

var features = []string{NeedsProxyRequests, NeedsPipelines, NeedsTCPStreamHandler}

// Command is the command of checks without one: Sensu's agents answer it with a text of 799 bytes instead of running
// it.
const Command = "!sensu_test_check!"

// Numbered is replaced in a name by the number of a check or entity, from 1.
const Numbered = "{n}"

// Scenario is one file. The tags are the names of fields in the file.
type Scenario struct {
	Name        string `yaml:"name"`
	Description string `yaml:"description"`
	// Needs names features that the backend must have.
	Needs     []string   `yaml:"needs"`
	Namespace string     `yaml:"namespace"` // default "default"
	Agents    []Agents   `yaml:"agents"`
	Checks    []Checks   `yaml:"checks"`
	Handlers  []Handler  `yaml:"handlers"`
	Entities  []Entities `yaml:"entities"` // proxies; agents bring their own
	// Resources are other objects, as in files for sensuctl. They are created in this order, before everything else.
	Resources []Resource `yaml:"resources"`
	Load      Settings   `yaml:"load"`
	Expect    Expect     `yaml:"expect"`

	// Run is the value of the label on what is created. Load sets it to the name; a caller may change it before Setup.
	Run string `yaml:"-"`
	// Logger gets a line for everything that is created and removed. Default: none.
	Logger *slog.Logger `yaml:"-"`
}

// Agents is a group of agents that are alike. An agent's name is the group's, a dash and a number.
type Agents struct {
	Name          string   `yaml:"name"`
	Count         int      `yaml:"count"`
	Subscriptions []string `yaml:"subscriptions"`
	// SubscriptionsPerAgent is how many of the subscriptions each agent has; default: all. Each of them has about the
	// same number of agents.
	SubscriptionsPerAgent int       `yaml:"subscriptions_per_agent"`
	Keepalive             Keepalive `yaml:"keepalive"`
	Protocol              string    `yaml:"protocol"` // sensu or lapwing; default: that of load, or the load tool's
}

// Keepalive is the timing of the agents' keepalives.
type Keepalive struct {
	Interval time.Duration `yaml:"interval"` // default 20 s
	Warning  time.Duration `yaml:"warning"`  // time without keepalives after which the backend warns; default 120 s
}

// Checks is a check, or several that differ in their number. An agent runs those with one of its subscriptions.
type Checks struct {
	Name          string        `yaml:"name"`    // with a count above 1 it holds {n}
	Count         int           `yaml:"count"`   // default 1
	Command       string        `yaml:"command"` // default: Command
	Interval      time.Duration `yaml:"interval"`
	Cron          string        `yaml:"cron"` // instead of interval
	Subscriptions []string      `yaml:"subscriptions"`
	Handlers      []string      `yaml:"handlers"`
	Pipelines     []string      `yaml:"pipelines"` // names of core/v2 Pipelines
	RoundRobin    bool          `yaml:"round_robin"`
	// ProxyEntity is one of the entities. If it is the name of several, with {n}, the checks have them in turn.
	ProxyEntity   string         `yaml:"proxy_entity"`
	ProxyRequests *ProxyRequests `yaml:"proxy_requests"`
	TTL           time.Duration  `yaml:"ttl"`
	Timeout       time.Duration  `yaml:"timeout"`
	Metrics       *Metrics       `yaml:"metrics"`
	LowFlap       uint32         `yaml:"low_flap_threshold"`
	HighFlap      uint32         `yaml:"high_flap_threshold"`
	// RequestBytes is the length of a request for the check, in protobuf, with its turn if the check is round robin. An
	// annotation fills it up. What the backend itself adds to a definition comes on top.
	RequestBytes int `yaml:"request_bytes"`
}

// ProxyRequests makes a check run once for each proxy entity with all of these labels.
type ProxyRequests struct {
	Labels   map[string]string `yaml:"labels"`
	Splay    bool              `yaml:"splay"`
	Coverage uint32            `yaml:"splay_coverage"` // percent
}

// Metrics says which metrics a check's output contains.
type Metrics struct {
	Format   string   `yaml:"format"` // as in a check's output_metric_format
	Handlers []string `yaml:"handlers"`
}

// Handler is a handler as in the API, but for its times.
type Handler struct {
	Name     string        `yaml:"name"`
	Type     string        `yaml:"type"` // pipe, tcp, udp, set or webhook
	Command  string        `yaml:"command"`
	Timeout  time.Duration `yaml:"timeout"`
	Host     string        `yaml:"host"` // of tcp and udp
	Port     uint16        `yaml:"port"`
	URL      string        `yaml:"url"` // of webhook
	Handlers []string      `yaml:"handlers"`
	Filters  []string      `yaml:"filters"`
	Mutator  string        `yaml:"mutator"`
}

// Entities is a proxy entity, or several that differ in their number.
type Entities struct {
	Name          string            `yaml:"name"`  // with a count above 1 it holds {n}
	Count         int               `yaml:"count"` // default 1
	Class         string            `yaml:"class"` // default proxy
	Labels        map[string]string `yaml:"labels"`
	Subscriptions []string          `yaml:"subscriptions"`
}

// Resource is an object of the API in the form that sensuctl reads and prints.
type Resource struct {
	Type       string         `yaml:"type"`
	APIVersion string         `yaml:"api_version"` // default core/v2
	Metadata   Metadata       `yaml:"metadata"`
	Spec       map[string]any `yaml:"spec"`
}

// Metadata names a Resource. Its namespace is the scenario's.
type Metadata struct {
	Name        string            `yaml:"name"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// Settings drive the agents. For zero fields the load tool chooses.
type Settings struct {
	Duration    time.Duration `yaml:"duration"` // of the measured part
	WarmUp      time.Duration `yaml:"warm_up"`  // before it, with all agents connected
	Protocol    string        `yaml:"protocol"` // sensu or lapwing
	ConnectRate float64       `yaml:"connect_rate"`
	// BatchDelay is how long the result of a check that stays OK waits for others, as the --batch-delay of lapwing agents.
	BatchDelay time.Duration `yaml:"batch_delay"`
	EventBytes int           `yaml:"event_bytes"` // of a result's output
	// Statuses are the relative frequencies of a check's statuses.
	Statuses        map[uint32]float64 `yaml:"statuses"`
	FlapRate        float64            `yaml:"flap_rate"`         // chance that a status is drawn again, per result
	MetricsPerEvent int                `yaml:"metrics_per_event"` //
	Churn           float64            `yaml:"churn"`             // connections ended on purpose per second
	HugeEvents      float64            `yaml:"huge_events"`       // share of results with an output of huge_bytes
	HugeBytes       int                `yaml:"huge_bytes"`
	Sources         []netip.Addr       `yaml:"sources"` // addresses of this machine to connect from, in turn
	Processes       int                `yaml:"processes"`
	Probes          int                `yaml:"probes"` // agents whose events are followed to the API and a handler
	Seed            uint64             `yaml:"seed"`
	// AckDelay is the time from the arrival of a round-robin check's turn at an agent to the answer.
	AckDelay time.Duration `yaml:"ack_delay"`
	// Receipts makes the agents answer turns with receipts rather than results. Lapwing protocol only.
	Receipts bool `yaml:"receipts"`
	// KillAgents is the share of the agents that stop for good, without a close frame, evenly over the measured part.
	KillAgents float64 `yaml:"kill_agents"`
	// ChecksLast creates the checks when all agents are connected. Round-robin checks have their full rate from the
	// first agent on, and would slow down the connecting.
	ChecksLast bool `yaml:"checks_last"`
	// CreateParallel is how many objects are created at the same time; default 4.
	CreateParallel int      `yaml:"create_parallel"`
	Overload       Overload `yaml:"overload"`
}

// Overload is the first part of the measured time, in which other processes use up the CPU. The rest is measured as the
// time until the backend has caught up.
type Overload struct {
	Duration  time.Duration `yaml:"duration"`
	BusyCores int           `yaml:"busy_cores"` // processes that only compute
}

// Expect is what a run must show. Absent fields are not checked.
type Expect struct {
	Loss               *uint64            `yaml:"loss"` // at most, in events, like the following ones
	Duplicates         *uint64            `yaml:"duplicates"`
	OrderViolations    *uint64            `yaml:"order_violations"`
	Errors             *uint64            `yaml:"errors"`
	Disconnects        *uint64            `yaml:"disconnects"`
	ConnectedMin       *float64           `yaml:"connected_min"` // agents
	ConnectSecondsMax  *float64           `yaml:"connect_seconds_max"`
	EventsPerSecondMin *float64           `yaml:"events_per_second_min"`
	CPUMicrosMax       *float64           `yaml:"cpu_micros_max"` // of the backend, per event
	RSSBytesMax        *float64           `yaml:"rss_bytes_max"`
	LogBytesMax        *float64           `yaml:"log_bytes_max"`         // per event
	DiskBytesMax       *float64           `yaml:"disk_bytes_max"`        // per event
	CaughtUpSecondsMax *float64           `yaml:"caught_up_seconds_max"` // after an overload
	FalseDeadlines     *float64           `yaml:"false_deadlines"`       // agents and checks taken for silent, after an overload
	TurnsPerSecondMin  *float64           `yaml:"turns_per_second_min"`  // answered
	TurnDuplicates     *uint64            `yaml:"turn_duplicates"`       // turns that several agents answered
	Latencies          map[string]Latency `yaml:"latencies"`             // by the keys of a report's latencies
	OverloadLatencies  map[string]Latency `yaml:"overload_latencies"`    // the same, under the overload
}

// Latency is the expectation for one latency.
type Latency struct {
	P50Max time.Duration `yaml:"p50_max"`
	P99Max time.Duration `yaml:"p99_max"`
	Max    time.Duration `yaml:"max"`
}

// AgentCount is the number of agents of all groups.
func (s *Scenario) AgentCount() int {
	n := 0
	for _, g := range s.Agents {
		n += g.Count
	}
	return n
}

// EventsPerSecond is the agents' rate if they run all requested checks. It counts neither checks on a cron schedule nor
// keepalives.
func (s *Scenario) EventsPerSecond() float64 {
	rate := 0.0
	for i := range s.Checks {
		c := &s.Checks[i]
		if c.Interval <= 0 {
			continue
		}
		proxies := 1
		if c.ProxyRequests != nil {
			proxies = s.proxies(c.ProxyRequests.Labels)
		}
		rate += float64(c.Count*s.runners(c)*proxies) / c.Interval.Seconds()
	}
	return rate
}

// runners returns how many agents run a check each time it is due.
func (s *Scenario) runners(c *Checks) int {
	n := 0
	if c.RoundRobin { // one per subscription
		for _, sub := range c.Subscriptions {
			for _, g := range s.Agents {
				if slices.Contains(g.Subscriptions, sub) {
					n++
					break
				}
			}
		}
		return n
	}
	for i := range s.Agents {
		n += s.Agents[i].with(c.Subscriptions)
	}
	return n
}

// with returns how many of the agents have one of the subscriptions.
func (g *Agents) with(subscriptions []string) int {
	all := len(g.Subscriptions)
	each := g.SubscriptionsPerAgent
	if each == 0 {
		each = all
	}
	n := 0
	for first := range all {
		has := false
		for i := range each {
			has = has || slices.Contains(subscriptions, g.Subscriptions[(first+i)%all])
		}
		if has {
			n += (g.Count + (all-first)%all) / all // agents, from the index 1 on, whose index modulo all is first
		}
	}
	return n
}

// proxies returns how many of the scenario's entities have all labels.
func (s *Scenario) proxies(labels map[string]string) int {
	n := 0
	for _, e := range s.Entities {
		fits := e.Class == classProxy
		for k, v := range labels {
			fits = fits && e.Labels[k] == v
		}
		if fits {
			n += e.Count
		}
	}
	return n
}

func (s *Scenario) logger() *slog.Logger {
	if s.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return s.Logger
}
