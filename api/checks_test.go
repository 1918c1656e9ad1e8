package api

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// hooksOf returns a check's hooks, for example "critical=a,b 0=c".
func (s *server) hooksOf(check string) string {
	s.t.Helper()
	c, ok := config.Get(s.store.Snapshot(), config.Checks, "default", check)
	if !ok {
		s.t.Fatalf("no check %s", check)
	}
	var out []string
	for _, l := range c.CheckHooks {
		out = append(out, l.Type+"="+strings.Join(l.Hooks, ","))
	}
	return strings.Join(out, " ")
}

func TestCheckHooks(t *testing.T) {
	s := newServer(t, nil)
	s.do("POST", checksPath, checkBody("a", `,"check_hooks":[{"critical":["x"]}]`)).is(201)
	hooks := checksPath + "/a/hooks/"
	s.do("PUT", hooks+"critical", `{"critical":["b","x","a","b"]}`).is(201)
	s.do("PUT", hooks+"critical", `{"critical":["a"]}`).is(201)
	s.do("PUT", hooks+"1", `{"1":["c"]}`).is(201)
	if got := s.hooksOf("a"); got != "critical=x,b,a 1=c" {
		t.Errorf("hooks are %s", got)
	}
	for body, status := range map[string]int{
		`{"warning":["a"]}`: 400, `{"critical":[]}`: 400, `{"critical":[""]}`: 400, `{}`: 400, `[]`: 400, ``: 400, `null`: 400,
		`{"critical":["a"],"ok":["b"]}`: 400,
	} {
		s.do("PUT", hooks+"critical", body).is(status)
	}
	s.do("PUT", hooks+"256", `{"256":["a"]}`).is(400)
	s.do("PUT", checksPath+"/missing/hooks/ok", `{"ok":["a"]}`).refuses(404, codeNotFound, "not found")
	s.do("DELETE", hooks+"critical/hook/b", "").is(204)
	s.do("DELETE", hooks+"critical/hook/b", "").refuses(404, codeNotFound, "not found")
	s.do("DELETE", hooks+"1/hook/a", "").is(404)
	s.do("DELETE", hooks+"1/hook/c", "").is(204)
	if got := s.hooksOf("a"); got != "critical=x,a" {
		t.Errorf("hooks are %s", got)
	}
	s.do("PUT", hooks+"critical", `{"critical":["z"]}`, "If-Match", `"0"`).is(412)
}

func TestConcurrentHooksLoseNothing(t *testing.T) {
	s := newServer(t, nil)
	s.do("POST", checksPath, checkBody("a", "")).is(201)
	names := strings.Split("a b c d e f g h", " ")
	var all sync.WaitGroup
	for _, name := range names {
		all.Go(func() {
			if got := s.do("PUT", checksPath+"/a/hooks/ok", `{"ok":["`+name+`"]}`); got.status != 201 {
				t.Errorf("%s: %d %s", name, got.status, got.body)
			}
		})
	}
	all.Wait()
	list := strings.Split(strings.TrimPrefix(s.hooksOf("a"), "ok="), ",")
	slices.Sort(list)
	if !slices.Equal(list, names) {
		t.Errorf("hooks are %q", list)
	}
}

