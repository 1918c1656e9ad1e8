package references

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func meta(name string) resource.ObjectMeta {
	return resource.ObjectMeta{Namespace: "default", Name: name}
}

// nothingBeyond knows nothing but definitions.
var nothingBeyond = Beyond{
	Rules:    func([]resource.Rule) string { return "" },
	Reported: func(string) map[string]bool { return nil },
}

// stored are the definitions that references of the tests may name.
func stored() *config.Snapshot {
	sn := config.Empty()
	sn = config.With(sn, config.Handlers, &resource.Handler{Metadata: meta("slack"), Type: "slack"})
	sn = config.With(sn, config.Filters, &resource.EventFilter{Metadata: meta("business-hours")})
	sn = config.With(sn, config.Assets, &resource.Asset{Metadata: meta("sensu/plugins")})
	sn = config.With(sn, config.Pipelines, &resource.Pipeline{Metadata: meta("incidents")})
	sn = config.With(sn, config.FallbackPipelines, &resource.FallbackPipeline{Metadata: meta("paging"),
		Pipelines: []*resource.ResourceReference{{Type: "Pipeline", Name: "incidents"}}})
	sn = config.With(sn, config.Users, &resource.User{Username: "alice"})
	sn = config.With(sn, config.ClusterRoles, &resource.ClusterRole{Metadata: resource.ObjectMeta{Name: "view"}})
	sn = config.With(sn, config.Entities, &resource.EntityConfig{Metadata: meta("srv1"), Subscriptions: []string{"linux", "entity:srv1"}})
	sn = config.With(sn, config.Contacts, &resource.Contact{Metadata: meta("alice"), Handlers: []string{"slack"}})
	return sn
}

