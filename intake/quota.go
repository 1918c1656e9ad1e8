package intake

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Quotas bound what events may make and store. 0 is no bound. Results that an agent reports for its own entity do not
// count towards entities and bytes.
type Quotas struct {
	// AgentEntities is how many proxy entities the events of one agent may make.
	AgentEntities int64
	// AgentBytes bounds the size of the newest events of the entities that one agent reports for.
	AgentBytes int64
	// AgentEvents is the long-term rate of one agent's events a second; more are delayed.
	AgentEvents int64
	// NamespaceEntities is the number of entities in a namespace from which on events, keepalives included, make no
	// more.
	NamespaceEntities int64
	// NamespaceBytes is AgentBytes for all agents and users of a namespace together. It is also the bound, counted
	// separately, on the definitions and facts of the namespace's entities that events and keepalives may make or
	// enlarge.
	NamespaceBytes int64
	// NamespaceEvents is AgentEvents for all agents and users of a namespace.
	NamespaceEvents int64
}

// The names of the quotas: those of the flags, and a metric's label.
const (
	quotaAgentEntities     = "agent-quota-entities"
	quotaAgentBytes        = "agent-quota-bytes"
	quotaAgentEvents       = "agent-quota-events"
	quotaNamespaceEntities = "namespace-quota-entities"
	quotaNamespaceBytes    = "namespace-quota-bytes"
	// QuotaNamespaceEvents is the name of Quotas.NamespaceEvents.
	QuotaNamespaceEvents = "namespace-quota-events"
)

var quotaNames = []string{
	quotaAgentEntities, quotaAgentBytes, quotaAgentEvents, quotaNamespaceEntities, quotaNamespaceBytes, QuotaNamespaceEvents,
}

// DefaultQuotas returns the default quotas. They do not bound how many events come in a second.
func DefaultQuotas() Quotas {
	return Quotas{AgentEntities: 10_000, AgentBytes: 128 << 20, NamespaceEntities: 500_000, NamespaceBytes: 4 << 30}
}

// quotas counts the use of each quota. It is not stored: after a restart an entity counts for the first agent that
// reports for it, and only new entities count as made.
type quotas struct {
	limits  Quotas
	refused *prometheus.CounterVec
	held    *prometheus.CounterVec

	mu    sync.Mutex             // guards users
	users map[resource.Name]*use // agents by name; a namespace has the name ""
	known sync.Map               // of *reported, by resource.Name: the entities that others report for
	count namespaceCounts        // of entities
}

// use is what an agent or a namespace uses. An agent's use is dropped when it has no holders and its debt has passed.
type use struct {
	key             resource.Name
	holders         int // sessions, and entities that the agent reports for; guarded by the mu of quotas
	entities, bytes atomic.Int64
	next            atomic.Int64 // when the next event is due at an even rate, Unix nanoseconds
}

// reported is an entity that others report for.
type reported struct {
	mu    sync.Mutex // guards the fields below
	agent *use       // which reports for it; nil for users of the API
	made  bool       // by an event of the agent
	bytes int64
	sizes map[string]int64 // of the newest events, by check
	gone  bool
}

// newQuotas returns unused quotas. facts returns the size of the facts of an entity's host, in bytes.
func newQuotas(limits Quotas, facts func(namespace, entity string) int, r prometheus.Registerer) *quotas {
	q := &quotas{
		limits: limits, users: map[resource.Name]*use{},
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_quota_refused_total", Help: "Events, and definitions and facts of entities, refused because a " +
				"quota was used up; by quota.",
		}, []string{"quota"}),
		held: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_quota_held_seconds_total",
			Help: "How long messages of agents were held up because more events came than a quota allows, by quota.",
		}, []string{"quota"}),
	}
	q.count.counts, q.count.facts = map[string]namespaceCount{}, facts
	for _, name := range quotaNames {
		q.refused.WithLabelValues(name)
	}
	for _, name := range []string{quotaAgentEvents, QuotaNamespaceEvents} {
		q.held.WithLabelValues(name)
	}
	if r != nil {
		r.MustRegister(q.refused, q.held)
	}
	return q
}

// namespace returns the use of a namespace.
func (q *quotas) namespace(name string) *use {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.find(resource.Name{Namespace: name})
}

// acquire returns the use of an agent and keeps it until the caller releases it.
func (q *quotas) acquire(namespace, agent string) *use {
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.find(resource.Name{Namespace: namespace, Name: agent})
	u.holders++
	return u
}

