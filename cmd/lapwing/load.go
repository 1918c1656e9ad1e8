//go:build !agentonly

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lapwing-monitoring/lapwing/client/load"
	"github.com/lapwing-monitoring/lapwing/client/load/report"
	"github.com/lapwing-monitoring/lapwing/client/load/scenario"
	"github.com/lapwing-monitoring/lapwing/internal/duration"
	"github.com/lapwing-monitoring/lapwing/telemetry"
)

// loadOptions are the flags of load that are not part of a scenario.
type loadOptions struct {
	scenario string
	output   string
	backends []string
	metrics  []string
	api      load.APIOptions
	user     string
	password string
	retryMin time.Duration
	retryMax time.Duration
	noVerify bool
	keep     bool
	logLevel string

	group    scenario.Agents
	checks   scenario.Checks
	settings scenario.Settings
	statuses string
	sources  []string
	huge     string
	kill     string
	ns       string
	turnLog  string
	cut      int
}

func loadCommand() *cobra.Command {
	var o loadOptions
	cmd := &cobra.Command{
		Use:   "load",
		Short: "Drive a backend with thousands of simulated agents, and measure it",
		Long: `Connect simulated agents to a backend, lapwing's or Sensu's, have them run checks that do nothing, and measure
what becomes of the results: events per second, latencies to the acknowledgement, the API and a handler, lost, doubled and
disordered events, and the backend's CPU, memory and disk per event.

What the run needs (checks, a handler for marked events) is created through the API, labelled, and removed at the end, with
the agents' entities. With --scenario all of it stands in a file; flags given beside it override the file. Ctrl-C ends the
run early, with a report. The exit status is 1 when the scenario expects something that was not so.`,
		Example: `  lapwing load --count 1000 --checks 20 --check-interval 10s --duration 1m
  lapwing load --scenario bench/scenarios/two-minutes.yaml --output results
  lapwing load --count 15000 --processes 2 --source-addresses 127.0.0.2,127.0.0.3 --protocol lapwing`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runLoad(cmd, &o) },
	}
	cmd.AddCommand(loadCompareCommand(), loadPointsCommand(), loadQueriesCommand())
	o.flags(cmd.Flags())
	return cmd
}

