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
	f("GET", "/health", `  "" "" `)
	f("GET", "", `  "" "" `)
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
