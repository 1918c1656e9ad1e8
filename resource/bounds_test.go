package resource

import (
	"math"
	"strings"
	"testing"
)

// boundEvent returns a valid event. The tests of bounds break it.
func boundEvent() *Event {
	return &Event{
		Entity: &Entity{EntityClass: "agent", Metadata: ObjectMeta{Name: "web-1", Namespace: "default"}},
		Check:  &Check{Metadata: ObjectMeta{Name: "disk", Namespace: "default"}, Interval: 10},
	}
}

// The numbers of an event are bounded, in the decoded and in the encoded event.
func TestEventBounds(t *testing.T) {
	const huge = math.MaxInt64
	tests := []struct {
		name string
		set  func(*Event)
		want string
	}{
		{"none", func(*Event) {}, ""},
		{"ttl that overflows in milliseconds", func(e *Event) { e.Check.TTL = 9223372036854776 },
			"check is invalid: check ttl 9223372036854776 is out of bounds, it must be between -315360000 and 315360000"},
		{"largest ttl", func(e *Event) { e.Check.TTL = 10 * year }, ""},
		{"negative ttl", func(e *Event) { e.Check.TTL = -1 }, ""},
		{"smallest ttl", func(e *Event) { e.Check.TTL = math.MinInt64 },
			"check is invalid: check ttl -9223372036854775808 is out of bounds, …"},
		{"interval", func(e *Event) { e.Check.Interval = math.MaxUint32 },
			"check is invalid: check interval 4294967295 is out of bounds, …"},
		{"timeout", func(e *Event) { e.Check.Timeout = math.MaxUint32 }, "check is invalid: check timeout 4294967295 is out of bounds, …"},
		{"executed", func(e *Event) { e.Check.Executed = huge },
			"check is invalid: check executed 9223372036854775807 is out of bounds, …"},
		{"executed in milliseconds", func(e *Event) { e.Check.Executed = 1763800000000 }, ""},
		{"issued", func(e *Event) { e.Check.Issued = -huge }, "check is invalid: check issued -9223372036854775807 is out of bounds, …"},
		{"last ok", func(e *Event) { e.Check.LastOK = huge }, "check is invalid: check last_ok 9223372036854775807 is out of bounds, …"},
		{"occurrences", func(e *Event) { e.Check.Occurrences = huge },
			"check is invalid: check occurrences 9223372036854775807 is out of bounds, …"},
		{"watermark", func(e *Event) { e.Check.OccurrencesWatermark = huge },
			"check is invalid: check occurrences_watermark 9223372036854775807 is out of bounds, …"},
		{"history", func(e *Event) { e.Check.History = []CheckHistory{{Executed: 1}, {Executed: huge}} },
			"check is invalid: check history executed 9223372036854775807 is out of bounds, …"},
		{"output size", func(e *Event) { e.Check.MaxOutputSize = huge },
			"check is invalid: check max_output_size 9223372036854775807 is out of bounds, it must be between 0 and 1099511627776"},
		{"duration", func(e *Event) { e.Check.Duration = math.NaN() }, "check is invalid: check duration NaN is out of bounds, …"},
		{"hook duration", func(e *Event) { e.Check.Hooks = []Hook{{Duration: math.Inf(1)}} },
			"check is invalid: hook duration +Inf is out of bounds, …"},
		{"hook executed", func(e *Event) { e.Check.Hooks = []Hook{{Executed: huge}} },
			"check is invalid: hook executed 9223372036854775807 is out of bounds, …"},
		{"last seen", func(e *Event) { e.Entity.LastSeen = huge },
			"entity is invalid: entity last_seen 9223372036854775807 is out of bounds, …"},
		{"timestamp", func(e *Event) { e.Timestamp = math.MinInt64 }, "event timestamp -9223372036854775808 is out of bounds, …"},
		{"subscription", func(e *Event) { e.Check.Subscriptions = []string{strings.Repeat("s", 263)} },
			"check is invalid: subscription must not be longer than 262 bytes, it has 263"},
		{"entity name", func(e *Event) { e.Entity.Metadata.Name = strings.Repeat("n", 4000) },
			"entity is invalid: entity name must not be longer than 255 bytes, it has 4000"},
		{"longest entity name", func(e *Event) { e.Entity.Metadata.Name = strings.Repeat("n", 255) }, ""},
		{"namespace", func(e *Event) { e.Entity.Metadata.Namespace = strings.Repeat("n", 256) },
			"entity is invalid: namespace must not be longer than 255 bytes, it has 256"},
		{"check name", func(e *Event) { e.Check.Metadata.Name = strings.Repeat("n", 256) },
			"check is invalid: check name must not be longer than 255 bytes, it has 256"},
		{"proxy entity name", func(e *Event) { e.Check.ProxyEntityName = strings.Repeat("n", 256) },
			"check is invalid: proxy entity name must not be longer than 255 bytes, it has 256"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := boundEvent()
			tt.set(e)
			requireReason(t, e, tt.want)
			requireReason(t, encoded(e.AppendProto(nil)), tt.want)
		})
	}
}

