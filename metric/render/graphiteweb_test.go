package render

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// recording is testdata/graphiteweb.json.gz, which testdata/record.py made with graphite-web 1.1.10.
type recording struct {
	Now, From, Until int64
	Data             []recordedData
	Cases            []recordedCase
}

type recordedData struct {
	Name        string
	Step, Start int64
	Values      []*float64
}

type recordedCase struct {
	Target  string
	Options map[string]string
	Status  int
	Error   string
	Series  []recordedSeries
}

type recordedSeries struct {
	Name          string
	Tags          map[string]string
	Start, Step   int64
	Values        []any
	Times         []int64
	Path          string
	Consolidation string
	XFilesFactor  float64
}

func readRecording(t testing.TB) *recording {
	t.Helper()
	f, err := os.Open("testdata/graphiteweb.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var r recording
	if err := json.NewDecoder(z).Decode(&r); err != nil {
		t.Fatal(err)
	}
	return &r
}

// memory is a Source of series in memory, with the ranges and steps of whisper files of one archive.
type memory struct {
	byName map[string]*recordedData
	names  []string
	// fetches counts calls of Fetch.
	fetches int
}

func newMemory(data []recordedData) *memory {
	m := &memory{byName: map[string]*recordedData{}}
	for i := range data {
		m.byName[data[i].Name] = &data[i]
		m.names = append(m.names, data[i].Name)
	}
	sort.Strings(m.names)
	return m
}

func (m *memory) Find(_ context.Context, pattern string) ([]string, error) {
	if strings.Contains(pattern, ";") {
		if m.byName[pattern] != nil {
			return []string{pattern}, nil
		}
		return nil, nil
	}
	var out []string
	for _, p := range expandBraces(pattern) {
		for _, n := range m.names {
			if strings.Contains(n, ";") || strings.Count(n, ".") != strings.Count(p, ".") {
				continue
			}
			if ok, err := filepath.Match(strings.ReplaceAll(p, ".", "/"), strings.ReplaceAll(n, ".", "/")); ok && err == nil {
				out = append(out, n)
			}
		}
	}
	sort.Strings(out)
	return out, nil
}

func expandBraces(p string) []string {
	open := strings.IndexByte(p, '{')
	if open < 0 {
		return []string{p}
	}
	end := strings.IndexByte(p[open:], '}')
	if end < 0 {
		return nil
	}
	var out []string
	for _, alternative := range strings.Split(p[open+1:open+end], ",") {
		out = append(out, expandBraces(p[:open]+alternative+p[open+end+1:])...)
		if len(out) > 1000 {
			break
		}
	}
	return out
}

func (m *memory) FindTagged(_ context.Context, expressions []string) ([]string, error) {
	var out []string
	some := false
	for _, e := range expressions {
		k, v, ok := strings.Cut(e, "=")
		if !ok || k == "" {
			return nil, errors.New("not a tag expression")
		}
		some = some || !strings.HasSuffix(k, "!") && v != ""
	}
	if !some {
		return nil, errors.New("at least one expression must not match an empty value")
	}
	for _, n := range m.names {
		if !strings.Contains(n, ";") {
			continue
		}
		tags, all := tagsOf(n), true
		for _, e := range expressions {
			k, v, _ := strings.Cut(e, "=")
			k, not := strings.CutSuffix(k, "!")
			match := tags[k] == v
			if re, ok := strings.CutPrefix(v, "~"); ok {
				match = strings.HasPrefix(tags[k], strings.TrimSuffix(re, ".*"))
			}
			all = all && match != not
		}
		if all {
			out = append(out, n)
		}
	}
	return out, nil
}

func (m *memory) Fetch(_ context.Context, names []string, from, until, now int64) ([]series.Range, error) {
	m.fetches++
	var out []series.Range
	for _, n := range names {
		d := m.byName[n]
		if d == nil {
			continue
		}
		// As whisper: a range that is not in the file has no values, and the rest is cut to what the file reaches.
		oldest := now - d.Step*int64(len(d.Values)+1)
		if from > now || until < oldest {
			continue
		}
		f, u := max(from, oldest), min(until, now)
		start, end := series.Floor(f, d.Step)+d.Step, series.Floor(u, d.Step)+d.Step
		if start == end {
			end += d.Step
		}
		values := make([]float64, 0, (end-start)/d.Step)
		for t := start; t < end; t += d.Step {
			v := math.NaN()
			if i := (t - d.Start) / d.Step; i >= 0 && t >= d.Start && i < int64(len(d.Values)) && d.Values[i] != nil {
				v = *d.Values[i]
			}
			values = append(values, v)
		}
		out = append(out, series.Range{Name: n, Start: start, Step: d.Step, Values: values})
	}
	return out, nil
}

func (c *recordedCase) key() string {
	var options []string
	for k, v := range c.Options {
		options = append(options, k+"="+v)
	}
	sort.Strings(options)
	if len(options) == 0 {
		return c.Target
	}
	return "[" + strings.Join(options, " ") + "] " + c.Target
}

// evaluate does what /render does with the parameters.
func (c *recordedCase) evaluate(t *testing.T, e *Engine, r *recording) ([]*Series, error) {
	t.Helper()
	now := time.Unix(r.Now, 0).UTC()
	req := Request{From: r.From, Until: r.Until, Now: r.Now, Templates: map[string]string{}}
	for k, v := range c.Options {
		switch {
		case k == "from" || k == "until":
			at, err := ParseTime(v, now, time.UTC)
			if err != nil {
				return nil, err
			}
			if k == "from" {
				req.From = at.Unix()
			} else {
				req.Until = at.Unix()
			}
		case k == "maxDataPoints":
			req.MaxDataPoints, _ = strconv.Atoi(v)
		case k == "xFilesFactor":
			req.XFilesFactor, _ = strconv.ParseFloat(v, 64)
		case strings.HasPrefix(k, "template["):
			req.Templates[strings.TrimSuffix(strings.TrimPrefix(k, "template["), "]")] = v
		}
	}
	if req.From > req.Until {
		req.From, req.Until = req.Until, req.From
	}
	list, err := e.Evaluate(t.Context(), []string{c.Target}, req)
	return Consolidate(list, req.MaxDataPoints), err
}

// difference says how the answer differs from the recorded one; it is empty if it does not.
func (c *recordedCase) difference(list []*Series, err error) string {
	if err != nil {
		if c.Status == 200 {
			return fmt.Sprintf("error: %v", err)
		}
		return ""
	}
	if c.Status != 200 {
		return fmt.Sprintf("no error, recorded: %d %s", c.Status, c.Error)
	}
	if len(list) != len(c.Series) {
		names := []string{}
		for _, s := range list {
			names = append(names, s.Name)
		}
		return fmt.Sprintf("%d series %q, recorded: %d", len(list), names, len(c.Series))
	}
	_, noNulls := c.Options["noNullPoints"]
	for i, s := range list {
		w := c.Series[i]
		if s.Name != w.Name {
			return fmt.Sprintf("name %q, recorded: %q", s.Name, w.Name)
		}
		if got, want := fmt.Sprint(s.Tags), fmt.Sprint(w.Tags); got != want {
			return fmt.Sprintf("%s: tags %s, recorded: %s", s.Name, got, want)
		}
		if w.Path != "" && s.PathExpression != w.Path {
			return fmt.Sprintf("%s: path %q, recorded: %q", s.Name, s.PathExpression, w.Path)
		}
		if w.Consolidation != "" && s.Consolidation != w.Consolidation {
			return fmt.Sprintf("%s: consolidated by %s, recorded: %s", s.Name, s.Consolidation, w.Consolidation)
		}
		if w.Path != "" && s.XFilesFactor != w.XFilesFactor {
			return fmt.Sprintf("%s: xFilesFactor %g, recorded: %g", s.Name, s.XFilesFactor, w.XFilesFactor)
		}
		got, times := s.Values, []int64(nil)
		if noNulls {
			got = nil
			for i, v := range s.Values {
				if v == v {
					got = append(got, v)
					times = append(times, s.Start+int64(i)*s.Step)
				}
			}
			if fmt.Sprint(times) != fmt.Sprint(w.Times) {
				return fmt.Sprintf("%s: times %v, recorded: %v", s.Name, times, w.Times)
			}
		} else if len(s.Values) > 0 && s.Start != w.Start || w.Step != 0 && s.Step != w.Step {
			return fmt.Sprintf("%s: start %d step %d, recorded: %d %d", s.Name, s.Start, s.Step, w.Start, w.Step)
		}
		if len(got) != len(w.Values) {
			return fmt.Sprintf("%s: %d values, recorded: %d", s.Name, len(got), len(w.Values))
		}
		for k, v := range got {
			want := math.NaN()
			switch x := w.Values[k].(type) {
			case float64:
				want = x
			case string:
				want = math.Inf(1)
			}
			if !equal(v, want) {
				return fmt.Sprintf("%s: value %d is %v, recorded: %v", s.Name, k, v, want)
			}
		}
	}
	return ""
}

// equal allows for the order of additions: 1e-9 of the value.
func equal(a, b float64) bool {
	if math.IsNaN(a) || math.IsNaN(b) {
		return math.IsNaN(a) && math.IsNaN(b)
	}
	return a == b || math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b), 1e-3)
}

