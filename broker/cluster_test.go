package broker_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/internal/testbroker"
	"github.com/lapwing-monitoring/lapwing/internal/testcert"
)

const stream = "s"

var streamConfig = jetstream.StreamConfig{Name: stream, Subjects: []string{"s.>"}}

// open opens the stream of the tests on a member.
func open(t *testing.T, b *broker.Broker) {
	t.Helper()
	if _, err := b.OpenStream(t.Context(), streamConfig); err != nil {
		t.Fatal(err)
	}
}

// openAll opens it on several members at once.
func openAll(t *testing.T, c *testbroker.Cluster, which ...int) {
	t.Helper()
	var opening sync.WaitGroup
	for _, i := range which {
		opening.Go(func() {
			_, err := c.Member(i).OpenStream(t.Context(), streamConfig)
			if err != nil {
				t.Error(err)
			}
		})
	}
	opening.Wait()
}

// write stores a message, and tries until that succeeds.
func write(t *testing.T, b *broker.Broker, text string) uint64 {
	t.Helper()
	var seq uint64
	testbroker.Eventually(t, func() (err error) {
		seq, err = b.Write(t.Context(), &nats.Msg{Subject: "s.a", Data: []byte(text)})
		return err
	})
	return seq
}

// reader collects what a member follows.
type reader struct {
	t *testing.T
	f *broker.Following
}

func follow(t *testing.T, b *broker.Broker) reader {
	interrupted := func(err error) { t.Logf("%s: %v", b.Name(), err) }
	f := b.Follow(broker.FollowOptions{Stream: stream, Interrupted: interrupted})
	t.Cleanup(f.Stop)
	return reader{t, f}
}

// want waits for the messages, in order.
func (r reader) want(texts ...string) {
	r.t.Helper()
	for _, text := range texts {
		select {
		case m := <-r.f.Messages:
			if string(m.Data) != text {
				r.t.Fatalf("got %q, want %q", m.Data, text)
			}
		case <-time.After(time.Minute):
			r.t.Fatalf("%q did not come", text)
		}
	}
}

// current waits until a stream has all copies and all are current.
func current(t *testing.T, b *broker.Broker, others int) {
	t.Helper()
	testbroker.Eventually(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		g, err := b.StreamStatus(ctx, stream)
		if err != nil {
			return err
		}
		n := 0
		for _, r := range g.Replicas {
			if r.Current && !r.Offline {
				n++
			}
		}
		if g.Leader == "" || n != others {
			return fmt.Errorf("stream stands so: %+v", g)
		}
		return nil
	})
}

// three starts three members, with a stream whose first message is on all of them.
func three(t *testing.T) *testbroker.Cluster {
	t.Helper()
	c := testbroker.New(t, 3)
	c.Launch(0, 1, 2)
	openAll(t, c, 0, 1, 2)
	write(t, c.Member(0), "a")
	current(t, c.Member(0), 2)
	return c
}

