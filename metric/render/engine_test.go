package render

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// flatSource has n series of a step, with values that only depend on their place.
type flatSource struct {
	n       int
	step    int64
	fetches []string
}

func (s *flatSource) Find(_ context.Context, pattern string) ([]string, error) {
	if pattern == "broken" {
		return nil, errors.New("the disk is gone")
	}
	var names []string
	for i := range s.n {
		names = append(names, fmt.Sprintf("a.s%d.x", i))
	}
	return names, nil
}

func (s *flatSource) FindTagged(context.Context, []string) ([]string, error) { return nil, nil }

func (s *flatSource) Fetch(_ context.Context, names []string, from, until, _ int64) ([]series.Range, error) {
	s.fetches = append(s.fetches, fmt.Sprintf("%d %d %d", len(names), from, until))
	start := series.Floor(from, s.step) + s.step
	n := (series.Floor(until, s.step) + s.step - start) / s.step
	out := make([]series.Range, len(names))
	for i, name := range names {
		values := make([]float64, n)
		for k := range values {
			values[k] = float64(i + k)
		}
		out[i] = series.Range{Name: name, Start: start, Step: s.step, Values: values}
	}
	return out, nil
}

// estimatedSource also says how much it would return.
type estimatedSource struct{ flatSource }

func (s *estimatedSource) EstimatePoints(_ context.Context, names []string, from, until, _ int64) (int64, error) {
	return int64(len(names)) * (until - from) / s.step, nil
}

var hour = Request{From: 1700000000, Until: 1700003600, Now: 1700003600}

func newEngine(t testing.TB, o Options) *Engine {
	t.Helper()
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestFetchOnce(t *testing.T) {
	src := &flatSource{n: 2, step: 10}
	e := newEngine(t, Options{Source: src})
	list, err := e.Evaluate(t.Context(), []string{"a.*.x", "sumSeries(a.*.x)", "movingAverage(a.*.x,'5min')",
		"timeShift(a.*.x,'1h')", "scale(timeShift(a.*.x,'1h'),2)", "a.*.x"}, hour)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"2 1700000000 1700003600", "2 1699999700 1700003600", "2 1699996400 1700000000"}; !slices.Equal(
		src.fetches, want) {
		t.Errorf("fetched %v, want %v", src.fetches, want)
	}
	if list[0].Name != "a.s0.x" || list[2].Name != "sumSeries(a.*.x)" || list[len(list)-1].Name != "a.s1.x" {
		t.Errorf("the series are not in the order of the targets")
	}
	if list[0].Values[0] != 0 || list[len(list)-2].Values[0] != 0 || list[7].Values[0] != 0 {
		t.Errorf("the values of a shared fetch were changed")
	}
}

