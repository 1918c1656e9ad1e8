package config_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/testbroker"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// stores are those of three members.
type stores struct {
	t       *testing.T
	cluster *testbroker.Cluster
	all     [3]*config.Store
}

// newStores starts three members and a store on each.
func newStores(t *testing.T, opts config.Options) *stores {
	t.Helper()
	s := &stores{t: t, cluster: testbroker.New(t, 3)}
	s.cluster.Launch(0, 1, 2)
	var starting sync.WaitGroup
	for i := range s.all {
		starting.Go(func() { s.start(i, opts) })
	}
	starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return s
}

// start starts the store of a member that runs.
func (s *stores) start(i int, opts config.Options) {
	opts.Broker = s.cluster.Member(i)
	store, err := config.New(opts)
	if err == nil {
		err = store.Start(s.t.Context())
	}
	if err != nil {
		s.t.Error(err)
		return
	}
	s.all[i] = store
	s.t.Cleanup(func() { _ = store.Stop() })
}

// leader returns which member leads the bucket.
func (s *stores) leader() int {
	s.t.Helper()
	leader := -1
	testbroker.Eventually(s.t, func() error {
		ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Second)
		defer cancel()
		g, err := s.cluster.Member(0).StreamStatus(ctx, "KV_config")
		if err == nil && g.Leader == "" {
			err = errors.New("the bucket has no leader")
		}
		if err == nil {
			leader = s.cluster.Index(g.Leader)
		}
		return err
	})
	return leader
}

// sees waits until a member's snapshot has a check.
func (s *stores) sees(i int, name string) {
	s.t.Helper()
	testbroker.Eventually(s.t, func() error {
		if _, ok := config.Get(s.all[i].Snapshot(), config.Checks, "default", name); !ok {
			return fmt.Errorf("member %d does not see %s", i, name)
		}
		return nil
	})
}

// create makes a check on a member, and tries until that succeeds.
func (s *stores) create(i int, name string) {
	s.t.Helper()
	testbroker.Eventually(s.t, func() error {
		ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Second)
		defer cancel()
		err := config.Create(ctx, s.all[i], config.Checks, check("default", name))
		if errors.Is(err, config.ErrExists) { // an attempt that timed out was made all the same
			err = nil
		}
		return err
	})
}

// TestStoresOfACluster writes on each of three members, and lets them race for keys. Then the bucket's leader dies.
func TestStoresOfACluster(t *testing.T) {
	s := newStores(t, config.Options{})
	for i := range s.all {
		name := fmt.Sprintf("of-%d", i)
		s.create(i, name)
		if _, ok := config.Get(s.all[i].Snapshot(), config.Checks, "default", name); !ok {
			t.Errorf("member %d does not see what it has written", i)
		}
		for k := range s.all {
			s.sees(k, name)
		}
	}
	t.Run("create", s.raceToCreate)
	t.Run("update", s.raceToUpdate)
	t.Run("create and delete", s.raceToDelete)
	t.Run("secret", s.raceForSecret)
	t.Run("catch up", s.catchUp)

	dead := s.leader()
	lives, other := (dead+1)%3, (dead+2)%3
	begin := time.Now()
	s.cluster.Kill(dead)
	s.create(lives, "after")
	t.Logf("after the death of the bucket's leader the write took %s", time.Since(begin))
	s.sees(other, "after")

	// The member comes back, and its new store has everything.
	_ = s.all[dead].Stop()
	s.cluster.Launch(dead)
	s.start(dead, config.Options{})
	s.sees(dead, "after")
	got, want := config.Len(s.all[dead].Snapshot(), config.Checks), config.Len(s.all[lives].Snapshot(), config.Checks)
	if got != want {
		t.Errorf("the member that came back has %d checks, the others have %d", got, want)
	}
}

// race runs f on all members at once, and returns its errors.
func (s *stores) race(f func(i int) error) (errs [3]error) {
	var racing sync.WaitGroup
	for i := range s.all {
		racing.Go(func() { errs[i] = f(i) })
	}
	racing.Wait()
	return errs
}

// raceToCreate has all members create the same checks: one of them wins each.
func (s *stores) raceToCreate(t *testing.T) {
	for round := range 20 {
		name := fmt.Sprintf("race-%d", round)
		won := 0
		for i, err := range s.race(func(i int) error {
			c := check("default", name)
			c.Command = strconv.Itoa(i)
			return config.Create(t.Context(), s.all[i], config.Checks, c)
		}) {
			switch {
			case err == nil:
				won++
			case !errors.Is(err, config.ErrExists):
				t.Errorf("%s on member %d: %v", name, i, err)
			}
		}
		if won != 1 {
			t.Errorf("%d members have created %s", won, name)
		}
	}
}

