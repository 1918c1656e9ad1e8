package config

import (
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestKindsAreStored fails for a row of resource.Kinds without a kind here.
func TestKindsAreStored(t *testing.T) {
	for _, k := range resource.Kinds {
		stored := kindByName(k.Role) >= 0
		if k.Type == "Event" { // events are in the log
			if stored {
				t.Error("events are stored as definitions")
			}
			continue
		}
		if !stored {
			t.Errorf("%s is not stored", k.FullName())
		}
	}
	taken := map[string]bool{}
	for _, name := range KindNames() {
		if taken[name] {
			t.Errorf("%s is stored twice", name)
		}
		taken[name] = true
	}
}

// TestAnyKind finds objects by the row of their kind alone.
func TestAnyKind(t *testing.T) {
	row := resource.KindFor[resource.CheckConfig]()
	sn := Empty()
	check := &resource.CheckConfig{Metadata: resource.ObjectMeta{Namespace: "default", Name: "disk"}}
	sn.trees[Checks.id], _, _ = sn.trees[Checks.id].Insert(treeKey("default", "disk"), check)
	n := 0
	for obj := range ListAny(sn, row, "default") {
		if n++; obj != any(check) {
			t.Errorf("found %v", obj)
		}
	}
	if n != 1 || !HasAny(sn, row, "default", "disk") || HasAny(sn, row, "default", "cpu") {
		t.Errorf("found %d checks", n)
	}
	for range ListAny(sn, resource.KindFor[resource.Event](), "") {
		t.Error("there are events in the store of definitions")
	}
}
