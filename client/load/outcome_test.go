package load

import (
	"slices"
	"testing"
)

func TestOutcomesKeepToTheMix(t *testing.T) {
	o := newOutcomes(1, []Share{{0, 95}, {1, 3}, {2, 2}}, 1)
	counts := map[uint32]int{}
	const agents, results = 500, 200
	for agent := range agents {
		for n := uint32(1); n <= results; n++ {
			counts[o.status(agent, checkHash("cpu"), n)]++
		}
	}
	for status, percent := range map[uint32]float64{0: 95, 1: 3, 2: 2} {
		got := float64(counts[status]) / (agents * results) * 100
		if got < percent*0.9 || got > percent*1.1 {
			t.Errorf("status %d: %.2f%%, want about %v%%", status, got, percent)
		}
	}
}

func TestOutcomesHold(t *testing.T) {
	mix := []Share{{0, 1}, {2, 1}}
	steady := newOutcomes(1, mix, 0)
	flapping := newOutcomes(1, mix, 0.1)
	changes := 0
	for agent := range 100 {
		for n := uint32(2); n <= 100; n++ {
			if steady.status(agent, 7, n) != steady.status(agent, 7, n-1) {
				t.Fatalf("agent %d: without flapping, the status changed at result %d", agent, n)
			}
			if flapping.status(agent, 7, n) != flapping.status(agent, 7, n-1) {
				changes++
			}
		}
	}
	// One in ten is drawn again, and half of these do not change.
	if changes < 400 || changes > 600 {
		t.Errorf("%d changes in 9,900 results, want about 495", changes)
	}
}

func TestExpected(t *testing.T) {
	o := newOutcomes(3, []Share{{0, 1}, {1, 1}}, 0.2)
	for agent := range 20 {
		var statuses []uint32
		for n := uint32(1); n <= 60; n++ {
			statuses = append(statuses, o.status(agent, 9, n))
			occurrences, history := o.expected(agent, 9, n)
			run := int64(0)
			for i := len(statuses) - 1; i >= 0 && statuses[i] == statuses[len(statuses)-1]; i-- {
				run++
			}
			if occurrences != run || !slices.Equal(history, statuses[max(0, len(statuses)-historySize):]) {
				t.Fatalf("agent %d, result %d: got %d and %v of %v", agent, n, occurrences, history, statuses)
			}
		}
	}
}
