package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/wire"
)

func testAddresses(t *testing.T, configured ...string) *addresses {
	t.Helper()
	a, err := newAddresses(configured, false)
	if err != nil {
		t.Fatal(err)
	}
	a.configured = slices.Clone(configured) // in this order
	return a
}

// round returns the addresses of the rest of a round.
func (a *addresses) round() (all []string) {
	for !a.over() {
		all = append(all, a.pick().url)
	}
	return all
}

// TestMemberURLs: of what a backend names, the agent uses hosts and ports alone, and never with less security than it
// was configured with.
func TestMemberURLs(t *testing.T) {
	t.Parallel()
	plain, secure := testAddresses(t, "ws://lb:8081"), testAddresses(t, "wss://lb:8081", "ws://other:8081")
	for in, want := range map[string]string{
		"ws://a":                  "ws://a:8081",
		"ws://a:1/":               "ws://a:1",
		"wss://[::1]:1":           "wss://[::1]:1",
		"wss://a.example.com:443": "wss://a.example.com:443",
		"http://a:1":              "",
		"ws://":                   "",
		"ws://:8081":              "",
		"ws://user@a:1":           "",
		"ws://a:1/path":           "",
		"ws://a:1?x=y":            "",
		"ws://a:1#x":              "",
		"ws://a:0":                "",
		"ws://a:65536":            "",
		"ws://a\r\nb:1":           "",
		"unix:///run/x":           "",
		"":                        "",
	} {
		if got, err := plain.memberURL(in); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", in, got, err)
		}
		if !strings.HasPrefix(want, "wss:") {
			want = ""
		}
		if got, err := secure.memberURL(in); got != want || (err == nil) != (want != "") {
			t.Errorf("%q with TLS: %q, %v", in, got, err)
		}
	}
}

