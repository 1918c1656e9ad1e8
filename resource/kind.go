package resource

import (
	"fmt"
	"reflect"
	"slices"
)

// API groups with their versions. AggregateAPIVersion, AuthAPIVersion and StoreAPIVersion are three more.
const (
	CoreV2 = "core/v2"
	CoreV3 = "core/v3"
	// internalGroup has the kinds without a path in the API.
	internalGroup = "internal/v1"
)

// Kind describes one kind of resource to every package that works on all kinds. Kinds has a row for each.
type Kind struct {
	Type  string   // the type in wrapped resources, for example "CheckConfig"
	Types []string // the types in wrapped resources instead of Type, for a kind with several
	Group string   // API group and version
	// Plural is the last path segment of its collection, for example "checks".
	Plural string
	// Role is the kind's name in roles' rules, in the store of definitions and in the audit log. Default: Plural.
	Role string
	// Command is the name of its command in the command-line client, or "" if it has none.
	Command string

	Namespaced bool
	Singleton  bool   // there is one object, at the collection's path
	Paired     bool   // a name is two path segments
	Wrapped    bool   // its objects travel as {type, api_version, metadata, spec}, as in files
	NameField  string // the field with the name, for kinds without metadata

	// Prune is the kind's place in the order in which prune deletes. 0 means that prune never deletes it.
	Prune int
	// Clear is the kind's place in the order in which a namespace is emptied. A namespaced definition without a place
	// does not prevent the deletion of its namespace, and is deleted with it.
	Clear int
	// Migrate is the kind's place in the order in which a migration sends. Unmigrated says why it has none.
	Migrate    int
	Unmigrated string

	goType reflect.Type
	meta   func(obj any) *ObjectMeta
	name   func(obj any) string
}

// New returns an empty object of the kind. Its methods decode and validate it.
func (k *Kind) New() any { return reflect.New(k.goType).Interface() }

// Meta returns the metadata of an object of the kind, or nil if the kind has none.
func (k *Kind) Meta(obj any) *ObjectMeta {
	if k.meta == nil {
		return nil
	}
	return k.meta(obj)
}

// HasMeta reports whether objects of the kind have metadata, and so labels.
func (k *Kind) HasMeta() bool { return k.meta != nil }

// Key returns the namespace and the name of an object of the kind.
func (k *Kind) Key(obj any) (namespace, name string) {
	if k.meta == nil {
		return "", k.name(obj)
	}
	m := k.meta(obj)
	return m.Namespace, m.Name
}

// Internal reports whether the kind has no path in the API, because only the backend uses it.
func (k *Kind) Internal() bool { return k.Group == internalGroup }

// FullName returns the kind's unique name, for example "core/v2.CheckConfig".
func (k *Kind) FullName() string { return k.Group + "." + k.Type }

// Prefix returns the path under which the API serves the kind's group. Groups of Sensu's commercial edition have a
// prefix of their own.
func (k *Kind) Prefix() string {
	switch k.Group {
	case CoreV2, CoreV3, AggregateAPIVersion:
		return "/api/" + k.Group + "/"
	}
	return "/api/enterprise/" + k.Group + "/"
}

// TessenName is the name of the only TessenConfig.
const TessenName = "config"

