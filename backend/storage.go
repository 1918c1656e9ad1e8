package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/audit"
	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
)

// storage is the state directory and the parts that are stored in it. They run before the other parts are built, which read
// the definitions.
type storage struct {
	found  *Survey
	dir    *stateDir
	db     *pebble.DB
	id     *identity
	broker *broker.Broker
	audit  *audit.Log
	config *config.Store
	auth   *auth.Auth
	log    *eventlog.Log

	members *membership
}

// openStorage waits for the state directory, opens it, and starts what is stored in it.
func (b *Backend) openStorage(ctx context.Context) (*storage, error) {
	found, err := b.waitForState(ctx)
	if err != nil {
		return nil, err
	}
	s := &storage{found: found, dir: found.dir, db: found.db, id: &found.id}
	if s.broker, err = b.openBroker(ctx, found, b.opts.Registry); err != nil {
		return nil, err
	}
	b.watch("broker", s.broker.Failed())
	if err := b.bring(ctx, s); err != nil {
		return nil, err
	}
	if err := b.startDefinitions(ctx, s); err != nil {
		return nil, err
	}
	if err := b.startLog(ctx, s); err != nil {
		return nil, err
	}
	if err := b.startMembership(ctx, s); err != nil {
		return nil, err
	}
	if b.opts.Cluster.on() {
		if err := b.catchUp(ctx, s); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(s.members.Load(s.db), b.offerCopies(s)); err != nil {
		return nil, err
	}
	// From now on a stream that is not there is one that was lost.
	return s, s.dir.initialised(s.db, s.id)
}

// startDefinitions starts the definitions, their audit log and the users among them.
func (b *Backend) startDefinitions(ctx context.Context, s *storage) (err error) {
	auditOpts := b.opts.Audit
	auditOpts.Broker, auditOpts.Logger, auditOpts.Registerer = s.broker, b.log, b.opts.Registry
	if s.audit, err = audit.New(auditOpts); err != nil {
		return err
	}
	if err := b.start(ctx, "audit log", s.audit); err != nil {
		return err
	}
	configOpts := b.opts.Config
	configOpts.Broker, configOpts.Written = s.broker, s.audit.Written
	configOpts.WaitPeers = func(ctx context.Context, revision uint64) error { return s.members.waitRevision(ctx, revision) }
	configOpts.Logger, configOpts.Registerer = b.log, b.opts.Registry
	if s.config, err = config.New(configOpts); err != nil {
		return err
	}
	if err := b.start(ctx, "config", s.config); err != nil {
		return err
	}
	if s.config.Removed(s.broker.Name()) || s.config.Removed(s.broker.UnknownName()) {
		return fmt.Errorf("this member was removed from the cluster for good, and its state directory %s with it: "+
			"start it with an empty directory, as a new member", s.dir.path)
	}
	authOpts := b.opts.Auth
	authOpts.Config, authOpts.Signer, authOpts.Remember = s.config, b.signer, s.dir.signIns()
	authOpts.Logger, authOpts.Registerer = b.log, b.opts.Registry
	if s.auth, err = auth.New(authOpts); err != nil {
		return err
	}
	if err := b.seedOnce(ctx, s.auth, s.config, s.id); err != nil {
		return err
	}
	if s.auth.DefaultAgentPassword() {
		b.log.Warn("agents can sign in with the default password: change it with lapwing user reset-password agent "+
			"--interactive, or --password where there is no terminal, and on the agents", "user", "agent")
	}
	return nil
}

func (b *Backend) startLog(ctx context.Context, s *storage) (err error) {
	if s.id.Partitions == 0 { // a new member of a cluster
		want := cmp.Or(b.opts.Log.Partitions, eventlog.SuitablePartitions())
		if s.id.Partitions, err = eventlog.FindPartitions(ctx, s.broker, want); err != nil {
			return err
		}
	}
	s.id.raiseBatches(time.Now())
	if err := s.dir.store(s.db, s.id); err != nil {
		return err
	}
	o := b.opts.Log
	o.Broker, o.Dir, o.Origin, o.Partitions = s.broker, s.dir.path, s.id.Cluster, s.id.Partitions
	o.Number = s.id.Batches
	for p := range s.id.Partitions {
		o.Lost = append(o.Lost, s.id.Lost[eventlog.Stored(p).Name])
	}
	o.Logger, o.Registerer = b.log, b.opts.Registry
	if s.log, err = eventlog.New(o); err != nil {
		return err
	}
	if err := b.start(ctx, "event log", s.log); err != nil {
		return err
	}
	// An append may wait for the log for ever, for example on a full disk, and its caller would not stop.
	b.beforeUndo(s.log.StopWaiting)
	return nil
}

// openBroker starts the broker on a state directory, which is closed with it. metrics may be nil.
func (b *Backend) openBroker(ctx context.Context, found *Survey, metrics prometheus.Registerer) (*broker.Broker, error) {
	clean := &cleanStop{dir: found.dir}
	b.push("state directory", clean.close)
	b.push("state database", clean.after(found.close))
	members, err := b.brokerCluster(found.id.Brings)
	if err != nil {
		return nil, err
	}
	external, err := b.brokerNATS()
	if err != nil {
		return nil, err
	}
	nats, err := broker.New(broker.Options{
		Dir: found.dir.broker(), Name: found.id.Member, Cluster: members, External: external, Waiting: b.say,
		Logger: b.log, Registerer: metrics,
	})
	if err != nil {
		return nil, err
	}
	if err := nats.Start(ctx); err != nil {
		return nil, fmt.Errorf("start broker: %w", err)
	}
	b.push("broker", clean.after(nats.Stop))
	return nats, nil
}
