//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
)

// verdict compares what was sent with what the members have.
type verdict struct {
	sent, sensuSent   int // events of lapwing agents, all of them acknowledged; and of Sensu agents
	lost, sensuLost   int // of these
	doubled           int // of both
	accepted, missing int // events through the API that were accepted; of these, not in the state
	alerts            int // that had to come
	alertsLost        int
	alertsTwice       int // deliveries beyond the first of an alert, under the same key
	alertsForked      int // alerts under more than one key
	differ            int // events that members know differently
}

// compare stops sending, waits for rest, and compares.
func (r *run) compare(ctx context.Context) error {
	close(r.fleet.quiet)
	r.endAlerts()
	err := await(ctx, "all events of lapwing agents to be acknowledged", func() error {
		n := 0
		for _, a := range r.fleet.agents {
			a.mu.Lock()
			n += len(a.waiting)
			a.mu.Unlock()
		}
		if n > 0 {
			return fmt.Errorf("%d are not", n)
		}
		return nil
	})
	if err != nil {
		return err
	}
	// What is missing may still come: the comparison is repeated for a while.
	err = await(ctx, "nothing to be missing", func() error {
		v, err := r.judge(ctx)
		if err != nil {
			return err
		}
		if r.verdict = v; v.lost+v.missing+v.alertsLost+v.differ > 0 {
			return errMissing
		}
		return nil
	})
	if errors.Is(err, errMissing) {
		return nil // the table has it
	}
	return err
}

var errMissing = errors.New("something is missing")

// judge compares once.
func (r *run) judge(ctx context.Context) (v verdict, err error) {
	var first map[string]int64
	for i, m := range r.members {
		have := map[string]int64{} // occurrences, by entity
		for ev, err := range client.All(ctx, m.client, client.Events, namespace, client.ListOptions{}) {
			if err != nil {
				return v, err
			}
			if ev.Entity != nil && ev.Check != nil && ev.Check.Metadata.Name == checkName {
				have[ev.Entity.Metadata.Name] = ev.Check.Occurrences
			}
		}
		if i == 0 {
			first = have
			r.judgeAgents(&v, have)
			r.judgeAlerts(&v, have)
			continue
		}
		for name := range maps.Keys(first) {
			if have[name] != first[name] {
				v.differ++
			}
		}
		v.differ += max(0, len(have)-len(first))
	}
	return v, nil
}

func (r *run) judgeAgents(v *verdict, have map[string]int64) {
	for _, a := range r.fleet.agents {
		a.mu.Lock()
		sent := a.sent
		a.mu.Unlock()
		lost := sent - int(have[a.name])
		v.doubled += max(0, -lost)
		if a.sensu {
			v.sensuSent += sent
			v.sensuLost += max(0, lost)
		} else {
			v.sent += sent
			v.lost += max(0, lost)
		}
	}
}

func (r *run) judgeAlerts(v *verdict, have map[string]int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for output, a := range r.alerts {
		times, keys := r.receiver.delivered(output)
		v.alertsTwice += max(0, times-1)
		if keys > 1 {
			v.alertsForked++
		}
		if !a.acked {
			continue
		}
		v.accepted++
		v.alerts++
		if have[a.entity] == 0 {
			v.missing++
		}
		if times == 0 {
			v.alertsLost++
		}
	}
}

// row is a line of the table of times.
type row struct {
	text   string
	of     func(*result) []time.Duration
	limits bool // a longer one breaks the promise
}

func one(of func(*result) time.Duration) func(*result) []time.Duration {
	return func(r *result) []time.Duration { return []time.Duration{of(r)} }
}

var rows = []row{
	{
		"events are accepted through both survivors, for all partitions",
		one(func(r *result) time.Duration { return r.events }), true,
	},
	{
		"a TTL passes that a survivor has heard, and that was due after 1 to 2 s",
		one(func(r *result) time.Duration { return r.deadline }), true,
	},
	{
		"a TTL begins anew that the lost member has heard",
		one(func(r *result) time.Duration { return r.heard }), false,
	},
	{
		"deliveries that waited at the lost member are made",
		one(func(r *result) time.Duration { return r.parked }), true,
	},
	{
		"the alerts of new events come",
		one(func(r *result) time.Duration { return r.alerts }), true,
	},
	{
		"a lapwing agent that loses its connection has another one (each)",
		func(r *result) []time.Duration { return r.lapwing }, false,
	},
	{
		"a Sensu agent that loses its connection has another one (each)",
		func(r *result) []time.Duration { return r.sensu }, false,
	},
	{
		"the slowest event of a lapwing agent is acknowledged",
		one(func(r *result) time.Duration { return r.held }), false,
	},
}

