package resource

import (
	"reflect"
	"testing"
)

func TestEventPredicates(t *testing.T) {
	history := func(statuses ...uint32) []CheckHistory {
		var h []CheckHistory
		for _, s := range statuses {
			h = append(h, CheckHistory{Status: s})
		}
		return h
	}
	tests := []struct {
		name                           string
		e                              Event
		incident, resolution, silenced bool
	}{
		{"empty", Event{}, false, false, false},
		{"ok", Event{Check: &Check{History: history(0, 0)}}, false, false, false},
		{"first ok", Event{Check: &Check{History: history(0)}}, false, false, false},
		{"failing", Event{Check: &Check{Status: 1, History: history(1, 1)}}, true, false, false},
		{"resolved", Event{Check: &Check{History: history(0, 2, 0)}}, false, true, false},
		{"silenced", Event{Check: &Check{Status: 3, Silenced: []string{"*:c"}}}, true, false, true},
	}
	for _, tt := range tests {
		if got := tt.e.IsIncident(); got != tt.incident {
			t.Errorf("%s: IsIncident %v", tt.name, got)
		}
		if got := tt.e.IsResolution(); got != tt.resolution {
			t.Errorf("%s: IsResolution %v", tt.name, got)
		}
		if got := tt.e.IsSilenced(); got != tt.silenced {
			t.Errorf("%s: IsSilenced %v", tt.name, got)
		}
	}
}

func TestEntityHalves(t *testing.T) {
	var e Entity
	fill(reflect.ValueOf(&e).Elem(), new(int))
	e.DependsOn = []string{"router/"}
	e.ExtendedAttributes = nil // belongs to neither half
	if got := JoinEntity(EntityConfigOf(&e), EntityStateOf(&e)); !reflect.DeepEqual(got, &e) {
		t.Errorf("got %+v\nwant %+v", got, &e)
	}
	got := JoinEntity(EntityConfigOf(&e), nil)
	if got.Metadata.Name != e.Metadata.Name || got.LastSeen != 0 || got.SensuAgentVersion != "" {
		t.Errorf("without state: %+v", got)
	}
}

func TestAddEntitySubscription(t *testing.T) {
	array := [3]string{"a", "b", "c"}
	got := AddEntitySubscription(array[:2], "web")
	if want := []string{"a", "b", "entity:web"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q", got)
	}
	if array[2] != "c" {
		t.Error("the argument's array changed")
	}
	if again := AddEntitySubscription(got, "web"); len(again) != 3 {
		t.Errorf("added twice: %q", again)
	}
}

func TestNewEventID(t *testing.T) {
	a, b := NewEventID(), NewEventID()
	if len(a) != 16 || reflect.DeepEqual(a, b) {
		t.Errorf("got %x and %x", a, b)
	}
}

func TestAssetVariable(t *testing.T) {
	for name, want := range map[string]string{
		"sensu/cpu-check": "SENSU_CPU_CHECK_PATH", "a": "A_PATH", "a..b": "A_B_PATH", "v1.2:x_y": "V1_2_X_Y_PATH", "a-": "A__PATH",
	} {
		if got := AssetVariable(name); got != want {
			t.Errorf("%s gives %s, want %s", name, got, want)
		}
	}
}
