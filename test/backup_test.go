package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/backup"
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// hookReceiver is a receiver of webhooks that takes nothing until it is opened.
type hookReceiver struct {
	mu    sync.Mutex
	open  bool
	tried map[int64]map[string]bool // by incident: the keys with which it came
	taken map[int64]int
}

func (h *hookReceiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var ev resource.Event
	if r.URL.Path == "/never" || json.NewDecoder(r.Body).Decode(&ev) != nil {
		http.Error(w, "never", http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	n := ev.Check.Executed
	if h.tried[n] == nil {
		h.tried[n] = map[string]bool{}
	}
	h.tried[n][r.Header.Get("Idempotency-Key")] = true
	if !h.open {
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	h.taken[n]++
}

func (h *hookReceiver) count() (tried, taken int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.tried), len(h.taken)
}

// awaitTaken waits until all deliveries of fillForBackup have been taken.
func (h *hookReceiver) awaitTaken(t *testing.T, what string) {
	t.Helper()
	eventually(t, 2*time.Minute, what, func() bool { _, n := h.count(); return n == parked })
}

const (
	stillEntities = 10
	parked        = 40
	deadLetters   = 5
)

// fillForBackup gives a backend definitions, events with histories, silences, deliveries that wait and dead letters.
// None of that changes later.
func fillForBackup(t *testing.T, c *client.Client, hook string) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	handler := func(name, path string, retry *resource.HandlerRetry) {
		t.Helper()
		must(client.Put(ctx, c, client.Handlers, "default", name, &resource.Handler{
			Metadata: meta(name), Type: "webhook", Webhook: &resource.HandlerWebhook{URL: hook + path}, Retry: retry,
		}))
	}
	handler("later", "/later", &resource.HandlerRetry{MaxAttempts: 1000, Backoff: 1, MaxBackoff: 1})
	handler("never", "/never", nil)
	operator := &resource.User{Username: "operator", Password: "correct horse", Groups: []string{"ops"}}
	must(client.Put(ctx, c, client.Users, "", "operator", operator))
	executed := int64(1000)
	send := func(entity, check string, status uint32, handlers ...string) {
		t.Helper()
		executed++
		ev := testbackend.Event(entity, check, status, executed)
		ev.Entity.EntityClass = "proxy"
		ev.Check.Handlers = handlers
		must(client.Put(ctx, c, client.Events, "default", client.EventName(entity, check), ev))
	}
	for i := range stillEntities {
		name := fmt.Sprintf("still-%d", i)
		for n := range 12 + i {
			send(name, "disk", uint32((n/3+i)%3))
		}
	}
	for i := range parked {
		send(fmt.Sprintf("parked-%d", i), "web", 2, "later")
	}
	for i := range deadLetters {
		send(fmt.Sprintf("dead-%d", i), "mail", 2, "never")
	}
	must(client.Put(ctx, c, client.Silences, "default", "entity:still-1:*", &resource.Silenced{
		Metadata: resource.ObjectMeta{Name: "entity:still-1:*", Namespace: "default"}, Subscription: "entity:still-1",
		Check: "*", Expire: 100_000, Reason: "maintenance",
	}))
	ack := "/api/lapwing/v1/namespaces/default/events/still-3/disk/ack"
	must(c.Do(ctx, http.MethodPost, ack, map[string]any{"comment": "known"}, nil))
}

// still is what a backend has of what fillForBackup made, as JSON by a name.
func still(t *testing.T, c *client.Client) map[string]string {
	t.Helper()
	out := map[string]string{}
	get := func(path string) {
		t.Helper()
		var text []byte
		if err := c.Do(t.Context(), http.MethodGet, path, nil, &text); err != nil {
			t.Fatal(err)
		}
		out[path] = string(text)
	}
	for i := range stillEntities {
		get(fmt.Sprintf("/api/core/v2/namespaces/default/events/still-%d/disk", i))
		get(fmt.Sprintf("/api/lapwing/v1/namespaces/default/events/still-%d/disk/history", i))
		get(fmt.Sprintf("/api/core/v2/namespaces/default/entities/still-%d", i))
	}
	for _, path := range []string{
		"/api/core/v2/namespaces/default/handlers", "/api/core/v2/users", "/api/core/v2/namespaces/default/silenced",
		"/api/core/v2/clusterroles", "/api/core/v2/clusterrolebindings", "/api/core/v2/namespaces", "/api/core/v2/apikeys",
		"/api/lapwing/v1/namespaces/default/deadletters", "/api/lapwing/v1/audit?resource=handlers",
	} {
		get(path)
	}
	return out
}

func sameStill(t *testing.T, got, want map[string]string) {
	t.Helper()
	for _, path := range slices.Sorted(maps.Keys(want)) {
		if got[path] != want[path] {
			t.Errorf("%s: restored\n%s\nwas\n%s", path, got[path], want[path])
		}
	}
}

// lapwing runs a client's command and returns what it printed.
func lapwing(t *testing.T, args ...string) (string, error) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func apiKey(t *testing.T, c *client.Client, user string) string {
	t.Helper()
	location, err := c.GrantAPIKey(t.Context(), user)
	if err != nil {
		t.Fatal(err)
	}
	return location[strings.LastIndexByte(location, '/')+1:]
}

// TestBackupUnderLoad makes a backup while agents and a client send events and definitions change, kills the backend,
// deletes its directory and restores it. What does not change must be the same. What changes must be as it was at one
// moment of the backup, with each event counted once, also after the agents have sent again what was not acknowledged.
func TestBackupUnderLoad(t *testing.T) {
	t.Parallel()
	receiver := &hookReceiver{tried: map[int64]map[string]bool{}, taken: map[int64]int{}}
	hook := httptest.NewServer(receiver)
	defer hook.Close()
	// Acknowledgements leave late, so agents send again what is in the backup.
	p := newProcess(t, "--agent-spread", "4s", "--event-log-partitions", "3")
	p.start()
	c := p.client()
	key := apiKey(t, c, testbackend.User)
	fillForBackup(t, c, hook.URL)
	eventually(t, time.Minute, "each delivery was tried", func() bool { n, _ := receiver.count(); return n == parked })
	eventually(t, time.Minute, "the dead letters are there", func() bool {
		n := 0
		for _, err := range c.DeadLetters(t.Context(), "default", "", "") {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n == deadLetters
	})
	want := still(t, c)

	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	const agents, checks, rate = 4, 3, 1000
	senders := make([]*sender, agents)
	for i := range senders {
		senders[i] = newSender(t, fmt.Sprintf("agent-%d", i), "ws://127.0.0.1:"+p.agent, checks)
		running.Go(func() { senders[i].transport.Run(ctx) })
	}
	stop := make(chan struct{})
	var sending sync.WaitGroup
	for _, s := range senders {
		sending.Go(func() { s.send(stop, rate/agents) })
	}
	var viaAPI apiSender
	sending.Go(func() { viaAPI.send(ctx, stop, p.client()) })
	var changes changer
	sending.Go(func() { changes.run(ctx, stop, p.client()) })
	eventually(t, time.Minute, "the load is on", func() bool {
		return viaAPI.ok.Load() > 20 && changes.done.Load() > 20 && senders[0].acked.Load() > 100
	})

	file := filepath.Join(t.TempDir(), "lapwing.backup")
	acked, ok, changed := make([]uint64, agents), viaAPI.ok.Load(), changes.done.Load()
	for i, s := range senders {
		acked[i] = s.acked.Load()
	}
	if out, err := lapwing(t, "backup", file, "--api-url", "http://"+p.api, "--api-key", key); err != nil {
		t.Fatalf("backup: %v\n%s", err, out)
	}
	changedAfter := changes.begun.Load()
	p.kill(syscall.SIGKILL)
	close(stop)
	sending.Wait()
	lost := make([]uint64, agents) // up to these numbers the agents send nothing again
	for i, s := range senders {
		lost[i] = s.acked.Load()
	}
	state := filepath.Join(p.dir, "state")
	if err := os.RemoveAll(state); err != nil {
		t.Fatal(err)
	}
	out, err := lapwing(t, "restore", file, "--state-dir", state)
	if err != nil || !strings.Contains(out, "is restored") {
		t.Fatalf("restore: %v\n%s", err, out)
	}
	sameLog(t, file, state)

	// First where no agent connects.
	port := p.agent
	p.agent = freePort(t)
	p.start()
	c = p.client()
	sameStill(t, still(t, c), want)
	restored := map[*sender][]int64{}
	for i, s := range senders {
		for check := range checks {
			n := occurrences(t, c, s.name, check)
			if least := s.sentUpTo(acked[i], check); n < least {
				t.Errorf("%s/check-%d has %d results, %d were acknowledged before the backup", s.name, check, n, least)
			}
			restored[s] = append(restored[s], n)
		}
	}
	if n := occurrences(t, c, "api", 0); n < ok {
		t.Errorf("%d results came through the API, %d were answered 2xx before the backup", n, ok)
	}
	if n := changes.stored(t, c); n < changed || n > changedAfter {
		t.Errorf("the definition is that of change %d: %d were done before the backup, and %d begun before its end",
			n, changed, changedAfter)
	}
	receiver.mu.Lock()
	receiver.open = true
	receiver.mu.Unlock()
	receiver.awaitTaken(t, "each waiting delivery was sent")
	receiver.mu.Lock()
	for n, keys := range receiver.tried {
		if len(keys) != 1 {
			t.Errorf("incident %d came with %d keys", n, len(keys))
		}
	}
	receiver.mu.Unlock()

	// Then where the agents are.
	p.kill(syscall.SIGTERM)
	p.agent = port
	p.start()
	c = p.client()
	eventually(t, 2*time.Minute, "all events are acknowledged", func() bool {
		return !slices.ContainsFunc(senders, func(s *sender) bool { return s.transport.Buffered() > 0 })
	})
	again := int64(0)
	for i, s := range senders {
		for check, had := range restored[s] {
			again += max(0, had-s.sentUpTo(lost[i], check))
			if got, want := occurrences(t, c, s.name, check), s.union(check, had, lost[i]); got != want {
				t.Errorf("%s/check-%d has %d results after the agents were back, want %d", s.name, check, got, want)
			}
		}
	}
	t.Logf("the agents sent %d results again that were in the backup", again)
	out, err = lapwing(t, "backup", file, "--api-url", "http://"+p.api, "--api-key", key, "--quiet")
	if err != nil || out != "" {
		t.Errorf("backup of the restored backend: %v\n%s", err, out)
	}
}

// sameLog compares how far the event log of a restored directory goes with what the backup says.
func sameLog(t *testing.T, file, state string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := backup.Read(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	out, err := lapwing(t, "backend", "verify", "--state-dir", state, "--config-file", os.DevNull)
	if err != nil {
		t.Fatalf("verify: %v\n%s", err, out)
	}
	for i, r := range s.Log {
		want := fmt.Sprintf("event log partition %d %d %d %d", i, r.Last+1-r.First, r.First, r.Last)
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("want %q in\n%s", want, out)
		}
	}
}

// union counts the results of a check that are among the first ones, or were not acknowledged.
func (s *sender) union(check int, first int64, acked uint64) (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, seq := range s.seqs[check] {
		if int64(i) < first || seq > acked {
			n++
		}
	}
	return n
}

// changer changes one definition all the time.
type changer struct{ begun, done atomic.Int64 }

func (ch *changer) run(ctx context.Context, stop chan struct{}, c *client.Client) {
	for n := int64(1); ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		ch.begun.Store(n)
		check := &resource.CheckConfig{
			Metadata: meta("changing"), Command: fmt.Sprint("true ", n), Interval: 3600, Subscriptions: []string{"none"},
		}
		if client.Put(ctx, c, client.Checks, "default", "changing", check) == nil {
			ch.done.Store(n)
		}
	}
}

func (ch *changer) stored(t *testing.T, c *client.Client) (n int64) {
	t.Helper()
	check, err := client.Get(t.Context(), c, client.Checks, "default", "changing")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(check.Command, "true %d", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestDeliveriesAfterRestore finishes deliveries after the backup: they must be made again, with the same keys.
func TestDeliveriesAfterRestore(t *testing.T) {
	t.Parallel()
	receiver := &hookReceiver{tried: map[int64]map[string]bool{}, taken: map[int64]int{}}
	hook := httptest.NewServer(receiver)
	defer hook.Close()
	set := func(open bool) {
		receiver.mu.Lock()
		defer receiver.mu.Unlock()
		receiver.open, receiver.taken = open, map[int64]int{}
	}
	p := newProcess(t)
	p.start()
	c := p.client()
	fillForBackup(t, c, hook.URL)
	eventually(t, time.Minute, "each delivery was tried", func() bool { n, _ := receiver.count(); return n == parked })
	file := filepath.Join(p.dir, "b")
	key := apiKey(t, c, testbackend.User)
	if out, err := lapwing(t, "backup", file, "--api-url", "http://"+p.api, "--api-key", key); err != nil {
		t.Fatalf("backup: %v\n%s", err, out)
	}
	set(true)
	receiver.awaitTaken(t, "each delivery was sent")
	set(false)
	p.kill(syscall.SIGTERM)
	if err := os.RemoveAll(filepath.Join(p.dir, "state")); err != nil {
		t.Fatal(err)
	}
	if out, err := lapwing(t, "restore", file, "--state-dir", filepath.Join(p.dir, "state")); err != nil {
		t.Fatalf("restore: %v\n%s", err, out)
	}
	set(true)
	p.start()
	receiver.awaitTaken(t, "each delivery was sent again")
	receiver.mu.Lock()
	defer receiver.mu.Unlock()
	for n, keys := range receiver.tried {
		if len(keys) != 1 {
			t.Errorf("incident %d came with %d keys", n, len(keys))
		}
	}
}

// TestBackupNeedsAllRights asks for backups without credentials, and with too few rights.
func TestBackupNeedsAllRights(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, nil)
	anyone, err := client.New(client.Options{
		URL: "http://" + b.APIAddr().String(), APIKey: "00000000-0000-0000-0000-000000000000",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer anyone.Close()
	all := []string{"*"}
	whole := resource.Rule{Verbs: all, Resources: all}
	red, one := whole, whole
	red.LabelSelector, one.ResourceNames = "team == red", []string{"backup"}
	for what, tc := range map[string]struct {
		c    *client.Client
		want error
	}{
		"an unknown key": {anyone, client.ErrUnauthenticated},
		"all rights in a namespace": {
			signedIn(t, b, "member", whole), client.ErrDenied},
		"all rights to the cluster": {
			clusterUser(t, b, "drainer", resource.Rule{Verbs: all, Resources: []string{"cluster"}}), client.ErrDenied},
		"all to be read": {
			clusterUser(t, b, "reader", resource.Rule{Verbs: []string{"get", "list"}, Resources: all}), client.ErrDenied},
		"all rights to a label":      {clusterUser(t, b, "red", red), client.ErrDenied},
		"all rights to one name":     {clusterUser(t, b, "one", one), client.ErrDenied},
		"all rights in the cluster":  {clusterUser(t, b, "root", whole), nil},
		"the first of all the users": {b.Client, nil},
	} {
		answer, err := tc.c.Backup(t.Context())
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", what, err, tc.want)
		}
		if err == nil {
			_, err := backup.Read(answer, nil)
			if err := errors.Join(err, answer.Close()); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	var entries []struct{ User, Action, Resource, Name string }
	err = b.Client.Do(t.Context(), http.MethodGet, "/api/lapwing/v1/audit?resource=cluster", nil, &entries)
	if err != nil {
		t.Fatal(err)
	}
	users := map[string]bool{}
	for _, e := range entries {
		if e.Action == "create" && e.Name == "backup" {
			users[e.User] = true
		}
	}
	if len(entries) != 2 || !users["root"] || !users[testbackend.User] {
		t.Errorf("the audit log has %v", entries)
	}
}

// clusterUser makes a user with rules in the whole cluster.
func clusterUser(t *testing.T, b *testbackend.Backend, name string, rules ...resource.Rule) *client.Client {
	t.Helper()
	ctx, meta := t.Context(), resource.ObjectMeta{Name: name}
	err := errors.Join(
		client.Put(ctx, b.Client, client.ClusterRoles, "", name, &resource.ClusterRole{Metadata: meta, Rules: rules}),
		client.Put(ctx, b.Client, client.ClusterRoleBindings, "", name, &resource.ClusterRoleBinding{
			Metadata: meta, RoleRef: resource.RoleRef{Type: "ClusterRole", Name: name},
			Subjects: []resource.Subject{{Type: "User", Name: name}},
		}),
		client.Put(ctx, b.Client, client.Users, "", name, &resource.User{Username: name, Password: teamPassword}),
	)
	if err != nil {
		t.Fatal(err)
	}
	return asUser(t, b, name, teamPassword)
}

// fatten gives a backend so much data that a backup of it does not fit into the buffers of a connection.
func fatten(t *testing.T, c *client.Client) {
	t.Helper()
	noise := rand.New(rand.NewPCG(1, 2))
	for i := range 100 {
		ev := testbackend.Event(fmt.Sprintf("fat-%d", i), "fat", 0, int64(i+1))
		ev.Entity.EntityClass = "proxy"
		text := make([]byte, 300<<10)
		for j := range text {
			text[j] = byte('!' + noise.IntN(90))
		}
		ev.Check.Output = string(text)
		name := client.EventName(ev.Entity.Metadata.Name, "fat")
		if err := client.Put(t.Context(), c, client.Events, "default", name, ev); err != nil {
			t.Fatal(err)
		}
	}
}

// beginBackup asks for a backup and reads only its beginning.
func beginBackup(t *testing.T, c *client.Client) io.ReadCloser {
	t.Helper()
	answer, err := c.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := backup.NewReader(answer); err != nil { // the copy of the database is made before the manifest
		t.Fatal(err)
	}
	return answer
}

// TestSlowBackup has a client that does not read its backup: events go on, no second backup begins, and when the client
// is gone nothing is left of the backup.
func TestSlowBackup(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	b := testbackend.Start(t, func(o *testbackend.Options) { o.StateDir = dir })
	fatten(t, b.Client)
	answer := beginBackup(t, b.Client)
	copied := filepath.Join(dir, "backup")
	if !exists(filepath.Join(copied, "state")) {
		t.Error("the database was not copied")
	}
	if b.Counter(t, "lapwing_backup_running") != 1 {
		t.Error("no backup is under way")
	}
	_, err := b.Client.Backup(t.Context())
	if !errors.Is(err, client.ErrExists) || !strings.Contains(err.Error(), backup.ErrBusy.Error()) {
		t.Errorf("a second backup: %v", err)
	}
	for n := range 200 {
		result(t, b, "moving", "cpu", uint32(n%2))
	}
	if err := answer.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*time.Minute, "the copy of the database is removed", func() bool { return !exists(copied) })
	eventually(t, time.Minute, "the failure is counted", func() bool {
		return b.Counter(t, "lapwing_backup_failures_total") == 1
	})

	answer, err = b.Client.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Close()
	s, err := backup.Read(answer, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.Events != 101 {
		t.Errorf("the backup has %d events, want 101", s.Events)
	}
}

// TestStopDuringBackup stops a backend whose backup is under way: it must not wait for the client.
func TestStopDuringBackup(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	b := testbackend.Start(t, func(o *testbackend.Options) { o.StateDir = dir })
	fatten(t, b.Client)
	defer beginBackup(t, b.Client).Close() // and reads no more of it
	if err := b.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if exists(filepath.Join(dir, "backup")) {
		t.Error("the copy of the database was left")
	}
}

// TestKilledDuringBackup kills the backend in a backup: the next start removes the copy of the database.
func TestKilledDuringBackup(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	p.start()
	c := p.client()
	fatten(t, c)
	answer := beginBackup(t, c)
	p.kill(syscall.SIGKILL)
	if _, err := io.Copy(io.Discard, answer); err == nil {
		t.Error("the cut answer ended without an error")
	}
	_ = answer.Close()
	copied := filepath.Join(p.dir, "state", "backup")
	if !exists(copied) {
		t.Fatal("there is no copy of the database: the test shows nothing")
	}
	p.start()
	if exists(copied) {
		t.Error("the copy of the database was left")
	}
	name := client.EventName("fat-99", "fat")
	if _, err := client.Get(t.Context(), p.client(), client.Events, "default", name); err != nil {
		t.Error(err)
	}
}

// fakeBackups serves the beginning of a backup, and then keeps the connection open or cuts it.
type fakeBackups struct {
	part  []byte
	hang  chan struct{} // nil cuts
	asked chan struct{} // capacity 1
}

func (f *fakeBackups) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(f.part)
	_ = http.NewResponseController(w).Flush()
	select {
	case f.asked <- struct{}{}:
	default:
	}
	if f.hang != nil {
		<-f.hang
	}
	panic(http.ErrAbortHandler)
}

// smallBackup is a backup of a backend with some definitions and events.
func smallBackup(t *testing.T) []byte {
	t.Helper()
	b := testbackend.Start(t, nil)
	for i := range 20 {
		result(t, b, fmt.Sprintf("e%d", i), "disk", uint32(i%3))
	}
	answer, err := b.Client.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Close()
	var out bytes.Buffer
	if _, err := backup.Read(io.TeeReader(answer, &out), nil); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestBackupFileIsWholeOrOld cuts the connection of lapwing backup at many places, and kills it: an earlier file must
// stay, and no part of the new one may be there under its name.
func TestBackupFileIsWholeOrOld(t *testing.T) {
	t.Parallel()
	whole := smallBackup(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "b")
	if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	old := func(when string) {
		t.Helper()
		if text, err := os.ReadFile(file); err != nil || string(text) != "old" {
			t.Errorf("%s: the old file is %q, %v", when, text, err)
		}
	}
	for n := 0; n < len(whole); n += len(whole)/10 + 1 {
		server := httptest.NewServer(&fakeBackups{part: whole[:n], asked: make(chan struct{}, 1)})
		out, err := lapwing(t, "backup", file, "--api-url", server.URL, "--api-key", "k")
		server.Close()
		if err == nil {
			t.Errorf("cut after %d bytes: it succeeded: %s", n, out)
		}
		old(fmt.Sprintf("cut after %d bytes", n))
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left in the directory: %v, %v", left, err)
	}

	fake := &fakeBackups{part: whole[:len(whole)/2], hang: make(chan struct{}), asked: make(chan struct{}, 1)}
	server := httptest.NewServer(fake)
	defer server.Close()
	defer close(fake.hang)
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "backup", file, "--api-url", server.URL, "--api-key", "k")
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-fake.asked
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	old("killed")
}

// TestRestoreRefusesDamage cuts a backup and flips bits of it: nothing may be written then, not even the directory.
func TestRestoreRefusesDamage(t *testing.T) {
	t.Parallel()
	whole := smallBackup(t)
	dir := t.TempDir()
	file, state := filepath.Join(dir, "b"), filepath.Join(dir, "state")
	refused := func(what string, b []byte) {
		t.Helper()
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := lapwing(t, "restore", file, "--state-dir", state)
		if err == nil || !strings.Contains(out, "damaged at byte") {
			t.Errorf("%s: %v\n%s", what, err, out)
		}
		if exists(state) {
			t.Fatalf("%s: there is a state directory", what)
		}
	}
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	for range 5 {
		n := random.IntN(len(whole))
		refused(fmt.Sprintf("cut after %d bytes", n), whole[:n])
		b := bytes.Clone(whole)
		at := len("lapwing backup 1\n") + random.IntN(len(whole)-len("lapwing backup 1\n"))
		b[at] ^= 1 << random.IntN(8)
		refused(fmt.Sprintf("byte %d of %d changed", at, len(b)), b)
	}
}

// TestRestoreIntoUsedDirectories restores where something is already, where nothing can be written, and where there is
// no space.
func TestRestoreIntoUsedDirectories(t *testing.T) {
	t.Parallel()
	whole := smallBackup(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "b")
	if err := os.WriteFile(file, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	refused := func(state, want string) {
		t.Helper()
		out, err := lapwing(t, "restore", file, "--state-dir", state)
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("restore into %s: %v, want %q in\n%s", state, err, want, out)
		}
	}
	other := filepath.Join(dir, "other")
	if err := errors.Join(os.Mkdir(other, 0o700), os.WriteFile(filepath.Join(other, "notes"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	refused(other, `is not empty, it has "notes"`)
	refused(filepath.Join(file, "state"), "not a directory")

	p := newProcess(t)
	p.start()
	refused(filepath.Join(p.dir, "state"), "in use by another process")
	p.kill(syscall.SIGTERM)
	refused(filepath.Join(p.dir, "state"), "is not empty")

	full := filepath.Join(dir, "full")
	mountSmall(t, full, 1<<20)
	refused(full, "not enough space on the disk")
	if entries, err := os.ReadDir(full); err != nil || len(entries) > 1 {
		t.Errorf("a restore without space has left %v, %v", entries, err)
	}
}

// TestKilledRestore kills restores at random moments. A backend must not start on what is left, or must find all of it,
// and another restore must succeed.
func TestKilledRestore(t *testing.T) {
	t.Parallel()
	whole := smallBackup(t)
	p := newProcess(t)
	file, state := filepath.Join(p.dir, "b"), filepath.Join(p.dir, "state")
	if err := os.WriteFile(file, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if out, err := lapwing(t, "restore", file, "--state-dir", state); err != nil {
		t.Fatalf("restore: %v\n%s", err, out)
	}
	took := time.Since(begin)
	unfinished := 0
	for i := range 12 {
		if err := os.RemoveAll(state); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(path, "restore", file, "--state-dir", state, "--quiet")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Duration(i+1)*took/12, func() { _ = cmd.Process.Kill() })
		if cmd.Wait() == nil || !exists(filepath.Join(state, "restoring")) {
			continue
		}
		unfinished++
		out, err := lapwing(t, "backend", "verify", "--state-dir", state, "--config-file", os.DevNull)
		if err == nil || !strings.Contains(out, "was not finished: run lapwing restore again") {
			t.Errorf("verify of an unfinished restore: %v\n%s", err, out)
		}
		if out, err := lapwing(t, "restore", file, "--state-dir", state); err != nil {
			t.Errorf("restore again: %v\n%s", err, out)
		}
		if out, err := lapwing(t, "backend", "verify", "--state-dir", state, "--config-file", os.DevNull); err != nil {
			t.Errorf("verify: %v\n%s", err, out)
		}
	}
	t.Logf("%d of 12 restores were killed on their way", unfinished)
	if !exists(filepath.Join(state, "identity")) {
		if out, err := lapwing(t, "restore", file, "--state-dir", state); err != nil {
			t.Fatalf("restore: %v\n%s", err, out)
		}
	}
	p.start()
	name := client.EventName("e19", "disk")
	if _, err := client.Get(t.Context(), p.client(), client.Events, "default", name); err != nil {
		t.Error(err)
	}
}
