package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// This file opens streams, keeps their number of copies, and says how they stand.

// account is what the server calls the account of all streams.
const account = "$G"

const (
	// apiTimeout bounds one request to the cluster. There is no answer during an election.
	apiTimeout = 3 * time.Second
	// lookTimeout bounds one look for a stream. A request is lost if the leader has only just been elected.
	lookTimeout = time.Second
	// leaderWait is how long the others wait for the leader to make a stream. Its backend may be stuck.
	leaderWait = 20 * time.Second
	// replicasPause is the time between two looks for streams with too few copies.
	replicasPause = 5 * time.Second
)

// OpenStream opens a stream and makes it if it is missing. Alone, the stream gets the configuration in place of what it
// had. In a cluster the leader makes and changes it, and the others wait until it is there and has a leader, for as
// long as ctx allows: several members that create a stream at once are slow. The number of copies is Replicas, and
// fewer while members are missing. Metadata that the stream has already is kept. While a member brings data into the
// cluster, it alone makes streams, and the others wait until it has done so.
func (b *Broker) OpenStream(ctx context.Context, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	if b.opts.External != nil {
		return b.openExternal(ctx, cfg)
	}
	if b.opts.Cluster == nil {
		return b.openAlone(ctx, cfg)
	}
	var stream jetstream.Stream
	cfg, brings := b.bringing(cfg)
	changed, begin := false, time.Now()
	err := b.await(ctx, func() (string, error) {
		what := "stream " + cfg.Name
		if err := ctx.Err(); err != nil {
			return "", fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
		}
		tryCtx, cancel := context.WithTimeout(ctx, apiTimeout)
		defer cancel()
		lookCtx, cancelLook := context.WithTimeout(ctx, lookTimeout)
		defer cancelLook()
		found, err := b.js.Stream(lookCtx, cfg.Name)
		srv := b.server()
		if srv == nil {
			return "", errStopped
		}
		leads, waited := srv.JetStreamIsLeader(), time.Since(begin)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound) && b.expected() != "":
			return b.expected() + " to bring its data into the cluster", nil
		case errors.Is(err, jetstream.ErrStreamNotFound) && (leads || brings || waited > leaderWait):
			return what + " to be made", b.makeStream(tryCtx, cfg, b.majoritySince() > fullSetWait)
		case err != nil:
			return what, nil
		}
		if wait, err := b.complete(found.CachedInfo()); err != nil || wait != "" {
			return wait, err
		}
		if leads && !changed {
			changed = true
			return what, b.changeStream(tryCtx, cfg, found.CachedInfo())
		}
		if info := found.CachedInfo(); info.Cluster == nil || info.Cluster.Leader == "" {
			return what + " to have a leader", nil
		}
		stream = found
		return "", nil
	})
	if err != nil {
		return nil, fmt.Errorf("open stream %s: %w", cfg.Name, err)
	}
	b.mu.Lock()
	b.opened[cfg.Name] = struct{}{}
	if brings && !slices.Contains(b.filled, cfg.Name) {
		b.filled = append(b.filled, cfg.Name)
	}
	b.mu.Unlock()
	return stream, b.noteCluster(cfg.Name, stream.CachedInfo().Created)
}

func (b *Broker) openAlone(ctx context.Context, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	cfg.Replicas = 1
	stream, err := b.js.Stream(ctx, cfg.Name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return b.js.CreateStream(ctx, cfg)
	case err != nil:
		return nil, err
	}
	cfg.Metadata = merged(cfg.Metadata, stream.CachedInfo().Config.Metadata)
	return b.js.UpdateStream(ctx, cfg)
}

// merged returns the metadata of a stream that has some already.
func merged(wanted, has map[string]string) map[string]string {
	all := maps.Clone(wanted)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, has)
	return all
}

// makeStream makes a stream; with fewer copies than it should have only if it is to be made now. Only a configuration
// that the server refuses is an error.
func (b *Broker) makeStream(ctx context.Context, cfg jetstream.StreamConfig, now bool) error {
	there := 1 + len(b.Peers())
	if there < b.Replicas() && !now {
		return nil
	}
	cfg.Replicas = min(there, b.Replicas())
	_, err := b.js.CreateStream(ctx, cfg)
	if refused(err) {
		return err
	}
	return nil
}

// changeStream gives a stream its configuration, on the leader.
func (b *Broker) changeStream(ctx context.Context, cfg jetstream.StreamConfig, info *jetstream.StreamInfo) error {
	cfg.Replicas, cfg.Metadata = info.Config.Replicas, merged(cfg.Metadata, info.Config.Metadata)
	_, err := b.js.UpdateStream(ctx, cfg)
	if refused(err) {
		return err
	}
	return nil
}