// No kind of definition takes a name that is too long for the store's keys, or a number that overflows.
func TestDefinitionBounds(t *testing.T) {
	long := strings.Repeat("n", 256)
	meta := ObjectMeta{Name: long, Namespace: "default"}
	good := ObjectMeta{Name: "n", Namespace: "default"}
	const tooLong = "must not be longer than 255 bytes, it has 256"
	tests := []struct {
		name string
		v    validator
		want string
	}{
		{"namespace", &Namespace{Name: long}, "namespace name " + tooLong},
		{"user", &User{Username: long, Password: "P@ssw0rd!"}, "username " + tooLong},
		{"check", &CheckConfig{Metadata: meta, Interval: 1}, "check name " + tooLong},
		{"handler", &Handler{Metadata: meta}, "handler name " + tooLong},
		{"filter", &EventFilter{Metadata: meta}, "filter name " + tooLong},
		{"mutator", &Mutator{Metadata: meta}, "mutator name " + tooLong},
		{"hook", &HookConfig{Metadata: meta}, "hook name " + tooLong},
		{"asset", &Asset{Metadata: meta}, "name " + tooLong},
		{"pipeline", &Pipeline{Metadata: meta}, "name " + tooLong},
		{"fallback pipeline", &FallbackPipeline{Metadata: meta}, "name " + tooLong},
		{"aggregate", &Aggregate{Metadata: meta}, "aggregate name " + tooLong},
		{"entity", &EntityConfig{Metadata: meta, EntityClass: "proxy"}, "entity name " + tooLong},
		{"role", &Role{Metadata: meta}, "the Role name " + tooLong},
		{"role binding", &RoleBinding{Metadata: meta}, "the RoleBinding name " + tooLong},
		{"cluster role", &ClusterRole{Metadata: ObjectMeta{Name: long}}, "the ClusterRole name " + tooLong},
		{"cluster role binding", &ClusterRoleBinding{Metadata: ObjectMeta{Name: long}}, "the ClusterRoleBinding name " + tooLong},
		{"PostgreSQL", &PostgresConfig{Metadata: ObjectMeta{Name: long}}, "provider name " + tooLong},
		{"provider", &AuthProvider{Metadata: ObjectMeta{Name: long}}, "provider name " + tooLong},
		{"silence of a check", &Silenced{Metadata: good, Check: long}, "Check " + tooLong},
		{"silence of a subscription", &Silenced{Metadata: good, Subscription: strings.Repeat("s", 263)},
			"Subscription must not be longer than 262 bytes, it has 263"},
		{"silence of the longest entity", &Silenced{Metadata: good, Subscription: "entity:" + strings.Repeat("s", 255), Check: "*"}, ""},

		{"ttl", &CheckConfig{Metadata: good, Interval: 1, TTL: math.MaxInt64}, "check ttl 9223372036854775807 is out of bounds, …"},
		{"interval", &CheckConfig{Metadata: good, Interval: math.MaxUint32}, "check interval 4294967295 is out of bounds, …"},
		{"entity ttl", &EntityConfig{Metadata: good, EntityClass: "proxy", TTL: math.MaxInt64},
			"entity ttl 9223372036854775807 is out of bounds, …"},
		{"expire", &Silenced{Metadata: good, Check: "c", Expire: math.MaxInt64}, "expire 9223372036854775807 is out of bounds, …"},
		{"expire of -1", &Silenced{Metadata: good, Check: "c", Expire: -1}, ""},
		{"begin", &Silenced{Metadata: good, Check: "c", Begin: math.MaxInt64}, "begin 9223372036854775807 is out of bounds, …"},
		{"expire_at", &Silenced{Metadata: good, Check: "c", ExpireAt: math.MaxInt64}, "expire_at 9223372036854775807 is out of bounds, …"},
		{"remind", &Silenced{Metadata: good, Check: "c", Remind: math.MaxInt64}, "remind 9223372036854775807 is out of bounds, …"},
		{"handler timeout", &Handler{Metadata: good, Type: "set", Timeout: math.MaxUint32},
			"handler timeout 4294967295 is out of bounds, …"},
		{"hook timeout", &HookConfig{Metadata: good, Command: "c", Timeout: math.MaxUint32}, "hook timeout 4294967295 is out of bounds, …"},
		{"mutator timeout", &Mutator{Metadata: good, Command: "c", Timeout: math.MaxUint32},
			"mutator timeout 4294967295 is out of bounds, …"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { requireReason(t, tt.v, tt.want) })
	}
}

func TestShort(t *testing.T) {
	if got := Short("web-1"); got != "web-1" {
		t.Errorf("got %q", got)
	}
	if got, want := Short(strings.Repeat("n", 4000)), strings.Repeat("n", 100)+"… (4000 bytes)"; got != want {
		t.Errorf("got %q", got)
	}
}
