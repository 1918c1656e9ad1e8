package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// wellCluster returns the status of three members without a problem.
func wellCluster() *ClusterStatus {
	st := &ClusterStatus{Member: "a", Size: 3, Roster: 7, Leader: "b", DiskReserve: 1e9}
	for i, name := range []string{"a", "b", "c"} {
		st.Members = append(st.Members, MemberStatus{
			ID: name + "1", Name: name, Self: i == 0, Version: "1.0", Up: true, Ready: true, Leased: true, OnRoster: true, DiskFree: 9e9,
			Revision: 5, Folded: []uint64{10, 20, 30}, FoldLag: []uint64{0, 1, 2},
		})
		st.Partitions = append(st.Partitions, PartitionStatus{Partition: i, Owner: name, Roster: 7})
	}
	for i, holds := range []string{"definitions", "audit log", "partition 0", "partition 1", "partition 2"} {
		one := StreamStatus{Name: strings.ToUpper(holds), Holds: holds, Leader: st.Members[i%3].Name, Copies: 3}
		for _, m := range st.Members {
			if m.Name != one.Leader {
				one.Replicas = append(one.Replicas, ReplicaStatus{Member: m.Name, Current: true, HeardSeconds: 0.2})
			}
		}
		st.Streams = append(st.Streams, one)
	}
	return st
}

