package backend_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/backend"
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/internal/testbroker"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// members are the backends of a cluster in this process.
type members struct {
	t       *testing.T
	names   []string
	options []backend.Options
	running []*backend.Backend
	clients []*client.Client
}

// startMembers starts a cluster of three.
func startMembers(t *testing.T) *members {
	m := &members{t: t, names: []string{"a", "b", "c"}}
	var peers []string
	for range m.names {
		peers = append(peers, testbroker.FreeAddress(t))
	}
	for i, name := range m.names {
		opts := testbackend.OptionsIn(t.TempDir())
		opts.Cluster = backend.Cluster{Name: name, ListenAddress: peers[i], Peers: peers}
		opts.Log.Partitions = 2
		b, err := backend.New(opts)
		if err != nil {
			t.Fatal(err)
		}
		m.options, m.running = append(m.options, opts), append(m.running, b)
		t.Cleanup(func() {
			// The last one cannot leave: no majority is there to take that down.
			if err := b.Stop(context.Background()); err != nil && !strings.Contains(err.Error(), "leave the cluster") {
				t.Errorf("stop %s: %v", name, err)
			}
		})
	}
	var starting sync.WaitGroup
	errs := make([]error, len(m.names))
	for i, b := range m.running {
		starting.Go(func() { errs[i] = b.Start(context.Background()) })
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, b := range m.running {
		c, err := client.New(client.Options{
			URL: "http://" + b.APIAddr().String(), Username: testbackend.User, Password: testbackend.Password,
			Timeout: time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		m.clients = append(m.clients, c)
	}
	return m
}

// status asks a member for the status of the cluster, which must not take long.
func (m *members) status(i int) *client.ClusterStatus {
	m.t.Helper()
	st := new(client.ClusterStatus)
	if err := m.clients[i].Do(m.t.Context(), http.MethodGet, "/api/lapwing/v1/cluster", nil, st); err != nil {
		m.t.Fatal(err)
	}
	return st
}

// until asks a member until the status is as wanted.
func (m *members) until(i int, what string, good func(*client.ClusterStatus) bool) *client.ClusterStatus {
	m.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		st := m.status(i)
		if good(st) {
			return st
		}
		if time.Now().After(deadline) {
			text, _ := json.MarshalIndent(st, "", " ")
			m.t.Fatalf("%s: the status of %s is\n%s", what, m.names[i], text)
		}
		time.Sleep(50 * time.Millisecond) // pause between polls
	}
}

// well reports whether nothing is wrong, except that the leaders of the streams may not be spread yet.
func well(st *client.ClusterStatus) bool {
	return !slices.ContainsFunc(st.Problems, func(p string) bool { return !strings.Contains(p, " leads all ") })
}

func refusedWith(err error, status int, text string) bool {
	var refused *client.Error
	return errors.As(err, &refused) && refused.Status == status && strings.Contains(refused.Message, text)
}

// TestClusterView shows a cluster of three real members, reaches others through one of them, and removes one.
func TestClusterView(t *testing.T) {
	m := startMembers(t)
	ctx := t.Context()
	ids := map[uint64]bool{}
	for i, name := range m.names {
		st := m.until(i, "all is well", well)
		if st.Member != name || st.Size != 3 || len(st.Members) != 3 || len(st.Streams) != 4 || len(st.Partitions) != 2 || st.Roster == 0 {
			t.Errorf("status of %s: %+v", name, st)
		}
		for j, one := range st.Members {
			if one.Name != m.names[j] || one.Self != (i == j) || !one.Up || one.APIURL != "http://"+m.running[j].APIAddr().String() ||
				one.DiskFree == 0 || one.Revision == 0 {
				t.Errorf("%s sees member %+v", name, one)
			}
		}
		for _, p := range st.Partitions {
			if !slices.Contains(m.names, p.Owner) {
				t.Errorf("%s sees owner %q", name, p.Owner)
			}
		}
		for _, s := range st.Streams {
			if !slices.Contains(m.names, s.Leader) || len(s.Replicas) != 2 {
				t.Errorf("%s sees stream %+v", name, s)
			}
		}
		h, err := m.clients[i].Health(ctx)
		if err != nil || len(h.ClusterHealth) != 3 || !h.ClusterHealth[2].Healthy || h.Header.ClusterID == 0 {
			t.Fatalf("health of %s: %+v, %v", name, h, err)
		}
		ids[h.Header.ClusterID] = true
		if h.Header.MemberID != h.ClusterHealth[i].MemberID {
			t.Errorf("%s answers as %d: %+v", name, h.Header.MemberID, h)
		}
	}
	if len(ids) != 1 {
		t.Errorf("ids of the cluster: %v", ids)
	}
	m.drainOther()
	m.executeOnAll()
	m.streamGoesOn()
	if missing := m.traces(); missing != nil {
		t.Errorf("traces are missing: %q", missing)
	}
	m.received()
	m.notify()
	m.waiting()

	defined := &resource.CheckConfig{
		Metadata: resource.ObjectMeta{Name: "defined", Namespace: "default"}, Command: "true", Interval: 60,
	}
	for i, want := range []string{"", "already exists"} {
		if err := client.Post(ctx, m.clients[i], client.Checks, "default", defined); (err == nil) != (want == "") ||
			err != nil && !refusedWith(err, 409, want) {
			t.Errorf("the check is created through %s: %v", m.names[i], err)
		}
	}
	err := client.PutIf(ctx, m.clients[2], client.Checks, "default", "defined", `"other"`, defined)
	if !refusedWith(err, 412, "precondition") {
		t.Errorf("a write under a condition: %v", err)
	}
	const path = "/api/lapwing/v1/cluster/members/"
	if err := m.clients[0].Do(ctx, http.MethodDelete, path+"c", nil, nil); !refusedWith(err, 409, "stop c") {
		t.Errorf("a member that is connected is removed: %v", err)
	}
	if err := m.running[2].Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	m.until(0, "c is away", func(st *client.ClusterStatus) bool {
		return slices.ContainsFunc(st.Problems, func(p string) bool { return strings.HasPrefix(p, "1 of 3 members is away: c for ") })
	})
	h, err := m.clients[1].Health(ctx)
	if err != nil || h.ClusterHealth[2].Healthy || !strings.HasPrefix(h.ClusterHealth[2].Err, "not heard for ") {
		t.Errorf("health with c away: %+v, %v", h, err)
	}
	if _, err := m.clients[0].Drain(ctx, "c", time.Second); !refusedWith(err, 503, "c has not been heard") {
		t.Errorf("drain of a member that is away: %v", err)
	}
	if missing := m.traces(); !slices.Equal(missing, []string{"traces are missing: c is away"}) {
		t.Errorf("traces with c away: %q", missing)
	}
	_, missing := m.waits(0, "")
	if want := "the backend c did not answer: some figures may be too small"; !slices.Equal(missing, []string{want}) {
		t.Errorf("what waits with c away: %q", missing)
	}
	if _, missing := m.notifications(0, "?limit=1000"); !slices.Equal(missing, []string{"notifications are missing: c is away"}) {
		t.Errorf("notifications with c away: %q", missing)
	}
	m.removed("c")
	m.until(1, "c is removed", func(st *client.ClusterStatus) bool { return len(st.Members) == 2 })
	if err := m.clients[0].Do(ctx, http.MethodDelete, path+"c", nil, nil); !refusedWith(err, 404, "none of the members a and b") {
		t.Errorf("it is removed once more: %v", err)
	}
	opts := m.options[2]
	opts.Registry = testbackend.OptionsIn(t.TempDir()).Registry
	again, err := backend.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Start(ctx); err == nil || !strings.Contains(err.Error(), "this member was removed from the cluster for good") {
		t.Errorf("a member that was removed starts again: %v", err)
	}

	// Without a majority the status still answers.
	if err := m.running[1].Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	m.until(0, "no majority", func(st *client.ClusterStatus) bool {
		return slices.Contains(st.Problems, "a does not hear a majority of the 3 members, or cannot write to the event log: "+
			"it acts for nothing and takes no agents")
	})
	// Its definitions may be old, so that it neither writes nor refuses anything because of them.
	const cutOff = "cut off from the majority"
	if err := client.PutIf(ctx, m.clients[0], client.Checks, "default", "defined", `"other"`, defined); !refusedWith(err, 503, cutOff) {
		t.Errorf("a write under a condition without a majority: %v", err)
	}
	if err := client.Post(ctx, m.clients[0], client.Checks, "default", defined); !refusedWith(err, 503, cutOff) {
		t.Errorf("what exists is created without a majority: %v", err)
	}
	if err := client.Delete(ctx, m.clients[0], client.Checks, "default", "other"); !refusedWith(err, 503, cutOff) {
		t.Errorf("what does not exist is deleted without a majority: %v", err)
	}
	begin := time.Now()
	m.status(0)
	took := time.Since(begin)
	t.Logf("without a majority the status took %s: %s", took, strings.Join(m.status(0).Problems, "; "))
	if took > 20*time.Second { // a second on an idle machine
		t.Errorf("the status took %s", took)
	}
}

// removed removes a member that was stopped. The broker hears of the end of its connections a moment later.
func (m *members) removed(name string) {
	m.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) { // pause between polls
		err := m.clients[0].Do(m.t.Context(), http.MethodDelete, "/api/lapwing/v1/cluster/members/"+name, nil, nil)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			m.t.Fatal(err)
		}
	}
}

