package resource

import (
	"strings"
	"testing"
)

type validator interface{ Validate() error }

// requireReason fails unless v is refused for exactly the given reason; "" means accepted.
func requireReason(t *testing.T, v validator, want string) {
	t.Helper()
	var got string
	if err := v.Validate(); err != nil {
		got = err.Error()
	}
	// The text of another package's parser after ours is not compared.
	if prefix, ok := strings.CutSuffix(want, "…"); ok {
		if !strings.HasPrefix(got, prefix) || got == prefix {
			t.Errorf("got %q, want %q", got, want)
		}
		return
	}
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestValidName(t *testing.T) {
	tests := []struct {
		name string
		want bool
	}{
		{"web-1.example_com:8080", true},
		{"A", true},
		{":", true},
		{"", false},
		{"a b", false},
		{"a/b", false},
		{"a\n", false},
		{"é", false},
		{"not found", false},
	}
	for _, tt := range tests {
		if got := ValidName(tt.name); got != tt.want {
			t.Errorf("%q: %v", tt.name, got)
		}
	}
}

func TestSubscriptionName(t *testing.T) {
	for name, want := range map[string]bool{
		"system:agent": true, "a.b-c_d": true, "a:b:c": false, ":a": false, "a:": false, "": false, "a b": false,
	} {
		if got := checkSubscriptionName(name) == nil; got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

func TestEventValidate(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Event)
		want   string
	}{
		{"valid", func(*Event) {}, ""},
		{"metrics only", func(e *Event) { e.Check, e.Metrics = nil, &Metrics{} }, ""},
		{"pipeline", func(e *Event) {
			e.Pipelines = []ResourceReference{{Name: "p", Type: "Pipeline", APIVersion: "core/v2"}}
		}, ""},
		{"id", func(e *Event) { e.ID = NewEventID() }, ""},
		{"no entity", func(e *Event) { e.Entity = nil }, "event must contain an entity"},
		{"nothing in it", func(e *Event) { e.Check = nil }, "event must contain a check or metrics"},
		{"bad entity", func(e *Event) { e.Entity.Metadata.Name = "" }, "entity is invalid: entity name must not be empty"},
		{"bad check", func(e *Event) { e.Check.Metadata.Name = "c c" },
			"check is invalid: check name cannot contain spaces or special characters"},
		{"foreign pipeline", func(e *Event) {
			e.Pipelines = []ResourceReference{{Name: "p", Type: "Foo", APIVersion: "core/v2"}}
		}, "pipeline reference is invalid: resource type not capable of acting as a pipeline: core/v2.Foo"},
		{"named", func(e *Event) { e.Metadata.Name = "n" }, "events cannot be named"},
		{"short id", func(e *Event) { e.ID = []byte{1} }, "invalid event id: 1 bytes, must be 16"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := &Event{
				Entity: &Entity{EntityClass: "proxy", Metadata: ObjectMeta{Name: "e", Namespace: "default"}},
				Check:  &Check{Metadata: ObjectMeta{Name: "c"}},
			}
			tt.change(e)
			requireReason(t, e, tt.want)
			requireReason(t, encoded(e.AppendProto(nil)), tt.want)
		})
	}
}

func TestEntityValidate(t *testing.T) {
	tests := []struct {
		name string
		e    Entity
		want string
	}{
		{"valid", Entity{EntityClass: "agent", Metadata: ObjectMeta{Name: "e", Namespace: "default"}}, ""},
		{"no name", Entity{}, "entity name must not be empty"},
		{"name", Entity{Metadata: ObjectMeta{Name: "a/b"}}, "entity name cannot contain spaces or special characters"},
		{"no class", Entity{Metadata: ObjectMeta{Name: "e", Namespace: "n"}}, "entity class must not be empty"},
		{"class", Entity{EntityClass: "a b", Metadata: ObjectMeta{Name: "e"}}, "entity class cannot contain spaces or special characters"},
		{"no namespace", Entity{EntityClass: "proxy", Metadata: ObjectMeta{Name: "e"}}, "namespace must be set"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			requireReason(t, &tt.e, tt.want)
			view, err := PeekEntity(tt.e.AppendProto(nil))
			if err != nil {
				t.Fatal(err)
			}
			want := tt.want
			if want != "" {
				want = "entity is invalid: " + want
			}
			requireReason(t, &view, want)
			requireReason(t, EntityConfigOf(&tt.e), tt.want)
		})
	}
}

