package backend

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lapwing-monitoring/lapwing/api"
	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/cluster"
)

// This file has what differs for members whose log is on NATS servers that are run beside them: the broker does not
// count the members, so only the members know each other.

// onNATS reports whether the log is on NATS servers that are run beside the members.
func (v *clusterView) onNATS() bool { return v.backend.opts.Cluster.NATS.on() }

var errNoServers = errors.New("the members have no servers of their own")

// fillNATS adds to a status what NATS says of its streams.
func (v *clusterView) fillNATS(st *api.ClusterStatus, groups []broker.Group) {
	st.NATS = v.backend.opts.Cluster.NATS.external(nil).Where()
	for i := range st.Streams {
		st.Streams[i].Copies = max(1, groups[i].Copies)
	}
}

const questionForget = "forget"

// forgetQuestion asks a member to leave another one out of its list.
type forgetQuestion struct {
	ID string `json:"id"`
}

func (v *clusterView) forgetHere(_ context.Context, q *forgetQuestion) (struct{}, error) {
	v.members.Forget(q.ID)
	return struct{}{}, nil
}

// removeFromList has all members forget one that is away. It returns the member's id.
func (v *clusterView) removeFromList(ctx context.Context, name string, members []cluster.Member) (string, error) {
	m, err := absent(name, members)
	if err != nil {
		return "", err
	}
	v.members.Forget(m.ID)
	all, err := askAll[struct{}](ctx, v.members, questionForget, forgetQuestion{m.ID})
	if err != nil {
		return "", err
	}
	for _, one := range all {
		if one.err != nil {
			v.log.Warn("a member did not answer and still lists one that was removed: ask it to remove that one too",
				"member", one.name, "removed", name, "err", one.err)
		}
	}
	v.log.Warn("a member was removed for good", "member", name, "id", m.ID)
	return m.ID, nil
}

// absent returns the one member of a name that is away and on no roster.
func absent(name string, members []cluster.Member) (*cluster.Member, error) {
	var away, known []string
	var found *cluster.Member
	for i := range members {
		m := &members[i]
		known = append(known, m.Name)
		switch {
		case name != m.Name && name != m.ID && name != serverName(m):
		case m.Self || m.Heard:
			if found == nil {
				found = m
			}
		default:
			away, found = append(away, serverName(m)), m
		}
	}
	switch {
	case found == nil:
		return nil, api.NoMember(name, known)
	case len(away) > 1:
		return nil, fmt.Errorf("%w: several members that are away are called %s: name one of %s", api.ErrNoMember, name,
			strings.Join(away, ", "))
	case len(away) == 0:
		return nil, fmt.Errorf("%w: stop %s, then remove it", api.ErrMemberUp, name)
	case found.OnRoster:
		return nil, fmt.Errorf("%w: %s is still on the list of members: the others take it off within seconds, "+
			"once they can write to the event log", api.ErrMemberSilent, name)
	}
	return found, nil
}
