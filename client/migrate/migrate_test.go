package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/manifest"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
)

// someHash is a hash of the password foobar123.
const someHash = "$2a$10$XlKuqBhJlpeIxW.MZp5HMOyZSL9NJ9y06m/35qwAVJlC5GRdudSGS"

// create sends resources in the form of files to a backend, like "create -f". Users get the password of someHash unless
// they have one.
func (b *side) create(t *testing.T, text string) {
	t.Helper()
	documents, wrong := manifest.Split("text", []byte(text))
	if len(wrong) > 0 {
		t.Fatal(wrong[0])
	}
	for _, document := range documents {
		o, err := (&files{namespace: "default"}).read(document.JSON)
		if err != nil || o == nil {
			t.Fatalf("%s: %v", document.JSON, err)
		}
		if o.kind == userKind && o.body["password"] == nil {
			o.body["password_hash"] = someHash
		}
		if err := b.Client.Do(t.Context(), http.MethodPut, o.path(), o.wire(), nil); err != nil {
			t.Fatal(err)
		}
	}
}

// side is one of the two backends of a copy.
type side struct{ *testbackend.Backend }

func start(t *testing.T) *side { return &side{testbackend.Start(t, nil)} }

func (b *side) url() string { return "http://" + b.APIAddr().String() }

// fromFile returns a source with the text of a dump.
func fromFile(t *testing.T, text string) Source {
	t.Helper()
	s, err := ReadFiles([]File{{Name: "dump", Data: strings.NewReader(text)}}, "default")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// event sends a result of a check.
func (b *side) event(t *testing.T, entity, check string, status int, executed int64, more map[string]any) {
	t.Helper()
	c := map[string]any{
		"metadata": map[string]any{"name": check, "namespace": "default"}, "command": "check-" + check,
		"interval": 30, "subscriptions": []string{"linux"},
		"status": status, "executed": executed, "issued": executed, "duration": 0.125, "output": fmt.Sprintf("%s: %d\n", check, status),
	}
	for k, v := range more {
		c[k] = v
	}
	e := map[string]any{"entity": map[string]any{"entity_class": "proxy",
		"metadata": map[string]any{"name": entity, "namespace": "default"}}, "check": c, "timestamp": executed}
	if err := b.Client.Do(t.Context(), http.MethodPost,
		client.Events.Path("default", client.EventName(entity, check)), e, nil); err != nil {
		t.Fatal(err)
	}
}

// all returns every resource of a kind on a backend, by its name.
func (b *side) all(t *testing.T, k *kind, namespace string) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	if err := listAll(t.Context(), b.Client, k, namespace, func(o *object) error {
		out[o.label()] = o.body
		return nil
	}); err != nil && err != errNoKind {
		t.Fatal(err)
	}
	return out
}

