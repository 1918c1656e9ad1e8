package queue

import (
	"maps"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestAgentsOf: agents of all members count, each once, by their subscriptions and their own one.
func TestAgentsOf(t *testing.T) {
	here, there := newPresence("a", "1"), newPresence("b", "1")
	name := func(n string) resource.Name { return resource.Name{Namespace: "default", Name: n} }
	here.Connected(name("srv1"), []string{"linux", "db"})
	here.Connected(resource.Name{Namespace: "other", Name: "srv9"}, []string{"linux"})
	there.Connected(name("srv2"), []string{"linux", "entity:srv2"})
	if err := here.take(there.copy()); err != nil {
		t.Fatal(err)
	}
	for subscriptions, want := range map[string]string{
		"linux": "srv1 srv2", "db": "srv1", "linux db": "srv1 srv2", "entity:srv1": "srv1", "entity:srv2": "srv2", "entity:srv3": "", "none": "",
	} {
		if got := strings.Join(here.AgentsOf("default", strings.Fields(subscriptions)), " "); got != want {
			t.Errorf("%s: %s, want %s", subscriptions, got, want)
		}
	}
	if got := here.Counts("default"); !maps.Equal(got, map[string]int{"linux": 2, "db": 1}) {
		t.Errorf("counts %v", got)
	}
	here.Gone(name("srv1"))
	if got := here.AgentsOf("default", []string{"linux", "entity:srv1"}); strings.Join(got, " ") != "srv2" || here.IsConnected(name("srv1")) || !here.IsConnected(name("srv2")) {
		t.Errorf("afterwards %v", got)
	}
}