// refused reports whether an error is the server's answer to a wrong configuration. All other errors pass.
func refused(err error) bool {
	var api *jetstream.APIError
	if !errors.As(err, &api) || errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return false
	}
	switch api.ErrorCode {
	case jetstream.JSErrCodeBadRequest, codeInvalidConfig, codeUpdate:
		return true
	}
	return false
}

// Codes of the server's answers.
const (
	codeInvalidConfig = jetstream.ErrorCode(server.JSStreamInvalidConfigF)
	codeUpdate        = jetstream.ErrorCode(server.JSStreamUpdateErrF)
	codeDuplicate     = jetstream.ErrorCode(server.JSStreamDuplicateMessageConflict)
	codeNotAvailable  = jetstream.ErrorCode(server.JSClusterNotAvailErr)
	codeNotLeader     = jetstream.ErrorCode(server.JSClusterNotLeaderErr)
	codeNoPeers       = jetstream.ErrorCode(server.JSClusterNoPeersErrF)
	codeStoreFailed   = jetstream.ErrorCode(server.JSStreamStoreFailedF)
	codeNoMatch       = jetstream.ErrorCode(server.JSStreamSequenceNotMatchErr)
	codeNoReplicas    = jetstream.ErrorCode(server.JSStreamReplicasNotSupportedErr)
)

// keepReplicas gives streams the copies that they lack: a stream that was made while members were missing has fewer, and
// so has one whose member has closed its store.
func (b *Broker) keepReplicas() {
	tick := time.NewTicker(replicasPause)
	defer tick.Stop()
	c := care{copies: map[string]*ownCopy{}}
	closed := false
	for {
		select {
		case <-tick.C:
		case <-b.life.Done():
			return
		}
		b.lookAfter(&c, time.Now())
		srv := b.server()
		if srv != nil && !srv.JetStreamEnabled() {
			if closed { // the closing may take seconds, and must have ended
				b.reopenClosed(srv)
			}
			closed = !closed
			continue
		}
		closed = false
		if srv != nil && srv.JetStreamIsLeader() && len(srv.JetStreamClusterPeers()) >= b.Replicas() {
			b.raiseReplicas()
		}
	}
}

func (b *Broker) raiseReplicas() {
	for _, name := range b.openedStreams() {
		if err := b.raise(name); err != nil {
			b.rare.Warn("a stream has too few copies, and cannot get one now", name, "stream", name, "err", err)
		}
	}
}

func (b *Broker) raise(name string) error {
	b.describing.Lock()
	defer b.describing.Unlock()
	ctx, cancel := context.WithTimeout(b.life, apiTimeout)
	defer cancel()
	stream, err := b.js.Stream(ctx, name)
	if err != nil {
		return err
	}
	cfg, c := stream.CachedInfo().Config, stream.CachedInfo().Cluster
	if cfg.Replicas >= b.Replicas() || c == nil || 1+len(c.Replicas) > cfg.Replicas { // one is still being dropped
		return nil
	}
	b.log.Info("a stream gets more copies", "stream", name, "from", cfg.Replicas, "to", b.Replicas())
	cfg.Replicas = b.Replicas()
	_, err = b.js.UpdateStream(ctx, cfg)
	return err
}

// Leads reports whether this member does what one does for a stream: in a cluster its leader. Alone it always does, and
// on NATS servers of their own all backends do.
func (b *Broker) Leads(stream string) bool {
	if b.opts.Cluster == nil {
		return true
	}
	srv := b.server()
	return srv != nil && srv.JetStreamIsStreamLeader(account, stream)
}

// keeps reports whether this member has a copy of a stream, or is about to get one.
func (b *Broker) keeps(stream string) bool {
	srv := b.server()
	return srv != nil && srv.JetStreamIsStreamAssigned(account, stream)
}