// Rules that definitions and checks in events share.
func TestCheckRules(t *testing.T) {
	const subdueBegin, subdueEnd = "2026-01-01T10:00:00Z", "2026-01-01T11:00:00+00:00"
	threshold := func(change func(*MetricThreshold)) func(*CheckConfig) {
		return func(c *CheckConfig) {
			m := MetricThreshold{
				Name:       "cpu.idle",
				Tags:       []MetricThresholdTag{{Name: "host", Value: "a b"}},
				Thresholds: []MetricThresholdRule{{Max: "1.5", Status: 1}},
			}
			change(&m)
			c.OutputMetricThresholds = []MetricThreshold{m}
		}
	}
	subdue := func(s TimeWindowRepeated) func(*CheckConfig) {
		return func(c *CheckConfig) {
			c.Subdues = []TimeWindowRepeated{{Begin: subdueBegin, End: subdueEnd, Repeat: []string{"daily", "mondays"}}, s}
		}
	}
	tests := []struct {
		name   string
		change func(*CheckConfig)
		want   string
	}{
		{"valid", func(*CheckConfig) {}, ""},
		{"no name", func(c *CheckConfig) { c.Metadata.Name = "" }, "check name must not be empty"},
		{"name", func(c *CheckConfig) { c.Metadata.Name = "a b" }, "check name cannot contain spaces or special characters"},
		{"two schedules", func(c *CheckConfig) { c.Cron = "* * * * *" }, "must only specify either an interval or a cron schedule"},
		{"cron", func(c *CheckConfig) { c.Interval, c.Cron = 0, "*/5 1-3 * * mon" }, ""},
		{"descriptor", func(c *CheckConfig) { c.Interval, c.Cron = 0, "@hourly" }, ""},
		{"every", func(c *CheckConfig) { c.Interval, c.Cron = 0, "@every 5m" }, ""},
		{"TZ", func(c *CheckConfig) { c.Interval, c.Cron = 0, "TZ=Asia/Tokyo 30 4 * * *" }, ""},
		{"CRON_TZ", func(c *CheckConfig) { c.Interval, c.Cron = 0, "CRON_TZ=UTC 30 4 * * *" }, ""},
		{"six fields", func(c *CheckConfig) { c.Interval, c.Cron = 0, "* * * * * *" }, "check cron string is invalid: …"},
		{"words", func(c *CheckConfig) { c.Interval, c.Cron = 0, "often" }, "check cron string is invalid: …"},
		{"unknown zone", func(c *CheckConfig) { c.Interval, c.Cron = 0, "TZ=Nowhere/Else * * * * *" }, "check cron string is invalid: …"},
		{"only a zone", func(c *CheckConfig) { c.Interval, c.Cron = 0, "CRON_TZ=UTC" }, "check cron string is invalid: …"},
		{"blank", func(c *CheckConfig) { c.Interval, c.Cron = 0, " " }, "check cron string is invalid: …"},
		{"ttl", func(c *CheckConfig) { c.TTL = 61 }, ""},
		{"ttl not above interval", func(c *CheckConfig) { c.TTL = 60 }, "ttl must be greater than check interval"},
		{"short ttl", func(c *CheckConfig) { c.Interval, c.TTL = 1, 4 }, "minimum ttl is 5 seconds"},
		{"negative ttl", func(c *CheckConfig) { c.TTL = -1 }, ""},
		{"assets", func(c *CheckConfig) { c.RuntimeAssets = []string{"sensu/cpu-1.0_x:y"} }, ""},
		{"asset name", func(c *CheckConfig) { c.RuntimeAssets = []string{"a b"} },
			"asset's name may only contain letters, forward slashes, underscores, dashes and numbers"},
		{"no asset name", func(c *CheckConfig) { c.RuntimeAssets = []string{""} }, "asset's name cannot be empty"},
		{"subscription", func(c *CheckConfig) { c.Subscriptions = []string{"a", ""} }, "subscriptions cannot be empty strings"},
		{"proxy entity", func(c *CheckConfig) { c.ProxyEntityName = "router1" }, ""},
		{"proxy entity name", func(c *CheckConfig) { c.ProxyEntityName = "a b" },
			"proxy entity name cannot contain spaces or special characters"},
		{"proxy requests", func(c *CheckConfig) { c.ProxyRequests = &ProxyRequests{Splay: true, SplayCoverage: 100} }, ""},
		{"coverage", func(c *CheckConfig) { c.ProxyRequests = &ProxyRequests{SplayCoverage: 101} },
			"proxy request splay coverage must be between 0 and 100"},
		{"no coverage", func(c *CheckConfig) { c.ProxyRequests = &ProxyRequests{Splay: true} },
			"proxy request splay coverage must be greater than 0 if splay is enabled"},
		{"metric format", func(c *CheckConfig) { c.OutputMetricFormat = "prometheus_text" }, ""},
		{"unknown metric format", func(c *CheckConfig) { c.OutputMetricFormat = "xml" }, "output metric format is not valid"},
		{"flapping", func(c *CheckConfig) { c.LowFlapThreshold, c.HighFlapThreshold = 20, 50 }, ""},
		{"only low", func(c *CheckConfig) { c.LowFlapThreshold = 50 }, ""},
		{"flap thresholds", func(c *CheckConfig) { c.LowFlapThreshold, c.HighFlapThreshold = 50, 50 }, "invalid flap thresholds"},
		{"environment", func(c *CheckConfig) { c.EnvVars = []string{"A=b=c"} }, ""},
		{"no value", func(c *CheckConfig) { c.EnvVars = []string{"A="} }, "environment variables must be of the form FOO=BAR"},
		{"no variable", func(c *CheckConfig) { c.EnvVars = []string{"=b"} }, "environment variables must be of the form FOO=BAR"},
		{"no equals sign", func(c *CheckConfig) { c.EnvVars = []string{"A"} }, "environment variables must be of the form FOO=BAR"},
		{"output size", func(c *CheckConfig) { c.MaxOutputSize = -1 }, "MaxOutputSize must be >= 0"},
		{"threshold", threshold(func(*MetricThreshold) {}), ""},
		{"threshold name", threshold(func(m *MetricThreshold) { m.Name = "" }), "metric threshold name must not be empty"},
		{"threshold tag", threshold(func(m *MetricThreshold) { m.Tags[0].Name = "a b" }),
			"metric threshold tag name cannot contain spaces or special characters"},
		{"threshold tag value", threshold(func(m *MetricThreshold) { m.Tags[0].Value = "" }),
			"metric threshold tag value must not be empty"},
		{"no threshold rule", threshold(func(m *MetricThreshold) { m.Thresholds = nil }), "metric threshold must have at least one rule"},
		{"no bound", threshold(func(m *MetricThreshold) { m.Thresholds[0].Max = "" }), "metric threshold rule must have a min or a max"},
		{"not a number", threshold(func(m *MetricThreshold) { m.Thresholds[0].Min = "low" }), `metric threshold "low" is not a number`},
		{"subdue", subdue(TimeWindowRepeated{Begin: subdueBegin, End: subdueEnd}), ""},
		{"subdue begin", subdue(TimeWindowRepeated{Begin: "x", End: subdueEnd}), "subdue 1 invalid: invalid begin time format: …"},
		{"subdue end", subdue(TimeWindowRepeated{Begin: subdueBegin}), "subdue 1 invalid: invalid end time format: …"},
		{"subdue order", subdue(TimeWindowRepeated{Begin: subdueEnd, End: subdueBegin}),
			"subdue 1 invalid: end time must be after begin time"},
		{"subdue repeat", subdue(TimeWindowRepeated{Begin: subdueBegin, End: subdueEnd, Repeat: []string{"hourly"}}),
			"subdue 1 invalid: invalid repeat period: hourly"},
		{"weekly subdue", func(c *CheckConfig) {
			c.Subdue = &TimeWindowWhen{Days: TimeWindowDays{Monday: []TimeWindowTimeRange{{Begin: "5:00PM", End: "9:00 am"}}}}
		}, ""},
		{"weekly subdue time", func(c *CheckConfig) {
			c.Subdue = &TimeWindowWhen{Days: TimeWindowDays{All: []TimeWindowTimeRange{{Begin: "17:00", End: "9:00AM"}}}}
		}, "subdue is invalid: …"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			config := &CheckConfig{Interval: 60, Publish: true, Metadata: ObjectMeta{Name: "c", Namespace: "default"}}
			tt.change(config)
			requireReason(t, config, tt.want)
			requireReason(t, checkOf(config), tt.want)
			want := tt.want
			if want != "" {
				want = "check is invalid: " + want
			}
			ev := Event{Check: checkOf(config), Entity: &Entity{EntityClass: "proxy",
				Metadata: ObjectMeta{Name: "e", Namespace: "default"}}}
			requireReason(t, encoded(ev.AppendProto(nil)), want)
		})
	}
}

