package state

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// The body of an entity's record has two parts, so that events and comparisons can do without the processes of a host,
// which are most of it and change all the time:
//
//  1. the EntityState without them;
//  2. if there are processes, an EntityState with only them and the time at which they were reported (LastSeen).
//
// Decoding both as one message merges them. A body without processes is an EntityState as it always was.

// AppendFacts appends the body of an entity's record to b. If st has processes, its LastSeen is their time.
func AppendFacts(b []byte, st *resource.EntityState) []byte {
	facts := *st
	if len(st.System.Processes) == 0 {
		return facts.AppendProto(b)
	}
	facts.System.Processes, facts.LastSeen = nil, 0
	processes := resource.EntityState{System: resource.System{Processes: st.System.Processes}, LastSeen: st.LastSeen}
	return processes.AppendProto(facts.AppendProto(b))
}

// SplitFacts returns the two parts of a body. It copies nothing. processes is empty if there are none.
func SplitFacts(body []byte) (facts, processes []byte) {
	// Each part begins with the entity's metadata, and has it once.
	for at := 0; at < len(body); {
		num, _, n := protowire.ConsumeField(body[at:])
		if n < 0 {
			break // for the decoder to report
		}
		if num == metadataField && at > 0 {
			return body[:at], body[at:]
		}
		at += n
	}
	return body, nil
}

// ProcessesReported returns the time of the second part of a body, in Unix seconds; 0 if it has none.
func ProcessesReported(processes []byte) int64 {
	for len(processes) > 0 {
		num, typ, n := protowire.ConsumeTag(processes)
		if n < 0 {
			return 0
		}
		if num == lastSeenField && typ == protowire.VarintType {
			at, _ := protowire.ConsumeVarint(processes[n:])
			return int64(at)
		}
		m := protowire.ConsumeFieldValue(num, typ, processes[n:])
		if m < 0 {
			return 0
		}
		processes = processes[n+m:]
	}
	return 0
}

// Fields of EntityState.
const (
	metadataField = 1
	lastSeenField = 3
)
