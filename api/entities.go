package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// An entity with this label is defined by its agent's own configuration.
const (
	managedByLabel = "sensu.io/managed_by"
	managedByAgent = "sensu-agent"
)

// entities serves the two halves of entities as one: users define a definition, agents report state.
type entities struct {
	kind[resource.EntityConfig]
}

func (a *API) serveEntities() {
	e := a.newEntities()
	a.definitions[e.String()] = definition{new(resource.EntityConfig), e.erase, e.amend}
	e.serveRoutes(
		methods{http.MethodGet: e.list, http.MethodPost: e.create},
		methods{http.MethodGet: e.get, http.MethodPut: e.put, http.MethodPatch: e.patch, http.MethodDelete: e.delete},
	)
}

func (a *API) newEntities() *entities {
	e := &entities{kind[resource.EntityConfig]{
		api: a, Kind: config.Entities,
	}}
	e.view = func(c *resource.EntityConfig) any { return e.join(c) }
	return e
}

func (e *entities) join(c *resource.EntityConfig) *resource.Entity {
	st, _ := e.api.opts.State.EntityState(c.Metadata.Namespace, c.Metadata.Name)
	return resource.JoinEntity(c, st)
}

// list leaves out the processes of hosts, which would be nine tenths of it.
func (e *entities) list(w *response, r *request) error {
	brief := func(c *resource.EntityConfig) any {
		st, _ := e.api.opts.State.EntityFacts(c.Metadata.Namespace, c.Metadata.Name)
		return resource.JoinEntity(c, st)
	}
	p := pageOf(r, e.show(new(resource.EntityConfig)))
	return writeList(w, p, e.objects(r, p), brief, e.token)
}

// complete checks the entity of a POST or PUT. Only entities that came with an event have a creator.
func (e *entities) complete(t *act, ent *resource.Entity) error {
	m := &ent.Metadata
	if m.Namespace != "" && m.Namespace != t.namespace {
		return namespaceMismatch(m.Namespace, t.namespace)
	}
	if t.method == http.MethodPut && m.Name != t.name {
		return nameMismatch(m.Name, t.name)
	}
	m.CreatedBy = ""
	if err := ent.Validate(); err != nil {
		return refused("", err)
	}
	return e.api.needNamespace(m.Namespace)
}

func (e *entities) create(w *response, r *request) error {
	ent := new(resource.Entity)
	if err := e.api.decode(w, r, ent); err != nil {
		return err
	}
	cfg, err := e.add(r.Context(), r.act, ent)
	if err != nil {
		return err
	}
	return w.object(e.join(cfg))
}

// add checks and writes a new entity.
func (e *entities) add(ctx context.Context, t *act, ent *resource.Entity) (*resource.EntityConfig, error) {
	if err := e.complete(t, ent); err != nil {
		return nil, err
	}
	cfg := resource.EntityConfigOf(ent)
	if !e.mine(t, cfg) {
		return nil, e.outOfReach(t, cfg)
	}
	if _, ok := config.Get(e.api.opts.Config.Snapshot(), e.Kind, cfg.Metadata.Namespace, cfg.Metadata.Name); ok {
		return nil, errExists
	}
	if err := e.putState(ctx, ent); err != nil {
		return nil, err
	}
	return cfg, config.Create(ctx, e.api.opts.Config, e.Kind, cfg)
}

func (e *entities) put(w *response, r *request) error {
	ent := new(resource.Entity)
	if err := e.api.decode(w, r, ent); err != nil {
		return err
	}
	cfg, err := e.replace(r.Context(), r.act, ent)
	if err != nil {
		return err
	}
	return w.object(e.join(cfg))
}

