//go:build !agentonly

package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/lapwing-monitoring/lapwing/client/load/scenario"
)

// merged is the scenario that flags make.
func merged(t *testing.T, args ...string) (*scenario.Scenario, error) {
	t.Helper()
	var o loadOptions
	flags := pflag.NewFlagSet("load", pflag.ContinueOnError)
	o.flags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return o.merge(flags)
}

const queueLab = "--scenario=../../bench/scenarios/queue-lab.yaml"

// TestLoadTurnFlags: the flags about turns stand alone or beside a file, which they override.
func TestLoadTurnFlags(t *testing.T) {
	type figures struct {
		agents, each int
		rate         float64
		delay        time.Duration
		receipts     bool
		kill         float64
	}
	for _, tc := range []struct {
		args []string
		want figures
	}{
		{[]string{queueLab}, figures{50_000, 0, 40_000, 150 * time.Millisecond, true, 0}},
		{[]string{queueLab, "--receipts=false", "--ack-delay=1s"}, figures{50_000, 0, 40_000, time.Second, false, 0}},
		{
			[]string{queueLab, "--checks=100", "--count=60", "--subscriptions-per-agent=2"},
			figures{60, 2, 2000, 150 * time.Millisecond, true, 0},
		},
		{
			[]string{queueLab, "--checks=100", "--check-interval=2s", "--kill-agents=30%"},
			figures{50_000, 0, 1000, 150 * time.Millisecond, true, 0.3},
		},
		{[]string{queueLab, "--scenario-subscriptions=3"}, figures{50_000, 0, 39_999, 150 * time.Millisecond, true, 0}},
		{
			[]string{queueLab, "--scenario-subscriptions=5", "--checks=800"},
			figures{50_000, 0, 4000, 150 * time.Millisecond, true, 0},
		},
		{[]string{queueLab, "--checks=0", "--kill-agents=0.05"}, figures{50_000, 0, 0, 150 * time.Millisecond, true, 0.05}},
		{
			[]string{"--count=10", "--subscriptions=a,b", "--subscriptions-per-agent=1", "--receipts", "--protocol=lapwing",
				"--ack-delay=20ms"},
			figures{10, 1, 10, 20 * time.Millisecond, true, 0},
		},
	} {
		s, err := merged(t, tc.args...)
		if err != nil {
			t.Fatal(err)
		}
		got := figures{s.AgentCount(), s.Agents[0].SubscriptionsPerAgent, s.EventsPerSecond(), s.Load.AckDelay,
			s.Load.Receipts, s.Load.KillAgents}
		if got != tc.want {
			t.Errorf("%q make %+v, want %+v", tc.args, got, tc.want)
		}
	}
	for want, args := range map[string][]string{
		"needs --scenario":          {"--scenario-subscriptions=3"},
		"has 20 subscriptions, not": {queueLab, "--scenario-subscriptions=21"},
	} {
		if _, err := merged(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %s", args, err, want)
		}
	}
	for _, share := range []string{"130%", "-1", "some", "", "NaN", "1.1"} {
		if _, err := merged(t, "--kill-agents="+share); err == nil || !strings.Contains(err.Error(), "--kill-agents") {
			t.Errorf("--kill-agents=%s: error %v", share, err)
		}
	}
}

func TestShare(t *testing.T) {
	for _, tc := range []struct {
		number     int
		have, want []int
	}{
		{10, []int{100}, []int{10}},
		{10, []int{1, 1, 1}, []int{3, 3, 4}},
		{5, []int{10, 0, 30}, []int{1, 0, 4}},
		{0, []int{1, 2}, []int{0, 0}},
		{7, nil, nil},
	} {
		got := slices.Clone(tc.have)
		var counts []*int
		for i := range got {
			counts = append(counts, &got[i])
		}
		if share(tc.number, counts); !slices.Equal(got, tc.want) {
			t.Errorf("%d among %v is %v, want %v", tc.number, tc.have, got, tc.want)
		}
	}
}

// TestLoadEmptyGroup: a group to which --count gives no agents is left out.
func TestLoadEmptyGroup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "groups.yaml")
	const text = "name: groups\nagents: [{name: few, count: 1}, {name: many, count: 999}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for count, want := range map[string]string{"100": "connection refused", "0": "load: no agents"} {
		cmd := loadCommand()
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetArgs([]string{"--scenario", path, "--count", count, "--api-url", "http://127.0.0.1:1"})
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--count %s: error %v, want %s", count, err, want)
		}
	}
}

// TestLoadRefusesReceipts: a run that cannot be is refused before anything is created.
func TestLoadRefusesReceipts(t *testing.T) {
	for want, args := range map[string][]string{
		"only agents of the lapwing protocol": {"--receipts", "--protocol", "sensu"},
		"only if its duration is given":       {"--kill-agents", "30%", "--duration", "0"},
		"3 of 1 subscriptions":                {"--subscriptions-per-agent", "3"},
	} {
		cmd := loadCommand()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SetArgs(append(args, "--api-url", "http://127.0.0.1:1"))
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %s", args, err, want)
		}
	}
}