func (o *loadOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.scenario, "scenario", "", "file with a scenario")
	f.StringVarP(&o.output, "output", "o", "", "directory for report.json and report.html")
	f.StringVar(&o.api.URL, "api-url", "http://127.0.0.1:8080", "URL of the backend's API")
	f.StringVar(&o.api.Username, "api-user", "admin", "API user with all rights")
	f.StringVar(&o.api.Password, "api-password", os.Getenv("LAPWING_PASSWORD"),
		"that user's password (or $LAPWING_PASSWORD)")
	f.StringSliceVar(&o.backends, "backends", []string{"ws://127.0.0.1:8081"}, "where agents connect, in turn")
	f.StringSliceVar(&o.metrics, "metrics-url", nil, "backends' metrics (default /metrics of the API)")
	f.StringVar(&o.ns, "namespace", "default", "namespace of the agents")
	f.StringVar(&o.user, "user", "agent", "user of the agents")
	f.StringVar(&o.password, "password", "P@ssw0rd!", "password of the agents")
	f.IntVar(&o.group.Count, "count", 1000, "number of simulated agents")
	f.StringVar(&o.group.Name, "base-entity-name", "test-host", "an agent's name is this, a dash and a number")
	f.StringSliceVar(&o.group.Subscriptions, "subscriptions", []string{"default"}, "subscriptions of the agents")
	f.IntVar(&o.group.SubscriptionsPerAgent, "subscriptions-per-agent", 0,
		"how many of the subscriptions each agent has; 0 is all")
	f.IntVar(&o.cut, "scenario-subscriptions", 0,
		"number of the scenario's subscriptions to use; there are more round-robin checks instead; 0 is all")
	f.Var(duration.New(20*time.Second, &o.group.Keepalive.Interval), "keepalive-interval", "time between keepalives")
	f.Var(duration.New(120*time.Second, &o.group.Keepalive.Warning), "keepalive-timeout",
		"silence after which the backend warns")
	f.StringVar(&o.settings.Protocol, "protocol", load.ProtocolSensu, "sensu or lapwing")
	f.IntVar(&o.checks.Count, "checks", 10,
		"checks to create for the agents; 0 to use the existing ones; of a scenario, those with a number in their name")
	f.Var(duration.New(10*time.Second, &o.checks.Interval), "check-interval", "interval of these checks")
	f.Var(duration.New(0, &o.settings.Duration), "duration", "how long to measure; 0 is until Ctrl-C")
	f.Var(duration.New(15*time.Second, &o.settings.WarmUp), "warm-up", "time with all agents connected before measuring")
	f.Float64Var(&o.settings.ConnectRate, "connect-rate", 1000, "agents to connect per second; 0 is no limit")
	f.StringSliceVar(&o.sources, "source-addresses", nil, "addresses of this machine to connect from, in turn")
	f.Var(duration.New(0, &o.settings.BatchDelay), "batch-delay",
		"how long lapwing agents hold back the result of a check that stays OK, in whole seconds; real ones do so for 1s")
	f.IntVar(&o.settings.EventBytes, "event-bytes", 799, "length of a check's output")
	f.StringVar(&o.statuses, "statuses", "0", "how often a check has which status: 0=95,1=3,2=2")
	f.Float64Var(&o.settings.FlapRate, "flap-rate", 0, "chance that a check's status is drawn anew, per result")
	f.IntVar(&o.settings.MetricsPerEvent, "metrics", 0, "metric points in each event")
	f.Float64Var(&o.settings.Churn, "churn", 0, "connections to end per second")
	f.Var(duration.New(0, &o.settings.AckDelay), "ack-delay",
		"time from the arrival of a round-robin check's turn at an agent to the answer, to a precision of 10ms")
	f.BoolVar(&o.settings.Receipts, "receipts", false,
		"answer turns of round-robin checks with receipts instead of results (lapwing protocol only)")
	f.StringVar(&o.turnLog, "turn-log", "",
		"file for a line per answered turn of a round-robin check (see bench/scenarios/README.md); each of several processes adds "+
			"its number to the name: .1, .2, …")
	f.StringVar(&o.kill, "kill-agents", "0",
		"share of agents, for example 30%, that stop for good without a close frame, evenly over the duration")
	f.StringVar(&o.huge, "huge-events", "0", "share of events, 0 to 1, with an output of --huge-bytes")
	f.Lookup("huge-events").NoOptDefVal = "1"
	f.IntVar(&o.settings.HugeBytes, "huge-bytes", 1<<20, "length of a huge output")
	f.IntVar(&o.settings.Probes, "probes", 10, "additional agents, whose events are followed to the API and to a handler")
	f.IntVar(&o.settings.Processes, "processes", 1, "processes to divide the agents among")
	f.Uint64Var(&o.settings.Seed, "seed", 1, "seed of the simulated results: with one seed, each run has the same results in the same order")
	f.Var(duration.New(time.Second, &o.retryMin), "retry-min", "wait before connecting again; doubled up to --retry-max")
	f.Var(duration.New(4*time.Second, &o.retryMax), "retry-max", "longest wait before connecting again")
	f.BoolVar(&o.keep, "keep", false, "leave what the run has created, for a backend that is thrown away")
	f.BoolVar(&o.noVerify, "no-verify", false, "do not compare, at the end, what the backend knows with what was sent")
	f.StringVar(&o.logLevel, "log-level", "warn", "trace, debug, info, warn, error or fatal")
}

