package points

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Check is what Verify found.
type Check struct {
	Series   int   // series that the server has
	Expected int64 // points that were sent
	Equal    int64
	Missing  int64
	Wrong    int64 // points with another value
	First    string
}

// OK reports whether the server has exactly what was sent.
func (c *Check) OK() bool { return c.Missing == 0 && c.Wrong == 0 && c.Equal == c.Expected }

// String says it in a line.
func (c *Check) String() string {
	s := fmt.Sprintf("%d points expected: %d equal, %d missing, %d with another value; %d series", c.Expected, c.Equal, c.Missing, c.Wrong, c.Series)
	if c.First != "" {
		s += "; the first: " + c.First
	}
	return s
}

// Verify asks a Graphite server (graphite-web's /render at base) for all values of a run, host by host, and compares them.
// Of each host the rounds that it sent in whole are expected, and of Aggregates the rounds that all hosts sent.
func Verify(ctx context.Context, base string, r *Result) (*Check, error) {
	c := new(Check)
	v := newValues()
	for host, rounds := range r.Rounds {
		if rounds == 0 {
			continue
		}
		if err := c.host(ctx, base, r, v, host, rounds); err != nil {
			return c, fmt.Errorf("read host %d back: %w", host, err)
		}
	}
	return c, c.aggregates(ctx, base, r, v)
}

// aggregates compares the sums over all hosts, of the rounds that all hosts sent in whole.
func (c *Check) aggregates(ctx context.Context, base string, r *Result, v *values) error {
	step, rounds := int64(r.Options.Interval/time.Second), slices.Min(r.Rounds)
	for m := range r.Options.Aggregates {
		name := r.Options.aggregate(m)
		for first := 0; first < rounds; first += most {
			last := min(first+most, rounds)
			from := r.Options.Start.Unix() + int64(first)*step
			got, err := fetch(ctx, base, name, from-1, from+int64(last-first-1)*step)
			if err != nil {
				return fmt.Errorf("read aggregate %s back: %w", name, err)
			}
			s, ok := got[name]
			if ok && first == 0 {
				c.Series++
			}
			for round := first; round < last; round++ {
				sum := 0.0
				for host := range r.Rounds {
					sum += v.number[pick(host, m, round)]
				}
				c.compare(name, s, from+int64(round-first)*step, sum)
			}
		}
	}
	return nil
}

// most is how many rounds are asked for at a time.
const most = 5000

func (c *Check) host(ctx context.Context, base string, r *Result, v *values, host, rounds int) error {
	step := int64(r.Options.Interval / time.Second)
	for first := 0; first < rounds; first += most {
		last := min(first+most, rounds)
		from := r.Options.Start.Unix() + int64(first)*step
		got, err := fetch(ctx, base, fmt.Sprintf("%s.host%04d.*.*", r.Options.Prefix, host), from-1, from+int64(last-first-1)*step)
		if err != nil {
			return err
		}
		for m := range r.Options.Metrics {
			name := r.Options.Name(host, m)
			s, ok := got[name]
			if ok && first == 0 {
				c.Series++
			}
			for round := first; round < last; round++ {
				c.compare(name, s, from+int64(round-first)*step, v.number[pick(host, m, round)])
			}
		}
	}
	return nil
}

func (c *Check) compare(name string, s rendered, at int64, want float64) {
	c.Expected++
	got, ok := s.at(at)
	switch {
	case !ok:
		c.Missing++
	case !same(got, want):
		c.Wrong++
	default:
		c.Equal++
		return
	}
	if c.First == "" {
		have := "no value"
		if ok {
			have = fmt.Sprint(got)
		}
		c.First = fmt.Sprintf("%s at %d: want %v, have %s", name, at, want, have)
	}
}

// rendered is a series of an answer in the format raw.
type rendered struct {
	start, step int64
	values      []string
}

func (s *rendered) at(t int64) (float64, bool) {
	if s.step == 0 {
		return 0, false
	}
	i := (t - s.start) / s.step
	if i < 0 || i >= int64(len(s.values)) || s.values[i] == "None" {
		return 0, false
	}
	f, err := strconv.ParseFloat(s.values[i], 64)
	return f, err == nil
}

func fetch(ctx context.Context, base, target string, from, until int64) (map[string]rendered, error) {
	form := url.Values{"target": {target}, "from": {strconv.FormatInt(from, 10)}, "until": {strconv.FormatInt(until, 10)}, "format": {"raw"}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(base, "/")+"/render", strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 500))
		return nil, fmt.Errorf("%s: %s", res.Status, strings.TrimSpace(string(text)))
	}
	all := map[string]rendered{}
	lines := bufio.NewReaderSize(res.Body, 1<<20)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			name, s, err := parseRaw(strings.TrimSuffix(line, "\n"))
			if err != nil {
				return nil, err
			}
			all[name] = s
		}
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// parseRaw reads a line "name,start,end,step|v,v,None".
func parseRaw(line string) (string, rendered, error) {
	head, data, ok := strings.Cut(line, "|")
	parts := strings.Split(head, ",")
	if !ok || len(parts) < 4 {
		return "", rendered{}, fmt.Errorf("the answer has a line that is not in the format raw: %.200q", line)
	}
	n := len(parts)
	start, err1 := strconv.ParseInt(parts[n-3], 10, 64)
	step, err2 := strconv.ParseInt(parts[n-1], 10, 64)
	if err1 != nil || err2 != nil || step <= 0 {
		return "", rendered{}, fmt.Errorf("the answer has a line without start and step: %.200q", line)
	}
	return strings.Join(parts[:n-3], ","), rendered{start, step, strings.Split(data, ",")}, nil
}
