package resource

import (
	"encoding/json"
	"hash/maphash"
	"reflect"
	"testing"
)

// traitsEvent returns an event as agents send it.
func traitsEvent() *Event {
	return &Event{
		Timestamp: 1_700_000_000,
		Metadata:  ObjectMeta{Labels: map[string]string{"a": "1", "b": "2", "c": "3"}},
		Check: &Check{
			Metadata: ObjectMeta{Name: "disk", Namespace: "default", Labels: map[string]string{"d": "4", "e": "5"}},
			Command:  "check-disk -w 80",
			Handlers: []string{"slack", "mail"}, RuntimeAssets: []string{"disk-asset"}, Subscriptions: []string{"linux", "db"},
			Pipelines: []ResourceReference{{Name: "p", Type: "Pipeline", APIVersion: "core/v2"}}, Publish: true, RoundRobin: true,
			Interval: 60, Subdues: []TimeWindowRepeated{{Begin: "2026-01-01T00:00:00Z", End: "2026-01-01T01:00:00Z", Repeat: []string{"daily"}}},
			Status: 1, Executed: 1_700_000_000, Issued: 1_700_000_000, Output: "80 % used", Duration: 0.25,
		},
	}
}

func TestTraits(t *testing.T) {
	seed := maphash.MakeSeed()
	sum := func(ev *Event) uint64 {
		view, err := PeekTraits(seed, ev.AppendProto(nil))
		if err != nil || view.Timestamp != ev.Timestamp {
			t.Fatalf("timestamp %d, %v", view.Timestamp, err)
		}
		return view.Sum
	}
	want := sum(traitsEvent())
	for range 50 { // maps are encoded in any order
		if got := sum(traitsEvent()); got != want {
			t.Fatal("the same traits have two sums")
		}
	}
	for name, change := range map[string]func(*Event){
		"timestamp": func(ev *Event) { ev.Timestamp = 5 },
		"result": func(ev *Event) {
			ev.Check.Status, ev.Check.Output, ev.Check.Executed, ev.Check.Duration = 2, "", 5, 0
		},
		"silences":    func(ev *Event) { ev.Check.Silenced, ev.Check.IsSilenced = []string{"x"}, true },
		"id":          func(ev *Event) { ev.ID = NewEventID() },
		"annotations": func(ev *Event) { ev.Check.Metadata.Annotations = map[string]string{"a": "b"} },
	} {
		ev := traitsEvent()
		change(ev)
		if sum(ev) != want {
			t.Errorf("another %s counts as other traits", name)
		}
	}
	for name, change := range map[string]func(*Event){
		"handler":            func(ev *Event) { ev.Check.Handlers[1] = "pager" },
		"no handler":         func(ev *Event) { ev.Check.Handlers = nil },
		"order":              func(ev *Event) { ev.Check.Handlers = []string{"mail", "slack"} },
		"moved":              func(ev *Event) { ev.Check.Handlers, ev.Check.Subscriptions = ev.Check.Subscriptions, ev.Check.Handlers },
		"subscriptions":      func(ev *Event) { ev.Check.Subscriptions = ev.Check.Subscriptions[:1] },
		"assets":             func(ev *Event) { ev.Check.RuntimeAssets[0] = "x" },
		"pipelines":          func(ev *Event) { ev.Check.Pipelines[0].Name = "x" },
		"publish":            func(ev *Event) { ev.Check.Publish = false },
		"round_robin":        func(ev *Event) { ev.Check.RoundRobin = false },
		"named entity":       func(ev *Event) { ev.Check.ProxyEntityName = "router" },
		"check label":        func(ev *Event) { ev.Check.Metadata.Labels["d"] = "x" },
		"event label":        func(ev *Event) { ev.Metadata.Labels["a"] = "x" },
		"label gone":         func(ev *Event) { delete(ev.Metadata.Labels, "a") },
		"labels swapped":     func(ev *Event) { ev.Metadata.Labels["a"], ev.Metadata.Labels["b"] = "2", "1" },
		"label of the other": func(ev *Event) { delete(ev.Metadata.Labels, "a"); ev.Check.Metadata.Labels["a"] = "1" },
		"no check":           func(ev *Event) { ev.Check = nil },
		"interval":           func(ev *Event) { ev.Check.Interval = 61 },
		"cron":               func(ev *Event) { ev.Check.Cron = "* * * * *" },
		"timeout":            func(ev *Event) { ev.Check.Timeout = 60 },
		"interval, timeout":  func(ev *Event) { ev.Check.Interval, ev.Check.Timeout = 0, 60 },
		"subdues":            func(ev *Event) { ev.Check.Subdues[0].Repeat[0] = "weekly" },
		"no subdues":         func(ev *Event) { ev.Check.Subdues = nil },
	} {
		ev := traitsEvent()
		change(ev)
		if sum(ev) == want {
			t.Errorf("%s: other traits have the same sum", name)
		}
	}
	ev := traitsEvent()
	got, err := TraitsOf(ev.AppendProto(nil))
	if err != nil || !reflect.DeepEqual(got, &Traits{
		Handlers: ev.Check.Handlers, RuntimeAssets: ev.Check.RuntimeAssets, Subscriptions: ev.Check.Subscriptions, Pipelines: []string{"p"},
		Publish: true, RoundRobin: true, CheckLabels: ev.Check.Metadata.Labels, EventLabels: ev.Metadata.Labels,
		Interval: 60, Subdues: ev.Check.Subdues,
	}) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := PeekTraits(seed, []byte{0x1a, 5, 1}); err == nil {
		t.Error("traits of an event that is cut short")
	}
}