func runLoad(cmd *cobra.Command, o *loadOptions) error {
	log, err := telemetry.Logger(os.Stderr, o.logLevel, "text")
	if err != nil {
		return err
	}
	s, err := o.merge(cmd.Flags())
	if err != nil {
		return err
	}
	settings := map[string]string{}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !strings.Contains(f.Name, "password") {
			settings[f.Name] = f.Value.String()
		}
	})
	rep, err := load.Run(cmd.Context(), load.Options{
		Scenario: s, API: o.api, Backends: o.backends, Metrics: o.metrics, AgentUser: o.user, AgentPassword: o.password,
		RetryMin: o.retryMin, RetryMax: o.retryMax, Child: []string{os.Args[0], loadWorker},
		Burner: []string{os.Args[0], loadWorker, "--burn"}, TurnLog: o.turnLog, NoVerify: o.noVerify, Keep: o.keep,
		Command: commandLine(cmd), Settings: settings, Version: version, Progress: cmd.ErrOrStderr(), Logger: log,
	})
	if rep == nil {
		return err
	}
	err = errors.Join(err, report.Text(cmd.OutOrStdout(), rep))
	if o.output != "" {
		err = errors.Join(err, report.Write(o.output, rep))
	}
	for _, unmet := range s.Check(rep) {
		err = errors.Join(err, unmet)
	}
	return err
}

// commandLine is what the user typed, without secrets.
func commandLine(cmd *cobra.Command) string {
	line := cmd.CommandPath()
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !strings.Contains(f.Name, "password") {
			line += " --" + f.Name + " " + f.Value.String()
		}
	})
	return line
}

// merge is the scenario of the file with what the flags change in it, or one made of flags alone.
func (o *loadOptions) merge(flags *pflag.FlagSet) (*scenario.Scenario, error) {
	var err error
	for _, text := range o.sources {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("--source-addresses: %w", err)
		}
		o.settings.Sources = append(o.settings.Sources, addr)
	}
	if o.settings.Statuses, err = parseStatuses(o.statuses); err != nil {
		return nil, err
	}
	if o.settings.HugeEvents, err = strconv.ParseFloat(o.huge, 64); err != nil || o.settings.HugeEvents < 0 ||
		o.settings.HugeEvents > 1 {
		return nil, fmt.Errorf("--huge-events %s: a share between 0 and 1 is wanted", o.huge)
	}
	if o.settings.KillAgents, err = parseShare(o.kill); err != nil {
		return nil, fmt.Errorf("--kill-agents: %w", err)
	}
	if o.settings.Protocol != load.ProtocolSensu && o.settings.Protocol != load.ProtocolLapwing {
		return nil, fmt.Errorf("--protocol %s: neither sensu nor lapwing", o.settings.Protocol)
	}
	if o.cut != 0 && o.scenario == "" {
		return nil, errors.New("--scenario-subscriptions needs --scenario")
	}
	s := &scenario.Scenario{Name: "flags", Namespace: o.ns, Run: "flags", Agents: []scenario.Agents{o.group},
		Load: o.settings}
	if o.checks.Count > 0 {
		o.checks.Name, o.checks.Subscriptions = o.group.Name+"-check-"+scenario.Numbered, o.group.Subscriptions
		o.checks.Command = scenario.Command
		s.Checks = []scenario.Checks{o.checks}
	}
	if o.scenario != "" {
		if s, err = scenario.Load(o.scenario); err != nil {
			return nil, err
		}
		if o.cut != 0 {
			if err := s.CutSubscriptions(o.cut); err != nil {
				return nil, fmt.Errorf("--scenario-subscriptions: %w", err)
			}
		}
		o.override(flags, s)
	}
	for i := range s.Agents {
		if s.Agents[i].Protocol == "" || flags.Changed("protocol") {
			s.Agents[i].Protocol = s.Load.Protocol
		}
	}
	return s, nil
}