// Kinds are all kinds of resources, in the order in which dumps list them: what others name comes first.
//
// A new resource is its struct and a row here, with its places in the orders below; a typed name in config/kind.go and
// client/kind.go; how the API serves it (a file of package api, called in api.go, and a row in the tables of its tests); how
// commands show it (a file of client/ctl, and a row in its kinds); how it is migrated, if that is special (client/migrate);
// and `make generate`. TestKindsAreStored, TestKindsAreServed, TestKindsHaveCommands, TestKindsAreMigrated and TestOpenAPI
// fail for a forgotten place.
//
// A migration sends users before what gives them rights, then what checks and pipelines name. Entities come before
// events, or events would make proxy entities; events before handlers and pipelines, or incidents would alert anew;
// checks and aggregates last, when all they name is there. Prune deletes in nearly the opposite order: checks first, and
// what grants rights last.
var Kinds = []*Kind{
	named(func(n *Namespace) string { return n.Name },
		Kind{Type: "Namespace", Group: CoreV2, Plural: "namespaces", Command: "namespace",
			NameField: "name", Migrate: 1}),
	labelled(func(r *ClusterRole) *ObjectMeta { return &r.Metadata },
		Kind{Type: "ClusterRole", Group: CoreV2, Plural: "clusterroles", Command: "cluster-role",
			Prune: 20, Migrate: 3}),
	labelled(func(b *ClusterRoleBinding) *ObjectMeta { return &b.Metadata },
		Kind{Type: "ClusterRoleBinding", Group: CoreV2, Plural: "clusterrolebindings", Command: "cluster-role-binding",
			Prune: 19, Migrate: 5}),
	named(func(u *User) string { return u.Username },
		Kind{Type: "User", Group: CoreV2, Plural: "users", Command: "user", NameField: "username", Migrate: 2}),
	labelled(func(k *APIKey) *ObjectMeta { return &k.Metadata },
		Kind{Type: "APIKey", Group: CoreV2, Plural: "apikeys", Command: "api-key", Migrate: 7}),
	named(func(*TessenConfig) string { return TessenName },
		Kind{Type: "TessenConfig", Group: CoreV2, Plural: "tessen", Command: "tessen", Singleton: true, Migrate: 9}),
	labelled(func(a *Asset) *ObjectMeta { return &a.Metadata },
		Kind{Type: "Asset", Group: CoreV2, Plural: "assets", Command: "asset", Namespaced: true,
			Prune: 10, Clear: 3, Migrate: 13}),
	labelled(func(c *Calendar) *ObjectMeta { return &c.Metadata },
		Kind{Type: "Calendar", Group: AggregateAPIVersion, Plural: "calendars", Command: "calendar", Namespaced: true,
			Prune: 13, Clear: 11, Migrate: 10}),
	labelled(func(c *Contact) *ObjectMeta { return &c.Metadata },
		Kind{Type: "Contact", Group: AggregateAPIVersion, Plural: "contacts", Command: "contact", Namespaced: true,
			Prune: 15, Clear: 13, Migrate: 11}),
	labelled(func(r *Rota) *ObjectMeta { return &r.Metadata },
		Kind{Type: "Rota", Group: AggregateAPIVersion, Plural: "rotas", Command: "rota", Namespaced: true,
			Prune: 14, Clear: 12, Migrate: 12}),
	labelled(func(c *CheckConfig) *ObjectMeta { return &c.Metadata },
		Kind{Type: "CheckConfig", Group: CoreV2, Plural: "checks", Command: "check", Namespaced: true,
			Prune: 1, Clear: 1, Migrate: 23}),
	labelled(func(e *Entity) *ObjectMeta { return &e.Metadata },
		Kind{Type: "Entity", Group: CoreV2, Plural: "entities", Command: "entity", Namespaced: true,
			Prune: 11, Clear: 9, Migrate: 17}),
	labelled(func(e *Event) *ObjectMeta { return &e.Metadata },
		Kind{Type: "Event", Group: CoreV2, Plural: "events", Command: "event", Namespaced: true,
			Paired: true, Migrate: 19}),
	labelled(func(f *EventFilter) *ObjectMeta { return &f.Metadata },
		Kind{Type: "EventFilter", Group: CoreV2, Plural: "filters", Command: "filter", Namespaced: true,
			Prune: 7, Clear: 5, Migrate: 15}),
	labelled(func(h *Handler) *ObjectMeta { return &h.Metadata },
		Kind{Type: "Handler", Group: CoreV2, Plural: "handlers", Command: "handler", Namespaced: true,
			Prune: 2, Clear: 2, Migrate: 20}),
	labelled(func(h *HookConfig) *ObjectMeta { return &h.Metadata },
		Kind{Type: "HookConfig", Group: CoreV2, Plural: "hooks", Command: "hook", Namespaced: true,
			Prune: 9, Clear: 6, Migrate: 14}),
	labelled(func(m *Mutator) *ObjectMeta { return &m.Metadata },
		Kind{Type: "Mutator", Group: CoreV2, Plural: "mutators", Command: "mutator", Namespaced: true,
			Prune: 8, Clear: 4, Migrate: 16}),
	labelled(func(p *Pipeline) *ObjectMeta { return &p.Metadata },
		Kind{Type: "Pipeline", Group: CoreV2, Plural: "pipelines", Command: "pipeline", Namespaced: true,
			Prune: 6, Migrate: 21}),
	labelled(func(f *FallbackPipeline) *ObjectMeta { return &f.Metadata },
		Kind{Type: "FallbackPipeline", Group: CoreV2, Plural: "fallbackPipeline", Command: "fallback-pipeline", Namespaced: true,
			Prune: 5, Migrate: 22}),
	labelled(func(r *Role) *ObjectMeta { return &r.Metadata },
		Kind{Type: "Role", Group: CoreV2, Plural: "roles", Command: "role", Namespaced: true, Prune: 18, Migrate: 4}),
	labelled(func(b *RoleBinding) *ObjectMeta { return &b.Metadata },
		Kind{Type: "RoleBinding", Group: CoreV2, Plural: "rolebindings", Command: "role-binding", Namespaced: true,
			Prune: 17, Migrate: 6}),
	labelled(func(s *Silenced) *ObjectMeta { return &s.Metadata },
		Kind{Type: "Silenced", Group: CoreV2, Plural: "silenced", Command: "silenced", Namespaced: true,
			Prune: 12, Clear: 7, Migrate: 18}),
	labelled(func(a *Aggregate) *ObjectMeta { return &a.Metadata },
		Kind{Type: "Aggregate", Group: AggregateAPIVersion, Plural: "aggregates", Command: "aggregate", Namespaced: true,
			Prune: 3, Clear: 8, Migrate: 24}),
	labelled(func(m *MetricCheck) *ObjectMeta { return &m.Metadata },
		Kind{Type: "MetricCheck", Group: AggregateAPIVersion, Plural: "metricchecks", Command: "metric-check", Namespaced: true,
			Prune: 4, Clear: 10, Migrate: 25}),
	labelled(func(e *EntityConfig) *ObjectMeta { return &e.Metadata },
		Kind{Type: "EntityConfig", Group: CoreV3, Plural: "entity-configs", Role: "entities", Namespaced: true, Wrapped: true,
			Unmigrated: "it is a part of an Entity, which is migrated"}),
	labelled(func(p *AuthProvider) *ObjectMeta { return &p.Metadata },
		Kind{Type: "AuthProvider", Types: []string{LDAPType, ADType, OIDCType},
			Group: AuthAPIVersion, Plural: "authproviders", Command: "auth", Wrapped: true, Migrate: 8}),
	labelled(func(p *PostgresConfig) *ObjectMeta { return &p.Metadata },
		Kind{Type: postgresType, Group: StoreAPIVersion, Plural: "provider", Wrapped: true, Prune: 16, Migrate: 26}),
	named(func(s *Session) string { return s.ID },
		Kind{Type: "Session", Group: internalGroup, Plural: "sessions", Unmigrated: "users sign in again"}),
	named(func(s *Standing) string { return s.ID },
		Kind{Type: "Standing", Group: internalGroup, Plural: "standings", Unmigrated: "it lasts only as long as a sign-in"}),
}