func (b *side) get(t *testing.T, path string) map[string]any {
	t.Helper()
	var raw json.RawMessage
	if err := b.Client.Do(t.Context(), http.MethodGet, path, nil, &raw); err != nil {
		t.Fatal(err)
	}
	body, err := decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func (b *side) options(from Source) Options {
	return Options{Source: from, Target: b.Client, TargetName: "the target", TargetUser: testbackend.User, Verify: true}
}

// copyTo copies and returns the report of a run that did not fail.
func copyTo(t *testing.T, opts Options) *Report {
	t.Helper()
	r, err := Run(t.Context(), opts)
	if err != nil {
		t.Fatalf("%v\n%s", err, printed(t, r))
	}
	return r
}

func printed(t *testing.T, r *Report) string {
	t.Helper()
	var b strings.Builder
	if err := WriteText(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func (r *Report) of(t *testing.T, plural string) KindReport {
	t.Helper()
	i := slices.IndexFunc(r.Kinds, func(k KindReport) bool { return k.Plural == plural })
	if i < 0 {
		t.Fatalf("the report says nothing of %s: %+v", plural, r.Kinds)
	}
	return r.Kinds[i]
}

// sent returns how many resources a run wrote.
func (r *Report) sent() (n int) {
	for _, k := range r.Kinds {
		n += k.Created + k.Updated
	}
	return n
}

func (r *Report) remark(s Severity, typ string) *Remark {
	for i, m := range r.Remarks {
		if m.Severity == s && m.Type == typ {
			return &r.Remarks[i]
		}
	}
	return nil
}

const definitions = `
type: Namespace
spec: {name: shop}
---
type: ClusterRole
metadata: {name: auditors}
spec: {rules: [{verbs: ["get,list"], resources: [checks, events]}]}
---
type: ClusterRoleBinding
metadata: {name: auditors}
spec: {role_ref: {type: ClusterRole, name: auditors}, subjects: [{type: Group, name: audit}]}
---
type: User
spec: {username: vera, groups: [audit, tills]}
---
type: User
spec: {username: gone, disabled: true}
---
type: Handler
metadata: {name: bell, namespace: default}
spec: {type: pipe, command: "cat", filters: [is_incident], env_vars: ["A=b"]}
---
type: CheckConfig
metadata: {name: disk, namespace: shop, labels: {team: floor, empty: ""}}
spec: {command: check-disk, interval: 30, publish: true, subscriptions: [linux], handlers: [bell], ttl: 90}
---
type: Entity
metadata: {name: router1, namespace: default, labels: {place: cellar, password: xyzzy}}
spec: {entity_class: proxy, subscriptions: [network]}
---
type: Entity
metadata: {name: till7, namespace: shop, labels: {"sensu.io/managed_by": sensuctl}}
spec: {entity_class: agent, subscriptions: [linux], system: {hostname: till7, os: linux, network: {interfaces: [{name: eth0, addresses: ["192.0.2.7/24"]}]}}}
`

// TestCopy copies one backend into another, and checks the result without this package.
func TestCopy(t *testing.T) {
	from, to := start(t), start(t)
	from.create(t, definitions)
	now := time.Now().Unix()
	random := rand.New(rand.NewPCG(4, 2))
	for i := range 6 {
		flap := map[string]any{}
		if i%3 == 0 {
			flap = map[string]any{"low_flap_threshold": 5, "high_flap_threshold": 25}
		}
		n := random.IntN(30) + 1
		status, check := 0, fmt.Sprintf("check%d", i)
		for j := range n {
			if random.IntN(3) == 0 {
				status = random.IntN(3)
			}
			from.event(t, "router1", check, status, now-int64(n-j)*60, flap)
		}
	}
	from.event(t, "router1", "wide", 300, now-50, nil)
	from.event(t, "router1", "wide", 300, now-40, nil)

	r := copyTo(t, to.options(NewServer("the source", from.Client)))
	if !r.Complete() {
		t.Error("the copy is not complete")
	}
	for _, k := range r.Kinds {
		if k.Source != k.Created+k.Updated+k.Unchanged+k.Left+k.Failed {
			t.Errorf("the counts of %s do not add up: %+v", k.Plural, k)
		}
		if k.Equal != k.Source-k.Left {
			t.Errorf("%s: %d of %d are equal now", k.Plural, k.Equal, k.Source-k.Left)
		}
	}
	for _, s := range steps {
		for _, namespace := range []string{"", "default", "shop"} {
			if s.kind.Namespaced == (namespace == "") {
				continue
			}
			want, got := from.all(t, s.kind, namespace), to.all(t, s.kind, namespace)
			for name, w := range want {
				if s.kind == entityKind {
					delete(sub(sub(w, "metadata"), "labels"), "password") // the source cannot show it
				}
				if s.kind == userKind {
					delete(got[name], "no_password") // nor this
				}
				if s.kind == eventKind {
					w["entity"], got[name]["entity"] = nil, nil
				}
				wb, _ := json.Marshal(prune(w, ""))
				gb, _ := json.Marshal(prune(got[name], ""))
				if string(wb) != string(gb) {
					t.Errorf("%s %s:\nsource %s\ntarget %s", s.kind.Type, name, wb, gb)
				}
			}
			if len(got) != len(want) {
				t.Errorf("%s in %q: %d in the source, %d in the target", s.kind.Plural, namespace, len(want), len(got))
			}
		}
	}
	if got := r.of(t, "events"); got.Created != 7 || got.Source != 7 {
		t.Errorf("events: %+v", got)
	}
	if m := r.remark(Lost, "User"); m == nil || !slices.Equal(m.Names, []string{"gone", "vera"}) {
		t.Errorf("remark on passwords: %+v", m)
	}
	if m := r.remark(Lost, "Entity"); m == nil || !slices.Equal(m.Names, []string{"default/router1 metadata.labels.password"}) {
		t.Errorf("remark on secrets: %+v", m)
	}

	// A second copy does nothing.
	for range 2 {
		again := copyTo(t, to.options(NewServer("the source", from.Client)))
		if again.sent() > 0 || !again.Complete() {
			t.Errorf("the second run wrote:\n%s", printed(t, again))
		}
	}
}

func TestDryRun(t *testing.T) {
	to := start(t)
	to.create(t, "type: Handler\nmetadata: {name: bell, namespace: default}\nspec: {type: pipe, command: cat, timeout: 7}\n")
	opts := to.options(fromFile(t, definitions+`
---
type: Event
spec: {entity: {entity_class: proxy, metadata: {name: router1}}, check: {metadata: {name: ping}, interval: 30, status: 2, executed: 1795000000}}
---
type: Role
metadata: {name: "system:pipeline", namespace: shop}
spec: {rules: [{verbs: [get, list], resources: [events]}]}
`))
	opts.DryRun = true
	r := copyTo(t, opts)
	if got := r.of(t, "checks"); got.Created != 1 || r.of(t, "events").Created != 1 || r.of(t, "handlers").Updated != 1 {
		t.Errorf("it would not copy:\n%s", printed(t, r))
	}
	i := slices.IndexFunc(r.Changes, func(c Change) bool { return c.Action == Update && c.Type == "Handler" })
	if i < 0 || fmt.Sprint(fieldsOf(r.Changes[i])) != "[env_vars filters timeout]" {
		t.Errorf("changes: %+v", r.Changes)
	}
	if r.remark(Lost, "User") == nil {
		t.Error("a dry run does not say what will be lost")
	}
	if got := to.all(t, namespaceKind, ""); got["shop"] != nil {
		t.Errorf("namespaces after a dry run: %v", got)
	}
	if got := to.all(t, eventKind, "default"); len(got) != 0 {
		t.Errorf("events after a dry run: %v", got)
	}
	// The run does what the dry run said.
	opts.DryRun = false
	real := copyTo(t, opts)
	real.Kinds = slices.Clone(real.Kinds)
	for i := range real.Kinds {
		// Resources that come with a namespace exist only now, and only now is anything equal after the copy.
		real.Kinds[i].Extra, real.Kinds[i].Equal, r.Kinds[i].Extra = 0, 0, 0
	}
	if !slices.Equal(real.Kinds, r.Kinds) {
		t.Errorf("dry run and run differ:\n%s\n%s", printed(t, r), printed(t, real))
	}
}

func fieldsOf(c Change) (out []string) {
	for _, f := range c.Fields {
		out = append(out, f.Field)
	}
	return out
}

// TestNothingIsAlertedTwice follows an incident that has already alerted in the source.
func TestNothingIsAlertedTwice(t *testing.T) {
	from, to := start(t), start(t)
	var alerts atomic.Int64
	rang := make(chan struct{}, 100)
	bell := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		alerts.Add(1)
		rang <- struct{}{}
	}))
	defer bell.Close()
	now := time.Now().Unix()
	handled := map[string]any{"handlers": []string{"bell"}}
	from.event(t, "web1", "http", 2, now-60, handled)
	from.create(t, fmt.Sprintf("type: Handler\nmetadata: {name: bell, namespace: default}\nspec: {type: webhook, webhook: {url: %q}}\n", bell.URL))

	copyTo(t, to.options(NewServer("the source", from.Client)))
	path := client.Events.Path("default", client.EventName("web1", "http"))
	if got := texts(sub(to.get(t, path), "check"), "handlers"); !slices.Equal(got, []string{"bell"}) {
		t.Errorf("the event's handlers are now %q", got)
	}
	// Now the handler exists, and the incident goes on in the source, which alerts.
	from.event(t, "web1", "http", 2, now-30, handled)
	<-rang
	r := copyTo(t, to.options(NewServer("the source", from.Client)))
	if r.of(t, "events").Updated != 1 || r.remark(Noted, "Event") == nil {
		t.Errorf("the second copy:\n%s", printed(t, r))
	}
	check := sub(to.get(t, path), "check")
	if integer(check, "occurrences") != 2 || integer(check, "executed") != now-30 {
		t.Errorf("the state is not that of the source: %v", check)
	}
	// The next result comes to the target, and is the first that alerts there.
	to.event(t, "web1", "http", 2, now, handled)
	<-rang
	if n := alerts.Load(); n != 2 {
		t.Errorf("%d alerts, want 1 of the source and 1 of the target", n)
	}
	if got := integer(sub(to.get(t, path), "check"), "occurrences"); got != 3 {
		t.Errorf("occurrences %d, want 3", got)
	}
	// Newer data in the target stays.
	r = copyTo(t, to.options(NewServer("the source", from.Client)))
	if r.sent() != 0 || r.of(t, "events").Left != 1 || !r.Complete() {
		t.Errorf("a copy of what is old:\n%s", printed(t, r))
	}
}

