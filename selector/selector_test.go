package selector

import (
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// thing is a resource for tests.
type thing struct {
	fields map[string]Value
	labels map[string]string
}

func (t *thing) Field(name string) Value { return t.fields[name] }

func (t *thing) Label(key string) Value {
	if v, ok := t.labels[key]; ok {
		return Text(v)
	}
	return Value{}
}

var testNow = time.Unix(1_700_000_000, 0)

var sample = &thing{
	fields: map[string]Value{
		"check.name":          Text("disk-root"),
		"check.subscriptions": List([]string{"linux", "db servers"}),
		"check.handlers":      List(nil),
		"check.publish":       Bool(true),
		"check.interval":      Number(60),
		"check.status":        Number(2),
		"check.duration":      Decimal(1.5),
		"check.last_ok":       Time(testNow.Unix() - 3*3600),
		"check.never":         Time(0),
	},
	labels: map[string]string{
		"region": "us-west-1", "tier": "prod", "team": "[ops, net]", "cpus": "16", "max_age": "90m", "built": "2023-11-01",
		"team/owner": "ann", "k-8": "x", "path": `C:\dir "a"`, "empty": "",
	},
}

func TestMatch(t *testing.T) {
	const yes, no = true, false
	for _, tc := range []struct {
		label, field string
		want         bool
	}{
		{"", "", yes},
		{"  ", "\t\n", yes},
		// Sensu's operators.
		{`region == 'us-west-1'`, "", yes},
		{`region == "us-west-1" && tier != "dev"`, "", yes},
		{`region == us && tier != "dev"`, "", no},
		{`tier == prod`, `check.status == "2"`, yes},
		{`tier == prod`, `check.status == "1"`, no},
		{`tier==prod&&cpus=='16'`, "", yes},
		{`region in [eu, "us-west-1"]`, "", yes},
		{`region IN ["eu"]`, "", no},
		{`region notin [eu, "us-west-1"]`, "", no},
		{`region NotIn [eu]`, "", yes},
		{`region in []`, "", no},
		{`region notin []`, "", yes},
		{`region matches west`, "", yes},
		{`region matches "^us"`, "", no},
		{`net in team`, "", yes},
		{`ops in team && "ops" in team`, "", yes},
		{`dev in team`, "", no},
		{`dev notin team`, "", yes},
		{`"x" in 'k-8'`, "", yes},
		{`team/owner == ann`, "", yes},
		{"", `linux in check.subscriptions`, yes},
		{"", `"db servers" in check.subscriptions`, yes},
		{"", `db in check.subscriptions`, no},
		{"", `linux notin check.subscriptions`, no},
		{"", `linux in check.handlers`, no},
		{"", `check.subscriptions == "linux,db servers"`, yes},
		{"", `check.subscriptions matches "linux,db"`, yes},
		{"", `check.handlers == ""`, yes},
		{"", `check.publish == true`, yes},
		{"", `check.publish != true`, no},
		{"", `check.publish == "true"`, yes},
		{"", `check.interval in ["30", "60"]`, yes},
		{"", `check.duration == "1.5"`, yes},
		// What is missing.
		{`nope == x`, "", no},
		{`nope == ""`, "", no},
		{`empty == ""`, "", yes},
		{`nope != x`, "", yes},
		{`nope in [x]`, "", no},
		{`nope notin [x]`, "", yes},
		{`x in nope`, "", no},
		{`x notin nope`, "", yes},
		{`nope matches ""`, "", no},
		{`nope =~ ""`, "", no},
		{`nope !~ ""`, "", yes},
		{`nope < 5`, "", no},
		{`nope >= 5`, "", no},
		// Or, not and parentheses.
		{`tier == dev || region matches us`, "", yes},
		{`tier == dev || region matches eu`, "", no},
		{`tier == prod || tier == dev && region == eu`, "", yes},
		{`(tier == prod || tier == dev) && region == eu`, "", no},
		{`!tier == dev`, "", yes},
		{`!(tier == dev || cpus == "16")`, "", no},
		{`!!(tier == prod)`, "", yes},
		{`! nope == x`, "", yes},
		{`((((tier == prod))))`, "", yes},
		// Regular expressions.
		{`region =~ "^us-(west|east)-\d$"`, "", yes},
		{`region =~ '^us-(west|east)-\\d$'`, "", yes},
		{`region !~ "^us"`, "", no},
		{`tier =~ pro`, "", yes},
		{"", `check.subscriptions =~ "(^|,)linux(,|$)"`, yes},
		{"", `check.status =~ "[12]"`, yes},
		// Quotes.
		{`path == "C:\dir \"a\""`, "", yes},
		{`path == 'C:\\dir "a"'`, "", yes},
		// Words Sensu would want in quotes.
		{`region == us-west-1`, "", yes},
		{"", `check.status == 2`, yes},
		{"", `check.status == 02`, no},
		{`k-8 == x`, "", yes},
		// Numbers.
		{"", `check.status > 0`, yes},
		{"", `check.status >= 2 && check.status <= 2.0`, yes},
		{"", `check.status < 2`, no},
		{"", `check.duration > 1.4`, yes},
		{"", `check.duration < 1e1`, yes},
		{"", `check.status > -1`, yes},
		{`cpus >= 8`, "", yes},
		{`cpus < 8`, "", no},
		{`tier > 1`, "", no},
		{`tier <= 1`, "", no},
		{"", `check.subscriptions > 1`, no},
		// Times.
		{"", `check.last_ok > 2h`, yes},
		{"", `check.last_ok > 2h30m`, yes},
		{"", `check.last_ok > 1d`, no},
		{"", `check.last_ok <= 3h`, yes},
		{"", `check.never > 52w`, yes},
		{"", `check.last_ok < now-2h`, yes},
		{"", `check.last_ok > now-4h && check.last_ok < now`, yes},
		{"", `check.last_ok < now+1m`, yes},
		{"", `check.last_ok >= 2023-11-14T19:13:20Z`, yes},
		{"", `check.last_ok > "2023-11-14T20:13:20+01:00"`, no},
		{"", `check.last_ok > 2023-11-14`, yes},
		{"", `check.last_ok > 1699989199`, yes},
		{"", `check.interval > 30s`, yes},
		{"", `check.interval > 2m`, no},
		{`max_age > 1h`, "", yes},
		{`max_age > 2h`, "", no},
		{`cpus > 15s`, "", yes},
		{`built > 2023-10-31`, "", yes},
		{`built > now-30d`, "", yes},
		{`tier > 2h`, "", no},
		{`tier < now`, "", no},
	} {
		s, err := Parse(tc.label, tc.field)
		if err != nil {
			t.Errorf("%q %q: %v", tc.label, tc.field, err)
			continue
		}
		if got := s.MatchAt(sample, testNow); got != tc.want {
			t.Errorf("%q %q: %v, want %v", tc.label, tc.field, got, tc.want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{`region`, `unexpected the end at character 7: ==, !=`},
		{`region = eu`, `unexpected "=" (equality is "==") at character 8`},
		{`region == `, `unexpected the end at character 11: a value expected`},
		{`== eu`, `unexpected "==" at character 1: the name of a label or field expected`},
		{`region === eu`, `unexpected "=" (equality is "==") at character 10`},
		{`a == b & c == d`, `unexpected "&" (it must be doubled) at character 8`},
		{`a == b | c == d`, `unexpected "|" (it must be doubled) at character 8`},
		{`a == b &&`, `unexpected the end at character 10: the name`},
		{`a == b c`, `unexpected "c" at character 8: "&&", "||" or the end expected`},
		{`a like b`, `unexpected "like" at character 3: ==, !=`},
		{`a "==" b`, `unexpected "==" at character 3: ==, !=`},
		{`a in [b`, `unexpected the end at character 8: "," or "]" expected`},
		{`a in [b,]`, `unexpected "]" at character 9: a value expected`},
		{`a in [b c]`, `unexpected "c" at character 9: "," or "]" expected`},
		{`a in (b)`, `unexpected "(" at character 6: a list`},
		{`a == [b]`, `unexpected "[" at character 6: a value expected`},
		{`a == "b`, `quote " is not closed at character 6`},
		{`(a == b`, `unexpected the end at character 8: ")"`},
		{`a == b)`, `unexpected ")" at character 7`},
		{`é == b ; c`, `unexpected ";" at character 8`},
		{`a =~ "("`, `"(" is no regular expression: `},
		{`a < b`, `unexpected "b" at character 5: a number, a length of time`},
		{`a < 5x`, `unexpected "5x" at character 5: a number`},
		{`a < now2h`, `unexpected "now2h"`},
		{`a < now-`, `unexpected "now-"`},
		{`a < 2026-13-01`, `unexpected "2026-13-01"`},
		{`a < Inf`, `unexpected "Inf"`},
		{strings.Repeat("(", 101) + "a == b" + strings.Repeat(")", 101), "more than 100 parentheses"},
		{strings.Repeat("!", 101) + "a == b", "more than 100 parentheses"},
		{strings.Repeat("a", maxLength+1), "it is longer than 65536 bytes"},
		{"a == \xff", "it is not UTF-8"},
	} {
		for _, kind := range []string{"label", "field"} {
			label, field := tc.text, ""
			if kind == "field" {
				label, field = "", tc.text
			}
			if _, err := Parse(label, field); err == nil || !strings.HasPrefix(err.Error(), kind+" selector: "+tc.want) {
				t.Errorf("%.40q: %v, want %s selector: %s…", tc.text, err, kind, tc.want)
			}
		}
	}
}

func TestAllMustHold(t *testing.T) {
	s, err := ParseAll([]string{"tier == prod", "cpus == '16'"}, []string{"check.status == 2", ""})
	if err != nil || !s.Match(sample) {
		t.Errorf("%v, %v", s, err)
	}
	s, err = ParseAll([]string{"tier == prod", "cpus == '17'"}, nil)
	if err != nil || s.Match(sample) {
		t.Errorf("%v, %v", s, err)
	}
	if s, err = ParseAll(nil, []string{""}); s != nil || err != nil {
		t.Errorf("of nothing: %v, %v", s, err)
	}
}

func TestCombinations(t *testing.T) {
	parse := func(s string) *Selector {
		out, err := Parse(s, "")
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	prod, dev, big := parse("tier == prod"), parse("tier == dev"), parse("cpus >= 8 || cpus == none")
	for _, tc := range []struct {
		name string
		s    *Selector
		want bool
	}{
		{"all of none", All(), true},
		{"all with nil", All(nil, prod, nil), true},
		{"all, both", All(prod, big), true},
		{"all, one", All(prod, dev), false},
		{"all of any", All(Any(dev, prod), big), true},
		{"all of any, none", All(prod, Any(dev, dev)), false},
		{"any, one", Any(dev, prod), true},
		{"any, none", Any(dev, dev), false},
		{"any with nil", Any(dev, nil), true},
		{"any of none", Any(), true},
		{"any of all", Any(All(prod, dev), All(big, prod)), true},
	} {
		if got := tc.s.MatchAt(sample, testNow); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

func TestDecideKnowsWhatItDoesNotKnow(t *testing.T) {
	answers := map[string]Verdict{"yes": Yes, "no": No, "maybe": Unknown}
	for _, tc := range []struct {
		text string
		want Verdict
	}{
		{"maybe == x", Unknown},
		{"!maybe == x", Unknown},
		{"no == x && maybe == x", No},
		{"maybe == x && no == x", No},
		{"maybe == x && yes == x", Unknown},
		{"maybe == x || yes == x", Yes},
		{"maybe == x || no == x", Unknown},
		{"!(maybe == x && no == x)", Yes},
		{"!(yes == x || maybe == x)", No},
	} {
		s, err := Parse(tc.text, "")
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Decide(func(i int) Verdict { return answers[s.Terms()[i].Name] }); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.text, got, tc.want)
		}
	}
}

func TestOrdered(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{`c == x && a == x && b == x`, `a b c`},
		{`c == x && (e == x || d == x) && a == x`, `a c d e`},
		{`(e == x || a == x) && b == x`, `b a e`},
		{`!(c == x && b == x) && a == x`, `a b c`},
	} {
		s, err := Parse(tc.text, "")
		if err != nil {
			t.Fatal(err)
		}
		ordered := s.Ordered(func(i int) int { return int(s.Terms()[i].Name[0]) })
		var asked []string
		ordered.Decide(func(i int) Verdict {
			asked = append(asked, ordered.Terms()[i].Name)
			return Unknown
		})
		if got := strings.Join(asked, " "); got != tc.want {
			t.Errorf("%s: asked %s, want %s", tc.text, got, tc.want)
		}
		for bits := range 1 << len(s.Terms()) {
			answer := func(i int) Verdict { return verdict(bits>>i&1 == 1) }
			if s.Decide(answer) != ordered.Decide(answer) {
				t.Errorf("%s: another verdict for %b", tc.text, bits)
			}
		}
	}
	if All().Ordered(nil) != nil {
		t.Error("everything, ordered, is something else")
	}
}

func TestFieldsOfResources(t *testing.T) {
	meta := resource.ObjectMeta{Name: "n", Namespace: "ns", Labels: map[string]string{"a.b/c": "1", "secret": "s"}, CreatedBy: "ann"}
	check := &resource.CheckConfig{
		Metadata: meta, Interval: 60, Subscriptions: []string{"linux"}, Publish: true,
		Pipelines:     []resource.ResourceReference{{Name: "p1"}, {Name: "p2"}},
		ProxyRequests: &resource.ProxyRequests{Splay: true},
	}
	role := &resource.RoleBinding{Metadata: meta, RoleRef: resource.RoleRef{Type: "Role", Name: "r"}, Subjects: []resource.Subject{{Name: "ann"}}}
	user := resource.User{Username: "ann", Password: "p", PasswordHash: "h", Groups: []string{"ops", "dev"}, Disabled: true}
	entity := &resource.Entity{Metadata: meta, EntityClass: "agent", LastSeen: 5, System: resource.System{OS: "linux", Network: resource.Network{Interfaces: []resource.NetworkInterface{{Name: "eth0"}}}}}
	for _, tc := range []struct {
		prefix string
		obj    any
		name   string
		want   Value
	}{
		{"check", check, "check.name", Text("n")},
		{"check", check, "check.namespace", Text("ns")},
		{"check", check, "check.created_by", Text("ann")},
		{"check", check, "check.labels.a.b/c", Text("1")},
		{"check", check, "check.labels.secret", Text("s")},
		{"check", check, "check.labels.none", Value{}},
		{"check", check, "check.interval", Number(60)},
		{"check", check, "check.publish", Text("true")},
		{"check", check, "check.round_robin", Text("false")},
		{"check", check, "check.subscriptions", List([]string{"linux"})},
		{"check", check, "check.runtime_assets", List(nil)},
		{"check", check, "check.pipelines", List([]string{"p1", "p2"})},
		{"check", check, "check.proxy_requests.splay", Text("true")},
		{"check", &resource.CheckConfig{}, "check.proxy_requests.splay", Value{}},
		{"check", check, "checkname", Value{}},
		{"check", check, "check.", Value{}},
		{"check", check, "entity.name", Value{}},
		{"rolebinding", role, "rolebinding.role_ref.type", Text("Role")},
		{"rolebinding", role, "rolebinding.subjects", List([]string{"ann"})},
		{"user", user, "user.username", Text("ann")},
		{"user", user, "user.disabled", Text("true")},
		{"user", &user, "user.groups", List([]string{"ops", "dev"})},
		{"user", user, "user.password", Value{}},
		{"user", user, "user.password_hash", Value{}},
		{"namespace", &resource.Namespace{Name: "x"}, "namespace.name", Text("x")},
		{"entity", entity, "entity.system.os", Text("linux")},
		{"entity", entity, "entity.system.network.interfaces", List([]string{"eth0"})},
		{"entity", entity, "entity.last_seen", Time(5)},
		{"entity", entity, "entity.labels.secret", Text(resource.Redacted)},
		{"entity", entity, "entity.labels.a.b/c", Text("1")},
		{"handler", &resource.Handler{Socket: &resource.HandlerSocket{Port: 1}}, "handler.socket.port", Number(1)},
		{"asset", &resource.Asset{Headers: map[string]string{"X": "y"}}, "asset.headers.X", Text("y")},
	} {
		got := Of(tc.prefix, tc.obj).Field(tc.name)
		if got.String() != tc.want.String() || got.kind != tc.want.kind {
			t.Errorf("%s of %T: %v %q, want %v %q", tc.name, tc.obj, got.kind, got, tc.want.kind, tc.want)
		}
	}
	if got := Of("entity", entity).Label("secret"); got.text != resource.Redacted {
		t.Errorf("a redacted label is %q", got)
	}
	if got := Of("namespace", &resource.Namespace{}).Label("a"); !got.Missing() {
		t.Errorf("a label of a namespace: %q", got)
	}
}

func TestFieldsOfEvents(t *testing.T) {
	ev := &resource.Event{
		Timestamp: 7,
		Metadata:  resource.ObjectMeta{Labels: map[string]string{"a": "event"}},
		Entity: &resource.Entity{Metadata: resource.ObjectMeta{Name: "web1", Namespace: "ns", Labels: map[string]string{
			"a": "entity", "b": "entity", "c": "entity", "API-Key": "x",
		}}},
		Check: &resource.Check{Metadata: resource.ObjectMeta{Name: "disk", Labels: map[string]string{"a": "check", "b": "check"}}, Status: 1, Silenced: []string{"x"}, Hooks: []resource.Hook{{Status: 3}}},
	}
	f := Event(ev)
	for name, want := range map[string]string{
		"event.name": "web1/disk", "event.namespace": "ns", "event.timestamp": "7", "event.is_silenced": "true",
		"event.check.is_silenced": "true", "event.check.name": "disk", "event.check.status": "1", "event.is_incident": "true",
		"event.entity.name": "web1", "event.labels.a": "event", "event.labels.b": "check", "event.labels.c": "entity",
		"event.check.labels.a": "check", "event.entity.labels.a": "entity",
		"event.labels.API-Key": resource.Redacted, "event.entity.labels.API-Key": resource.Redacted,
	} {
		if got := f.Field(name); got.Missing() || got.String() != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for _, key := range []string{"a", "b", "c"} {
		if got, want := f.Label(key), f.Field("event.labels."+key); got.String() != want.String() {
			t.Errorf("label %s is %q, want %q", key, got, want)
		}
	}
	for _, ev := range []*resource.Event{{}, {Entity: ev.Entity}, {Check: ev.Check}} {
		f := Event(ev)
		for _, name := range []string{"event.name", "event.namespace", "event.check.status", "event.entity.name", "event.is_silenced"} {
			_ = f.Field(name)
		}
		_ = f.Label("a")
	}
	if !Event(&resource.Event{}).Field("event.check.status").Missing() {
		t.Error("an event without a check has a status")
	}
}

func TestPrefixes(t *testing.T) {
	for _, tc := range []struct {
		obj  any
		name string
	}{
		{&resource.CheckConfig{}, "check.interval"},
		{&resource.EntityConfig{}, "entity.entity_class"},
		{&resource.Entity{}, "entity.system.os"},
		{&resource.HookConfig{}, "hook.timeout"},
		{&resource.EventFilter{}, "filter.action"},
		{&resource.Mutator{}, "mutator.runtime_assets"},
		{&resource.Asset{}, "asset.filters"},
		{&resource.Pipeline{}, "pipeline.name"},
		{&resource.Handler{}, "handler.mutator"},
		{&resource.RoleBinding{}, "rolebinding.role_ref.type"},
		{&resource.ClusterRoleBinding{}, "clusterrolebinding.role_ref.name"},
		{resource.User{}, "user.username"},
		{&resource.APIKey{}, "api_key.username"},
		{&resource.Silenced{}, "silenced.expire_on_resolve"},
		{&resource.Event{Check: &resource.Check{}}, "event.check.status"},
	} {
		if Resource(tc.obj).Field(tc.name).Missing() {
			t.Errorf("%T has no %s", tc.obj, tc.name)
		}
	}
}

func TestKnows(t *testing.T) {
	for name, want := range map[string]bool{
		"event.check.output": true, "event.check.labels.x": true, "event.entity.system.os": true, "event.nothing": false,
		"check.output": false, "event": false, "event.check": false, "event.entity.labels.": true,
	} {
		if got := Knows("event", (*resource.Event)(nil), name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	s, err := Parse("", `event.check.status > 0 && linux in event.check.subscriptions && event.entity.name =~ "^web"`)
	if err != nil {
		b.Fatal(err)
	}
	f := Event(&resource.Event{
		Entity: &resource.Entity{Metadata: resource.ObjectMeta{Name: "web1"}},
		Check:  &resource.Check{Status: 1, Subscriptions: []string{"linux"}},
	})
	b.ReportAllocs()
	for b.Loop() {
		if !s.MatchAt(f, testNow) {
			b.Fatal("no match")
		}
	}
}
