package cluster

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/lapwing-monitoring/lapwing/eventlog"
)

// Beat is a heartbeat. A member sends one to all others twice a second. Releases only add fields to it, without a
// version: a member of the release before ignores them, and does not send them.
type Beat struct {
	ID   string `json:"id"`
	Life string `json:"life"` // drawn by each start of the process
	// Sent is the member's clock, in Unix milliseconds. It is shown and compared, and decides nothing.
	Sent int64 `json:"sent"`
	// Hears are the members that this one has heard lately.
	Hears []string `json:"hears"`
	// Rosters are the numbers of the newest rosters that the member has folded, by partition.
	Rosters []uint64 `json:"rosters"`
	// Removing are the members that are on a newest roster and not on the one that this member has proposed since.
	Removing []string `json:"removing,omitempty"`
	// Ready says that the member has folded the log up to the end that it had at the start, and may act.
	Ready bool `json:"ready"`
	// Leased says that the member has its lease, and may act.
	Leased bool `json:"leased"`
	// Leaving says that the member stops.
	Leaving bool `json:"leaving,omitempty"`
	Info
}

// Info is what members know of each other.
type Info struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Started is when the process started, in Unix seconds.
	Started int64 `json:"started"`
	// APIURL and AgentURL are where clients and agents reach the member.
	APIURL   string `json:"api_url"`
	AgentURL string `json:"agent_url"`
	// Sessions is the number of agents that are connected to it.
	Sessions int `json:"sessions"`
	// Presence is the number of the newest change of these that it has told the others; 0 from an earlier release.
	Presence uint64 `json:"presence,omitempty"`
	// Received is how many events it has received since it started; 0 from an earlier release.
	Received uint64 `json:"received,omitempty"`
	// Overloaded says that it holds requests for agents back.
	Overloaded bool `json:"overloaded,omitempty"`
	// Draining says that it sends its agents to other members.
	Draining bool `json:"draining,omitempty"`
	// Revision is that of its definitions. Folded are the newest messages that it has folded, and Replay those from which
	// a restart of it would replay, by partition.
	Revision uint64 `json:"revision"`
	// DefinitionsDigest is that of the definitions at Revision; 0 from an earlier release.
	DefinitionsDigest uint64   `json:"definitions_digest,omitempty"`
	Folded            []uint64 `json:"folded"`
	Replay            []uint64 `json:"replay"`
	// Digests are of the messages that it has folded, at the newest message where members compare them, by partition.
	Digests []eventlog.Digest `json:"digests,omitempty"`
	// DiskFree is the space on the disk of the state directory, in bytes.
	DiskFree uint64 `json:"disk_free"`
}

// peer is what this member knows of another one. Times are of the own clock.
type peer struct {
	beat  Beat
	heard time.Time // when its newest beat came
	ready time.Time // when it last was ready to act and had its lease, by its beats
	// hearsUs is when a beat last said that it hears this member.
	hearsUs time.Time
	skew    time.Duration // how far its clock is ahead, with the way of the heartbeat
	left    time.Time     // when it last began to be away: removed from a roster, or its process was replaced
	// forgotten says that it is gone for good; see Forget.
	forgotten bool
}

// beatSubject is the bus's subject of beats.
const beatSubject = "lapwing.cluster.beat"

// beat sends a beat.
func (c *Cluster) beat() {
	b := c.own()
	body, err := json.Marshal(&b)
	if err == nil {
		err = c.opts.Bus.Publish(beatSubject, body)
	}
	if err != nil {
		c.rare.Warn("cannot send a heartbeat to the other members", "", "err", err)
	}
}

// own returns what this member says of itself.
func (c *Cluster) own() Beat {
	info := c.opts.Describe()
	info.Name = c.opts.Name
	now := time.Now()
	c.mu.RLock()
	defer c.mu.RUnlock()
	return Beat{
		ID: c.opts.ID, Life: c.lifeID, Sent: now.UnixMilli(), Hears: c.hears(now), Rosters: c.numbers(), Removing: c.removing(),
		Ready: c.ready, Leased: c.leased(now), Leaving: c.leaving, Info: info,
	}
}

// hear takes a beat of another member.
func (c *Cluster) hear(body []byte) {
	var b Beat
	if err := json.Unmarshal(body, &b); err != nil || b.ID == "" {
		c.rare.Warn("heartbeat of a member cannot be read", "", "err", err)
		return
	}
	if b.ID == c.opts.ID {
		return
	}
	now := time.Now()
	c.take(&b, now)
	c.renew(now)
}

// take notes what a beat says.
func (c *Cluster) take(b *Beat, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opts.Size > 0 && !c.heardByMajority(now) {
		c.lease.majority, c.lease.rounds = now, 0 // unless it is one with this beat, the next one says so again
	}
	p := c.peers[b.ID]
	if p == nil {
		p = new(peer)
		c.peers[b.ID] = p
	}
	if p.beat.Life != "" && p.beat.Life != b.Life {
		p.left = now // its agents connect again
	}
	p.beat, p.heard, p.skew, p.forgotten = *b, now, time.UnixMilli(b.Sent).Sub(now), false
	if b.Ready && b.Leased && !b.Leaving {
		p.ready = now
	}
	if slices.Contains(b.Hears, c.opts.ID) {
		p.hearsUs = now
	}
	c.agree(now)
}

// hears returns the members that were heard lately. The caller holds mu.
func (c *Cluster) hears(now time.Time) []string {
	ids := []string{}
	for id, p := range c.peers {
		if now.Sub(p.heard) < c.opts.Lease/2 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
