package backend

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/lapwing-monitoring/lapwing/api"
	"github.com/lapwing-monitoring/lapwing/audit"
	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/cluster"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
)

// clusterView shows users all members of the cluster, also when much is broken: it asks all sources at once, waits for none of
// them longer than sourceTimeout, and shows what does not answer as unknown. It also passes requests on to the other
// members; see clusterask.go.
type clusterView struct {
	members *membership
	broker  *broker.Broker
	config  *config.Store
	backend *Backend
	parts   *parts
	digests *digestCheck

	definitions *definitionsCheck
	name        string // of this member
	log         *slog.Logger

	asking singleflight.Group // questions under way, by source: what hangs, hangs once
	mu     sync.Mutex         // guards the fields below
	id     uint64             // of the cluster; 0 until it was read
}

// sourceTimeout bounds the wait for a source. Users wait for all together.
const sourceTimeout = 700 * time.Millisecond

func (b *Backend) newClusterView(p *parts) *clusterView {
	log := b.log.With("component", "cluster")
	return &clusterView{
		members: p.members, broker: p.broker, config: p.config, backend: b, parts: p,
		name: cmp.Or(b.opts.Cluster.Name, hostname(p.id.Cluster)), log: log,
		digests: &digestCheck{own: p.state, log: log}, definitions: &definitionsCheck{log: log},
	}
}

// Revision implements api.ClusterView.
func (v *clusterView) Revision() uint64 { return v.members.Revision() }

// CutOff implements api.ClusterView.
func (v *clusterView) CutOff() bool { return !v.members.Leased() }