// times are the figures of a row for one way of losing a member, ascending.
func (r *run) times(row *row, how loss) (all []time.Duration) {
	for _, res := range r.results {
		if res.how == how {
			all = append(all, row.of(res)...)
		}
	}
	slices.Sort(all)
	return all
}

func percentiles(sorted []time.Duration) string {
	if len(sorted) == 0 {
		return "-"
	}
	at := func(q float64) float64 { return sorted[int(q*float64(len(sorted)-1)+0.5)].Seconds() }
	return fmt.Sprintf("%.1f / %.1f / %.1f", at(0.5), at(0.9), at(1))
}

// table returns the figures as Markdown.
func (r *run) table(machine string) string {
	var b strings.Builder
	count := map[loss]int{}
	for _, res := range r.results {
		count[res.how]++
	}
	fmt.Fprintf(&b, "%d agents, half of them in Sensu's protocol; an event every %s and a keepalive every %s each; "+
		"%d partitions; %s.\n", r.s.agents, r.s.every, r.s.keepalive, r.s.partitions, machine)
	fmt.Fprintf(&b, "Seconds from the signal, p50 / p90 / max:\n\n| until |")
	for _, how := range ways {
		fmt.Fprintf(&b, " %d × %s |", count[how], how)
	}
	b.WriteString("\n|---|---|---|---|\n")
	for i := range rows {
		fmt.Fprintf(&b, "| %s |", rows[i].text)
		for _, how := range ways {
			fmt.Fprintf(&b, " %s |", percentiles(r.times(&rows[i], how)))
		}
		b.WriteString("\n")
	}
	v := &r.verdict
	b.WriteString("\n| | |\n|---|---|\n")
	for _, line := range []struct {
		text string
		n    any
	}{
		{"alarms about agents, which all lived", r.receiver.alarmed()},
		{"events of lapwing agents, all acknowledged / of them not in the state", fmt.Sprint(v.sent, " / ", v.lost)},
		{"events of Sensu agents, written / of them lost with their connection", fmt.Sprint(v.sensuSent, " / ", v.sensuLost)},
		{"events that were counted twice", v.doubled},
		{"events accepted by the API / of them not in the state", fmt.Sprint(v.accepted, " / ", v.missing)},
		{"events that the members know differently", v.differ},
		{"alerts / lost", fmt.Sprint(v.alerts, " / ", v.alertsLost)},
		{"repeated deliveries, under the same key / alerts under two keys", fmt.Sprint(v.alertsTwice, " / ", v.alertsForked)},
	} {
		fmt.Fprintf(&b, "| %s | %v |\n", line.text, line.n)
	}
	if r.disk > 0 {
		fmt.Fprintf(&b, "| deliveries that waited on a lost disk; all were made, the last after | %d; %.1f s |\n",
			r.s.parked, r.disk.Seconds())
	}
	return b.String()
}

// broken returns the promises that were broken.
func (r *run) broken() (all []string) {
	for i := range rows {
		if !rows[i].limits {
			continue
		}
		for _, how := range ways {
			if times := r.times(&rows[i], how); len(times) > 0 && times[len(times)-1] > r.s.limit {
				all = append(all, fmt.Sprintf("%s: %s only after %.1f s", how, rows[i].text, times[len(times)-1].Seconds()))
			}
		}
	}
	v := &r.verdict
	for text, n := range map[string]int{
		"alarms about agents that lived":           r.receiver.alarmed(),
		"acknowledged events are not in the state": v.lost + v.missing,
		"events were counted twice":                v.doubled,
		"alerts were lost":                         v.alertsLost,
		"alerts came under two keys":               v.alertsForked,
		"events differ among the members":          v.differ,
	} {
		if n > 0 {
			all = append(all, fmt.Sprint(n, " ", text))
		}
	}
	slices.Sort(all)
	return all
}
