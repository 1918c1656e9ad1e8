package api

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// someAgents is the agents of a test, by subscription, and a schedule that is closed for a reason.
type someAgents struct {
	agents  map[string][]string
	closed  string
	proxies []string
}

func (f *someAgents) AgentsOf(_ string, subscriptions []string) (names []string) {
	for _, s := range subscriptions {
		names = append(names, f.agents[s]...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (f *someAgents) IsConnected(agent resource.Name) bool {
	return slices.Contains(slices.Concat(f.agents["linux"], f.agents["windows"]), agent.Name)
}

func (f *someAgents) Counts(string) map[string]int {
	return map[string]int{"linux": len(f.agents["linux"]), "windows": len(f.agents["windows"])}
}
func (f *someAgents) ClosedNow(*resource.CheckConfig, time.Time) string { return f.closed }
func (f *someAgents) ProxyNames(context.Context, *resource.CheckConfig) (names []string, k bool) {
	return f.proxies, true
}

func (f *someAgents) Upcoming(c *resource.CheckConfig, agent string, from time.Time, _ int) resource.CheckRuns {
	return resource.CheckRuns{Check: c.Metadata.Name, Agent: agent, Runs: []int64{from.Unix() + 1}}
}

// TestNextAtAnEntity: the next runs are a lapwing agent's own if one is asked for or runs the check alone.
func TestNextAtAnEntity(t *testing.T) {
	f := &someAgents{agents: map[string][]string{"linux": {"own", "stock"}, "windows": {"pc1"}}}
	silent := false
	s := newServer(t, func(o *Options) {
		o.Schedule, o.Agents = f, f
		o.OwnSchedule = func(_ context.Context, agent resource.Name) (bool, error) {
			if silent {
				return false, errors.New("backend-2 is away")
			}
			return agent.Name != "stock", nil
		}
	})
	const core, base = "/api/core/v2/namespaces/default/", "/api/lapwing/v1/namespaces/default/checks/"
	for name, subscriptions := range map[string]string{"own": "linux", "stock": "linux", "pc1": "windows"} {
		s.do("PUT", core+"entities/"+name, `{"metadata":{"name":"`+name+`","namespace":"default"},"entity_class":"agent","subscriptions":["`+subscriptions+`"]}`).is(200)
		s.do("PUT", core+"checks/"+subscriptions, `{"metadata":{"name":"`+subscriptions+`","namespace":"default"},"command":"true","interval":10,`+
			`"subscriptions":["`+subscriptions+`"],"publish":true}`)
	}
	for _, c := range []struct {
		query, agent, why string
		status, runs      int
		silent            bool
	}{
		{"linux/next", "", "", 200, 1, false},
		{"linux/next?entity=own", "own", "", 200, 1, false},
		{"linux/next?entity=stock", "", "", 200, 1, false},
		{"linux/next?entity=pc1", "", "it has none of the check's subscriptions: it has windows, entity:pc1, the check linux", 200, 0, false},
		{"linux/next?entity=onw", "", "", 404, 0, false},
		{"linux/next?entity=own", "", "", 503, 0, true},
		{"windows/next", "pc1", "", 200, 1, false},
		{"windows/next", "", "", 200, 1, true},
	} {
		silent = c.silent
		var got resource.CheckRuns
		answer := s.do("GET", base+c.query, "").is(c.status)
		if c.status != 200 {
			continue
		}
		answer.has(&got)
		why := ""
		if got.Entity != nil {
			why = strings.Join(got.Entity.Why, "; ")
		}
		if got.Agent != c.agent || why != c.why || len(got.Runs) != c.runs {
			t.Errorf("%s: agent %q, why %q, runs %v", c.query, got.Agent, why, got.Runs)
		}
	}
	s.token = s.user("picky", "picky") // may read checks and not entities
	s.grant("picky", "", resource.Rule{Verbs: []string{"get"}, Resources: []string{"checks"}})
	s.do("GET", base+"linux/next?entity=own", "").is(403)
	var got resource.CheckRuns
	if s.do("GET", base+"windows/next", "").is(200).has(&got); got.Agent != "" {
		t.Errorf("the only agent is named: %+v", got)
	}
}

func TestTargets(t *testing.T) {
	f := &someAgents{agents: map[string][]string{"linux": {"srv1", "srv2"}, "windows": {"pc1"}}, proxies: []string{"router1"}}
	s := newServer(t, func(o *Options) { o.Schedule, o.Agents = f, f })
	const core, base = "/api/core/v2/namespaces/default/", "/api/lapwing/v1/namespaces/default/"
	for name, subscriptions := range map[string]string{"srv1": `"linux"`, "srv3": `"linux"`, "pc1": `"windows"`} {
		s.do("PUT", core+"entities/"+name, `{"metadata":{"name":"`+name+`","namespace":"default"},"entity_class":"agent","subscriptions":[`+subscriptions+`]}`).is(200)
	}
	for _, name := range []string{"router1", "router2"} {
		s.do("PUT", core+"entities/"+name, `{"metadata":{"name":"`+name+`","namespace":"default"},"entity_class":"proxy"}`).is(200)
	}
	check := func(name, more string) {
		s.do("PUT", core+"checks/"+name, `{"metadata":{"name":"`+name+`","namespace":"default"},"command":"true","interval":10,"subscriptions":["linux"],"publish":true`+more+`}`).is(201)
	}
	check("disk", "")
	check("turns", `,"round_robin":true`)
	check("ping", `,"proxy_requests":{"entity_attributes":["entity.entity_class == 'proxy'"]}`)
	check("off", `,"publish":false`)

	var all resource.CheckTargets
	s.do("GET", base+"checks/disk/targets", "").is(200).has(&all)
	if all.Agents != 2 || !slices.Equal(all.Names, []string{"srv1", "srv2"}) || len(all.Now) != 0 || all.Subscriptions[0].Entities != 2 {
		t.Errorf("disk: %+v", all)
	}
	if all.NotConnected != 1 || !slices.Equal(all.NotConnectedNames, []string{"srv3"}) {
		t.Errorf("disk, not connected: %+v", all)
	}
	for _, c := range []struct {
		check, entity, closed string
		runs                  bool
		why                   string
	}{
		{"disk", "srv1", "", true, ""},
		{"disk", "srv1", "subdued", false, ""},
		{"disk", "srv3", "", false, "its agent is not connected"},
		{"disk", "pc1", "", false, "it has none of the check's subscriptions: it has windows, entity:pc1, the check linux"},
		{"disk", "router1", "", false, "it is a proxy entity: it has no agent that could run the check"},
		{"turns", "srv1", "", true, "it is one of 2 agents that take turns"},
		{"ping", "router1", "", true, "its proxy requests match the entity: an agent with its subscriptions runs it for the entity"},
		{"ping", "router2", "", false, "the proxy requests of the check do not match it: entity.entity_class == 'proxy'; it is a proxy entity: it has no agent that could run the check"},
		{"off", "srv1", "", false, ""},
	} {
		f.closed = c.closed
		var got resource.CheckTargets
		s.do("GET", base+"checks/"+c.check+"/targets?entity="+c.entity, "").is(200).has(&got)
		if e := got.Entity; e == nil || e.Runs != c.runs || strings.Join(e.Why, "; ") != c.why {
			t.Errorf("%s at %s: %+v (now %q)", c.check, c.entity, e, got.Now)
		}
		if c.closed != "" && !slices.Contains(got.Now, c.closed) {
			t.Errorf("%s: now %q", c.check, got.Now)
		}
	}
	s.do("GET", base+"checks/disk/targets?entity=gone", "").is(404)
	s.do("GET", base+"checks/gone/targets", "").is(404)
	s.do("GET", base+"checks/disk/next?count=0", "").is(400)

	var subs []resource.SubscriptionCount
	s.do("GET", base+"subscriptions", "").is(200).has(&subs)
	if want := []resource.SubscriptionCount{{Name: "linux", Agents: 2, Entities: 2, Checks: 4}, {Name: "windows", Agents: 1, Entities: 1}}; !slices.Equal(subs, want) {
		t.Errorf("subscriptions: %+v", subs)
	}
	var one resource.Subscription
	s.do("GET", base+"subscriptions/linux", "").is(200).has(&one)
	if strings.Join(one.CheckNames, " ") != "disk off ping turns" || strings.Join(one.AgentNames, " ") != "srv1 srv2" || strings.Join(one.EntityNames, " ") != "srv3" {
		t.Errorf("linux: %+v", one)
	}
	s.do("GET", base+"subscriptions/none", "").is(404)

	// who may read checks and not entities gets numbers, and no names
	s.token = s.user("picky", "picky")
	s.grant("picky", "", resource.Rule{Verbs: []string{"get"}, Resources: []string{"checks"}})
	var few resource.CheckTargets
	s.do("GET", base+"checks/disk/targets", "").is(200).has(&few)
	if few.Agents != 2 || few.Names != nil || few.NotConnected != 1 || few.NotConnectedNames != nil {
		t.Errorf("without the right to list entities: %+v", few)
	}
	s.do("GET", base+"checks/disk/targets?entity=srv1", "").is(403)
}
