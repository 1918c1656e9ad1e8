package silence

import (
	"fmt"
	"hash/maphash"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/testconfig"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
)

func labelled(entity, region string, status uint32) (*resource.Event, *resource.EntityConfig) {
	cfg := &resource.EntityConfig{
		Metadata:    resource.ObjectMeta{Namespace: "default", Name: entity, Labels: map[string]string{"region": region, "secret": "x"}, Annotations: map[string]string{"owner": "ops"}},
		EntityClass: "agent", Subscriptions: []string{"linux", "entity:" + entity}, Redact: []string{"secret"},
	}
	ev := &resource.Event{
		Metadata: resource.ObjectMeta{Labels: map[string]string{"from": "event"}},
		Check: &resource.Check{
			Metadata: resource.ObjectMeta{Namespace: "default", Name: "disk", Labels: map[string]string{"tier": "db", "until": fmt.Sprint(1_800_000_000)}},
			Handlers: []string{"slack"}, Subscriptions: []string{"linux", "db"}, RuntimeAssets: []string{"a"}, Status: status, Publish: true, Executed: 1,
			Pipelines: []resource.ResourceReference{{Name: "p", Type: "Pipeline", APIVersion: "core/v2"}},
		},
	}
	ev.Entity = resource.JoinEntity(cfg, nil)
	return ev, cfg
}

