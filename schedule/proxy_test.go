package schedule

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// switches are n proxy entities "sw-000", … of the namespace default, every second of which has the label poll=yes.
func switches(n int) []*resource.EntityConfig {
	var out []*resource.EntityConfig
	for i := range n {
		e := &resource.EntityConfig{EntityClass: "proxy", Metadata: resource.ObjectMeta{
			Namespace: "default", Name: fmt.Sprintf("sw-%05d", i), Labels: map[string]string{"address": fmt.Sprintf("10.0.0.%d", i)},
		}}
		if i%2 == 0 {
			e.Metadata.Labels["poll"] = "yes"
		}
		out = append(out, e)
	}
	return out
}

func forProxies(edit func(*resource.ProxyRequests), attributes ...string) func(*resource.CheckConfig) {
	return func(c *resource.CheckConfig) {
		c.Command = "ping {{ .labels.address }} {{ .metadata.name }}"
		c.ProxyRequests = &resource.ProxyRequests{EntityAttributes: attributes}
		if edit != nil {
			edit(c.ProxyRequests)
		}
	}
}

// proxied compares requests with "entity@seconds".
func proxied(t *testing.T, got []published, want ...string) {
	t.Helper()
	var names []string
	for _, p := range got {
		names = append(names, fmt.Sprintf("%s@%.3f", p.Request.Request.Config.ProxyEntityName, p.at.Seconds()))
	}
	if !slices.Equal(names, want) {
		t.Errorf("asked for %v, want %v", names, want)
	}
}

func TestProxySplay(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(*resource.ProxyRequests)
		want []string
	}{
		{"none", nil, []string{"sw-00000@7.000", "sw-00002@7.000", "sw-00004@7.000"}},
		{"default coverage", func(p *resource.ProxyRequests) { p.Splay = true }, []string{"sw-00000@10.000", "sw-00002@13.000", "sw-00004@16.000"}},
		{"60%", func(p *resource.ProxyRequests) { p.Splay, p.SplayCoverage = true, 60 }, []string{"sw-00000@9.000", "sw-00002@11.000", "sw-00004@13.000"}},
		{"all", func(p *resource.ProxyRequests) { p.Splay, p.SplayCoverage = true, 100 }, []string{"sw-00000@10.000", "sw-00002@13.000", "sw-00004@16.000"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, nil)
				b.defs.known = switches(6)
				c := newCheck("haproxy", 10, forProxies(tc.edit, "entity.entity_class == 'proxy'", "entity.labels.poll == 'yes'"))
				b.put(c)
				got := b.until(16*time.Second + time.Millisecond)
				proxied(t, got, tc.want...)
				q := got[1].Request
				if q.Request.Config.Command != "ping 10.0.0.2 sw-00002" || q.Request.Config.Scheduler != "" || q.RoundRobin || q.Assigned || c.ProxyEntityName != "" {
					t.Errorf("asked for %+v", q.Request.Config)
				}
				if want := int64(got[1].at.Seconds()) + b.began.Unix(); q.Request.Issued != want || q.Due.Unix() != want {
					t.Errorf("issued %d, tick %s, want %d", q.Request.Issued, q.Tick, want)
				}
				if n := len(b.until(76*time.Second + time.Millisecond)); n != 18 {
					t.Errorf("%d requests in six ticks, want 18", n)
				}
				if n := b.metric(t, "lapwing_schedule_missed_total"); n != 0 {
					t.Errorf("%v ticks missed", n)
				}
			})
		})
	}
}

func TestProxyCronSplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil)
		b.defs.known = switches(6)
		b.put(cronCheck("cron", "* * * * *", forProxies(func(p *resource.ProxyRequests) { p.Splay, p.SplayCoverage = true, 50 }, "entity.labels.poll == 'yes'")))
		proxied(t, b.until(119*time.Second), "sw-00000@70.000", "sw-00002@80.000", "sw-00004@90.000")
	})
}