// TestAddressesOfARound: members come first, and those out of reach after the configured backends. The backend that was
// left comes last, or not at all.
func TestAddressesOfARound(t *testing.T) {
	t.Parallel()
	sorted := func(list []string) []string { return slices.Sorted(slices.Values(list)) }
	want := func(when string, got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	learn := func(a *addresses, self string, urls ...string) {
		t.Helper()
		if _, _, err := a.learn(wire.Members{URLs: urls, Self: self}); err != nil {
			t.Error(err)
		}
	}
	const x, y, z, lb = "ws://x:1", "ws://y:1", "ws://z:1", "ws://lb:1"

	a := testAddresses(t, x, y)
	want("configured", a.round(), x, y)
	if u := a.pick().url; u != x {
		t.Errorf("the next round begins with %s", u)
	}
	want("and continues", a.round(), y)

	a = testAddresses(t, lb)
	want("before members are known", a.round(), lb)
	learn(a, x, x, y, z)
	a.left(lb, false, false)
	round := a.round()
	want("members", sorted(round[:2]), y, z)
	want("what was left comes last", round[2:], lb, x)

	learn(a, x, x, y, z)
	a.left(lb, true, false)
	round = a.round()
	want("sent away", sorted(round[:2]), y, z)
	want("the balancer has other backends", round[2:], lb)

	a.left(y, true, false)
	first := a.pick()
	a.reached(first.url, false)
	if !first.member {
		t.Errorf("%+v is no member", first)
	}
	round = a.round()
	want("after one out of reach", round[:1], lb)
	if len(round) != 2 || round[1] == y || round[1] == first.url {
		t.Errorf("then %v", round)
	}
	a.left(lb, false, false)
	round = a.round()
	want("out of reach, next time", round[2:], lb, first.url)
	learn(a, "", lb)
	learn(a, "", first.url)
	a.left(lb, false, false)
	want("back in the cluster", a.round(), first.url, lb)

	a = testAddresses(t, x, y)
	learn(a, x, x, y, z)
	a.left(x, true, false)
	want("members that are configured", sorted(a.round()), y, z)

	a = testAddresses(t, lb)
	a.recall([]string{x, "ws://bad:0", y})
	round = a.round()
	want("after a restart", round[:1], lb)
	want("after a restart, then", sorted(round[1:]), x, y)
}

// TestManyMembers: a backend cannot make an agent keep, or call, more than a few hosts.
func TestManyMembers(t *testing.T) {
	t.Parallel()
	a := testAddresses(t, "ws://lb:1")
	var m wire.Members
	for i := range 1000 {
		m.URLs = append(m.URLs, fmt.Sprintf("ws://host-%d:1", i), "nonsense")
	}
	if _, changed, err := a.learn(m); !changed || err == nil {
		t.Errorf("%v, %v", changed, err)
	}
	if n := len(a.round()); n != wire.MaxMembers+1 {
		t.Errorf("%d addresses", n)
	}
	if _, changed, _ := a.learn(m); changed {
		t.Error("the same again counts as others")
	}
	now := time.Now()
	for i, want := range []bool{true, false} {
		if a.mayMove(now.Add(time.Duration(i)*moveEvery/2)) != want {
			t.Errorf("move %d is %v", i, !want)
		}
	}
	if !a.mayMove(now.Add(moveEvery)) {
		t.Error("no move after a while")
	}
}

func (s *fakeSession) sendMembers(self, next string, urls ...string) {
	s.t.Helper()
	if err := s.Write(wire.AppendMembers(nil, wire.Members{URLs: urls, Self: self, Next: next})); err != nil {
		s.t.Fatalf("send members: %v", err)
	}
}

// TestTransportMoves: asked to move, an agent connects to the other backend first. Then it waits for acknowledgements
// and leaves, so that each event is in one log.
func TestTransportMoves(t *testing.T) {
	t.Parallel()
	first, second := new(fakeBackend).start(t), new(fakeBackend).start(t)
	tr := runTransport(t, first, nil)
	s := first.accept(t)
	s.sendNotFound()
	tr.Send(result("one"))
	s.readN(1)
	s.sendMembers(first.url, second.url, first.url, second.url)
	next := second.accept(t)
	if got := s.header.Get(wire.HeaderMembers); got != wire.MembersFollow {
		t.Errorf("it announces %q", got)
	}
	next.sendNotFound()
	s.ack(1)
	if _, err := s.Read(); !isBye(err) {
		t.Errorf("it said %v", err)
	}
	tr.Send(result("two"))
	if got := next.readN(1); got[0].check() != "two" {
		t.Errorf("the next backend got %+v", got)
	}
	next.sendMembers(second.url, first.url, first.url, second.url) // too early: it stays
	tr.Send(result("three"))
	next.readN(1)
	if n := len(first.sessions); n > 0 {
		t.Error("it moved twice within a minute")
	}
}

// TestTransportMovesInADrain: a backend that drains says in one write where to go and that the agent must leave. The
// agent goes there without a pause.
func TestTransportMovesInADrain(t *testing.T) {
	t.Parallel()
	first, second, third := new(fakeBackend).start(t), new(fakeBackend).start(t), new(fakeBackend).start(t)
	tr := runTransport(t, first, func(o *TransportOptions) { o.RetryMin, o.RetryMax = time.Hour, time.Hour })
	s := first.accept(t)
	s.sendNotFound()
	tr.Send(result("one"))
	s.readN(1)
	members := wire.Members{URLs: []string{first.url, second.url, third.url}, Self: first.url, Next: third.url}
	both := [][]byte{wire.AppendMembers(nil, members), wire.AppendPace(nil, wire.PaceLeave, 0)}
	if err := s.WriteBatch(both); err != nil {
		t.Fatal(err)
	}
	next := third.accept(t)
	s.ack(1)
	if _, err := s.Read(); !isBye(err) {
		t.Errorf("it said %v", err)
	}
	tr.Send(result("two"))
	next.sendNotFound()
	if got := next.readN(1); got[0].check() != "two" {
		t.Errorf("the next backend got %+v", got)
	}
}

// TestTransportStays: an agent that cannot reach the member that it is to move to stays, and stops trying.
func TestTransportStays(t *testing.T) {
	t.Parallel()
	b, full := new(fakeBackend).start(t), (&fakeBackend{refuse: 503}).start(t)
	tr := runTransport(t, b, nil)
	s := b.accept(t)
	s.sendNotFound()
	s.sendMembers("", full.url, full.url)
	s.sendMembers("", full.url, full.url)
	waitFor(t, "it has tried", func() bool { return value(t, tr.metrics.connects.WithLabelValues("error")) >= 1 })
	tr.Send(result("one"))
	s.readN(1)
	if n := value(t, tr.metrics.connects.WithLabelValues("error")); n != 1 || !tr.Connected() {
		t.Errorf("it has tried %v times", n)
	}
}

// TestTransportMembersOutOfReach: when its connection ends, an agent tries members that a backend has named, and comes
// back to the configured backend at once if they are out of reach.
func TestTransportMembersOutOfReach(t *testing.T) {
	t.Parallel()
	lb, member := new(fakeBackend).start(t), new(fakeBackend).start(t)
	tr := runTransport(t, lb, func(o *TransportOptions) { o.RetryMin = time.Nanosecond }) // all connections are good
	s := lb.accept(t)
	s.sendNotFound()
	s.sendMembers("ws://127.0.0.1:1", "", "ws://127.0.0.1:1", "ws://127.0.0.1:2", "ws://127.0.0.1:3")
	tr.Send(result("one"))
	s.readN(1) // it is ready
	s.Close(wire.CloseGoingAway, "bye")
	s = lb.accept(t)
	if n := value(t, tr.metrics.connects.WithLabelValues("error")); n != 1 {
		t.Errorf("before it came back it tried %v members", n)
	}
	s.sendNotFound()
	s.sendMembers("", "", member.url)
	s.readN(1)
	s.Close(wire.CloseGoingAway, "bye")
	member.accept(t)
}

// TestTransportInOrderIgnoresMembers: an agent with an order of its own says so, and does as it was configured.
func TestTransportInOrderIgnoresMembers(t *testing.T) {
	t.Parallel()
	b, other := new(fakeBackend).start(t), new(fakeBackend).start(t)
	tr := runTransport(t, b, func(o *TransportOptions) { o.InOrder = true })
	s := b.accept(t)
	if got := s.header.Get(wire.HeaderMembers); got != wire.MembersStay {
		t.Errorf("it announces %q", got)
	}
	s.sendNotFound()
	s.sendMembers("", other.url, other.url)
	tr.Send(result("one"))
	s.readN(1)
	s.Close(wire.CloseGoingAway, "bye")
	b.accept(t)
	if len(other.sessions) > 0 || len(tr.Members()) > 0 {
		t.Error("it uses the member")
	}
}

// TestMembersAfterARestart: an agent that starts while its backend is down finds the members that it knew, unless it
// was configured anew.
func TestMembersAfterARestart(t *testing.T) {
	t.Parallel()
	b, member := new(fakeBackend).start(t), new(fakeBackend).start(t)
	dir := t.TempDir()
	start := func(urls ...string) (*Agent, func()) {
		t.Helper()
		o := DefaultOptions()
		o.Name, o.SpoolDir, o.CacheDir, o.BackendURLs, o.RetryMin = "web-1", dir, t.TempDir(), urls, time.Millisecond
		a, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		stop := func() {
			if err := a.Stop(); err != nil {
				t.Error(err)
			}
		}
		t.Cleanup(stop)
		return a, stop
	}
	_, stop := start(b.url)
	s := b.accept(t)
	s.sendNotFound()
	s.sendMembers("", "", member.url)
	file := filepath.Join(dir, "default", "web-1", "schedule.json")
	waitFor(t, "the members are stored", func() bool {
		text, _ := os.ReadFile(file)
		return strings.Contains(string(text), member.url)
	})
	stop()
	b.become(func() { b.refuse = 502 })
	other, stop := start("ws://127.0.0.1:1")
	if got := other.transport.Members(); len(got) > 0 {
		t.Errorf("configured anew it knows %v", got)
	}
	stop()
	start(b.url)
	member.accept(t)
}