// drainOther drains b through a.
func (m *members) drainOther() {
	m.t.Helper()
	ctx := m.t.Context()
	if d, err := m.clients[0].Drain(ctx, "b", 7*time.Second); err != nil || !d.Draining || d.OverSeconds != 7 {
		m.t.Errorf("drain of b: %+v, %v", d, err)
	}
	for i, want := range []bool{false, true, false} {
		if d, err := m.clients[i].Draining(ctx, ""); err != nil || d.Draining != want {
			m.t.Errorf("%s drains: %+v, %v", m.names[i], d, err)
		}
	}
	m.until(2, "b drains", func(st *client.ClusterStatus) bool { return st.Members[1].Draining && well(st) })
	if err := m.clients[0].Undrain(ctx, "b"); err != nil {
		m.t.Error(err)
	}
	if d, err := m.clients[0].Draining(ctx, "b"); err != nil || d.Draining {
		m.t.Errorf("after its end: %+v, %v", d, err)
	}
}

// agentOf connects an agent to a member, and reports the times of the check requests that it gets.
func (m *members) agentOf(i int, issued chan<- [2]int64) {
	m.t.Helper()
	conn, _, err := testbackend.DialAgentAt("ws://"+m.running[i].AgentAddr().String(), fmt.Sprint("agent", i), nil)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = conn.Close(wire.CloseGoingAway, "bye") })
	if err := conn.Write(testbackend.Keepalive(m.t, fmt.Sprint("agent", i), wire.Protobuf)); err != nil {
		m.t.Fatal(err)
	}
	go func() {
		for {
			msg, err := conn.Read()
			if err != nil {
				return
			}
			typ, payload, err := wire.Split(msg)
			q := new(resource.CheckRequest)
			if err == nil && typ == wire.TypeCheckRequest && wire.Decode(payload, wire.Protobuf, q) == nil {
				issued <- [2]int64{int64(i), q.Issued}
			}
		}
	}()
}