func TestFind(t *testing.T) {
	known := stored()
	known = config.With(known, config.RoleBindings, &resource.RoleBinding{Metadata: resource.ObjectMeta{Namespace: "dev", Name: "b"},
		RoleRef: resource.RoleRef{Type: "ClusterRole", Name: "view"}, Subjects: []resource.Subject{{Type: "Group", Name: "ops"}}})
	known = config.With(known, config.ClusterRoleBindings, &resource.ClusterRoleBinding{Metadata: resource.ObjectMeta{Name: "b"},
		RoleRef: resource.RoleRef{Type: "ClusterRole", Name: "view"}, Subjects: []resource.Subject{{Type: "Group", Name: "admins"}}})
	ref := func(typ, name string) *resource.ResourceReference {
		return &resource.ResourceReference{Type: typ, Name: name, APIVersion: "core/v2"}
	}
	for name, c := range map[string]struct {
		obj  any
		want string
	}{
		"a check with all it names": {&resource.CheckConfig{Metadata: meta("c"), Handlers: []string{"slack"}, RuntimeAssets: []string{"sensu/plugins"},
			Subscriptions: []string{"linux", "entity:srv1"}, Pipelines: []resource.ResourceReference{*ref("Pipeline", "incidents")}}, ""},
		"a check": {&resource.CheckConfig{Metadata: meta("c"), Handlers: []string{"slcak", "slcak"}, RuntimeAssets: []string{"none"},
			Subscriptions: []string{"linnux"}, CheckHooks: []resource.HookList{{Hooks: []string{"ps"}}},
			Pipelines: []resource.ResourceReference{*ref("Pipeline", "incident")}, Calendars: &resource.CheckCalendars{NotWithin: []string{"nights"}}},
			`handler "slcak" does not exist (slack?); asset "none" does not exist; pipeline "incident" does not exist (incidents?); ` +
				`hook "ps" does not exist; calendar "nights" does not exist; subscription "linnux": no entity has it (linux?)`},
		"a fallback pipeline": {&resource.CheckConfig{Metadata: meta("c"), FallbackPipeline: ref("FallbackPipeline", "pagign")},
			`fallback pipeline "pagign" does not exist (paging?)`},
		"another namespace": {&resource.CheckConfig{Metadata: resource.ObjectMeta{Namespace: "dev", Name: "c"}, Handlers: []string{"slack"}},
			`handler "slack" does not exist`},
		"a handler": {&resource.Handler{Metadata: meta("h"), Type: "set", Filters: []string{"is_incident", "not_silenced", "business-hour"},
			Mutator: "json", Handlers: []string{"slack", "x"}}, `filter "business-hour" does not exist (business-hours?); handler "x" does not exist`},
		"built-in filters and mutators": {&resource.Handler{Metadata: meta("h"), Type: "pipe", Mutator: "jsno",
			Filters: []string{"not_silencd", "fatige_check", "is_incidents"}}, `filter "not_silencd" does not exist (not_silenced?); ` +
			`filter "fatige_check" does not exist (fatigue_check?); filter "is_incidents" does not exist (is_incident?); ` +
			`mutator "jsno" does not exist (json?)`},
		"an escalation": {&resource.Handler{Metadata: meta("h"), Type: "escalation", Escalation: &resource.HandlerEscalation{
			Steps: []resource.EscalationStep{{Notify: []resource.EscalationTarget{{Contact: "alcie"}, {Rota: "ops"}, {Handler: "slack"}, {Label: "x"}}}},
			Quiet: []resource.EscalationQuiet{{Calendars: []string{"nights"}}}}},
			`contact "alcie" does not exist (alice?); rota "ops" does not exist; calendar "nights" does not exist`},
		"a calendar": {&resource.Calendar{Metadata: meta("work"), Include: []string{"spare"}, Except: []resource.CalendarWindow{
			{Calendar: "holidays"}, {Dates: []string{"12-25"}}}}, `calendar "spare" does not exist; calendar "holidays" does not exist`},
		"a pipeline": {&resource.Pipeline{Metadata: meta("p"), Workflows: []resource.PipelineWorkflow{{Name: "w",
			Filters: []*resource.ResourceReference{ref("EventFilter", "has_metrics"), ref("EventFilter", "x")},
			Mutator: ref("Mutator", "m"), Handler: ref("Handler", "slack")}, {Name: "v", Handler: ref("SumoLogicMetricsHandler", "sumo")}}},
			`filter "x" does not exist; mutator "m" does not exist`},
		"a binding": {&resource.RoleBinding{Metadata: meta("b"), RoleRef: resource.RoleRef{Type: "ClusterRole", Name: "views"},
			Subjects: []resource.Subject{{Type: "User", Name: "alcie"}, {Type: "Group", Name: "ops"}}},
			`cluster role "views" does not exist (view?); user "alcie" does not exist (alice?)`},
		"a user": {&resource.User{Username: "bob", Groups: []string{"ops", "admin", "opps"}}, `group "admin": no role binding and no cluster ` +
			`role binding names it (admins?); group "opps": no role binding and no cluster role binding names it (ops?)`},
		"a user who may not sign in": {&resource.User{Username: "bob", Groups: []string{"opps"}, Disabled: true}, ""},
		"a namespace":                {&resource.Namespace{Name: "x"}, ""},
	} {
		var texts []string
		for _, m := range Find(known, c.obj) {
			texts = append(texts, m.String())
		}
		if got := strings.Join(texts, "; "); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
	// users may come from a sign-in provider
	sn := config.With(stored(), config.AuthProviders, &resource.AuthProvider{Metadata: resource.ObjectMeta{Name: "ldap"}})
	if got := Find(sn, &resource.RoleBinding{Metadata: meta("b"), RoleRef: resource.RoleRef{Type: "ClusterRole", Name: "view"},
		Subjects: []resource.Subject{{Type: "User", Name: "bob"}}}); len(got) > 0 {
		t.Errorf("with a provider: %v", got)
	}
}

func TestLint(t *testing.T) {
	sn := stored()
	sn = config.With(sn, config.Checks, &resource.CheckConfig{Metadata: meta("alone"), Interval: 10, Publish: true, Command: " ", Handlers: []string{"slack"}})
	sn = config.With(sn, config.Checks, &resource.CheckConfig{Metadata: meta("never"), Publish: true, Command: "true", Subscriptions: []string{"linux"}, Handlers: []string{"gone"}})
	sn = config.With(sn, config.Checks, &resource.CheckConfig{Metadata: meta("idle"), Interval: 10})
	sn = config.With(sn, config.Checks, &resource.CheckConfig{Metadata: meta("mute"), Interval: 10, Publish: false, Subscriptions: []string{"linux"}})
	sn = config.With(sn, config.Silences, &resource.Silenced{Metadata: meta("entity:gone:*"), Subscription: "entity:gone"})
	sn = config.With(sn, config.Silences, &resource.Silenced{Metadata: meta("linux:*"), Subscription: "linux", ExpireOnResolve: true})
	for _, check := range []string{"nevr", "never", "keepalive"} {
		sn = config.With(sn, config.Silences, &resource.Silenced{Metadata: meta("*:" + check), Check: check, ExpireOnResolve: true})
	}
	sn = config.With(sn, config.Pipelines, &resource.Pipeline{Metadata: meta("hollow"), Workflows: []resource.PipelineWorkflow{{Name: "w"}}})
	secrets := []resource.Secret{{Name: "TOKEN", Secret: "token"}}
	sn = config.With(sn, config.Checks, &resource.CheckConfig{Metadata: meta("vault"), Interval: 10, Publish: true, Command: "true", Subscriptions: []string{"linux"},
		Secrets: secrets, Subdue: &resource.TimeWindowWhen{Days: resource.TimeWindowDays{Friday: []resource.TimeWindowTimeRange{{Begin: "5:00PM", End: "6:00PM"}}}}})
	sn = config.With(sn, config.Checks, &resource.CheckConfig{Metadata: meta("plain"), Interval: 10, Publish: true, Command: "true", Subscriptions: []string{"linux"},
		Handlers: []string{"slack"}, Subdue: &resource.TimeWindowWhen{}})
	sn = config.With(sn, config.Handlers, &resource.Handler{Metadata: meta("page"), Type: "pipe", Secrets: secrets})
	sn = config.With(sn, config.Handlers, &resource.Handler{Metadata: meta("socket"), Type: "tcp", Secrets: secrets})
	sn = config.With(sn, config.Mutators, &resource.Mutator{Metadata: meta("shape"), Secrets: secrets})
	sn = config.With(sn, config.Mutators, &resource.Mutator{Metadata: meta("script"), Type: "javascript", Secrets: secrets})
	const none = "it wants secrets (TOKEN) and there are no secrets providers, so "
	sn = config.With(sn, config.FallbackPipelines, &resource.FallbackPipeline{Metadata: meta("spare")})
	sn = config.With(sn, config.Checks, &resource.CheckConfig{Metadata: meta("falls"), Interval: 10, Publish: true, Command: "true", Subscriptions: []string{"linux"},
		FallbackPipeline: &resource.ResourceReference{Type: "FallbackPipeline", Name: "paging"}})
	sn = config.With(sn, config.Handlers, &resource.Handler{Metadata: meta("filtered"), Type: "pipe", Filters: []string{"is_incident"}})
	sn = config.With(sn, config.Checks, &resource.CheckConfig{Metadata: meta("quiet"), Interval: 10, Publish: true,
		Subscriptions: []string{"linux"}, Handlers: []string{"filtered", "slack"}})
	sn = config.With(sn, config.ClusterRoleBindings, &resource.ClusterRoleBinding{Metadata: resource.ObjectMeta{Name: "all"},
		RoleRef: resource.RoleRef{Type: "ClusterRole", Name: "veiw"}})
	sn = config.With(sn, config.Users, &resource.User{Username: "rita", Groups: []string{"reds"}})
	sn = config.With(sn, config.RoleBindings, &resource.RoleBinding{Metadata: meta("team"), RoleRef: resource.RoleRef{Type: "Role", Name: "team"},
		Subjects: []resource.Subject{{Type: "Group", Name: "reds"}, {Type: "Group", Name: "redd"}, {Type: "Group", Name: "system:users"}}})
	for _, typ := range []string{"escalation", "graphite", "influx"} {
		sn = config.With(sn, config.Handlers, &resource.Handler{Metadata: meta("of-" + typ), Type: typ})
		sn = config.With(sn, config.Checks, &resource.CheckConfig{Metadata: meta("feeds-" + typ), Interval: 10, Publish: true,
			Subscriptions: []string{"linux"}, Handlers: []string{"of-" + typ}})
	}
	sn = config.With(sn, config.Handlers, &resource.Handler{Metadata: meta("mail"), Type: "email", Email: &resource.HandlerEmail{
		To: []string{"{{ .Contact.Email }}"}}})
	sn = config.With(sn, config.Handlers, &resource.Handler{Metadata: meta("copy"), Type: "email", Email: &resource.HandlerEmail{
		To: []string{"{{ .Contact.Email }}", "ops@example.org"}}})
	for name, email := range map[string]string{"carol": "", "dave": "dave@example.org"} {
		sn = config.With(sn, config.Contacts, &resource.Contact{Metadata: meta(name), Email: email, Handlers: []string{"copy", "mail", "slack", "gone"}})
	}
	sn = config.With(sn, config.Checks, &resource.CheckConfig{Metadata: meta("alone2"), Subscriptions: []string{"linux"}, Handlers: []string{"copy", "mail"}})
	sn = config.With(sn, config.Handlers, &resource.Handler{Metadata: meta("steps"), Type: "escalation", Escalation: &resource.HandlerEscalation{
		Steps: []resource.EscalationStep{{Notify: []resource.EscalationTarget{{Contact: "dave"}, {Handler: "mail"}}}}}})
	sn = config.With(sn, config.Rotas, &resource.Rota{Metadata: meta("primary"), Contacts: []string{"dave"},
		Overrides: []resource.RotaOverride{{Contact: "carol"}, {Contact: "gone"}}})
	for name, file := range map[string]string{"forgotten": `{"interval":10}`, "meant": `{"publish":false}`} {
		m := meta(name)
		m.Annotations = map[string]string{"lapwing.io/last-applied": file}
		sn = config.With(sn, config.Checks, &resource.CheckConfig{Metadata: m, Interval: 10, Subscriptions: []string{"linux"}})
	}
	var got []string
	beyond := nothingBeyond
	beyond.Reported = func(string) map[string]bool { return map[string]bool{"keepalive": true} }
	for _, f := range Lint(sn, "default", beyond) {
		got = append(got, fmt.Sprintf("%s %s/%s: %s", f.Severity, f.Kind, f.Name, f.Text))
	}
	for _, want := range []string{
		"warning check/alone: it has no subscription, so no agent runs it",
		"warning check/alone: its command is empty, so its result is always OK",
		"warning check/idle: it has no subscription, so no agent runs it",
		`warning check/never: handler "gone" does not exist`,
		"warning check/never: it has neither an interval nor a cron, so it never runs by itself",
		"warning check/forgotten: its file has no publish: true, so it runs only when it is asked to",
		"note check/meant: publish is false, so it runs only when it is asked to",
		"note handler/slack: it has no filters, so it gets each result of check alone, also OK ones",
		"note check/mute: publish is false, so it runs only when it is asked to",
		"note check/mute: it names no handler and no pipeline, so its incidents notify no one",
		"warning silenced/entity:gone:*: it has no end",
		"note silenced/*:nevr: the check nevr does not exist, and no event is of it (never?)",
		"note silenced/entity:gone:*: the entity gone does not exist",
		`warning cluster-role-binding/all: cluster role "veiw" does not exist (view?)`,
		"note role-binding/team: no user has the group redd (reds?)",
		"warning pipeline/hollow: workflow w has no handler, so it can never fire",
		"note pipeline/hollow: no definition names it; events from agents may",
		"note fallback-pipeline/spare: no definition names it; events from agents may",
		"note filter/business-hours: no definition names it",
		"warning check/vault: " + none + "it does not run and its events are unknown: remove secrets, and use env_vars or a file on the hosts of the agents",
		"warning check/vault: subdue does nothing, as in Sensu: use subdues",
		"warning handler/page: " + none + "all its alerts become dead letters: " +
			"remove secrets, and use env_vars, --handler-env of the backend, or a file",
		"warning mutator/shape: " + none + "handlers that use it send nothing: remove secrets, and use env_vars, --handler-env of the backend, or a file",
		"note asset/sensu/plugins: no definition names it",
		"warning check/alone2: handler mail sends only to the email of a contact, and no contact is named here",
		"warning handler/steps: handler mail sends only to the email of a contact, and no contact is named here",
		"warning contact/carol: it has no email, and handler mail sends only to that",
		"warning rota/primary: contact carol: it has no email, and handler mail sends only to that",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("not found: %s", want)
		}
	}
	for _, not := range []string{"handler/slack: no def", "handler/filtered", "handler/of-", "silenced/linux",
		"silenced/*:never", "silenced/*:keepalive", "user/", "the group reds", "the group system:", "contact/dave: it", "handler copy sends", "check/plain", "check/idle: its command", "warning handler/socket", "warning mutator/script",
		"check/falls", "pipeline/paging"} {
		if i := slices.IndexFunc(got, func(s string) bool { return strings.Contains(s, not) }); i >= 0 {
			t.Errorf("found %s", got[i])
		}
	}
	if i, j := slices.IndexFunc(got, isNote), len(got); i < 0 || slices.ContainsFunc(got[i:j], func(s string) bool { return !isNote(s) }) {
		t.Errorf("warnings come behind notes: %q", got)
	}
	if other := Lint(sn, "dev", nothingBeyond); len(other) != 1 || other[0].Namespace != "" {
		t.Errorf("another namespace: %+v", other)
	}
}

