package resource

import "slices"

// Entity classes that lapwing itself sets; users may name others.
const (
	EntityAgentClass   = "agent"
	EntityProxyClass   = "proxy"
	EntityBackendClass = "backend"
)

// Entity is a thing that is watched: a host with an agent, or a proxy for something without one.
type Entity struct {
	EntityClass        string         `json:"entity_class" pb:"1"`          // agent or proxy
	System             System         `json:"system" pb:"3,always"`         // reported by the agent
	Subscriptions      []string       `json:"subscriptions" pb:"4"`         // it runs the checks of these
	LastSeen           int64          `json:"last_seen" pb:"5"`             // Unix seconds
	Deregister         bool           `json:"deregister" pb:"6"`            // whether the entity is removed when its agent is gone
	Deregistration     Deregistration `json:"deregistration" pb:"7,always"` // handler that gets an event when it is removed
	User               string         `json:"user,omitempty" pb:"11"`       // name that the agent signs in with
	ExtendedAttributes []byte         `json:"-" pb:"12"`
	Redact             []string       `json:"redact,omitempty" pb:"13"` // keys whose values are hidden
	Metadata           ObjectMeta     `json:"metadata" pb:"14,always"`
	SensuAgentVersion  string         `json:"sensu_agent_version" pb:"15"`          // reported by the agent
	KeepaliveHandlers  []string       `json:"keepalive_handlers,omitempty" pb:"16"` // names of handlers that get the events of its keepalives
	DependsOn          []string       `json:"depends_on,omitempty"`                 // lapwing's own; while one fails, no incident is handled
	TTL                int64          `json:"ttl,omitempty"`                        // lapwing's own; seconds until a silent proxy is removed
}

// EntityConfig is the part of an Entity that users define; the rest is reported by its agent.
type EntityConfig struct {
	Metadata          ObjectMeta     `json:"metadata" pb:"1,always"`
	EntityClass       string         `json:"entity_class" pb:"2"`                 // agent or proxy
	User              string         `json:"user,omitempty" pb:"3"`               // name that the agent signs in with
	Subscriptions     []string       `json:"subscriptions" pb:"4"`                // it runs the checks of these
	Deregister        bool           `json:"deregister" pb:"5"`                   // whether the entity is removed when its agent is gone
	Deregistration    Deregistration `json:"deregistration" pb:"6,always"`        // handler that gets an event when it is removed
	KeepaliveHandlers []string       `json:"keepalive_handlers,omitempty" pb:"7"` // names of handlers that get the events of its keepalives
	Redact            []string       `json:"redact,omitempty" pb:"8"`             // keys whose values are hidden
	DependsOn         []string       `json:"depends_on,omitempty"`                // lapwing's own; while one fails, no incident is handled
	// TTL is lapwing's own: an entity without an agent is removed with its events after this many seconds without a
	// result. 0 means the backend's default, negative means never.
	TTL int64 `json:"ttl,omitempty"`
}

// EntityState is the part of an Entity that its agent reports.
type EntityState struct {
	Metadata          ObjectMeta `json:"metadata" pb:"1,always"`
	System            System     `json:"system" pb:"2,always"`
	LastSeen          int64      `json:"last_seen" pb:"3"` // Unix seconds
	SensuAgentVersion string     `json:"sensu_agent_version" pb:"4"`
}

// EntityConfigOf returns the part of e that users define. It shares e's maps and slices.
func EntityConfigOf(e *Entity) *EntityConfig {
	return &EntityConfig{
		Metadata:          e.Metadata,
		EntityClass:       e.EntityClass,
		User:              e.User,
		Subscriptions:     e.Subscriptions,
		Deregister:        e.Deregister,
		Deregistration:    e.Deregistration,
		KeepaliveHandlers: e.KeepaliveHandlers,
		Redact:            e.Redact,
		DependsOn:         e.DependsOn,
		TTL:               e.TTL,
	}
}

// EntityStateOf returns the part of e that its agent reports. It shares e's maps and slices.
func EntityStateOf(e *Entity) *EntityState {
	return &EntityState{
		Metadata:          e.Metadata,
		System:            e.System,
		LastSeen:          e.LastSeen,
		SensuAgentVersion: e.SensuAgentVersion,
	}
}

// JoinEntity returns an entity made of its two halves. State may be nil, for an entity without reports yet. The result
// shares the maps and slices of both.
func JoinEntity(config *EntityConfig, state *EntityState) *Entity {
	e := &Entity{
		Metadata:          config.Metadata,
		EntityClass:       config.EntityClass,
		User:              config.User,
		Subscriptions:     config.Subscriptions,
		Deregister:        config.Deregister,
		Deregistration:    config.Deregistration,
		KeepaliveHandlers: config.KeepaliveHandlers,
		Redact:            config.Redact,
		DependsOn:         config.DependsOn,
		TTL:               config.TTL,
	}
	if state != nil {
		e.System = state.System
		e.LastSeen = state.LastSeen
		e.SensuAgentVersion = state.SensuAgentVersion
	}
	return e
}

// EntitySubscription returns the subscription that only the named entity has.
func EntitySubscription(name string) string { return "entity:" + name }

// AddEntitySubscription returns subs with the named entity's own subscription. It never changes subs' array.
func AddEntitySubscription(subs []string, name string) []string {
	own := EntitySubscription(name)
	if slices.Contains(subs, own) {
		return subs
	}
	return append(slices.Clip(subs), own)
}

// System describes an agent's host.
type System struct {
	Hostname        string    `json:"hostname,omitempty" pb:"1"`
	OS              string    `json:"os,omitempty" pb:"2"`
	Platform        string    `json:"platform,omitempty" pb:"3"`
	PlatformFamily  string    `json:"platform_family,omitempty" pb:"4"`
	PlatformVersion string    `json:"platform_version,omitempty" pb:"5"`
	Network         Network   `json:"network" pb:"6,always"`
	Arch            string    `json:"arch,omitempty" pb:"7"`
	ARMVersion      int32     `json:"arm_version,omitempty" pb:"8"`
	LibCType        string    `json:"libc_type" pb:"9"`
	VMSystem        string    `json:"vm_system" pb:"10"`
	VMRole          string    `json:"vm_role" pb:"11"`
	CloudProvider   string    `json:"cloud_provider" pb:"12"`
	FloatType       string    `json:"float_type,omitempty" pb:"13"`
	Processes       []Process `json:"processes" pb:"14"`
}

// Network lists a host's interfaces.
type Network struct {
	Interfaces []NetworkInterface `json:"interfaces" pb:"1"`
}

// NetworkInterface is one interface with its addresses in CIDR form.
type NetworkInterface struct {
	Name      string   `json:"name,omitempty" pb:"1"`
	MAC       string   `json:"mac,omitempty" pb:"2"`
	Addresses []string `json:"addresses" pb:"3"`
}

// Deregistration names the handler for the event about an entity's removal.
type Deregistration struct {
	Handler string `json:"handler,omitempty" pb:"1"`
}
