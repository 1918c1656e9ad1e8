package broker

import (
	"time"
	_ "unsafe" // for go:linkname
)

// The server's pauses before an election, and between the heartbeats of a leader. It has no options for them. They are
// for raft groups over wide areas: after the death of a leader nothing is written for up to 9 s, and for twice that when
// the votes are split. Members of a cluster are near each other, and agents and alerts wait.
//
// docs/decisions/2026-11-23-elections.md has the measurements, and what shorter pauses risk. If a release of the server
// renames a variable, the program does not link.

//go:linkname minElectionTimeout github.com/nats-io/nats-server/v2/server.minElectionTimeout
var minElectionTimeout time.Duration

//go:linkname maxElectionTimeout github.com/nats-io/nats-server/v2/server.maxElectionTimeout
var maxElectionTimeout time.Duration

//go:linkname hbInterval github.com/nats-io/nats-server/v2/server.hbInterval
var hbInterval time.Duration

func init() {
	minElectionTimeout, maxElectionTimeout, hbInterval = 1500*time.Millisecond, 3*time.Second, 400*time.Millisecond
}