// find returns a use, and makes it if there is none. The caller holds mu.
func (q *quotas) find(k resource.Name) *use {
	u := q.users[k]
	if u == nil {
		u = &use{key: k}
		q.users[k] = u
	}
	return u
}

func (q *quotas) release(u *use) {
	q.mu.Lock()
	defer q.mu.Unlock()
	u.holders--
	q.tidy(u)
}

// tidy drops the use of an agent without holders, once its debt has passed: an agent must not lose its debt by
// reconnecting. The caller holds mu.
func (q *quotas) tidy(u *use) {
	if u.holders > 0 || q.users[u.key] != u {
		return
	}
	if debt := time.Until(time.Unix(0, u.next.Load())); debt > 0 {
		time.AfterFunc(debt, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.tidy(u)
		})
		return
	}
	delete(q.users, u.key)
}

// used returns the entities and bytes that an agent uses.
func (q *quotas) used(namespace, agent string) (entities, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if u := q.users[resource.Name{Namespace: namespace, Name: agent}]; u != nil {
		return u.entities.Load(), u.bytes.Load()
	}
	return 0, 0
}

// refuse counts a refusal, and returns its error.
func (q *quotas) refuse(quota, who string, limit int64, after time.Duration) error {
	q.refused.WithLabelValues(quota).Inc()
	return &resource.QuotaError{Quota: quota, Who: who, Limit: limit, After: after}
}

// mayMake returns an error if an event of the agent, or of a user for "", may not make another entity.
func (q *quotas) mayMake(sn *config.Snapshot, namespace, agent string) error {
	if limit := q.limits.AgentEntities; agent != "" && limit > 0 {
		if entities, _ := q.used(namespace, agent); entities >= limit {
			return q.refuse(quotaAgentEntities, "agent "+agent, limit, 0)
		}
	}
	if limit := q.limits.NamespaceEntities; limit > 0 && q.count.reached(sn, namespace, limit) {
		return q.refuse(quotaNamespaceEntities, "namespace "+namespace, limit, 0)
	}
	return nil
}

// mayHold returns an error if an event or keepalive may not add that many bytes to the definitions and facts of a
// namespace's entities. It may always remove some. Bytes that it allows count at once.
func (q *quotas) mayHold(sn *config.Snapshot, namespace string, more int64) error {
	if limit := q.limits.NamespaceBytes; limit > 0 && !q.count.room(sn, namespace, more, limit) {
		return q.refuse(quotaNamespaceBytes, "namespace "+namespace, limit, 0)
	}
	return nil
}

// made records that an event of the agent, or of a user for "", has made an entity.
func (q *quotas) made(namespace, agent, entity string) {
	q.count.made(namespace)
	if agent == "" {
		return
	}
	r := q.locked(namespace, entity)
	defer r.mu.Unlock()
	if !r.made {
		q.adopt(r, namespace, agent)
		r.made = true
		r.agent.entities.Add(1)
	}
}

// locked returns an entity that others report for. The caller unlocks its mu.
func (q *quotas) locked(namespace, entity string) *reported {
	k := resource.Name{Namespace: namespace, Name: entity}
	for {
		v, ok := q.known.Load(k)
		if !ok {
			v, _ = q.known.LoadOrStore(k, &reported{sizes: map[string]int64{}})
		}
		r := v.(*reported)
		r.mu.Lock()
		if !r.gone {
			return r
		}
		r.mu.Unlock() // it was dropped in the meantime
	}
}

// adopt counts an entity for the first agent that reports for it, including events that users of the API stored
// before. The caller holds the mu of r.
func (q *quotas) adopt(r *reported, namespace, agent string) {
	if r.agent == nil && agent != "" {
		r.agent = q.acquire(namespace, agent)
		r.agent.bytes.Add(r.bytes)
	}
}

// store records the size of the newest event of an entity that is not the agent's own; agent is "" for a user of the
// API. It refuses an event that is larger than the one before if there is no room for the difference.
func (q *quotas) store(namespace, agent, entity, check string, size int) error {
	r := q.locked(namespace, entity)
	defer r.mu.Unlock()
	all := q.namespace(namespace)
	more := int64(size) - r.sizes[check]
	if more > 0 {
		if err := q.room(r, all, agent, more); err != nil {
			q.dropUnused(r, entity, all)
			return err
		}
	}
	q.adopt(r, namespace, agent)
	r.sizes[check] = int64(size)
	q.add(r, all, more)
	return nil
}