// executeOnAll executes a check through a, for agents of b and c.
func (m *members) executeOnAll() {
	m.t.Helper()
	ctx := m.t.Context()
	check := &resource.CheckConfig{
		Metadata: resource.ObjectMeta{Name: "now", Namespace: "default"}, Command: "true", Interval: 3600,
		Subscriptions: []string{"linux", "none"},
	}
	if err := client.Put(ctx, m.clients[0], client.Checks, "default", "now", check); err != nil {
		m.t.Fatal(err)
	}
	issued := make(chan [2]int64, 1000)
	m.agentOf(1, issued)
	m.agentOf(2, issued)
	answered, got := map[int64]bool{}, map[int64]int64{} // got is by member
	var warnings []string
	for deadline := time.Now().Add(time.Minute); len(got) < 2; { // an agent gets requests once its entity is known
		if time.Now().After(deadline) {
			m.t.Fatalf("agents of members %v get requests; the last answer warns of %q", got, warnings)
		}
		var answer struct{ Issued int64 }
		header, err := m.clients[0].Exchange(ctx, http.MethodPost, "/api/core/v2/namespaces/default/checks/now/execute",
			struct{}{}, &answer)
		if err != nil {
			m.t.Fatal(err)
		}
		answered[answer.Issued], warnings = true, client.Warnings(header)
		for pause := time.After(200 * time.Millisecond); pause != nil; {
			select {
			case one := <-issued:
				got[one[0]] = one[1]
			case <-pause:
				pause = nil
			}
		}
	}
	for i, at := range got {
		if !answered[at] {
			m.t.Errorf("the agent of %s gets a request of %d, want one of %v", m.names[i], at, answered)
		}
	}
	if len(warnings) != 1 || warnings[0] != "no connected agent has the subscription none" {
		m.t.Errorf("it warns of %q", warnings)
	}
}

