package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/inhibit"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
)

const aggregatesPath = "/api/lapwing/v1/namespaces/default/aggregates"

func TestAggregates(t *testing.T) {
	var fails error
	s := newServer(t, func(o *Options) {
		o.Evaluate = func(_ context.Context, def *resource.Aggregate, _ *selector.Selector) ([]resource.AggregateEvaluation, error) {
			return []resource.AggregateEvaluation{{Entity: def.EntityName(), Status: 2}}, fails
		}
	})
	define := func(name, more string) string {
		return `{"metadata":{"name":"` + name + `","labels":{"sensu.io/managed_by":"sensuctl"}},"field_selector":"event.check.name == disk","interval":60,"critical":{"percent":30}` + more + `}`
	}
	s.do("POST", aggregatesPath, define("disks", "")).is(201)
	s.do("POST", aggregatesPath, define("disks", "")).is(409)
	s.do("PUT", aggregatesPath+"/racks", define("racks", `,"group_by":"entity.labels.rack"`)).is(201)
	for _, path := range []string{aggregatesPath, "/api/lapwing/v1/aggregates", "/api/lapwing/v1/namespaces/-/aggregates"} {
		if got := s.do("GET", path, "").names(); got != "default/disks default/racks" {
			t.Errorf("%s lists %q", path, got)
		}
	}
	if got := s.do("GET", aggregatesPath+"?fieldSelector=aggregate.group_by+!=+%22%22", "").names(); got != "default/racks" {
		t.Errorf("those with groups are %q", got)
	}
	if got := s.do("GET", aggregatesPath+"?limit=1", "").names(); got != "default/disks" {
		t.Errorf("the first page is %q", got)
	}
	s.do("PATCH", aggregatesPath+"/disks", `{"critical":{"percent":50}}`, "Content-Type", "application/merge-patch+json").is(200)
	var got resource.Aggregate
	s.do("GET", aggregatesPath+"/disks", "").is(200).has(&got)
	if got.Critical.Percent != 50 || got.Metadata.CreatedBy != admin {
		t.Errorf("it is %+v", got)
	}
	for more, message := range map[string]string{
		`,"group_by":"entity.nothing"`: `resource is invalid: group_by: events have no field "entity.nothing"`,
		`,"failing":"a =="`:            "resource is invalid: failing: field selector: unexpected the end at character 5: a value expected",
		`,"critical":{"percent":101}`:  "resource is invalid: critical percent must be between 0 and 100",
	} {
		s.do("POST", aggregatesPath, define("x", more)).refuses(400, codeInvalid, message)
	}
	var results []resource.AggregateEvaluation
	s.do("GET", aggregatesPath+"/disks/evaluation", "").is(200).has(&results)
	if len(results) != 1 || results[0].Entity != "disks" || results[0].Status != 2 {
		t.Errorf("the evaluation is %+v", results)
	}
	s.do("GET", aggregatesPath+"/nothing/evaluation", "").is(404)
	fails = errors.New("there are more than 1000 groups")
	s.do("GET", aggregatesPath+"/disks/evaluation", "").is(400)

	// They keep their namespace from being deleted, and are pruned like other definitions.
	s.do("POST", "/api/core/v2/namespaces", `{"name":"dev"}`).is(201)
	s.do("POST", "/api/lapwing/v1/namespaces/dev/aggregates", strings.Replace(define("a", ""), "default", "dev", 1)).is(201)
	s.do("DELETE", "/api/core/v2/namespaces/dev", "").is(400)
	var pruned []reference
	s.do("POST", prunePath+"types=lapwing/v1.Aggregate&namespaces=dev", `[]`).is(201).has(&pruned)
	if len(pruned) != 1 || pruned[0].APIVersion != "lapwing/v1" {
		t.Errorf("pruned is %+v", pruned)
	}
	s.do("DELETE", "/api/core/v2/namespaces/dev", "").is(204)
	s.do("DELETE", aggregatesPath+"/racks", "").is(204)
	s.do("GET", aggregatesPath+"/racks", "").is(404)

	// Roles are asked for aggregates.
	s.grant("counters", "default", resource.Rule{Verbs: []string{"get"}, Resources: []string{"aggregates"}})
	token := "Bearer " + s.user("carl", "counters")
	fails = nil
	s.do("GET", aggregatesPath+"/disks/evaluation", "", "Authorization", token).is(403) // it shows data of events
	s.grant("counters", "default", resource.Rule{Verbs: []string{"get"}, Resources: []string{"aggregates"}},
		resource.Rule{Verbs: []string{"list"}, Resources: []string{"events"}})
	s.do("GET", aggregatesPath+"/disks/evaluation", "", "Authorization", token).is(200)
	s.do("GET", aggregatesPath, "", "Authorization", token).is(403)
	s.do("DELETE", aggregatesPath+"/disks", "", "Authorization", token).is(403)
}

func TestDependencies(t *testing.T) {
	s := newServer(t, func(o *Options) {
		o.Dependencies = func(_ context.Context, ev *resource.Event) (*inhibit.Report, error) {
			return &inhibit.Report{Inhibited: true, By: []string{ev.Entity.Metadata.Name + "/x"},
				Dependencies: []inhibit.Relationship{}}, nil
		}
	})
	s.do("PUT", eventsPath+"/web/disk", `{"check":{"status":2}}`).is(201)
	const path = "/api/lapwing/v1/namespaces/default/events/"
	if a := s.do("GET", path+"web/disk/dependencies",
		"").is(http.StatusOK); a.body != `{"inhibited":true,"by":["web/x"],"dependencies":[]}` {
		t.Errorf("the answer is %s", a.body)
	}
	s.do("GET", path+"web/cpu/dependencies", "").is(404)
	// checks and entities accept depends_on in each of its forms, and answers without it do not show it.
	const base = "/api/core/v2/namespaces/default/"
	s.do("PUT", base+"checks/http", `{"metadata":{"name":"http"},"interval":10,"depends_on":["web/","db/sql","nginx"]}`).is(201)
	s.do("PUT", base+"checks/cpu", `{"metadata":{"name":"cpu"},"interval":10}`).is(201)
	s.do("PUT", base+"entities/web", `{"metadata":{"name":"web","namespace":"default"},"entity_class":"proxy","depends_on":["sw1/"]}`).is(200)
	for p, want := range map[string]string{
		base + "checks/http":  `"depends_on":["web/","db/sql","nginx"]`,
		base + "entities/web": `"depends_on":["sw1/"]`,
		"/api/core/v3/namespaces/default/entity-configs/web": `"depends_on":["sw1/"]`,
	} {
		if a := s.do("GET", p, "").is(200); !strings.Contains(a.body, want) {
			t.Errorf("%s is %s", p, a.body)
		}
	}
	if a := s.do("GET", base+"checks/cpu", "").is(200); strings.Contains(a.body, "depends") {
		t.Errorf("a check without is %s", a.body)
	}
	s.do("PUT", base+"checks/cpu", `{"metadata":{"name":"cpu"},"interval":10,"depends_on":["a/b/c"]}`).
		refuses(400, codeInvalid, `resource is invalid: dependency "a/b/c": check name cannot contain spaces or special characters`)
	s.do("PATCH", base+"entities/web", `{"depends_on":[" "]}`, "Content-Type", "application/merge-patch+json").is(400)
}
