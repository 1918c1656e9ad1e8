package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/fields"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const partitions = 4

// slowness is the delay of a slow node.
const slowness = 400 * time.Millisecond

// network is what the members of a test share: the links between them, and a log that takes what a majority can reach.
type network struct {
	t     *testing.T
	size  int
	open  bool // the log takes what any member writes that reaches it, and the members do not know their number
	nodes []*node

	mu   sync.Mutex // guards the fields below
	cut  map[[2]int]bool
	out  map[int]bool // members that cannot write to the log; in an open cluster they do not read it either
	log  [partitions][][]byte
	wake chan struct{} // closed when something has changed
}

// node is one member of a test.
type node struct {
	*Cluster
	net   *network
	index int
	db    *pebble.DB
	hold  chan struct{} // Describe waits for it; nil if the process runs
	slow  bool          // it folds the log, and hears the others, with slowness

	mu     sync.Mutex // guards the fields below
	listen func(string, []byte)
	killed bool
	info   Info
	folded [partitions]int
	acks   map[[2]int]func() // of what it appended and has not folded, by partition and number
	stop   context.CancelFunc
	done   sync.WaitGroup
}

func newNetwork(t *testing.T, size int) *network {
	return (&network{size: size}).run(t, size)
}

// run starts so many members.
func (n *network) run(t *testing.T, members int) *network {
	n.t, n.cut, n.out, n.wake = t, map[[2]int]bool{}, map[int]bool{}, make(chan struct{})
	for i := range members {
		fs := vfs.NewMem()
		db, err := pebble.Open("", &pebble.Options{FS: fs, Logger: noLog{}})
		if err != nil {
			t.Fatal(err)
		}
		n.nodes = append(n.nodes, &node{net: n, index: i, db: db, acks: map[[2]int]func(){}})
	}
	for _, one := range n.nodes {
		one.start()
	}
	t.Cleanup(func() {
		for _, one := range n.nodes {
			one.kill()
			if err := one.db.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return n
}

type noLog struct{}

func (noLog) Infof(string, ...any)      {}
func (noLog) Errorf(string, ...any)     {}
func (noLog) Fatalf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }

func id(i int) string { return string(rune('a' + i)) }

// start runs the member's process.
func (n *node) start() {
	c, err := New(Options{
		ID: id(n.index), Name: "node-" + id(n.index), Size: n.net.size, Log: n, Bus: n,
		Describe: func() Info {
			n.mu.Lock()
			hold := n.hold
			n.mu.Unlock()
			if hold != nil {
				<-hold
			}
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.info
		},
	})
	if err != nil {
		n.net.t.Fatal(err)
	}
	if err := c.Load(n.db); err != nil {
		n.net.t.Fatal(err)
	}
	n.mu.Lock()
	n.Cluster, n.killed = c, false
	n.mu.Unlock()
	if err := c.Start(context.Background()); err != nil {
		n.net.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.stop = cancel
	n.done.Go(func() { n.follow(ctx) })
	c.Ready()
}

// kill ends the process without a farewell.
func (n *node) kill() {
	n.mu.Lock()
	n.killed, n.listen = true, nil
	n.mu.Unlock()
	n.stop()
	if err := n.Stop(); err != nil {
		n.net.t.Error(err)
	}
	n.done.Wait()
}

// freeze has the process stand still until the returned function is called.
func (n *node) freeze() (thaw func()) {
	hold := make(chan struct{})
	n.mu.Lock()
	n.hold = hold
	n.mu.Unlock()
	return func() {
		n.mu.Lock()
		n.hold = nil
		n.mu.Unlock()
		close(hold)
	}
}

func (n *node) frozen() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.hold != nil
}

// follow folds the log while a majority is reachable.
func (n *node) follow(ctx context.Context) {
	for ctx.Err() == nil {
		n.net.mu.Lock()
		wake := n.net.wake
		type message struct {
			partition, seq int
			body           []byte
		}
		var all []message
		if n.net.majority(n.index) && !n.frozen() {
			for p := range partitions {
				for i := n.folded[p]; i < len(n.net.log[p]); i++ {
					all = append(all, message{p, i + 1, n.net.log[p][i]})
				}
				n.folded[p] = len(n.net.log[p])
			}
		}
		n.net.mu.Unlock()
		n.mu.Lock()
		slow := n.slow
		n.mu.Unlock()
		if slow && len(all) > 0 {
			select {
			case <-time.After(slowness):
			case <-ctx.Done():
			}
		}
		for _, m := range all {
			if err := n.Fold(m.partition, uint64(m.seq), m.body); err != nil {
				n.net.t.Error(err)
			}
			n.mu.Lock()
			ack := n.acks[[2]int{m.partition, m.seq}]
			delete(n.acks, [2]int{m.partition, m.seq})
			n.mu.Unlock()
			if ack != nil {
				ack()
			}
		}
		select {
		case <-wake:
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// majority reports whether a node reaches a majority both ways, and so the log. The caller holds mu.
func (n *network) majority(i int) bool {
	if n.open {
		return !n.out[i]
	}
	reached := 0
	for j, other := range n.nodes {
		other.mu.Lock()
		down := other.killed || other.hold != nil && i != j
		other.mu.Unlock()
		if !down && (i == j || !n.cut[[2]int{i, j}] && !n.cut[[2]int{j, i}]) {
			reached++
		}
	}
	return reached > n.size/2
}

var errNoMajority = errors.New("no majority")

func (n *node) Partitions() int { return partitions }

func (n *node) AppendTo(ctx context.Context, p int, r *eventlog.Record, acker eventlog.Acker, token uint64) error {
	net := n.net
	for {
		net.mu.Lock()
		if net.majority(n.index) && !net.out[n.index] {
			net.log[p] = append(net.log[p], r.Body)
			seq := len(net.log[p])
			n.mu.Lock()
			n.acks[[2]int{p, seq}] = func() { acker.Logged(token, p, uint64(seq), nil) }
			n.mu.Unlock()
			close(net.wake)
			net.wake = make(chan struct{})
			net.mu.Unlock()
			return nil
		}
		net.mu.Unlock()
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return errNoMajority
		}
	}
}

func (n *node) Publish(_ string, data []byte) error {
	for j, other := range n.net.nodes {
		n.net.mu.Lock()
		cut := n.net.cut[[2]int{n.index, j}]
		n.net.mu.Unlock()
		other.mu.Lock()
		listen, frozen, slow := other.listen, other.hold != nil, other.slow
		other.mu.Unlock()
		switch {
		case cut || frozen || listen == nil:
		case slow:
			time.AfterFunc(slowness, func() { listen("", data) })
		default:
			listen("", data)
		}
	}
	return nil
}

func (n *node) Subscribe(subject string, f func(string, []byte)) (func(), error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if subject == beatSubject {
		n.listen = f
	}
	return func() {}, nil
}

func (n *node) Request(context.Context, string, []byte) ([]byte, error) { return nil, ErrAway }

// sever cuts or mends the links from one node to others, in this direction.
func (n *network) sever(yes bool, from int, to ...int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, j := range to {
		n.cut[[2]int{from, j}] = yes
	}
}

// within fails the test if a state does not come within a time. It returns how long it took.
func (n *network) within(limit time.Duration, what string, ok func() bool) time.Duration {
	n.t.Helper()
	begin := time.Now()
	for !ok() {
		if time.Since(begin) > limit {
			n.t.Fatalf("not within %s: %s", limit, what)
		}
		time.Sleep(10 * time.Millisecond) // in the bubble's time
	}
	return time.Since(begin)
}

// agreed returns whether the given nodes have the given members on all rosters.
func (n *network) agreed(members ...int) func() bool {
	var ids []string
	for _, i := range members {
		ids = append(ids, id(i))
	}
	return func() bool {
		for _, i := range members {
			c := n.nodes[i].Cluster
			for p := range partitions {
				c.mu.RLock()
				r := c.parts[p].rosters.newest()
				c.mu.RUnlock()
				if !slices.Equal(r.Members, ids) {
					return false
				}
			}
		}
		return true
	}
}

// owners returns how many of the nodes own each lane, by the node's own view. It asks between two steps of the nodes: a
// lane could go from one node to another while they are asked in turn.
func (n *network) owners(nodes ...int) map[string]int {
	synctest.Wait()
	owners := map[string]int{}
	for p := range partitions {
		lane := PartitionLane(p)
		for _, i := range nodes {
			if c := n.nodes[i].Cluster; c.Owns(p, lane) && c.Leased() {
				owners[lane]++
			}
		}
	}
	return owners
}

func TestThreeComeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 3)
		n.within(10*time.Second, "three members", n.agreed(0, 1, 2))
		for lane, count := range n.owners(0, 1, 2) {
			if count != 1 {
				t.Errorf("%s has %d owners", lane, count)
			}
		}
		time.Sleep(time.Minute)
		if number := n.nodes[0].Number(0); number > 3 {
			t.Errorf("at rest there were %d rosters", number)
		}
	})
}

func TestKilledMemberIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 3)
		n.within(10*time.Second, "three members", n.agreed(0, 1, 2))
		for _, victim := range []int{2, 0, 1} {
			left := slices.DeleteFunc([]int{0, 1, 2}, func(i int) bool { return i == victim })
			n.nodes[victim].kill()
			took := n.within(6*time.Second, "two members", n.agreed(left...))
			if took < 2*time.Second {
				t.Errorf("%s was taken off after %s: a short pause would do that too", id(victim), took)
			}
			for lane, count := range n.owners(left...) {
				if count != 1 {
					t.Errorf("%s has %d owners", lane, count)
				}
			}
			survivor := n.nodes[left[0]].Cluster
			if _, since := survivor.Watches(0, id(victim)); since.IsZero() {
				t.Error("the deadlines of what was heard through the dead member get no grace")
			}
			n.nodes[victim].start()
			n.within(10*time.Second, "it comes back", n.agreed(0, 1, 2))
		}
	})
}

func TestMemberThatLeavesIsReplacedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 3)
		n.within(10*time.Second, "three members", n.agreed(0, 1, 2))
		begin := time.Now()
		if err := n.nodes[1].Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		n.within(time.Second, "two members", n.agreed(0, 2))
		if took := time.Since(begin); took > time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

func TestMinorityHasNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 3)
		n.within(10*time.Second, "three members", n.agreed(0, 1, 2))
		n.sever(true, 0, 1, 2)
		n.sever(true, 1, 0)
		n.sever(true, 2, 0)
		lost := n.within(3*time.Second, "the lease ends", func() bool { return !n.nodes[0].Leased() })
		if acts := n.within(6*time.Second, "two members", n.agreed(1, 2)); acts <= 0 {
			t.Errorf("the others acted %s after the lease was lost at %s", acts, lost)
		}
		n.sever(false, 0, 1, 2)
		n.sever(false, 1, 0)
		n.sever(false, 2, 0)
		n.within(10*time.Second, "it comes back", n.agreed(0, 1, 2))
	})
}

// One member does not hear another one, the third hears both: nothing changes.
func TestOneBrokenLinkChangesNothing(t *testing.T) {
	for _, bothWays := range []bool{false, true} {
		t.Run(fmt.Sprint(bothWays), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t, 3)
				n.within(10*time.Second, "three members", n.agreed(0, 1, 2))
				before := n.nodes[0].Number(0)
				n.sever(true, 0, 1)
				n.sever(bothWays, 1, 0)
				time.Sleep(time.Minute)
				if !n.agreed(0, 1, 2)() || n.nodes[2].Number(0) != before {
					t.Errorf("after a minute the roster is %d, it was %d", n.nodes[2].Number(0), before)
				}
				for i := range 3 {
					if !n.nodes[i].Leased() {
						t.Errorf("%s has no lease", id(i))
					}
				}
			})
		})
	}
}

// A member that hears the others and is not heard loses its lease before another one acts.
func TestUnheardMemberLosesItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 3)
		n.within(10*time.Second, "three members", n.agreed(0, 1, 2))
		n.sever(true, 0, 1, 2)
		n.within(4*time.Second, "the lease ends", func() bool { return !n.nodes[0].Leased() })
		for _, i := range []int{1, 2} {
			if !n.nodes[i].Leased() {
				t.Errorf("%s lost its lease", id(i))
			}
		}
		n.within(6*time.Second, "two members", n.agreed(1, 2))
	})
}