func TestErrors(t *testing.T) {
	e := newEngine(t, Options{Source: &flatSource{n: 3, step: 10}})
	for _, c := range []struct{ target, function, argument, message string }{
		{"nosuch(a)", "nosuch", "", "no such function"},
		{"scale(a)", "scale", "factor", "required"},
		{"scale(a,b)", "scale", "factor", "must be a number, not series"},
		{"scale(a,'x')", "scale", "factor", `must be a number, not "x"`},
		{"scale(a,1,2)", "scale", "", "at most 2 arguments"},
		{"scale(a,1,factor=2)", "scale", "factor", "twice"},
		{"scale(a,nosuch=1)", "scale", "factor", "required"},
		{"alias(a,'b',nosuch=1)", "alias", "nosuch", "no such argument"},
		{"scale(1,2)", "scale", "seriesList", "must be series"},
		{"summarize(a,'5m')", "summarize", "intervalString", "unknown unit"},
		{"summarize(a,'-5min')", "summarize", "intervalString", "positive"},
		{"summarize(a,'5min','nosuch')", "summarize", "func", "no aggregation"},
		{"summarize(a,5)", "summarize", "intervalString", "interval in quotes"},
		{"aliasSub(a,'(','x')", "aliasSub", "search", "cannot read the regular expression"},
		{"aliasSub(a,'a',b)", "aliasSub", "replace", "string in quotes"},
		{`aliasSub(a,'a','\9')`, "aliasSub", "replace", "no group 9"},
		{"groupByNode(a,1,'nosuch')", "groupByNode", "callback", "no function and no aggregation"},
		{"groupByNode(a,1,'movingAverage')", "movingAverage", "", "cannot be applied to groups"},
		{"limit(a,1.5)", "limit", "n", "whole number"},
		{"movingAverage(a,'5')", "movingAverage", "windowSize", "unknown unit"},
		{"divideSeries(a,b)", "divideSeries", "divisorSeries", "one series"},
		{"areaBetween(a)", "areaBetween", "seriesList", "exactly two"},
		{"filterSeries(a,'max','~',1)", "filterSeries", "operator", "not known"},
		{"nPercentile(a,0)", "nPercentile", "n", "above 0"},
		{"timeFunction('x',0)", "timeFunction", "step", "at least 1"},
		{"verticalLine('-1y')", "verticalLine", "ts", "before the range"},
		{"reduce(map(a,1),'sumSeries',2,'x','y')", "reduce", "reduceMatchers", `"y"`},
		{"applyByNode(a,1,'nosuch(%)')", "nosuch", "", "no such function"},
		{"sin('x',true,'a')", "sin", "step", "must be a number"},
		{"log(a,1)", "log", "base", "not 1"},
		{"setXFilesFactor(a,2)", "setXFilesFactor", "xFilesFactor", "0 to 1"},
		{"perSecond(a,1,2)", "perSecond", "minValue", "below maxValue"},
	} {
		_, err := e.Evaluate(t.Context(), []string{c.target}, hour)
		var a *ArgumentError
		if !errors.As(err, &a) {
			t.Errorf("%s: %v is no ArgumentError", c.target, err)
		} else if a.Function != c.function || a.Argument != c.argument || !strings.Contains(a.Message, c.message) {
			t.Errorf("%s: %v", c.target, a)
		}
	}
	if _, err := e.Evaluate(t.Context(), []string{"applyByNode(a,1,'sum(%')"}, hour); !errors.As(err, new(*ParseError)) {
		t.Errorf("a made target that cannot be read: %v", err)
	}
	if _, err := e.Evaluate(t.Context(), []string{"sum(broken)"}, hour); err == nil ||
		!strings.Contains(err.Error(), `find "broken": the disk is gone`) {
		t.Errorf("an error of the source: %v", err)
	}
	if _, err := e.Evaluate(t.Context(), []string{"a"}, Request{From: 5, Until: 5}); !errors.As(err, new(*ArgumentError)) {
		t.Errorf("an empty range: %v", err)
	}
	if _, err := New(Options{}); err == nil {
		t.Error("no source, no error")
	}
	if _, err := New(Options{Source: &flatSource{}, MaxPoints: -1}); err == nil {
		t.Error("a negative limit, no error")
	}
}

