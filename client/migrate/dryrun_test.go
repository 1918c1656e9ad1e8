package migrate

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
)

// refusedByServer has what only the server refuses, in namespaces that it has and that come, next to resources that name
// each other.
const refusedByServer = `type: ldap
api_version: authentication/v2
metadata: {name: dir}
spec:
  servers:
  - {host: ldap.example, group_search: {base_dn: "dc=x"}}
---
type: oidc
api_version: authentication/v2
metadata: {name: sso}
spec: {client_id: a, client_secret: b}
---
type: APIKey
metadata: {name: 7f63b5bc-41f4-4b3e-b59b-5431afd7e6a2}
spec:
  username: nobody
---
type: APIKey
metadata: {name: 7f63b5bc-41f4-4b3e-b59b-5431afd7e6a3}
spec: {username: vera}
---
type: APIKey
metadata: {name: short}
spec: {username: vera}
---
type: User
spec: {username: vera, groups: [ops], password_hash: "` + someHash + `"}
---
type: EventFilter
metadata: {name: f, namespace: shop}
spec:
  action: allow
  expressions:
  - event.check.status == 0
  - event.check.status ===
---
type: CheckConfig
metadata: {name: c, namespace: default}
spec:
  command: c
  interval: 5
  subscriptions: [linux]
  proxy_requests: {entity_attributes: ["entity.name =="]}
---
type: Role
metadata: {name: r, namespace: shop}
spec: {rules: [{verbs: [get], resources: [event]}]}
---
type: RoleBinding
metadata: {name: rb, namespace: shop}
spec: {role_ref: {type: Role, name: r}, subjects: [{type: User, name: vera}]}
---
type: Pipeline
metadata: {name: p, namespace: shop}
spec: {workflows: [{name: w, handler: {type: Handler, api_version: core/v2, name: bell}}]}
---
type: Handler
metadata: {name: bell, namespace: shop}
spec: {type: pipe, command: cat}
---
type: Event
spec:
  entity: {metadata: {name: h, namespace: shop}, entity_class: proxy}
  check:
    metadata: {name: c, namespace: shop}
    interval: 5
    proxy_requests: {entity_attributes: ["entity.name =="]}
---
type: Event
spec:
  entity: {metadata: {name: h, namespace: shop}, entity_class: proxy}
  check: {metadata: {name: good, namespace: shop}, interval: 5}
---
type: Handler
metadata: {namespace: shop}
spec: {type: pipe, command: cat}
---
type: HookConfig
metadata: {name: hook, namespace: unused}
---
type: Silenced
metadata: {name: "linux:*", namespace: default}
spec: {subscription: linux, reason: true, expire_on_resolve: 1}
`

// TestDryRunAsksTheServer: a dry run reports what the server would refuse in the real run, and warns of; both reports agree.
func TestDryRunAsksTheServer(t *testing.T) {
	to := start(t)
	opts := to.options(fromFile(t, refusedByServer))
	opts.DryRun = true
	dry := copyTo(t, opts)
	if _, err := client.Get(t.Context(), to.Client, client.Namespaces, "", "shop"); err == nil {
		t.Error("the dry run made a namespace")
	}
	opts.DryRun = false
	real := copyTo(t, opts)
	const first = "what servers compute of an event is missing: it is set as for a first result"
	for _, r := range []*Report{dry, real} {
		var got []string
		for _, m := range r.Remarks {
			if m.Type == "lint" && strings.Contains(strings.Join(m.Names, " "), "which is not known") {
				t.Errorf("lint repeats a warning: %q", m.Names)
			}
			if m.Severity == Refused || m.Severity == Doubtful && m.Type != "lint" {
				for _, name := range m.Names {
					got = append(got, fmt.Sprintf("%s %s: %s", name, m.Type, m.Reason))
				}
			}
		}
		slices.Sort(got)
		want := []string{
			`dump:16: 7f63… of nobody APIKey: user does not exist`,
			`dump:1: dir AuthProvider: servers[0]: user_search.base_dn must be set`,
			`dump:22: **** of vera APIKey: an api key must be a UUID: invalid UUID length: 5`,
			`dump:35: shop/f EventFilter: syntax error in expression 1: (anonymous): Line 1:23 Unexpected end of input`,
			`dump:43: default/c CheckConfig: syntax error in expression 0: (anonymous): Line 1:15 Unexpected end of input`,
			`dump:45: shop/r Role: rule 0 names the resource event, which is not known: it allows nothing here (the nearest known name is events)`,
			`dump:61: shop/h/c Event: check is invalid: syntax error in expression 0: (anonymous): Line 1:15 Unexpected end of input`,
			`dump:61: shop/h/c: no timestamp, executed, history, occurrences Event: ` + first,
			`dump:69: shop/h/good: no timestamp, executed, history, occurrences Event: ` + first,
			`dump:74 Handler: it has no name`,
			`dump:78 HookConfig: it has no spec`,
			`dump:83: default/linux:* Silenced: expire_on_resolve must be true or false, not 1`,
			`dump:83: default/linux:* Silenced: reason must be text, not true: write it in quotes, "true"`,
			`dump:8: sso AuthProvider: server must be an absolute URL, not ""`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("dry run %v: got\n%s\nwant\n%s", r.DryRun, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if r.Complete() {
			t.Errorf("dry run %v: it counts as complete", r.DryRun)
		}
		for i := range r.Kinds {
			r.Kinds[i].Extra, r.Kinds[i].Equal = 0, 0
		}
	}
	if !slices.Equal(dry.Kinds, real.Kinds) || !reflect.DeepEqual(dry.Changes, real.Changes) {
		t.Errorf("they differ; the dry run:\n%s\nthe run:\n%s", printed(t, dry), printed(t, real))
	}
}

// TestDifferingEvent copies an event to a target that changes it: the report names the field.
func TestDifferingEvent(t *testing.T) {
	to := start(t)
	u, _ := url.Parse(to.url())
	proxy := httputil.NewSingleHostReverseProxy(u)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/events/") {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			r.Body = io.NopCloser(bytes.NewReader(bytes.ReplaceAll(body, []byte("disk full"), []byte("disk gone"))))
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
	opts := to.options(fromFile(t, `type: Event
spec:
  entity: {metadata: {name: h, namespace: default}, entity_class: proxy}
  check: {metadata: {name: disk, namespace: default}, interval: 5, status: 2, output: disk full}
`))
	opts.Target = c
	r := copyTo(t, opts)
	m := r.remark(Differs, "Event")
	if m == nil || m.Reason != "check.output is another in lapwing" || !slices.Equal(m.Names, []string{"default/h/disk"}) {
		t.Errorf("the remark: %+v\n%s", m, printed(t, r))
	}
}
