package session

import (
	"context"
	"fmt"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/intake"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// begin sends the agent its stored configuration, or that it is not registered, and subscribes the session
// accordingly. A proxy entity that a user defined becomes the agent's entity unchanged. One that events made is left
// to the first keepalive, which replaces it.
func (s *session) begin(ctx context.Context) error {
	cfg, ok := s.stored()
	if ok && cfg.EntityClass != resource.EntityAgentClass && cfg.Metadata.CreatedBy != "" {
		makeAgent := func(c *resource.EntityConfig) (*resource.EntityConfig, error) {
			c.EntityClass = resource.EntityAgentClass
			return c, nil
		}
		_, err := config.Update(ctx, s.server.opts.Config, config.Entities, s.namespace, s.name, makeAgent)
		if err != nil {
			return fmt.Errorf("make entity %s an agent's: %w", s.name, err)
		}
	}
	return s.configure()
}

// unknownEntity is the entity name that tells an agent that it is not registered yet.
const unknownEntity = "not found"

func (s *session) stored() (*resource.EntityConfig, bool) {
	return config.Get(s.server.opts.Config.Snapshot(), config.Entities, s.namespace, s.name)
}

// configure sends the agent its configuration and subscribes the session accordingly. Calls may overlap: the agent
// gets the newest configuration last.
func (s *session) configure() error {
	s.configuring.Lock()
	defer s.configuring.Unlock()
	cfg, ok := s.stored()
	if ok && cfg.EntityClass == resource.EntityProxyClass && cfg.Metadata.CreatedBy == "" {
		ok = false // events made it: the agent's keepalive replaces it, and must not take its subscriptions before that
	}
	if !ok {
		cfg = &resource.EntityConfig{
			Metadata: resource.ObjectMeta{Name: unknownEntity, Namespace: s.namespace}, EntityClass: resource.EntityAgentClass,
		}
	}
	frame, err := wire.Append(nil, wire.TypeEntityConfig, s.encoding, forAgent(cfg))
	if err != nil {
		return fmt.Errorf("encode entity config of %s: %w", s.name, err)
	}
	if ok {
		own := s.server.opts.Intake.OwnSubscriptions(s.namespace, s.name, cfg.Subscriptions)
		s.server.registry.subscribe(s, resource.AddEntitySubscription(own, s.name))
	}
	s.send(frame)
	return nil
}

// forAgent returns an entity's configuration as its agent gets it.
func forAgent(cfg *resource.EntityConfig) *resource.EntityConfig {
	if !intake.Managed(cfg) {
		return cfg
	}
	sent := *cfg
	sent.Metadata.Labels = map[string]string{}
	for k, v := range cfg.Metadata.Labels {
		if k != intake.ManagedByLabel {
			sent.Metadata.Labels[k] = v
		}
	}
	return &sent
}
