package test

import (
	"encoding/json"
	"hash/crc32"
	"math"
	"os"
	"strconv"
	"testing"
)

// gateFile holds the accepted cost of an event, in units of the calibration loop.
const gateFile = "testdata/gate.json"

// gate is the cost of an event.
type gate struct {
	CPURatio        float64 `json:"cpu_ratio"`         // CPU of an event over CPU of one round of the calibration loop
	MallocsPerEvent float64 `json:"mallocs_per_event"` // of sender and backend together
}

// Tolerances. CPU on a shared machine is noisy even as a ratio, so the best of some tries counts.
const (
	gateTries      = 4
	cpuTolerance   = 1.25
	mallocsAllowed = 0.1 // more than the baseline
)

// TestCostGate fails when an event costs a quarter more than it did. It runs with `make gate`, by itself, since timings need the
// machine for themselves; LAPWING_GATE=record writes the baseline anew.
func TestCostGate(t *testing.T) {
	mode := os.Getenv("LAPWING_GATE")
	if mode == "" {
		t.Skip("run by make gate")
	}
	best := gate{MallocsPerEvent: math.Inf(1)}
	event, round := math.Inf(1), math.Inf(1) // the least of each: disturbances only add
	for range gateTries {
		unit := calibrate()
		r := testing.Benchmark(func(b *testing.B) { benchEventPath(b, 20) })
		if r.N == 0 {
			t.Fatal("the benchmark failed")
		}
		unit = min(unit, calibrate())
		t.Logf("%.2f µs of CPU per event, %.3f µs per round of calibration; %.3f mallocs per event", r.Extra["cpu-µs/event"], unit, r.Extra["mallocs/event"])
		event, round = min(event, r.Extra["cpu-µs/event"]), min(round, unit)
		best.MallocsPerEvent = min(best.MallocsPerEvent, r.Extra["mallocs/event"])
	}
	best.CPURatio = event / round
	if mode == "record" {
		b, err := json.MarshalIndent(best, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(gateFile, append(b, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	b, err := os.ReadFile(gateFile)
	if err != nil {
		t.Fatal(err)
	}
	var base gate
	if err := json.Unmarshal(b, &base); err != nil {
		t.Fatal(err)
	}
	if best.CPURatio > base.CPURatio*cpuTolerance {
		t.Errorf("an event costs %.3f rounds of calibration, %.0f%% of the baseline's %.3f", best.CPURatio, best.CPURatio/base.CPURatio*100, base.CPURatio)
	}
	if best.MallocsPerEvent > base.MallocsPerEvent+mallocsAllowed {
		t.Errorf("an event costs %.3f allocations, the baseline %.3f", best.MallocsPerEvent, base.MallocsPerEvent)
	}
}

// calibrate returns the CPU time, in microseconds, of one round of work of the event path's kinds: sums over a
// kilobyte, look-ups of names, copies, and system calls that move a kilobyte. A slow machine slows both.
func calibrate() float64 {
	const rounds = 200_000
	r, w, err := os.Pipe()
	if err != nil {
		return math.NaN()
	}
	defer r.Close()
	defer w.Close()
	names := map[string]int{}
	keys := make([]string, 4096)
	for i := range keys {
		keys[i] = "agent-" + strconv.Itoa(i)
		names[keys[i]] = i
	}
	from, to := make([]byte, 1<<10), make([]byte, 1<<10)
	sum, found := uint32(0), 0
	begin := cpuTime()
	for i := range rounds {
		sum = crc32.Update(sum, crc32.IEEETable, from)
		for j := range 8 {
			found += names[keys[(i*31+j*97)%len(keys)]]
		}
		copy(to, from)
		from[i%len(from)] = byte(sum)
		if i%4 == 0 {
			_, _ = w.Write(from)
			_, _ = r.Read(to)
		}
	}
	spent := cpuTime() - begin
	if found < 0 || sum == 1 {
		return math.NaN() // never; it keeps the compiler from removing the work
	}
	return float64(spent.Nanoseconds()) / 1000 / rounds
}
