package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/testconfig"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// clock is a clock that tests set.
type clock struct{ atomic.Int64 }

func (c *clock) now() time.Time               { return time.Unix(1_700_000_000+c.Load(), 0) }
func (c *clock) advance(d time.Duration)      { c.Add(int64(d / time.Second)) }
func (c *clock) in(d time.Duration) (u int64) { return c.now().Add(d).Unix() }

func newAuth(t testing.TB, s *config.Store, c *clock) *Auth {
	t.Helper()
	a, err := New(Options{Config: s, Now: c.now, HashCost: bcrypt.MinCost})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// seeded is an Auth with users admin and agent; their password is the agents' default.
func seeded(t testing.TB) (*Auth, *clock) {
	t.Helper()
	c := new(clock)
	a := newAuth(t, testconfig.Store(t), c)
	if err := a.Seed(t.Context(), SeedOptions{Username: "admin", Password: agentPassword}); err != nil {
		t.Fatal(err)
	}
	return a, c
}

func putUser(t testing.TB, a *Auth, name, password string, change func(*resource.User)) {
	t.Helper()
	hash, err := a.hashPassword(password)
	if err != nil {
		t.Fatal(err)
	}
	u := &resource.User{Username: name, PasswordHash: hash}
	if change != nil {
		change(u)
	}
	if err := config.Put(t.Context(), a.opts.Config, config.Users, u); err != nil {
		t.Fatal(err)
	}
}

func TestPassword(t *testing.T) {
	a, _ := seeded(t)
	putUser(t, a, "gone", "P@ssw0rd!", func(u *resource.User) { u.Disabled = true })
	putUser(t, a, "garbage", "P@ssw0rd!", func(u *resource.User) { u.PasswordHash = "P@ssw0rd!" })
	long := string(slices.Repeat([]byte("x"), 80))
	putUser(t, a, "long", long, nil)
	for _, tc := range []struct {
		user, password string
		ok             bool
	}{
		{"admin", "P@ssw0rd!", true},
		{"agent", "P@ssw0rd!", true},
		{"long", long, true},
		{"long", long[:72], true}, // the bytes that bcrypt reads
		{"long", long[:71], false},
		{"admin", "p@ssw0rd!", false},
		{"admin", "", false},
		{"", "P@ssw0rd!", false},
		{"Admin", "P@ssw0rd!", false},
		{"nobody", "P@ssw0rd!", false},
		{"gone", "P@ssw0rd!", false},
		{"garbage", "P@ssw0rd!", false},
	} {
		id, err := a.Password(t.Context(), tc.user, tc.password)
		if tc.ok != (err == nil) || !tc.ok && !errors.Is(err, ErrCredentials) {
			t.Errorf("%q with %q: %v, want ok %v", tc.user, tc.password, err, tc.ok)
		}
		if err == nil && id.User != tc.user {
			t.Errorf("%q came out as %q", tc.user, id.User)
		}
	}
	id, err := a.Password(t.Context(), "admin", "P@ssw0rd!")
	if err != nil || !slices.Equal(id.Groups, []string{"cluster-admins"}) {
		t.Errorf("admin: %v, %v", id, err)
	}
}

// countCompares counts the slow hashes that a computes.
func countCompares(a *Auth) *atomic.Int64 {
	n := new(atomic.Int64)
	compare := a.passwords.compare
	a.passwords.compare = func(hash, password []byte) error {
		n.Add(1)
		return compare(hash, password)
	}
	return n
}

func TestEachCredentialIsComparedOnce(t *testing.T) {
	a, _ := seeded(t)
	n := countCompares(a)
	sign := func(password string, want error) {
		t.Helper()
		if _, err := a.Password(t.Context(), "agent", password); !errors.Is(err, want) {
			t.Fatalf("sign in with %q: %v, want %v", password, err, want)
		}
	}
	compared := func(want int64) {
		t.Helper()
		if got := n.Load(); got != want {
			t.Fatalf("%d hashes were computed, want %d", got, want)
		}
	}
	sign("P@ssw0rd!", nil)
	compared(1)
	for range 100 {
		sign("P@ssw0rd!", nil)
	}
	compared(1)
	for range 100 {
		sign("wrong", ErrCredentials)
	}
	compared(2)

	putUser(t, a, "agent", "another one", nil)
	sign("P@ssw0rd!", ErrCredentials)
	compared(3)
	sign("another one", nil)
	sign("another one", nil)
	compared(4)

	// Invented users cost as much as real ones, and no more.
	for range 10 {
		if _, err := a.Password(t.Context(), "nobody", "P@ssw0rd!"); !errors.Is(err, ErrCredentials) {
			t.Fatal(err)
		}
	}
	compared(5)
}

func TestReconnectingFleetComparesOnce(t *testing.T) {
	a, _ := seeded(t)
	n := countCompares(a)
	var wg sync.WaitGroup
	for range 2_000 {
		wg.Go(func() {
			if _, err := a.Agent(t.Context(), "10.0.0.1", "agent", agentPassword, "default", "web1"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n.Load() != 1 {
		t.Errorf("%d hashes were computed, want 1", n.Load())
	}
}

func TestNobodysHashIsAHash(t *testing.T) {
	cost, err := bcrypt.Cost([]byte(resource.NobodysHash))
	if err != nil || cost != bcrypt.DefaultCost {
		t.Errorf("cost %d, %v; an unknown user must cost as much as a known one", cost, err)
	}
	if err := bcrypt.CompareHashAndPassword([]byte(resource.NobodysHash), []byte("x")); !errors.Is(err, bcrypt.ErrMismatchedHashAndPassword) {
		t.Errorf("compare: %v", err)
	}
}

// blocked is a verifier whose comparisons wait for release.
func blocked(slots int) (v *verifier, started, release chan struct{}) {
	v = newVerifier(func() {})
	v.turns = newTurns(slots)
	started, release = make(chan struct{}, 1000), make(chan struct{})
	v.compare = func(_, password []byte) error {
		started <- struct{}{}
		<-release
		if string(password) == "right" {
			return nil
		}
		return bcrypt.ErrMismatchedHashAndPassword
	}
	return v, started, release
}

func TestComparisonsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, started, release := blocked(2)
		var wg sync.WaitGroup
		for i := range maxQueue + 2 {
			wg.Go(func() {
				if right, err := v.verify(t.Context(), question{user: "u", hash: "h", password: fmt.Sprint(i)}); right || err != nil {
					t.Errorf("guess %d: %v, %v", i, right, err)
				}
			})
		}
		synctest.Wait()
		if len(started) != 2 {
			t.Errorf("%d comparisons run at a time, want 2", len(started))
		}
		if _, err := v.verify(t.Context(), question{user: "u", hash: "h", password: "one more"}); !errors.Is(err, ErrBusy) {
			t.Errorf("beyond the queue: %v, want ErrBusy", err)
		}
		close(release)
		wg.Wait()
		if len(v.wrong) != maxQueue+2 || len(v.running) != 0 {
			t.Errorf("%d verdicts kept and %d running", len(v.wrong), len(v.running))
		}
	})
}

func TestWhoWaitsTakesOverFromWhoGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _, release := blocked(1)
		free, err := v.turns.take(t.Context(), "", false)
		if err != nil {
			t.Fatal(err)
		}
		first, giveUp := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := v.verify(first, question{user: "u", hash: "h", password: "right"}); !errors.Is(err, context.Canceled) {
				t.Errorf("first: %v, want canceled", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if right, err := v.verify(t.Context(), question{user: "u", hash: "h", password: "right"}); !right || err != nil {
				t.Errorf("second: %v, %v", right, err)
			}
		})
		synctest.Wait()
		giveUp()
		synctest.Wait()
		free()
		close(release)
		wg.Wait()
	})
}

