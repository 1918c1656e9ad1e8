package migrate

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/client"
)

// kind is how resources of one kind are read, compared and written.
type kind struct {
	client.Kind[json.RawMessage]

	// nameField is where the name is, for kinds without metadata. The others have it in metadata.name, and events in
	// their entity and check.
	nameField string
	// types are further names in wrapped resources.
	types []string
	// silent kinds are counted, but their changes are not told one by one: there can be half a million.
	silent bool
	// secrets says that the source may show a placeholder in the place of a secret.
	secrets bool
	// hidden says that what differs is not told: it may be a secret.
	hidden bool

	// leave says why a resource is never copied; hold why it is not, given what the target has.
	leave func(m *migration, o *object) (reason, hint string)
	hold  func(m *migration, o *object, old *summary) (reason, hint string)
	// becomes, if set, is another kind of the target that the resources are converted to.
	becomes *conversion
	// adapt changes a resource before it is compared.
	adapt func(m *migration, o *object)
	// valid says why the target would refuse a body, for dry runs: it is what the target asks too.
	valid func(body []byte) error
	// normal makes trees comparable: it takes out what the target sets by itself.
	normal func(tree map[string]any)
	// ignore is asked about the fields that differ: is the difference one that writing would not, or need not, end?
	ignore func(o *object, field string) bool
	// find looks for a resource in the target, for kinds whose lists do not show the names that the source knows.
	find func(ctx context.Context, m *migration, o *object) (*summary, error)
	// foresee remarks on what writing will not bring, also in a dry run.
	foresee func(m *migration, o *object, old *summary)
	// write sends a resource; old is nil if the target has none. Default: put. A reason says why nothing was sent.
	write func(ctx context.Context, m *migration, o *object, old *summary) (reason, hint string, err error)
}

// step is a kind, or a part of its resources, that is copied when those before are.
type step struct {
	kind *kind
	// only says which resources belong to the step. Default: all.
	only func(*object) bool
	// more says that a later step has the rest of the kind.
	more bool
	// prepare is called before the step.
	prepare func(context.Context, *migration) error
}

func core[T any](k client.Kind[T]) kind {
	out := kind{Kind: client.Kind[json.RawMessage](k)}
	if _, ok := any(new(T)).(interface{ Validate() error }); ok && !k.Wrapped {
		out.valid = func(body []byte) error {
			one := new(T)
			if err := json.Unmarshal(body, one); err != nil {
				return err
			}
			return any(one).(interface{ Validate() error }).Validate()
		}
	}
	return out
}

func plain[T any](k client.Kind[T]) *kind { return with(core(k), func(*kind) {}) }

func with(k kind, change func(*kind)) *kind {
	change(&k)
	return &k
}

// sold is a kind of Sensu's commercial edition.
func sold(group, typ, plural string, namespaced bool) *kind {
	return &kind{
		Kind:    client.Kind[json.RawMessage]{Type: typ, Plural: plural, Group: group, Namespaced: namespaced, Wrapped: true},
		secrets: true, hidden: true,
	}
}

