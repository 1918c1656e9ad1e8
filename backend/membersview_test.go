package backend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/api"
	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/cluster"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// TestSourcesThatHang: users wait for no source longer than for the others, and what hangs is asked once.
func TestSourcesThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life, end := context.WithCancel(t.Context())
		defer end()
		v := &clusterView{backend: &Backend{life: life}}
		var asked atomic.Int32
		hang := make(chan struct{})
		for range 3 {
			begin := time.Now()
			_, err := source(t.Context(), v, "stream", func(context.Context) (int, error) {
				asked.Add(1)
				<-hang // it does not even look at its context
				return 1, nil
			})
			if !errors.Is(err, errNoAnswer) || time.Since(begin) != sourceTimeout {
				t.Errorf("after %s: %v", time.Since(begin), err)
			}
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("what hangs was asked %d times", n)
		}
		close(hang)
		synctest.Wait()
		if n, err := source(t.Context(), v, "stream", func(context.Context) (int, error) { return 2, nil }); n != 2 || err != nil {
			t.Errorf("then it answers %d, %v", n, err)
		}
		_, err := source(t.Context(), v, "slow", func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, fmt.Errorf("look at stream: %w", ctx.Err())
		})
		if !errors.Is(err, errNoAnswer) {
			t.Errorf("a source that keeps to its time: %v", err)
		}
	})
}

func memberOf(name, id string, heard, listed bool) cluster.Member {
	m := cluster.Member{Heard: heard, OnRoster: listed}
	m.ID, m.Name = id, name
	if !heard {
		m.Silent = time.Minute
	}
	return m
}

// TestMembersShown: which members are shown, under which names, and which one a name to remove means.
func TestMembersShown(t *testing.T) {
	b, err := broker.New(broker.Options{Dir: t.TempDir(), Name: "a-0000000a"})
	if err != nil {
		t.Fatal(err)
	}
	v := &clusterView{broker: b, name: "a"}
	self := memberOf("a", "0000000aaaaaaaaa", true, true)
	self.Self = true
	up, away := memberOf("b", "0000000bbbbbbbbb", true, true), memberOf("c", "0000000ccccccccc", false, false)
	counts := func(others ...string) *servers {
		s := &servers{Leader: "a-0000000a"}
		for _, name := range others {
			s.Others = append(s.Others, broker.Replica{Name: name, Heard: time.Hour})
		}
		return s
	}
	both := counts("b-0000000b", "c-0000000c")
	unnamed := memberOf("", "0000000ddddddddd", false, true)
	old := memberOf("b", "000000bbbbbbbbbb", false, false)
	for _, tc := range []struct {
		what    string
		members []cluster.Member
		all     *servers
		shown   string
		removed map[string]string // by name: the server, or a part of the error
	}{
		{"all are there", []cluster.Member{self, up}, counts("b-0000000b"), "a b",
			map[string]string{"b": api.ErrMemberUp.Error(), "a": api.ErrMemberUp.Error(), "x": "none of the members a and b"}},
		{"one is away", []cluster.Member{self, up, away}, both, "a b c away 60",
			map[string]string{"c": "c-0000000c", "c-0000000c": "c-0000000c", "0000000ccccccccc": "c-0000000c", "b": "stop b"}},
		{"one was removed", []cluster.Member{self, up, away}, counts("b-0000000b"), "a b", map[string]string{"c": api.ErrNoMember.Error()}},
		{"the leader is silent", []cluster.Member{self, up, away}, nil, "a b c away 60", nil},
		{"one went before this backend began", []cluster.Member{self, up}, both, "a b c away 3600", map[string]string{"c": "c-0000000c"}},
		{"one on the list was never heard", []cluster.Member{self, unnamed}, counts("d-0000000d"), "a d away 60",
			map[string]string{"d": "d-0000000d"}},
		{"a name twice", []cluster.Member{self, up, old}, counts("b-0000000b", "b-000000bb"), "a b b-000000bb away 60",
			map[string]string{"b": "b-000000bb"}},
		{"a name twice, both away", []cluster.Member{self}, counts("e-00000001", "e-00000002"), "a e away 3600 e-00000002 away 3600",
			map[string]string{"e": "several members", "e-00000001": "e-00000001"}},
	} {
		var shown []string
		for _, m := range v.memberStatus(tc.members, tc.all, v.names(tc.members, tc.all)) {
			text := m.Name
			if !m.Up {
				text += fmt.Sprintf(" away %.0f", m.AwaySeconds)
			}
			shown = append(shown, text)
		}
		if got := strings.Join(shown, " "); got != tc.shown {
			t.Errorf("%s: shown are %s, want %s", tc.what, got, tc.shown)
		}
		for name, want := range tc.removed {
			server, err := v.gone(name, tc.members, tc.all)
			if err != nil {
				server = err.Error()
			}
			if !strings.Contains(server, want) {
				t.Errorf("%s: to remove %s means %s, want %s", tc.what, name, server, want)
			}
		}
	}
}

