package whisper

import (
	"math"
	"slices"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// Policy is how a store keeps a series.
type Policy struct {
	Archives     []series.Archive
	Method       series.Method
	XFilesFactor float64
}

// convert returns the points of a file for each archive of the policy, at the time now. An archive that the file has
// too, by its step, gets the file's own values unchanged. For the time that the file's archive does not reach back to,
// or if the file has no archive of the step, they come from the file's other archives: values of finer ones are
// aggregated by the policy, and those of coarser ones stand at the beginning of their slot. The result may share
// memory with the file.
func convert(f *File, p Policy, now int64) [][]Point {
	out := make([][]Point, len(p.Archives))
	for i, a := range p.Archives {
		covered := now + 1 // all times from here on have been filled
		oldest := series.Floor(now-a.Retention(), a.Step) + a.Step
		for _, from := range sources(f, a.Step) {
			start := max(series.Floor(now-from.Retention(), from.Step)+from.Step, oldest)
			if start >= covered {
				continue
			}
			var part []Point
			switch {
			case from.Step == a.Step:
				part = between(from.points, start, covered-1)
			case from.Step < a.Step:
				// A slot that has not ended is left to the store, and one whose beginning is not there to other archives.
				start = series.Floor(start+a.Step-1, a.Step)
				end := series.Floor(min(covered, now+1), a.Step)
				part = rollUp(between(from.points, start, end-1), from.Step, a.Step, p)
			default:
				part = placed(between(from.points, start, covered-1), a.Step)
			}
			out[i] = joined(part, out[i])
			covered = min(covered, start)
		}
	}
	return out
}

// sources returns the archives of a file from which points of the step can come, the best first: the same step, then
// finer ones, then coarser ones.
func sources(f *File, step int64) []*Archive {
	var same, finer, coarser []*Archive
	for i := range f.Archives {
		switch a := &f.Archives[i]; {
		case a.Step == step:
			same = append(same, a)
		case a.Step > step:
			coarser = append(coarser, a)
		case step%a.Step == 0:
			finer = append(finer, a)
		}
	}
	slices.Reverse(finer)
	return slices.Concat(same, finer, coarser)
}

// rollUp aggregates points of a finer step into slots of a coarser one.
func rollUp(points []Point, finer, coarser int64, p Policy) []Point {
	var out []Point
	values := make([]float64, coarser/finer)
	for len(points) > 0 {
		for i := range values {
			values[i] = math.NaN()
		}
		slot := series.Floor(points[0].Time, coarser)
		n := 0
		for ; n < len(points) && points[n].Time < slot+coarser; n++ {
			values[(points[n].Time-slot)/finer] = points[n].Value
		}
		if v := p.Method.Aggregate(values, p.XFilesFactor); !math.IsNaN(v) {
			out = append(out, Point{slot, v})
		}
		points = points[n:]
	}
	return out
}

// placed returns points at times of a finer step. Times that are no multiple of it are rounded down.
func placed(points []Point, step int64) []Point {
	out := make([]Point, 0, len(points))
	for _, p := range points {
		out = append(out, Point{series.Floor(p.Time, step), p.Value})
	}
	return out
}

// joined returns the points of older, then those of newer, without those of older that are not older.
func joined(older, newer []Point) []Point {
	if len(newer) == 0 {
		return older
	}
	older = between(older, 0, newer[0].Time-1)
	if len(older) == 0 {
		return newer
	}
	return slices.Concat(older, newer)
}
