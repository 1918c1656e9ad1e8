package auth

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
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

// until polls for a state that no channel signals.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("not within a minute: ", what)
		}
	}
}

// TestLongUserNames signs in 2,000 times with user names of 700 kB. They are refused and not kept in memory.
func TestLongUserNames(t *testing.T) {
	a, _ := seeded(t)
	compared := 0
	a.passwords.compare = func(_, _ []byte) error {
		compared++
		return bcrypt.ErrMismatchedHashAndPassword
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range 2_000 {
		name := strings.Repeat("x", 700_000) + fmt.Sprint(i)
		if _, err := a.SignIn(t.Context(), "10.0.0.66", name, "password"); !errors.Is(err, ErrCredentials) {
			t.Fatalf("sign-in %d: %v", i, err)
		}
	}
	if kept := int64(heap()) - int64(before); kept > 8<<20 {
		t.Errorf("%d bytes are kept", kept)
	}
	if compared != 0 {
		t.Errorf("%d passwords were compared", compared)
	}
	runtime.KeepAlive(a)
}

// TestInventedUsers has 200 connections from one address try invented users, so that the queue of comparisons is full.
// A user who signs in from another address is served after at most two of them.
func TestInventedUsers(t *testing.T) {
	a, _ := seeded(t)
	putUser(t, a, "alice", "alice-password", nil)
	step, compare := make(chan struct{}), a.passwords.compare
	a.passwords.compare = func(hash, password []byte) error {
		if strings.HasPrefix(string(password), "invented") {
			<-step
			return bcrypt.ErrMismatchedHashAndPassword
		}
		return compare(hash, password)
	}
	var attackers sync.WaitGroup
	defer attackers.Wait()
	defer close(step)
	for i := range 200 {
		attackers.Go(func() {
			_, err := a.SignIn(t.Context(), "10.0.0.66", fmt.Sprint("user", i), fmt.Sprint("invented", i))
			if err == nil {
				t.Error("an invented user signed in")
			}
		})
	}
	until(t, "the queue is full", func() bool {
		a.passwords.mu.Lock()
		defer a.passwords.mu.Unlock()
		return len(a.passwords.running) > maxQueue
	})
	result := make(chan error, 1)
	go func() {
		_, err := a.SignIn(t.Context(), "10.0.0.1", "alice", "alice-password")
		result <- err
	}()
	until(t, "alice waits", func() bool { return len(result) > 0 || waits(a, "10.0.0.1") })
	for range 2 {
		select {
		case step <- struct{}{}:
		case err := <-result:
			result <- err
		}
	}
	select {
	case err := <-result:
		if err != nil {
			t.Errorf("the right password: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the right password was not looked at after two others")
	}
}

// waits reports whether a client at an address is in the queue.
func waits(a *Auth, address string) bool {
	a.passwords.turns.mu.Lock()
	defer a.passwords.turns.mu.Unlock()
	return len(a.passwords.turns.others[address]) > 0
}

// TestTurns: trusted callers go first, the others take turns by address, and a full queue drops a caller of the address
// with the most.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(1)
		var mu sync.Mutex
		var order []string
		busy := map[string]int{}
		enter := func(address string, trusted bool) {
			go func() {
				release, err := turns.take(t.Context(), address, trusted)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					busy[address]++
					return
				}
				order = append(order, address)
				release()
			}()
			synctest.Wait()
		}
		release, err := turns.take(t.Context(), "", false)
		if err != nil {
			t.Fatal(err)
		}
		for range maxQueue + 10 {
			enter("bad", false)
		}
		enter("one", false)
		enter("other", false)
		enter("one", false)
		for range maxQueue + 1 {
			enter("trusted", true)
		}
		gone, cancel := context.WithCancel(t.Context())
		go func() {
			if _, err := turns.take(gone, "gone", false); !errors.Is(err, context.Canceled) {
				t.Errorf("canceled: %v", err)
			}
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		release()
		synctest.Wait()
		// The first of the others was in line before any address except its own.
		want := append(slices.Repeat([]string{"trusted"}, maxQueue), "bad", "one", "other", "bad", "one", "bad")
		if len(order) < len(want) || !slices.Equal(order[:len(want)], want) {
			t.Errorf("the order was %v", order)
		}
		if busy["bad"] != 14 || busy["trusted"] != 1 || busy["one"]+busy["other"] != 0 {
			t.Errorf("refused were %v", busy)
		}
		if turns.free != 1 || turns.strangers != 0 || len(turns.order) != 0 || len(turns.others) != 0 {
			t.Errorf("left are %+v", turns)
		}
	})
}