func TestFrozenMemberKnowsThatItMayNotAct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 3)
		n.within(10*time.Second, "three members", n.agreed(0, 1, 2))
		number := n.nodes[1].Number(0)
		thaw := n.nodes[1].freeze()
		n.within(6*time.Second, "two members", n.agreed(0, 2))
		thaw()
		if n.nodes[1].Leased() || n.nodes[1].MayAct() {
			t.Error("it has a lease when it runs again")
		}
		n.within(10*time.Second, "it comes back", n.agreed(0, 1, 2))
		for _, i := range []int{0, 1, 2} {
			c := n.nodes[i].Cluster
			if !c.Late(0, 1000, id(1), number) || c.Late(0, 1000, id(1), c.Number(0)) || c.Late(0, 1000, id(0), number) {
				t.Errorf("%s does not know which batches are late", id(i))
			}
		}
	})
}

// TestHandover: while a partition goes from one member to another that both live, not both may act for it, although one
// of them learns of it later. The new owner does not wait for long.
func TestHandover(t *testing.T) {
	for slow := range 3 {
		t.Run(id(slow), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t, 3)
				n.within(10*time.Second, "three members", n.agreed(0, 1, 2))
				n.nodes[2].kill()
				n.within(10*time.Second, "two members", n.agreed(0, 1))
				n.nodes[2].start()
				n.nodes[slow].mu.Lock()
				n.nodes[slow].slow = true
				n.nodes[slow].mu.Unlock()
				idle := map[int]time.Duration{} // by partition: how long no member could act
				const step = time.Millisecond
				for range 10 * time.Second / step {
					time.Sleep(step)
					synctest.Wait() // or a partition could go from one member to another while they are asked in turn
					for p := range partitions {
						var act []string
						for i, one := range n.nodes {
							if one.Owns(p, PartitionLane(p)) && one.MayAct() {
								act = append(act, id(i))
							}
						}
						switch len(act) {
						case 0:
							idle[p] += step
						case 2:
							t.Fatalf("%v act for partition %d", act, p)
						}
					}
				}
				for p, d := range idle {
					if d > 2*time.Second {
						t.Errorf("partition %d had no owner that acts for %v", p, d)
					}
				}
				if !n.agreed(0, 1, 2)() {
					t.Error("the member did not come back")
				}
			})
		})
	}
}

func TestTwoOfThreeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 3)
		n.nodes[0].kill()
		n.within(10*time.Second, "two members", n.agreed(1, 2))
	})
}

func TestRestartOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 3)
		n.within(10*time.Second, "three members", n.agreed(0, 1, 2))
		for _, one := range n.nodes {
			one.kill()
		}
		time.Sleep(time.Hour)
		for _, one := range n.nodes {
			one.start()
		}
		n.within(10*time.Second, "three members", n.agreed(0, 1, 2))
		for _, one := range n.nodes {
			one.kill()
		}
		n.nodes[1].start()
		time.Sleep(time.Minute)
		if n.nodes[1].Leased() {
			t.Error("one of three has a lease")
		}
		n.nodes[2].start()
		n.within(10*time.Second, "two members", n.agreed(1, 2))
	})
}

func TestOwnersMoveLittle(t *testing.T) {
	three := Roster{Number: 1, Members: []string{"a", "b", "c"}}
	two := Roster{Number: 2, Members: []string{"a", "c"}}
	count := map[string]int{}
	for i := range 3000 {
		lane := AggregateLane("default", fmt.Sprint("a", i))
		owner := three.owner(lane)
		count[owner]++
		if owner != "b" && two.owner(lane) != owner {
			t.Fatalf("%s moved from %s to %s although both members stayed", lane, owner, two.owner(lane))
		}
	}
	for id, n := range count {
		if n < 850 || n > 1150 {
			t.Errorf("%s owns %d of 3000 lanes", id, n)
		}
	}
	if owner := (Roster{}).owner("p/0"); owner != "" {
		t.Errorf("without members %q owns", owner)
	}
}

