//go:build linux

// Takeover measures what a cluster does when it loses the member that does most of the work.
//
// Three real backends serve thousands of agents, half of them in Sensu's protocol. By turns the owner of most
// partitions is killed (kill -9), stopped for a while (SIGSTOP) or restarted (SIGTERM). Each time the program measures
// how long events, deadlines and deliveries pause. At the end it compares what was sent with what all members have,
// counts false alarms about agents, and prints a table. README.md describes the rows.
//
// Run it by hand: `make takeover`. It needs a quiet machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Exit statuses.
const (
	exitKept   = 0
	exitBroken = 1 // a promise was broken
	exitFailed = 2 // the program could not do its work
)

// settings are the command line.
type settings struct {
	agents, partitions     int
	kills, stops, restarts int
	parked                 int
	stopFor, limit         time.Duration
	keepalive, warning     time.Duration
	every                  time.Duration
	seed                   uint64
	binary, dir, out       string
}

func parseSettings(args []string) (s settings, err error) {
	f := flag.NewFlagSet("takeover", flag.ContinueOnError)
	f.IntVar(&s.agents, "agents", 3000, "number of agents, half of them in Sensu's protocol")
	f.IntVar(&s.partitions, "partitions", 4, "partitions of the event log")
	f.IntVar(&s.kills, "kills", 30, "how often the owner of most partitions is killed")
	f.IntVar(&s.stops, "stops", 30, "how often it is stopped")
	f.IntVar(&s.restarts, "restarts", 3, "how often it is restarted")
	f.IntVar(&s.parked, "parked", 1000, "deliveries that wait on a member whose disk is lost, at the end; 0 for none")
	f.DurationVar(&s.stopFor, "stop-for", 15*time.Second, "length of a stop")
	f.DurationVar(&s.limit, "limit", 10*time.Second, "longest takeover that counts as passed")
	f.DurationVar(&s.keepalive, "keepalive-interval", 5*time.Second, "time between the keepalives of an agent")
	f.DurationVar(&s.warning, "keepalive-timeout", 20*time.Second, "silence of an agent after which there is an alarm")
	f.DurationVar(&s.every, "event-interval", 5*time.Second, "time between the events of an agent")
	f.Uint64Var(&s.seed, "seed", 1, "seed of the choice between members that own as many partitions")
	f.StringVar(&s.binary, "binary", "", "lapwing to test; default: build it from this module")
	f.StringVar(&s.dir, "dir", "", "empty directory for the backends; default a temporary one, which is removed")
	f.StringVar(&s.out, "out", "", "file that gets the table too")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	switch {
	case f.NArg() > 0:
		return s, fmt.Errorf("%q is no flag", f.Arg(0))
	case s.agents < 2 || s.partitions < 1:
		return s, errors.New("-agents and -partitions: at least 2 agents and a partition are needed")
	case s.keepalive < time.Second || s.warning <= s.keepalive || s.every < 100*time.Millisecond:
		return s, errors.New("-keepalive-interval, -keepalive-timeout and -event-interval: too short")
	}
	return s, nil
}

func main() { os.Exit(program()) }

func program() int {
	s, err := parseSettings(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "takeover:", err)
		return exitFailed
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	broken, err := measure(ctx, &s)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "takeover:", err)
		return exitFailed
	case len(broken) > 0:
		fmt.Fprintln(os.Stderr, "takeover: broken promises:\n  "+strings.Join(broken, "\n  "))
		return exitBroken
	}
	return exitKept
}

// measure runs everything, and returns the promises that were broken.
func measure(ctx context.Context, s *settings) (broken []string, err error) {
	if s.dir == "" {
		if s.dir, err = os.MkdirTemp("", "lapwing-takeover-"); err != nil {
			return nil, err
		}
		defer func() {
			if err == nil && len(broken) == 0 {
				_ = os.RemoveAll(s.dir)
			} else {
				fmt.Fprintln(os.Stderr, "takeover: the backends' logs are in", s.dir)
			}
		}()
	}
	if s.binary == "" {
		s.binary = filepath.Join(s.dir, "lapwing")
		build := exec.CommandContext(ctx, "go", "build", "-o", s.binary, "github.com/lapwing-monitoring/lapwing/cmd/lapwing")
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build lapwing: %w\n%s", err, out)
		}
	}
	r, err := newRun(s)
	if err != nil {
		return nil, err
	}
	defer r.stop()
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	played := r.play(ctx)
	table := r.table(fmt.Sprintf("%d processors, %s", runtime.NumCPU(), runtime.Version()))
	if played != nil {
		table = "It ended early, so nothing was compared: " + played.Error() + "\n" + table
	}
	fmt.Print(table)
	if s.out != "" {
		if err := os.WriteFile(s.out, []byte(table), 0o644); err != nil {
			return nil, errors.Join(played, err)
		}
	}
	return r.broken(), played
}

// play loses members, and compares what was sent with what the members have.
func (r *run) play(ctx context.Context) error {
	for _, how := range turns(r.s) {
		if err := r.lose(ctx, how); err != nil {
			return err
		}
	}
	if r.s.parked > 0 {
		if err := r.loseDisk(ctx); err != nil {
			return err
		}
	}
	return r.compare(ctx)
}

// turns are the losses, the kinds by turns.
func turns(s *settings) (all []loss) {
	for i := range max(s.kills, s.stops, s.restarts) {
		for _, kind := range ways {
			if i < map[loss]int{kill: s.kills, stop: s.stops, restart: s.restarts}[kind] {
				all = append(all, kind)
			}
		}
	}
	return all
}

// loss is a way to lose a member.
type loss string

const (
	kill    loss = "kill -9"
	stop    loss = "SIGSTOP"
	restart loss = "SIGTERM"
)

var ways = []loss{kill, stop, restart}

func (r *run) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

// pick draws one of several members.
func (r *run) pick(names []string) string { return names[r.rng.IntN(len(names))] }

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }
