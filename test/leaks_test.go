package test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

const teamPassword = "a-password-1"

// signedIn is a client of a new user with a role of the default namespace with the given rules.
func signedIn(t *testing.T, b *testbackend.Backend, name string, rules ...resource.Rule) *client.Client {
	t.Helper()
	meta := resource.ObjectMeta{Namespace: "default", Name: name}
	put(t, b, client.Roles, name, &resource.Role{Metadata: meta, Rules: rules})
	put(t, b, client.RoleBindings, name, &resource.RoleBinding{
		Metadata: meta, RoleRef: resource.RoleRef{Type: "Role", Name: name}, Subjects: []resource.Subject{{Type: "User", Name: name}},
	})
	user := &resource.User{Username: name, Password: teamPassword}
	if err := client.Put(t.Context(), b.Client, client.Users, "", name, user); err != nil {
		t.Fatal(err)
	}
	return asUser(t, b, name, teamPassword)
}

func asUser(t *testing.T, b *testbackend.Backend, name, password string) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{URL: "http://" + b.APIAddr().String(), Username: name, Password: password})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// evaluation returns an aggregate's evaluation as a user gets it.
func evaluation(t *testing.T, c *client.Client, name string) (found []resource.AggregateEvaluation, err error) {
	t.Helper()
	err = c.Do(t.Context(), http.MethodGet, "/api/lapwing/v1/namespaces/default/aggregates/"+name+"/evaluation", nil, &found)
	return found, err
}

// TestAggregatesStayWithTheirAuthors has a user who may only see the events of one team make aggregates over those of
// the other, and read those that the administrator made.
func TestAggregatesStayWithTheirAuthors(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, nil)
	for _, name := range []string{"red1", "blue1"} {
		team := strings.TrimSuffix(name, "1")
		put(t, b, client.Entities, name, &resource.Entity{
			EntityClass: "proxy", Metadata: resource.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"team": team}},
		})
		result(t, b, name, "disk", 2)
	}
	all := []string{"*"}
	red := signedIn(t, b, "red", resource.Rule{Verbs: all, Resources: []string{"events"}, LabelSelector: "team == red"},
		resource.Rule{Verbs: all, Resources: []string{"aggregates"}})
	spy := &resource.Aggregate{
		Metadata: resource.ObjectMeta{Namespace: "default", Name: "spy"}, FieldSelector: "event.check.name == disk",
		Critical: &resource.AggregateThreshold{Count: 1}, Interval: 1, Result: resource.ComputedResult{Labels: map[string]string{"team": "red"}},
		Author: &resource.Author{User: testbackend.User}, // clients cannot set it
	}
	if err := client.Put(t.Context(), red, client.Aggregates, "default", "spy", spy); err != nil {
		t.Fatal(err)
	}
	outputOf := func(name string) string {
		ev, err := client.Get(t.Context(), b.Client, client.Events, "default", client.EventName(name, "aggregate"))
		if err != nil {
			return ""
		}
		return ev.Check.Output
	}
	eventually(t, 60*time.Second, "the aggregate has a result", func() bool { return outputOf("spy") != "" })
	if out := outputOf("spy"); strings.Contains(out, "blue1") || !strings.HasPrefix(out, "1 of 1") {
		t.Errorf("red's aggregate tells of blue: %s", out)
	}
	put(t, b, client.Aggregates, "whole", &resource.Aggregate{
		Metadata: resource.ObjectMeta{Namespace: "default", Name: "whole"}, FieldSelector: "event.check.name == disk",
		Critical: &resource.AggregateThreshold{Count: 1}, Interval: 1,
	})
	for _, name := range []string{"spy", "whole"} {
		found, err := evaluation(t, red, name)
		if err != nil || len(found) != 1 || found[0].Members != 1 || strings.Contains(found[0].Output, "blue1") {
			t.Errorf("an evaluation of %s tells red %+v, %v", name, found, err)
		}
	}
	if found, err := evaluation(t, b.Client, "whole"); err != nil || found[0].Members != 2 {
		t.Errorf("the administrator is told %+v, %v", found, err)
	}

	// A change of an aggregate's content makes the client its author; a change of labels alone does not.
	patch := func(c *client.Client, name, body string) {
		t.Helper()
		if err := client.Patch(t.Context(), c, client.Aggregates, "default", name, json.RawMessage(body)); err != nil {
			t.Fatal(err)
		}
	}
	author := func(name string) string {
		g, err := client.Get(t.Context(), b.Client, client.Aggregates, "default", name)
		if err != nil || g.Author == nil {
			t.Fatalf("aggregate %s: %+v, %v", name, g, err)
		}
		return g.Author.User
	}
	patch(b.Client, "spy", `{"metadata":{"labels":{"a":"b"}}}`)
	if got := author("spy"); got != "red" {
		t.Errorf("after a change of labels the author is %s", got)
	}
	patch(red, "whole", `{"critical":{"count":2}}`)
	if got := author("whole"); got != "red" {
		t.Errorf("after a change by red the author is %s", got)
	}

	// When the author loses the right, the aggregate loses its members and reports that.
	put(t, b, client.Roles, "red", &resource.Role{
		Metadata: resource.ObjectMeta{Namespace: "default", Name: "red"}, Rules: []resource.Rule{{Verbs: all, Resources: []string{"aggregates"}}},
	})
	eventually(t, 60*time.Second, "the aggregate has no members", func() bool { return strings.Contains(outputOf("spy"), "may not list events") })
	if _, err := evaluation(t, red, "spy"); err == nil {
		t.Error("an evaluation tells about events without the right to list them")
	}
	eventually(t, 60*time.Second, "the forbidden aggregates are counted", func() bool {
		return b.Counter(t, "lapwing_aggregates_forbidden") >= 1
	})
}