// StreamStatus asks the leader of a stream how its copies stand. ctx should have a deadline: there may be no answer
// during an election. A stream that is known to have no leader has the Group of none. Alone, there is one copy, the
// leader's. With External the names are those of NATS servers.
func (b *Broker) StreamStatus(ctx context.Context, stream string) (Group, error) {
	if b.Alone() {
		return Group{Leader: b.opts.Name}, nil
	}
	s, err := b.js.Stream(ctx, b.stored(stream))
	if saysLeaderless(err) {
		return Group{}, nil
	}
	if err != nil {
		return Group{}, fmt.Errorf("look at stream %s: %w", stream, err)
	}
	c := s.CachedInfo().Cluster
	if c == nil && b.opts.External != nil { // a single server
		c = &jetstream.ClusterInfo{Leader: b.conn.ConnectedServerName()}
	}
	if c == nil {
		return Group{}, nil
	}
	g := Group{Leader: c.Leader, Last: s.CachedInfo().State.LastSeq}
	for _, r := range c.Replicas {
		g.Replicas = append(g.Replicas, Replica{nameOf(r.Name), r.Current, r.Offline, r.Lag, r.Active})
	}
	g.Copies = s.CachedInfo().Config.Replicas
	return g, nil
}

// Newest asks the leader of a stream for the sequence number of the newest message of a subject, which may be a
// pattern. It is 0 if there is none. The client library would ask any member, whose copy may be behind.
func (b *Broker) Newest(ctx context.Context, stream, subject string) (uint64, error) {
	m, err := b.newest(ctx, b.stored(stream), b.Subject(subject))
	if err != nil || m == nil {
		return 0, err
	}
	return m.Sequence, nil
}

// newest asks the leader of a stream for the newest message of a subject, nil if there is none. Both have the names that
// the server knows.
func (b *Broker) newest(ctx context.Context, stream, subject string) (*server.StoredMsg, error) {
	request, err := json.Marshal(server.JSApiMsgGetRequest{LastFor: subject})
	if err != nil {
		return nil, err
	}
	msg, err := b.conn.RequestWithContext(ctx, fmt.Sprintf(server.JSApiMsgGetT, stream), request)
	if err != nil {
		return nil, fmt.Errorf("look for the newest message of stream %s: %w", stream, err)
	}
	var answer server.JSApiMsgGetResponse
	if err := json.Unmarshal(msg.Data, &answer); err != nil {
		return nil, fmt.Errorf("look for the newest message of stream %s: %w", stream, err)
	}
	switch {
	case answer.Error != nil && answer.Error.ErrCode == uint16(server.JSNoMessageFoundErr):
		return nil, nil
	case answer.Error != nil:
		return nil, fmt.Errorf("look for the newest message of stream %s: %w", stream, &jetstream.APIError{
			Code: answer.Error.Code, ErrorCode: jetstream.ErrorCode(answer.Error.ErrCode), Description: answer.Error.Description,
		})
	}
	return answer.Message, nil
}

// saysLeaderless reports whether an error is the cluster's answer that a stream, or the cluster itself, has no leader.
func saysLeaderless(err error) bool {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return api.ErrorCode == codeNotAvailable || api.ErrorCode == codeNotLeader
	}
	return errors.Is(err, nats.ErrNoResponders)
}

// StepDown has the leader of a stream give way to another member. It returns when the leader has agreed.
func (b *Broker) StepDown(ctx context.Context, stream string) error {
	return b.stepDown(ctx, stream, "")
}

// stepDown is StepDown in favour of a member, "" for any. A leader that has just changed may never answer.
func (b *Broker) stepDown(ctx context.Context, stream, to string) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	var request []byte
	if to != "" {
		var err error
		preferred := &server.Placement{Preferred: to}
		if request, err = json.Marshal(server.JSApiLeaderStepdownRequest{Placement: preferred}); err != nil {
			return err
		}
	}
	var answer server.JSApiStreamLeaderStepDownResponse
	msg, err := b.conn.RequestWithContext(ctx, fmt.Sprintf(server.JSApiStreamLeaderStepDownT, stream), request)
	if err == nil {
		err = json.Unmarshal(msg.Data, &answer)
	}
	if err == nil && answer.Error != nil {
		err = answer.Error
	}
	if err != nil {
		return fmt.Errorf("have the leader of stream %s step down: %w", stream, err)
	}
	return nil
}

// view returns how a stream stands as far as this member knows without asking another one.
func (b *Broker) view(stream string) streamView {
	var v streamView
	srv := b.server()
	if srv == nil {
		return v
	}
	v.Majority = 1+len(b.Peers()) > b.opts.Cluster.Members/2
	detail, err := srv.JszAccount(&server.JSzOptions{Account: account, Streams: true})
	if err != nil {
		return v
	}
	for i := range detail.Streams {
		if s := &detail.Streams[i]; s.Name == stream {
			v.Last = s.State.LastSeq
			if s.Cluster != nil {
				v.Leader, v.Leads = s.Cluster.Leader, s.Cluster.Leader == b.opts.Name
			}
		}
	}
	return v
}
