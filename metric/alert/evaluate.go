package alert

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Series is a series that an expression returns.
type Series struct {
	Name   string
	Labels map[string]string
	// Values[i] is of Start + i*Step, in Unix seconds; NaN is no value.
	Start, Step int64
	Values      []float64
}

// at returns the series' value at t: of the values in (t-window, t] what reduce makes of them.
func (s *Series) at(t, window int64, reduce string) (value float64, known bool) {
	if s.Step <= 0 {
		return 0, false
	}
	window = max(window, s.Step) // of an older range only coarser values may be left
	first := max(0, floorDiv(t-window-s.Start, s.Step)+1)
	last := min(int64(len(s.Values))-1, floorDiv(t-s.Start, s.Step))
	n := 0.0
	for i := last; i >= first; i-- {
		v := s.Values[i]
		if math.IsNaN(v) {
			continue
		}
		switch {
		case n == 0:
			value = v
		case reduce == "max":
			value = max(value, v)
		case reduce == "min":
			value = min(value, v)
		default:
			value += v
		}
		n++
		if reduce == "" || reduce == "last" {
			return v, true
		}
	}
	if n > 0 && reduce == "average" {
		value /= n
	}
	return value, n > 0
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// level is what a series is at one moment.
type level uint8

const (
	fine level = iota
	unknown
	warning
	critical
)

// levelOf compares a value with the thresholds.
func levelOf(def *resource.MetricCheck, value float64, known bool) level {
	switch {
	case !known:
		return unknown
	case def.Critical.Reached(value):
		return critical
	case def.Warning.Reached(value):
		return warning
	}
	return fine
}

func statusOf(def *resource.MetricCheck, l level) uint32 {
	switch l {
	case critical:
		return 2
	case warning:
		return 1
	case unknown:
		if def.AbsentStatus != nil {
			return *def.AbsentStatus
		}
		return 3
	}
	return 0
}

// valueAt returns the value of a series that counts at t. PromQL has computed it for the moment.
func valueAt(def *resource.MetricCheck, s *Series, t int64) (value float64, known bool) {
	if def.Source == resource.PromQLSource {
		return s.at(t, int64(def.Interval), "last")
	}
	return s.at(t, def.WindowSeconds(), def.Reduce)
}

// line is the levels of a series at the moments of evaluation, after the hysteresis.
type line struct {
	levels []level
	// pending is the level that the series is at at the last moment, if it has not been there for long enough, else fine.
	// since is when it came to it.
	pending level
	since   int64
	// until is when the last level ends that only KeepFiringFor holds, unless the series gets there again; 0 otherwise.
	until int64
}

// timeline returns the line of a series.
//
// At each moment a series is at the level that it had at all moments of the last For seconds, or at the highest that it
// was at so in the last KeepFiringFor seconds. So the result follows from the values of the last seconds alone: no
// state has to survive a restart, and a preview is the same computation over more moments. A moment without a value is
// unknown at once, and counts as not beyond a threshold for the moments after it.
func timeline(def *resource.MetricCheck, s *Series, moments []int64) line {
	raw := make([]level, len(moments))
	for i, t := range moments {
		v, known := valueAt(def, s, t)
		raw[i] = levelOf(def, v, known)
	}
	held := sustained(raw, moments, int64(def.For))
	out, until := make([]level, len(moments)), int64(0)
	last := [critical + 1]int{warning: -1, critical: -1} // the newest moment that was held at the level
	for i, t := range moments {
		for l := warning; l <= held[i]; l++ {
			last[l] = i
		}
		until = 0
		if raw[i] == unknown {
			out[i] = unknown
			continue
		}
		out[i] = held[i]
		for l := critical; l > held[i] && l >= warning; l-- {
			if last[l] >= 0 && moments[last[l]] >= t-int64(def.KeepFiringFor) {
				out[i], until = l, moments[last[l]]+int64(def.KeepFiringFor)
				break
			}
		}
	}
	found := line{levels: out, until: until}
	n := len(moments) - 1
	if raw[n] >= warning && raw[n] > out[n] {
		begin := n
		for begin > 0 && raw[begin-1] >= raw[n] {
			begin--
		}
		found.pending, found.since = raw[n], moments[begin]
	}
	return found
}

// sustained returns for each moment the lowest level of the moments in the last seconds of hold, or fine if the moments
// do not reach back that far.
func sustained(raw []level, moments []int64, hold int64) []level {
	out := make([]level, len(raw))
	below := [critical + 1]int{warning: -1, critical: -1} // the newest moment that was below the level
	first := -1                                           // the newest moment at least hold seconds ago
	for i, t := range moments {
		for l := warning; l <= critical; l++ {
			if raw[i] < l {
				below[l] = i
			}
		}
		for first+1 <= i && moments[first+1] <= t-hold {
			first++
		}
		if first < 0 || raw[i] < warning {
			continue
		}
		for l := critical; l >= warning; l-- {
			if below[l] < first {
				out[i] = l
				break
			}
		}
	}
	return out
}

// lookback is how many seconds before a moment its level depends on.
func lookback(def *resource.MetricCheck) int64 {
	return int64(def.For) + int64(def.KeepFiringFor) + 2*int64(def.Interval)
}

// momentsOf returns the moments of evaluation from the first that until's level depends on, or from before that.
func momentsOf(def *resource.MetricCheck, from, until int64) []int64 {
	step := int64(def.Interval)
	first := from - lookback(def)
	var out []int64
	for t := until - floorDiv(until-first, step)*step; t <= until; t += step {
		out = append(out, t)
	}
	return out
}

// maxMoments bounds a preview, and maxLevels the levels of all series that are computed together.
const (
	maxMoments = 20_000
	maxLevels  = 20_000_000
)

// evaluate returns what def finds at the moments from..until in the series, a finding for each entity, sorted.
func evaluate(ctx context.Context, def *resource.MetricCheck, all []Series, from,
	until int64) ([]resource.MetricFinding, error) {
	moments := momentsOf(def, from, until)
	byEntity := map[string]*found{}
	for i := range all {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		name := entityOf(def, &all[i])
		f := byEntity[name]
		if f == nil {
			f = &found{def: def, entity: name, moments: moments}
			byEntity[name] = f
		}
		f.add(&all[i])
	}
	var out []resource.MetricFinding
	for _, f := range byEntity {
		out = append(out, f.finding(from))
	}
	slices.SortFunc(out, func(a, b resource.MetricFinding) int { return cmp.Compare(a.Entity, b.Entity) })
	return out, nil
}

// found gathers the series of one entity.
type found struct {
	def     *resource.MetricCheck
	entity  string
	moments []int64
	levels  []level // the worst of all series at each moment
	series  []foundSeries
}

type foundSeries struct {
	*Series
	line
	last  level // at the last moment
	begun int64 // when it came to that level
}

// rank orders the series of the same level: those about to change to a higher one first, those that are only kept last.
func (s *foundSeries) rank() int {
	switch {
	case s.pending > fine:
		return -int(s.pending)
	case s.until > 0:
		return 1
	}
	return 0
}

func (f *found) add(s *Series) {
	found := timeline(f.def, s, f.moments)
	levels := found.levels
	if f.levels == nil {
		f.levels = make([]level, len(levels))
	}
	for i, l := range levels {
		f.levels[i] = max(f.levels[i], l)
	}
	n := len(levels) - 1
	since := n
	for since > 0 && levels[since-1] == levels[n] {
		since--
	}
	found.levels = nil
	f.series = append(f.series, foundSeries{s, found, levels[n], f.moments[since]})
}

// shownSeries bounds the series in a finding.
const shownSeries = 10

func (f *found) finding(from int64) resource.MetricFinding {
	n := len(f.moments) - 1
	worst := f.levels[n]
	out := resource.MetricFinding{Entity: f.entity, Check: f.def.CheckName(), Status: statusOf(f.def, worst),
		Series: []resource.MetricFindingSeries{}}
	slices.SortStableFunc(f.series, func(a, b foundSeries) int { return cmp.Compare(a.rank(), b.rank()) })
	count := 0
	var first *foundSeries
	for i := range f.series {
		s := &f.series[i]
		if s.last != worst {
			continue
		}
		if count++; count == 1 {
			first = s
		}
		if count > shownSeries {
			continue
		}
		one := resource.MetricFindingSeries{Name: s.Name, Since: s.begun, PendingSince: s.since, KeptUntil: s.until}
		if v, known := f.value(s.Series); known && !math.IsInf(v, 0) { // JSON has no infinity
			one.Value = &v
		}
		out.Series = append(out.Series, one)
	}
	out.Output = f.line(worst, first, count)
	before := fine
	for i, t := range f.moments {
		if t < from {
			before = f.levels[i]
			continue
		}
		if f.levels[i] != before {
			out.Changes = append(out.Changes, resource.MetricStatusChange{At: t, Status: statusOf(f.def, f.levels[i])})
			before = f.levels[i]
		}
	}
	return out
}

// value is the series' value at the last moment.
func (f *found) value(s *Series) (float64, bool) {
	return valueAt(f.def, s, f.moments[len(f.moments)-1])
}

// line is the output of a result.
func (f *found) line(worst level, first *foundSeries, count int) string {
	var b strings.Builder
	v, known := f.value(first.Series)
	if known {
		fmt.Fprintf(&b, "%s is %s", first.Name, number(v))
	} else {
		fmt.Fprintf(&b, "%s has no value for %v", first.Name, time.Duration(f.def.WindowSeconds())*time.Second)
	}
	switch worst {
	case critical:
		fmt.Fprintf(&b, ", critical %s", describe(f.def.Critical))
	case warning:
		fmt.Fprintf(&b, ", warning %s", describe(f.def.Warning))
	}
	if first.until > 0 {
		fmt.Fprintf(&b, ", kept until %s", clock(first.until))
	}
	if len(f.series) > 1 {
		fmt.Fprintf(&b, " (%d of %d series)", count, len(f.series))
	}
	f.addPending(&b, first)
	return b.String()
}

// addPending adds the series that will be at a higher level if they stay where they are.
func (f *found) addPending(b *strings.Builder, first *foundSeries) {
	pending := slices.DeleteFunc(slices.Clone(f.series), func(s foundSeries) bool { return s.pending == fine })
	if len(pending) == 0 {
		return
	}
	s := &pending[0] // the series are sorted
	if s.Series != first.Series {
		v, _ := f.value(s.Series)
		fmt.Fprintf(b, "; %s is %s", s.Name, number(v))
	}
	if s.pending == critical {
		fmt.Fprintf(b, ", critical %s", describe(f.def.Critical))
	} else {
		fmt.Fprintf(b, ", warning %s", describe(f.def.Warning))
	}
	fmt.Fprintf(b, " pending since %s", clock(s.since))
	if len(pending) > 1 {
		fmt.Fprintf(b, " (%d series are pending)", len(pending))
	}
}

// clock writes a time into an output.
func clock(unix int64) string { return time.Unix(unix, 0).UTC().Format(time.RFC3339) }

func number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

func describe(t *resource.MetricCheckThreshold) string {
	var parts []string
	if t.Above != nil {
		parts = append(parts, "above "+number(*t.Above))
	}
	if t.Below != nil {
		parts = append(parts, "below "+number(*t.Below))
	}
	return strings.Join(parts, " or ")
}

// entityOf returns the entity that a series is about.
func entityOf(def *resource.MetricCheck, s *Series) string {
	name := ""
	switch {
	case def.EntityLabel != "":
		name = s.Labels[def.EntityLabel]
	case def.EntityNode != nil:
		path, _, _ := strings.Cut(s.Name, ";")
		nodes := strings.Split(path, ".")
		i := *def.EntityNode
		if i < 0 {
			i += len(nodes)
		}
		if i >= 0 && i < len(nodes) {
			name = nodes[i]
		}
	}
	if name = validName(name); name != "" {
		return name
	}
	return def.EntityName()
}

// validName makes a text one that an entity can have as its name.
func validName(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_.-:", r) {
			return r
		}
		return '_'
	}, s)
	if s == "." || s == ".." {
		return ""
	}
	return s[:min(len(s), 255)]
}