// replace checks and writes an entity, whether it exists or not. The host data from an agent stays; a proxy entity's is
// replaced.
func (e *entities) replace(ctx context.Context, t *act, ent *resource.Entity) (*resource.EntityConfig, error) {
	if err := e.complete(t, ent); err != nil {
		return nil, err
	}
	old, exists := config.Get(e.api.opts.Config.Snapshot(), e.Kind, ent.Metadata.Namespace, ent.Metadata.Name)
	if given := resource.EntityConfigOf(ent); !e.mine(t, given) {
		return nil, e.outOfReach(t, given)
	}
	if exists && !e.mine(t, old) {
		return nil, taken(t)
	}
	if exists {
		if err := e.expected(t, old); err != nil {
			return nil, err
		}
	} else if t.mustExist() {
		return nil, errPrecondition
	}
	if !exists || old.EntityClass == resource.EntityProxyClass {
		if err := e.guard(ent, old); err != nil {
			return nil, err
		}
		if err := e.putState(ctx, ent); err != nil {
			return nil, err
		}
	}
	return e.upsert(ctx, t, ent)
}

func (e *entities) upsert(ctx context.Context, t *act, ent *resource.Entity) (*resource.EntityConfig, error) {
	define := func(old *resource.EntityConfig) (*resource.EntityConfig, error) {
		if err := e.guard(ent, old); err != nil {
			return nil, err
		}
		cfg := resource.EntityConfigOf(ent)
		cfg.Subscriptions = resource.AddEntitySubscription(cfg.Subscriptions, cfg.Metadata.Name)
		if old != nil {
			if !e.mine(t, old) {
				return nil, taken(t)
			}
			if err := e.expected(t, old); err != nil {
				return nil, err
			}
			cfg.Metadata.CreatedBy = old.Metadata.CreatedBy
			return cfg, keepSecrets(cfg, old)
		}
		return cfg, nil
	}
	for {
		cfg, err := config.Update(ctx, e.api.opts.Config, e.Kind, ent.Metadata.Namespace, ent.Metadata.Name, define)
		if !errors.Is(err, config.ErrNotFound) {
			return cfg, err
		}
		if t.mustExist() {
			return nil, errPrecondition
		}
		if cfg, err = define(nil); err != nil {
			return nil, err
		}
		if err = config.Create(ctx, e.api.opts.Config, e.Kind, cfg); !errors.Is(err, config.ErrExists) {
			return cfg, err
		}
	}
}

// guard refuses to define an entity that its agent defines, unless it becomes a proxy.
func (e *entities) guard(ent *resource.Entity, old *resource.EntityConfig) error {
	if ent.EntityClass == resource.EntityProxyClass {
		return nil
	}
	managed := ent.Metadata.Labels[managedByLabel] == managedByAgent
	if old != nil && old.EntityClass == resource.EntityAgentClass {
		managed = managed || old.Metadata.Labels[managedByLabel] == managedByAgent
	}
	if managed {
		return &apiError{status: http.StatusConflict, code: codeExists, message: "entity is managed by its agent"}
	}
	return nil
}

// putState writes the half of an entity that agents report, if it has changed.
func (e *entities) putState(ctx context.Context, ent *resource.Entity) error {
	if config.IsDryRun(ctx) {
		return nil
	}
	st := resource.EntityStateOf(ent)
	st.Metadata = resource.ObjectMeta{Namespace: ent.Metadata.Namespace, Name: ent.Metadata.Name}
	known, ok := e.api.opts.State.EntityState(st.Metadata.Namespace, st.Metadata.Name)
	if !ok {
		known = &resource.EntityState{}
	}
	known.Metadata = st.Metadata
	if string(known.AppendProto(nil)) == string(st.AppendProto(nil)) {
		return nil
	}
	if err := e.api.opts.Intake.PutEntityState(ctx, st); err != nil {
		return unavailable(err)
	}
	return nil
}

// keepSecrets lets a client send back an entity as shown: redacted values stay as they were. Such a key must stay
// redacted: otherwise changing the list of redacted keys would show the value.
func keepSecrets(cfg, old *resource.EntityConfig) error {
	var err error
	keep := func(what string, now, before map[string]string) {
		for key, value := range now {
			secret, ok := before[key]
			switch {
			case !ok || value != resource.Redacted || !old.Redacts(key):
			case cfg.Redacts(key):
				now[key] = secret
			default:
				err = invalid("%s %s would not be redacted any more: give its value again, or leave it in redact", what, key)
			}
		}
	}
	keep("label", cfg.Metadata.Labels, old.Metadata.Labels)
	keep("annotation", cfg.Metadata.Annotations, old.Metadata.Annotations)
	return err
}

