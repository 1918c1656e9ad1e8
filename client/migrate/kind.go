package migrate

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/client/lacking"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// kind says how to read, compare and write resources of one kind.
type kind struct {
	client.Kind[json.RawMessage]

	// silent kinds are counted, but their changes are not listed: there can be half a million.
	silent bool
	// secrets says that the source may show a placeholder instead of a secret.
	secrets bool
	// warned says that the report has what the target's answers to writes warn of. It depends on no other resource.
	warned bool
	// hidden says that differences are not shown, because they may be secrets.
	hidden bool

	// leave returns the reason why a resource is never copied; hold returns one that depends on the target.
	leave func(m *migration, o *object) (reason, hint string)
	hold  func(m *migration, o *object, old *summary) (reason, hint string)
	// becomes, if set, converts the resources to another kind of the target.
	becomes *conversion
	// adapt changes a resource before it is compared.
	adapt func(m *migration, o *object)
	// normal makes trees comparable: it removes fields that the target sets itself.
	normal func(tree map[string]any)
	// ignore reports whether writing would not remove a difference, or need not.
	ignore func(o *object, field string) bool
	// find looks for a resource in the target, for kinds whose lists do not show the source's names.
	find func(ctx context.Context, m *migration, o *object) (*summary, error)
	// always adds remarks about a resource, also if there is nothing to write.
	always func(m *migration, o *object, old *summary)
	// foresee adds remarks about the parts that writing will not bring, also in a dry run.
	foresee func(m *migration, o *object, old *summary)
	// write sends a resource; old is nil if the target has none. Default: put. A reason says why nothing was sent.
	write func(ctx context.Context, m *migration, o *object, old *summary) (reason, hint string, err error)
}

// step copies a kind, or some of its resources, after the steps before it.
type step struct {
	kind *kind
	// only reports whether a resource belongs to the step. Default: all do.
	only func(*object) bool
	// more says that a later step has the rest of the kind.
	more bool
	// after is the kind whose step comes before this one. Default: the kind's own place in the table.
	after *kind
	// prepare is called before the step.
	prepare func(context.Context, *migration) error
}

// of returns a row of resource.Kinds with its special cases for a migration.
func of(row *resource.Kind, special ...func(*kind)) *kind {
	out := &kind{Kind: client.Kind[json.RawMessage]{Kind: row}}
	for _, change := range special {
		change(out)
	}
	return out
}

// sold returns a kind of Sensu's commercial edition.
func sold(group, typ, plural string, namespaced bool, special ...func(*kind)) *kind {
	row := &resource.Kind{Type: typ, Plural: plural, Group: group, Namespaced: namespaced, Wrapped: true}
	return commercial(row, special...)
}

// commercial returns a kind of Sensu's commercial edition, whose resources may have secrets in any field.
func commercial(row *resource.Kind, special ...func(*kind)) *kind {
	out := &kind{Kind: client.Kind[json.RawMessage]{Kind: row}, secrets: true, hidden: true}
	for _, change := range special {
		change(out)
	}
	return out
}

// special are the kinds of resource.Kinds that this package uses by name.
var special = []*kind{
	namespaceKind, userKind, clusterRoleKind, roleKind, apiKeyKind, authProviderKind, mutatorKind, entityKind,
	silencedKind, eventKind, handlerKind, pipelineKind, checkKind, aggregateKind, metricCheckKind, postgresKind,
}

var (
	namespaceKind   = of(client.Namespaces.Kind)
	clusterRoleKind = of(client.ClusterRoles.Kind, splitRules)
	roleKind        = of(client.Roles.Kind, splitRules)
	mutatorKind     = of(client.Mutators.Kind, func(k *kind) { k.foresee = needsEnvironment })
	handlerKind     = of(client.Handlers.Kind, func(k *kind) { k.foresee = needsEnvironment })
	pipelineKind    = of(client.Pipelines.Kind, func(k *kind) { k.adapt = useHandlers })
	checkKind       = of(client.Checks.Kind)
	aggregateKind   = of(client.Aggregates.Kind)
	metricCheckKind = of(client.MetricChecks.Kind)
	// authProviderKind is the sign-in providers. Sensu's commercial edition has them too.
	authProviderKind = commercial(client.AuthProviders.Kind, func(k *kind) { k.warned = true })
	// postgresKind is never copied: two servers would write into one database.
	postgresKind = commercial(client.PostgresConfigs.Kind, func(k *kind) { k.leave = leavePostgres })
)

