package workflow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/internal/testconfig"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// merger has the definitions for its workflows.
type merger struct {
	workflows *Workflows
	config    *config.Store
}

func newMerger(t *testing.T) *merger {
	t.Helper()
	store := testconfig.Store(t)
	return &merger{&Workflows{opts: Options{Config: store.Snapshot}}, store}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// member returns an event of a group: entity/check and its status.
func member(pair string, status uint32, labels ...string) *resource.Event {
	entity, check, _ := strings.Cut(pair, "/")
	ev := &resource.Event{
		Timestamp: 100, ID: resource.NewEventID(),
		Entity: &resource.Entity{
			EntityClass: "agent",
			Metadata:    resource.ObjectMeta{Namespace: "default", Name: entity, Labels: map[string]string{}},
		},
		Check: &resource.Check{
			Metadata: resource.ObjectMeta{Namespace: "default", Name: check}, Interval: 20, Status: status, Executed: 100, LastOK: 40,
			Handlers: []string{"slack"}, Occurrences: 1, OccurrencesWatermark: 1, Output: "output of " + pair + "\nand more",
			History: []resource.CheckHistory{{Status: 0}, {Status: status}},
		},
	}
	for i := 0; i+1 < len(labels); i += 2 {
		ev.Entity.Metadata.Labels[labels[i]] = labels[i+1]
	}
	return ev
}

func TestMerge(t *testing.T) {
	b := newMerger(t)
	for name, by := range map[string][]string{"rack": {"entity.labels.rack", "check.name"}, "all": nil, "entity": {"event.entity.name"}} {
		h := &resource.Handler{
			Metadata: resource.ObjectMeta{Namespace: "default", Name: name}, Type: "pipe", Command: "cat",
			Group: &resource.HandlerGroup{By: by},
		}
		check(t, config.Put(t.Context(), b.config, config.Handlers, h))
	}
	for _, tc := range []struct {
		name, handler string
		events        []*resource.Event
		entity, check string
		status        uint32
		output        string // first line
	}{
		{
			"keepalives of a rack", "rack",
			[]*resource.Event{
				member("a/keepalive", 1, "rack", "rack 17"), member("b/keepalive", 2, "rack", "rack 17"),
				member("c/keepalive", 1, "rack", "rack 17"),
			},
			"rack_17", "keepalive", 2, "rack 17: 3 keepalives failing (1 critical, 2 warning)",
		},
		{
			"one check everywhere", "all", []*resource.Event{member("a/disk", 3), member("b/disk", 1)},
			"several", "several", 3, "2 disk checks failing (1 unknown, 1 warning)",
		},
		{
			"several checks of an entity", "entity", []*resource.Event{member("a/disk", 2), member("a/cpu", 2)},
			"a", "several", 2, "a: 2 checks of a failing (2 critical)",
		},
		{
			"anything", "all", []*resource.Event{member("a/disk", 2), member("a/cpu", 127), member("b/cpu", 0)},
			"several", "several", 2, "2 checks of 2 entities failing (1 critical, 1 status 127), 1 resolved",
		},
		{
			"resolutions", "rack", []*resource.Event{member("a/keepalive", 0, "rack", "r"), member("b/keepalive", 0, "rack", "r")},
			"r", "keepalive", 0, "r: 2 keepalives resolved",
		},
		{
			"one alone", "rack", []*resource.Event{member("a/keepalive", 1, "rack", "r")}, "r", "keepalive", 1,
			"r: 1 keepalive failing (1 warning)",
		},
		{
			"no handler any more", "gone", []*resource.Event{member("a/x", 1), member("b/x", 1)}, "several",
			"several", 1, "2 x checks failing (2 warning)",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dl := &delivery.Delivery{Header: delivery.Header{ID: "0-1-0/h", Namespace: "default", Handler: tc.handler}}
			ev := b.workflows.Merge(dl, "key", tc.events)
			first, _, _ := strings.Cut(ev.Check.Output, "\n")
			if first != tc.output {
				t.Errorf("output is %q, want %q", first, tc.output)
			}
			if ev.Entity.Metadata.Name != tc.entity || ev.Check.Metadata.Name != tc.check || ev.Check.Status != tc.status {
				t.Errorf("it is %s/%s with status %d", ev.Entity.Metadata.Name, ev.Check.Metadata.Name, ev.Check.Status)
			}
			if err := ev.Validate(); err != nil {
				t.Errorf("it is no valid event: %v", err)
			}
			if ev.IsIncident() != (tc.status != 0) || ev.IsResolution() != (tc.status == 0) {
				t.Errorf("incident %v, resolution %v", ev.IsIncident(), ev.IsResolution())
			}
			if !slices.Equal(ev.Check.Handlers, []string{"slack"}) {
				t.Errorf("handlers %q", ev.Check.Handlers)
			}
			var list []MergedMember
			if err := json.Unmarshal([]byte(ev.Metadata.Annotations[MergedAnnotation]), &list); err != nil || len(list) != len(tc.events) {
				t.Errorf("the list of members is %v, %v", list, err)
			}
			if n := ev.Metadata.Annotations[MergedCountAnnotation]; n != fmt.Sprint(len(tc.events)) {
				t.Errorf("it counts %s members", n)
			}
			slices.Reverse(tc.events)
			again := b.workflows.Merge(dl, "key", tc.events)
			if got, want := encoded(t, again), encoded(t, ev); got != want {
				t.Errorf("the same members in another order are another event:\n%s\n%s", got, want)
			}
		})
	}
}