// TestClusterProblems: what is wrong, in words.
func TestClusterProblems(t *testing.T) {
	replica := func(s *ClusterStatus, stream int, member string) *ReplicaStatus {
		i := slices.IndexFunc(s.Streams[stream].Replicas, func(r ReplicaStatus) bool { return r.Member == member })
		return &s.Streams[stream].Replicas[i]
	}
	for _, tc := range []struct {
		what   string
		change func(*ClusterStatus)
		want   []string
	}{
		{"all is well", func(*ClusterStatus) {}, nil},
		{"small lags", func(s *ClusterStatus) {
			s.Members[1].DefinitionsLag, s.Members[1].FoldLag, s.Members[2].ClockSkewSeconds = 20, []uint64{80, 80, 80}, -0.4
			replica(s, 0, "b").Lag = 20
		}, nil},
		{"a backend that is alone", func(s *ClusterStatus) {
			*s = ClusterStatus{Member: "a", Size: 1, Leader: "a", DiskReserve: 1e9, Members: s.Members[:1], Streams: s.Streams[:1]}
			s.Streams[0].Copies, s.Streams[0].Replicas = 1, nil
		}, nil},
		{"a log on NATS servers", func(s *ClusterStatus) {
			s.NATS, s.Leader = "nats:4222", ""
			for i := range s.Streams {
				s.Streams[i].Leader = "nats-1"
			}
		}, nil},
		{"NATS takes nothing", func(s *ClusterStatus) {
			s.NATS, s.Leader = "nats:4222", ""
			s.Members[0].Leased, s.Members[1].Leased = false, false
			s.Streams[2].Leader, s.Streams[2].Replicas = "", nil
		}, []string{
			"a cannot write to the event log on NATS: it acts for nothing and takes no agents",
			"partition 0 has no leader: the log takes nothing",
			"b cannot write to the event log on NATS: it acts for nothing and takes no agents",
		}},
		{"one drains", func(s *ClusterStatus) { s.Members[1].Draining = true }, nil},
		{"all drain, and one is away", func(s *ClusterStatus) {
			s.Members[0].Draining, s.Members[1].Draining = true, true
			s.Members[2].Up, s.Members[2].AwaySeconds = false, 12
		}, []string{
			"1 of 3 members is away: c for 12 s",
			"all members that are up drain: no agent finds a backend; end a drain with lapwing cluster drain --undo",
		}},
		{"it does not know its members", func(s *ClusterStatus) { s.Members = nil },
			[]string{"the backend that answers does not know its members at present"}},
		{"one is away", func(s *ClusterStatus) {
			s.Members[1].Up, s.Members[1].AwaySeconds, s.Members[1].Ready, s.Members[1].OnRoster = false, 12.7, false, false
			replica(s, 0, "b").Offline = true // goes without saying
		}, []string{"1 of 3 members is away: b for 12 s"}},
		{"two are away for long", func(s *ClusterStatus) {
			s.Members[1].Up, s.Members[1].AwaySeconds = false, 200
			s.Members[2].Up, s.Members[2].AwaySeconds = false, 200_000
			s.Members[0].Leased = false
			s.Leader = ""
			for i := range s.Streams {
				s.Streams[i].Leader, s.Streams[i].Replicas = "", nil
			}
		}, []string{
			"a does not hear a majority of the 3 members, or cannot write to the event log: it acts for nothing and takes no agents",
			"the broker has no leader: no majority of the members is connected",
			"the audit log has no leader: nothing can be added",
			"partitions 0, 1 and 2 have no leader: the log takes nothing",
			"the definitions have no leader: they cannot be changed",
			"2 of 3 members are away: b for 3 min and c for 2 days",
		}},
		{"one partition without a leader", func(s *ClusterStatus) { s.Streams[2].Leader, s.Streams[2].Replicas = "", nil },
			[]string{"partition 0 has no leader: the log takes nothing"}},
		{"partitions without an owner", func(s *ClusterStatus) { s.Partitions[0].Owner, s.Partitions[2].Owner = "", "" },
			[]string{"partitions 0 and 2 have no owner: alerts wait"}},
		{"the broker hangs", func(s *ClusterStatus) {
			s.LeaderError = "no answer within 700ms"
			for i := range s.Streams {
				s.Streams[i] = StreamStatus{Name: s.Streams[i].Name, Holds: s.Streams[i].Holds, Copies: 3, Error: "no answer within 700ms"}
			}
		}, []string{
			"whether the broker has a leader is not known: no answer within 700ms",
			"how the definitions, the audit log, partition 0, partition 1 and partition 2 stand is not known, perhaps without a leader: " +
				"no answer within 700ms",
		}},
		{"one stream is silent", func(s *ClusterStatus) {
			s.Streams[3] = StreamStatus{Holds: "partition 1", Copies: 3, Error: "no answer"}
		},
			[]string{"how partition 1 stands is not known, perhaps without a leader: no answer"}},
		{"a member was never heard", func(s *ClusterStatus) { s.Members = s.Members[:2] },
			[]string{"1 of 3 members is not known: start it"}},
		{"a fourth joined", func(s *ClusterStatus) {
			more := s.Members[2]
			more.Name = "d"
			s.Members = append(s.Members, more)
		}, []string{"4 members are connected, and a counts on 3: name all of them in its --peers"}},
		{"members that do not act", func(s *ClusterStatus) {
			s.Members[0].Leaving = true
			s.Members[1].Ready, s.Members[1].OnRoster, s.Members[1].DefinitionsLag = false, false, 5000
			s.Members[2].OnRoster = false
		}, []string{
			"a is stopping", "b is starting: it reads the event log", "c is connected, and not on the list of members yet",
		}},
		{"another one has no lease", func(s *ClusterStatus) { s.Members[1].Leased = false },
			[]string{"b does not hear a majority of the members, or cannot write to the event log: " +
				"it acts for nothing and takes no agents"}},
		{"digests", func(s *ClusterStatus) { s.Members[2].DigestsDiffer = []int{0, 2} }, []string{
			"a and c have read different messages in partitions 0 and 2 of the event log: " +
				"ask the third member which of them is wrong, and give that one an empty state directory",
		}},
		{"definitions", func(s *ClusterStatus) {
			s.Members[1].DefinitionsDiffer, s.Members[2].DefinitionsStandSeconds = true, 120
		}, []string{
			"a and b have different definitions: ask the third member which of them is wrong, and give that one an empty state directory",
			"c has got no definitions for 120 s, and lacks changes: restart it; if that does not help, remove it and give it an " +
				"empty state directory",
		}},
		{"copies", func(s *ClusterStatus) {
			s.Streams[2].Replicas = s.Streams[2].Replicas[:1]
			replica(s, 0, "b").Offline = true
			replica(s, 1, "c").HeardSeconds = 40
			replica(s, 3, "c").Lag = 1234
		}, []string{
			"partition 0 has only 2 of 3 copies", "b has copies that do not answer: the definitions",
			"c has copies that do not answer: the audit log", "c has copies that lag behind: partition 1 (1234 changes)",
		}},
		{"disks", func(s *ClusterStatus) { s.Members[0].DiskFree, s.Members[2].DiskFree = 1_900_000_000, 12_000_000 }, []string{
			"the disk of a is nearly full: 1900 MB are free", "the disk of c is full: 12 MB are free",
		}},
		{"clocks", func(s *ClusterStatus) { s.Members[1].ClockSkewSeconds, s.Members[2].ClockSkewSeconds = 3600.2, -7 }, []string{
			"the clock of b is 3600 s ahead of that of a", "the clock of c is 7 s behind that of a",
		}},
		{"members behind", func(s *ClusterStatus) {
			s.Members[1].DefinitionsLag, s.Members[2].FoldLag = 900, []uint64{0, 12_000, 0}
		}, []string{"b lacks 900 changes of definitions", "c has to fold 12000 messages of partition 1"}},
		{"all leaders on one", func(s *ClusterStatus) {
			for i := range s.Streams {
				s.Streams[i].Leader = "b"
			}
		}, []string{"b leads all 5 streams: if it dies, all of them wait for an election"}},
		{"versions", func(s *ClusterStatus) { s.Members[1].Version = "1.1" },
			[]string{"the members run different versions: 1.0 (a, c) and 1.1 (b)"}},
	} {
		st := wellCluster()
		tc.change(st)
		if got := st.problems(); !slices.Equal(got, tc.want) {
			t.Errorf("%s:\n  %s\nwant:\n  %s", tc.what, strings.Join(got, "\n  "), strings.Join(tc.want, "\n  "))
		}
	}
}