func TestUsers(t *testing.T) {
	to := start(t)
	source := fromFile(t, `
type: User
spec: {username: vera, groups: [audit]}
---
type: User
spec: {username: ann, groups: [a, b]}
---
type: User
spec: {username: `+testbackend.User+`, groups: [cluster-admins, more]}
`)
	to.create(t, "type: User\nspec: {username: ann, password: secret-of-ann, groups: [b, c], disabled: true}\n")
	opts := to.options(source)
	opts.PasswordHashes = map[string]string{"vera": someHash, "vrea": someHash, "nobody": someHash}
	r := copyTo(t, opts)
	if m := r.remark(Doubtful, "User"); m == nil || !slices.Equal(m.Names, []string{"nobody", "vrea (vera?)"}) {
		t.Errorf("hashes of unknown users: %+v", m)
	}
	sign := func(user, password string) error {
		c, err := client.New(client.Options{URL: to.url(), Username: user, Password: password})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, err = c.Login(t.Context())
		return err
	}
	if err := sign("vera", "foobar123"); err != nil {
		t.Errorf("the given hash does not work: %v", err)
	}
	if err := sign("ann", "secret-of-ann"); err != nil {
		t.Errorf("a user who was there lost the password, or is not enabled: %v", err)
	}
	if got := texts(to.get(t, "/api/core/v2/users/ann"), "groups"); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"a", "b"}) {
		t.Errorf("ann's groups are %q", got)
	}
	if got := texts(to.get(t, "/api/core/v2/users/"+testbackend.User), "groups"); slices.Contains(got, "more") {
		t.Errorf("the user who ran it was changed: %q", got)
	}
	if got := r.of(t, "users"); got.Left != 1 || got.Created != 1 || got.Updated != 1 {
		t.Errorf("users: %+v", got)
	}
}