// leader returns which member leads the stream.
func leader(t *testing.T, c *testbroker.Cluster, asked *broker.Broker) int {
	t.Helper()
	g, err := asked.StreamStatus(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	return c.Index(g.Leader)
}

// TestThreeFreshMembers starts three at once: each writes, and each reads everything from its own copy. Then the leader
// is killed, then a follower, and then all are started again.
func TestThreeFreshMembers(t *testing.T) {
	c := testbroker.New(t, 3)
	begin := time.Now()
	c.Launch(0, 1, 2)
	t.Logf("started after %s", time.Since(begin))
	for i := range 3 {
		if n := c.Member(i).Replicas(); n != 3 {
			t.Errorf("member %d wants %d replicas", i, n)
		}
	}
	openAll(t, c, 0, 1, 2)
	t.Logf("stream open after %s", time.Since(begin))
	write(t, c.Member(0), "a")
	t.Logf("first write after %s", time.Since(begin))
	var readers []reader
	for i := range 3 {
		readers = append(readers, follow(t, c.Member(i)))
		readers[i].want("a")
	}
	write(t, c.Member(1), "b")
	write(t, c.Member(2), "c")
	for _, r := range readers {
		r.want("b", "c")
	}
	current(t, c.Member(0), 2)

	for _, kind := range []string{"leader", "follower"} {
		dead := leader(t, c, c.Member(0))
		if kind == "follower" {
			dead = (dead + 1) % 3
		}
		lives := (dead + 1) % 3
		begin := time.Now()
		c.Kill(dead)
		write(t, c.Member(lives), kind)
		t.Logf("after the death of a %s the write took %s", kind, time.Since(begin))
		for i := range 3 {
			if i != dead {
				readers[i].want(kind)
			}
		}
		if err := c.Start(t.Context(), dead); err != nil {
			t.Fatal(err)
		}
		readers[dead] = follow(t, c.Member(dead))
		readers[dead].want("a", "b", "c", "leader")
		if kind == "follower" {
			readers[dead].want(kind)
		}
		current(t, c.Member(lives), 2)
	}

	for i := range 3 {
		c.Stop(i)
	}
	c.Launch(0, 1, 2)
	openAll(t, c, 0, 1, 2)
	write(t, c.Member(0), "again")
	for i := range 3 {
		follow(t, c.Member(i)).want("a", "b", "c", "leader", "follower", "again")
	}
}

// TestThirdMemberComesLate starts two of three, which work, and then the third, which gets its copy.
func TestThirdMemberComesLate(t *testing.T) {
	c := testbroker.New(t, 3)
	c.Launch(0, 1)
	openAll(t, c, 0, 1)
	write(t, c.Member(0), "a")
	c.Launch(2)
	open(t, c.Member(2))
	write(t, c.Member(2), "b")
	follow(t, c.Member(2)).want("a", "b")
	current(t, c.Member(0), 2)
	c.Kill(0)
	write(t, c.Member(2), "c")
}

// TestStartWaits starts one of three: it says what it waits for, and Stop and the context end the wait.
func TestStartWaits(t *testing.T) {
	c := testbroker.New(t, 3)
	said := make(chan string, 10)
	c.Options(0).Waiting = func(what string) { said <- what }
	ended := make(chan error, 1)
	go func() { ended <- c.Start(t.Context(), 0) }()
	want := "waiting for a majority of the cluster's members: heard of 1 of 3"
	select {
	case what := <-said:
		if what != want {
			t.Errorf("it says %q, want %q", what, want)
		}
	case <-time.After(time.Minute):
		t.Fatal("it says nothing")
	}
	c.Stop(0)
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the start succeeded")
		}
	case <-time.After(time.Minute):
		t.Fatal("Stop did not end the start")
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if err := c.Start(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("the start ended with %v", err)
	}
}

// TestLostMajority loses two of three: nothing is written, and nothing restarts the store. The members that come back
// make writes go on.
func TestLostMajority(t *testing.T) {
	c := three(t)
	r := follow(t, c.Member(0))
	r.want("a")
	c.Kill(1)
	c.Kill(2)
	outage := broker.Outage{Stream: stream}
	for range 4 {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		if _, err := c.Member(0).Write(ctx, &nats.Msg{Subject: "s.a", Data: []byte("lost")}); err == nil {
			t.Error("a write without a majority succeeded")
		} else if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a write without a majority failed with %v", err)
		}
		cancel()
		if err := c.Member(0).TimedOut(&outage); err != nil {
			t.Error(err)
		}
	}
	if c.Member(0).Repairs() {
		t.Error("the store was opened again")
	}
	testbroker.Eventually(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if g, err := c.Member(0).StreamStatus(ctx, stream); err != nil || g.Leader != "" {
			return fmt.Errorf("without a majority the stream stands so: %+v, %w", g, err)
		}
		return nil
	})
	c.Launch(1, 2)
	write(t, c.Member(0), "b")
	testbroker.Eventually(t, func() error {
		select {
		case m := <-r.f.Messages:
			if string(m.Data) == "b" {
				return nil
			}
			return fmt.Errorf("got %q", m.Data) // a write that timed out may be stored later
		case <-time.After(time.Minute):
			return errors.New("b did not come")
		}
	})
}

// TestReopenedMember closes and opens the store of one member: its reader and its writes go on.
func TestReopenedMember(t *testing.T) {
	c := three(t)
	again := leader(t, c, c.Member(0))
	r := follow(t, c.Member(again))
	r.want("a")
	if err := c.Member(again).Repair(); err != nil {
		t.Fatal(err)
	}
	write(t, c.Member(again), "b")
	r.want("b")
	current(t, c.Member(0), 2)
}