func TestExecute(t *testing.T) {
	type run struct {
		check         string
		subscriptions string
		all           bool
	}
	var runs []run
	var silent []string
	s := newServer(t, func(o *Options) {
		o.Execute = func(_ context.Context, c *resource.CheckConfig, subscriptions []string, all bool) Execution {
			runs = append(runs, run{c.Metadata.Name, strings.Join(subscriptions, ","), all})
			none := slices.DeleteFunc(slices.Clone(subscriptions), func(s string) bool { return s != "nowhere" })
			return Execution{Issued: 12345, WithoutAgent: none, Silent: silent}
		}
	})
	s.do("POST", checksPath, checkBody("a", `,"subscriptions":["linux","web"],"round_robin":true`)).is(201)
	s.do("POST", checksPath, checkBody("proxies", `,"subscriptions":["linux"],"proxy_requests":{"entity_attributes":["true"]}`)).is(201)
	for _, body := range []string{`{}`, ``, `{"subscriptions":[]}`,
		`{"subscriptions":["db"],"creator":"me","reason":"why","metadata":{"name":"a"}}`, `{"all":true}`} {
		if got := s.do("POST", checksPath+"/a/execute", body).is(202); got.body != `{"issued":12345}` {
			t.Errorf("answer %s", got.body)
		}
	}
	if want := []run{{"a", "linux,web", false}, {"a", "linux,web", false}, {"a", "linux,web", false}, {"a", "db", false}, {"a", "linux,web", true}}; !slices.Equal(runs, want) {
		t.Errorf("ran %v, want %v", runs, want)
	}
	if got := s.do("POST", checksPath+"/a/execute", `{"subscriptions":["linux","nowhere"]}`).is(202); got.body != `{"issued":12345}` ||
		got.header.Get("Warning") != `299 lapwing "no connected agent has the subscription nowhere"` {
		t.Errorf("without an agent: %s, %v", got.body, got.header)
	}
	silent = []string{"b", "c"}
	if got := s.do("POST", checksPath+"/a/execute", `{"subscriptions":["nowhere"]}`).is(202).header["Warning"]; !slices.Equal(got,
		[]string{`299 lapwing "the backend b did not answer: its agents may not run the check"`,
			`299 lapwing "the backend c did not answer: its agents may not run the check"`}) {
		t.Errorf("with silent backends it warns of %q", got)
	}
	runs, silent = nil, nil
	s.do("POST", checksPath+"/missing/execute", `{}`).refuses(404, codeNotFound, "not found")
	s.do("POST", checksPath+"/a/execute", `{"metadata":{"name":"b"}}`).is(400)
	s.do("POST", checksPath+"/a/execute", `{"subscriptions":[""]}`).is(400)
	s.do("POST", checksPath+"/a/execute", `{"subscriptions":"x"}`).is(400)
	s.do("POST", checksPath+"/a/execute", `{`).is(400)
	if runs != nil {
		t.Errorf("refused requests ran %v", runs)
	}
	s.do("POST", checksPath+"/proxies/execute", `{}`).is(202)
	if want := []run{{"proxies", "linux", false}}; !slices.Equal(runs, want) {
		t.Errorf("ran %v, want %v", runs, want)
	}
}

// TestUnquotedTokens: the author of a check whose tokens can become commands gets a warning, and the check is stored as
// in Sensu.
func TestUnquotedTokens(t *testing.T) {
	s := newServer(t, nil)
	const proxy = `,"proxy_requests":{"entity_attributes":["entity.entity_class == 'proxy'"]}`
	s.do("PUT", "/api/core/v2/namespaces/default/entities/e", `{"metadata":{"name":"e","namespace":"default"},"entity_class":"agent","subscriptions":["x"]}`).is(200)
	put := func(method, path, command, more, contentType string) string {
		t.Helper()
		body := `{"metadata":{"name":"c","namespace":"default"},"interval":10,"subscriptions":["x"],"command":"` +
			command + `"` + more + `}`
		a := s.do(method, path, body, "Content-Type", contentType)
		if a.status >= 300 {
			t.Fatalf("%s: %d %s", method, a.status, a.body)
		}
		return a.header.Get("Warning")
	}
	const c = checksPath + "/c"
	for what, got := range map[string]string{
		"POST":  put("POST", checksPath, "curl {{ .labels.url }}", proxy, jsonType),
		"PUT":   put("PUT", c, "curl {{ .labels.url }}", proxy, jsonType),
		"PATCH": put("PATCH", c, "curl {{ .labels.url }}", proxy, mergePatchType),
	} {
		if !strings.HasPrefix(got, `299 - "the command has tokens`) || !strings.Contains(got, "{{.labels.url | shellquote }}") {
			t.Errorf("%s warns of %q", what, got)
		}
	}
	if got := put("PUT", c, "curl {{ .labels.url | shellquote }} {{ .name }}", proxy, jsonType) +
		put("PUT", c, "curl {{ .labels.url }}", "", jsonType); got != "" {
		t.Errorf("it warns of %q", got)
	}
}