func TestLimits(t *testing.T) {
	nest := func(f string, n int, end string) string {
		return strings.Repeat(f+"(", n) + "a" + strings.Repeat(end+")", n)
	}
	for _, c := range []struct {
		name, target, limit string
		source              Source
		options             Options
	}{
		{"series", "a", "series", &flatSource{n: 100, step: 10}, Options{MaxSeries: 99}},
		{"series of several targets", "sum(a,timeShift(a,'1h'))", "series", &flatSource{n: 50, step: 10},
			Options{MaxSeries: 99}},
		{"points", "a", "points", &flatSource{n: 1000, step: 10}, Options{MaxPoints: 1000}},
		{"estimated points", "a", "points", &estimatedSource{flatSource{n: 1000, step: 10}}, Options{MaxPoints: 1000}},
		{"computed", "summarize(a,'1s')", "computed points", &flatSource{n: 100, step: 60},
			Options{MaxComputed: 100_000}},
		{"made", "timeFunction('x',1)", "computed points", &flatSource{}, Options{MaxComputed: 1000}},
		{"hits", "hitcount(a,'1s')", "computed points", &flatSource{n: 1, step: 60}, Options{MaxComputed: 1000}},
		{"calls", nest("movingAverage", 30, ",1"), "function calls", &flatSource{n: 1, step: 60}, Options{}},
		{"stack", nest("timeStack", 20, ",'1h',0,9"), "", &flatSource{n: 1, step: 60}, Options{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.options.Source = c.source
			_, err := newEngine(t, c.options).Evaluate(t.Context(), []string{c.target}, hour)
			var l *LimitError
			if !errors.As(err, &l) {
				t.Fatalf("%v is no LimitError", err)
			}
			if c.limit != "" && l.Limit != c.limit || l.Asked <= l.Max || l.Hint == "" {
				t.Errorf("%v", l)
			}
		})
	}
	src := &flatSource{n: 1000, step: 10}
	_, _ = newEngine(t, Options{Source: src, MaxPoints: 1000}).Evaluate(t.Context(), []string{"a"}, hour)
	if len(src.fetches) != 1 {
		t.Errorf("%d fetches before the limit was seen, want 1", len(src.fetches))
	}
	estimated := &estimatedSource{flatSource{n: 1000, step: 10}}
	_, _ = newEngine(t, Options{Source: estimated, MaxPoints: 1000}).Evaluate(t.Context(), []string{"a"}, hour)
	if len(estimated.fetches) != 0 {
		t.Errorf("%d fetches, the estimate should have come before", len(estimated.fetches))
	}
}

// TestManyGroups has more groups than a request may have function calls.
func TestManyGroups(t *testing.T) {
	e := newEngine(t, Options{Source: &flatSource{n: 500, step: 600}, MaxCalls: 10})
	list, err := e.Evaluate(t.Context(), []string{"groupByNode(a,1,'sum')"}, hour)
	if err != nil || len(list) != 500 {
		t.Errorf("%d series, %v", len(list), err)
	}
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e := newEngine(t, Options{Source: &flatSource{n: 3, step: 10}})
	for _, target := range []string{"a", "sumSeries(a)", "timeFunction('x')"} {
		if _, err := e.Evaluate(ctx, []string{target}, hour); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", target, err)
		}
	}
}

func TestEvents(t *testing.T) {
	asked := ""
	e := newEngine(t, Options{Source: &flatSource{}, Events: func(_ context.Context, tags []string, from, until int64) (
		[]int64, error) {
		asked = fmt.Sprint(tags, from, until)
		return []int64{from, from + 5, from + 5, until, from - 1}, nil
	}})
	list, err := e.Evaluate(t.Context(), []string{"events('a','b')"}, hour)
	if err != nil {
		t.Fatal(err)
	}
	s := list[0]
	if asked != "[a b] 1700000000 1700003600" || s.Values[0] != 1 || s.Values[5] != 2 || s.Values[1] == s.Values[1] ||
		len(s.Values) != 3600 || s.Consolidation != "sum" {
		t.Errorf("asked %s, got %v", asked, s.Values[:6])
	}
	if _, err := e.Evaluate(t.Context(), []string{"events('*')"}, hour); err != nil || !strings.HasPrefix(asked, "[] ") {
		t.Errorf("asked %s, %v", asked, err)
	}
}

