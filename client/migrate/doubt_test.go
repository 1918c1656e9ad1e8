package migrate

import (
	"slices"
	"strings"
	"testing"
)

const doubtful = `type: Namespace
spec: {name: prod}
---
type: CheckConfig
metadata: {name: a1, namespace: prod}
spec: {command: one, interval: 5, subscriptions: [linux]}
---
type: CheckConfig
metadata: {name: a1, namespace: prod}
spec: {command: two, interval: 5, subscriptions: [linux]}
---
# misspelt
type: CheckConfig
metadata: {name: typo, namespace: prod, lables: {}}
spec:
  command: c
  interval: 5
  subscriptons: [linux]
  handlers: [slak]
---
type: CheckConfig
metadata: {name: homeless}
spec: {command: c, interval: 5, subscriptions: [linux]}
---
type: CheckConfig
metadata: {name: other, namespace: stage}
spec: {command: c, interval: 5, subscriptions: [linux], secrets: [{name: T, secret: t}]}
---
type: RoleBinding
metadata: {name: rb, namespace: prod}
spec: {role_ref: {type: Role, name: nosuch}, subjects: [{type: User, name: nobody}]}
---
type: User
spec: {username: admin, groups: [others]}
---
type: VaultProvider
api_version: secrets/v1
metadata: {name: vault}
spec: {client: {}}
---
type: Event
spec:
  entity: {metadata: {name: host1, namespace: prod}, entity_class: proxy}
  check: {metadata: {name: disk, namespace: prod}, status: 2, output: full, interval: 10, handlers: [bell]}
---
type: User
spec: {username: plain, password_hash: secret}
`

// TestDoubtfulFile copies a file with mistakes that lapwing's API does not refuse: the report names each with its line.
func TestDoubtfulFile(t *testing.T) {
	to := start(t)
	to.create(t, "type: Namespace\nspec: {name: prod}\n")
	to.create(t, "type: Handler\nmetadata: {name: bell, namespace: prod}\nspec: {type: pipe, command: cat}\n")
	opts := to.options(fromFile(t, doubtful))
	opts.TargetUser = "admin"
	inFile := []string{
		"dump:4: prod/a1 is left out for the one in dump:8", "dump:14: prod/typo: metadata.lables (labels?)",
		"dump:18: prod/typo: subscriptons (subscriptions?)", "dump:21: homeless", "plain",
		"dump:41: prod/host1/disk: no timestamp, executed, history, occurrences",
	}
	inTarget := []string{
		`check prod/a1: subscription "linux": no entity has it`, `check prod/typo: handler "slak" does not exist`, "check prod/typo: it has no subscription, so no agent runs it",
		`check default/homeless: subscription "linux": the namespace has no entity with a subscription, so no agent runs it`,
		`check stage/other: subscription "linux": the namespace has no entity with a subscription, so no agent runs it`,
		`role-binding prod/rb: role "nosuch" does not exist`, `role-binding prod/rb: user "nobody" does not exist`,
	}
	doubts := func(r *Report) (names []string) {
		for _, m := range r.Remarks {
			if m.Severity == Doubtful {
				names = append(names, m.Names...)
			}
		}
		slices.Sort(names)
		return names
	}
	check := func(r *Report, want ...string) {
		t.Helper()
		slices.Sort(want)
		if got := doubts(r); !slices.Equal(got, want) {
			t.Errorf("got %q\nwant %q", got, want)
		}
		if k := r.of(t, "checks"); k.Source != 5 || k.Left != 1 {
			t.Errorf("checks: %+v", k)
		}
		if m := r.remark(Noted, "Namespace"); m == nil || !slices.Equal(m.Names, []string{"stage"}) {
			t.Errorf("namespaces: %+v", m)
		}
		if m := r.remark(Left, "VaultProvider"); m == nil || m.Count != 1 {
			t.Errorf("provider: %+v", m)
		}
	}
	dry := opts
	dry.DryRun = true
	r := copyTo(t, dry)
	check(r, inFile...)
	if text := printed(t, r); !strings.Contains(text, "lapwing lint --all-namespaces") {
		t.Errorf("no word of lint in:\n%s", text)
	}
	r = copyTo(t, opts)
	check(r, slices.Concat(inFile, inTarget)...)
	if !r.Complete() || r.of(t, "events").Equal != 1 {
		t.Errorf("the copy is not complete:\n%s", printed(t, r))
	}
	// The fields that are not copied are no difference in a second run.
	opts.Skip = []string{"events"}
	if r = copyTo(t, opts); r.sent() != 0 || !r.Complete() {
		t.Errorf("a second copy:\n%s", printed(t, r))
	}
}

// TestKeptIsNoDifference: what --keep leaves is not reported again after the copy.
func TestKeptIsNoDifference(t *testing.T) {
	to := start(t)
	to.create(t, "type: Handler\nmetadata: {name: bell, namespace: default}\nspec: {type: pipe, command: mine}\n")
	opts := to.options(fromFile(t, definitions))
	opts.Keep = true
	if r := copyTo(t, opts); !r.Verified || r.remark(Differs, "Handler") != nil || r.of(t, "handlers").Left != 1 {
		t.Errorf("the report:\n%s", printed(t, r))
	}
}