// TestClosedStoreIsOpenedAgain: the server closes its store when the disk is full, and does not open it by itself.
func TestClosedStoreIsOpenedAgain(t *testing.T) {
	c := three(t)
	r := follow(t, c.Member(1))
	r.want("a")
	if err := c.Member(1).Close(); err != nil {
		t.Fatal(err)
	}
	write(t, c.Member(0), "b")
	testbroker.Eventually(t, c.Member(1).Err)
	current(t, c.Member(0), 2)
	r.want("b")
	write(t, c.Member(1), "c")
	r.want("c")
}

// TestStoreThatCannotBeOpened: a store that could not be opened again is closed, and opened later.
func TestStoreThatCannotBeOpened(t *testing.T) {
	c := testbroker.New(t, 3)
	c.Launch(0, 1, 2)
	openAll(t, c, 0, 1, 2)
	write(t, c.Member(0), "a")
	current(t, c.Member(0), 2)
	b, dir := c.Member(1), filepath.Join(c.Options(1).Dir, "jetstream")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.Reopen()
	if b.Err() == nil {
		t.Error("the store counts as open, and its directory is a file")
	}
	if err := errors.Join(os.Remove(dir), os.Rename(dir+"-away", dir)); err != nil {
		t.Fatal(err)
	}
	testbroker.Eventually(t, b.Err)
	write(t, c.Member(0), "b")
	current(t, c.Member(0), 2)
	follow(t, b).want("a", "b")
}

// TestRemovePeer replaces a dead member by one with an empty directory and a new name, which joins before the dead one
// is removed, or after.
func TestRemovePeer(t *testing.T) {
	for _, first := range []string{"join", "remove"} {
		t.Run(first, func(t *testing.T) {
			c := three(t)
			if err := c.Member(0).RemovePeer(t.Context(), "m2"); !errors.Is(err, broker.ErrConnected) {
				t.Errorf("a connected member was removed: %v", err)
			}
			c.Kill(2)
			opts := c.Options(2)
			old := opts.Name
			opts.Name, opts.Dir = "m2-new", t.TempDir()
			opts.Cluster.TLS = c.TLS(c.CA(), "m2-new")
			remove := func() {
				testbroker.Eventually(t, func() error {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					defer cancel()
					return c.Member(0).RemovePeer(ctx, old)
				})
			}
			if first == "join" {
				c.Launch(2)
				remove()
			} else {
				remove()
				write(t, c.Member(0), "between")
				c.Launch(2)
			}
			open(t, c.Member(2))
			current(t, c.Member(0), 2)
			write(t, c.Member(2), "b")
			if first == "join" {
				follow(t, c.Member(2)).want("a", "b")
			} else {
				follow(t, c.Member(2)).want("a", "between", "b")
			}
			for _, r := range c.Member(0).MetaStatus().Replicas {
				if r.Name == old {
					t.Errorf("%s is still a member", old)
				}
			}
		})
	}
}

// TestRemoveForgottenPeer removes a dead member whose name the others have forgotten, because they have started again.
func TestRemoveForgottenPeer(t *testing.T) {
	c := three(t)
	lost := c.Options(2).Name
	c.Kill(2)
	c.Kill(0)
	c.Kill(1)
	c.Launch(0, 1)
	openAll(t, c, 0, 1)
	var forgotten string
	testbroker.Eventually(t, func() error {
		for i := range 2 {
			for _, r := range c.Member(i).MetaStatus().Replicas {
				if strings.HasPrefix(r.Name, "unknown-") {
					forgotten = r.Name
					return nil
				}
			}
		}
		return fmt.Errorf("no member is unknown: %+v", c.Member(0).MetaStatus())
	})
	g, err := c.Member(0).StreamStatus(t.Context(), stream)
	if err != nil || !slices.ContainsFunc(g.Replicas, func(r broker.Replica) bool { return r.Name == forgotten }) {
		t.Errorf("the stream's copies are %+v, %v; want one of %s", g, err, forgotten)
	}
	testbroker.Eventually(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		return c.Member(0).RemovePeer(ctx, forgotten)
	})
	testbroker.Eventually(t, func() error {
		for i := range 2 {
			if all := c.Member(i).MetaStatus().Replicas; len(all) > 1 || len(all) == 1 && (all[0].Name == lost || all[0].Name == forgotten) {
				return fmt.Errorf("the members are %+v", all)
			}
		}
		return nil
	})
	write(t, c.Member(0), "b")
}

