package intake

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// resolveEntity finds the entity of an agent's event. It makes the proxy entity of a result if there is none; a prompt
// source gets ErrMustWait instead. If the entity is not known, the record must contain the event's description of it.
func (i *Intake) resolveEntity(
	ctx context.Context, rec *eventlog.Record, proxy []byte, ent resource.EntityView, body []byte, src Source,
) (known bool, err error) {
	byName := len(proxy) > 0 && string(proxy) != rec.Entity
	if byName {
		rec.Entity, ent.Class = string(proxy), nil // the class was the sender's
	}
	if rec.Entity != src.Agent {
		if rec.Entity == resource.BackendEntity {
			return false, errReserved()
		}
		if !i.opts.AnyEntity {
			if err := i.mayReport(rec, src.Agent, ent); err != nil {
				return false, err
			}
		}
	}
	if i.configured(rec) {
		return true, nil
	}
	if byName {
		if src.Prompt {
			return false, ErrMustWait
		}
		bare := &resource.Entity{Metadata: resource.ObjectMeta{Namespace: rec.Namespace, Name: rec.Entity}}
		return true, i.ensureProxy(ctx, src.Agent, bare, true)
	}
	if string(ent.Class) == resource.EntityAgentClass || rec.Check == "" {
		return false, nil // agents are registered by their keepalives, and metrics make no entity
	}
	if src.Prompt {
		return false, ErrMustWait
	}
	var ev resource.Event
	if err := ev.UnmarshalProto(body); err != nil {
		return false, reject("undecodable", "decode event: %w", err)
	}
	if !i.opts.ProxyLabels {
		ev.Entity.Metadata.Labels, ev.Entity.Metadata.Annotations = nil, nil
	}
	return true, i.ensureProxy(ctx, src.Agent, ev.Entity, true)
}

// mayReport refuses an agent's event about another agent, unless the operator has defined the check for that: with
// proxy requests, or with the other entity's name. Otherwise the credentials of one host could forge the state of all.
func (i *Intake) mayReport(rec *eventlog.Record, agent string, ent resource.EntityView) error {
	sn := i.opts.Config.Snapshot()
	cfg, ok := config.Get(sn, config.Entities, rec.Namespace, rec.Entity)
	isAgent := ok && cfg.EntityClass == resource.EntityAgentClass || !ok && string(ent.Class) == resource.EntityAgentClass
	// The entity of a connected agent may be missing or a proxy for a moment, because it was deleted or is not made
	// yet.
	if !isAgent && !i.connected(rec.Namespace, rec.Entity) {
		return nil
	}
	def, ok := config.Get(sn, config.Checks, rec.Namespace, rec.Check)
	if ok && rec.Check != state.KeepaliveCheck && (def.ProxyRequests != nil || def.ProxyEntityName == rec.Entity) {
		return nil
	}
	return reject("entity", "event of agent %q in the session of %q (--agent-any-entity takes such)", rec.Entity, agent)
}

// configured reports whether the entity of a record is defined.
func (i *Intake) configured(rec *eventlog.Record) bool {
	_, ok := config.Get(i.opts.Config.Snapshot(), config.Entities, rec.Namespace, rec.Entity)
	return ok
}

// ensureProxy makes a proxy entity unless the name has an entity. agent is the event's agent, or "" for a user. It
// checks the quotas if the event is limited.
func (i *Intake) ensureProxy(ctx context.Context, agent string, e *resource.Entity, limited bool) error {
	namespace, name := e.Metadata.Namespace, e.Metadata.Name
	if _, ok := config.Get(i.opts.Config.Snapshot(), config.Entities, namespace, name); ok {
		return nil
	}
	cfg := resource.EntityConfigOf(e)
	cfg.EntityClass = resource.EntityProxyClass
	cfg.Subscriptions = resource.AddEntitySubscription(cfg.Subscriptions, name)
	if agent != "" {
		cfg.Metadata.CreatedBy = "" // no user owns it: see register
	}
	if err := cfg.Validate(); err != nil {
		return reject("invalid", "proxy entity %q: %w", resource.Short(name), err)
	}
	st := resource.EntityStateOf(e)
	st.System.Processes = i.boundProcesses(namespace, name, st.System.Processes)
	if limited {
		if err := i.quotas.mayMake(i.opts.Config.Snapshot(), namespace, agent); err != nil {
			return err
		}
		facts := st.AppendProto(nil)
		if i.tooLarge(namespace, name, facts) {
			st, facts = nil, nil
		}
		if err := i.mayDefine(cfg, nil, len(facts)); err != nil {
			return err
		}
	}
	err := config.Create(ctx, i.opts.Config, config.Entities, cfg)
	if errors.Is(err, config.ErrExists) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create proxy entity %s: %w", name, err)
	}
	i.quotas.made(namespace, agent, name)
	if st == nil {
		return nil
	}
	return i.entityState(ctx, st)
}

// entityState logs the facts of an entity's host.
func (i *Intake) entityState(ctx context.Context, st *resource.EntityState) error {
	rec := recordOfState(st, time.Now())
	if err := i.append(ctx, &rec, nil, 0); err != nil {
		return fmt.Errorf("append state of entity %s: %w", rec.Entity, err)
	}
	return nil
}
