package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// allLate is a Lateness for which all checks and all events of web1 are late.
type allLate struct{ *server }

func (allLate) Of() func(*resource.CheckConfig) resource.CheckLateness {
	return func(c *resource.CheckConfig) resource.CheckLateness {
		return resource.CheckLateness{Namespace: c.Metadata.Namespace, Check: c.Metadata.Name, LastRun: 1000, Overdue: 3, Since: 1060,
			WithoutAgent: []string{"web"}, Summary: "overdue by 3 intervals"}
	}
}

func (l allLate) Events(_ context.Context, namespace string) (map[state.Key]resource.EventLateness, error) {
	found := map[state.Key]resource.EventLateness{}
	for pair := range l.fold.Pairs(namespace) {
		if pair.Entity == "web1" {
			k := state.Key{Namespace: pair.Namespace, Entity: pair.Entity, Check: pair.Check}
			found[k] = l.Event(k)
		}
	}
	return found, nil
}

func (allLate) Event(k state.Key) resource.EventLateness {
	return resource.EventLateness{Namespace: k.Namespace, Entity: k.Entity, Check: k.Check, LastRun: 1000, Overdue: 2, Since: 1060, Summary: "overdue by 2 intervals"}
}

func TestLateness(t *testing.T) {
	late := &allLate{}
	s := newServer(t, func(o *Options) { o.Lateness = late })
	late.server = s
	if a := s.do(http.MethodPut, core+"namespaces/dev", `{"name":"dev"}`); a.status >= 300 {
		t.Fatal(a)
	}
	for _, name := range []string{"default/cpu", "default/disk", "default/mem", "dev/cpu"} {
		ns, check, _ := strings.Cut(name, "/")
		body := fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q,"labels":{"team":%q}},"command":"true","interval":60,"subscriptions":["web"]}`, check, ns, check)
		if a := s.do(http.MethodPut, core+"namespaces/"+ns+"/checks/"+check, body); a.status >= 300 {
			t.Fatal(a)
		}
		for _, entity := range []string{"web1", "web2"} {
			ev := fmt.Sprintf(`{"entity":{"metadata":{"name":%q}},"check":{"metadata":{"name":%q,"labels":{"team":%q}},"interval":60}}`, entity, check, check)
			if a := s.do(http.MethodPut, core+"namespaces/"+ns+"/events/"+entity+"/"+check, ev); a.status >= 300 {
				t.Fatal(a)
			}
		}
	}
	list := func(path string, want ...string) (next string) {
		t.Helper()
		a := s.do(http.MethodGet, ours+"namespaces/"+path, "")
		var all []struct {
			Namespace, Entity, Check string
			Overdue                  int
			WithoutAgent             []string `json:"without_agent"`
		}
		if err := json.Unmarshal([]byte(a.body), &all); err != nil || a.status != http.StatusOK {
			t.Fatalf("%s: %d %s: %v", path, a.status, a.body, err)
		}
		got := []string{}
		for _, l := range all {
			got = append(got, fmt.Sprintf("%s/%s/%s %d %v", l.Namespace, l.Entity, l.Check, l.Overdue, l.WithoutAgent))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
		return a.header.Get("Sensu-Continue")
	}
	list("default/checks/lateness", "default//cpu 3 [web]", "default//disk 3 [web]", "default//mem 3 [web]")
	list("-/checks/lateness?fieldSelector=check.name==cpu", "default//cpu 3 [web]", "dev//cpu 3 [web]")
	next := list("default/checks/lateness?limit=2", "default//cpu 3 [web]", "default//disk 3 [web]")
	list("default/checks/lateness?limit=2&continue="+next, "default//mem 3 [web]")
	list("default/events/lateness", "default/web1/cpu 2 []", "default/web1/disk 2 []", "default/web1/mem 2 []")
	list("-/events/lateness?labelSelector=team==cpu", "default/web1/cpu 2 []", "dev/web1/cpu 2 []")
	next = list("default/events/lateness?limit=1", "default/web1/cpu 2 []")
	list("default/events/lateness?limit=5&continue="+next, "default/web1/disk 2 []", "default/web1/mem 2 []")
	for path, want := range map[string]int{
		"default/checks/disk/lateness": 200, "default/checks/none/lateness": 404, "default/events/web1/disk/lateness": 200,
		"default/events/web3/disk/lateness": 404, "default/checks/lateness?fieldSelector=(": 400, "default/events/lateness?labelSelector=(": 400,
	} {
		if a := s.do(http.MethodGet, ours+"namespaces/"+path, ""); a.status != want {
			t.Errorf("%s: %d %s, want %d", path, a.status, a.body, want)
		}
	}

	// A role that is limited by labels reaches neither other checks nor other events.
	s.grant("disks", "default", resource.Rule{Verbs: []string{"*"}, Resources: []string{"checks", "events"}, LabelSelector: "team == disk"})
	s.token = s.user("ann", "disks")
	list("default/checks/lateness", "default//disk 3 [web]")
	list("default/events/lateness", "default/web1/disk 2 []")
	for path, want := range map[string]int{
		"default/checks/disk/lateness": 200, "default/checks/cpu/lateness": 404, "default/events/web1/disk/lateness": 200,
		"default/events/web1/cpu/lateness": 404, "dev/checks/lateness": 403,
	} {
		if a := s.do(http.MethodGet, ours+"namespaces/"+path, ""); a.status != want {
			t.Errorf("as ann %s: %d %s, want %d", path, a.status, a.body, want)
		}
	}
}

// TestNeverLate: an API without lateness answers, and nothing is late.
func TestNeverLate(t *testing.T) {
	s := newServer(t, nil)
	c := &resource.CheckConfig{Metadata: resource.ObjectMeta{Namespace: "default", Name: "cpu"}, Command: "true", Interval: 60}
	if err := config.Put(t.Context(), s.store, config.Checks, c); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"checks/lateness": `[{"namespace":"default","check":"cpu","last_run":0,"overdue":0,"since":0,"without_agent":[],"summary":""}]`, "events/lateness": `[]`,
	} {
		if a := s.do(http.MethodGet, ours+"namespaces/default/"+path, ""); a.body != want {
			t.Errorf("%s: %s", path, a.body)
		}
	}
}