// TestDependenciesOfOthers has a user who may see one team's events ask for their dependencies.
func TestDependenciesOfOthers(t *testing.T) {
	b := testbackend.Start(t, nil)
	entity := func(name, team string) {
		put(t, b, client.Entities, name, &resource.Entity{
			EntityClass: "proxy", DependsOn: map[string][]string{"red1": {"blue1/disk", "red2/disk"}}[name],
			Metadata: resource.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"team": team}},
		})
	}
	for name, team := range map[string]string{"red1": "red", "red2": "red", "blue1": "blue"} {
		entity(name, team)
		result(t, b, name, "disk", 2)
	}
	red := signedIn(t, b, "red", resource.Rule{Verbs: []string{"*"}, Resources: []string{"events"}, LabelSelector: "team == red"})
	ask := func(c *client.Client) (names string) {
		t.Helper()
		var report struct {
			By           []string
			Dependencies []struct{ Name string }
		}
		if err := c.Do(t.Context(), http.MethodGet, "/api/lapwing/v1/namespaces/default/events/red1/disk/dependencies", nil, &report); err != nil {
			t.Fatal(err)
		}
		for _, d := range report.Dependencies {
			names += d.Name + " "
		}
		return names + strings.Join(report.By, " ")
	}
	if got := ask(b.Client); !strings.Contains(got, "blue1/disk") {
		t.Errorf("the administrator is told %s", got)
	}
	if got := ask(red); strings.Contains(got, "blue1") || !strings.Contains(got, "red2/disk") {
		t.Errorf("red is told %s", got)
	}
	var out struct {
		Deliveries []struct {
			Verdict, Reason string
			Steps           []struct{ Saw []struct{ Value any } }
		}
	}
	put(t, b, client.Handlers, "hook", &resource.Handler{Metadata: resource.ObjectMeta{Namespace: "default", Name: "hook"}, Type: "pipe", Command: "true"})
	simulation := map[string]any{"entity": "red1", "check": "disk"}
	if err := red.Do(t.Context(), http.MethodPost, "/api/lapwing/v1/namespaces/default/pipelines/simulate", simulation, &out); err != nil {
		t.Fatal(err)
	}
	for _, d := range out.Deliveries {
		if strings.Contains(d.Reason, "blue1") || len(d.Steps) > 0 && strings.Contains(d.Reason, "blue") {
			t.Errorf("a simulation tells red %+v", d)
		}
	}
}

// TestAgentsHaveNoAPI uses the API with the credentials that are on every host.
func TestAgentsHaveNoAPI(t *testing.T) {
	const path = "/api/core/v2/namespaces/default/events"
	use := func(b *testbackend.Backend) (list, deletion error) {
		result(t, b, "web1", "disk", 0)
		agent := asUser(t, b, testbackend.AgentUser, testbackend.AgentPassword)
		return agent.Do(t.Context(), http.MethodGet, path, nil, nil), agent.Do(t.Context(), http.MethodDelete, path+"/web1/disk", nil, nil)
	}
	b := testbackend.Start(t, nil)
	list, deletion := use(b)
	for what, err := range map[string]error{"list": list, "delete": deletion} {
		if err == nil || !strings.Contains(err.Error(), "unauthorized to perform action") {
			t.Errorf("to %s events with the agents' password: %v", what, err)
		}
	}
	if _, err := client.Get(t.Context(), b.Client, client.Events, "default", client.EventName("web1", "disk")); err != nil {
		t.Errorf("the event is gone: %v", err)
	}
	// Agents can still connect.
	conn, _ := b.DialAgent(t, "stock", nil)
	if msg, err := conn.Read(); err != nil || !strings.HasPrefix(string(msg), wire.TypeEntityConfig) {
		t.Errorf("an agent gets %q, %v", msg, err)
	}

	open := testbackend.Start(t, func(o *testbackend.Options) { o.API.AgentAccess = true })
	if list, deletion := use(open); list != nil || deletion != nil {
		t.Errorf("with --agent-api-access: %v, %v", list, deletion)
	}
}

