package graphite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/lapwing-monitoring/lapwing/metric/render"
	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// recording is testdata/recorded.json: a store and the answers that graphite-web gave about it.
type recording struct {
	Now, Start, Step, Points int64
	Series                   map[string][]*string
	Tagged                   []string
	Answers                  []recorded
}

type recorded struct {
	Method, URL, Body, BodyType, Type, Cache, Answer, Answer64 string
	Accept                                                     *string
	Status                                                     int
}

func readRecording(tb testing.TB, file string) *recording {
	tb.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	var r recording
	if err := json.Unmarshal(text, &r); err != nil {
		tb.Fatal(err)
	}
	return &r
}

type badError struct{ error }

func (badError) BadRequest() bool { return true }

// store is a Source in memory, with the semantics of graphite-web's find and tags.
type store struct {
	now    int64
	points int64
	series map[string]series.Range

	mu     sync.Mutex
	tagged []string
}

func newStore(tb testing.TB, r *recording) *store {
	tb.Helper()
	s := &store{now: r.Now, points: r.Points, series: map[string]series.Range{}}
	for name, texts := range r.Series {
		values := make([]float64, len(texts))
		for i, text := range texts {
			values[i] = nan
			if text == nil {
				continue
			}
			var err error
			if values[i], err = strconv.ParseFloat(*text, 64); err != nil {
				tb.Fatal(err)
			}
		}
		s.series[name] = series.Range{Name: name, Start: r.Start, Step: r.Step, Values: values, Aggregation: series.Average}
	}
	return s
}

func globRegexp(part string) (*regexp.Regexp, error) {
	var b strings.Builder
	braces := false
	for _, c := range part {
		switch {
		case c == '*':
			b.WriteString("[^.]*")
		case c == '?':
			b.WriteString("[^.]")
		case c == '[' || c == ']':
			b.WriteRune(c)
		case c == '{':
			braces = true
			b.WriteString("(?:")
		case c == '}':
			braces = false
			b.WriteByte(')')
		case c == ',' && braces:
			b.WriteByte('|')
		case c == '.':
			b.WriteString(`\.`)
		case c == '-':
			b.WriteByte('-')
		default:
			b.WriteString(regexp.QuoteMeta(string(c)))
		}
	}
	re, err := regexp.Compile("^" + b.String() + "$")
	if err != nil {
		return nil, badError{fmt.Errorf("pattern %q: %w", part, err)}
	}
	return re, nil
}