// source asks a source. Callers that ask for the same thing at the same time share one question.
func source[T any](ctx context.Context, v *clusterView, what string, ask func(context.Context) (T, error)) (T, error) {
	var none T
	asked := v.asking.DoChan(what, func() (any, error) {
		ctx, cancel := context.WithTimeout(v.backend.life, sourceTimeout)
		defer cancel()
		return ask(ctx)
	})
	timeout := time.NewTimer(sourceTimeout)
	defer timeout.Stop()
	select {
	case r := <-asked:
		if errors.Is(r.Err, context.DeadlineExceeded) {
			return none, errNoAnswer
		}
		if r.Err != nil {
			return none, r.Err
		}
		return r.Val.(T), nil
	case <-timeout.C:
		return none, errNoAnswer
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

var errNoAnswer = fmt.Errorf("no answer within %s", sourceTimeout)

// known is what this member knows of the cluster without asking another one.
type known struct {
	members    []cluster.Member
	partitions []api.PartitionStatus // with the owners' ids
	differ     map[string][]int      // see digestCheck

	definitions map[string]definitionsState // what is not well, by member's id
}

func (v *clusterView) look(ctx context.Context) (known, error) {
	return source(ctx, v, "members", func(context.Context) (known, error) {
		k := known{members: v.members.Members()}
		if !v.backend.opts.Cluster.on() {
			k.members[0].Info = v.members.describe()
		}
		for i := range v.members.log.Partitions() {
			k.partitions = append(k.partitions, api.PartitionStatus{
				Partition: i, Owner: v.members.Owner(i, cluster.PartitionLane(i)), Roster: v.members.Number(i),
			})
		}
		k.differ, k.definitions = v.digests.check(k.members), v.definitions.check(k.members, time.Now())
		return k, nil
	})
}

// servers are the members as the broker counts them. Only its leader knows all of them.
type servers struct {
	Leader string           `json:"leader"`
	Others []broker.Replica `json:"others"`
}

func (s *servers) list() []string {
	names := []string{s.Leader}
	for _, r := range s.Others {
		names = append(names, r.Name)
	}
	return names
}

func (s *servers) has(name string) bool { return slices.Contains(s.list(), name) }

// leader returns the broker's leader as this member knows it.
func (v *clusterView) leader(ctx context.Context) (string, error) {
	return source(ctx, v, "leader", func(context.Context) (string, error) { return v.broker.MetaStatus().Leader, nil })
}

// servers asks the broker's leader for all members.
func (v *clusterView) servers(ctx context.Context) (*servers, error) {
	if v.onNATS() {
		return nil, errNoServers
	}
	return source(ctx, v, "servers", func(ctx context.Context) (*servers, error) {
		meta := v.broker.MetaStatus()
		switch meta.Leader {
		case "":
			return nil, errors.New("the broker has no leader")
		case v.broker.Name():
			return &servers{meta.Leader, meta.Replicas}, nil
		}
		for _, m := range v.members.Others() {
			if serverName(&m) == meta.Leader {
				return ask[servers](ctx, v.members, m.ID, questionServers, struct{}{})
			}
		}
		return nil, fmt.Errorf("the broker's leader %s is none of the members", meta.Leader)
	})
}

// streams are the broker's streams, and what they hold.
func (v *clusterView) streams() []api.StreamStatus {
	copies := v.broker.Replicas()
	list := []api.StreamStatus{
		{Name: config.Stored().Name, Holds: "definitions", Copies: copies},
		{Name: audit.Stored(0).Name, Holds: "audit log", Copies: copies},
	}
	for i := range v.members.log.Partitions() {
		list = append(list, api.StreamStatus{
			Name: eventlog.Stored(i).Name, Holds: "partition " + strconv.Itoa(i), Copies: copies,
		})
	}
	return list
}

// stream asks how the copies of a stream stand.
func (v *clusterView) stream(ctx context.Context, name string) (broker.Group, error) {
	return source(ctx, v, "stream "+name, func(ctx context.Context) (broker.Group, error) {
		return v.broker.StreamStatus(ctx, name)
	})
}

// Status implements api.ClusterView.
func (v *clusterView) Status(ctx context.Context) *api.ClusterStatus {
	var (
		under               sync.WaitGroup
		k                   known
		all                 *servers
		leader              string
		knownErr, leaderErr error
	)
	st := &api.ClusterStatus{
		Member: v.name, Size: v.members.Size(), DiskReserve: v.backend.reserve.Load(), Streams: v.streams(),
		Members: []api.MemberStatus{}, Partitions: []api.PartitionStatus{},
	}
	groups, errs := make([]broker.Group, len(st.Streams)), make([]error, len(st.Streams))
	under.Go(func() { k, knownErr = v.look(ctx) })
	under.Go(func() { all, _ = v.servers(ctx) }) // without it, members that only the broker knows are missing
	under.Go(func() { leader, leaderErr = v.leader(ctx) })
	for i := range st.Streams {
		under.Go(func() { groups[i], errs[i] = v.stream(ctx, st.Streams[i].Name) })
	}
	under.Wait()

	if knownErr != nil {
		v.log.Warn("the status of the cluster lacks the members", "err", knownErr)
	}
	names := v.names(k.members, all)
	st.Members = append(st.Members, v.memberStatus(k.members, all, names)...)
	for i := range st.Members {
		m := &st.Members[i]
		m.DigestsDiffer = append(m.DigestsDiffer, k.differ[m.ID]...)
		definitions := k.definitions[m.ID]
		m.DefinitionsDiffer, m.DefinitionsStandSeconds = definitions.differ, definitions.stands.Seconds()
	}
	for _, p := range k.partitions {
		p.Owner = names.of(p.Owner)
		st.Partitions = append(st.Partitions, p)
		st.Roster = max(st.Roster, p.Roster)
	}
	if st.Leader = names.of(leader); leaderErr != nil {
		st.LeaderError = leaderErr.Error()
	}
	away := map[string]bool{}
	for _, m := range st.Members {
		away[m.Name] = !m.Up
	}
	for i := range st.Streams {
		fillStream(&st.Streams[i], groups[i], errs[i], names, away)
	}
	if v.onNATS() {
		v.fillNATS(st, groups)
	}
	return st
}

// fillStream says how the copies of a stream stand. The leader notices late that a member is away.
func fillStream(st *api.StreamStatus, g broker.Group, err error, names memberNames, away map[string]bool) {
	st.Replicas = []api.ReplicaStatus{}
	if err != nil {
		st.Error = strings.TrimPrefix(err.Error(), "look at stream "+st.Name+": ")
		return
	}
	st.Leader = names.of(g.Leader)
	for _, r := range g.Replicas {
		member := names.of(r.Name)
		st.Replicas = append(st.Replicas, api.ReplicaStatus{
			Member: member, Current: r.Current, Offline: r.Offline || away[member], Lag: r.Lag, HeardSeconds: r.Heard.Seconds(),
		})
	}
}

// serverName is what the broker calls a member.
func serverName(m *cluster.Member) string {
	if m.Name == "" || len(m.ID) < 8 {
		return ""
	}
	return m.Name + "-" + m.ID[:8]
}

// serverID is the end of a server's name: the beginning of the member's id.
var serverID = regexp.MustCompile(`-[0-9a-f]{8}$`)

// memberNames are the names that people see, by ids and by names at the broker.
type memberNames map[string]string

func (n memberNames) of(name string) string { return cmp.Or(n[name], name) }

// names gives each member a name. A name that two have, because the second one began with an empty directory, is that of
// the one that is heard, and the other one goes by its name at the broker.
func (v *clusterView) names(members []cluster.Member, all *servers) memberNames {
	n := memberNames{v.broker.Name(): v.name}
	taken := map[string]bool{v.name: true}
	give := func(name string, keys ...string) {
		if taken[name] {
			name = keys[0]
		}
		taken[name] = true
		for _, key := range keys {
			n[key] = name
		}
	}
	first := slices.Clone(members)
	slices.SortStableFunc(first, func(a, b cluster.Member) int { return cmp.Compare(a.Silent, b.Silent) })
	for i := range first {
		switch m := &first[i]; {
		case m.Self:
			n[m.ID] = v.name
		case m.Name != "":
			give(m.Name, serverName(m), m.ID)
		}
	}
	if all == nil {
		return n
	}
	for _, server := range all.list() {
		if n[server] != "" {
			continue
		}
		keys := []string{server}
		for _, m := range members { // on the roster, and not heard since this member started
			if m.Name == "" && len(m.ID) >= 8 && strings.HasSuffix(server, "-"+m.ID[:8]) {
				keys = append(keys, m.ID)
			}
		}
		give(serverID.ReplaceAllString(server, ""), keys...)
	}
	return n
}

// memberStatus returns the members in the order of their names. One that is gone for good is left out.
func (v *clusterView) memberStatus(members []cluster.Member, all *servers, names memberNames) []api.MemberStatus {
	var list []api.MemberStatus
	seen := map[string]bool{}
	for i := range members {
		m := &members[i]
		server := serverName(m)
		if m.Self {
			server = v.broker.Name()
		}
		if all != nil && !m.Heard && !m.OnRoster && server != "" && !all.has(server) {
			continue // it was removed
		}
		seen[names.of(m.ID)] = true
		one := api.MemberStatus{
			ID: m.ID, Name: names.of(m.ID), Self: m.Self, Version: m.Version,
			APIURL: m.APIURL, AgentURL: m.AgentURL, Started: m.Started, Up: m.Heard,
			Ready: m.Ready, Leaving: m.Leaving, Leased: m.Leased, OnRoster: m.OnRoster, Draining: m.Draining,
			Sessions: m.Sessions, Received: m.Received, DiskFree: m.DiskFree, ClockSkewSeconds: m.Skew.Seconds(), Revision: m.Revision,
			Folded: append([]uint64{}, m.Folded...), Digests: []api.DigestStatus{}, DigestsDiffer: []int{},
		}
		for _, d := range m.Digests {
			one.Digests = append(one.Digests, api.DigestStatus{From: d.From, Seq: d.Seq, Sum: fmt.Sprintf("%016x", d.Sum)})
		}
		one.DefinitionsLag, one.FoldLag = m.Lag(members)
		if !m.Heard {
			one.AwaySeconds = m.Silent.Seconds()
		}
		list = append(list, one)
	}
	if all != nil {
		for _, r := range all.Others {
			if name := names.of(r.Name); !seen[name] && len(members) > 0 {
				list = append(list, api.MemberStatus{
					Name: name, AwaySeconds: r.Heard.Seconds(), Folded: []uint64{}, FoldLag: []uint64{},
					Digests: []api.DigestStatus{}, DigestsDiffer: []int{},
				})
			}
		}
	}
	slices.SortFunc(list, func(a, b api.MemberStatus) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// health returns the state of the members for /health.
func (v *clusterView) health(ctx context.Context) api.Health {
	var (
		under sync.WaitGroup
		k     known
		all   *servers
		err   error
	)
	h := api.Health{MemberID: memberID(v.members.Self()), Postgres: v.postgresHealth()}
	under.Go(func() { k, err = v.look(ctx) })
	under.Go(func() { all, _ = v.servers(ctx) })
	under.Go(func() { h.ClusterID = v.clusterID(ctx) })
	under.Wait()
	if err != nil {
		reason := "it does not know its members at present: " + err.Error()
		h.Members = []api.Member{{ID: h.MemberID, Name: v.name, Err: reason}}
		return h
	}
	if len(k.partitions) > 0 {
		h.Term = k.partitions[0].Roster
	}
	for _, m := range v.memberStatus(k.members, all, v.names(k.members, all)) {
		one := api.Member{
			ID: memberID(cmp.Or(m.ID, m.Name)), Name: m.Name, URL: m.APIURL, Draining: m.Draining, Err: ill(&m),
		}
		if m.Up && m.Ready && !m.Leased && v.onNATS() {
			one.Err = "it cannot write to the event log on NATS"
		}
		if m.Self {
			if err := v.backend.ready(v.parts); err != nil {
				one.Err = err.Error()
			}
		}
		h.Members = append(h.Members, one)
	}
	return h
}

// ill says why a member is not healthy, "" if it is.
func ill(m *api.MemberStatus) string {
	switch {
	case !m.Up:
		return fmt.Sprintf("not heard for %.0f s", m.AwaySeconds)
	case m.Leaving:
		return "it is stopping"
	case !m.Ready:
		return "it is starting: it reads the event log"
	case !m.Leased:
		return "it does not hear a majority of the members, or cannot write to the event log"
	}
	return ""
}

// memberID is a member's number for Sensu's answers.
func memberID(id string) uint64 {
	if n, err := strconv.ParseUint(id, 16, 64); err == nil {
		return n
	}
	h := fnv.New64a() // a member that only the broker knows has no id
	_, _ = h.Write([]byte(id))
	return h.Sum64()
}

// clusterID is the cluster's number for Sensu's answers, the same on all members; 0 if it cannot be read now.
func (v *clusterView) clusterID(ctx context.Context) uint64 {
	v.mu.Lock()
	id := v.id
	v.mu.Unlock()
	if id != 0 {
		return id
	}
	id, err := source(ctx, v, "id", func(ctx context.Context) (uint64, error) {
		secret, err := v.config.Secret(ctx, "cluster-id", 16)
		if err != nil {
			return 0, err
		}
		return binary.BigEndian.Uint64(secret), nil
	})
	if err != nil {
		return 0
	}
	v.mu.Lock()
	v.id = id
	v.mu.Unlock()
	return id
}

// removeTimeout bounds the removal of a member.
const removeTimeout = 10 * time.Second

// Remove implements api.ClusterView.
func (v *clusterView) Remove(ctx context.Context, name string) (string, error) {
	if !v.backend.opts.Cluster.on() {
		return "", fmt.Errorf("%w: this backend has no other members", api.ErrNoMember)
	}
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	k, err := v.look(ctx)
	if err != nil {
		return "", fmt.Errorf("%w: %w", api.ErrMemberSilent, err)
	}
	if v.onNATS() {
		return v.removeFromList(ctx, name, k.members)
	}
	all, err := v.servers(ctx)
	if err != nil {
		return "", fmt.Errorf("%w: %w; a majority of the members must be connected to remove one", api.ErrMemberSilent, err)
	}
	server, err := v.gone(name, k.members, all)
	if err != nil {
		return "", err
	}
	switch err := v.broker.RemovePeer(ctx, server); {
	case errors.Is(err, broker.ErrConnected):
		return "", fmt.Errorf("%w: %w", api.ErrMemberUp, err)
	case err != nil:
		return "", fmt.Errorf("%w: %w", api.ErrMemberSilent, err)
	}
	for i := range k.members {
		if serverName(&k.members[i]) == server {
			v.members.Forget(k.members[i].ID) // the others do so within seconds, see clusterWatch
		}
	}
	v.log.Warn("a member was removed for good", "member", name, "server", server)
	if err := v.config.RemoveMember(ctx, server); err != nil {
		v.log.Error("it is not noted that the member was removed: it would not be refused if it was started again",
			"server", server, "err", err)
	}
	return server, nil
}

// gone returns what the broker calls the one member of a name that is away.
func (v *clusterView) gone(name string, members []cluster.Member, all *servers) (string, error) {
	up := map[string]bool{v.broker.Name(): true}
	ids := map[string]string{} // by names at the broker
	for _, server := range v.broker.Peers() {
		up[server] = true
	}
	for i := range members {
		if m := &members[i]; !m.Self {
			ids[serverName(m)] = m.ID
			up[serverName(m)] = up[serverName(m)] || m.Heard
		}
	}
	var away, connected, known []string
	for _, server := range all.list() {
		short := serverID.ReplaceAllString(server, "")
		known = append(known, short)
		switch {
		case name != server && name != ids[server] && name != short:
		case up[server]:
			connected = append(connected, server)
		default:
			away = append(away, server)
		}
	}
	switch {
	case len(away) == 1:
		return away[0], nil
	case len(away) > 1:
		return "", fmt.Errorf("%w: several members that are away are called %s: name one of %s", api.ErrNoMember, name,
			strings.Join(away, ", "))
	case len(connected) > 0:
		return "", fmt.Errorf("%w: stop %s, and make sure that it does not start again; if it has just stopped, try again "+
			"in some seconds", api.ErrMemberUp, name)
	}
	return "", api.NoMember(name, known)
}