// TestProxySharing: checks with the same expressions share their answers, and what no check uses is forgotten.
func TestProxySharing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil)
		b.defs.known = switches(6)
		yes := forProxies(nil, "entity.labels.poll == 'yes'")
		for _, name := range []string{"a", "b", "c"} {
			b.put(newCheck(name, 10, yes))
		}
		b.put(newCheck("other", 10, forProxies(nil, "entity.labels.poll != 'yes'")))
		if n := len(b.until(60 * time.Second)); n != 72 {
			t.Errorf("%d requests in six ticks of four checks, want 72", n)
		}
		if n := b.defs.read.Load(); n != 12 {
			t.Errorf("%d entities were looked at, want 6 for each of two sets of expressions", n)
		}
		for _, name := range []string{"a", "b", "other"} {
			b.delete("default", name)
		}
		b.until(70 * time.Second)
		changed := *b.defs.known[1]
		changed.Metadata.Labels = map[string]string{"address": "a", "poll": "yes"}
		b.defs.mu.Lock()
		b.defs.known = append(slices.Clone(b.defs.known[:1]), &changed)
		b.defs.mu.Unlock()
		if n := len(b.until(80 * time.Second)); n != 2 {
			t.Errorf("%d requests for changed entities, want 2", n)
		}
		b.delete("default", "c")
		b.until(90 * time.Second)
		if n := len(b.matches.all); n > 0 {
			t.Errorf("%d sets of expressions are kept", n)
		}
	})
}

// TestProxyChanges changes entities, the check and its expressions, also during a run.
func TestProxyChanges(t *testing.T) {
	splay := forProxies(func(p *resource.ProxyRequests) { p.Splay = true }, "entity.labels.poll == 'yes'")
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil)
		b.defs.known = switches(6)
		b.put(newCheck("haproxy", 10, splay))
		proxied(t, b.until(14*time.Second), "sw-00000@10.000", "sw-00002@13.000")
		changed := *b.defs.known[1]
		changed.Metadata.Labels = map[string]string{"address": "a", "poll": "yes"}
		b.defs.known[1] = &changed
		b.defs.known = slices.Delete(b.defs.known, 2, 3)
		b.put(newCheck("haproxy", 20, splay)) // must not affect the rest
		proxied(t, b.until(26*time.Second), "sw-00004@16.000", "sw-00000@23.000")
		proxied(t, b.until(46*time.Second), "sw-00001@29.000", "sw-00004@35.000", "sw-00000@43.000")
		b.put(newCheck("haproxy", 20, forProxies(nil, "entity.name == 'sw-00005'", "no (")))
		proxied(t, b.until(66*time.Second), "sw-00001@49.000", "sw-00004@55.000", "sw-00005@57.000")
		b.put(newCheck("haproxy", 20, splay))
		proxied(t, b.until(84*time.Second), "sw-00000@83.000")
		b.delete("default", "haproxy")
		proxied(t, b.until(3*time.Minute))
	})
}

func TestProxyNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil)
		b.defs.known = switches(6)
		b.put(newCheck("none", 10, forProxies(nil)))
		b.put(newCheck("unreadable", 10, forProxies(nil, "entity.(")))
		b.put(newCheck("throws", 10, forProxies(nil, "entity.nothing.x")))
		b.put(newCheck("tokens", 10, forProxies(nil, "true"), func(c *resource.CheckConfig) { c.Command = "{{ .labels.poll }}" }))
		throws, _ := b.defs.check("default", "throws")
		if n, known := b.Proxies(throws); known {
			t.Errorf("%d entities are known before the first tick", n)
		}
		got := b.until(10*time.Second + time.Millisecond)
		for name, want := range map[string]int{"none": 0, "unreadable": 0, "throws": 0, "tokens": 6} {
			c, _ := b.defs.check("default", name)
			if n, known := b.Proxies(c); n != want || !known {
				t.Errorf("%s is for %d entities (%v), want %d", name, n, known, want)
			}
		}
		if len(got) != 3 {
			t.Errorf("%d requests, want those for the three entities that have the label", len(got))
		}
		for _, text := range []string{"expression of proxy requests is ignored", "an expression of proxy requests fails", "tokens of the check cannot be replaced"} {
			if !strings.Contains(b.log.String(), text) {
				t.Errorf("nothing is logged of %q:\n%s", text, &b.log)
			}
		}
	})
}

func TestProxyRoundRobin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil)
		b.defs.known = switches(6)
		b.put(newCheck("haproxy", 10, forProxies(nil, "entity.labels.poll == 'yes'"), func(c *resource.CheckConfig) { c.RoundRobin = true }))
		got := b.until(18 * time.Second)
		proxied(t, got, "sw-00000@7.000", "sw-00002@7.000", "sw-00004@7.000", "sw-00000@17.000", "sw-00002@17.000", "sw-00004@17.000")
		for i, p := range got {
			if want := b.began.Add(time.Duration(7+i/3*10) * time.Second); !p.RoundRobin || p.Asked || !p.Tick.Equal(want) || p.Every != 10*time.Second {
				t.Errorf("request %d: %+v, want the tick %s", i, p.Request, want)
			}
		}
	})
}

