package ctl

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/client"
)

// TestAimOf: the path of a refused request tells what it was about.
func TestAimOf(t *testing.T) {
	f := func(method, path, want string) {
		t.Helper()
		to := aimOf(&client.Error{Method: method, Path: path})
		kind := ""
		if to.kind != nil {
			kind = to.kind.Type
		}
		if got := fmt.Sprintf("%s %s %q %q %s", to.verb, to.role, to.namespace, to.name, kind); got != want {
			t.Errorf("%s %s: %s, want %s", method, path, got, want)
		}
	}
	f("GET", "/api/core/v2/namespaces/default/checks?limit=1000", `list checks "default" "" CheckConfig`)
	f("GET", "/api/core/v2/checks?limit=1000", `list checks "" "" CheckConfig`)
	f("GET", "/api/core/v2/namespaces/default/silenced/%2A:disk", `get silenced "default" "*:disk" Silenced`)
	f("PUT", "/api/core/v2/namespaces/default/events/web1/disk", `update events "default" "web1/disk" Event`)
	f("POST", "/api/core/v2/namespaces", `create namespaces "" "" Namespace`)
	f("DELETE", "/api/core/v2/namespaces/prod", `delete namespaces "" "prod" Namespace`)
	f("PUT", "/api/lapwing/v1/dry-run/api/core/v2/namespaces/default/checks/a", `update checks "default" "a" CheckConfig`)
	f("POST", "/api/lapwing/v1/namespaces/default/events/web1/disk/ack", `create silenced "default" "web1/disk" Event`)
	f("GET", "/api/lapwing/v1/namespaces/default/events/web1/disk/trace?limit=100", `get events "default" "web1/disk" Event`)
	f("GET", "/api/lapwing/v1/namespaces/default/checks/cpu/next?count=5", `get checks "default" "cpu" CheckConfig`)
	f("POST", "/api/core/v2/namespaces/default/checks/cpu/execute", `create checks "default" "cpu" CheckConfig`)
	f("GET", "/api/lapwing/v1/audit?limit=1", `list audit "" "" `)
	f("GET", "/api/lapwing/v1/namespaces/prod/deadletters", `list deadletters "prod" "" `)
	f("GET", "/api/lapwing/v1/namespaces/prod/waiting?handler=mail", `list deadletters "prod" "" `)
	f("POST", "/api/lapwing/v1/log-level", `create cluster "" "log-level" `)
	f("GET", "/api/lapwing/v1/namespaces/prod/notifications", `list events "prod" "" `)
	f("GET", "/api/lapwing/v1/namespaces/prod/oncall?since=7", `list rotas "prod" "" `)
	f("GET", "/api/lapwing/v1/namespaces/prod/escalations", `list events "prod" "" `)
	f("POST", "/api/enterprise/prune/v1alpha?types=x", `create  "" "" `)
	f("GET", "/api/lapwing/v1/cluster", `get cluster "" "cluster" `)
	f("GET", "/api/core/v2/cluster/members", `get cluster "" "cluster" `)
	f("PUT", "/api/lapwing/v1/drain", `update cluster "" "drain" `)
	f("GET", "/api/lapwing/v1/postgres", `get cluster "" "postgres" `)
	f("GET", "/api/lapwing/v1/namespaces/prod/subscriptions/linux", `list entities "prod" "linux" `)
	f("GET", "/api/lapwing/v1/namespaces/prod/queue", `list checks "prod" "" `)
	f("GET", "/api/lapwing/v1/namespaces/prod/reports/uptime?by=check", `list events "prod" "uptime" `)
	f("DELETE", "/api/lapwing/v1/namespaces/prod/orphans", `delete events "prod" "" `)
	f("POST", "/api/enterprise/prune/v1alpha?namespaces=prod&types=x", `create  "prod" "" `)
	f("GET", "/health", `  "" "" `)
	f("GET", "", `  "" "" `)
}

// TestDenied: the explanation of a refusal names the place that the request was about, and another one only if that may help.
func TestDenied(t *testing.T) {
	for _, tc := range []struct{ method, path, verb, resource, want, not string }{
		{"GET", "/api/core/v2/namespaces/prod/checks", "", "", `in namespace "prod": you lack the right to list checks.`, "Cluster"},
		{"GET", "/api/core/v2/namespaces/prod/checks", "", "", "or choose another --namespace", "Cluster"},
		{"GET", "/api/core/v2/checks", "", "", "in all namespaces: you lack the right to list checks.", "in the cluster"},
		{"GET", "/api/core/v2/checks", "", "", "ClusterRoleBinding to a role that does, or choose one namespace with --namespace.", "another"},
		{"GET", "/api/lapwing/v1/namespaces/-/waiting", "", "", "'lapwing auth can-i list deadletters --all-namespaces'", "in the cluster"},
		{"GET", "/api/core/v2/users", "", "", "in the cluster: you lack the right to list users.", "namespace"},
		{"GET", "/api/core/v2/users", "", "", "for a ClusterRoleBinding to a role that does.", "namespace"},
		{"GET", "/api/lapwing/v1/postgres", "", "", "in the cluster: you lack the right to get cluster.", "namespace"},
		{"POST", "/api/core/v2/apikeys", "update", "users", "in the cluster: you lack the right to update users.", "namespace"},
		{"POST", "/api/lapwing/v1/graphite/events", "create", "metrics", "in the cluster: you lack the right to create metrics.", "namespace"},
		{"POST", "/api/enterprise/prune/v1alpha?namespaces=prod", "delete", "checks", `in namespace "prod": you lack`, "Cluster"},
		{"GET", "/api/lapwing/v1/unknown", "", "", "Your roles do not allow this.", "namespace"},
	} {
		refused := &client.Error{Status: 403, Method: tc.method, Path: tc.path, Verb: tc.verb, Resource: tc.resource}
		got := (&settings{namespace: "default", files: &files{}}).denied(refused)
		if !strings.Contains(got, tc.want) || strings.Contains(got, tc.not) {
			t.Errorf("%s %s: %q, want %q and not %q", tc.method, tc.path, got, tc.want, tc.not)
		}
	}
}

// TestWayOut: each refusal that has a next step names it.
func TestWayOut(t *testing.T) {
	for status, want := range map[int]string{
		401: "Sign in again with 'lapwing configure', or in a browser", 403: "you lack the right to update checks",
		405: "of an older version", 412: "Another client changed it", 429: "a limit or a quota", 500: "backend's log",
		503: "'lapwing cluster status'", 504: "'lapwing cluster status'",
	} {
		refused := &client.Error{Status: status, Message: "unauthorized to perform action", Method: "PUT",
			Path: "/api/core/v2/namespaces/default/checks/a"}
		err := explain(fmt.Errorf("put: %w", refused), &settings{namespace: "default", files: &files{}})
		if text, next, _ := strings.Cut(err.Error(), "\n"); !strings.HasPrefix(text, "put: ") || !strings.Contains(next, want) {
			t.Errorf("%d: %q, want %q", status, err, want)
		}
		if !errors.Is(err, refused) {
			t.Errorf("%d: the cause is lost", status)
		}
	}
	if err := explain(&client.Error{Status: 400, Message: "bad"}, &settings{}); err.Error() != "bad" {
		t.Errorf("400: %q", err)
	}
}
