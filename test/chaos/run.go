//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// run is one schedule, played in a sandbox.
type run struct {
	settings *settings
	dir      string
	schedule []Fault
	members  []*member
	workload *workload
	receiver *receiver
	log      *os.File

	mu       sync.Mutex // guards the fields below
	problems []string   // found while the schedule ran
	begun    []begun    // the faults so far
}

// begun is a fault, and when it began.
type begun struct {
	Fault
	at time.Time
}

const (
	// restAtLeast after the last fault a deadline that fires wrongly has fired.
	restAtLeast = keepaliveTimeout + 4*time.Second

	// A kill repeats the deliveries that had ended, but whose end was not stored: it is stored 50 ms after the first or
	// with the 32nd. A cut repeats those whose answer was lost. The workload makes about 15 alerts a second, and one of
	// ten is answered after 2 s, so those are a handful. A slow disk stores ends later by the length of its stall.
	twicePerFault     = 10
	twicePerSlowFault = 40
	// When no member could act for a while, the alerts of that time come at once. Alerts that come within a second before
	// the next fault may be repeated. A member that is cut off from the others acts until its lease ends, and cannot log
	// what it sent.
	unlogged  = time.Second
	leaseLeft = 3 * time.Second

	judgeConfigWithin = 2 * time.Minute
	filledDiskLeaves  = 256 << 10
)

// playInside plays a run in the sandbox, and returns its exit status.
func playInside(s *settings) int {
	r := &run{settings: s, dir: s.inside}
	status, err := r.play()
	if err != nil {
		fmt.Printf("seed %d: not played: %v\n", s.seed, err)
	}
	return status
}

