package backend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
)

// cleanStop records the files of the state directory when all that writes to it has stopped without an error.
type cleanStop struct {
	dir    *stateDir
	failed bool
}

// after is the step of a part that writes to the state directory.
func (c *cleanStop) after(stop func() error) func() error {
	return func() error {
		err := stop()
		c.failed = c.failed || err != nil
		return err
	}
}

func (c *cleanStop) close() error {
	var err error
	if !c.failed {
		if err = c.dir.write(true); err != nil {
			err = fmt.Errorf("note the clean stop: %w; nothing is lost: the next start looks at all files, as after a kill", err)
		}
	}
	return errors.Join(err, c.dir.close())
}

// initialised notes that all is there that a backend has.
func (d *stateDir) initialised(db *pebble.DB, id *identity) error {
	if !id.Initialised.IsZero() && !id.Reseed && id.Format == stateFormat {
		return nil
	}
	if id.Initialised.IsZero() || id.Reseed {
		id.Initialised, id.Reseed = time.Now().UTC(), false
	}
	return d.store(db, id)
}

// store writes the identity and its copy in the database.
func (d *stateDir) store(db *pebble.DB, id *identity) error {
	id.Format = stateFormat
	if err := storeIdentity(db, id); err != nil {
		return err
	}
	return writeSealed(d.identity(), id)
}

// batchesPerStart is more batches than a process makes of a partition.
const batchesPerStart = 1 << 40

// raiseBatches makes numbers for the batches of another start. They follow the clock, so that those of an old copy of
// the state directory are new too, but never go back with it.
func (id *identity) raiseBatches(now time.Time) {
	id.Batches = max(uint64(max(0, now.UnixNano())), id.Batches+batchesPerStart)
}

// seedOnce makes the administrator and the built-in definitions at the first start. Later they are never made again by
// themselves: definitions without a user are damaged, or someone deleted all users, and a known password would open the door.
func (b *Backend) seedOnce(ctx context.Context, users *auth.Auth, definitions *config.Store, id *identity) error {
	if id.Initialised.IsZero() && id.Seeded.IsZero() || id.Reseed {
		if err := b.seed(ctx, users); err != nil && !errors.Is(err, auth.ErrInitialized) {
			return err
		}
		return nil
	}
	for u := range config.List(definitions.Snapshot(), config.Users, "") {
		if u.Username != auth.AgentUser {
			return nil
		}
	}
	return fmt.Errorf("the definitions have no user, although this backend was initialised: put a backup of %s in place, "+
		"or have an administrator made again: lapwing backend repair --new-administrator --state-dir %s", b.opts.StateDir, b.opts.StateDir)
}