func TestConsolidate(t *testing.T) {
	s := &Series{Name: "a", Start: 1700000010, End: 1700000310, Step: 10, Consolidation: "average"}
	for i := range 30 {
		s.Values = append(s.Values, float64(i))
	}
	got := Consolidate([]*Series{s}, 10)[0]
	if got.Start != 1700000040 || got.Step != 30 || got.ValuesPerPoint != 3 || len(got.Values) != 10 ||
		got.Values[0] != 3 || got.Values[1] != 6 || got.Values[8] != 27 || got.Values[9] != 29 {
		t.Errorf("got %+v", got)
	}
	if got := Consolidate([]*Series{s}, 30)[0]; got != s {
		t.Errorf("a series that is short enough was changed")
	}
	if got := Consolidate([]*Series{s}, 1)[0]; len(got.Values) != 1 || got.Values[0] != 14.5 || got.Start != s.Start {
		t.Errorf("one point: %+v", got)
	}
	if s.Step != 10 || len(s.Values) != 30 {
		t.Errorf("the series was changed: %+v", s)
	}
	empty := &Series{Name: "b", Start: 0, End: 0, Step: 10}
	if got := Consolidate([]*Series{empty, s}, 5); got[0] != empty {
		t.Errorf("an empty series was changed")
	}
}

// TestSummerTime shifts over the end of summer time: 10 o'clock stays 10 o'clock with alignDST.
func TestSummerTime(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip(err)
	}
	from := time.Date(2026, 10, 28, 10, 0, 0, 0, berlin).Unix()
	req := Request{From: from, Until: from + 3600, Now: from + 3600, Location: berlin}
	for target, want := range map[string]string{
		"timeShift(a,'7d')":           fmt.Sprintf("1 %d %d", from-7*86400, from+3600-7*86400),
		"timeShift(a,'7d',true,true)": fmt.Sprintf("1 %d %d", from-7*86400-3600, from-7*86400),
	} {
		src := &flatSource{n: 1, step: 60}
		if _, err := newEngine(t, Options{Source: src}).Evaluate(t.Context(), []string{target}, req); err != nil {
			t.Fatal(err)
		}
		if got := src.fetches[len(src.fetches)-1]; got != want {
			t.Errorf("%s: fetched %s, want %s", target, got, want)
		}
	}
}