// encoded is an event that is validated through its views.
type encoded []byte

func (e encoded) Validate() error {
	view, err := PeekEvent(e)
	if err != nil {
		return err
	}
	if err := view.Validate(); err != nil {
		return err
	}
	entity, err := PeekEntity(view.Entity)
	if err != nil {
		return err
	}
	if err := entity.Validate(); err != nil || view.Check == nil {
		return err
	}
	check, err := PeekCheck(view.Check)
	if err != nil {
		return err
	}
	return check.Validate()
}

// checkOf returns the check in an event of an agent for a definition.
func checkOf(c *CheckConfig) *Check {
	return &Check{
		Metadata: c.Metadata, Interval: c.Interval, Cron: c.Cron, Publish: c.Publish, TTL: c.TTL,
		RuntimeAssets: c.RuntimeAssets, Subscriptions: c.Subscriptions, ProxyEntityName: c.ProxyEntityName,
		ProxyRequests: c.ProxyRequests, OutputMetricFormat: c.OutputMetricFormat,
		OutputMetricThresholds: c.OutputMetricThresholds, LowFlapThreshold: c.LowFlapThreshold,
		HighFlapThreshold: c.HighFlapThreshold, EnvVars: c.EnvVars, MaxOutputSize: c.MaxOutputSize,
		Subdue: c.Subdue, Subdues: c.Subdues,
	}
}