func (s *store) names() []string {
	names := make([]string, 0, len(s.series))
	for name := range s.series {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (s *store) Nodes(_ context.Context, pattern string) ([]Node, error) {
	re, err := globRegexp(pattern)
	if err != nil {
		return nil, err
	}
	nodes := map[string]Node{}
	for _, name := range s.names() {
		for i := range len(name) + 1 {
			leaf := i == len(name)
			if !leaf && name[i] != '.' || !re.MatchString(name[:i]) {
				continue
			}
			n := nodes[name[:i]]
			n.Path, n.Leaf, n.Branch = name[:i], n.Leaf || leaf, n.Branch || !leaf
			if leaf {
				n.Start, n.End = s.now-s.points*10, s.now
			}
			nodes[name[:i]] = n
		}
	}
	var list []Node
	for _, n := range nodes {
		list = append(list, n)
	}
	slices.SortFunc(list, func(a, b Node) int { return strings.Compare(a.Path, b.Path) })
	return list, nil
}

func (s *store) Find(_ context.Context, pattern string) ([]string, error) {
	re, err := globRegexp(pattern)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(s.names(), func(name string) bool { return !re.MatchString(name) }), nil
}

func (s *store) Fetch(_ context.Context, names []string, from, until, _ int64) ([]series.Range, error) {
	var list []series.Range
	for _, name := range names {
		r, ok := s.series[name]
		if !ok {
			continue
		}
		first := min(max((from-r.Start)/r.Step+1, 0), int64(len(r.Values)))
		if from < r.Start {
			first = 0
		}
		last := min(max(series.Floor(until, r.Step)-r.Start, -r.Step)/r.Step+1, int64(len(r.Values)))
		if last <= first {
			continue
		}
		r.Start += first * r.Step
		r.Values = slices.Clone(r.Values[first:last])
		list = append(list, r)
	}
	return list, nil
}

func (s *store) All(_ context.Context, f func(string) bool) error {
	for _, name := range append(s.names(), s.tagged...) {
		if !f(name) {
			break
		}
	}
	return nil
}

func tagsOf(path string) map[string]string {
	parts := strings.Split(path, ";")
	tags := map[string]string{"name": parts[0]}
	for _, p := range parts[1:] {
		tag, value, _ := strings.Cut(p, "=")
		tags[tag] = value
	}
	return tags
}

func (s *store) FindTagged(_ context.Context, exprs []string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	positive := false
	for _, e := range exprs {
		if !strings.Contains(e, "=") {
			return nil, badError{fmt.Errorf("Invalid tagspec %s", e)}
		}
		positive = positive || !strings.Contains(e, "!=")
	}
	if !positive {
		return nil, badError{errors.New("At least one tagspec must not match the empty string")}
	}
	for _, name := range s.tagged {
		tags, all := tagsOf(name), true
		for _, e := range exprs {
			tag, value, _ := strings.Cut(e, "=")
			if re, ok := strings.CutPrefix(value, "~"); ok {
				all = all && regexp.MustCompile("^(?:"+re+")").MatchString(tags[tag])
			} else {
				all = all && tags[tag] == value
			}
		}
		if all {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list, nil
}

func limited(list []string, limit int) []string {
	slices.Sort(list)
	list = slices.Compact(list)
	if limit > 0 && len(list) > limit {
		list = list[:limit]
	}
	return list
}

func (s *store) Tags(_ context.Context, filter string, limit int) ([]string, error) {
	re, err := regexp.Compile("^(?:" + filter + ")")
	if err != nil {
		return nil, badError{err}
	}
	var list []string
	for _, name := range s.tagged {
		for tag := range tagsOf(name) {
			if re.MatchString(tag) {
				list = append(list, tag)
			}
		}
	}
	return limited(list, limit), nil
}

func (s *store) TagValues(_ context.Context, tag, filter string, limit int) ([]TagValue, error) {
	re, err := regexp.Compile("^(?:" + filter + ")")
	if err != nil {
		return nil, badError{err}
	}
	counts := map[string]int{}
	var values []string
	for _, name := range s.tagged {
		if value, ok := tagsOf(name)[tag]; ok && re.MatchString(value) {
			counts[value]++
			values = append(values, value)
		}
	}
	var list []TagValue
	for _, value := range limited(values, limit) {
		list = append(list, TagValue{value, counts[value]})
	}
	return list, nil
}

func (s *store) AutoCompleteTags(ctx context.Context, exprs []string, prefix string, limit int) ([]string, error) {
	names, err := s.matching(ctx, exprs)
	var list []string
	for _, name := range names {
		for tag := range tagsOf(name) {
			used := slices.ContainsFunc(exprs, func(e string) bool { return strings.HasPrefix(e, tag+"=") })
			if strings.HasPrefix(tag, prefix) && !used {
				list = append(list, tag)
			}
		}
	}
	return limited(list, limit), err
}

func (s *store) AutoCompleteValues(ctx context.Context, exprs []string, tag, prefix string, limit int) ([]string,
	error) {
	names, err := s.matching(ctx, exprs)
	var list []string
	for _, name := range names {
		if value, ok := tagsOf(name)[tag]; ok && strings.HasPrefix(value, prefix) {
			list = append(list, value)
		}
	}
	return limited(list, limit), err
}

func (s *store) matching(ctx context.Context, exprs []string) ([]string, error) {
	if len(exprs) == 0 {
		return s.tagged, nil
	}
	return s.FindTagged(ctx, exprs)
}

func (s *store) TagSeries(_ context.Context, path string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := strings.Split(path, ";")
	slices.Sort(parts[1:])
	name := strings.Join(parts, ";")
	if !slices.Contains(s.tagged, name) && strings.Contains(name, ";") {
		s.tagged = append(s.tagged, name)
		slices.Sort(s.tagged)
	}
	return name, nil
}

func (s *store) DeleteSeries(_ context.Context, paths []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tagged = slices.DeleteFunc(s.tagged, func(name string) bool { return slices.Contains(paths, name) })
	return nil
}

func (s *store) Metadata(_ context.Context, metric, key string) (any, error) {
	if key != "aggregationMethod" {
		return nil, fmt.Errorf("unknown metadata key %q", key)
	}
	r, ok := s.series[metric]
	if !ok {
		return nil, fmt.Errorf("no series %s", metric)
	}
	return r.Aggregation.String(), nil
}

var (
	_ Source         = (*store)(nil)
	_ MetadataSource = (*store)(nil)
	_ render.Source  = (*store)(nil)
)