// TestProxyMany has more entities than leave at once.
func TestProxyMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil)
		b.defs.known = switches(2400)
		b.put(newCheck("haproxy", 10, forProxies(nil, "entity.labels.poll == 'yes'")))
		counts := map[time.Duration]int{}
		for _, p := range b.until(16 * time.Second) {
			counts[p.at.Truncate(time.Second)]++
		}
		if counts[7*time.Second] != 500 || counts[8*time.Second] != 500 || counts[9*time.Second] != 200 {
			t.Errorf("requests by second: %v", counts)
		}
	})
}

func TestExecute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil)
		c := newCheck("cpu", 10, func(c *resource.CheckConfig) { c.RoundRobin, c.Publish = true, false })
		const issued = 1_800_000_000 // by the clock of the backend that was asked
		b.Execute(c, []string{"web"}, issued, false)
		b.Execute(c, []string{"web"}, issued, true)
		got := b.until(time.Second)
		if len(got) != 2 {
			t.Fatalf("published %+v", got)
		}
		for i, r := range got {
			if r.Namespace != "default" || !slices.Equal(r.Subscriptions, []string{"web"}) || r.RoundRobin != (i == 0) || !r.Asked || r.Assigned ||
				r.Tick.Unix() != issued || !r.Due.Equal(b.began) {
				t.Errorf("request is %+v", r)
			}
		}
		if q := got[0].Request.Request; q.Issued != issued || q.Config.Scheduler != "" || q.Config.Metadata.Name != "cpu" || q.Config == c {
			t.Errorf("request carries %+v", q)
		}
	})
}

func TestExecuteProxies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil)
		b.defs.known = switches(6)
		c := newCheck("cpu", 10, forProxies(func(p *resource.ProxyRequests) { p.Splay = true }, "entity.labels.poll == 'yes'"))
		c.Publish, c.RoundRobin = false, true
		b.Execute(c, []string{"web"}, b.began.Unix(), false)
		got := b.until(4 * time.Second)
		proxied(t, got, "sw-00000@3.000")
		if r := got[0]; !r.RoundRobin || !r.Asked || !r.Tick.Equal(b.began) || !slices.Equal(r.Subscriptions, []string{"web"}) {
			t.Errorf("request is %+v", r)
		}
		b.Execute(c, []string{"web"}, b.began.Unix(), true) // replaces the other
		proxied(t, b.until(time.Minute), "sw-00000@7.000", "sw-00002@10.000", "sw-00004@13.000")
		b.Execute(c, []string{"web"}, b.began.Unix(), true)
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
		b.Execute(c, []string{"web"}, b.began.Unix(), true)
		proxied(t, b.until(2*time.Minute))
	})
}

// TestParts: requests carry hooks and assets, also after these have changed.
func TestParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil)
		meta := func(name string) resource.ObjectMeta { return resource.ObjectMeta{Namespace: "default", Name: name} }
		b.defs.hooks = map[resource.Name]*resource.HookConfig{
			{Namespace: "default", Name: "ps"}: {Metadata: meta("ps"), Command: "ps aux", RuntimeAssets: []string{"tools"}},
			{Namespace: "default", Name: "df"}: {Metadata: meta("df"), Command: "df"},
		}
		b.defs.archives = map[resource.Name]*resource.Asset{
			{Namespace: "default", Name: "tools"}:   {Metadata: meta("tools"), URL: "u1"},
			{Namespace: "default", Name: "tools-2"}: {Metadata: meta("tools-2"), URL: "u2"},
		}
		b.put(newCheck("haproxy", 10, func(c *resource.CheckConfig) {
			c.CheckHooks = []resource.HookList{{Type: "critical", Hooks: []string{"ps", "nothing"}}, {Type: "non-zero", Hooks: []string{"ps", "df"}}}
			c.RuntimeAssets = []string{"tools-2", "unknown"}
		}))
		b.put(newCheck("check-disk", 10))
		b.until(time.Second)
		b.mu.Lock()
		b.assigned = nil
		b.mu.Unlock()
		find := func(at time.Duration) *resource.CheckRequest {
			t.Helper()
			got := b.until(at)
			if len(got) != 2 || got[1].Request.Request.Config.Metadata.Name != "haproxy" {
				t.Fatalf("published %+v", got)
			}
			return got[1].Request.Request
		}
		q := find(8 * time.Second)
		if len(q.Hooks) != 2 || q.Hooks[0].Command != "ps aux" || q.Hooks[1].Command != "df" ||
			len(q.Assets) != 1 || q.Assets[0].URL != "u2" || len(q.HookAssets) != 1 || q.HookAssets["ps"].Assets[0].URL != "u1" {
			t.Errorf("request carries %+v", q)
		}
		b.defs.mu.Lock()
		b.defs.hooks[resource.Name{Namespace: "default", Name: "nothing"}] = &resource.HookConfig{Metadata: meta("nothing"), Command: "true"}
		b.defs.archives[resource.Name{Namespace: "default", Name: "tools"}] = &resource.Asset{Metadata: meta("tools"), URL: "u3"}
		b.defs.mu.Unlock()
		b.defs.tell(config.Change{Kind: "hooks", Namespace: "default", Name: "nothing"})
		b.defs.tell(config.Change{Kind: "assets", Namespace: "default", Name: "tools"})
		q = find(18 * time.Second)
		if len(q.Hooks) != 3 || q.HookAssets["ps"].Assets[0].URL != "u3" {
			t.Errorf("request carries %+v", q)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, changed := range b.assigned {
			if len(changed) != 1 || changed[0].Check != "haproxy" {
				t.Errorf("assigned anew: %+v", changed)
			}
		}
		if n := strings.Count(b.log.String(), "assets that are not defined"); n != 1 || !strings.Contains(b.log.String(), "assets=[unknown]") {
			t.Errorf("unknown assets were logged %d times: %s", n, b.log.String())
		}
		if n := len(b.assigned); n == 0 || len(b.assigned[n-1][0].Request.Hooks) != 3 {
			t.Error("agents with a schedule of their own were not told")
		}
	})
}

