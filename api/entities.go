package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// An entity with this label is defined by its agent's own configuration.
const (
	managedByLabel = "sensu.io/managed_by"
	managedByAgent = "sensu-agent"
)

// entities serves the two halves of entities as one: what users define is a definition, what agents report is state.
type entities struct {
	kind[resource.EntityConfig]
}

func (a *API) serveEntities() {
	e := &entities{kind[resource.EntityConfig]{
		api: a, Kind: config.Entities,
		meta:     func(c *resource.EntityConfig) *resource.ObjectMeta { return &c.Metadata },
		validate: (*resource.EntityConfig).Validate,
	}}
	e.view = func(c *resource.EntityConfig) any { return e.join(c) }
	e.serveRoutes(
		methods{http.MethodGet: e.list, http.MethodPost: e.create},
		methods{http.MethodGet: e.get, http.MethodPut: e.put, http.MethodPatch: e.patch, http.MethodDelete: e.delete},
	)
}

func (e *entities) join(c *resource.EntityConfig) *resource.Entity {
	st, _ := e.api.opts.State.EntityState(c.Metadata.Namespace, c.Metadata.Name)
	return resource.JoinEntity(c, st)
}

// read decodes and checks the entity in the body of a POST or PUT. Who created it is only told of entities that came with
// an event.
func (e *entities) read(w *response, r *request) (*resource.Entity, error) {
	ent := new(resource.Entity)
	if err := e.api.decode(w, r, ent); err != nil {
		return nil, err
	}
	m := &ent.Metadata
	if namespace := r.PathValue("namespace"); m.Namespace != "" && m.Namespace != namespace {
		return nil, namespaceMismatch(m.Namespace, namespace)
	}
	if name := r.PathValue("name"); r.Method == http.MethodPut && m.Name != name {
		return nil, nameMismatch(m.Name, name)
	}
	m.CreatedBy = ""
	if err := ent.Validate(); err != nil {
		return nil, invalid("%v", err)
	}
	return ent, e.api.needNamespace(m.Namespace)
}

func (e *entities) create(w *response, r *request) error {
	ent, err := e.read(w, r)
	if err != nil {
		return err
	}
	cfg := resource.EntityConfigOf(ent)
	if _, ok := config.Get(e.api.opts.Config.Snapshot(), e.Kind, cfg.Metadata.Namespace, cfg.Metadata.Name); ok {
		return errExists
	}
	if err := e.putState(r.Context(), ent); err != nil {
		return err
	}
	if err := config.Create(r.Context(), e.api.opts.Config, e.Kind, cfg); err != nil {
		return err
	}
	return w.object(e.join(cfg))
}

// put defines an entity. What an agent reported of its host stays; of a proxy entity it is replaced.
func (e *entities) put(w *response, r *request) error {
	ent, err := e.read(w, r)
	if err != nil {
		return err
	}
	namespace, name := ent.Metadata.Namespace, ent.Metadata.Name
	old, exists := config.Get(e.api.opts.Config.Snapshot(), e.Kind, namespace, name)
	if !exists || old.EntityClass == resource.EntityProxyClass {
		if err := e.guard(ent, old); err != nil {
			return err
		}
		if err := e.putState(r.Context(), ent); err != nil {
			return err
		}
	}
	cfg, err := e.upsert(r.Context(), ent)
	if err != nil {
		return err
	}
	return w.object(e.join(cfg))
}

func (e *entities) upsert(ctx context.Context, ent *resource.Entity) (*resource.EntityConfig, error) {
	define := func(old *resource.EntityConfig) (*resource.EntityConfig, error) {
		if err := e.guard(ent, old); err != nil {
			return nil, err
		}
		cfg := resource.EntityConfigOf(ent)
		cfg.Subscriptions = resource.AddEntitySubscription(cfg.Subscriptions, cfg.Metadata.Name)
		if old != nil {
			cfg.Metadata.CreatedBy = old.Metadata.CreatedBy
			keepSecrets(cfg, old)
		}
		return cfg, nil
	}
	for {
		cfg, err := config.Update(ctx, e.api.opts.Config, e.Kind, ent.Metadata.Namespace, ent.Metadata.Name, define)
		if !errors.Is(err, config.ErrNotFound) {
			return cfg, err
		}
		if cfg, err = define(nil); err != nil {
			return nil, err
		}
		if err = config.Create(ctx, e.api.opts.Config, e.Kind, cfg); !errors.Is(err, config.ErrExists) {
			return cfg, err
		}
	}
}