func encoded(t *testing.T, ev *resource.Event) string {
	t.Helper()
	text, err := json.Marshal(ev)
	check(t, err)
	return string(text)
}

// TestMergeKeepsWhatIsCommon: members have labels of their own, and one redacts a label.
func TestMergeKeepsWhatIsCommon(t *testing.T) {
	b := newMerger(t)
	one, two := member("a/disk", 1, "site", "x", "role", "db", "token", "s"), member("b/disk", 1, "site", "x", "role", "web", "token", "s")
	one.Entity.Redact, two.Entity.Redact = []string{"token"}, []string{"token"}
	two.Check.Handlers = []string{"slack", "mail"}
	two.Check.Occurrences, two.Check.OccurrencesWatermark, two.Check.LastOK = 5, 5, 20
	ev := b.workflows.Merge(&delivery.Delivery{Header: delivery.Header{ID: "x", Namespace: "default", Handler: "h"}},
		"", []*resource.Event{one, two, nil, {}})
	if got := fmt.Sprint(ev.Entity.Metadata.Labels); got != "map[site:x]" {
		t.Errorf("labels are %s", got)
	}
	if ev.Check.Handlers != nil || ev.Check.Occurrences != 1 || ev.Check.OccurrencesWatermark != 5 || ev.Check.LastOK != 20 {
		t.Errorf("check is %+v", ev.Check)
	}
	if one.Entity.Metadata.Labels["token"] != "s" {
		t.Error("a member was changed")
	}
	if ev := b.workflows.Merge(&delivery.Delivery{}, "", []*resource.Event{nil}); ev.Check != nil || ev.Entity != nil {
		t.Errorf("of nothing it makes %v", ev)
	}
}

// TestMergeOfAFleet: the merged event of 10,000 members stays within bounds.
func TestMergeOfAFleet(t *testing.T) {
	b := newMerger(t)
	var events []*resource.Event
	for i := range 10_000 {
		ev := member(fmt.Sprintf("host-%05d/keepalive", i), 1)
		ev.Check.Output = strings.Repeat("ü", 1000)
		events = append(events, ev)
	}
	ev := b.workflows.Merge(&delivery.Delivery{Header: delivery.Header{ID: "x", Namespace: "default", Handler: "h"}}, "", events)
	if !strings.HasPrefix(ev.Check.Output, "10000 keepalives failing (10000 warning)\n") ||
		!strings.HasSuffix(ev.Check.Output, "\nand 9980 more\n") {
		t.Errorf("output is %q", ev.Check.Output)
	}
	if n := len(ev.Check.Output); n > 5000 {
		t.Errorf("output has %d bytes", n)
	}
	var list []MergedMember
	check(t, json.Unmarshal([]byte(ev.Metadata.Annotations[MergedAnnotation]), &list))
	if left := ev.Metadata.Annotations[MergedLeftOutAnnotation]; len(list) != 10_000 || left != "" {
		t.Errorf("%d members are in the list, %s left out", len(list), left)
	}
	for i := range events {
		events[i].Entity.Metadata.Name += strings.Repeat("x", 100)
	}
	ev = b.workflows.Merge(&delivery.Delivery{Header: delivery.Header{ID: "x", Namespace: "default", Handler: "h"}}, "", events)
	check(t, json.Unmarshal([]byte(ev.Metadata.Annotations[MergedAnnotation]), &list))
	if left := ev.Metadata.Annotations[MergedLeftOutAnnotation]; left != fmt.Sprint(10_000-len(list)) || len(list) < 5000 {
		t.Errorf("%d members are in the list, %s left out", len(list), left)
	}
}