// shortContext ends after some looks at it.
type shortContext struct {
	context.Context
	looks int
}

func (c *shortContext) Err() error {
	if c.looks--; c.looks < 0 {
		return context.Canceled
	}
	return nil
}

// TestProxyAnswersStay: when the time for the expressions is over, the entities that have an answer keep it.
func TestProxyAnswersStay(t *testing.T) {
	const entities = 3 * matchAtOnce
	s, err := newScheduler(Options{Publish: func(Request) {}, Compile: compileHere}, &memory{known: switches(entities)})
	if err != nil {
		t.Fatal(err)
	}
	c := newCheck("ping", 60, forProxies(nil, "true"))
	p := s.proxiesOf(c)
	if got := s.matching(&shortContext{context.Background(), 1}, c, p); got != nil || len(p.known) != matchAtOnce {
		t.Errorf("%d entities match, and %d have an answer", len(got), len(p.known))
	}
	if got := s.matching(context.Background(), c, p); len(got) != entities || len(p.known) != entities {
		t.Errorf("%d entities match, and %d have an answer, want %d", len(got), len(p.known), entities)
	}
}

// BenchmarkProxies measures one tick of a check for many entities: finding them again and making the requests.
//
//	go test ./schedule -run '^$' -bench Proxies -benchmem
func BenchmarkProxies(b *testing.B) {
	for _, n := range []int{1000, 40_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			requests := 0
			s, err := newScheduler(Options{Publish: func(Request) { requests++ }, Compile: compileHere}, &memory{known: switches(2 * n)})
			if err != nil {
				b.Fatal(err)
			}
			s.atOnce = 2 * n
			c := newCheck("ping", 60, forProxies(nil, "entity.entity_class == 'proxy' && entity.labels.poll == 'yes'"))
			p := s.proxiesOf(c)
			begin := time.Now()
			s.matching(context.Background(), c, p)
			first := time.Since(begin)
			b.ReportAllocs()
			for b.Loop() {
				r := &run{config: c, parts: s.partsOf(c), matches: p, begin: time.Now(), period: time.Minute}
				s.publishRun(context.Background(), r)
			}
			if requests != n*b.N {
				b.Errorf("%d requests in %d ticks", requests, b.N)
			}
			b.ReportMetric(first.Seconds()*1e6/float64(2*n), "µs/entity-first")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(requests), "ns/request")
		})
	}
}

// compileHere runs expressions in this process, so that a test can fake their time.
func compileHere(_, _, expression string) (*filter.EntityExpression, error) {
	return filter.CompileEntityHere(expression)
}

// TestProxyNamesBeforeTheFirstTick: the matches are known at once, also that there is none.
func TestProxyNamesBeforeTheFirstTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil)
		b.defs.known = switches(6)
		for text, want := range map[string]int{"entity.labels.poll == 'yes'": 3, "entity.labels.poll == 'never'": 0} {
			names, known := b.ProxyNames(t.Context(), newCheck("new", 10, forProxies(nil, text)))
			if !known || len(names) != want {
				t.Errorf("%s: %q, known %v; want %d names", text, names, known, want)
			}
		}
		if n := len(b.matches.all); n != 0 {
			t.Errorf("%d matches are kept that no check uses", n)
		}
	})
}
