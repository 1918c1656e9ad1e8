// Package silence knows which events are silenced and ends silences.
//
// Matcher is asked once for each event, by whoever takes it into the log: the record says by which silences the event is
// silenced, so that all who read the log agree, whenever they read it. A silence counts as soon as the snapshot has it. Readers
// of stored events ask again: they want to know what is silenced now. Keeper deletes silences that have expired, and those
// that were to last until an incident is resolved; Watcher reminds before the end, and tells who watches events.
package silence

import (
	"bytes"
	"slices"
)

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