func (r *run) play() (status int, err error) {
	if r.log, err = os.Create(filepath.Join(r.dir, "log")); err != nil {
		return exitFailed, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := r.setUp(ctx); err != nil {
		return exitFailed, fmt.Errorf("set up: %w", err)
	}
	begin := time.Now()
	if err := r.workload.start(ctx); err != nil {
		return exitFailed, fmt.Errorf("start workload: %w", err)
	}
	offset := time.Since(r.workload.begin)
	r.playFaults(ctx)
	r.workload.stopSending()
	healed := time.Now()
	r.say("all faults are healed")
	summary, f, err := r.rest(ctx, healed, offset)
	if err != nil {
		return exitFailed, err
	}
	if err := r.writeHistory(); err != nil {
		return exitFailed, err
	}
	problems := f.all()
	text := fmt.Sprintf("seed %d: %d faults in %s, %sat rest after %s: %d violations\n", r.settings.seed,
		len(r.schedule), healed.Sub(begin).Round(time.Second), summary, time.Since(healed).Round(100*time.Millisecond),
		len(problems))
	status = exitPassed
	if len(problems) > 0 {
		status = exitViolated
		text += list(problems, 12) + "\n"
	}
	fmt.Print(text)
	r.say("%s", text)
	return status, os.WriteFile(filepath.Join(r.dir, "violations"), []byte(list(problems, len(problems))+"\n"), 0o644)
}

// setUp makes the network, starts the members, and defines what the workload needs.
func (r *run) setUp(ctx context.Context) error {
	s := r.settings
	kinds, err := s.faults()
	if err != nil {
		return err
	}
	r.schedule = newSchedule(s.seed, s.duration, s.members, kinds)
	for _, f := range r.schedule {
		r.say("schedule: %s", f)
	}
	if err := furnishSandbox(); err != nil {
		return err
	}
	if err := newNetwork(s.members); err != nil {
		return err
	}
	certs, err := newCertificates(r.dir, s.members)
	if err != nil {
		return err
	}
	opts := memberOptions{
		dir: r.dir, binary: s.binary, failed: r.found,
		skewed: slices.ContainsFunc(r.schedule, func(f Fault) bool { return f.Kind == KindClock }),
	}
	for i := range s.members {
		m, err := newMember(&opts, i, clusterArgs(i, s.members, certs))
		if err != nil {
			return err
		}
		r.members = append(r.members, m)
		if err := m.start(); err != nil {
			return err
		}
	}
	if err := r.allReady(ctx, startLimit); err != nil {
		return err
	}
	if r.receiver, err = newReceiver(harnessAddr + ":9000"); err != nil {
		return err
	}
	if r.workload, err = newWorkload(s.seed, r.members); err != nil {
		return err
	}
	return r.workload.define(ctx, r.receiver.url)
}

func (r *run) allReady(ctx context.Context, limit time.Duration) error {
	for _, m := range r.members {
		if err := m.waitReady(ctx, limit); err != nil {
			return err
		}
	}
	return nil
}

// playFaults plays the schedule and returns when all faults are healed. The mortal agent dies after a third of it. A
// fault may begin when another one of the same part ends: it waits until that is healed, which may take a while.
func (r *run) playFaults(ctx context.Context) {
	parts := map[string]*sync.Mutex{}
	for _, f := range r.schedule {
		for _, part := range f.uses(len(r.members)) {
			parts[part] = &sync.Mutex{}
		}
	}
	begin := time.Now()
	wait := func(until time.Duration) { pause(ctx.Done(), time.Until(begin.Add(until))) }
	var playing sync.WaitGroup
	for _, f := range r.schedule {
		playing.Go(func() {
			wait(f.At)
			for _, part := range f.uses(len(r.members)) { // always in the same order
				parts[part].Lock()
				defer parts[part].Unlock()
			}
			r.say("begin: %s", f)
			r.mu.Lock()
			r.begun = append(r.begun, begun{f, time.Now()})
			r.mu.Unlock()
			if err := r.begin(f); err != nil {
				r.found(fmt.Sprintf("harness: begin %s: %v", f, err))
			}
			wait(f.End())
			r.say("end: %s", f)
			if err := r.heal(f); err != nil {
				r.found(fmt.Sprintf("harness: heal %s: %v", f, err))
			}
		})
	}
	wait(r.mortalDies())
	r.say("the mortal agent dies")
	r.workload.killMortal()
	wait(r.settings.duration)
	playing.Wait()
}

// mortalDies is when in the schedule the mortal agent dies.
func (r *run) mortalDies() time.Duration { return r.settings.duration / 3 }

// begin makes a fault happen.
func (r *run) begin(f Fault) error {
	m := r.members[f.Member]
	switch f.Kind {
	case KindKill:
		m.end(syscall.SIGKILL)
	case KindPower:
		// The process must not see the errors of a disk that it has lost.
		if err := m.stop(); err != nil {
			return err
		}
		err := m.disk.lose()
		m.end(syscall.SIGKILL)
		return err
	case KindRestart:
		m.end(syscall.SIGTERM)
	case KindKillAll:
		var ending sync.WaitGroup
		for _, m := range r.members {
			ending.Go(func() { m.end(syscall.SIGKILL) })
		}
		ending.Wait()
	case KindStop:
		return m.stop()
	case KindCut:
		return cut(f.Member)
	case KindSlow:
		return m.disk.slow(f.Amount, maxStall/10)
	case KindFull:
		return m.disk.fill(filledDiskLeaves)
	case KindClock:
		return m.setClock(f.Amount)
	case KindIsolate:
		return r.eachPeer(f.Member, block)
	case KindLink:
		return bothWays(f.Member, f.Other, block)
	case KindOneWay:
		return block(f.Member, f.Other)
	}
	return nil
}

// heal ends a fault.
func (r *run) heal(f Fault) error {
	m := r.members[f.Member]
	switch f.Kind {
	case KindPower:
		if err := m.disk.remount(); err != nil {
			return err
		}
		return m.start()
	case KindKill, KindRestart:
		return m.start()
	case KindKillAll:
		for _, m := range r.members {
			if err := m.start(); err != nil {
				return err
			}
		}
	case KindStop:
		return m.goOn()
	case KindCut:
		return mend(f.Member)
	case KindSlow:
		m.disk.fast()
	case KindFull:
		if err := m.disk.empty(); err != nil {
			return err
		}
		return m.startAgain()
	case KindClock:
		return m.setClock(0)
	case KindIsolate:
		return r.eachPeer(f.Member, unblock)
	case KindLink:
		return bothWays(f.Member, f.Other, unblock)
	case KindOneWay:
		return unblock(f.Member, f.Other)
	}
	return nil
}

// eachPeer calls f for both directions between a member and each other one.
func (r *run) eachPeer(member int, f func(from, to int) error) error {
	for other := range r.members {
		if other == member {
			continue
		}
		if err := bothWays(member, other, f); err != nil {
			return err
		}
	}
	return nil
}

func bothWays(a, b int, f func(from, to int) error) error {
	if err := f(a, b); err != nil {
		return err
	}
	return f(b, a)
}

// rest waits until the system is at rest, and checks it. It repeats the checks while something is missing that may
// still come, because a backend catches up.
func (r *run) rest(
	ctx context.Context, healed time.Time, offset time.Duration,
) (summary string, f findings, err error) {
	limit := healed.Add(r.settings.rest)
	if err := r.allReady(ctx, r.settings.rest); err != nil {
		f.Wrong = append(r.foundSoFar(), err.Error())
		return "", f, nil
	}
	pause(ctx.Done(), time.Until(healed.Add(restAtLeast)))
	for {
		summary, f = r.check(ctx)
		if len(f.Wrong) > 0 || len(f.Missing) == 0 || time.Now().After(limit) {
			break
		}
		r.say("not at rest: %d findings, the first: %s", len(f.Missing), f.Missing[0])
		pause(ctx.Done(), time.Second)
	}
	if err := r.workload.readRegisters(ctx); err != nil {
		f.wrong("read the registers: %v", err)
		return summary, f, nil
	}
	stale := staleSpans(r.schedule, len(r.members), offset)
	problem, err := checkRegisters(r.workload.configOps(), stale, r.settings.strict, judgeConfigWithin,
		filepath.Join(r.dir, "config.html"))
	if problem != "" {
		f.wrong("%s", problem)
	}
	return summary, f, err
}

// check compares what was promised with what all members have now.
func (r *run) check(ctx context.Context) (summary string, f findings) {
	w := r.workload
	f.Wrong = r.foundSoFar()
	if names := w.unsent(); len(names) > 0 {
		f.missing("these agents have events that no backend acknowledges: %v", names)
		return "", f
	}
	sent, taken := w.pairs(), r.receiver.taken()
	var counts alertCounts
	first, err := w.listEvents(ctx, 0)
	if err != nil {
		f.missing("%v", err)
		return "", f
	}
	for i, m := range r.members {
		events := first
		if i > 0 {
			if events, err = w.listEvents(ctx, i); err != nil {
				f.missing("%v", err)
				continue
			}
			f.checkSame(r.members[0].name, m.name, first, events)
		}
		f.checkPairs(m.name, sent, storedPairs(events))
		r.checkHistories(ctx, i, &f)
		status, err := w.askCluster(ctx, i)
		if err != nil {
			f.missing("%v", err)
		}
		for _, problem := range status.Problems {
			r.say("%s sees a problem of the cluster: %s", m.name, problem)
		}
		f.checkCluster(m.name, status)
	}
	have := storedPairs(first)
	f.checkKeepalives(w.living(), mortal, taken)
	r.mu.Lock()
	most := mayComeTwice(r.begun, len(r.members), taken)
	r.mu.Unlock()
	counts = f.checkAlerts(sent, have, taken, most)
	newest := map[string]int64{}
	for name, s := range have {
		newest[name] = s.History[len(s.History)-1]
	}
	f.Missing = append(f.Missing, w.follower.compare(newest)...)
	return r.summary(sent, counts), f
}

// mayComeTwice bounds the alerts that come twice.
func mayComeTwice(faults []begun, members int, taken []alert) (n int) {
	for _, f := range faults {
		most, end := twicePerFault, f.at
		if f.Kind == KindSlow {
			most = twicePerSlowFault
		}
		if members > 1 {
			end = end.Add(leaseLeft)
		}
		near := map[string]bool{} // IDs: what comes twice must not raise the bound
		for _, a := range taken {
			if a.Handler == pager && a.At.After(f.at.Add(-unlogged)) && a.At.Before(end) {
				near[a.ID] = true
			}
		}
		n += max(most, len(near))
	}
	return n
}

// checkHistories checks that no member has noted the death of an agent that lived.
func (r *run) checkHistories(ctx context.Context, member int, f *findings) {
	for _, agent := range r.workload.living() {
		switch n, err := r.workload.keepaliveFailures(ctx, member, agent); {
		case err != nil:
			f.missing("%v", err)
		case n > 0:
			f.wrong("%s: %s lived, but its keepalive failed %d times", r.members[member].name, agent, n)
		}
	}
}

func (r *run) summary(sent []*pairLog, counts alertCounts) string {
	events, unanswered := 0, 0
	for _, log := range sent {
		for _, ev := range log.Events {
			events++
			if !log.ByAgent && !ev.Acked {
				unanswered++
			}
		}
	}
	follower := r.workload.follower
	follower.mu.Lock()
	defer follower.mu.Unlock()
	operations := len(r.workload.configOps())
	r.workload.mu.Lock()
	defer r.workload.mu.Unlock()
	return fmt.Sprintf("%d events (%d without an answer), %d alerts (%d came twice), %d configuration operations "+
		"(and %d reads that may be old), %d moves of the live stream (%d resets), ", events, unanswered, counts.Wanted,
		counts.Twice, operations, r.workload.mayBeOld, follower.moves, follower.resets)
}

// found notes a problem while the schedule runs.
func (r *run) found(text string) {
	r.say("found: %s", text)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = append(r.problems, text)
}

// foundSoFar are the problems that were found while the schedule ran.
func (r *run) foundSoFar() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.problems)
}

// say writes a line to the run's log.
func (r *run) say(format string, args ...any) {
	_, _ = fmt.Fprintf(r.log, "%s %s\n", time.Now().UTC().Format("15:04:05.000"), fmt.Sprintf(format, args...))
}

// writeHistory writes what was sent, what was taken and what was configured, one JSON object a line.
func (r *run) writeHistory() error {
	ops := r.workload.configOps()
	sortOps(ops)
	for name, items := range map[string][]any{
		"events.jsonl": anys(r.workload.pairs()), "alerts.jsonl": anys(r.receiver.taken()), "config.jsonl": anys(ops),
	} {
		file, err := os.Create(filepath.Join(r.dir, name))
		if err != nil {
			return err
		}
		buffered := bufio.NewWriter(file)
		lines := json.NewEncoder(buffered)
		for _, item := range items {
			if err := lines.Encode(item); err != nil {
				return err
			}
		}
		if err := buffered.Flush(); err != nil {
			return err
		}
		if err := file.Close(); err != nil {
			return err
		}
	}
	return nil
}

func anys[T any](items []T) (out []any) {
	for _, item := range items {
		out = append(out, item)
	}
	return out
}