// TestDefaultAgentPasswordIsTold: while agents can sign in with the documented default password, each start logs it and
// a metric shows it.
func TestDefaultAgentPasswordIsTold(t *testing.T) {
	dir := t.TempDir()
	begin := func() (*testbackend.Backend, *lines) {
		said := new(lines)
		b := testbackend.Start(t, func(o *testbackend.Options) { o.StateDir, o.Logger = dir, slog.New(said) })
		return b, said
	}
	told := func(b *testbackend.Backend, said *lines, want int) {
		t.Helper()
		said.mu.Lock()
		defer said.mu.Unlock()
		n := 0
		for _, line := range said.every {
			if strings.Contains(line, "agents can sign in with the default password") && strings.Contains(line, "reset-password") {
				n++
			}
		}
		if metric := b.Counter(t, "lapwing_auth_default_agent_password"); n != want || metric != float64(want) {
			t.Errorf("%d lines and %v in the metric, want %d", n, metric, want)
		}
	}
	b, said := begin()
	told(b, said, 1)
	agent := &resource.User{Username: testbackend.AgentUser, Password: "a-password-of-our-own", Groups: []string{"system:agents"}}
	if err := client.Put(t.Context(), b.Client, client.Users, "", agent.Username, agent); err != nil {
		t.Fatal(err)
	}
	if n := b.Counter(t, "lapwing_auth_default_agent_password"); n != 0 {
		t.Errorf("after the change the metric is %v", n)
	}
	if err := b.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	b, said = begin()
	told(b, said, 0)
}

// TestProxyLabelsSwitch: with --agent-proxy-labels a proxy entity has the labels of the event that creates it, as with
// Sensu.
func TestProxyLabelsSwitch(t *testing.T) {
	b := testbackend.Start(t, func(o *testbackend.Options) { o.Intake.ProxyLabels = true })
	conn, _ := b.DialAgent(t, "host", nil)
	ev := testbackend.Event("router", "made", 0, time.Now().Unix())
	ev.Entity.EntityClass, ev.Entity.Metadata.Labels = "proxy", map[string]string{"site": "x"}
	frame, err := wire.Append(nil, wire.TypeEvent, wire.Protobuf, ev)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Write(frame); err != nil {
		t.Fatal(err)
	}
	eventually(t, 60*time.Second, "the entity is there with its label", func() bool {
		e, err := client.Get(t.Context(), b.Client, client.Entities, "default", "router")
		return err == nil && e.Metadata.Labels["site"] == "x"
	})
}

// TestCommandsStayOnTheirHosts has an agent create a proxy entity whose label is a command, for a check that another
// agent runs with it.
func TestCommandsStayOnTheirHosts(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, nil)
	victim, _ := b.DialAgent(t, "victim", nil)
	if err := victim.Write(testbackend.Keepalive(t, "victim", wire.Protobuf)); err != nil {
		t.Fatal(err)
	}
	thief, _ := b.DialAgent(t, "thief", nil)
	send := func(name string, labels map[string]string) {
		ev := testbackend.Event(name, "made", 0, time.Now().Unix())
		ev.Entity.EntityClass, ev.Entity.Metadata.Labels = "proxy", labels
		ev.Entity.Metadata.Annotations = labels
		frame, err := wire.Append(nil, wire.TypeEvent, wire.Protobuf, ev)
		if err != nil {
			t.Fatal(err)
		}
		if err := thief.Write(frame); err != nil {
			t.Fatal(err)
		}
		eventually(t, 60*time.Second, "entity "+name+" is there", func() bool {
			_, err := client.Get(t.Context(), b.Client, client.Entities, "default", name)
			return err == nil
		})
	}
	send("evil", map[string]string{"url": "x; id"})
	e, err := client.Get(t.Context(), b.Client, client.Entities, "default", "evil")
	if err != nil || len(e.Metadata.Labels)+len(e.Metadata.Annotations) > 0 {
		t.Fatalf("the entity has %+v, %v", e.Metadata, err)
	}
	put(t, b, client.Entities, "good", &resource.Entity{
		EntityClass: "proxy", Metadata: resource.ObjectMeta{Namespace: "default", Name: "good", Labels: map[string]string{"url": "x; id"}},
	})
	put(t, b, client.Checks, "probe", &resource.CheckConfig{
		Metadata: resource.ObjectMeta{Namespace: "default", Name: "probe"}, Command: "probe {{ .labels.url | shellquote }}", Interval: 1, Publish: true,
		Subscriptions: []string{"linux"}, Handlers: []string{}, ProxyRequests: &resource.ProxyRequests{EntityAttributes: []string{"entity.entity_class == 'proxy'"}},
	})
	// The check is requested only for the entity whose label an administrator set, as one word.
	for range 3 {
		q := nextRequest(t, victim)
		if q.Config.ProxyEntityName != "good" || q.Config.Command != `probe 'x; id'` {
			t.Errorf("the victim is asked to run %s for %s", q.Config.Command, q.Config.ProxyEntityName)
		}
	}
}

