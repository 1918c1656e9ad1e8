package broker

import (
	"fmt"
	"testing"
	"time"
)

// groupsLedBy returns streams s0, s1, … of the members a, b and c with these leaders, all copies current.
func groupsLedBy(leaders ...string) map[string]Group {
	groups := map[string]Group{}
	for i, leader := range leaders {
		g := Group{Leader: leader}
		for _, name := range []string{"a", "b", "c"} {
			if name != leader {
				g.Replicas = append(g.Replicas, Replica{Name: name, Current: true})
			}
		}
		groups[fmt.Sprint("s", i)] = g
	}
	return groups
}

// TestLeading: a member that leads more than its share for a minute gives one stream a minute to the one that leads
// fewest.
func TestLeading(t *testing.T) {
	begin := time.Unix(1000, 0)
	play := func(what string, groups func(second int) map[string]Group, want map[int]string) {
		t.Helper()
		var l leading
		for second := 0; second <= 150; second += 5 {
			stream, to := l.giveAway(begin.Add(time.Duration(second)*time.Second), "a", 3, groups(second))
			got := stream + to
			if got != want[second] {
				t.Errorf("%s: after %d s it gives away %q, want %q", what, second, got, want[second])
			}
		}
	}
	always := func(groups map[string]Group) func(int) map[string]Group {
		return func(int) map[string]Group { return groups }
	}
	play("all", always(groupsLedBy("a", "a", "a", "a")), map[int]string{60: "s0b", 120: "s0b"})
	play("one too many", always(groupsLedBy("b", "a", "a", "a")), map[int]string{60: "s1c", 120: "s1c"})
	play("its share", always(groupsLedBy("b", "a", "a", "c")), nil)
	play("its share, and another one less", always(groupsLedBy("b", "b", "a", "a")), nil)
	play("another one", always(groupsLedBy("b", "b", "b", "b")), nil)
	play("a copy is behind for a while", func(second int) map[string]Group {
		groups := groupsLedBy("a", "a", "a", "a")
		groups["s3"].Replicas[1].Current = second != 40
		return groups
	}, map[int]string{105: "s0b"})
	busy := groupsLedBy("a", "a", "a", "a")
	for _, g := range busy {
		g.Replicas[0].Current, g.Replicas[0].Lag, g.Replicas[0].Heard = false, mayLack, heardLately/2
	}
	play("under load", always(busy), map[int]string{60: "s0b", 120: "s0b"})
	for what, spoil := range map[string]func(*Group){
		"a copy lacks many": func(g *Group) {
			g.Replicas[0].Current, g.Replicas[0].Lag, g.Replicas[0].Heard = false, mayLack+1, time.Millisecond
		},
		"a copy is silent":       func(g *Group) { g.Replicas[0].Current, g.Replicas[0].Heard = false, heardLately },
		"a copy was never heard": func(g *Group) { g.Replicas[0].Current = false },
		"a copy is offline":      func(g *Group) { g.Replicas[0].Offline = true },
		"a copy is missing":      func(g *Group) { g.Replicas = g.Replicas[:1] },
		"no leader":              func(g *Group) { *g = Group{} },
	} {
		groups := groupsLedBy("a", "a", "a", "a")
		g := groups["s2"]
		spoil(&g)
		groups["s2"] = g
		play(what, always(groups), nil)
	}
}

// TestOwnCopy: a replica that stands still for a minute while its leader goes on is rebuilt, and no other.
func TestOwnCopy(t *testing.T) {
	begin := time.Unix(1000, 0)
	type look struct {
		own streamView
		g   Group
	}
	play := func(what string, see func(second int, l *look), want ...int) {
		t.Helper()
		var o ownCopy
		var got []int
		for second := 0; second <= 150; second += 5 {
			l := look{
				streamView{Leader: "a", Majority: true, Last: 10},
				Group{Leader: "a", Last: uint64(20 + second), Replicas: []Replica{{Name: "b", Current: true}, {Name: "self"}}},
			}
			see(second, &l)
			if o.stands(begin.Add(time.Duration(second)*time.Second), "self", l.own, l.g) {
				got = append(got, second)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: it is rebuilt after %v s, want %v", what, got, want)
		}
	}
	play("it stands still", func(int, *look) {}, 60, 125)
	play("it is slow", func(second int, l *look) { l.own.Last += uint64(second / 30) })
	play("it has everything", func(_ int, l *look) { l.own.Last = l.g.Last })
	play("nothing is written", func(_ int, l *look) { l.g.Last = 20 })
	play("it is the leader", func(_ int, l *look) { l.own.Leads = true })
	play("no majority", func(_ int, l *look) { l.own.Majority = false })
	play("no leader", func(_ int, l *look) { l.own.Leader = "" })
	play("it knows another leader", func(_ int, l *look) { l.own.Leader = "b" })
	play("another one is behind too", func(_ int, l *look) { l.g.Replicas[0].Current = false })
	play("it catches up in between", func(second int, l *look) {
		if second == 40 {
			l.own.Last = l.g.Last
		}
	}, 105)
}
