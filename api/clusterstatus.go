package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// ClusterView shows all backends of a cluster, and reaches the others. A backend that is alone is a cluster of one.
type ClusterView interface {
	// Status returns how the members stand, without Problems. It returns within a second, even if members or the
	// broker are down: what does not answer is unknown.
	Status(ctx context.Context) *ClusterStatus
	// Remove removes a member that is gone for good, by its name or its name at the broker. It returns the latter; on NATS
	// servers that are run beside the members, its id.
	Remove(ctx context.Context, name string) (removed string, err error)
	// Drain does an action with the drain of a member, by its name or id.
	Drain(ctx context.Context, member string, action DrainAction, over time.Duration) (resource.Drain, error)
	// Revision returns the newest revision of the definitions that a member is known to have. It is cheap.
	Revision() uint64
	// CutOff reports whether this backend has no lease, so that the others may know more than it does. It is cheap.
	CutOff() bool
}

// Errors of a ClusterView. Errors that wrap them are answers to users.
var (
	ErrNoMember     = errors.New("no such member")                      // answered 404
	ErrMemberUp     = errors.New("the member is connected")             // answered 409
	ErrMemberSilent = errors.New("the member or the cluster is silent") // answered 503
)

// ClusterStatus is how the members of a cluster stand, as the backend that is asked sees it.
type ClusterStatus struct {
	// Problems says in words what is wrong, the worst first. It is empty if all is well.
	Problems []string `json:"problems"`
	// Member is the name of the backend that answers.
	Member string `json:"member"`
	// Size is how many members the cluster has when all are there.
	Size int `json:"size"`
	// Roster is the number of the newest list of members in the event log; 0 for a backend that is alone.
	Roster uint64 `json:"roster"`
	// NATS names the NATS servers that are run beside the members; "" if the members have servers of their own. With it
	// the leaders and copies of streams are servers of NATS, and Leader is "".
	NATS string `json:"nats,omitempty"`
	// Leader is the member that decides who keeps which stream; "" if there is none.
	Leader string `json:"leader"`
	// LeaderError is why the leader is not known.
	LeaderError string `json:"leader_error,omitempty"`
	// DiskReserve is the free space, in bytes, below which the backend that answers takes no events.
	DiskReserve uint64 `json:"disk_reserve"`
	// Members are the backends, by their names. It is empty if the backend does not know them.
	Members    []MemberStatus    `json:"members"`
	Partitions []PartitionStatus `json:"partitions"`
	Streams    []StreamStatus    `json:"streams"`
}

// MemberStatus is how one backend stands. Of a backend that is away, all but the name may be older.
type MemberStatus struct {
	ID      string `json:"id"` // "" if only the broker knows it
	Name    string `json:"name"`
	Self    bool   `json:"self,omitempty"` // it is the backend that answers
	Version string `json:"version,omitempty"`
	// APIURL and AgentURL are where clients and agents reach it.
	APIURL   string `json:"api_url,omitempty"`
	AgentURL string `json:"agent_url,omitempty"`
	// Started is when its process started, in Unix seconds; 0 if that is not known.
	Started int64 `json:"started,omitempty"`
	// Up says that it was heard lately. AwaySeconds is how long it has not been heard, or how long the backend that
	// answers has listened for it.
	Up          bool    `json:"up"`
	AwaySeconds float64 `json:"away_seconds,omitempty"`
	Ready       bool    `json:"ready"`             // it has read the event log, and may act
	Leaving     bool    `json:"leaving,omitempty"` // it stops
	Leased      bool    `json:"leased"`            // it hears a majority that hears it, or NATS takes what it writes: it may act
	OnRoster    bool    `json:"on_roster"`         // it is on the newest list of members
	Draining    bool    `json:"draining,omitempty"`
	Sessions    int     `json:"sessions"` // agents that are connected to it
	// Received is how many events it has received since it started, keepalives among them, from agents and through the API, as
	// it was last heard. It is absent if there were none, and of a member of an earlier release.
	Received uint64 `json:"received,omitempty"`
	DiskFree uint64 `json:"disk_free"`
	// ClockSkewSeconds is how far its clock is ahead of that of the backend that answers.
	ClockSkewSeconds float64 `json:"clock_skew_seconds"`
	// Revision is that of its definitions. DefinitionsLag is how many changes it has not got, and another member has.
	Revision       uint64 `json:"revision"`
	DefinitionsLag uint64 `json:"definitions_lag"`
	// DefinitionsDiffer says that it has other definitions than the backend that answers, at the same revision.
	// DefinitionsStandSeconds is how long it has lacked changes and got none.
	DefinitionsDiffer       bool    `json:"definitions_differ,omitempty"`
	DefinitionsStandSeconds float64 `json:"definitions_stand_seconds,omitempty"`
	// Folded are the newest messages of the event log that it has folded, by partition. FoldLag is how many it has not
	// folded, and another member has.
	Folded  []uint64 `json:"folded"`
	FoldLag []uint64 `json:"fold_lag"`
	// Digests are of the messages that it has folded, by partition. DigestsDiffer are the partitions of which it has
	// folded other messages than the backend that answers.
	Digests       []DigestStatus `json:"digests"`
	DigestsDiffer []int          `json:"digests_differ"`
}

