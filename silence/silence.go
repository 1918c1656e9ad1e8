// Package silence knows which events are silenced and ends silences.
//
// Match is asked once for each event, by whoever takes it into the log: the record says by which silences the event is
// silenced, so that all who read the log agree, whenever they read it. A silence counts as soon as the snapshot has it. Keeper
// deletes silences that have expired, and those that were to last until an incident is resolved.
package silence

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Subject is what may be silenced: the result of a check of an entity.
type Subject struct {
	Namespace, Entity, Check string
	// Subscriptions are the ones by which it can be silenced, beside the entity's own: see Common.
	Subscriptions [][]byte
}

// Match is the silences that apply to a subject, in the order of their names. They belong to the snapshot.
func Match(sn *config.Snapshot, now time.Time, s *Subject) []*resource.Silenced {
	if config.Len(sn, config.Silences) == 0 {
		return nil
	}
	// A silence's name follows from its subscription and check. So there are few that can apply, and each is looked up.
	var room [160]byte
	key := append(room[:0], s.Namespace...)
	key = append(key, 0)
	prefix := len(key)
	var found []*resource.Silenced
	look := func(subscription []byte, check string) {
		key = append(key[:prefix], subscription...)
		key = append(key, ':')
		key = append(key, check...)
		one, ok := config.Lookup(sn, config.Silences, key)
		if !ok || one.Begin > now.Unix() || one.Expired(now) || slices.Contains(found, one) {
			return
		}
		// "a:b" with "c" and "a" with "b:c" have one name.
		if fits(one.Subscription, string(subscription)) && fits(one.Check, check) {
			found = append(found, one)
		}
	}
	var entityRoom [80]byte
	entity := append(append(entityRoom[:0], "entity:"...), s.Entity...)
	look(asterisk, s.Check)
	look(entity, s.Check)
	look(entity, "*")
	for _, subscription := range s.Subscriptions {
		look(subscription, s.Check)
		look(subscription, "*")
	}
	slices.SortFunc(found, func(a, b *resource.Silenced) int { return strings.Compare(a.Metadata.Name, b.Metadata.Name) })
	return found
}

var asterisk = []byte("*")

// fits says whether a silence's field names what it was looked up by; "" is any.
func fits(field, name string) bool { return field == name || field == "" && name == "*" }

// Common are the subscriptions that a check and its entity both have: by those an event can be silenced. For a proxy entity
// that the check names it is all of the entity's. The result may share memory with check.
func Common(check [][]byte, entity []string, named bool) [][]byte {
	if named {
		all := make([][]byte, len(entity))
		for i, s := range entity {
			all[i] = []byte(s)
		}
		return all
	}
	common := check[:0]
	for _, s := range check {
		if slices.Contains(entity, string(s)) && !slices.ContainsFunc(common, func(c []byte) bool { return bytes.Equal(c, s) }) {
			common = append(common, s)
		}
	}
	return common
}