// nextRequest returns the next check request for an agent.
func nextRequest(t *testing.T, conn *wire.Conn) *resource.CheckRequest {
	t.Helper()
	for {
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		msg, err := conn.Read()
		if err != nil {
			t.Fatal(err)
		}
		typ, payload, err := wire.Split(msg)
		if err != nil {
			t.Fatal(err)
		}
		if typ != wire.TypeCheckRequest {
			continue
		}
		q := new(resource.CheckRequest)
		if err := wire.Decode(payload, wire.Protobuf, q); err != nil {
			t.Fatal(err)
		}
		return q
	}
}

// TestAgentsSpeakForThemselves has an agent send results and keepalives of another.
func TestAgentsSpeakForThemselves(t *testing.T) {
	t.Parallel()
	forge := func(b *testbackend.Backend) (get func(check string) *resource.Event) {
		victim, _ := b.DialAgent(t, "victim", nil)
		if err := victim.Write(testbackend.Keepalive(t, "victim", wire.Protobuf)); err != nil {
			t.Fatal(err)
		}
		get = func(check string) *resource.Event {
			ev, err := client.Get(t.Context(), b.Client, client.Events, "default", client.EventName("victim", check))
			if err != nil {
				return nil
			}
			return ev
		}
		eventually(t, 60*time.Second, "the victim's keepalive is there", func() bool { return get("keepalive") != nil })
		put(t, b, client.Checks, "ping", &resource.CheckConfig{
			Metadata: resource.ObjectMeta{Namespace: "default", Name: "ping"}, Command: "ping", Interval: 3600, Subscriptions: []string{"nowhere"}, Handlers: []string{},
			ProxyRequests: &resource.ProxyRequests{EntityAttributes: []string{"entity.entity_class == 'agent'"}},
		})
		thief, _ := b.DialAgent(t, "thief", nil)
		send := func(typ string, ev *resource.Event) {
			frame, err := wire.Append(nil, typ, wire.Protobuf, ev)
			if err != nil {
				t.Fatal(err)
			}
			if err := thief.Write(frame); err != nil {
				t.Fatal(err)
			}
		}
		now := time.Now().Unix()
		send(wire.TypeEvent, testbackend.Event("victim", "direct", 0, now))
		proxied := testbackend.Event("thief", "proxied", 0, now)
		proxied.Check.ProxyEntityName = "victim"
		send(wire.TypeEvent, proxied)
		asProxy := testbackend.Event("victim", "dressed", 0, now)
		asProxy.Entity.EntityClass = "proxy"
		send(wire.TypeEvent, asProxy)
		keepalive := testbackend.Event("thief", "keepalive", 2, now)
		keepalive.Check.ProxyEntityName = "victim"
		send(wire.TypeEvent, keepalive)
		allowed := testbackend.Event("thief", "ping", 0, now)
		allowed.Check.ProxyEntityName = "victim"
		send(wire.TypeEvent, allowed) // the operator has defined this one for other agents
		eventually(t, 60*time.Second, "the last event is there", func() bool { return get("ping") != nil })
		return get
	}
	b := testbackend.Start(t, nil)
	get := forge(b)
	for _, check := range []string{"direct", "proxied", "dressed"} {
		if get(check) != nil {
			t.Errorf("a result of victim/%s was taken from another agent", check)
		}
	}
	if ev := get("keepalive"); ev.Check.Status != 0 {
		t.Errorf("the keepalive was forged: %+v", ev.Check)
	}
	if n := b.Counter(t, "lapwing_events_rejected_total"); n != 4 {
		t.Errorf("%v events were rejected", n)
	}
	get = forge(testbackend.Start(t, func(o *testbackend.Options) { o.Intake.AnyEntity = true }))
	for _, check := range []string{"direct", "proxied", "dressed"} {
		if get(check) == nil {
			t.Errorf("with --agent-any-entity victim/%s is not there", check)
		}
	}
}