// TestGuessesElsewhere has one address guess an agent's password 500 times, and the users of invented names. The right
// password is accepted at once from other addresses, and from the guessing address if it was right there before.
func TestGuessesElsewhere(t *testing.T) {
	a, c := seeded(t)
	if got := attempt(t, a, "10.0.0.66", "agent", agentPassword); got != "right" {
		t.Fatal(got)
	}
	putUser(t, a, "agent", "second password", nil)
	compare := a.passwords.compare
	a.passwords.compare = func(hash, password []byte) error {
		if string(hash) == resource.NobodysHash { // as slow as a real hash
			return bcrypt.ErrMismatchedHashAndPassword
		}
		return compare(hash, password)
	}
	looked := countCompares(a)
	for i := range 500 {
		if got := attempt(t, a, "10.0.0.66", "agent", fmt.Sprint("guess ", i)); got == "right" {
			t.Fatal("a guess was right")
		}
	}
	if n := looked.Load(); n != freeFromOne+1 {
		t.Errorf("%d guesses were looked at", n)
	}
	for i := range 500 {
		attempt(t, a, "10.0.0.66", fmt.Sprint("user", i), "guess")
	}
	if n := looked.Load() - freeFromOne - 1; n != freeFromAddress-freeFromOne {
		t.Errorf("%d guesses over all users were looked at", n)
	}
	if got := attempt(t, a, "10.0.0.66", "admin", agentPassword); got == "right" || got == "wrong" {
		t.Errorf("a stranger at the address of the guesses: %s", got)
	}
	if got := attempt(t, a, "10.0.0.1", "agent", "second password"); got != "right" {
		t.Errorf("the right password from elsewhere: %s", got)
	}
	putUser(t, a, "agent", "third password", nil)
	c.advance(waitFromTrusted)
	if got := attempt(t, a, "10.0.0.66", "agent", "third password"); got != "right" {
		t.Errorf("the right password at its old address: %s", got)
	}
}

// TestManyGuessersOfOneUser has 1,000 addresses guess one user's password. A new address may still try once, and a
// trusted one as often as ever.
func TestManyGuessersOfOneUser(t *testing.T) {
	a, _ := seeded(t)
	if got := attempt(t, a, "10.0.0.1", "admin", agentPassword); got != "right" {
		t.Fatal(got)
	}
	putUser(t, a, "admin", "second password", nil)
	for i := range 1_000 {
		attempt(t, a, fmt.Sprintf("10.1.%d.%d", i/250, i%250), "admin", fmt.Sprint("guess ", i))
	}
	if got := attempt(t, a, "10.0.0.1", "admin", "mistyped"); got != "wrong" {
		t.Errorf("a mistake at the old address: %s", got)
	}
	for _, address := range []string{"10.0.0.1", "10.0.0.2"} {
		putUser(t, a, "admin", "password for "+address, nil)
		if got := attempt(t, a, address, "admin", "password for "+address); got != "right" {
			t.Errorf("the right password at %s: %s", address, got)
		}
	}
}

// TestGuessesAtOnce: no more guesses are compared at a time than are free.
func TestGuessesAtOnce(t *testing.T) {
	a, _ := seeded(t)
	step := make(chan struct{})
	a.passwords.compare = func(_, _ []byte) error {
		<-step
		return bcrypt.ErrMismatchedHashAndPassword
	}
	looked := countCompares(a)
	var all sync.WaitGroup
	var refused atomic.Int32
	for i := range 100 {
		all.Go(func() {
			_, err := a.PasswordFrom(t.Context(), "10.0.0.66", "admin", fmt.Sprint(i))
			var guessing *GuessingError
			if errors.As(err, &guessing) {
				refused.Add(1)
			}
		})
	}
	until(t, "the others are refused", func() bool { return refused.Load() == 100-freeFromOne-1 })
	close(step)
	all.Wait()
	if n := looked.Load(); n != freeFromOne+1 {
		t.Errorf("%d guesses were looked at", n)
	}
}

