package silence

import (
	"iter"
	"strings"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// EntityOf returns the entity of a silence that is about one entity only; false if it is about a subscription, a check
// or a selection.
func EntityOf(s *resource.Silenced) (entity string, ok bool) {
	return strings.CutPrefix(s.Subscription, entityPrefix)
}

// acknowledged returns what an acknowledgement is about.
func acknowledged(s *resource.Silenced) (entity, check string, ok bool) {
	entity, ok = EntityOf(s)
	return entity, s.Check, ok
}

// Orphans returns the silences of a namespace, or of all for "", that are about one entity only, which is not defined.
func Orphans(sn *config.Snapshot, namespace string) iter.Seq[*resource.Silenced] {
	return func(yield func(*resource.Silenced) bool) {
		for s := range config.List(sn, config.Silences, namespace) {
			entity, ok := EntityOf(s)
			if !ok {
				continue
			}
			if _, defined := config.Get(sn, config.Entities, s.Metadata.Namespace, entity); !defined && !yield(s) {
				return
			}
		}
	}
}