// TestNewerRoster: members must not pass over a roster that they cannot read.
func TestNewerRoster(t *testing.T) {
	newer := (*fields.NewerError)(nil)
	if _, err := decodeRoster([]byte{rosterVersion + 1, 1}); !errors.As(err, &newer) || newer.Got != rosterVersion+1 {
		t.Errorf("a roster of the next version: %v", err)
	}
	if _, err := decodeHistory([]byte{rosterVersion + 1}); !errors.As(err, &newer) {
		t.Errorf("stored rosters of the next version: %v", err)
	}
	for _, body := range [][]byte{nil, {0, 1}} {
		if _, err := decodeRoster(body); err == nil || errors.As(err, &newer) {
			t.Errorf("roster %v: %v", body, err)
		}
	}
}

// TestBeatOfAnotherRelease: heartbeats of the releases before and behind this one have other fields.
func TestBeatOfAnotherRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 3)
		n.nodes[0].hear([]byte(`{"id":"x","life":"1","hears":["a"],"mood":{"calm":true},"name":"newer"}`))
		n.nodes[0].hear([]byte(`{"id":"y"}`))
		for _, id := range []string{"x", "y"} {
			if !slices.ContainsFunc(n.nodes[0].Members(), func(m Member) bool { return m.ID == id && m.Heard }) {
				t.Errorf("%s was not heard", id)
			}
		}
	})
}

func TestHistory(t *testing.T) {
	var h history
	for i := range uint64(maxHistory + 10) {
		h = h.add(10*(i+1), Roster{Number: i + 1, Members: []string{fmt.Sprint("m", i)}})
	}
	back, err := decodeHistory(h.encode())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ seq, number uint64 }{{1, 11}, {111, 11}, {120, 11}, {121, 12}, {9999, maxHistory + 10}} {
		if got := back.at(c.seq).Number; got != c.number {
			t.Errorf("at %d counts roster %d, want %d", c.seq, got, c.number)
		}
	}
	if r := (history{{100, Roster{Number: 1, Members: []string{"a"}}}}).at(100); r.Number != 0 {
		t.Errorf("before the first roster counts %d", r.Number)
	}
}

func FuzzRoster(f *testing.F) {
	f.Add(Roster{Number: 3, Members: []string{"a", "b"}}.encode())
	f.Add(history{{1, Roster{Number: 1, Members: []string{"a"}}}}.encode())
	f.Fuzz(func(t *testing.T, body []byte) {
		if r, err := decodeRoster(body); err == nil {
			if again, err := decodeRoster(r.encode()); err != nil || again.Number != r.Number || !slices.Equal(again.Members, r.Members) {
				t.Errorf("%v became %v, %v", r, again, err)
			}
		}
		_, _ = decodeHistory(body)
	})
}

func TestAloneOwnsEverything(t *testing.T) {
	c := Alone("x")
	watches, since := c.Watches(0, "gone")
	if !c.Acts(RemindersLane) || !c.Owns(3, PartitionLane(3)) || !c.OwnedAt(0, 1, "p/0", "y", 0) || !watches || !since.IsZero() ||
		!c.Leased() || c.Late(0, 1, "y", 1) || !c.MayAct() || c.Number(0) != 0 {
		t.Error("a backend that is alone does not own everything")
	}
	if err := errors.Join(c.Fold(0, 1, nil), c.Leave(t.Context()), c.Stop()); err != nil {
		t.Error(err)
	}
}

// TestReportsOfALoneBackend: what a backend reported while it was alone counts, even if an earlier cluster has left
// rosters.
func TestReportsOfALoneBackend(t *testing.T) {
	c := &Cluster{parts: []partition{{rosters: history{{5, Roster{Number: 3, Members: []string{"a"}}}}}}}
	for _, tc := range []struct {
		id    string
		since uint64
		want  bool
	}{{"a", 3, true}, {"b", 3, false}, {"a", 0, true}, {"b", 0, true}} {
		if got := c.OwnedAt(0, 10, PartitionLane(0), tc.id, tc.since); got != tc.want {
			t.Errorf("a report of %s since roster %d counts: %v", tc.id, tc.since, got)
		}
	}
}
