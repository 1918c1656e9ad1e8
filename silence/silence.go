// Package silence decides which events are silenced, and ends silences.
//
// The intake calls Matcher.Match once for each event and writes the answer into the log's record, so that all readers
// of the log agree. A silence counts as soon as the snapshot has it. Readers of stored events call Matcher.Present,
// because they show what is silenced now. Keeper deletes silences that have expired, or whose incident is resolved.
// Watcher announces to live streams when a silence begins or ends, and sends reminders before the end.
// Definitions are in config, and docs/silences.md describes them.
package silence

import (
	"bytes"
	"slices"
)

// Common returns the subscriptions that a check and its entity share: those can silence an event. For a proxy entity
// that the check names, it returns all of the entity's. The result may share memory with check.
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
