package test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/client/load"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/internal/testnats"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// natsMembers makes backends whose log is on NATS servers. None of them runs yet.
func natsMembers(t testing.TB, servers *testnats.Servers, n int) members {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats-credentials")
	text := "user: " + testnats.User + "\npassword: " + testnats.Password + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var all members
	for i := range n {
		all = append(all, newProcess(t, "--name", fmt.Sprint("b", i), "--nats-url", strings.Join(servers.URLs(), ","),
			"--nats-credentials-file", file, "--cluster-advertise-host", "127.0.0.1"))
	}
	return all
}

// statusOf returns the status of the cluster as a backend sees it.
func statusOf(t testing.TB, c *client.Client) (st client.ClusterStatus) {
	t.Helper()
	raw, err := c.ClusterStatus(t.Context())
	if err == nil {
		err = json.Unmarshal(raw, &st)
	}
	if err != nil {
		t.Logf("status of the cluster: %v", err)
	}
	return st
}

// well waits until a backend finds nothing wrong with so many members.
func well(t testing.TB, c *client.Client, members int) client.ClusterStatus {
	t.Helper()
	var st client.ClusterStatus
	eventually(t, spreadPatience, fmt.Sprintf("all is well with %d members", members), func() bool {
		st = statusOf(t, c)
		return len(st.Problems) == 0 && len(st.Members) == members && st.Partitions[0].Owner != ""
	})
	return st
}

// TestNATSServers runs two backends on three NATS servers. It kills a server, a backend, and all servers. Every event
// that was acknowledged is known to both backends, and every alert is sent.
func TestNATSServers(t *testing.T) {
	servers := testnats.New(t, 3, testnats.Options{})
	all := natsMembers(t, servers, 2)
	all.start()
	clients := []*client.Client{all[0].client(), all[1].client()}
	hook := newAlarm(t)
	handler := resource.Handler{
		Metadata: resource.ObjectMeta{Name: "alarm", Namespace: "default"}, Type: "webhook",
		Webhook: &resource.HandlerWebhook{URL: hook.URL},
	}
	if err := client.Put(t.Context(), clients[0], client.Handlers, "default", "alarm", &handler); err != nil {
		t.Fatal(err)
	}
	number := 0
	var sent []string
	alert := func(through int) {
		t.Helper()
		number++
		sent = append(sent, fmt.Sprint("alert ", number))
		submit(t, clients[through], fmt.Sprint("host-", number), 2, fmt.Sprint("alert ", number))
	}
	arrived := func(when string) {
		t.Helper()
		for _, output := range sent {
			eventually(t, time.Minute, when+": "+output+" arrives", func() bool { n, _ := hook.got(output); return n > 0 })
		}
	}
	alert(0)
	alert(1)
	arrived("at first")
	all.agree(t, clients)
	st := well(t, clients[0], 2)
	if st.NATS == "" || st.Leader != "" || st.Size != 2 {
		t.Errorf("the status is %+v", st)
	}
	for _, s := range st.Streams {
		if s.Copies != 3 || !strings.HasPrefix(s.Leader, "nats-") {
			t.Errorf("stream %s: %d copies, leader %s", s.Name, s.Copies, s.Leader)
		}
	}

	victim := servers.Index(st.Streams[2].Leader) // of a partition
	servers.Kill(victim)
	alert(0)
	alert(1)
	arrived("without a server")
	servers.Start(victim)

	owner := 0
	if well(t, clients[0], 2).Partitions[0].Owner == "b1" {
		owner = 1
	}
	begin := time.Now()
	all[owner].kill(syscall.SIGKILL)
	alert(1 - owner)
	arrived("without a backend")
	t.Logf("alerts are sent %s after a backend was killed", time.Since(begin).Round(time.Millisecond))
	all[owner].launch()
	all[owner].ready()
	all.agree(t, clients)
	well(t, clients[owner], 2)

	for i := range 3 {
		servers.Kill(i)
	}
	for _, p := range all {
		eventually(t, time.Minute, "a backend notices that the servers are gone", func() bool {
			resp, err := http.Get("http://" + p.api + "/ready")
			if err != nil {
				return false
			}
			_ = resp.Body.Close()
			return resp.StatusCode == http.StatusServiceUnavailable
		})
	}
	for i := range 3 {
		servers.Start(i)
	}
	alert(0)
	alert(1)
	arrived("after all servers were away")
	all.agree(t, clients)
	known, err := outputs(t.Context(), clients[0])
	if err != nil {
		t.Fatal(err)
	}
	for i, output := range sent {
		if got := known[fmt.Sprint("host-", i+1)]; !strings.HasPrefix(got, output) {
			t.Errorf("of %s it knows %q", output, got)
		}
	}
	all.secret(t)

	well(t, clients[0], 2)
	all[0].kill(syscall.SIGTERM)
	eventually(t, time.Minute, "a member that is away is removed", func() bool {
		return clients[1].RemoveMember(t.Context(), "b0") == nil
	})
	well(t, clients[1], 1)
	alert(1)
	arrived("alone")
}