// DigestStatus is a sum over the messages of a partition. Members that have folded the same messages have the same one.
type DigestStatus struct {
	From uint64 `json:"from"` // the first message that counts; 0 if there is none
	Seq  uint64 `json:"seq"`  // the newest one; members report it once in 16 messages
	Sum  string `json:"sum"`  // 16 hexadecimal digits
}

// PartitionStatus says who acts for a partition of the event log.
type PartitionStatus struct {
	Partition int    `json:"partition"`
	Owner     string `json:"owner"`  // the member; "" if there is none
	Roster    uint64 `json:"roster"` // number of the partition's newest list of members
}

// StreamStatus is how the copies of a stream of the broker stand.
type StreamStatus struct {
	Name   string `json:"name"`   // at the broker
	Holds  string `json:"holds"`  // definitions, audit log, or a partition of the event log
	Leader string `json:"leader"` // the member; "" if there is none, or if Error is set
	// Error is why leader and copies are not known.
	Error string `json:"error,omitempty"`
	// Copies is how many there should be, the leader's included.
	Copies int `json:"copies"`
	// Replicas are the copies of the other members.
	Replicas []ReplicaStatus `json:"replicas"`
}

// ReplicaStatus is a member's copy of a stream, as its leader sees it.
type ReplicaStatus struct {
	Member       string  `json:"member"`
	Current      bool    `json:"current"` // it has everything
	Offline      bool    `json:"offline"` // its member is not connected to the leader
	Lag          uint64  `json:"lag"`     // changes that it has not got
	HeardSeconds float64 `json:"heard_seconds"`
}

// serveClusterStatus adds lapwing's own paths about the cluster.
func (a *API) serveClusterStatus() {
	named := func(name string) access {
		return access{resource: "cluster", name: func(*request) string { return name }, always: true}
	}
	a.route(ours+"cluster", named("status"), methods{http.MethodGet: a.clusterStatus})
	a.route(ours+"cluster/members/{name}", named("members"), methods{http.MethodDelete: a.removeMember})
}

func (a *API) clusterStatus(w *response, r *request) error {
	st := a.opts.Cluster.Status(r.Context())
	st.Problems = st.problems()
	return w.object(st)
}

// removeMember removes a member that is gone for good. It is audited under its name at the broker, which never comes
// back.
func (a *API) removeMember(w *response, r *request) error {
	removed, err := a.opts.Cluster.Remove(r.Context(), r.PathValue("name"))
	if err != nil {
		return err
	}
	a.audited(r.Context(), r.act, "delete", "cluster", "", removed)
	return w.empty(http.StatusNoContent)
}

// memberError returns the answer to an error of a ClusterView; nil if it is another error.
func memberError(err error) *apiError {
	switch {
	case errors.Is(err, ErrNoMember):
		return &apiError{status: http.StatusNotFound, code: codeNotFound, message: err.Error()}
	case errors.Is(err, ErrMemberUp):
		return &apiError{status: http.StatusConflict, code: codeInvalid, message: err.Error()}
	case errors.Is(err, ErrMemberSilent):
		return &apiError{status: http.StatusServiceUnavailable, code: codeInternal, message: err.Error()}
	}
	return nil
}

// clusterOfOne is the ClusterView of an API that was given none.
type clusterOfOne struct {
	name  string
	drain Drainer
}

func newClusterOfOne(drain Drainer) *clusterOfOne {
	name, err := os.Hostname()
	if err != nil {
		name = "lapwing"
	}
	return &clusterOfOne{name, drain}
}

func (c *clusterOfOne) Status(context.Context) *ClusterStatus {
	d := ActOnDrain(c.drain, DrainLook, 0)
	return &ClusterStatus{
		Member: c.name, Size: 1, Leader: c.name, Partitions: []PartitionStatus{}, Streams: []StreamStatus{},
		Members: []MemberStatus{{
			Name: c.name, Self: true, Up: true, Ready: true, Leased: true, OnRoster: true,
			Draining: d.Draining, Sessions: d.Sessions, Folded: []uint64{}, FoldLag: []uint64{},
			Digests: []DigestStatus{}, DigestsDiffer: []int{},
		}},
	}
}

func (c *clusterOfOne) Remove(_ context.Context, name string) (string, error) {
	if name == c.name {
		return "", fmt.Errorf("%w: it is the only one", ErrMemberUp)
	}
	return "", NoMember(name, []string{c.name})
}

func (c *clusterOfOne) Drain(_ context.Context, member string, action DrainAction, over time.Duration) (
	resource.Drain, error,
) {
	if member != c.name {
		return resource.Drain{}, NoMember(member, []string{c.name})
	}
	return ActOnDrain(c.drain, action, over), nil
}

func (c *clusterOfOne) Revision() uint64 { return 0 }
func (c *clusterOfOne) CutOff() bool     { return false }

// NoMember returns the error for a name that no member has.
func NoMember(name string, members []string) error {
	slices.Sort(members)
	return fmt.Errorf("%w: %s is none of the members %s", ErrNoMember, resource.Short(name), listed(slices.Compact(members)))
}