// TestHashesInALaterRun copies users without hashes first: they get theirs later, unless they have a password by then.
func TestHashesInALaterRun(t *testing.T) {
	to := start(t)
	opts := to.options(fromFile(t, `
type: User
spec: {username: vera, groups: [audit]}
---
type: User
spec: {username: ann}
---
type: User
spec: {username: bob, password_hash: no-hash}
---
type: User
spec: {username: eve}
`))
	// check runs a copy with hashes, and compares what it says of the users.
	check := func(hashes map[string]string, updated int, lost, noted []string) {
		t.Helper()
		opts.PasswordHashes = hashes
		for _, opts.DryRun = range []bool{true, false} {
			r := copyTo(t, opts)
			names := map[Severity][]string{}
			for _, m := range r.Remarks {
				if m.Type == "User" {
					names[m.Severity] = append(names[m.Severity], m.Names...)
				}
			}
			slices.Sort(names[Lost])
			if !slices.Equal(names[Lost], lost) || !slices.Equal(names[Noted], noted) || r.of(t, "users").Updated != updated || !r.Complete() {
				t.Errorf("cannot sign in %q, not used %q; want %q, %q\n%s", names[Lost], names[Noted], lost, noted, printed(t, r))
			}
		}
	}
	signs := func(user, password string) {
		t.Helper()
		if err := to.Client.TestCredentials(t.Context(), user, password); err != nil {
			t.Errorf("%s cannot sign in: %v", user, err)
		}
	}
	check(nil, 0, []string{"ann", "eve", "vera"}, nil)
	check(nil, 0, []string{"ann", "eve", "vera"}, nil)
	body := map[string]string{"username": "ann", "password": "secret-of-ann"}
	if err := to.Client.Do(t.Context(), http.MethodPut, "/api/core/v2/users/ann", body, nil); err != nil {
		t.Fatal(err)
	}
	hashes := map[string]string{"vera": someHash, "ann": someHash, "bob": someHash}
	opts.Keep = true
	check(hashes, 0, []string{"eve"}, []string{"ann"})
	opts.Keep, opts.DryRun = false, true
	if r := copyTo(t, opts); r.of(t, "users").Updated != 2 {
		t.Errorf("the dry run:\n%s", printed(t, r))
	}
	opts.DryRun = false
	if r := copyTo(t, opts); r.of(t, "users").Updated != 2 || r.of(t, "users").Equal != 4 {
		t.Errorf("the run with hashes:\n%s", printed(t, r))
	}
	signs("vera", "foobar123")
	signs("bob", "foobar123")
	signs("ann", "secret-of-ann")
	check(hashes, 0, []string{"eve"}, []string{"ann", "bob", "vera"})
}

