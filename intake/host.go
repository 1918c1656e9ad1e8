package intake

import (
	"encoding/json"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// Bounds of what an event or keepalive may say about an entity and its host. Definitions and facts are in memory, one
// of each for every name that an agent makes up.
const (
	maxDefinition = 64 << 10  // bytes of JSON
	maxFacts      = 256 << 10 // bytes
)

// mayDefine refuses a definition that an event or keepalive brings if it is larger than maxDefinition, or if its
// namespace has no room for it and the given bytes of facts. old is the definition that it replaces, nil if there is
// none.
func (i *Intake) mayDefine(e, old *resource.EntityConfig, facts int) error {
	b, err := json.Marshal(e)
	if err != nil {
		return reject("invalid", "entity %s: %w", e.Metadata.Name, err)
	}
	if len(b) > maxDefinition {
		return reject("invalid", "entity %s: its labels, annotations and subscriptions have %d bytes, more than %d",
			e.Metadata.Name, len(b), maxDefinition)
	}
	more := definitionSize(e) + int64(facts)
	if old != nil {
		more -= definitionSize(old)
	}
	return i.quotas.mayHold(i.opts.Config.Snapshot(), e.Metadata.Namespace, more)
}

// Overhead of a definition beside its texts, in bytes: measured with many short labels, and rounded.
const (
	definitionBytes = 1000
	textBytes       = 16
	labelBytes      = 100
)

// definitionSize estimates the memory of a definition, in bytes.
func definitionSize(e *resource.EntityConfig) int64 {
	n := definitionBytes + len(e.Metadata.Name) + len(e.Metadata.CreatedBy) + len(e.User) + len(e.Deregistration.Handler)
	for _, texts := range [][]string{e.Subscriptions, e.KeepaliveHandlers, e.Redact, e.DependsOn} {
		for _, text := range texts {
			n += textBytes + len(text)
		}
	}
	for _, texts := range []map[string]string{e.Metadata.Labels, e.Metadata.Annotations} {
		for name, text := range texts {
			n += labelBytes + len(name) + len(text)
		}
	}
	return int64(n)
}

// A host's processes are logged again after this time, and up to processesSpread more, by the entity's name: otherwise
// all hosts of a fleet that was started at once would write at once.
const (
	processesPeriod = 4 * time.Minute
	processesSpread = 2 * time.Minute
)

// processesDue reports whether the processes of a host are to be logged although its other facts are as they were.
// logged is what state.SplitFacts returns for the processes logged last.
func processesDue(entity string, now []resource.Process, logged []byte, at time.Time) bool {
	if len(logged) == 0 {
		return len(now) > 0
	}
	period := processesPeriod + time.Duration(xxhash.Sum64String(entity)%uint64(processesSpread))
	age := at.Sub(time.Unix(state.ProcessesReported(logged), 0))
	return age >= period || age < -period // the clock was set back
}

// boundProcesses returns as many of a host's processes as are stored, and logs it if some are not. Lapwing's agents send
// no more.
func (i *Intake) boundProcesses(namespace, entity string, all []resource.Process) []resource.Process {
	kept := resource.BoundProcesses(all)
	if len(kept) < len(all) {
		i.rare.Warn("some processes of a host are not stored: it reports too many", namespace+"/"+entity, "namespace", namespace,
			"entity", entity, "reported", len(all), "stored", len(kept), "limit", resource.MaxProcesses, "bytes", resource.MaxProcessBytes)
	}
	return kept
}

// tooLarge reports whether facts are too large to be stored, and logs that.
func (i *Intake) tooLarge(namespace, entity string, facts []byte) bool {
	if len(facts) <= maxFacts {
		return false
	}
	i.rare.Warn("facts of a host are not stored: they are too large", namespace+"/"+entity,
		"namespace", namespace, "entity", entity, "bytes", len(facts), "limit", maxFacts)
	return true
}
