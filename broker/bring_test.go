package broker_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/lapwing-monitoring/lapwing/internal/testbroker"
)

// fill fills the stream of the tests on a member, from message 1000 on.
func fill(t *testing.T, c *testbroker.Cluster, i int, texts ...string) {
	t.Helper()
	open(t, c.Member(i))
	f, err := c.Member(i).Fill(t.Context(), stream, 1000)
	for _, text := range texts {
		if err == nil {
			err = f.Add(t.Context(), "s.a", []byte(text))
		}
	}
	if err == nil {
		err = f.Flush(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// opening opens the stream on a member, which may have to wait.
func opening(t *testing.T, c *testbroker.Cluster, i int) (opened chan struct{}) {
	opened = make(chan struct{})
	go func() {
		defer close(opened)
		if _, err := c.Member(i).OpenStream(t.Context(), streamConfig); err != nil && t.Context().Err() == nil {
			t.Logf("member %d: %v", i, err)
		}
	}()
	return opened
}

func waits(t *testing.T, what string, opened chan struct{}) {
	t.Helper()
	select {
	case <-opened:
		t.Errorf("%s has not waited for the data", what)
	default:
	}
}

// TestBring has one of three members bring data, which is interrupted: the others wait, even if they are started again.
func TestBring(t *testing.T) {
	c := testbroker.New(t, 3)
	c.Options(0).Cluster.Brings = "x"
	var all []string
	for n := range 1000 {
		all = append(all, fmt.Sprint(n))
	}
	c.Launch(0, 1, 2)
	first, second := opening(t, c, 1), opening(t, c, 2)
	fill(t, c, 0, all[:600]...)
	waits(t, "the second member", first)
	waits(t, "the third member", second)
	c.Kill(2) // what it waits for is in the stream now
	c.Launch(2)
	second = opening(t, c, 2)
	c.Kill(0)
	c.Launch(0)
	fill(t, c, 0, all...)
	waits(t, "the second member", first)
	waits(t, "the third member", second)
	if err := c.Member(0).Brought(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-first
	<-second
	for i := range 3 {
		follow(t, c.Member(i)).want(all...)
	}
	if seq := write(t, c.Member(1), "next"); seq != 2000 {
		t.Errorf("the next message has number %d", seq)
	}
	// A kill before the member has noted that all is there: nothing comes twice.
	c.Kill(0)
	c.Launch(0)
	fill(t, c, 0, all...)
	if err := c.Member(0).Brought(t.Context()); err != nil {
		t.Fatal(err)
	}
	if seq := write(t, c.Member(0), "last"); seq != 2001 {
		t.Errorf("the last message has number %d", seq)
	}
}

// TestBringWithLostLeaders fills a stream while its leader is killed again and again.
func TestBringWithLostLeaders(t *testing.T) {
	c := testbroker.New(t, 3)
	c.Options(0).Cluster.Brings = "x"
	c.Launch(0, 1, 2)
	open(t, c.Member(0))
	f, err := c.Member(0).Fill(t.Context(), stream, 1)
	if err != nil {
		t.Fatal(err)
	}
	const messages = 6000
	for n := range messages {
		if n%1500 == 700 {
			if dead := leader(t, c, c.Member(0)); dead != 0 {
				c.Kill(dead)
				go func() { _ = c.Start(t.Context(), dead) }()
			}
		}
		if err := f.Add(t.Context(), "s.a", fmt.Append(nil, n)); err != nil {
			t.Fatal(err)
		}
		if n%1500 == 699 {
			testbroker.Eventually(t, func() error {
				if g, err := c.Member(0).StreamStatus(t.Context(), stream); err != nil || g.Leader == "" {
					return fmt.Errorf("the stream has no leader: %w", err)
				}
				return nil
			})
		}
	}
	if err := f.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := follow(t, c.Member(0))
	for n := range messages {
		r.want(fmt.Sprint(n))
	}
}

// refusals starts members at once, which must all refuse, and returns why.
func refusals(t *testing.T, c *testbroker.Cluster, which ...int) string {
	t.Helper()
	errs := make([]error, len(which))
	var starting sync.WaitGroup
	for k, i := range which {
		starting.Go(func() {
			errs[k] = c.Start(t.Context(), i)
			if errs[k] == nil {
				_, errs[k] = c.Member(i).OpenStream(t.Context(), streamConfig)
			}
		})
	}
	starting.Wait()
	var texts []string
	for k, err := range errs {
		if err == nil {
			t.Fatalf("member %d was not refused", which[k])
		}
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "\n")
}

// TestTwoBring has two members bring data: both refuse, and name the other one.
func TestTwoBring(t *testing.T) {
	c := testbroker.New(t, 3)
	c.Options(0).Cluster.Brings, c.Options(1).Cluster.Brings = "x", "y"
	why := refusals(t, c, 0, 1)
	for _, want := range []string{"members m0 and m1 both", "members m1 and m0 both"} {
		if !strings.Contains(why, want) {
			t.Errorf("%q is not in\n%s", want, why)
		}
	}
}

// TestBringTooLate has a member bring data into a cluster that has data.
func TestBringTooLate(t *testing.T) {
	c := testbroker.New(t, 3)
	c.Launch(0, 1)
	openAll(t, c, 0, 1)
	c.Options(2).Cluster.Brings = "x"
	if why := refusals(t, c, 2); !strings.Contains(why, "says that the cluster has data already, and m2 has") {
		t.Errorf("it was refused so: %s", why)
	}
}

// TestBringAgain gives up to bring data, and begins anew with other data where a part of the first is.
func TestBringAgain(t *testing.T) {
	c := testbroker.New(t, 3)
	c.Options(0).Cluster.Brings = "x"
	c.Launch(0, 1, 2)
	fill(t, c, 0, "a")
	c.Kill(0)
	c.Options(0).Cluster.Brings, c.Options(0).Dir, c.Options(0).Name = "y", t.TempDir(), "m0-again"
	if why := refusals(t, c, 0); !strings.Contains(why, "have a part of what was brought before") {
		t.Errorf("it was refused so: %s", why)
	}
}