// override changes a file's scenario as the flags say, and fills in what it leaves open.
func (o *loadOptions) override(flags *pflag.FlagSet, s *scenario.Scenario) {
	l := &s.Load
	choose(flags, "protocol", &l.Protocol, o.settings.Protocol)
	choose(flags, "duration", &l.Duration, o.settings.Duration)
	choose(flags, "warm-up", &l.WarmUp, o.settings.WarmUp)
	choose(flags, "connect-rate", &l.ConnectRate, o.settings.ConnectRate)
	choose(flags, "batch-delay", &l.BatchDelay, o.settings.BatchDelay)
	choose(flags, "event-bytes", &l.EventBytes, o.settings.EventBytes)
	choose(flags, "flap-rate", &l.FlapRate, o.settings.FlapRate)
	choose(flags, "metrics", &l.MetricsPerEvent, o.settings.MetricsPerEvent)
	choose(flags, "churn", &l.Churn, o.settings.Churn)
	choose(flags, "ack-delay", &l.AckDelay, o.settings.AckDelay)
	choose(flags, "receipts", &l.Receipts, o.settings.Receipts)
	choose(flags, "kill-agents", &l.KillAgents, o.settings.KillAgents)
	choose(flags, "huge-events", &l.HugeEvents, o.settings.HugeEvents)
	choose(flags, "huge-bytes", &l.HugeBytes, o.settings.HugeBytes)
	choose(flags, "probes", &l.Probes, o.settings.Probes)
	choose(flags, "processes", &l.Processes, o.settings.Processes)
	choose(flags, "seed", &l.Seed, o.settings.Seed)
	if len(l.Sources) == 0 || flags.Changed("source-addresses") {
		l.Sources = o.settings.Sources
	}
	if len(l.Statuses) == 0 || flags.Changed("statuses") {
		l.Statuses = o.settings.Statuses
	}
	for i := range s.Checks {
		if flags.Changed("check-interval") {
			s.Checks[i].Interval = o.checks.Interval
		}
	}
	var agents, checks []*int
	for i := range s.Agents {
		agents = append(agents, &s.Agents[i].Count)
		if flags.Changed("subscriptions-per-agent") {
			s.Agents[i].SubscriptionsPerAgent = o.group.SubscriptionsPerAgent
		}
	}
	for i := range s.Checks {
		if strings.Contains(s.Checks[i].Name, scenario.Numbered) {
			checks = append(checks, &s.Checks[i].Count)
		}
	}
	if flags.Changed("count") {
		share(o.group.Count, agents)
	}
	if flags.Changed("checks") {
		share(o.checks.Count, checks)
	}
}

// share divides a number among counts, as they are related to each other.
func share(number int, counts []*int) {
	total, before := 0, 0
	for _, n := range counts {
		total += *n
	}
	for _, n := range counts {
		after := before + *n
		*n = number*after/total - number*before/total
		before = after
	}
}

// choose takes a flag that was given, or whose default is needed.
func choose[T comparable](flags *pflag.FlagSet, name string, field *T, value T) {
	var zero T
	if flags.Changed(name) || *field == zero {
		*field = value
	}
}

// parseShare reads a share as a number from 0 to 1, or in percent.
func parseShare(text string) (float64, error) {
	digits, percent := strings.CutSuffix(text, "%")
	share, err := strconv.ParseFloat(digits, 64)
	if percent {
		share /= 100
	}
	if err != nil || !(share >= 0 && share <= 1) {
		return 0, fmt.Errorf("%q is not a share: a number from 0 to 1, or from 0%% to 100%%", text)
	}
	return share, nil
}

func parseStatuses(text string) (map[uint32]float64, error) {
	statuses := map[uint32]float64{}
	for part := range strings.SplitSeq(text, ",") {
		name, share, found := strings.Cut(part, "=")
		status, err := strconv.ParseUint(name, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("--statuses %s: %q is no status", text, name)
		}
		weight := 1.0
		if found {
			if weight, err = strconv.ParseFloat(share, 64); err != nil || weight < 0 {
				return nil, fmt.Errorf("--statuses %s: %q is no share", text, share)
			}
		}
		statuses[uint32(status)] = weight
	}
	return statuses, nil
}

// loadWorker is the command of the processes that a load run starts.
const loadWorker = "load-worker"

func loadWorkerCommand() *cobra.Command {
	var burn bool
	cmd := &cobra.Command{
		Use: loadWorker, Hidden: true, Args: cobra.NoArgs,
		Short: "Run a part of a load run's agents; load starts it",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if burn {
				load.Burn(os.Stdin)
				return nil
			}
			log, err := telemetry.Logger(os.Stderr, "warn", "text")
			if err != nil {
				return err
			}
			return load.ServeWorker(cmd.Context(), os.Stdin, os.Stdout, log)
		},
	}
	cmd.Flags().BoolVar(&burn, "burn", false, "keep a processor busy instead")
	return cmd
}