// TestRestartForgetsNothing restarts after 50 agents have signed in: their passwords are not compared again. Passwords
// of people, wrong passwords and a changed one are.
func TestRestartForgetsNothing(t *testing.T) {
	store, c := testconfig.Store(t), new(clock)
	file := filepath.Join(t.TempDir(), "sign-ins")
	restart := func() (*Auth, *atomic.Int64) {
		t.Helper()
		a, err := New(Options{Config: store, Now: c.now, HashCost: bcrypt.MinCost, Remember: file})
		if err != nil {
			t.Fatal(err)
		}
		return a, countCompares(a)
	}
	a, _ := restart()
	if err := a.Seed(t.Context(), SeedOptions{Username: "admin", Password: agentPassword}); err != nil {
		t.Fatal(err)
	}
	const fleet = 50
	for i := range fleet {
		putUser(t, a, fmt.Sprint("host", i), fmt.Sprint("password ", i), func(u *resource.User) { u.Groups = []string{systemAgents} })
	}
	connect := func(a *Auth) {
		t.Helper()
		for i := range fleet {
			address := fmt.Sprint("10.0.0.", i)
			if _, err := a.Agent(t.Context(), address, fmt.Sprint("host", i), fmt.Sprint("password ", i), "default", "web"); err != nil {
				t.Fatalf("agent %d: %v", i, err)
			}
		}
	}
	connect(a)
	if got := attempt(t, a, "10.0.0.200", "admin", agentPassword); got != "right" {
		t.Fatal(got)
	}
	a, n := restart()
	connect(a)
	if n.Load() != 0 {
		t.Errorf("%d passwords were compared again", n.Load())
	}
	if got := attempt(t, a, "10.0.0.200", "admin", agentPassword); got != "right" || n.Load() != 1 {
		t.Errorf("a person: %s, %d compared", got, n.Load())
	}
	if !a.memory(t.Context()).has(rememberedPlace, "admin", "10.0.0.200") || a.memory(t.Context()).has(rememberedPlace, "admin", "10.0.0.201") {
		t.Error("the place of a person")
	}
	if _, err := a.Agent(t.Context(), "10.0.0.1", "host1", "password 2", "default", "web"); !errors.Is(err, ErrCredentials) {
		t.Errorf("a wrong password: %v", err)
	}
	putUser(t, a, "host1", "changed", nil)
	if _, err := a.Agent(t.Context(), "10.0.0.1", "host1", "password 1", "default", "web"); !errors.Is(err, ErrCredentials) {
		t.Errorf("the old password: %v", err)
	}
	if err := config.Put(t.Context(), store, config.Users, &resource.User{Username: "host2", PasswordHash: "x", Disabled: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Agent(t.Context(), "10.0.0.2", "host2", "password 2", "default", "web"); !errors.Is(err, ErrCredentials) {
		t.Errorf("a disabled user: %v", err)
	}

	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(file); info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v", info.Mode())
	}
	for what, damaged := range map[string][]byte{
		"cut off": text[:len(text)-7], "of another key": append([]byte(rememberedMagic), text[len(rememberedMagic)+1:]...), "empty": nil, "garbage": []byte("?"),
	} {
		if err := os.WriteFile(file, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		a, n := restart()
		if _, err := a.Agent(t.Context(), "10.0.0.3", "host3", "password 3", "default", "web"); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if want := int64(1); what != "cut off" && n.Load() != want {
			t.Errorf("%s: %d passwords were compared", what, n.Load())
		}
		a, n = restart()
		if _, err := a.Agent(t.Context(), "10.0.0.3", "host3", "password 3", "default", "web"); err != nil || n.Load() != 0 {
			t.Errorf("after %s: %v, %d passwords were compared", what, err, n.Load())
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(file, 0o700); err != nil {
		t.Fatal(err)
	}
	a, _ = restart()
	if _, err := a.Agent(t.Context(), "10.0.0.3", "host3", "password 3", "default", "web"); err != nil {
		t.Errorf("without a file: %v", err)
	}
}

// TestRememberedIsBounded adds more digests than are kept.
func TestRememberedIsBounded(t *testing.T) {
	r, err := openRemembered(randomKey(), filepath.Join(t.TempDir(), "sign-ins"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxRemembered {
		r.keep(digest{1, byte(i), byte(i >> 8), byte(i >> 16)})
	}
	if err := r.add("newest"); err != nil {
		t.Fatal(err)
	}
	if len(r.order) != maxRemembered/2 || len(r.have) != len(r.order) || !r.has("newest") {
		t.Errorf("%d and %d are kept", len(r.order), len(r.have))
	}
	again, err := openRemembered(r.key, r.path)
	if err != nil {
		t.Fatal(err)
	}
	if len(again.order) != len(r.order) || !again.has("newest") {
		t.Errorf("%d are read again", len(again.order))
	}
}

// TestDirectoryAccountIsNotLocked has 40 addresses send 5 wrong passwords each for one user of a directory, by both of
// its names. The directory sees too few to lock the account, and the user can sign in from a trusted address.
func TestDirectoryAccountIsNotLocked(t *testing.T) {
	const dn = "uid=alice,ou=people," + suffix
	s := startSlapd(t, false)
	r := s.relay(t, nil)
	a := withDirectory(t, resource.LDAPType, nil, s.server(func(d *resource.DirectoryServer) { d.Port, d.Security = r.port, "insecure" }))
	c := new(clock)
	a.opts.Now = c.now
	signIn := func(address, name, password string) error {
		_, err := a.SignIn(t.Context(), address, name, password)
		return err
	}
	if err := signIn("10.0.0.1", "alice", "alice-password"); err != nil {
		t.Fatal(err)
	}
	before := r.bound(dn)
	asked := func() int { return r.bound(dn) - before }
	for range 200 {
		if err := signIn("10.0.0.66", "alice", "the same"); !errors.Is(err, ErrCredentials) {
			t.Fatal(err)
		}
	}
	if asked() != 1 {
		t.Errorf("the same wrong password was asked %d times", asked())
	}
	for i := range 5 {
		_ = signIn("10.0.0.66", "ALICE", fmt.Sprint("guess ", i))
	}
	if asked() != 4 {
		t.Errorf("one address had %d passwords asked", asked())
	}
	for host := range 40 {
		for i := range 5 {
			_ = signIn(fmt.Sprint("10.0.1.", host), []string{"alice", "al"}[i%2], fmt.Sprint("guess ", host, i))
		}
	}
	if asked() != a.opts.DirectoryGuesses-a.opts.DirectoryGuesses/4 {
		t.Errorf("the directory was asked %d times", asked())
	}
	var guessing *GuessingError
	if err := signIn("10.0.2.1", "alice", "alice-password"); !errors.As(err, &guessing) || guessing.Wait > bindWindow {
		t.Errorf("the right password from a new address: %v", err)
	}
	if err := signIn("10.0.0.1", "alice", "mistyped"); !errors.Is(err, ErrCredentials) {
		t.Errorf("a mistake where the user was before: %v", err)
	}
	if err := signIn("10.0.0.1", "alice", "alice-password"); err != nil {
		t.Errorf("the right password where the user was before: %v", err)
	}
	if err := signIn("10.0.2.1", "alice", "alice-password"); err != nil {
		t.Errorf("the right password after that: %v", err)
	}
	if asked() > 10+2 {
		t.Errorf("the directory was asked %d times in all", asked())
	}
}

// TestBindsAreBounded guesses for many entries.
func TestBindsAreBounded(t *testing.T) {
	g := bindGuesses{key: randomKey(), limit: 2}
	now := time.Unix(1_700_000_000, 0)
	for i := range maxBindEntries + 10 {
		b := bindQuestion{entry: fmt.Sprint(i), address: "10.0.0.66", password: "x"}
		e, err := g.begin(t.Context(), now, b)
		if err != nil {
			t.Fatal(err)
		}
		g.end(now, e, b, ErrCredentials)
	}
	if len(g.entries) != maxBindEntries || g.byAge.Len() != maxBindEntries {
		t.Errorf("%d entries are kept, %d in order", len(g.entries), g.byAge.Len())
	}
}

// TestRememberedIsVerified flips a byte of each part of the file. The check needs no key, and the valid entries stay.
func TestRememberedIsVerified(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sign-ins")
	r, err := openRemembered(randomKey(), path)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"one", "two"} {
		if err := r.add(part); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if what, err := CheckRemembered(path); err != nil || what != "" {
		t.Errorf("a sound file: %q, %v", what, err)
	}
	for at, want := range map[int]string{
		0: "the beginning of the file", rememberedHeader - 1: "the beginning of the file", rememberedHeader: "1 of 2 entries", len(whole) - 1: "1 of 2 entries",
	} {
		b := slices.Clone(whole)
		b[at] ^= 1
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if what, err := CheckRemembered(path); err != nil || !strings.Contains(what, want) {
			t.Errorf("byte %d: %q, %v; want %q", at, what, err, want)
		}
	}
	again, err := openRemembered(r.key, path) // the last byte is flipped, or another
	if err != nil || again.has("one") && again.has("two") {
		t.Errorf("a damaged entry is believed: %v", err)
	}
	if err := os.WriteFile(path, whole[:len(whole)-5], 0o600); err != nil {
		t.Fatal(err)
	}
	if what, err := CheckRemembered(path); err != nil || what != "" {
		t.Errorf("an end that was cut off: %q, %v", what, err)
	}
}