// secret fails the test if a log or the metrics of a backend have the password of the NATS servers.
func (all members) secret(t testing.TB) {
	t.Helper()
	for i, p := range all {
		text, err := os.ReadFile(p.log.Name())
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.Get("http://" + p.api + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		metrics, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		both := string(text) + string(metrics)
		if strings.Contains(both, testnats.Password) || !strings.Contains(both, "lapwing_cluster_leased") {
			t.Errorf("the log or the metrics of b%d have the password, or there are none", i)
		}
	}
}

// TestNATSAccount starts a backend with the account of the documents: it has all permissions that it needs.
func TestNATSAccount(t *testing.T) {
	text, err := os.ReadFile("../docs/external-nats.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, ok := strings.Cut(string(text), "```text\naccounts {")
	example, _, closed := strings.Cut("accounts {"+example, "```")
	if !ok || !closed || strings.Count(example, `"CHANGE-ME"`) != 1 {
		t.Fatal("the documents have no example of an account")
	}
	servers := testnats.New(t, 1, testnats.Options{
		Accounts: strings.ReplaceAll(example, `"CHANGE-ME"`, `"`+testnats.Password+`"`),
	})
	all := natsMembers(t, servers, 2)
	all.start()
	clients := []*client.Client{all[0].client(), all[1].client()}
	number := 0
	for range 2 {
		for i := range all {
			number++
			submit(t, clients[i], fmt.Sprint("host-", number), 1, "x")
		}
		all.agree(t, clients)
		well(t, clients[0], 2)
		all[0].kill(syscall.SIGTERM)
		submit(t, clients[1], "host-last", 1, "x") // one of two goes on
		all[0].launch()
		all[0].ready()
	}
	all.secret(t)
	for i, p := range all {
		log, err := os.ReadFile(p.log.Name())
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(log), "permissions violation") {
			t.Errorf("b%d lacks a permission:\n%s", i, tailOf(log, 4000))
		}
	}
}

// TestNATSHoldsAgentsUp stops the only NATS server of a backend until that sends its agents away. What the agents have
// measured in the meantime arrives afterwards, once.
func TestNATSHoldsAgentsUp(t *testing.T) {
	servers := testnats.New(t, 1, testnats.Options{})
	all := natsMembers(t, servers, 1)
	all.start()
	c := all[0].client()
	check := &resource.CheckConfig{
		Metadata: resource.ObjectMeta{Name: "counting", Namespace: "default"}, Command: "true", Interval: 1, Publish: true,
		Subscriptions: []string{"linux"},
	}
	if err := client.Put(t.Context(), c, client.Checks, "default", "counting", check); err != nil {
		t.Fatal(err)
	}
	const agents = 20
	fleet, err := load.NewFleet(load.FleetOptions{
		Run: "nats", Backends: []string{"ws://127.0.0.1:" + all[0].agent}, Namespace: "default", BaseName: "load",
		Count: agents, User: testbackend.AgentUser, Password: testbackend.AgentPassword, Protocol: load.ProtocolLapwing,
		Subscriptions: []string{"linux"}, KeepaliveInterval: time.Second, KeepaliveTimeout: time.Hour,
		RetryMin: 50 * time.Millisecond, RetryMax: time.Second, HandshakeTimeout: time.Minute,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := fleet.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fleet.Stop() })
	connected := func(when string) {
		t.Helper()
		before := fleet.Snapshot().Events
		eventually(t, time.Minute, when+": the agents' events are acknowledged", func() bool {
			now := fleet.Snapshot()
			return now.Connected == agents && now.Events > before+2*agents && now.Unacked == 0
		})
	}
	connected("at first")
	servers.Kill(0)
	eventually(t, time.Minute, "the agents are sent away", func() bool { return fleet.Snapshot().Connected == 0 })
	resp, err := http.Get("http://" + all[0].api + "/ready")
	if err != nil {
		t.Fatal(err)
	}
	why, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if !strings.Contains(string(why), "this backend cannot write to the event log on NATS") {
		t.Errorf("it is not ready because of %s", why)
	}
	servers.Start(0)
	connected("afterwards")
	fleet.Quiet()
	v, err := fleet.Verify(t.Context(), entityEvents{c})
	if err != nil || v.Verified == 0 || v.Lost+v.Duplicates+v.OrderViolations > 0 {
		t.Errorf("the verdict is %+v, %v", v, err)
	}
}

// entityEvents reads the events of an entity for a fleet's comparison.
type entityEvents struct{ c *client.Client }

func (e entityEvents) EntityEvents(ctx context.Context, namespace, entity string, events any) error {
	return e.c.Do(ctx, http.MethodGet, "/api/core/v2/namespaces/"+namespace+"/events/"+entity, nil, events)
}