// TestLintDeserted: in a namespace without agents, no agent runs any check. That is said once.
func TestLintDeserted(t *testing.T) {
	check := func(namespace, name string, subscriptions ...string) *resource.CheckConfig {
		return &resource.CheckConfig{Metadata: resource.ObjectMeta{Namespace: namespace, Name: name}, Interval: 10, Publish: true,
			Command: "true", Subscriptions: subscriptions, Handlers: []string{"slack"}}
	}
	const nobody = ": the namespace has no entity with a subscription, so no agent runs it"
	for name, c := range map[string]struct {
		checks []*resource.CheckConfig
		want   string
	}{
		"one": {[]*resource.CheckConfig{check("green", "g1", "lnux")}, `green/g1: subscription "lnux"` + nobody},
		"two": {[]*resource.CheckConfig{check("green", "g1", "lnux"), check("green", "g2", "linux")},
			`green/g1: subscription "lnux"` + nobody + ` and 1 more check of this namespace`},
		"three": {[]*resource.CheckConfig{check("green", "g1", "a"), check("green", "g2", "b"), check("green", "g3", "c")},
			`green/g1: subscription "a"` + nobody + ` and 2 more checks of this namespace`},
		"entities":        {[]*resource.CheckConfig{check("default", "g1", "linux")}, ""},
		"no subscription": {[]*resource.CheckConfig{check("green", "g1")}, "green/g1: it has no subscription, so no agent runs it"},
	} {
		sn := stored()
		for _, one := range c.checks {
			sn = config.With(sn, config.Checks, one)
			sn = config.With(sn, config.Handlers, &resource.Handler{Metadata: resource.ObjectMeta{Namespace: one.Metadata.Namespace, Name: "slack"}})
		}
		var got []string
		for _, f := range Lint(sn, "", nothingBeyond) {
			if f.Kind == "check" && f.Severity == warning {
				got = append(got, f.Namespace+"/"+f.Name+": "+f.Text)
			}
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func isNote(s string) bool { return strings.HasPrefix(s, "note") }

// TestEntities: what entities name counts as named, and is warned of if it is not there.
func TestEntities(t *testing.T) {
	sn := config.With(stored(), config.Entities, &resource.EntityConfig{Metadata: meta("web1"), KeepaliveHandlers: []string{"alive"},
		Deregistration: resource.Deregistration{Handler: "slack"}})
	var got []string
	for _, f := range Lint(sn, "default", nothingBeyond) {
		if f.Kind == "entity" || f.Name == "slack" {
			got = append(got, fmt.Sprintf("%s %s/%s: %s", f.Severity, f.Kind, f.Name, f.Text))
		}
	}
	if want := []string{`warning entity/web1: handler "alive" does not exist`}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for handler, want := range map[string]string{"alive": "Entity web1", "slack": "Contact alice, Entity web1"} {
		var names []string
		for _, r := range Referrers(sn, "default", func(resource, name string) bool { return resource == "handlers" && name == handler }) {
			names = append(names, r.Type+" "+r.Name)
		}
		if got := strings.Join(names, ", "); got != want {
			t.Errorf("%s is named by %s, want %s", handler, got, want)
		}
	}
}

// TestExpressions: calendars that filters ask for count as named, and members of events and functions that do not exist are
// doubtful.
func TestExpressions(t *testing.T) {
	sn := config.With(stored(), config.Filters, &resource.EventFilter{Metadata: meta("office"), Action: "allow",
		Expressions: []string{`in_calendar("ofice")`, "event.check.occurences == 2", "in_calender('office')"}})
	sn = config.With(sn, config.Filters, &resource.EventFilter{Metadata: meta("helped"), Action: "allow", RuntimeAssets: []string{"sensu/plugins"},
		Expressions: []string{"of_the_asset(event)", `in_calendar("office")`}})
	sn = config.With(sn, config.Calendars, &resource.Calendar{Metadata: meta("office")})
	var got []string
	for _, f := range Lint(sn, "default", nothingBeyond) {
		if f.Kind == "filter" && f.Severity == "warning" || f.Kind == "calendar" {
			got = append(got, f.Kind+"/"+f.Name+": "+f.Text)
		}
	}
	want := []string{
		`filter/office: calendar "ofice" does not exist (office?), so in_calendar is false`,
		"filter/office: expression 2: no event has event.check.occurences (event.check.occurrences?)",
		"filter/office: expression 3: there is no function in_calender (in_calendar?)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	named := func(resource, name string) bool { return resource == "calendars" && name == "office" }
	if found := Referrers(sn, "default", named); len(found) != 1 || found[0].Name != "helped" {
		t.Errorf("the calendar is named by %+v", found)
	}
}

// TestTargets: each kind that a definition may name can be looked up, and referrers are found of each.
func TestTargets(t *testing.T) {
	ref := &resource.ResourceReference{Name: "x"}
	for _, obj := range []any{
		&resource.CheckConfig{Metadata: meta("c"), Handlers: []string{"x"}, RuntimeAssets: []string{"x"}, FallbackPipeline: ref,
			Pipelines: []resource.ResourceReference{*ref}, CheckHooks: []resource.HookList{{Hooks: []string{"x"}}},
			Calendars: &resource.CheckCalendars{RunWithin: []string{"x"}}},
		&resource.Handler{Metadata: meta("h"), Filters: []string{"x"}, Mutator: "x", Escalation: &resource.HandlerEscalation{
			Steps: []resource.EscalationStep{{Notify: []resource.EscalationTarget{{Contact: "x", Rota: "x"}}}}}},
		&resource.Silenced{Metadata: meta("s"), RemindHandlers: []string{"x"}},
		&resource.EntityConfig{Metadata: meta("e"), KeepaliveHandlers: []string{"x"}, Deregistration: resource.Deregistration{Handler: "y"}},
		&resource.APIKey{Metadata: resource.ObjectMeta{Name: "k"}, Username: "x"},
		&resource.RoleBinding{Metadata: meta("b"), RoleRef: resource.RoleRef{Type: "Role", Name: "x"}},
		&resource.ClusterRoleBinding{RoleRef: resource.RoleRef{Type: "ClusterRole", Name: "x"}, Subjects: []resource.Subject{{Type: "User", Name: "x"}}},
	} {
		_, uses := resource.Uses(obj)
		for _, u := range uses {
			if _, ok := targets[u.Kind]; !ok {
				t.Errorf("%T names a %s, which is no target", obj, u.Kind.Word())
			}
		}
		if missing := Find(stored(), obj); len(missing) != len(uses) {
			t.Errorf("%T: missing %v of %v", obj, missing, uses)
		}
	}
}

// TestReferrersWithProvider: users that are stored are named also if others come from a sign-in provider.
func TestReferrersWithProvider(t *testing.T) {
	sn := config.With(stored(), config.AuthProviders, &resource.AuthProvider{Metadata: resource.ObjectMeta{Name: "ldap"}})
	sn = config.With(sn, config.ClusterRoleBindings, &resource.ClusterRoleBinding{Metadata: resource.ObjectMeta{Name: "views"},
		RoleRef: resource.RoleRef{Type: "ClusterRole", Name: "view"}, Subjects: []resource.Subject{{Type: "User", Name: "alice"}}})
	sn = config.With(sn, config.Checks, &resource.CheckConfig{Metadata: meta("c"),
		FallbackPipeline: &resource.ResourceReference{Type: "FallbackPipeline", Name: "paging"}})
	for _, c := range []struct{ resource, name, want string }{
		{"users", "alice", "ClusterRoleBinding views user"},
		{"fallbackPipeline", "paging", "CheckConfig c fallback pipeline"},
	} {
		found := Referrers(sn, "", func(resource, name string) bool { return resource == c.resource && name == c.name })
		if len(found) != 1 || found[0].Type+" "+found[0].Name+" "+found[0].What != c.want {
			t.Errorf("%s/%s: %v, want %s", c.resource, c.name, found, c.want)
		}
	}
}

// TestManyMissingNames: each is found once, and a similar one is searched only for the first.
func TestManyMissingNames(t *testing.T) {
	c := &resource.CheckConfig{Metadata: meta("c")}
	for i := range 20_000 {
		c.Handlers = append(c.Handlers, fmt.Sprintf("slack%d", i), fmt.Sprintf("slack%d", i))
		c.Subscriptions = append(c.Subscriptions, fmt.Sprintf("linux%d", i))
	}
	found := Find(stored(), c)
	if len(found) != 40_000 {
		t.Errorf("%d names are missing, want 40000", len(found))
	}
	for i, m := range found {
		if (m.Nearest != "") != (i < maxNearest) {
			t.Fatalf("the nearest to name %d is %q", i, m.Nearest)
		}
	}
}