// room returns an error if there is no room for that many more bytes. The caller holds the mu of r.
func (q *quotas) room(r *reported, all *use, agent string, more int64) error {
	owner, bytes := agent, more
	if r.agent != nil {
		owner = r.agent.key.Name
		bytes += r.agent.bytes.Load()
	} else if agent != "" {
		_, used := q.used(all.key.Namespace, agent)
		bytes += used + r.bytes
	}
	if limit := q.limits.AgentBytes; limit > 0 && owner != "" && bytes > limit {
		return q.refuse(quotaAgentBytes, "agent "+owner, limit, 0)
	}
	if limit := q.limits.NamespaceBytes; limit > 0 && all.bytes.Load()+more > limit {
		return q.refuse(quotaNamespaceBytes, "namespace "+all.key.Namespace, limit, 0)
	}
	return nil
}

// dropUnused drops an entity without stored events, unless an agent has made it: that counts until it is deleted. The
// caller holds the mu of r.
func (q *quotas) dropUnused(r *reported, entity string, all *use) {
	if len(r.sizes) == 0 && !r.made && q.known.CompareAndDelete(resource.Name{Namespace: all.key.Namespace, Name: entity}, r) {
		q.end(r, all)
	}
}

// end releases what an entity has used. The caller holds its mu.
func (q *quotas) end(r *reported, all *use) {
	r.gone = true
	q.add(r, all, -r.bytes)
	if r.agent == nil {
		return
	}
	if r.made {
		r.agent.entities.Add(-1)
	}
	q.release(r.agent)
}

// add changes the bytes of an entity. The caller holds its mu.
func (q *quotas) add(r *reported, all *use, more int64) {
	r.bytes += more
	all.bytes.Add(more)
	if r.agent != nil {
		r.agent.bytes.Add(more)
	}
}

// forget releases what a deleted entity has used.
func (q *quotas) forget(namespace, entity string) {
	v, ok := q.known.LoadAndDelete(resource.Name{Namespace: namespace, Name: entity})
	if !ok {
		return
	}
	r := v.(*reported)
	r.mu.Lock()
	defer r.mu.Unlock()
	q.end(r, q.namespace(namespace))
}

// forgetEvent releases what one event has used.
func (q *quotas) forgetEvent(namespace, entity, check string) {
	v, ok := q.known.Load(resource.Name{Namespace: namespace, Name: entity})
	if !ok {
		return
	}
	r := v.(*reported)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.gone {
		all := q.namespace(namespace)
		q.add(r, all, -r.sizes[check])
		delete(r.sizes, check)
		q.dropUnused(r, entity, all)
	}
}

// namespaceCounts are the numbers of entities in namespaces, and the sizes of their definitions and facts. A namespace
// is counted only when needed, at most once every countEvery: never in an installation whose entities cannot reach a
// quota.
type namespaceCounts struct {
	facts func(namespace, entity string) int

	mu     sync.Mutex // guards counts
	counts map[string]namespaceCount
}

type namespaceCount struct {
	entities, bytes int64
	at              time.Time
}

const countEvery = 10 * time.Second

func (c *namespaceCounts) reached(sn *config.Snapshot, namespace string, limit int64) bool {
	if int64(config.Len(sn, config.Entities)) < limit {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newest(sn, namespace).entities >= limit
}

// newest counts a namespace unless a recent count exists. The caller holds mu.
func (c *namespaceCounts) newest(sn *config.Snapshot, namespace string) namespaceCount {
	n, ok := c.counts[namespace]
	if now := time.Now(); !ok || now.Sub(n.at) > countEvery {
		n = namespaceCount{at: now}
		for e := range config.List(sn, config.Entities, namespace) {
			n.entities++
			n.bytes += definitionSize(e) + int64(c.facts(namespace, e.Metadata.Name))
		}
		c.counts[namespace] = n
	}
	return n
}

// made counts an entity that is newer than the last count.
func (c *namespaceCounts) made(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n, ok := c.counts[namespace]; ok {
		n.entities++
		c.counts[namespace] = n
	}
}

// room adds that many bytes, and reports whether they stay within the limit; if not, they are not added.
func (c *namespaceCounts) room(sn *config.Snapshot, namespace string, more, limit int64) bool {
	if int64(config.Len(sn, config.Entities)+1)*mostOfEntity <= limit {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.newest(sn, namespace)
	if more > 0 && n.bytes+more > limit {
		return false
	}
	n.bytes += more
	c.counts[namespace] = n
	return true
}

// mostOfEntity is about the largest memory of an entity's definition and facts, in bytes: a definition of many short
// texts takes several times its JSON.
const mostOfEntity = 16*maxDefinition + maxFacts