// guard refuses to define an entity that its agent defines, unless it shall be a proxy from now on.
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

// putState writes the half of an entity that agents report, if it differs from what is known.
func (e *entities) putState(ctx context.Context, ent *resource.Entity) error {
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

// keepSecrets lets a client send back what it was shown: where that was redacted the old value stays.
func keepSecrets(cfg, old *resource.EntityConfig) {
	keep := func(now, before map[string]string) {
		for key, value := range now {
			if secret, ok := before[key]; ok && value == resource.Redacted {
				now[key] = secret
			}
		}
	}
	keep(cfg.Metadata.Labels, old.Metadata.Labels)
	keep(cfg.Metadata.Annotations, old.Metadata.Annotations)
}

// patch changes what users define of an entity, and answers with that half alone.
func (e *entities) patch(w *response, r *request) error {
	patch, err := e.api.patch(w, r)
	if err != nil {
		return err
	}
	cfg, err := config.Update(r.Context(), e.api.opts.Config, e.Kind, r.PathValue("namespace"), r.PathValue("name"), func(old *resource.EntityConfig) (*resource.EntityConfig, error) {
		// A client may have the tag of either representation: the whole entity of GET or the half that PATCH shows.
		whole, err := encode(e.join(old))
		if err != nil {
			return nil, err
		}
		shown, err := redacted(old)
		if err != nil {
			return nil, err
		}
		half, err := encode(shown)
		if err != nil {
			return nil, err
		}
		if err := checkPreconditions(r.Header, entityTag(whole), entityTag(half)); err != nil {
			return nil, err
		}
		cfg, err := e.patched(old, patch)
		if err != nil {
			return nil, err
		}
		cfg.Subscriptions = resource.AddEntitySubscription(cfg.Subscriptions, cfg.Metadata.Name)
		keepSecrets(cfg, old)
		return cfg, nil
	})
	if err != nil {
		return err
	}
	shown, err := redacted(cfg)
	if err != nil {
		return err
	}
	return w.tagged(r, shown)
}

// redacted is cfg as everybody may see it. Redaction belongs to the JSON of whole entities.
func redacted(cfg *resource.EntityConfig) (*resource.EntityConfig, error) {
	b, err := encode(resource.JoinEntity(cfg, nil))
	if err != nil {
		return nil, err
	}
	var shown resource.Entity
	if err := json.Unmarshal(b, &shown); err != nil {
		return nil, fmt.Errorf("redact entity %s: %w", cfg.Metadata.Name, err)
	}
	out := *cfg
	out.Metadata.Labels, out.Metadata.Annotations = shown.Metadata.Labels, shown.Metadata.Annotations
	return &out, nil
}

// delete forgets an entity with all its events. The log comes first: if it takes nothing, nothing has happened, and what
// is left after a crash between the two is an entity that can be deleted again.
func (e *entities) delete(w *response, r *request) error {
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	_, err := e.find(r)
	if err != nil && !e.known(namespace, name) {
		return err
	}
	if err := e.api.opts.Intake.DeleteEntity(r.Context(), namespace, name); err != nil && !errors.Is(err, state.ErrNotFound) {
		return unavailable(err)
	}
	if err := gone(config.Delete(r.Context(), e.api.opts.Config, e.Kind, namespace, name)); err != nil {
		return err
	}
	return w.empty(http.StatusNoContent)
}

// known says that there are traces of an entity without a definition: an event may have come while it was deleted.
func (e *entities) known(namespace, name string) bool {
	if _, ok := e.api.opts.State.EntityState(namespace, name); ok {
		return true
	}
	events, _, err := e.api.opts.State.Events(namespace, name, "", 1)
	return err == nil && len(events) > 0
}
