package test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// twoTeams has one failing host for each of the teams red and blue, and a user red with full rights to objects with
// red's label.
func twoTeams(t *testing.T, b *testbackend.Backend) (red *client.Client) {
	t.Helper()
	for _, name := range []string{"red1", "blue1"} {
		put(t, b, client.Entities, name, &resource.Entity{
			EntityClass: "proxy",
			Metadata:    resource.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"team": strings.TrimSuffix(name, "1")}},
		})
		result(t, b, name, "disk", 2)
	}
	return signedIn(t, b, "red", resource.Rule{Verbs: []string{"*"}, Resources: []string{"*"}, LabelSelector: "team == red"})
}

func ofRed(name string) resource.ObjectMeta {
	return resource.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"team": "red"}}
}

// lookAround is a mutator that returns all that it can look up.
const lookAround = `
	var one = "none";
	try { one = sensu.FetchEvent("blue1", "disk").entity.name; } catch (e) {}
	return one + " " + sensu.ListEvents().map(function (ev) { return ev.entity.name; }).sort().join();`

// TestScriptsReadForTheirAuthors has a user who may only see the events of one team write scripts that look up those of
// the other, in each way in which a definition can be written.
func TestScriptsReadForTheirAuthors(t *testing.T) {
	b := testbackend.Start(t, nil)
	red := twoTeams(t, b)
	handler := func(mutator string, filters ...string) {
		t.Helper()
		put(t, b, client.Handlers, "spy", &resource.Handler{
			Metadata: ofRed("spy"), Type: "tcp", Socket: &resource.HandlerSocket{Host: "127.0.0.1", Port: 1}, Mutator: mutator, Filters: filters,
		})
	}
	ev := testbackend.Event("red1", "disk", 2, time.Now().Unix())
	ev.Check.Handlers = []string{"spy"}
	simulated := func(c *client.Client, draft string) string {
		t.Helper()
		body := map[string]any{"event": ev}
		if draft != "" {
			body["mutators"] = json.RawMessage(draft)
		}
		var out json.RawMessage
		if err := c.Do(t.Context(), http.MethodPost, "/api/lapwing/v1/namespaces/default/pipelines/simulate", body, &out); err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	tells := func(step, want string) {
		t.Helper()
		if got := simulated(b.Client, ""); !strings.Contains(got, want) {
			t.Errorf("%s: want %q in %s", step, want, got)
		}
	}
	const own, all = `"none red1"`, `"blue1 blue1,red1"`

	spy := &resource.Mutator{Metadata: ofRed("spy"), Type: "javascript", Eval: lookAround}
	handler("spy")
	if err := client.Put(t.Context(), red, client.Mutators, "default", "spy", spy); err != nil {
		t.Fatal(err)
	}
	tells("PUT by red", own)
	put(t, b, client.Mutators, "spy", spy)
	tells("the same by the administrator", own) // a write without a change, so it stays red's
	spy.Timeout = 1
	put(t, b, client.Mutators, "spy", spy)
	tells("a change by the administrator", all)
	patch := func(body string) {
		t.Helper()
		if err := client.Patch(t.Context(), red, client.Mutators, "default", "spy", json.RawMessage(body)); err != nil {
			t.Fatal(err)
		}
	}
	patch(`{"metadata":{"annotations":{"a":"b"}}}`)
	tells("a change of annotations by red", all)
	patch(`{"timeout":2,"author":{"user":"` + testbackend.User + `"}}`)
	tells("PATCH by red", own)
	var shown json.RawMessage
	err := b.Client.Do(t.Context(), http.MethodGet, "/api/core/v2/namespaces/default/mutators/spy", nil, &shown)
	if err != nil || strings.Contains(string(shown), "author") {
		t.Errorf("Sensu's clients are shown %s, %v", shown, err)
	}
	spy.Metadata.Name = "posted"
	if err := red.Do(t.Context(), http.MethodPost, "/api/core/v2/namespaces/default/mutators", spy, nil); err != nil {
		t.Fatal(err)
	}
	handler("posted")
	tells("POST by red", own)

	filter := &resource.EventFilter{Metadata: ofRed("spy"), Action: "allow", Expressions: []string{"sensu.ListEvents().length == 2"}}
	if err := client.Put(t.Context(), red, client.Filters, "default", "spy", filter); err != nil {
		t.Fatal(err)
	}
	handler("", "spy")
	tells("a filter of red's", `"a list of 1"`)

	// A draft runs with the rights of the user who sends it.
	drafter := signedIn(t, b, "drafter", resource.Rule{Verbs: []string{"*"}, Resources: []string{"mutators", "filters"}},
		resource.Rule{Verbs: []string{"*"}, Resources: []string{"events"}, LabelSelector: "team == red"})
	ev.Entity.Metadata.Labels = map[string]string{"team": "red"}
	handler("draft")
	draft, err := json.Marshal([]*resource.Mutator{{
		Metadata: ofRed("draft"), Type: "javascript", Eval: lookAround, Author: &resource.Author{User: testbackend.User},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got := simulated(drafter, string(draft)); !strings.Contains(got, own) {
		t.Errorf("a draft tells %s", got)
	}

	// Lost rights are lost for definitions that were written with them.
	handler("posted")
	put(t, b, client.Roles, "red", &resource.Role{
		Metadata: resource.ObjectMeta{Namespace: "default", Name: "red"}, Rules: []resource.Rule{{Verbs: []string{"*"}, Resources: []string{"mutators"}}},
	})
	tells("without the right", "may not list events")
}

// TestSilencesStayWithTheirTeam has a user whose role is limited to one team silence everything.
func TestSilencesStayWithTheirTeam(t *testing.T) {
	b := testbackend.Start(t, nil)
	red := twoTeams(t, b)
	silencedBy := func(entity string) string {
		t.Helper()
		result(t, b, entity, "disk", 2)
		ev, err := client.Get(t.Context(), b.Client, client.Events, "default", client.EventName(entity, "disk"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(ev.Check.Silenced, " ")
	}
	for _, tc := range []struct {
		silence   resource.Silenced
		ofRedHost bool
	}{
		{resource.Silenced{Metadata: ofRed("entity:blue1:*"), Subscription: "entity:blue1", Check: "*"}, false},
		{resource.Silenced{Metadata: ofRed("entity:red1:disk"), Subscription: "entity:red1", Check: "disk"}, true},
		{resource.Silenced{Metadata: ofRed("*:disk"), Subscription: "*", Check: "disk"}, true},
		{resource.Silenced{Metadata: ofRed("selecting"), FieldSelector: "event.check.name == disk"}, true},
		{resource.Silenced{
			Metadata: ofRed("windows"), FieldSelector: "event.check.name == disk", Begin: time.Now().Add(-3 * time.Hour).Unix(),
			Windows: []resource.SilenceWindow{{Cron: "0 * * * *", Duration: 7200}},
		}, true},
		// red may not set it
		{resource.Silenced{Metadata: ofRed("lifted"), FieldSelector: "event.check.name == disk", LimitedTo: []string{"team"}}, true},
	} {
		name := tc.silence.Metadata.Name
		if err := client.Put(t.Context(), red, client.Silences, "default", name, &tc.silence); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := silencedBy("blue1"); got != "" {
			t.Errorf("%s of red's silences blue1: %s", name, got)
		}
		if got := silencedBy("red1"); (got == name) != tc.ofRedHost {
			t.Errorf("%s: red1 is silenced by %q", name, got)
		}
		if err := client.Delete(t.Context(), red, client.Silences, "default", name); err != nil {
			t.Fatal(err)
		}
	}
	// Those of the administrator apply to all, or to what they select.
	put(t, b, client.Silences, "*:disk", &resource.Silenced{Metadata: ofRed("*:disk"), Subscription: "*", Check: "disk"})
	if silencedBy("blue1") != "*:disk" || silencedBy("red1") != "*:disk" {
		t.Error("the administrator's silence does not act")
	}
	put(t, b, client.Silences, "*:disk", &resource.Silenced{
		Metadata: ofRed("*:disk"), Subscription: "*", Check: "disk", LimitedTo: []string{"team == blue"},
	})
	if silencedBy("blue1") != "*:disk" || silencedBy("red1") != "" {
		t.Error("the administrator's silence is not limited as it says")
	}
}

// TestChecksStayWithTheirTeam has a user whose role is limited to one team write checks for a host of the other.
func TestChecksStayWithTheirTeam(t *testing.T) {
	b := testbackend.Start(t, nil)
	red := twoTeams(t, b)
	check := func(proxy string, subscriptions ...string) *resource.CheckConfig {
		return &resource.CheckConfig{
			Metadata: ofRed("c"), Command: "id", Interval: 60, Subscriptions: subscriptions, ProxyEntityName: proxy, Handlers: []string{},
		}
	}
	write := func(c *resource.CheckConfig) error {
		return client.Put(t.Context(), red, client.Checks, "default", "c", c)
	}
	for _, c := range []*resource.CheckConfig{check("", "entity:blue1"), check("", "linux", "entity:unknown"), check("blue1", "linux")} {
		if err := write(c); err == nil || !strings.Contains(err.Error(), "that your role does not reach") {
			t.Errorf("a check for %v and %q: %v", c.Subscriptions, c.ProxyEntityName, err)
		}
	}
	for _, c := range []*resource.CheckConfig{check("", "entity:red1"), check("red1", "linux"), check("new", "linux")} {
		if err := write(c); err != nil {
			t.Errorf("a check for %v and %q: %v", c.Subscriptions, c.ProxyEntityName, err)
		}
	}
	patch := func(body string) error {
		return client.Patch(t.Context(), red, client.Checks, "default", "c", json.RawMessage(body))
	}
	if err := patch(`{"subscriptions":["entity:blue1"]}`); err == nil {
		t.Error("PATCH adds the subscription of blue1")
	}
	execute := func(body string) error {
		return red.Do(t.Context(), http.MethodPost, "/api/core/v2/namespaces/default/checks/c/execute", json.RawMessage(body), nil)
	}
	if err := execute(`{"subscriptions":["entity:blue1"]}`); err == nil {
		t.Error("red has the check executed on blue1")
	}
	// Red may edit what the administrator has written.
	put(t, b, client.Checks, "c", check("blue1", "entity:blue1"))
	if err := patch(`{"interval":30}`); err != nil {
		t.Error(err)
	}
}

// TestAgentsSubscribeForThemselves has an agent subscribe to another one's requests.
func TestAgentsSubscribeForThemselves(t *testing.T) {
	b := testbackend.Start(t, nil)
	q := requestOfThief(t, b)
	if q.Config.Metadata.Name != "general" {
		t.Errorf("the thief is asked to run %s", q.Config.Metadata.Name)
	}
	e, err := client.Get(t.Context(), b.Client, client.Entities, "default", "thief")
	if err != nil || strings.Join(e.Subscriptions, " ") != "linux entity:thief" {
		t.Errorf("the thief has the subscriptions %v, %v", e.Subscriptions, err)
	}
}

// requestOfThief returns the first request for an agent which subscribes to linux, to all and to a victim's requests,
// after a check for the victim was due and before one for linux is.
func requestOfThief(t *testing.T, b *testbackend.Backend) *resource.CheckRequest {
	t.Helper()
	thief, _ := b.DialAgent(t, "thief", nil)
	ev := testbackend.Event("thief", "keepalive", 0, time.Now().Unix())
	ev.Entity.EntityClass, ev.Entity.Subscriptions = "agent", []string{"linux", "*", "entity:victim"}
	frame, err := wire.Append(nil, wire.TypeKeepalive, wire.Protobuf, ev)
	if err != nil {
		t.Fatal(err)
	}
	if err := thief.Write(frame); err != nil {
		t.Fatal(err)
	}
	eventually(t, 60*time.Second, "the thief is registered", func() bool {
		_, err := client.Get(t.Context(), b.Client, client.Entities, "default", "thief")
		return err == nil
	})
	execute := func(name, subscription string) (warnings []string) {
		t.Helper()
		put(t, b, client.Checks, name, &resource.CheckConfig{
			Metadata: resource.ObjectMeta{Namespace: "default", Name: name}, Command: "id", Interval: 3600,
			Subscriptions: []string{subscription}, Handlers: []string{},
		})
		header, err := b.Client.Exchange(t.Context(), http.MethodPost, "/api/core/v2/namespaces/default/checks/"+name+"/execute", struct{}{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return client.Warnings(header)
	}
	// The session learns its subscriptions a moment after the entity is stored.
	eventually(t, 60*time.Second, "the session has its subscriptions", func() bool { return execute("ready", "entity:thief") == nil })
	execute("for-victim", "entity:victim")
	execute("general", "linux")
	for {
		if q := nextRequest(t, thief); q.Config.Metadata.Name != "ready" {
			return q
		}
	}
}

// TestNamesOfAllStayWithAll has a user whose role is limited to one team define names that affect the whole namespace.
func TestNamesOfAllStayWithAll(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, nil)
	red := twoTeams(t, b)
	filter := func(name string) error {
		return client.Post(t.Context(), red, client.Filters, "default", &resource.EventFilter{
			Metadata: ofRed(name), Action: "allow", Expressions: []string{"false"},
		})
	}
	handler := func(name string) error {
		return client.Put(t.Context(), red, client.Handlers, "default", name, &resource.Handler{
			Metadata: ofRed(name), Type: "tcp", Socket: &resource.HandlerSocket{Host: "127.0.0.1", Port: 1},
		})
	}
	for name, define := range map[string]func(string) error{
		"fatigue_check": filter, "allow_list": filter, "not_silenced": filter, "keepalive": handler, "registration": handler, "lapwing": handler,
	} {
		if err := define(name); err == nil || !strings.Contains(err.Error(), "stands for all of the namespace") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := filter("red-only"); err != nil {
		t.Error(err)
	}
	if err := handler("red-only"); err != nil {
		t.Error(err)
	}
}

// TestAggregatesSetNothingForOthers has a user whose role is limited to one team make an aggregate with a result for a
// host of the other.
func TestAggregatesSetNothingForOthers(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, nil)
	red := twoTeams(t, b)
	aggregate := func(name, entity string) {
		t.Helper()
		err := client.Put(t.Context(), red, client.Aggregates, "default", name, &resource.Aggregate{
			Metadata: ofRed(name), FieldSelector: "event.check.name == disk", Critical: &resource.AggregateThreshold{Count: 1}, Interval: 1,
			Result: resource.ComputedResult{Entity: entity, Check: name, Labels: map[string]string{"team": "red"}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	has := func(entity, check string) bool {
		_, err := client.Get(t.Context(), b.Client, client.Events, "default", client.EventName(entity, check))
		return err == nil
	}
	aggregate("foreign", "blue1")
	eventually(t, 60*time.Second, "the aggregate was evaluated", func() bool { return b.Counter(t, "lapwing_aggregate_evaluations_total") > 0 })
	aggregate("own", "red1")
	eventually(t, 60*time.Second, "red's own host has the result", func() bool { return has("red1", "own") })
	if has("blue1", "foreign") {
		t.Error("red has a result for a host of blue")
	}
}