// steps are all kinds in the order in which they are sent. Users come before what gives them rights, which comes before
// what they use; the rest follows so that
//   - entities exist before events name them, or events would make proxy entities of their own;
//   - silences are there when events come, except for those that end with a resolution: an event that was resolved long
//     ago would end them;
//   - events come before handlers and pipelines, so that no incident is alerted once more;
//   - checks come last, when all they name is there.
var steps = []step{
	{kind: namespaceKind},
	{kind: userKind},
	{kind: with(core(client.ClusterRoles), splitRules)},
	{kind: with(core(client.Roles), splitRules)},
	{kind: plain(client.ClusterRoleBindings)},
	{kind: plain(client.RoleBindings)},
	{kind: apiKeyKind},
	{kind: authProviderKind},
	{kind: with(*sold("secrets/v1", "Env", "providers", false), func(k *kind) { k.types = []string{"VaultProvider", "CyberArkProvider"} })},
	{kind: sold("secrets/v1", "Secret", "secrets", true)},
	{kind: plain(client.Tessen)},
	{kind: plain(client.Assets)},
	{kind: plain(client.Hooks)},
	{kind: plain(client.Filters)},
	{kind: with(core(client.Mutators), func(k *kind) { k.foresee = needsEnvironment })},
	{kind: entityKind},
	{kind: silencedKind, only: func(o *object) bool { return !endsOnResolve(o) }, more: true},
	{kind: eventKind, prepare: findHandlers},
	{kind: silencedKind, only: endsOnResolve},
	{kind: handlerKind},
	{kind: sold("pipeline/v1", "SumoLogicMetricsHandler", "sumo-logic-metrics-handlers", true)},
	{kind: with(*sold("pipeline/v1", "TCPStreamHandler", "tcp-stream-handlers", true), func(k *kind) { k.becomes = streamConversion })},
	{kind: with(core(client.Pipelines), func(k *kind) { k.adapt = useHandlers })},
	{kind: plain(client.FallbackPipelines)},
	{kind: checkKind},
	{kind: with(*sold("bsm/v1", "RuleTemplate", "rule-templates", true), func(k *kind) { k.leave = ruleTemplates })},
	{kind: with(*sold("bsm/v1", "ServiceComponent", "service-components", true), func(k *kind) { k.becomes = componentConversion })},
	{kind: sold("searches/v1", "Search", "searches", true)},
	{kind: sold("web/v1", "GlobalConfig", "config", false)},
	{kind: sold("federation/v1", "Cluster", "clusters", false)},
	{kind: sold("federation/v1", "EtcdReplicator", "etcd-replicators", false)},
}

var (
	namespaceKind = with(core(client.Namespaces), func(k *kind) { k.nameField = "name" })
	checkKind     = plain(client.Checks)
	handlerKind   = with(core(client.Handlers), func(k *kind) { k.foresee = needsEnvironment })
)

// authProviderKind is what signs people in. Its types stand for themselves in wrapped resources.
var authProviderKind = with(*sold("authentication/v2", "AuthProvider", "authproviders", false), func(k *kind) {
	k.types = []string{"ldap", "ad", "oidc"}
})

// kindOf finds the kind of a wrapped resource.
func kindOf(apiVersion, typ string) (*kind, bool) {
	for _, s := range steps {
		if (apiVersion == "" || apiVersion == s.kind.Version()) && (s.kind.Type == typ || slices.Contains(s.kind.types, typ)) {
			return s.kind, true
		}
	}
	return nil, false
}

func kindNames() string {
	var names []string
	for _, s := range steps {
		if !s.more {
			names = append(names, s.kind.Plural)
		}
	}
	return strings.Join(names, ", ")
}

// chunk is how many resources are asked for in one request: Sensu's server gives up an answer after 15 s.
func (k *kind) chunk() int {
	if k.Plural == "events" {
		return 500
	}
	return 1000
}

// put is how most kinds are written.
func put(ctx context.Context, m *migration, o *object, _ *summary) (reason, hint string, err error) {
	return "", "", m.Target.Do(ctx, http.MethodPut, o.path(), o.wire(), nil)
}

// splitRules is for roles: each entry of a rule's lists may hold several, separated by commas.
func splitRules(k *kind) {
	k.normal = func(tree map[string]any) {
		rules, _ := tree["rules"].([]any)
		for _, rule := range rules {
			rule, _ := rule.(map[string]any)
			for _, field := range []string{"verbs", "resources", "resource_names"} {
				var split []any
				list, _ := rule[field].([]any)
				for _, entry := range list {
					text, _ := entry.(string)
					for part := range strings.SplitSeq(text, ",") {
						split = append(split, strings.TrimSpace(part))
					}
				}
				if split != nil {
					rule[field] = split
				}
			}
		}
	}
}
