package migrate

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// kind is how resources of one kind are read, compared and written.
type kind struct {
	client.Kind[json.RawMessage]

	// silent kinds are counted, but their changes are not listed one by one: there can be half a million.
	silent bool
	// secrets says that the source may show a placeholder in the place of a secret.
	secrets bool
	// hidden says that differences are not shown: they may be secrets.
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
	// after is the kind that the step comes behind. Default: its own kind's place in the table.
	after *kind
	// prepare is called before the step.
	prepare func(context.Context, *migration) error
}

// of is a kind as resource.Kinds describes it, with what is special about it for a migration.
func of(row *resource.Kind, special ...func(*kind)) *kind {
	out := &kind{Kind: client.Kind[json.RawMessage]{Kind: row}}
	if _, ok := row.New().(validator); ok && !row.Wrapped {
		out.valid = func(body []byte) error {
			one := row.New().(validator)
			if err := json.Unmarshal(body, one); err != nil {
				return err
			}
			return one.Validate()
		}
	}
	for _, change := range special {
		change(out)
	}
	return out
}

type validator interface{ Validate() error }

// sold is a kind of Sensu's commercial edition.
func sold(group, typ, plural string, namespaced bool, special ...func(*kind)) *kind {
	row := &resource.Kind{Type: typ, Plural: plural, Group: group, Namespaced: namespaced, Wrapped: true}
	return commercial(row, special...)
}

// commercial is a kind of Sensu's commercial edition, whose resources may hold secrets anywhere.
func commercial(row *resource.Kind, special ...func(*kind)) *kind {
	out := &kind{Kind: client.Kind[json.RawMessage]{Kind: row}, secrets: true, hidden: true}
	for _, change := range special {
		change(out)
	}
	return out
}

// special are the kinds of resource.Kinds that this package names.
var special = []*kind{
	namespaceKind, userKind, clusterRoleKind, roleKind, apiKeyKind, authProviderKind, mutatorKind, entityKind,
	silencedKind, eventKind, handlerKind, pipelineKind, checkKind, aggregateKind,
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
	// authProviderKind is what signs people in. Sensu's commercial edition has it too.
	authProviderKind = commercial(client.AuthProviders.Kind)
)

// Kinds of Sensu's commercial edition that are more than their names.
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

// steps are all kinds in the order in which they are sent: that of resource.Kinds, with the kinds of Sensu's commercial
// edition between. Silences are sent before events, except for those that end with a resolution: an event that was
// resolved long ago would end them.
var steps = inOrder([]step{
	{kind: eventKind, prepare: findHandlers},
	{kind: silencedKind, only: func(o *object) bool { return !endsOnResolve(o) }, more: true},
	{kind: silencedKind, only: endsOnResolve, after: eventKind},
	{kind: envProviderKind, after: authProviderKind},
	{kind: sold("secrets/v1", "Secret", "secrets", true), after: authProviderKind},
	{kind: sold("pipeline/v1", "SumoLogicMetricsHandler", "sumo-logic-metrics-handlers", true), after: handlerKind},
	{kind: streamHandlerKind, after: handlerKind},
	{kind: ruleTemplateKind, after: aggregateKind},
	{kind: serviceComponentKind, after: aggregateKind},
	{kind: sold("searches/v1", "Search", "searches", true), after: aggregateKind},
	{kind: sold("web/v1", "GlobalConfig", "config", false), after: aggregateKind},
	{kind: sold("federation/v1", "Cluster", "clusters", false), after: aggregateKind},
	{kind: sold("federation/v1", "EtcdReplicator", "etcd-replicators", false), after: aggregateKind},
})

// inOrder adds a step for each kind of the table that has none among the given ones, and brings them in order.
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
	// Steps after a kind have its place in the table, and stand behind it.
	place := func(s step) int {
		if s.after != nil {
			return 2*s.after.Migrate + 1
		}
		return 2 * s.kind.Migrate
	}
	slices.SortStableFunc(steps, func(a, b step) int { return place(a) - place(b) })
	return steps
}

// kindOf finds the kind of a wrapped resource.
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