func TestSilences(t *testing.T) {
	to := start(t)
	now := time.Now().Unix()
	source := fromFile(t, fmt.Sprintf(`
type: Silenced
metadata: {name: "linux:disk", namespace: default}
spec: {subscription: linux, check: disk, reason: new disks, begin: %d, expire: 7200, expire_at: %d}
---
type: Silenced
metadata: {name: "*:ping", namespace: default}
spec: {check: ping, expire_on_resolve: true, begin: 1795000100}
---
type: Silenced
metadata: {name: "entity:web1:*", namespace: default}
spec: {subscription: "entity:web1", begin: %d, expire: 0, expire_at: %d}
---
type: Event
spec:
  timestamp: 1795000060
  entity: {entity_class: proxy, metadata: {name: web1}}
  check:
    metadata: {name: ping}
    interval: 30
    status: 0
    executed: 1795000060
    history: [{status: 2, executed: 1795000000}, {status: 0, executed: 1795000060}]
    occurrences: 1
    occurrences_watermark: 1
    last_ok: 1795000060
`, now-3600, now+3600, now+3600, now+3660))
	// The check was resolved before its silence began: the copy must not end the silence.
	r := copyTo(t, to.options(source))
	if r.of(t, "silenced").Equal != 3 || !r.Complete() {
		t.Fatalf("the copy:\n%s", printed(t, r))
	}
	got := to.get(t, "/api/core/v2/namespaces/default/silenced/linux:disk")
	if integer(got, "expire_at") != now+3600 || integer(got, "begin") != now-3600 || got["reason"] != "new disks" {
		t.Errorf("an hour of two is left, but: %v", got)
	}
	if again := copyTo(t, to.options(source)); again.sent() != 0 {
		t.Errorf("the second run wrote:\n%s", printed(t, again))
	}
}

