package api

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The files in testdata/golden are exchanges recorded from Sensu Go 6.12, one JSON array each. The test replays them in
// order on a fresh backend. Placeholders like {{etag:1}} are values that differ from run to run; one with a number has
// the same value everywhere.

type exchange struct {
	Method         string
	Path           string
	RequestHeaders map[string]string `json:"request_headers"`
	RequestBody    any               `json:"request_body"`
	RequestFormat  string            `json:"request_body_format"`
	Status         int
	Headers        map[string]string `json:"response_headers"`
	Body           any               `json:"response_body"`
	Format         string            `json:"response_body_format"`
	Match          string
	Note           string
}

func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/golden/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var exchanges []exchange
			if err := json.Unmarshal(text, &exchanges); err != nil {
				t.Fatal(err)
			}
			g := &golden{s: newServer(t, nil), bound: map[string]string{}}
			for i, x := range exchanges {
				if x.Match == "info" {
					continue // an intended difference to Sensu
				}
				for _, problem := range g.replay(&x) {
					t.Errorf("%d: %s %s: %s (%s)", i+1, x.Method, x.Path, problem, x.Note)
				}
			}
		})
	}
}

// golden replays one file.
type golden struct {
	s        *server
	bound    map[string]string // placeholders with a known value
	problems []string
}

var (
	placeholder = regexp.MustCompile(`\{\{[a-z_]+(?::[^}]+)?\}\}`)
	timestamp   = regexp.MustCompile(`^\{\{timestamp([+-]\d+)?\}\}$`)
)

func (g *golden) problem(format string, args ...any) {
	g.problems = append(g.problems, fmt.Sprintf(format, args...))
}

func (g *golden) replay(x *exchange) []string {
	g.problems = nil
	var in io.Reader
	if x.RequestBody != nil {
		body, _ := x.RequestBody.(string)
		if x.RequestFormat != "text" {
			text, err := json.Marshal(g.fill(x.RequestBody))
			if err != nil {
				return []string{err.Error()}
			}
			body = string(text)
		}
		in = strings.NewReader(body)
	}
	req, err := http.NewRequest(x.Method, g.s.url+g.fillText(x.Path), in)
	if err != nil {
		return []string{err.Error()}
	}
	for k, v := range x.RequestHeaders {
		req.Header.Set(k, g.fillText(v))
	}
	resp, err := g.s.http.Do(req)
	if err != nil {
		return []string{err.Error()}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return []string{err.Error()}
	}
	if resp.StatusCode != x.Status {
		g.problem("status %d, want %d; body %s", resp.StatusCode, x.Status, body)
	}
	if x.Match == "status" {
		return g.problems
	}
	for k, want := range x.Headers {
		g.text("header "+k, want, resp.Header.Get(k))
	}
	if _, ok := x.Headers["Sensu-Continue"]; !ok && resp.Header.Get("Sensu-Continue") != "" {
		g.problem("header Sensu-Continue is %q, want none", resp.Header.Get("Sensu-Continue"))
	}
	switch {
	case x.Format == "text":
		g.same("body", x.Body, string(body))
	case x.Body == nil:
		if strings.TrimSpace(string(body)) != "" {
			g.problem("body %s, want none", body)
		}
	default:
		var got any
		if err := json.Unmarshal(body, &got); err != nil {
			g.problem("body %s: %v", body, err)
		} else {
			g.same("body", x.Body, got)
		}
	}
	return g.problems
}

// fill replaces the placeholders in a request by their values.
func (g *golden) fill(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			out[k] = g.fill(x)
		}
		return out
	case []any:
		out := []any{}
		for _, x := range v {
			out = append(out, g.fill(x))
		}
		return out
	case string:
		if at, ok := timeOf(v); ok {
			return at
		}
		return g.fillText(v)
	}
	return v
}

func (g *golden) fillText(s string) string {
	return placeholder.ReplaceAllStringFunc(s, func(p string) string {
		v, ok := g.bound[p]
		if !ok {
			g.problem("%s is not known yet", p)
		}
		return v
	})
}

func timeOf(s string) (int64, bool) {
	m := timestamp.FindStringSubmatch(s)
	if m == nil {
		return 0, false
	}
	offset, _ := strconv.ParseInt(m[1], 10, 64)
	return time.Now().Unix() + offset, true
}

