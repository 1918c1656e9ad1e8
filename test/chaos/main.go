//go:build linux

// Chaos plays random schedules of faults against real backends, and checks what they promised.
//
// Each schedule is a run of its own. The backends are processes in network namespaces, each with a disk of its own. A
// workload of events, alerts, configuration writes and keepalives runs while processes are killed and stopped, links
// are cut, disks are slow or full, and clocks are wrong. Then all faults are healed, and the checker compares what was
// acknowledged with what each backend has. README.md says how to run it and how to read a failure.
//
// Run it by hand (`make chaos`); the tests in this directory play a few schedules, and check that planted bugs are
// found.
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
	"strings"
	"sync"
	"syscall"
	"time"
)

// Exit statuses of the program, and of each run.
const (
	exitPassed   = 0
	exitViolated = 1 // a promise was broken
	exitFailed   = 2 // the harness could not do its work
	exitCannot   = 3 // this machine cannot play schedules
)

// settings are the command line.
type settings struct {
	schedules, parallel int
	seed                uint64
	duration, rest      time.Duration
	members             int
	kinds               string
	binary, dir         string
	keep, show, strict  bool
	inside              string // set in the process of one run: its directory
}

func parseSettings(args []string) (s settings, err error) {
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.IntVar(&s.schedules, "schedules", 1, "number of schedules to play; each has the next seed")
	f.IntVar(&s.parallel, "parallel", 1, "schedules to play at the same time")
	f.Uint64Var(&s.seed, "seed", 0, "seed of the first schedule; 0 for a random one")
	f.DurationVar(&s.duration, "duration", time.Minute, "length of each schedule; the checks come after it")
	f.DurationVar(&s.rest, "rest", 2*time.Minute, "longest wait after a schedule for what is missing")
	f.IntVar(&s.members, "members", 1, "number of backends")
	f.StringVar(&s.kinds, "faults", "", "kinds of faults, separated by commas; default all that fit -members")
	f.StringVar(&s.binary, "binary", "", "lapwing to test; default: build it from this module")
	f.StringVar(&s.dir, "dir", filepath.Join(os.TempDir(), "lapwing-chaos"), "directory for the runs")
	f.BoolVar(&s.keep, "keep", false, "keep the directories of runs that passed too")
	f.BoolVar(&s.strict, "strict", false, "allow no old reads of the configuration while a write is on its way")
	f.BoolVar(&s.show, "show", false, "show the schedules and play none")
	f.StringVar(&s.inside, "inside", "", "used by the program itself")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	if s.members < 1 || s.schedules < 1 || s.parallel < 1 || s.duration < minDuration {
		return s, fmt.Errorf("-members, -schedules and -parallel must be at least 1, -duration at least %s", minDuration)
	}
	_, err = s.faults()
	return s, err
}

// faults are the kinds of faults to choose from.
func (s *settings) faults() ([]Kind, error) {
	all := kindsFor(s.members)
	if s.kinds == "" {
		return all, nil
	}
	return parseKinds(s.kinds, all)
}

func main() {
	s, err := parseSettings(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(exitPassed)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(exitFailed)
	}
	if s.seed == 0 {
		s.seed = 1 + rand.Uint64N(1<<32)
	}
	switch {
	case s.inside != "":
		os.Exit(playInside(&s))
	case s.show:
		show(&s)
		return
	}
	os.Exit(playAll(&s))
}

// show prints the schedules.
func show(s *settings) {
	kinds, _ := s.faults() // was checked with the command line
	for i := range s.schedules {
		seed := s.seed + uint64(i)
		fmt.Printf("seed %d\n", seed)
		for _, f := range newSchedule(seed, s.duration, s.members, kinds) {
			fmt.Printf("  %s\n", f)
		}
	}
}

// playAll plays every schedule in a process of its own, and returns the exit status of the program.
func playAll(s *settings) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := prepare(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		if errors.Is(err, errCannot) {
			return exitCannot
		}
		return exitFailed
	}
	var (
		mu      sync.Mutex // guards results
		results = map[int][]uint64{}
		turns   = make(chan struct{}, s.parallel)
		running sync.WaitGroup
	)
	begin := time.Now()
	for i := range s.schedules {
		turns <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		seed := s.seed + uint64(i)
		running.Go(func() {
			status := playOne(ctx, s, seed)
			mu.Lock()
			results[status] = append(results[status], seed)
			mu.Unlock()
			<-turns
		})
	}
	running.Wait()
	if ctx.Err() != nil {
		return exitFailed
	}
	fmt.Printf("%d schedules of %s in %s: %d passed, %d with violations %v, %d not played %v\n", s.schedules, s.duration,
		time.Since(begin).Round(time.Second), len(results[exitPassed]), len(results[exitViolated]), results[exitViolated],
		len(results[exitFailed])+len(results[exitCannot]), append(results[exitFailed], results[exitCannot]...))
	for _, status := range []int{exitViolated, exitFailed, exitCannot} {
		if len(results[status]) > 0 {
			return status
		}
	}
	return exitPassed
}

// prepare checks the machine, removes what dead runs have left, and builds the backend.
func prepare(ctx context.Context, s *settings) error {
	if err := canPlay(); err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	if err := removeDeadRuns(s.dir); err != nil {
		return err
	}
	if s.binary == "" {
		s.binary = filepath.Join(s.dir, "lapwing")
		cmd := exec.CommandContext(ctx, "go", "build", "-o", s.binary, "github.com/lapwing-monitoring/lapwing/cmd/lapwing")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build lapwing: %w\n%s", err, out)
		}
	}
	var err error
	s.binary, err = filepath.Abs(s.binary)
	return err
}

// playOne plays one schedule in new namespaces, and removes its directory if it passed.
func playOne(ctx context.Context, s *settings, seed uint64) int {
	dir, lock, err := newRunDir(s.dir, seed)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return exitFailed
	}
	defer func() { _ = lock.Close() }()
	status := enterSandbox(ctx, []string{
		"-inside", dir, "-seed", fmt.Sprint(seed), "-duration", s.duration.String(), "-members", fmt.Sprint(s.members),
		"-faults", s.kinds, "-binary", s.binary, "-rest", s.rest.String(), "-strict=" + fmt.Sprint(s.strict),
	})
	switch {
	case status == exitPassed && !s.keep, ctx.Err() != nil:
		_ = os.RemoveAll(dir)
	default:
		removeDisks(dir)
		_ = os.Remove(lock.Name())
		fmt.Printf("seed %d: logs and history are in %s\n  again: go run ./test/chaos %s\n", seed, dir, s.again(seed))
	}
	return status
}

// again is the command line that plays a schedule once more.
func (s *settings) again(seed uint64) string {
	args := []string{"-seed", fmt.Sprint(seed), "-duration", s.duration.String(), "-members", fmt.Sprint(s.members)}
	if s.kinds != "" {
		args = append(args, "-faults", s.kinds)
	}
	return strings.Join(args, " ")
}