func TestFunctions(t *testing.T) {
	infos := Functions()
	byName := map[string]FunctionInfo{}
	for i, f := range infos {
		if i > 0 && infos[i-1].Name >= f.Name {
			t.Errorf("%s is not in order", f.Name)
		}
		byName[f.Name] = f
		if f.Group == "" || f.Description == "" || !strings.HasSuffix(f.Description, ".") ||
			!strings.HasPrefix(f.Function, f.Name+"(") {
			t.Errorf("%+v", f)
		}
		for k, p := range f.Params {
			if p.Name == "" || p.Type == "" || p.Multiple && k != len(f.Params)-1 {
				t.Errorf("%s: %+v", f.Name, p)
			}
		}
		if _, err := json.Marshal(f); err != nil && !slices.ContainsFunc(f.Params, func(p ParamInfo) bool {
			d, ok := p.Default.(float64)
			return ok && math.IsInf(d, 1)
		}) {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
	if got := byName["keepLastValue"].Function; got != "keepLastValue(seriesList, limit=inf)" {
		t.Error(got)
	}
	if got := byName["summarize"].Function; got != "summarize(seriesList, intervalString, func='sum', alignToFrom=False)" {
		t.Error(got)
	}
	if !slices.Contains(byName["groupByNode"].Params[2].Options, "sumSeries") ||
		!slices.Contains(byName["groupByNode"].Params[2].Options, "median") {
		t.Errorf("%v", byName["groupByNode"].Params[2].Options)
	}
	// Each function is in the recorded requests, so that its answer was compared.
	var all strings.Builder
	for _, c := range readRecording(t).Cases {
		all.WriteString(c.Target + "\n")
	}
	for name := range byName {
		if !strings.Contains(all.String(), name+"(") && name != "randomWalkFunction" {
			t.Errorf("no recorded request calls %s", name)
		}
	}
}

func TestFormat(t *testing.T) {
	for v, want := range map[float64][2]string{
		0: {"0", "0.0"}, 5: {"5", "5.0"}, 1e5: {"100000", "100000.0"}, 1e6: {"1e+06", "1000000.0"},
		1234567: {"1.23457e+06", "1234567.0"}, 1e-4: {"0.0001", "0.0001"}, 1e-5: {"1e-05", "1e-05"},
		1e16: {"1e+16", "1e+16"}, 123456789012345680: {"1.23457e+17", "1.2345678901234568e+17"},
		0.1: {"0.1", "0.1"}, -2.5: {"-2.5", "-2.5"}, math.Inf(1): {"inf", "inf"}, math.Inf(-1): {"-inf", "-inf"},
		1e100: {"1e+100", "1e+100"},
	} {
		if g, f := formatG(v), formatFloat(v); g != want[0] || f != want[1] {
			t.Errorf("%v: %s and %s, want %v", v, g, f, want)
		}
	}
	for _, c := range []struct {
		v        float64
		decimals int
		want     float64
	}{{2.5, 0, 2}, {3.5, 0, 4}, {-0.5, 0, 0}, {2.675, 2, 2.67}, {1.005, 2, 1}, {0.125, 2, 0.12}, {1234.5, -2, 1200},
		{1e300, 2, 1e300}, {1.23456789e-7, 6, 0}, {0.0000005, 6, 0}, {0.0000015, 6, 2e-6}} {
		if got := roundHalfEven(c.v, c.decimals); got != c.want {
			t.Errorf("round(%v, %d) = %v, want %v", c.v, c.decimals, got, c.want)
		}
	}
}

func TestRegex(t *testing.T) {
	for _, c := range []struct{ pattern, in, replacement, want string }{
		{"(^.*$)", "a b", `\1 A`, "a b A"},
		{".*", "a", "z", "zz"},
		{"x*", "abc", "-", "-a-b-c-"},
		{"b", "abc", `\\`, `a\c`},
		{`(?P<n>b)`, "abc", `[\g<n>]`, "a[b]c"},
		{`(?P<n>b)(?P=n)`, "abbc", `[\g<n>]`, "a[b]c"},
		{`(?=b)`, "abc", "|", "a|bc"},
		{"(ä)(ö)", "äö", `\2\1`, "öä"},
		{"(z)?b", "ab", `<\1>`, "a<>"},
		{"b", "ab", `\101\060`, "aA0"},
		{"(b)", "ab", `\g<1>0`, "ab0"},
		{"b", "ab", `\.`, `a\.`},
	} {
		re, err := compileRegex(c.pattern)
		if err != nil {
			t.Errorf("%q: %v", c.pattern, err)
			continue
		}
		if got, err := re.replace(c.in, c.replacement); err != nil || got != c.want {
			t.Errorf("%q in %q by %q: %q, %v, want %q", c.pattern, c.in, c.replacement, got, err, c.want)
		}
	}
	// An expression that backtracks for ever ends with an error.
	re, err := compileRegex(`(?=x)?(a+)+$`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := re.match(strings.Repeat("a", 60) + "b"); err == nil {
		t.Log("the expression did not backtrack")
	}
}

func FuzzEvaluate(f *testing.F) {
	r := readRecording(f)
	for i := range r.Cases {
		if i%5 == 0 {
			f.Add(r.Cases[i].Target)
		}
	}
	data := r.Data
	for i := range data {
		n := max(0, len(data[i].Values)-200)
		data[i].Values = data[i].Values[n:]
		data[i].Start += int64(n) * data[i].Step
	}
	e := newEngine(f, Options{Source: newMemory(data), MaxPoints: 50_000, MaxCalls: 200})
	f.Fuzz(func(t *testing.T, target string) {
		list, err := e.Evaluate(t.Context(), []string{target}, Request{From: r.From, Until: r.Until, Now: r.Now})
		if err != nil {
			return
		}
		for _, s := range Consolidate(list, 7) {
			if s.Step <= 0 && len(s.Values) > 1 {
				t.Errorf("%q: %q has the step %d", target, s.Name, s.Step)
			}
		}
	})
}