// TestRan tells the result of a run from an event that a user sent, or that the backend made.
func TestRan(t *testing.T) {
	f := func(name string, want bool, change func(*Event)) {
		t.Helper()
		ev := traitsEvent()
		change(ev)
		if view, err := PeekTraits(maphash.MakeSeed(), ev.AppendProto(nil)); err != nil || view.Ran != want {
			t.Errorf("%s: ran is %v, want %v (%v)", name, view.Ran, want, err)
		}
	}
	f("a result", true, func(*Event) {})
	f("the check's author is no sender", true, func(ev *Event) { ev.Check.Metadata.CreatedBy = "ann" })
	f("sent by a user", false, func(ev *Event) { ev.Metadata.CreatedBy = "ann" })
	f("never issued", false, func(ev *Event) { ev.Check.Issued = 0 })
	f("metrics only", false, func(ev *Event) { ev.Check = nil })
}

func TestRedactsAsJSONDoes(t *testing.T) {
	labels := map[string]string{"API-Key": "v", "api_key": "v", "password": "v", "pass1": "v", "region": "v", "X-9": "v", "secret": "v"}
	for _, redact := range [][]string{nil, {"region"}, {"x", "Secret"}} {
		e := &Entity{Metadata: ObjectMeta{Labels: labels}, Redact: redact}
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var shown Entity
		if err := json.Unmarshal(b, &shown); err != nil {
			t.Fatal(err)
		}
		for key, v := range shown.Metadata.Labels {
			if e.Redacts(key) != (v == Redacted) || EntityConfigOf(e).Redacts(key) != (v == Redacted) {
				t.Errorf("redact %q: label %s is shown as %s, but Redacts says %v", redact, key, v, e.Redacts(key))
			}
		}
	}
}

func TestPlainIsTheSame(t *testing.T) {
	ev := traitsEvent()
	ev.Entity = &Entity{Metadata: ObjectMeta{Name: "<web>", Labels: map[string]string{"password": "p"}}}
	ev.ID = NewEventID()
	for _, v := range []any{ev, ev.Entity, &CheckConfig{}, User{Username: "u"}, &Event{ID: []byte("short")}} {
		want, wantErr := json.Marshal(v)
		got, err := json.Marshal(Plain(v))
		if string(got) != string(want) || (err == nil) != (wantErr == nil) {
			t.Errorf("%T: %s, %v; want %s, %v", v, got, err, want, wantErr)
		}
	}
}

func BenchmarkPeekTraits(b *testing.B) {
	seed, body := maphash.MakeSeed(), traitsEvent().AppendProto(nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := PeekTraits(seed, body); err != nil {
			b.Fatal(err)
		}
	}
}