// labelled makes the row of a kind with metadata.
func labelled[T any](meta func(*T) *ObjectMeta, k Kind) *Kind {
	k.meta = func(obj any) *ObjectMeta { return meta(obj.(*T)) }
	return row[T](k)
}

// named makes the row of a kind with a name and without metadata.
func named[T any](name func(*T) string, k Kind) *Kind {
	k.name = func(obj any) string { return name(obj.(*T)) }
	return row[T](k)
}

func row[T any](k Kind) *Kind {
	k.goType = reflect.TypeFor[T]()
	if k.Role == "" {
		k.Role = k.Plural
	}
	return &k
}

// KindFor returns the row of the kind with Go type T. It panics if there is none: that is a mistake in the program.
func KindFor[T any]() *Kind {
	for _, k := range Kinds {
		if k.goType == reflect.TypeFor[T]() {
			return k
		}
	}
	panic(fmt.Sprintf("resource: Kinds has no row for %s", reflect.TypeFor[T]()))
}

// MetaOf returns the metadata of an object of any kind, or nil if it has none.
func MetaOf(obj any) *ObjectMeta {
	for _, k := range Kinds {
		if reflect.PointerTo(k.goType) == reflect.TypeOf(obj) {
			return k.Meta(obj)
		}
	}
	return nil
}

// FindKind returns the row of a group and type, as wrapped resources have them.
func FindKind(group, typ string) (*Kind, bool) {
	for _, k := range Kinds {
		if k.Group == group && (k.Type == typ || slices.Contains(k.Types, typ)) {
			return k, true
		}
	}
	return nil, false
}