// streamGoesOn follows events at a, and goes on at b and c from where that has come.
func (m *members) streamGoesOn() {
	m.t.Helper()
	ctx := m.t.Context()
	submit := func(i int, status uint32) {
		m.t.Helper()
		ev := testbackend.Event("web1", "disk", status, time.Now().Unix())
		if err := m.clients[i].Do(ctx, http.MethodPost, "/api/core/v2/namespaces/default/events", ev, nil); err != nil {
			m.t.Fatal(err)
		}
	}
	done, position := errors.New("done"), ""
	until := func(i int, want client.StreamType) (types []client.StreamType) {
		m.t.Helper()
		opts := client.StreamOptions{Position: &position, FieldSelector: "event.check.name == disk"}
		err := m.clients[i].StreamWith(ctx, "default", opts, func(ev client.StreamEvent) error {
			if types = append(types, ev.Type); ev.Type == want {
				return done
			}
			return nil
		})
		if !errors.Is(err, done) {
			m.t.Fatal(err)
		}
		return types
	}
	submit(0, 1)
	until(0, client.StreamSynced)
	for i := range 6 { // the writer's member has folded the event, the others may be behind it
		submit(i%3, uint32(i%2))
		position = m.position(i % 3)
		if got := until((i+1)%3, client.StreamSynced); slices.Contains(got, client.StreamReset) {
			m.t.Errorf("from %s to %s the stream brings %q", m.names[i%3], m.names[(i+1)%3], got)
		}
	}
}

// position returns the present position of a member's streams.
func (m *members) position(i int) string {
	m.t.Helper()
	done, position := errors.New("done"), ""
	err := m.clients[i].StreamWith(m.t.Context(), "default", client.StreamOptions{Position: &position}, func(ev client.StreamEvent) error {
		if ev.Type == client.StreamSynced {
			return done
		}
		return nil
	})
	if !errors.Is(err, done) || position == "" {
		m.t.Fatalf("position of %s: %q, %v", m.names[i], position, err)
	}
	return position
}

// traces reads the traces of a check through a, and returns what is said to be missing.
func (m *members) traces() []string {
	m.t.Helper()
	header, err := m.clients[0].Exchange(m.t.Context(), http.MethodGet, "/api/lapwing/v1/namespaces/default/events/web1/disk/trace", nil,
		new([]client.Outcome))
	if err != nil {
		m.t.Fatal(err)
	}
	return client.Warnings(header)
}

// received has a member take events, which all members count as its.
func (m *members) received() {
	m.t.Helper()
	before, count := m.status(1), 5
	for i := range count {
		ev := testbackend.Event(fmt.Sprint("counted", i), "disk", 0, 1)
		path := "/api/core/v2/namespaces/default/events/" + ev.Entity.Metadata.Name + "/disk"
		if err := m.clients[1].Do(m.t.Context(), http.MethodPut, path, ev, nil); err != nil {
			m.t.Fatal(err)
		}
	}
	for i := range m.clients {
		m.until(i, "the events are counted", func(st *client.ClusterStatus) bool {
			return st.Members[1].Received >= before.Members[1].Received+uint64(count)
		})
	}
}

