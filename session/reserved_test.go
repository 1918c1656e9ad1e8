package session_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// TestBackendEntityIsReserved: agents, and users with rights in one namespace only, cannot resolve the backend's
// alarms under any entity name. A user with rights in the whole cluster can.
func TestBackendEntityIsReserved(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, func(o *testbackend.Options) { o.Intake.AnyEntity, o.API.AgentAccess = true, true })
	const check = "filter-set-aside-x"
	alarm := func(status uint32) *resource.Event {
		ev := testbackend.Event(resource.BackendEntity, check, status, time.Now().Unix())
		ev.Entity.EntityClass = resource.EntityProxyClass
		return ev
	}
	if err := client.Post(t.Context(), b.Client, client.Events, "default", alarm(1)); err != nil {
		t.Fatal(err)
	}
	fails := func(after string) {
		t.Helper()
		ev, err := client.Get(t.Context(), b.Client, client.Events, "default", resource.BackendEntity+"/"+check)
		if err != nil || ev.Check.Status != 1 {
			t.Fatalf("after %s: status %v, %v", after, ev, err)
		}
	}
	proxied := func() *resource.Event {
		ev := testbackend.Event("own", check, 0, time.Now().Unix())
		ev.Check.ProxyEntityName = resource.BackendEntity
		return ev
	}

	own, stock := dial(t, b, "own", lapwingHeaders), dial(t, b, "stock", nil)
	if reason := own.sendProxied(2, resource.BackendEntity, 10); !strings.Contains(reason, "only the backend reports for it") {
		t.Errorf("an event with the name as proxy entity: the reason is %q", reason)
	}
	fails("an agent's event for a proxy entity")
	for n, ev := range []*resource.Event{alarm(0), proxied()} {
		ev.Entity.Metadata.Name = strings.Replace(ev.Entity.Metadata.Name, "own", "stock", 1)
		frame, err := wire.Append(nil, wire.TypeEvent, wire.Protobuf, ev)
		if err != nil {
			t.Fatal(err)
		}
		if err := stock.Write(frame); err != nil {
			t.Fatal(err)
		}
		wait(t, "it is refused", func() bool { return b.Counter(t, "lapwing_events_rejected_total") == float64(n+2) })
		fails("an event of a Sensu agent")
	}
	metrics := &resource.Event{Timestamp: 1, Entity: alarm(0).Entity, Metrics: &resource.Metrics{}}
	if err := own.Write(wire.AppendEvents(nil, 3, []wire.Item{{Event: metrics.AppendProto(nil)}})); err != nil {
		t.Fatal(err)
	}
	own.want(wire.TypeRefused)

	_, _, err := b.TryDialAgent(resource.BackendEntity, nil)
	var refused *wire.HandshakeError
	if !errors.As(err, &refused) || refused.Status != http.StatusBadRequest || !strings.Contains(refused.Body, "--name") {
		t.Errorf("an agent with the name: %v", err)
	}

	denied := func(who string, c *client.Client) {
		t.Helper()
		for _, ev := range []*resource.Event{alarm(0), proxied()} {
			var e *client.Error
			if err := client.Post(t.Context(), c, client.Events, "default", ev); !errors.As(err, &e) || e.Status != http.StatusForbidden ||
				!strings.Contains(e.Message, "only the backend reports for it") {
				t.Errorf("%s: got %v", who, err)
			}
		}
		fails(who)
	}
	signIn := func(user, password string) *client.Client {
		c, err := client.New(client.Options{URL: "http://" + b.APIAddr().String(), Username: user, Password: password})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	denied("an agent's user", signIn(testbackend.AgentUser, testbackend.AgentPassword))
	tenant := &resource.User{Username: "tenant", Password: "P@ssw0rd!"}
	role := &resource.Role{
		Metadata: resource.ObjectMeta{Name: "tenant", Namespace: "default"},
		Rules:    []resource.Rule{{Verbs: []string{"*"}, Resources: []string{"events"}}},
	}
	binding := &resource.RoleBinding{
		Metadata: resource.ObjectMeta{Name: "tenant", Namespace: "default"}, RoleRef: resource.RoleRef{Type: "Role", Name: "tenant"},
		Subjects: []resource.Subject{{Type: "User", Name: "tenant"}},
	}
	if err := errors.Join(
		client.Post(t.Context(), b.Client, client.Users, "", tenant), client.Post(t.Context(), b.Client, client.Roles, "default", role),
		client.Post(t.Context(), b.Client, client.RoleBindings, "default", binding),
	); err != nil {
		t.Fatal(err)
	}
	denied("a user with rights in the namespace", signIn("tenant", "P@ssw0rd!"))

	if err := client.Post(t.Context(), b.Client, client.Events, "default", alarm(0)); err != nil {
		t.Errorf("a user with rights in the cluster: %v", err)
	}
	if err := client.Delete(t.Context(), b.Client, client.Events, "default", resource.BackendEntity+"/"+check); err != nil {
		t.Errorf("delete: %v", err)
	}
}