// TestSilenceWithoutEnd: a silence that has only how long it lasts ends after that time.
func TestSilenceWithoutEnd(t *testing.T) {
	to := start(t)
	now := time.Now().Unix()
	source := fromFile(t, fmt.Sprintf(`
type: Silenced
metadata: {name: "linux:disk", namespace: default}
spec: {subscription: linux, check: disk, begin: 0, expire: 3600}
---
type: Silenced
metadata: {name: "linux:cpu", namespace: default}
spec: {subscription: linux, check: cpu, begin: %d, expire: 60}
---
type: Silenced
metadata: {name: "linux:over", namespace: default}
spec: {subscription: linux, check: over, begin: %d, expire: 60}
---
type: Silenced
metadata: {name: "linux:odd", namespace: default}
spec: {subscription: linux, check: odd, expire: "60"}
`, now+7200, now-7200))
	r := copyTo(t, to.options(source))
	if of := r.of(t, "silenced"); of.Created != 2 || of.Left != 1 || of.Failed != 1 {
		t.Fatalf("two are to be copied, one has ended, and one has an unreadable end:\n%s", printed(t, r))
	}
	for name, want := range map[string]int64{"linux:disk": now + 3600, "linux:cpu": now + 7260} {
		got := integer(to.get(t, "/api/core/v2/namespaces/default/silenced/"+name), "expire_at")
		if got < want || got > want+600 { // the copy began a moment later
			t.Errorf("%s ends at %d, want %d", name, got, want)
		}
	}
	before := to.get(t, "/api/core/v2/namespaces/default/silenced/linux:disk")
	later := to.options(source)
	later.Now = func() time.Time { return time.Now().Add(10 * time.Minute) }
	if again := copyTo(t, later); again.sent() != 0 {
		t.Errorf("a later run wrote:\n%s", printed(t, again))
	}
	if after := to.get(t, "/api/core/v2/namespaces/default/silenced/linux:disk"); integer(after, "expire_at") != integer(before, "expire_at") {
		t.Errorf("a later run has moved the end from %v to %v", before["expire_at"], after["expire_at"])
	}
}

func TestAPIKeys(t *testing.T) {
	const key = "5f1a6c0e-7f53-4d0c-9a53-0123456789ab"
	to := start(t)
	source := fromFile(t, `
type: User
spec: {username: robot, groups: [cluster-admins]}
---
type: APIKey
metadata: {name: `+key+`}
spec: {username: robot, created_at: 1700000000}
`)
	r := copyTo(t, to.options(source))
	if got := r.of(t, "apikeys"); got.Created != 1 || got.Equal != 1 || got.Extra != 0 {
		t.Errorf("keys: %+v", got)
	}
	c, err := client.New(client.Options{URL: to.url(), APIKey: key})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := client.List(t.Context(), c, client.Checks, "default", client.ListOptions{}); err != nil {
		t.Errorf("the key does not work: %v", err)
	}
	if again := copyTo(t, to.options(source)); again.sent() != 0 {
		t.Errorf("the second run wrote:\n%s", printed(t, again))
	}
	if b, _ := json.Marshal(r); strings.Contains(string(b), key) {
		t.Error("the report tells the key")
	}
}

func TestKeepSkipAndNamespaces(t *testing.T) {
	to := start(t)
	to.create(t, "type: Handler\nmetadata: {name: bell, namespace: default}\nspec: {type: pipe, command: mine}\n")
	opts := to.options(fromFile(t, definitions))
	opts.Keep, opts.Skip, opts.Namespaces = true, []string{"users", "events"}, []string{"default"}
	r := copyTo(t, opts)
	if got := to.get(t, "/api/core/v2/namespaces/default/handlers/bell"); got["command"] != "mine" {
		t.Errorf("the handler is now %v", got)
	}
	if got := to.all(t, namespaceKind, ""); got["shop"] != nil {
		t.Errorf("namespaces: %v", got)
	}
	if got := to.all(t, userKind, ""); len(got) != 2 {
		t.Errorf("users: %v", got)
	}
	if r.of(t, "handlers").Left != 1 || r.of(t, "clusterroles").Created != 1 {
		t.Errorf("the report:\n%s", printed(t, r))
	}
	opts.Namespaces = []string{"nowhere"}
	if _, err := Run(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("a namespace that is not there: %v", err)
	}
	opts.Namespaces, opts.Skip = nil, []string{"gadgets"}
	if _, err := Run(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "gadgets") {
		t.Errorf("a kind that is not there: %v", err)
	}
}

