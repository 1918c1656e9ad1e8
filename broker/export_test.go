package broker

import (
	"context"
	"time"
)

// ClientAddr returns the address at which a member's server listens for clients.
func (b *Broker) ClientAddr() string { return b.server().Addr().String() }

// Repair closes the store and opens it again.
func (b *Broker) Repair() error {
	b.repairing.Lock()
	defer b.repairing.Unlock()
	return b.repair()
}

// Repairs returns whether the store was ever opened again.
func (b *Broker) Repairs() bool {
	b.repairing.Lock()
	defer b.repairing.Unlock()
	return !b.repaired.IsZero()
}

// Close closes the store, as the server does when the disk is full.
func (b *Broker) Close() error { return b.server().ShutdownJetStream() }

// Care is what a member knows from earlier looks.
type Care = care

// LookAfter looks at all streams once, as a member does every few seconds.
func (b *Broker) LookAfter(c *Care, now time.Time) {
	if c.copies == nil {
		c.copies = map[string]*ownCopy{}
	}
	b.lookAfter(c, now)
}

// StepDownTo has the leader of a stream give way to a member.
func (b *Broker) StepDownTo(ctx context.Context, stream, member string) error {
	return b.stepDown(ctx, stream, member)
}

// Drop has a stream keep one copy less.
func (b *Broker) Drop(stream string) error { return b.drop(stream) }

// Reopen tries to open the store that Close has closed.
func (b *Broker) Reopen() { b.reopenClosed(b.server()) }

// NewestWrite returns the sequence number and the id of the newest message of a subject.
func (b *Broker) NewestWrite(ctx context.Context, stream, subject string) (seq uint64, id string, err error) {
	m, err := b.newestWrite(ctx, stream, b.Subject(subject))
	return m.seq, m.id, err
}