func TestScheduleRules(t *testing.T) {
	meta := ObjectMeta{Name: "c", Namespace: "default"}
	tests := []struct {
		name string
		v    validator
		want string
	}{
		{"definition without schedule", &CheckConfig{Metadata: meta},
			"check interval must be greater than 0 or a valid cron schedule must be provided"},
		{"definition without namespace", &CheckConfig{Interval: 1, Metadata: ObjectMeta{Name: "c"}}, "namespace must be set"},
		{"check without schedule", &Check{Metadata: meta}, ""},
		{"published check without schedule", &Check{Publish: true, Metadata: meta}, "check interval must be greater than or equal to 1"},
		{"unpublished check with two", &Check{Interval: 1, Cron: "often", Metadata: meta}, ""},
		{"check without namespace", &Check{Publish: true, Interval: 1, Metadata: ObjectMeta{Name: "c"}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			requireReason(t, tt.v, tt.want)
			if c, ok := tt.v.(*Check); ok {
				view, err := PeekCheck(c.AppendProto(nil))
				if err != nil {
					t.Fatal(err)
				}
				if err := view.validate(); (err == nil) != (tt.want == "") {
					t.Errorf("its view: %v", err)
				}
			}
		})
	}
}

func TestBrokenParts(t *testing.T) {
	const entity = "\x12\x11\x0a\x05proxy\x72\x08\x0a\x01e\x12\x03def"
	tests := []struct{ name, in, want string }{
		{"valid", "\x1a\x06\xb2\x02\x03\x0a\x01c", ""},
		{"two names", "\x22\x00\x2a\x00\x2a\x00", "decode Event field 5: sub-message given twice"},
		{"cut metadata", "\x22\x00\x2a\x01\x0a", "decode ObjectMeta field 1: unexpected EOF"},
		{"cut pipeline", "\x22\x00\x42\x01\x12", "decode ResourceReference field 2: unexpected EOF"},
		{"cut proxy requests", "\x1a\x0a\xb2\x02\x03\x0a\x01c\xa2\x01\x01\x10",
			"check is invalid: decode ProxyRequests field 2: unexpected EOF"},
		{"cut threshold", "\x1a\x0a\xb2\x02\x03\x0a\x01c\xfa\x02\x01\x0a",
			"check is invalid: decode MetricThreshold field 1: unexpected EOF"},
		{"the first of two", "\x1a\x0d\xb2\x02\x03\x0a\x01c\x52\x00\x5a\x00\x52\x01/", "check is invalid: asset's name cannot be empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { requireReason(t, encoded(entity+tt.in), tt.want) })
	}
}

func TestConfigValidate(t *testing.T) {
	meta := ObjectMeta{Name: "x", Namespace: "default"}
	cluster := ObjectMeta{Name: "x:y"}
	rules := []Rule{{Verbs: []string{"get", "*"}, Resources: []string{"anything"}}}
	subjects := []Subject{{Type: "Group", Name: "g"}, {Type: "User", Name: "u"}}
	socket := &HandlerSocket{Host: "h", Port: 1}
	tests := []struct {
		name string
		v    validator
		want string
	}{
		{"pipe", &Handler{Metadata: meta, Type: "pipe", Command: "cat"}, ""},
		{"tcp", &Handler{Metadata: meta, Type: "tcp", Socket: socket}, ""},
		{"set", &Handler{Metadata: meta, Type: "set"}, ""},
		{"webhook", &Handler{Metadata: meta, Type: "webhook", Webhook: &HandlerWebhook{URL: "https://example.com/x"}}, ""},
		{"handler name", &Handler{Type: "set"}, "handler name must not be empty"},
		{"no type", &Handler{Metadata: meta}, "empty handler type"},
		{"type", &Handler{Metadata: meta, Type: "smtp"}, "unknown handler type: smtp"},
		{"no command", &Handler{Metadata: meta, Type: "pipe", Command: " "}, "missing command"},
		{"no socket", &Handler{Metadata: meta, Type: "udp"}, "tcp and udp handlers need a valid socket"},
		{"no host", &Handler{Metadata: meta, Type: "tcp", Socket: &HandlerSocket{Port: 1}}, "socket host undefined"},
		{"no port", &Handler{Metadata: meta, Type: "tcp", Socket: &HandlerSocket{Host: "h"}}, "socket port undefined"},
		{"no webhook", &Handler{Metadata: meta, Type: "webhook"}, "webhook handlers need a valid url"},
		{"webhook scheme", &Handler{Metadata: meta, Type: "webhook", Webhook: &HandlerWebhook{URL: "ftp://h/x"}},
			"webhook handlers need a valid url"},
		{"webhook host", &Handler{Metadata: meta, Type: "webhook", Webhook: &HandlerWebhook{URL: "http:///x"}},
			"webhook handlers need a valid url"},
		{"webhook url", &Handler{Metadata: meta, Type: "webhook", Webhook: &HandlerWebhook{URL: "http://h:x/"}},
			"webhook handlers need a valid url"},
		{"handler namespace", &Handler{Metadata: ObjectMeta{Name: "x"}, Type: "set"}, "namespace must be set"},
		{"handler environment", &Handler{Metadata: meta, Type: "set", EnvVars: []string{"A"}},
			"environment variables must be of the form FOO=BAR"},

		{"namespace", &Namespace{Name: "dev"}, ""},
		{"no namespace name", &Namespace{}, "namespace name must not be empty"},
		{"namespace name", &Namespace{Name: "a b"}, "namespace name cannot contain spaces or special characters"},

		{"user", &User{Username: "a.b-c_1", Password: "P@ssw0rd!"}, ""},
		{"stored user", &User{Username: "a", PasswordHash: "$2a$"}, ""},
		{"no username", &User{Password: "P@ssw0rd!"}, "username must not be empty"},
		{"username", &User{Username: "Bob", Password: "P@ssw0rd!"}, "username cannot contain spaces or special characters"},
		{"no password", &User{Username: "bob"}, "a password or its hash is required"},
		{"short password", &User{Username: "bob", Password: "short"}, "password length must be at least 8 characters"},

		{"role", &Role{Metadata: meta, Rules: rules}, ""},
		{"role name", &Role{Rules: rules}, "the Role name must not be empty"},
		{"role namespace", &Role{Metadata: ObjectMeta{Name: "x"}, Rules: rules}, "the Role namespace must be set"},
		{"no rule", &Role{Metadata: meta}, "a Role must have at least one rule"},
		{"verb", &Role{Metadata: meta, Rules: []Rule{{Verbs: []string{"fly"}}}}, `the verb "fly" is not valid`},

		{"cluster role", &ClusterRole{Metadata: cluster, Rules: rules}, ""},
		{"cluster role name", &ClusterRole{Metadata: ObjectMeta{Name: "a:b:c"}},
			"the ClusterRole name cannot contain spaces or special characters"},
		{"cluster role namespace", &ClusterRole{Metadata: meta, Rules: rules}, "ClusterRole cannot have a namespace"},
		{"no cluster rule", &ClusterRole{Metadata: cluster}, "a ClusterRole must have at least one rule"},

		{"binding", &RoleBinding{Metadata: meta, RoleRef: RoleRef{"ClusterRole", "r"}, Subjects: subjects}, ""},
		{"binding name", &RoleBinding{}, "the RoleBinding name must not be empty"},
		{"binding namespace", &RoleBinding{Metadata: ObjectMeta{Name: "x"}}, "the RoleBinding namespace must be set"},
		{"no subject", &RoleBinding{Metadata: meta, RoleRef: RoleRef{"Role", "r"}}, "a RoleBinding must have at least one subject"},
		{"role type", &RoleBinding{Metadata: meta, RoleRef: RoleRef{"Foo", "r"}, Subjects: subjects},
			`roleRef type "Foo" is invalid, expected either "ClusterRole" or "Role"`},
		{"role reference", &RoleBinding{Metadata: meta, RoleRef: RoleRef{"Role", ""}, Subjects: subjects},
			"roleRef name for Role is required"},
		{"subject type", &RoleBinding{Metadata: meta, RoleRef: RoleRef{"Role", "r"},
			Subjects: []Subject{{"Foo", "x"}}}, `subject type "Foo" is invalid, expected either "Group" or "User"`},
		{"subject name", &RoleBinding{Metadata: meta, RoleRef: RoleRef{"Role", "r"},
			Subjects: []Subject{{"User", ""}}}, "subject name for User is required"},

		{"cluster binding", &ClusterRoleBinding{Metadata: cluster, RoleRef: RoleRef{"ClusterRole", "r"}, Subjects: subjects}, ""},
		{"cluster binding name", &ClusterRoleBinding{}, "the ClusterRoleBinding name must not be empty"},
		{"cluster binding namespace", &ClusterRoleBinding{Metadata: meta}, "ClusterRoleBinding cannot have a namespace"},
		{"no cluster subject", &ClusterRoleBinding{Metadata: cluster, RoleRef: RoleRef{"ClusterRole", "r"}},
			"a ClusterRoleBinding must have at least one subject"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { requireReason(t, tt.v, tt.want) })
	}
}