// fakeCluster is a ClusterView that records what it is asked for.
type fakeCluster struct {
	status   *ClusterStatus
	up       []string
	done     []string
	revision uint64
	cutOff   bool
}

func (f *fakeCluster) Revision() uint64 { return f.revision }
func (f *fakeCluster) CutOff() bool     { return f.cutOff }

func (f *fakeCluster) Status(context.Context) *ClusterStatus { return f.status }

func (f *fakeCluster) Remove(_ context.Context, name string) (string, error) {
	switch {
	case slices.Contains(f.up, name):
		return "", fmt.Errorf("%w: stop %s first", ErrMemberUp, name)
	case name == "silence":
		return "", fmt.Errorf("%w: try again", ErrMemberSilent)
	case name != "c":
		return "", NoMember(name, []string{"c", "a"})
	}
	f.done = append(f.done, "remove "+name)
	return name + "-0123", nil
}

func (f *fakeCluster) Drain(_ context.Context, member string, action DrainAction, over time.Duration) (resource.Drain, error) {
	if member != "b" {
		return resource.Drain{}, NoMember(member, []string{"b"})
	}
	f.done = append(f.done, fmt.Sprintf("%s %s over %s", action, member, over))
	return resource.Drain{Draining: action == DrainBegin, Sessions: 4}, nil
}

func TestClusterStatus(t *testing.T) {
	fake := &fakeCluster{status: wellCluster(), up: []string{"a", "b"}}
	fake.status.Members[1].ClockSkewSeconds = 60
	own := new(drains)
	s := newServer(t, func(o *Options) { o.Cluster, o.Drain = fake, own })
	var got ClusterStatus
	if err := json.Unmarshal([]byte(s.do("GET", ours+"cluster", "").is(200).body), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Members) != 3 || !slices.Equal(got.Problems, []string{"the clock of b is 60 s ahead of that of a"}) {
		t.Errorf("status %+v", got)
	}

	const members = ours + "cluster/members/"
	s.do("DELETE", members+"a", "").refuses(409, codeInvalid, "the member is connected: stop a first")
	s.do("DELETE", members+"d", "").refuses(404, codeNotFound, "no such member: d is none of the members a and c")
	s.do("DELETE", members+"silence", "").refuses(503, codeInternal, "the member or the cluster is silent: try again")
	s.do("DELETE", members+"c", "").is(204)
	const drain = ours + "drain?member="
	s.do("POST", drain+"d", "").refuses(404, codeNotFound, "no such member: d is none of the members b")
	s.do("POST", drain+"b", `{"over_seconds":7}`).is(200)
	s.do("DELETE", drain+"b", "").is(204)
	if a := s.do("GET", drain+"b", "").is(200); a.body != `{"draining":false,"sessions":4}` {
		t.Errorf("drain of b: %s", a.body)
	}
	if want := []string{"remove c", "begin b over 7s", "end b over 0s", "look b over 0s"}; !slices.Equal(fake.done, want) {
		t.Errorf("done %q, want %q", fake.done, want)
	}
	if !own.since.IsZero() {
		t.Error("the drain of another member drained the own agents")
	}
	var entries []string
	for _, e := range s.audit(ours + "audit?resource=cluster") {
		entries = append(entries, e.Action+" "+e.Name)
	}
	if want := []string{"delete drain/b", "create drain/b", "delete c-0123"}; !slices.Equal(entries, want) {
		t.Errorf("the audit log has %q, want %q", entries, want)
	}

	reader := s.user("reader", "readers")
	s.grant("readers", "", resource.Rule{Verbs: []string{"get"}, Resources: []string{"cluster"}})
	nobody := s.user("nobody")
	for _, tc := range []struct {
		method, path, token string
		want                int
	}{
		{"GET", ours + "cluster", reader, 200}, {"GET", ours + "cluster", nobody, 403},
		{"DELETE", members + "c", reader, 403}, {"GET", drain + "b", reader, 200},
	} {
		if got := s.ask(tc.method, tc.path, tc.token); got != tc.want {
			t.Errorf("%s %s: %d, want %d", tc.method, tc.path, got, tc.want)
		}
	}
	s.do(http.MethodPost, ours+"cluster", "").is(405)
}

// TestClusterOfOne: a backend without a cluster shows itself, and cannot remove itself.
func TestClusterOfOne(t *testing.T) {
	own := new(drains)
	s := newServer(t, func(o *Options) { o.Drain = own })
	var got ClusterStatus
	if err := json.Unmarshal([]byte(s.do("GET", ours+"cluster", "").is(200).body), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Members) != 1 || !got.Members[0].Self || got.Members[0].Sessions != 3 || len(got.Problems) != 0 {
		t.Errorf("status %+v", got)
	}
	s.do("DELETE", ours+"cluster/members/"+got.Member, "").is(409)
	s.do("DELETE", ours+"cluster/members/x", "").is(404)
	s.do("POST", ours+"drain?member="+got.Member, "").is(200)
	if own.since.IsZero() {
		t.Error("by its name the backend is not drained")
	}
	s.do("POST", ours+"drain?member=x", "").is(404)
}