// notify has the owners of the partitions notify, and reads the same history through each member, in pages.
func (m *members) notify() {
	m.t.Helper()
	ctx, count := m.t.Context(), 12
	h := &resource.Handler{Metadata: resource.ObjectMeta{Namespace: "default", Name: "note"}, Type: "pipe", Command: "cat"}
	if err := m.clients[0].Do(ctx, http.MethodPut, "/api/core/v2/namespaces/default/handlers/note", h, nil); err != nil {
		m.t.Fatal(err)
	}
	for i := range count {
		ev := testbackend.Event(fmt.Sprint("noted", i), "disk", 2, 1)
		ev.Check.Handlers = []string{"note"}
		path := "/api/core/v2/namespaces/default/events/" + ev.Entity.Metadata.Name + "/disk"
		if err := m.clients[0].Do(ctx, http.MethodPut, path, ev, nil); err != nil {
			m.t.Fatal(err)
		}
	}
	var all []client.Notification
	for deadline := time.Now().Add(time.Minute); len(all) < count; time.Sleep(50 * time.Millisecond) { // pause between polls
		var missing []string
		if all, missing = m.notifications(0, "?limit=1000"); missing != nil || time.Now().After(deadline) {
			m.t.Fatalf("%d notifications of %d, missing: %q", len(all), count, missing)
		}
	}
	for i := range m.clients {
		for _, limit := range []int{1, 5} {
			var paged []client.Notification
			for token := ""; ; {
				page := []client.Notification{}
				header, err := m.clients[i].Exchange(ctx, http.MethodGet,
					fmt.Sprintf("/api/lapwing/v1/namespaces/default/notifications?limit=%d&continue=%s", limit, token), nil, &page)
				if err != nil {
					m.t.Fatal(err)
				}
				paged = append(paged, page...)
				if token = header.Get("Sensu-Continue"); token == "" {
					break
				}
			}
			if !slices.EqualFunc(paged, all, func(a, b client.Notification) bool { return a.Member == b.Member && a.Number == b.Number }) {
				m.t.Errorf("through %s in pages of %d: %d notifications, want the same %d", m.names[i], limit, len(paged), len(all))
			}
		}
	}
}

// waiting has deliveries wait at the owners of both partitions, and reads the same through each member.
func (m *members) waiting() {
	m.t.Helper()
	ctx, count := m.t.Context(), 12
	h := &resource.Handler{
		Metadata: resource.ObjectMeta{Namespace: "default", Name: "down"}, Type: "pipe", Command: "cat; exit 75",
		Retry: &resource.HandlerRetry{Backoff: 3600, MaxBackoff: 3600},
	}
	if err := m.clients[0].Do(ctx, http.MethodPut, "/api/core/v2/namespaces/default/handlers/down", h, nil); err != nil {
		m.t.Fatal(err)
	}
	for i := range count {
		ev := testbackend.Event(fmt.Sprint("waits", i), "disk", 2, 1)
		ev.Check.Handlers = []string{"down"}
		path := "/api/core/v2/namespaces/default/events/" + ev.Entity.Metadata.Name + "/disk"
		if err := m.clients[0].Do(ctx, http.MethodPut, path, ev, nil); err != nil {
			m.t.Fatal(err)
		}
	}
	for i, name := range m.names {
		var list []client.Waiting
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) { // pause between polls
			var missing []string
			if list, missing = m.waits(i, "?handler=down&limit=7"); len(list) == 1 && list[0].Retrying == count {
				break
			}
			if missing != nil || time.Now().After(deadline) {
				m.t.Fatalf("%s says that these wait: %+v, missing: %q", name, list, missing)
			}
		}
		w := list[0]
		if w.Parked.Total != count || w.Parked.Change != count || w.Oldest == 0 || w.Next < time.Now().UnixMilli() || len(w.Deliveries) != 7 {
			m.t.Errorf("%s says that these wait: %+v", name, w)
		}
		for _, p := range w.Deliveries {
			if !slices.Contains(m.names, p.Member) || p.Attempts != 1 || !strings.HasPrefix(p.Error, "status 75") {
				m.t.Errorf("%s says that this waits: %+v", name, p)
			}
		}
	}
}

// waits reads what waits for handlers through a member, and what is said to be missing.
func (m *members) waits(i int, query string) (list []client.Waiting, missing []string) {
	m.t.Helper()
	header, err := m.clients[i].Exchange(m.t.Context(), http.MethodGet, "/api/lapwing/v1/namespaces/default/waiting"+query, nil, &list)
	if err != nil {
		m.t.Fatal(err)
	}
	return list, client.Warnings(header)
}

// notifications reads notifications through a member, and what is said to be missing.
func (m *members) notifications(i int, query string) (list []client.Notification, missing []string) {
	m.t.Helper()
	header, err := m.clients[i].Exchange(m.t.Context(), http.MethodGet, "/api/lapwing/v1/namespaces/default/notifications"+query, nil, &list)
	if err != nil {
		m.t.Fatal(err)
	}
	return list, client.Warnings(header)
}