// patch changes the half of an entity that users define, and answers with it.
func (e *entities) patch(w *response, r *request) error {
	patch, err := e.api.patch(w, r)
	if err != nil {
		return err
	}
	cfg, err := e.amended(r.Context(), r.act, patch)
	if err != nil {
		return err
	}
	return w.tagged(r, cfg.Redacted())
}

func (e *entities) amended(ctx context.Context, t *act, patch []byte) (*resource.EntityConfig, error) {
	return e.change(ctx, t, func(old *resource.EntityConfig) (*resource.EntityConfig, error) {
		obj, err := merged(old.Redacted(), patch)
		if err != nil {
			return nil, err
		}
		return e.successor(old, obj)
	})
}

func (e *entities) amend(ctx context.Context, t *act, patch []byte) error {
	_, err := e.amended(ctx, t, patch)
	return err
}

// change changes the definition of an act, if the user's role reaches it and the preconditions are met.
func (e *entities) change(
	ctx context.Context, t *act, edit func(*resource.EntityConfig) (*resource.EntityConfig, error),
) (*resource.EntityConfig, error) {
	change := func(old *resource.EntityConfig) (*resource.EntityConfig, error) {
		if !e.mine(t, old) {
			return nil, errNotFound
		}
		if err := e.expected(t, old); err != nil {
			return nil, err
		}
		cfg, err := edit(old)
		if err != nil {
			return nil, err
		}
		cfg.Subscriptions = resource.AddEntitySubscription(cfg.Subscriptions, cfg.Metadata.Name)
		if err := keepSecrets(cfg, old); err != nil {
			return nil, err
		}
		if !e.mine(t, cfg) {
			return nil, e.outOfReach(t, cfg)
		}
		return cfg, nil
	}
	return config.Update(ctx, e.api.opts.Config, e.Kind, t.namespace, t.name, change)
}

// expected tests the preconditions of an act on an entity. Its client may have the tag of any representation: the whole
// entity, the half that PATCH shows, or the document of core/v3.
func (e *entities) expected(t *act, cfg *resource.EntityConfig) error {
	if !t.conditional() {
		return nil
	}
	return t.precondition(e.join(cfg), cfg.Redacted(), wrapEntityConfig(cfg))
}

// delete deletes an entity with all its events, or as its query says.
func (e *entities) delete(w *response, r *request) error {
	if err := e.erase(r.Context(), r.act, r.URL.Query()); err != nil {
		return err
	}
	return w.empty(http.StatusNoContent)
}

// erase writes to the log first. If the log refuses, nothing has happened; after a crash in between, the entity can be
// deleted again.
func (e *entities) erase(ctx context.Context, t *act, query url.Values) error {
	cfg, err := e.find(t)
	if err != nil && (t.permit.Selector() != nil || !e.known(t.namespace, t.name)) {
		return err
	}
	if err == nil {
		if err := e.expected(t, cfg); err != nil {
			return err
		}
	}
	along, err := e.api.cascadeOf(t, query, eventsDelete)
	if err != nil || config.IsDryRun(ctx) {
		return err
	}
	if along.silences { // first, so that they silence no resolution
		if err := e.api.deleteSilences(ctx, t.namespace, ofEntity(t.name)); err != nil {
			return err
		}
	}
	if along.events == eventsResolve {
		events, _, err := e.api.opts.State.Events(t.namespace, t.name, "", 0)
		if err != nil {
			return err
		}
		if err := e.api.resolve(ctx, events, "Resolving because the entity was deleted"); err != nil {
			return err
		}
	}
	if along.events != eventsKeep {
		err := e.api.opts.Intake.DeleteEntity(ctx, t.namespace, t.name)
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			return unavailable(err)
		}
	}
	return gone(config.Delete(ctx, e.api.opts.Config, e.Kind, t.namespace, t.name))
}

// known reports whether an entity without a definition has state or events: an event may have come during its deletion.
func (e *entities) known(namespace, name string) bool {
	if _, ok := e.api.opts.State.EntityState(namespace, name); ok {
		return true
	}
	events, _, err := e.api.opts.State.Events(namespace, name, "", 1)
	return err == nil && len(events) > 0
}
