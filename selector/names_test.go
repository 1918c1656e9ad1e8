package selector

import (
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestNamesOfSensu checks that all fields that Sensu documents are known.
func TestNamesOfSensu(t *testing.T) {
	for _, tc := range []struct {
		like  any
		names string
	}{
		{&resource.APIKey{}, "api_key.name api_key.username"},
		{&resource.Asset{}, "asset.name asset.namespace asset.filters"},
		{&resource.CheckConfig{}, "check.name check.namespace check.handlers check.publish check.round_robin " +
			"check.runtime_assets check.subscriptions check.pipelines check.labels.x"},
		{&resource.ClusterRole{}, "clusterrole.name"},
		{&resource.ClusterRoleBinding{}, "clusterrolebinding.name clusterrolebinding.role_ref.name clusterrolebinding.role_ref.type"},
		{&resource.EntityConfig{}, "entity.name entity.namespace entity.deregister entity.entity_class entity.subscriptions " +
			"entity.labels.region entity.system.os entity.last_seen"},
		{&resource.Event{}, "event.name event.namespace event.is_silenced event.timestamp event.check.handlers " +
			"event.check.is_silenced event.check.last_ok event.check.name event.check.publish event.check.round_robin " +
			"event.check.runtime_assets event.check.state event.check.status event.check.subscriptions " +
			"event.entity.deregister event.entity.name event.entity.entity_class event.entity.subscriptions " +
			"event.labels.x event.check.labels.x event.entity.labels.x event.is_incident event.check.env_vars"},
		{&resource.EventFilter{}, "filter.name filter.namespace filter.action filter.runtime_assets"},
		{&resource.Handler{}, "handler.name handler.namespace handler.filters handler.handlers handler.mutator handler.type"},
		{&resource.HookConfig{}, "hook.name hook.namespace"},
		{&resource.Mutator{}, "mutator.name mutator.namespace mutator.runtime_assets"},
		{&resource.Pipeline{}, "pipeline.name pipeline.namespace"},
		{&resource.Namespace{}, "namespace.name"},
		{&resource.User{}, "user.username user.disabled user.groups"},
		{&resource.Role{}, "role.name role.namespace"},
		{&resource.RoleBinding{}, "rolebinding.name rolebinding.namespace rolebinding.role_ref.name rolebinding.role_ref.type"},
		{&resource.Silenced{}, "silenced.name silenced.namespace silenced.check silenced.creator " +
			"silenced.expire_on_resolve silenced.subscription"},
	} {
		names := NamesOf(tc.like)
		for name := range strings.FieldsSeq(tc.names) {
			if _, err := names.Parse("", name+` =~ ""`); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := NamesOf(&resource.User{}).Parse("", `user.password_hash =~ ""`); err == nil {
		t.Error("selectors may ask for hashes of passwords")
	}
}

func TestNamesCheck(t *testing.T) {
	event, check, namespace := &resource.Event{}, &resource.CheckConfig{}, &resource.Namespace{}
	long := strings.Repeat("x", 5000)
	for _, tc := range []struct {
		like        any
		field, want string // a part of the error, "" for none
	}{
		{event, `event.check.status > 0 && event.check.last_ok > 2h`, ""},
		{event, `event.check.status != "0" && event.check.status in [1, 2]`, ""},
		{event, `event.labels.any == 1 || event.entity.labels.region > 5 || event.annotations.x == y`, ""},
		{event, `linux in event.check.subscriptions && event.check.state notin [passing, flapping]`, ""},
		{event, `event.check.state matches pass && event.check.status =~ "^[12]$"`, ""},
		{event, `event.check.nam == disk`, `unknown field "event.check.nam" in field selector: did you mean "event.check.name"?`},
		{event, `event.chek.name == disk`, `did you mean "event.check.name"?`},
		{event, `Event.Check.Name == disk`, `did you mean "event.check.name"?`},
		{event, `event.name == a && !(event.check.statuss == 1)`, `"event.check.statuss" in field selector: did you mean "event.check.status"?`},
		{event, `check.name == disk`, `did you mean "event.check.name"?`},
		{event, `check.nam == disk`, `did you mean "event.check.name"?`},
		{event, `entity.subscriptons == disk`, `did you mean "event.entity.subscriptions"?`},
		{event, `event.status == 1`, `did you mean "event.check.status"?`},
		{event, `status == 1`, `did you mean "event.check.status"?`},
		{event, `name == a/b`, `did you mean "event.name"?`},
		{event, `region == eu`, `"region" in field selector: the names begin with event, as in event.name`},
		{event, `event.check.zzzzzzzzz == 1`, `unknown field "event.check.zzzzzzzzz" in field selector`},
		{event, `event.check.subscriptions in linux`, `the value stands before the list, as in: linux in event.check.subscriptions`},
		{event, `"` + long + `" == 1`, "… (5000 bytes)"},
		{event, `"event.check.` + long + `" == 1`, "… (5012 bytes)"},
		{event, `event.check.status == failing`, `field "event.check.status" in field selector: it is a whole number, never "failing"`},
		{event, `event.check.status in [0, 1.0]`, `never "1.0"`},
		{event, `event.check.state == failng`, `it is one of passing, failing, flapping, never "failng": did you mean "failing"?`},
		{event, `event.check.state > passing`, `a number, a length of time`}, // the grammar
		{event, `event.check.state > 1`, `has no order`},
		{event, `event.is_silenced == yes`, `it is one of true, false, never "yes"`},
		{event, `event.is_silenced > 0`, `has no order`},
		{event, `event.check.subscriptions > 0`, `it is a list, and has no order`},
		{event, `event.timestamp == 2026-11-21`, `compare times with < or >, as in event.timestamp > now-2h`},
		{event, `event.check.duration == fast`, `it is a number, never "fast"`},
		{event, `event.check.duration == 1.5`, ""},
		{check, `check.subscriptons == linux`, `did you mean "check.subscriptions"?`},
		{check, `event.check.name == disk`, `did you mean "check.name"?`},
		{&resource.Handler{}, `handler.type == emial`, `did you mean "email"?`},
		{&resource.EventFilter{}, `filter.action == deny`, ""},
		{namespace, `namespace.title == x`, `the fields are namespace.name`},
	} {
		_, err := NamesOf(tc.like).Parse("", tc.field)
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%.80s: %v", tc.field, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%.80s: %v, want %s", tc.field, err, tc.want)
		}
	}
	if _, err := NamesOf(event).Parse("anything == x", ""); err != nil {
		t.Errorf("a label: %v", err)
	}
}