// TestJoinThroughOne: a fourth member that names one other member comes to know all of them, by the addresses that they
// listen on and not by those that their connections come from.
func TestJoinThroughOne(t *testing.T) {
	var all []*broker.Broker
	var peers []string
	for i := range 4 {
		_, port, _ := net.SplitHostPort(testbroker.FreeAddress(t))
		peers = append(peers, net.JoinHostPort(fmt.Sprintf("127.0.0.%d", i+2), port))
	}
	for i, address := range peers {
		host, _, _ := net.SplitHostPort(address)
		c := &broker.Cluster{Name: "test", Members: 3, ListenAddress: address, AdvertiseHost: host, Peers: peers[:3]}
		if i == 3 {
			c.Members, c.Peers = 4, peers[:1]
		}
		b, err := broker.New(broker.Options{Dir: t.TempDir(), Name: fmt.Sprintf("m%d", i), Cluster: c})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := b.Stop(); err != nil {
				t.Errorf("stop m%d: %v", i, err)
			}
		})
		all = append(all, b)
	}
	var starting sync.WaitGroup
	errs := make([]error, 3)
	for i := range errs {
		starting.Go(func() { errs[i] = all[i].Start(t.Context()) })
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := all[3].Start(ctx); err != nil {
		t.Fatal(err)
	}
	testbroker.Eventually(t, func() error {
		if known := all[3].Peers(); len(known) != 3 {
			return fmt.Errorf("the fourth member is connected to %v", known)
		}
		return nil
	})
}

// TestStrangers checks who cannot get in: a client without the secret, a server whose certificate is of another
// authority, and one of another cluster.
func TestStrangers(t *testing.T) {
	c := testbroker.New(t, 2)
	c.Launch(0, 1)
	openAll(t, c, 0, 1)
	for _, opts := range [][]nats.Option{nil, {nats.UserInfo("backend", "")}, {nats.UserInfo("system", "guess")}} {
		conn, err := nats.Connect(c.Member(0).ClientAddr(), append(opts, nats.MaxReconnects(0))...)
		if err == nil {
			conn.Close()
		}
		if !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("a client was answered with %v", err)
		}
	}
	stranger := func(cluster string, tls *tls.Config) {
		t.Helper()
		opts := *c.Options(0)
		shared := *opts.Cluster
		opts.Name, opts.Dir, opts.Cluster = "stranger", t.TempDir(), &shared
		shared.Name, shared.ListenAddress, shared.TLS = cluster, "127.0.0.1:0", tls
		b, err := broker.New(opts)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err = b.Start(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "heard of 1 of 2") {
			t.Errorf("a server of cluster %s started: %v", cluster, err)
		}
	}
	stranger(testbroker.ClusterName, c.TLS(testcert.New(t, "another"), "stranger"))
	stranger("another", c.TLS(c.CA(), "stranger"))
	if peers := c.Member(0).Peers(); len(peers) != 1 || peers[0] != "m1" {
		t.Errorf("member 0 has routes to %v", peers)
	}
}