// same compares the recorded with the actual answer.
func (g *golden) same(where string, want, got any) {
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		if !ok {
			g.problem("%s is %v, want an object", where, got)
			return
		}
		for _, k := range slices.Sorted(maps.Keys(want)) { // sorted, so that the first occurrence of a placeholder is always the same
			if _, ok := got[k]; !ok {
				g.problem("%s.%s is missing", where, k)
				continue
			}
			g.same(where+"."+k, want[k], got[k])
		}
		for k, v := range got {
			if _, ok := want[k]; !ok {
				g.problem("%s.%s is %v, want none", where, k, v)
			}
		}
	case []any:
		got, ok := got.([]any)
		if !ok || len(got) != len(want) {
			g.problem("%s is %v, want %d items", where, got, len(want))
			return
		}
		for i := range want {
			g.same(fmt.Sprintf("%s[%d]", where, i), want[i], got[i])
		}
	case string:
		if at, ok := timeOf(want); ok {
			if n, ok := got.(float64); !ok || math.Abs(n-float64(at)) > 10 {
				g.problem("%s is %v, want about %d", where, got, at)
			}
			return
		}
		if types := map[string]any{"{{string}}": "", "{{number}}": 0.0, "{{object}}": map[string]any{}}; types[want] != nil {
			if reflect.TypeOf(got) != reflect.TypeOf(types[want]) {
				g.problem("%s is %v, want %s", where, got, want)
			}
			return
		}
		text, ok := got.(string)
		if !ok {
			g.problem("%s is %v, want %q", where, got, want)
			return
		}
		g.text(where, want, text)
	default:
		if !reflect.DeepEqual(want, got) {
			g.problem("%s is %v, want %v", where, got, want)
		}
	}
}

// text compares text with placeholders, which get their values at their first occurrence.
func (g *golden) text(where, want, got string) {
	pattern, at := "", 0
	var unbound []string
	for _, span := range placeholder.FindAllStringIndex(want, -1) {
		p := want[span[0]:span[1]]
		pattern += regexp.QuoteMeta(want[at:span[0]])
		if v, ok := g.bound[p]; ok {
			pattern += regexp.QuoteMeta(v)
		} else {
			unbound, pattern = append(unbound, p), pattern+"(.+)"
		}
		at = span[1]
	}
	m := regexp.MustCompile(`(?s)^` + pattern + regexp.QuoteMeta(want[at:]) + `$`).FindStringSubmatch(got)
	if m == nil {
		g.problem("%s is %q, want %q", where, got, want)
		return
	}
	for i, p := range unbound {
		g.bound[p] = m[i+1]
	}
}

func TestGoldenComparison(t *testing.T) {
	var recorded any
	if err := json.Unmarshal([]byte(`{"a":"{{uuid:1}}","b":["{{uuid:1}}",1],"c":null,"t":"{{timestamp}}","n":"{{number}}"}`), &recorded); err != nil {
		t.Fatal(err)
	}
	now := strconv.FormatInt(time.Now().Unix(), 10)
	for _, tc := range []struct {
		got  string
		want string // in the problem; "" for none
	}{
		{`{"a":"x","b":["x",1],"c":null,"t":` + now + `,"n":5}`, ""},
		{`{"a":"x","b":["y",1],"c":null,"t":` + now + `,"n":5}`, "b[0]"},
		{`{"a":"x","b":["x",2],"c":null,"t":` + now + `,"n":5}`, "b[1]"},
		{`{"a":"x","b":["x"],"c":null,"t":` + now + `,"n":5}`, "b is"},
		{`{"a":"x","b":["x",1],"t":` + now + `,"n":5}`, "c is missing"},
		{`{"a":"x","b":["x",1],"c":[],"t":` + now + `,"n":5}`, "c is"},
		{`{"a":"x","b":["x",1],"c":null,"t":5,"n":5}`, "t is"},
		{`{"a":"x","b":["x",1],"c":null,"t":` + now + `,"n":"5"}`, "n is"},
		{`{"a":"x","b":["x",1],"c":null,"t":` + now + `,"n":5,"z":0}`, "z is"},
	} {
		var got any
		if err := json.Unmarshal([]byte(tc.got), &got); err != nil {
			t.Fatal(err)
		}
		g := &golden{bound: map[string]string{}}
		g.same("", recorded, got)
		if tc.want == "" && g.problems != nil || tc.want != "" &&
			!slices.ContainsFunc(g.problems, func(p string) bool { return strings.Contains(p, tc.want) }) {
			t.Errorf("%s: %v, want %q", tc.got, g.problems, tc.want)
		}
	}
}