// TestRefusals copies a file with resources that the target refuses: the report lists them, and the rest is copied.
func TestRefusals(t *testing.T) {
	to := start(t)
	source := fromFile(t, `
{"type":"CheckConfig","metadata":{"name":"never","namespace":"default"},"spec":{"command":"x"}}
{"type":"CheckConfig","metadata":{"name":"good","namespace":"default"},"spec":{"command":"x","interval":5,"subscriptions":["a"]}}
{"type":"RuleTemplate","api_version":"bsm/v1","metadata":{"name":"rt","namespace":"default"},"spec":{"eval":"1"}}
{"type":"Entity","metadata":{"name":"old","namespace":"default"},"spec":{"entity_class":"backend"}}
{"type":"Silenced","metadata":{"namespace":"default"},"spec":{"check":"a","begin":5,"expire_at":6}}
`)
	r := copyTo(t, to.options(source))
	if r.Complete() {
		t.Error("the copy counts as complete")
	}
	if m := r.remark(Refused, "CheckConfig"); m == nil || !slices.Equal(m.Names, []string{"dump:2: default/never"}) ||
		!strings.Contains(m.Reason, "interval") {
		t.Errorf("remark on the refused check: %+v", m)
	}
	if got := r.of(t, "checks"); got.Created != 1 || got.Failed != 1 || got.Equal != 1 {
		t.Errorf("checks: %+v", got)
	}
	for _, typ := range []string{"RuleTemplate", "Entity", "Silenced"} {
		if m := r.remark(Left, typ); m == nil || m.Count != 1 {
			t.Errorf("remark on %s: %+v", typ, m)
		}
	}
	for _, want := range []string{"Refused:", "default/never", "Not copied:", "1 of 2"} {
		if text := printed(t, r); !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

// TestBusyTarget uses a target that is busy for a while, and then one that stays busy.
func TestBusyTarget(t *testing.T) {
	to := start(t)
	u, _ := url.Parse(to.url())
	proxy := httputil.NewSingleHostReverseProxy(u)
	var refuse atomic.Int64
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && refuse.Add(-1) >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	defer front.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	c, err := client.New(client.Options{URL: front.URL, Username: testbackend.User, Password: testbackend.Password})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	source := fromFile(t, "type: CheckConfig\nmetadata: {name: c}\nspec: {interval: 5, command: x, subscriptions: [a]}\n")
	var waited []time.Duration
	opts := to.options(source)
	opts.Target = c
	opts.Wait = func(_ context.Context, d time.Duration) error { waited = append(waited, d); return nil }
	refuse.Store(1000)
	r, err := Run(t.Context(), opts)
	if err != nil || r.Complete() || r.of(t, "checks").Failed != 1 || len(waited) != 5 {
		t.Errorf("a target that takes nothing: %v after %v\n%s", err, waited, printed(t, r))
	}
	waited = nil
	refuse.Store(2)
	if r := copyTo(t, opts); !r.Complete() || r.of(t, "checks").Created != 1 || len(waited) != 2 {
		t.Errorf("a target that is busy for a while: waited %v\n%s", waited, printed(t, r))
	}
	// A target that is gone ends the run.
	front.Close()
	if _, err := Run(t.Context(), opts); err == nil {
		t.Error("a target that is gone is no error")
	}
}

func TestInterrupted(t *testing.T) {
	to := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	opts := to.options(fromFile(t, definitions))
	opts.Progress = func(k KindReport) {
		if k.Plural == "users" {
			cancel()
		}
	}
	r, err := Run(ctx, opts)
	if !errors.Is(err, context.Canceled) || r.of(t, "users").Created == 0 {
		t.Errorf("an interrupted run: %v\n%s", err, printed(t, r))
	}
	opts.Progress = nil
	if r := copyTo(t, opts); !r.Complete() || r.of(t, "users").Created != 0 || r.of(t, "checks").Created != 1 {
		t.Errorf("the run after it:\n%s", printed(t, r))
	}
}