// readDifferences reads testdata/differences.txt: a reason in lines that begin with #, then the requests it is for.
func readDifferences(t *testing.T) map[string]string {
	t.Helper()
	f, err := os.Open("testdata/differences.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := map[string]string{}
	reason, fresh := "", true
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "#"):
			if fresh {
				reason = ""
			}
			reason, fresh = strings.TrimSpace(reason+" "+strings.TrimSpace(line[1:])), false
		case line != "":
			if reason == "" {
				t.Errorf("%q has no reason", line)
			}
			out[line], fresh = reason, true
		}
	}
	return out
}

func TestGraphiteWeb(t *testing.T) {
	r := readRecording(t)
	known := readDifferences(t)
	e, err := New(Options{Source: newMemory(r.Data)})
	if err != nil {
		t.Fatal(err)
	}
	same, differ, refused := 0, 0, 0
	seen := map[string]bool{}
	for i := range r.Cases {
		c := &r.Cases[i]
		key := c.key()
		seen[key] = true
		list, err := c.evaluate(t, e, r)
		d := c.difference(list, err)
		switch reason := known[key]; {
		case d == "" && reason != "":
			t.Errorf("%s\n\tis as recorded, but differences.txt lists it: %s", key, reason)
		case d != "" && reason == "":
			t.Errorf("%s\n\t%s", key, d)
		case d != "":
			differ++
		case err != nil:
			refused++
		default:
			same++
		}
	}
	for key := range known {
		if !seen[key] {
			t.Errorf("differences.txt lists a request that is not recorded: %s", key)
		}
	}
	t.Logf("%d of %d requests: %d answers equal, %d refused by both, %d differ as listed", same+refused+differ,
		len(r.Cases), same, refused, differ)
}

// kept is a Source that keeps what it returned, to see whether it was changed.
type kept struct {
	*memory
	returned, copies [][]float64
}

func (k *kept) Fetch(ctx context.Context, names []string, from, until, now int64) ([]series.Range, error) {
	ranges, err := k.memory.Fetch(ctx, names, from, until, now)
	for _, r := range ranges {
		k.returned = append(k.returned, r.Values)
		k.copies = append(k.copies, slices.Clone(r.Values))
	}
	return ranges, err
}

// TestValuesStay checks that no function writes into values of the source, which other targets may share.
func TestValuesStay(t *testing.T) {
	r := readRecording(t)
	for i := range r.Cases {
		k := &kept{memory: newMemory(r.Data)}
		_, _ = r.Cases[i].evaluate(t, newEngine(t, Options{Source: k}), r)
		for j, got := range k.returned {
			if !slices.EqualFunc(got, k.copies[j], func(a, b float64) bool { return a == b || a != a && b != b }) {
				t.Errorf("%s changed the values of the source", r.Cases[i].Target)
			}
		}
	}
}