// raceToUpdate has all members count up in the same check: no step is lost.
func (s *stores) raceToUpdate(t *testing.T) {
	c := check("default", "counter")
	if err := config.Create(t.Context(), s.all[0], config.Checks, c); err != nil {
		t.Fatal(err)
	}
	for i := range s.all {
		s.sees(i, "counter")
	}
	const rounds = 20
	count := func(c *resource.CheckConfig) (*resource.CheckConfig, error) {
		c.Timeout++
		return c, nil
	}
	for i, err := range s.race(func(i int) error {
		for range rounds {
			if _, err := config.Update(t.Context(), s.all[i], config.Checks, "default", "counter", count); err != nil {
				return err
			}
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("member %d: %v", i, err)
		}
	}
	for i := range s.all {
		testbroker.Eventually(t, func() error {
			c, _ := config.Get(s.all[i].Snapshot(), config.Checks, "default", "counter")
			if c.Timeout != 3*rounds {
				return fmt.Errorf("member %d counts %d, want %d", i, c.Timeout, 3*rounds)
			}
			return nil
		})
	}
}

// raceToDelete creates a check on one member and deletes it on another, again and again.
func (s *stores) raceToDelete(t *testing.T) {
	for round := range 20 {
		i, k := round%3, (round+1)%3
		s.create(i, "again")
		s.sees(k, "again")
		won := 0
		for _, err := range s.race(func(i int) error {
			return config.Delete(t.Context(), s.all[i], config.Checks, "default", "again")
		}) {
			if err == nil {
				won++
			} else if !errors.Is(err, config.ErrNotFound) {
				t.Error(err)
			}
		}
		if won > 1 {
			t.Errorf("%d members have deleted the check", won)
		}
		for i := range s.all {
			testbroker.Eventually(t, func() error {
				if _, ok := config.Get(s.all[i].Snapshot(), config.Checks, "default", "again"); ok {
					return fmt.Errorf("member %d sees the deleted check", i)
				}
				return nil
			})
		}
	}
}

// raceForSecret has all members ask for a secret that does not exist yet: all get the same.
func (s *stores) raceForSecret(t *testing.T) {
	var secrets [3][]byte
	for i, err := range s.race(func(i int) (err error) {
		secrets[i], err = s.all[i].Secret(t.Context(), "test", 32)
		return err
	}) {
		if err != nil {
			t.Fatalf("member %d: %v", i, err)
		}
	}
	if string(secrets[0]) != string(secrets[1]) || string(secrets[1]) != string(secrets[2]) {
		t.Error("the members have different secrets")
	}
}

// catchUp writes on one member: another one that catches up then has it.
func (s *stores) catchUp(t *testing.T) {
	for round := range 30 {
		c := check("default", "seen")
		c.Timeout = uint32(round + 1)
		if err := config.Put(t.Context(), s.all[round%3], config.Checks, c); err != nil {
			t.Fatal(err)
		}
		other := s.all[(round+1)%3]
		if err := other.CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, ok := config.Get(other.Snapshot(), config.Checks, "default", "seen"); !ok || got.Timeout != c.Timeout {
			t.Errorf("another member has %+v, want %d", got, c.Timeout)
		}
	}
}

// TestStoreWithoutMajority loses two members: writes time out, and reads go on. When they are back, so are writes.
func TestStoreWithoutMajority(t *testing.T) {
	s := newStores(t, config.Options{})
	s.create(0, "before")
	s.cluster.Kill(1)
	s.cluster.Kill(2)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := config.Put(ctx, s.all[0], config.Checks, check("default", "lost"))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a write without a majority ended with %v", err)
	}
	if _, ok := config.Get(s.all[0].Snapshot(), config.Checks, "default", "before"); !ok {
		t.Error("a definition is gone")
	}
	s.cluster.Launch(1, 2)
	s.create(0, "later")
	s.sees(0, "later")
}

// TestTombstonesOfACluster deletes checks: the leader removes their tombstones, and the others know of it.
func TestTombstonesOfACluster(t *testing.T) {
	s := newStores(t, config.Options{TombstoneGrace: time.Millisecond})
	for i := range s.all {
		name := fmt.Sprintf("of-%d", i)
		s.create(i, name)
		if err := config.Delete(t.Context(), s.all[i], config.Checks, "default", name); err != nil {
			t.Fatal(err)
		}
	}
	for i := range s.all {
		testbroker.Eventually(t, func() error {
			stream, err := s.cluster.Member(i).JetStream().Stream(t.Context(), "KV_config")
			if err == nil && stream.CachedInfo().State.Msgs > 0 {
				err = fmt.Errorf("the bucket has %d messages", stream.CachedInfo().State.Msgs)
			}
			return err
		})
		s.create(i, "of-0")
		if err := config.Delete(t.Context(), s.all[i], config.Checks, "default", "of-0"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWaitForPeers checks that a write returns after the peers have it, and with the error of that wait.
func TestWaitForPeers(t *testing.T) {
	b := openBucket(t, t.TempDir(), 0)
	_ = b.store.Stop()
	var waited []uint64
	late := errors.New("late")
	s, err := config.New(config.Options{Broker: b.broker, WaitPeers: func(_ context.Context, revision uint64) error {
		waited = append(waited, revision)
		if len(waited) > 1 {
			return late
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	if err := config.Put(t.Context(), s, config.Checks, check("default", "a")); err != nil {
		t.Error(err)
	}
	if err := config.Delete(t.Context(), s, config.Checks, "default", "a"); !errors.Is(err, late) {
		t.Errorf("the write returned %v", err)
	}
	if err := s.Shared(t.Context()); !errors.Is(err, late) {
		t.Errorf("the wait for the peers returned %v", err)
	}
	if want := s.Snapshot().Revision(); len(waited) != 3 || waited[1] != want || waited[2] != want {
		t.Errorf("it waited for the revisions %v, the snapshot has %d", waited, want)
	}
}
