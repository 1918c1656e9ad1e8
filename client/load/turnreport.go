package load

import (
	"maps"
	"math"
	"slices"

	"github.com/lapwing-monitoring/lapwing/client/load/report"
)

// summarizeTurns computes the figures about turns of the measured part, if there were any.
func (r *run) summarizeTurns() {
	answered, seconds := float64(r.last.Turns.Answered-r.start.Turns.Answered), r.last.Last.Sub(r.start.First).Seconds()
	if r.last.Turns.Received == r.start.Turns.Received || seconds <= 0 {
		return
	}
	r.report.Turns = &report.Turns{
		Receipts: r.opts.Scenario.Load.Receipts, PerSecond: answered / seconds, PerAgent: distribution(r.last.Turns.PerAgent),
	}
	r.countTurns()
}

// countTurns notes the turns since the beginning of the measured part.
func (r *run) countTurns() {
	t, last, start := r.report.Turns, &r.last.Turns, &r.start.Turns
	if t == nil {
		return
	}
	t.Received = last.Received - start.Received
	t.Answered = last.Answered - start.Answered
	t.Different = last.Different - start.Different
	t.AnsweredTwice = last.Twice - start.Twice
}

const maxBins = 10

// distribution describes numbers, given how many there are of each. All bins have the same count of whole numbers: with
// a width of 1.5, every other bin would have twice as many agents as its neighbours.
func distribution(count map[uint32]uint32) report.Distribution {
	if len(count) == 0 {
		return report.Distribution{}
	}
	values := slices.Sorted(maps.Keys(count))
	low, high := values[0], values[len(values)-1]
	width := (high-low)/maxBins + 1
	d := report.Distribution{Min: float64(low), Max: float64(high), Bins: make([]report.Bin, (high-low)/width+1)}
	for i := range d.Bins {
		from := low + uint32(i)*width
		d.Bins[i].From, d.Bins[i].To = float64(from), float64(from+width-1)
	}
	sum, squares := 0.0, 0.0
	for _, v := range values {
		n, x := float64(count[v]), float64(v)
		d.Agents += int(n)
		sum += n * x
		squares += n * x * x
		d.Bins[(v-low)/width].Agents += int(n)
	}
	d.Mean = sum / float64(d.Agents)
	d.Deviation = math.Sqrt(max(0, squares/float64(d.Agents)-d.Mean*d.Mean))
	return d
}