// Kinds of Sensu's commercial edition with special cases.
var (
	envProviderKind = sold("secrets/v1", "Env", "providers", false, func(k *kind) {
		k.Types = []string{"VaultProvider", "CyberArkProvider"}
	})
	streamHandlerKind = sold("pipeline/v1", "TCPStreamHandler", "tcp-stream-handlers", true, func(k *kind) {
		k.becomes = streamConversion
	})
	ruleTemplateKind = sold("bsm/v1", "RuleTemplate", "rule-templates", true, func(k *kind) {
		k.leave = ruleTemplates
	})
	serviceComponentKind = sold("bsm/v1", "ServiceComponent", "service-components", true, func(k *kind) {
		k.becomes = componentConversion
	})
)

// steps are all kinds in the order in which they are sent: the order of resource.Kinds, with the kinds of Sensu's
// commercial edition in between. Silences are sent before events, except for those that end with a resolution: an event
// that was resolved long ago would end them.
var steps = inOrder([]step{
	{kind: eventKind, prepare: findHandlers},
	{kind: silencedKind, only: func(o *object) bool { return !endsOnResolve(o) }, more: true},
	{kind: silencedKind, only: endsOnResolve, after: eventKind},
	{kind: envProviderKind, after: authProviderKind},
	{kind: sold("secrets/v1", "Secret", "secrets", true), after: authProviderKind},
	{kind: sold("pipeline/v1", "SumoLogicMetricsHandler", "sumo-logic-metrics-handlers", true), after: handlerKind},
	{kind: streamHandlerKind, after: handlerKind},
	{kind: ruleTemplateKind, after: metricCheckKind},
	{kind: serviceComponentKind, after: metricCheckKind},
	{kind: sold("searches/v1", "Search", "searches", true), after: metricCheckKind},
	{kind: sold("web/v1", "GlobalConfig", "config", false), after: metricCheckKind},
	{kind: sold("federation/v1", "Cluster", "clusters", false), after: metricCheckKind},
	{kind: sold("federation/v1", "EtcdReplicator", "etcd-replicators", false), after: metricCheckKind},
})

// inOrder adds a step for each kind of the table without one, and sorts the steps.
func inOrder(steps []step) []step {
	for _, row := range resource.Kinds {
		if row.Migrate == 0 || slices.ContainsFunc(steps, func(s step) bool { return s.kind.Kind.Kind == row }) {
			continue
		}
		i := slices.IndexFunc(special, func(k *kind) bool { return k.Kind.Kind == row })
		if i < 0 {
			steps = append(steps, step{kind: of(row)})
		} else {
			steps = append(steps, step{kind: special[i]})
		}
	}
	// Steps after a kind have its place in the table, and come after it.
	place := func(s step) int {
		if s.after != nil {
			return 2*s.after.Migrate + 1
		}
		return 2 * s.kind.Migrate
	}
	slices.SortStableFunc(steps, func(a, b step) int { return place(a) - place(b) })
	return steps
}

// kindOf returns the kind of a wrapped resource.
func kindOf(apiVersion, typ string) (*kind, bool) {
	for _, s := range steps {
		if (apiVersion == "" || apiVersion == s.kind.Group) && (s.kind.Type == typ || slices.Contains(s.kind.Types, typ)) {
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

// insteadOf says what to do about resources of a kind that lapwing does not have.
func insteadOf(apiVersion, typ string) string {
	return cmp.Or(lacking.InsteadOf(apiVersion, typ), "docs/compatibility.md, \"Not there\", says what to use instead.")
}

// chunk returns how many resources one request asks for: Sensu's server gives up an answer after 15 s.
func (k *kind) chunk() int {
	if k.Plural == "events" {
		return 500
	}
	return 1000
}

// put writes resources of most kinds.
func put(ctx context.Context, m *migration, o *object, _ *summary) (reason, hint string, err error) {
	return "", "", m.Target.Do(ctx, http.MethodPut, o.path(), o.wire(), nil)
}

// splitRules is for roles: an entry of a rule's lists may have several words, separated by commas.
func splitRules(k *kind) {
	k.warned = true
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
