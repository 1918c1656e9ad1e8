package backend

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
)

// Initialize makes the administrator and the built-in definitions in a state directory that no backend uses, and nothing
// else; auth.ErrInitialized if they are there.
func Initialize(ctx context.Context, opts Options) error {
	if opts.Cluster.NATS.on() {
		return &optionerr.Error{Flag: "nats-url", Err: errors.New("init makes definitions in a state directory: on NATS servers " +
			"the first backend makes the administrator, from --cluster-admin-username and --cluster-admin-password")}
	}
	if opts.Cluster.on() {
		return &optionerr.Error{Flag: "peers", Err: errors.New("the members of a new cluster make the " +
			"administrator themselves, from --cluster-admin-username and --cluster-admin-password: " +
			"start them without init, " +
			"or run init without --peers in the state directory of one member, which brings the administrator into the cluster")}
	}
	b, err := newBackend(opts)
	if err != nil {
		return err
	}
	defer func() { _ = b.Stop(context.WithoutCancel(ctx)) }()
	if err := b.space(initialSpace); err != nil {
		return fmt.Errorf("%w; make room there and try again", err)
	}
	found, err := b.openState()
	if err != nil {
		return err
	}
	nats, err := b.openBroker(ctx, found, nil)
	if err != nil {
		return err
	}
	definitions, err := config.New(config.Options{Broker: nats, Logger: b.log})
	if err != nil {
		return err
	}
	if err := b.start(ctx, "config", definitions); err != nil {
		return err
	}
	authOpts := b.opts.Auth
	authOpts.Config, authOpts.Logger = definitions, b.log
	users, err := auth.New(authOpts)
	if err != nil {
		return err
	}
	if (!found.id.Initialised.IsZero() || !found.id.Seeded.IsZero()) && !found.id.Reseed {
		return auth.ErrInitialized
	}
	if err := b.seed(ctx, users); err != nil {
		return err
	}
	found.id.Seeded = time.Now().UTC()
	return found.dir.store(found.db, &found.id)
}

// seedTimeout bounds the first writes of a backend without other members.
const seedTimeout = time.Minute

// seed makes the administrator, with a random password if none was given.
func (b *Backend) seed(ctx context.Context, users *auth.Auth) error {
	admin := b.opts.Admin
	if admin.Password == "" {
		var random [18]byte
		_, _ = rand.Read(random[:]) // never fails
		admin.Password = base64.RawURLEncoding.EncodeToString(random[:])
	}
	if !b.opts.Cluster.on() {
		// Without a deadline a write gives up after 5 s, which is little for a disk that other programs keep busy.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, seedTimeout)
		defer cancel()
	}
	if err := users.Seed(ctx, admin); err != nil {
		return err
	}
	if b.opts.Admin.Password == "" {
		b.opts.Announce(admin.Username, admin.Password)
	}
	return nil
}