// TestBus sends a message to all members, and a request to one.
func TestBus(t *testing.T) {
	c := testbroker.New(t, 2)
	c.Launch(0, 1)
	got := make(chan string, 2)
	for i := range 2 {
		cancel, err := c.Member(i).Bus().Subscribe("test.hello", func(reply string, data []byte) {
			got <- fmt.Sprintf("%d %s", i, data)
			if reply != "" && i == 1 {
				_ = c.Member(1).Bus().Publish(reply, []byte("answer"))
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		defer cancel()
	}
	bus := c.Member(0).Bus()
	testbroker.Eventually(t, func() error { // a subscription takes a moment to be known to the others
		for len(got) > 0 {
			<-got
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		answer, err := bus.Request(ctx, "test.hello", []byte("x"))
		if err == nil && string(answer) != "answer" {
			t.Errorf("the answer is %q", answer)
		}
		return err
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := bus.Request(ctx, "test.silence", nil); !errors.Is(err, broker.ErrNoListener) {
		t.Errorf("a request without a listener ended with %v", err)
	}
}

// TestDirectories checks that the directories of a single server and of a member are not taken for each other.
func TestDirectories(t *testing.T) {
	c := testbroker.New(t, 2)
	alone, err := broker.New(broker.Options{Dir: c.Options(0).Dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := alone.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	open(t, alone)
	if err := alone.Stop(); err != nil {
		t.Error(err)
	}
	if err := c.Start(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "single backend") {
		t.Errorf("a single server's directory: %v", err)
	}
	c.Options(0).Dir = t.TempDir()
	c.Launch(0, 1)
	c.Stop(0)
	alone, err = broker.New(broker.Options{Dir: c.Options(0).Dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := alone.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "--peers") {
		t.Errorf("a member's directory: %v", err)
	}
}

// TestClusterOptions checks what is refused, and how.
func TestClusterOptions(t *testing.T) {
	good := broker.Cluster{
		Name: "c", Members: 3, ListenAddress: "127.0.0.1:0", Peers: []string{"127.0.0.1:1", "localhost:2", "[::1]:3"},
	}
	refused := func(want string, change func(*broker.Options)) {
		t.Helper()
		cluster := good
		opts := broker.Options{Dir: t.TempDir(), Name: "m", Cluster: &cluster}
		change(&opts)
		_, err := broker.New(opts)
		switch {
		case err == nil && want != "":
			t.Errorf("no error; want %q", want)
		case err != nil && (want == "" || !strings.Contains(err.Error(), want)):
			t.Errorf("error %q; want %q", err, want)
		}
	}
	refused("", func(*broker.Options) {})
	refused("no name of a member", func(o *broker.Options) { o.Name = "" })
	refused("no name of a cluster", func(o *broker.Options) { o.Cluster.Name = "a b" })
	refused("at least one peer", func(o *broker.Options) { o.Cluster.Members = 1 })
	refused("4 peers", func(o *broker.Options) { o.Cluster.Peers = append(o.Cluster.Peers, "localhost:4") })
	refused("no port", func(o *broker.Options) { o.Cluster.Peers = []string{"localhost:0"} })
	refused("missing port", func(o *broker.Options) { o.Cluster.Peers = []string{"localhost"} })
	refused("--cluster-cert-file", func(o *broker.Options) { o.Cluster.Peers = []string{"b.example.org:6222"} })
	refused("--cluster-cert-file", func(o *broker.Options) { o.Cluster.ListenAddress = ":6222" })
	refused("--cluster-cert-file", func(o *broker.Options) { o.Cluster.TLS = &tls.Config{} })
	refused("--cluster-trusted-ca-file", func(o *broker.Options) {
		o.Cluster.TLS = &tls.Config{Certificates: []tls.Certificate{{}}}
	})
}

// TestOneAfterAnother starts each member only when the one before waits.
func TestOneAfterAnother(t *testing.T) {
	c := testbroker.New(t, 3)
	var starting sync.WaitGroup
	for i := range 3 {
		waits := make(chan struct{})
		once := sync.OnceFunc(func() { close(waits) })
		c.Options(i).Waiting = func(string) { once() }
		starting.Go(func() {
			if err := c.Start(t.Context(), i); err != nil {
				t.Errorf("member %d: %v", i, err)
			}
		})
		<-waits
	}
	starting.Wait()
	openAll(t, c, 0, 1, 2)
	write(t, c.Member(2), "a")
	current(t, c.Member(0), 2)
}

// TestLastCopy loses the disks of two members. With the third they make no new cluster, which would delete the last
// copy: they wait for the others, or the third leads. Without it they do, and then the third refuses to join.
func TestLastCopy(t *testing.T) {
	c := three(t)
	for i := range 3 {
		c.Stop(i)
	}
	loseDisks := func() {
		for i := 1; i < 3; i++ {
			opts := c.Options(i)
			opts.Name, opts.Dir = opts.Name+"-new", t.TempDir()
			opts.Cluster.TLS = c.TLS(c.CA(), opts.Name)
		}
	}
	loseDisks()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var starting sync.WaitGroup
	for i := range 3 {
		starting.Go(func() {
			err := c.Start(ctx, i)
			if leader := c.Member(i).MetaStatus().Leader; err == nil && leader == "m0" {
				return
			} else if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("with the disks of two lost, member %d started under %q: %v", i, leader, err)
			}
		})
	}
	starting.Wait()
	for i := range 3 {
		c.Stop(i)
	}
	copyDir := filepath.Join(c.Options(0).Dir, "jetstream", "$G", "streams", stream)
	stat := func() {
		t.Helper()
		if _, err := os.Stat(copyDir); err != nil {
			t.Errorf("the last copy is gone: %v", err)
		}
	}
	stat()
	loseDisks() // members that have heard of the third once go on waiting for it
	c.Launch(1, 2)
	openAll(t, c, 1, 2)
	if err := c.Start(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "another cluster") {
		t.Errorf("the last copy joined another cluster: %v", err)
	}
	stat()
}

// TestLeadersAreSpread: one member leads all streams, as after the deaths of the others, and gives them away.
func TestLeadersAreSpread(t *testing.T) {
	c := testbroker.New(t, 3)
	c.Launch(0, 1, 2)
	names := []string{"s0", "s1", "s2"}
	b := c.Member(0)
	for _, name := range names {
		if _, err := b.OpenStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name}}); err != nil {
			t.Fatal(err)
		}
	}
	led := func() (n int) {
		for _, name := range names {
			if b.Leads(name) {
				n++
			}
		}
		return n
	}
	testbroker.Eventually(t, func() error {
		for _, name := range names {
			if !b.Leads(name) {
				_ = b.StepDownTo(t.Context(), name, b.Name())
			}
		}
		if n := led(); n < len(names) {
			return fmt.Errorf("it leads %d streams", n)
		}
		return nil
	})
	var care broker.Care
	now := time.Now()
	testbroker.Eventually(t, func() error {
		b.LookAfter(&care, now)
		now = now.Add(10 * time.Second)
		if n := led(); n > 1 {
			return fmt.Errorf("it leads %d of 3 streams", n)
		}
		return nil
	})
}

// TestReplicaIsMadeAnew: a replica that was dropped comes back with all messages.
func TestReplicaIsMadeAnew(t *testing.T) {
	c := testbroker.New(t, 3)
	c.Launch(0, 1, 2)
	openAll(t, c, 0, 1, 2)
	write(t, c.Member(0), "one")
	current(t, c.Member(0), 2)
	if err := c.Member(1).Drop(stream); err != nil {
		t.Fatal(err)
	}
	copies := func(want int) {
		t.Helper()
		testbroker.Eventually(t, func() error {
			g, err := c.Member(0).StreamStatus(t.Context(), stream)
			if n := 1 + len(g.Replicas); err != nil || n != want {
				return fmt.Errorf("%d copies, %v, want %d", n, err, want)
			}
			return nil
		})
	}
	copies(2)
	write(t, c.Member(0), "two")
	copies(3)
	current(t, c.Member(0), 2)
	for i := range 3 {
		follow(t, c.Member(i)).want("one", "two")
	}
}

// TestNewestWrite: each member can look for the newest message of a subject by its writer's id.
func TestNewestWrite(t *testing.T) {
	c := three(t)
	want := write(t, c.Member(1), "b")
	ids := map[string]bool{}
	for i := range 3 {
		testbroker.Eventually(t, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			seq, id, err := c.Member(i).NewestWrite(ctx, stream, "s.a")
			if err == nil && seq != want {
				t.Errorf("member %d finds message %d, want %d", i, seq, want)
			}
			ids[id] = err == nil
			return err
		})
	}
	if len(ids) != 1 || ids[""] {
		t.Errorf("the ids are %v", ids)
	}
	if seq, id, err := c.Member(0).NewestWrite(t.Context(), stream, "s.none"); seq != 0 || id != "" || err != nil {
		t.Errorf("of a subject without messages it finds %d, %q, %v", seq, id, err)
	}
}

// TestEachWithoutLeader reads a stream that has no leader, so that no member answers: the reading says what it waits for,
// and goes on when there is a leader again.
func TestEachWithoutLeader(t *testing.T) {
	waiting := make(chan string, 100)
	c := testbroker.New(t, 3)
	c.Options(0).Waiting = func(what string) { waiting <- what }
	c.Launch(0, 1, 2)
	openAll(t, c, 0, 1, 2)
	write(t, c.Member(0), "a")
	current(t, c.Member(0), 2)
	c.Kill(1)
	c.Kill(2)
	var read string
	done := make(chan error)
	go func() {
		done <- c.Member(0).Each(t.Context(), stream, 1, func(m *broker.Message) error {
			read += string(m.Data)
			return nil
		})
	}()
	for what := ""; what != "waiting for stream s to say what its newest message is"; {
		select {
		case what = <-waiting:
		case err := <-done:
			t.Fatalf("without a leader the reading has ended with %v", err)
		}
	}
	c.Launch(1, 2)
	if err := <-done; err != nil || read != "a" {
		t.Errorf("read %q: %v", read, err)
	}
}