// TestClusterWatch: metrics say for how long something has been wrong with a stream or its copies.
func TestClusterWatch(t *testing.T) {
	registry := prometheus.NewRegistry()
	w := newClusterWatch(nil, registry)
	figures := func() string {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, f := range families {
			for _, m := range f.GetMetric() {
				name := strings.TrimPrefix(f.GetName(), "lapwing_cluster_")
				lines = append(lines, fmt.Sprint(name, " ", m.GetLabel()[0].GetValue(), " ", m.GetGauge().GetValue()))
			}
		}
		slices.Sort(lines)
		return strings.Join(lines, ", ")
	}
	now := time.Now()
	members := []api.MemberStatus{{Name: "a", Self: true}, {Name: "b"}}
	st := &api.ClusterStatus{Members: members, Streams: []api.StreamStatus{
		{Name: "x", Leader: "a", Copies: 2, Replicas: []api.ReplicaStatus{{Member: "b", Current: true, Lag: 20}}},
		{Name: "y", Leader: "a", Copies: 2, Replicas: []api.ReplicaStatus{{Member: "b", Current: true}}},
	}}
	for _, step := range []struct {
		change func()
		want   string
	}{
		{func() {}, "copies_behind_seconds a 0, copies_behind_seconds b 0, definitions_differ b 0, digests_differ b 0, " +
			"stream_leaderless_seconds x 0, stream_leaderless_seconds y 0, streams_led a 2, streams_led b 0"},
		{func() { st.Streams[0].Leader, st.Streams[1].Replicas[0].Offline = "", true }, "copies_behind_seconds a 0, " +
			"copies_behind_seconds b 0, definitions_differ b 0, digests_differ b 0, stream_leaderless_seconds x 0, stream_leaderless_seconds y 0, " +
			"streams_led a 1, streams_led b 0"},
		{func() {
			st.Streams[1].Replicas, st.Members[1].DigestsDiffer, st.Members[1].DefinitionsDiffer = nil, []int{0, 2}, true
		}, "copies_behind_seconds a 0, copies_behind_seconds b 5, definitions_differ b 1, digests_differ b 2, " +
			"stream_leaderless_seconds x 5, stream_leaderless_seconds y 0, streams_led a 1, streams_led b 0"},
		{func() {
			st.Streams[0].Leader = "b"
			st.Streams[0].Replicas = []api.ReplicaStatus{{Member: "a", Lag: 5000}}
		}, "copies_behind_seconds a 0, copies_behind_seconds b 10, definitions_differ b 1, digests_differ b 2, stream_leaderless_seconds x 0, " +
			"stream_leaderless_seconds y 0, streams_led a 1, streams_led b 1"},
		{func() { st.Streams, st.Members = st.Streams[:1], st.Members[:1] }, "copies_behind_seconds a 5, copies_behind_seconds b 0, " +
			"stream_leaderless_seconds x 0, stream_leaderless_seconds y 0, streams_led a 0, streams_led b 1"},
	} {
		step.change()
		w.judge(st, now)
		if got := figures(); got != step.want {
			t.Errorf("metrics are\n%s\nwant\n%s", got, step.want)
		}
		now = now.Add(5 * time.Second)
	}
}

// TestTracesFitTheBus: the newest events stay.
func TestTracesFitTheBus(t *testing.T) {
	var events []trace.Outcome
	for i := range 100 {
		events = append(events, trace.Outcome{Event: fmt.Sprint(i), Deliveries: []trace.Delivery{{Reason: strings.Repeat("x", 100_000)}}})
	}
	answer, err := fitTraces(events, maxTraces)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(answer)
	if !answer.Cut || len(answer.Events) < 30 || answer.Events[0].Event != "0" || len(text) > maxTraces+1000 {
		t.Errorf("%d events, %d bytes, cut %v", len(answer.Events), len(text), answer.Cut)
	}
	if answer, err := fitTraces(events[:3], maxTraces); err != nil || answer.Cut || len(answer.Events) != 3 {
		t.Errorf("%d events, %v", len(answer.Events), err)
	}
}

// TestQuestionsOfNewerMembers: a question of a newer version is refused with what to do.
func TestQuestionsOfNewerMembers(t *testing.T) {
	type body struct{ N int }
	answer := answering(func(_ context.Context, q *body) (body, error) { return body{q.N + 1}, nil })
	for _, tc := range []struct{ question, want string }{
		{`{"version":1,"body":{"N":1}}`, `{"N":2}`},
		{`{"version":1,"body":{"N":1,"more":true},"more":1}`, `{"N":2}`},
		{`{"version":2,"body":{}}`, "version 2, and this member knows version 1"},
		{`{"version":1,"body":[]}`, "read question"},
		{`no JSON`, "read question"},
	} {
		got, err := answer(t.Context(), []byte(tc.question))
		if err != nil {
			got = []byte(err.Error())
		}
		if !strings.Contains(string(got), tc.want) {
			t.Errorf("%s is answered %s, want %s", tc.question, got, tc.want)
		}
	}
}