func TestVerdictsAreBounded(t *testing.T) {
	m := map[digest]struct{}{}
	var newest digest
	for i := range 1000 {
		newest = digest{byte(i), byte(i >> 8)}
		remember(m, newest, 10)
		if _, ok := m[newest]; !ok || len(m) > 10 {
			t.Fatalf("after %d: %d entries", i, len(m))
		}
	}
}

func TestDigestKeepsFieldsApart(t *testing.T) {
	v, w := newVerifier(func() {}), newVerifier(func() {})
	if keyedDigest(v.key, "ab", "c") == keyedDigest(v.key, "a", "bc") {
		t.Error("fields run into each other")
	}
	if keyedDigest(v.key, "a") == keyedDigest(w.key, "a") {
		t.Error("two processes have the same key")
	}
}

func TestAgent(t *testing.T) {
	a, _ := seeded(t)
	putUser(t, a, "plain", "P@ssw0rd!", nil)
	putUser(t, a, "named", "P@ssw0rd!", func(u *resource.User) { u.Groups = []string{"web-agents"} })
	put(t, a, config.ClusterRoles, &resource.ClusterRole{
		Metadata: resource.ObjectMeta{Name: "web-agents"},
		Rules:    []resource.Rule{{Verbs: []string{"create"}, Resources: []string{"events"}, ResourceNames: []string{"web1"}}},
	})
	put(t, a, config.ClusterRoleBindings, &resource.ClusterRoleBinding{
		Metadata: resource.ObjectMeta{Name: "web-agents"}, RoleRef: resource.RoleRef{Type: "ClusterRole", Name: "web-agents"},
		Subjects: []resource.Subject{{Type: "Group", Name: "web-agents"}},
	})
	for _, tc := range []struct {
		user, password, agent string
		want                  error
	}{
		{"agent", agentPassword, "web1", nil},
		{"agent", "wrong", "web1", ErrCredentials},
		{"plain", "P@ssw0rd!", "web1", ErrDenied},
		{"named", "P@ssw0rd!", "web1", nil},
		{"named", "P@ssw0rd!", "web2", ErrDenied},
	} {
		id, err := a.Agent(t.Context(), "10.0.0.1", tc.user, tc.password, "default", tc.agent)
		if !errors.Is(err, tc.want) {
			t.Errorf("%s as %s: %v, want %v", tc.user, tc.agent, err, tc.want)
		}
		if err == nil && !slices.Contains(id.Groups, "system:user") {
			t.Errorf("%s has groups %v", tc.user, id.Groups)
		}
	}
	u, _ := a.user("agent")
	if slices.Contains(u.Groups, "system:user") {
		t.Error("the snapshot's user was changed")
	}
}

func put[T any](t testing.TB, a *Auth, k config.Kind[T], obj *T) {
	t.Helper()
	if err := config.Put(t.Context(), a.opts.Config, k, obj); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkLoginAgain is a sign-in with known credentials: the cost of each agent of a reconnecting fleet.
func BenchmarkLoginAgain(b *testing.B) {
	a, _ := seeded(b)
	ctx := b.Context()
	if _, err := a.Agent(ctx, "10.0.0.1", "agent", agentPassword, "default", "web1"); err != nil {
		b.Fatal(err)
	}
	n := countCompares(a)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Agent(ctx, "10.0.0.1", "agent", agentPassword, "default", "web1"); err != nil {
			b.Fatal(err)
		}
	}
	if n.Load() != 0 {
		b.Fatalf("%d hashes were computed", n.Load())
	}
}