// TestSelectsAsSelectorsDo: a silence selects what a list with the same selectors shows.
func TestSelectsAsSelectorsDo(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for _, tc := range []struct {
		label, field string
		want         bool
	}{
		{"region == eu", "", true},
		{"region == us", "", false},
		{"region in [eu, us] && tier == db && from == event", "", true},
		{"secret == x", "", false},
		{"secret == REDACTED", "", true},
		{"nothing != x", "", true},
		{"until > now", "", true},
		{"", "event.check.name == disk && event.entity.name =~ '^web'", true},
		{"", "event.name == web1/disk", true},
		{"", "event.namespace == default && event.check.namespace == default && event.entity.namespace == default", true},
		{"", "event.check.status == 2", true},
		{"", "event.check.status < 2", false},
		{"", "event.is_incident == true", true},
		{"", "slack in event.check.handlers && linux in event.entity.subscriptions && db in event.check.subscriptions", true},
		{"", "p in event.check.pipelines && a in event.check.runtime_assets", true},
		{"", "event.check.publish == true && event.check.round_robin == false", true},
		{"", "event.entity.entity_class == proxy", false},
		{"", "event.entity.labels.region == eu && event.check.labels.tier == db && event.labels.region == eu", true},
		{"", "event.check.labels.region == eu", false},
		{"", "event.entity.annotations.owner == ops", true},
		{"region == eu", "event.check.name == cpu", false},
	} {
		ev, cfg := labelled("web1", "eu", 2)
		sel, err := selector.Parse(tc.label, tc.field)
		if err != nil {
			t.Fatal(err)
		}
		if got := sel.MatchAt(selector.Event(ev), now); got != tc.want {
			t.Errorf("%s; %s: a list would show it: %v", tc.label, tc.field, got)
		}
		r, err := Compile(&resource.Silenced{LabelSelector: tc.label, FieldSelector: tc.field}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Covers(resource.SilenceableOf(ev, cfg), now); got != tc.want {
			t.Errorf("%s; %s: %v, want %v", tc.label, tc.field, got, tc.want)
		}
	}
}

func TestCoversByName(t *testing.T) {
	now := time.Now()
	for _, tc := range []struct {
		subscription, check string
		named, want         bool
	}{
		{"linux", "", false, true}, {"linux", "disk", false, true}, {"linux", "cpu", false, false}, {"", "disk", false, true}, {"*", "disk", false, true},
		{"db", "", false, false}, {"win", "*", false, false}, {"entity:web1", "", false, true}, {"entity:web1", "disk", false, true}, {"entity:web", "", false, false},
		{"mac", "", false, false}, {"mac", "", true, true},
	} {
		ev, cfg := labelled("web1", "eu", 2)
		cfg.Subscriptions = append(cfg.Subscriptions, "mac")
		if tc.named {
			ev.Check.ProxyEntityName = "web1"
		}
		s := &resource.Silenced{Subscription: tc.subscription, Check: tc.check}
		r, err := Compile(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Covers(resource.SilenceableOf(ev, cfg), now); got != tc.want {
			t.Errorf("%s, named %v: %v", s.DerivedName(), tc.named, got)
		}
		// The search by name finds the same.
		store := testconfig.Store(t)
		put(t, store, tc.subscription, tc.check, nil)
		if got := len(NewMatcher(nil, nil).Match(store.Snapshot(), now, &Subject{Silenceable: *resource.SilenceableOf(ev, cfg)}, nil)) > 0; got != tc.want {
			t.Errorf("%s, named %v: found %v", s.DerivedName(), tc.named, got)
		}
	}
}

// selecting stores a silence with selectors.
func selecting(t testing.TB, s *config.Store, name, label, field string, change func(*resource.Silenced)) {
	t.Helper()
	one := &resource.Silenced{Metadata: resource.ObjectMeta{Namespace: "default", Name: name}, LabelSelector: label, FieldSelector: field}
	if change != nil {
		change(one)
	}
	if err := config.Put(t.Context(), s, config.Silences, one); err != nil {
		t.Fatal(err)
	}
}

// TestMatchSelecting asks everything twice, since the second answer is cached, with a body and with traits.
func TestMatchSelecting(t *testing.T) {
	s := testconfig.Store(t)
	m := NewMatcher(nil, nil)
	now := time.Unix(1_700_000_000, 0)
	match := func(entity, region string, status uint32, cfg *resource.EntityConfig, at time.Time) string {
		t.Helper()
		ev, made := labelled(entity, region, status)
		if cfg == nil {
			cfg = made
		}
		body := *ev
		body.Entity = nil
		var got [4]string
		for i := range got {
			subject := &Subject{Silenceable: resource.Silenceable{Namespace: "default", Entity: entity, Check: "disk", Status: status, Config: cfg}, Body: body.AppendProto(nil)}
			if i%2 == 1 {
				subject = &Subject{Silenceable: *resource.SilenceableOf(ev, cfg)}
			}
			for _, one := range m.Match(s.Snapshot(), at, subject, [][]byte{}) {
				got[i] += one.Metadata.Name + " "
			}
		}
		if got[0] != got[1] || got[0] != got[2] || got[0] != got[3] {
			t.Errorf("different answers %q", got)
		}
		return got[0]
	}
	selecting(t, s, "eu", "region == eu", "", nil)
	selecting(t, s, "warnings", "", "event.check.status == 1", nil)
	selecting(t, s, "later", "region == eu", "", func(one *resource.Silenced) { one.Begin = now.Unix() + 100 })
	selecting(t, s, "planned", "until > now", "", nil)
	selecting(t, s, "broken", "==", "", nil) // the API refuses it
	put(t, s, "", "disk", nil)
	_, cfg := labelled("web1", "eu", 0)
	for _, tc := range []struct {
		region string
		status uint32
		after  int64
		want   string
	}{
		{"eu", 2, 0, "*:disk eu planned "},
		{"eu", 1, 0, "*:disk eu planned warnings "},
		{"eu", 2, 100, "*:disk eu later planned "},
		{"eu", 2, 200_000_000, "*:disk eu later "},
	} {
		if got := match("web1", tc.region, tc.status, cfg, now.Add(time.Duration(tc.after)*time.Second)); got != tc.want {
			t.Errorf("%+v: %s", tc, got)
		}
	}
	if got := match("web2", "us", 2, nil, now); got != "*:disk planned " {
		t.Errorf("of another entity: %s", got)
	}
	selecting(t, s, "us", "region == us", "", nil)
	if got := match("web2", "us", 2, nil, now); got != "*:disk planned us " {
		t.Errorf("with one more silence: %s", got)
	}
	if err := config.Delete(t.Context(), s, config.Silences, "default", "eu"); err != nil {
		t.Fatal(err)
	}
	if got := match("web1", "eu", 2, cfg, now); got != "*:disk planned " {
		t.Errorf("with one less: %s", got)
	}
	_, moved := labelled("web1", "us", 0) // the entity is a different one now
	if got := match("web1", "us", 2, moved, now); got != "*:disk planned us " {
		t.Errorf("of an entity that changed: %s", got)
	}
}

// TestMemoryIsBounded fills it above its bound.
func TestMemoryIsBounded(t *testing.T) {
	var mem memory
	mem.clear()
	r := &Rule{silence: &resource.Silenced{Metadata: resource.ObjectMeta{Namespace: "n", Name: "a"}}}
	for i := range uint64(maxRemembered + 10) {
		mem.keep(place{nil, i}, []*Rule{r})
	}
	if len(mem.known) > maxRemembered || len(mem.sets) != 2 {
		t.Errorf("%d known, %d sets", len(mem.known), len(mem.sets))
	}
	if set, ok := mem.find(place{nil, maxRemembered + 5}); !ok || len(set) != 1 || set[0] != r {
		t.Errorf("%v %v", set, ok)
	}
}

func TestTraitsSum(t *testing.T) {
	seed := maphash.MakeSeed()
	ev, _ := labelled("web1", "eu", 0)
	want := resource.TraitsOfEvent(ev).Sum(seed)
	for name, change := range map[string]func(){
		"label": func() { ev.Metadata.Labels["from"] = "x" }, "handler": func() { ev.Check.Handlers = nil }, "named": func() { ev.Check.ProxyEntityName = "x" },
	} {
		ev, _ = labelled("web1", "eu", 1)
		if got := resource.TraitsOfEvent(ev).Sum(seed); got != want {
			t.Error("the same traits have two sums")
		}
		change()
		if got := resource.TraitsOfEvent(ev).Sum(seed); got == want {
			t.Errorf("another %s has the same sum", name)
		}
	}
}

// BenchmarkMatchSelecting measures the silences' part in taking an event, with many silences with selectors, of which
// one matches, and with so many entities that little stays in the processor's cache.
//
//	go test ./silence -run '^$' -bench MatchSelecting -benchmem
func BenchmarkMatchSelecting(b *testing.B) {
	for _, bc := range []struct {
		name    string
		n       int
		pattern string
	}{
		{"none", 0, ""}, {"10", 10, "region == r%d"}, {"100", 100, "region == r%d"}, {"10 by status", 10, "region == r%d && event.check.status == 1"},
	} {
		b.Run(bc.name, func(b *testing.B) {
			s := testconfig.Store(b)
			for i := range bc.n {
				if text := fmt.Sprintf(bc.pattern, i); bc.name == "10 by status" {
					selecting(b, s, fmt.Sprint("s", i), "", fmt.Sprintf("event.labels.region == r%d && event.check.status == 1", i), nil)
				} else {
					selecting(b, s, fmt.Sprint("s", i), text, "", nil)
				}
			}
			const entities = 40_000
			sn, now, m := s.Snapshot(), time.Now(), NewMatcher(nil, nil)
			subjects := make([]Subject, entities)
			for i := range subjects {
				ev, cfg := labelled(fmt.Sprint("web", i), fmt.Sprint("r", i%1000), 2)
				ev.Entity = nil
				subjects[i] = Subject{Silenceable: resource.Silenceable{Namespace: "default", Entity: cfg.Metadata.Name, Check: "disk", Status: 2, Config: cfg}, Body: ev.AppendProto(nil)}
			}
			i := 0
			ask := func() {
				subject := subjects[i%entities]
				m.Match(sn, now, &subject, [][]byte{})
				i++
			}
			for range entities {
				ask()
			}
			b.ReportAllocs()
			for b.Loop() {
				ask()
			}
		})
	}
}
