package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// mostRefused is how many changes an hour the writer goes on without. If PostgreSQL refuses more, it is the tables that are
// wrong, and the journal keeps the changes until an administrator mends them.
const mostRefused = 1000

// isRefusal reports whether PostgreSQL does not take the content of rows, whenever it gets them: data that it cannot
// represent, a constraint, a bound of its own, or an administrator's trigger.
func isRefusal(err error) bool {
	var said *pgconn.PgError
	if !errors.As(err, &said) || len(said.Code) != 5 {
		return false
	}
	switch said.Code[:2] {
	case "22", "23", "54", "P0":
		return true
	}
	return false
}

// isolate finds the changes that PostgreSQL refuses: the next batches are smaller, down to one message, whose changes are
// written one by one.
func (s *session) isolate(ctx context.Context, refusal error) error {
	s.reread = true // see look
	if s.batch.count == 0 {
		return refusal
	}
	if s.most > 1 {
		s.most = max(1, min(s.most, s.batch.count)/2)
		return nil
	}
	s.most = min(2*s.most, s.p.opts.BatchEvents)
	return s.bounded(ctx, func(ctx context.Context) error { return s.writeSingly(ctx, refusal) })
}

// writeSingly commits those changes of the batch's last frame that PostgreSQL takes, and notes how many it does not.
func (s *session) writeSingly(ctx context.Context, refusal error) error {
	b, partition := &s.batch, s.frame.Partition
	begin := time.Now()
	if begin.Sub(s.p.refusing) > time.Hour {
		s.p.refusing, s.p.refused = begin, 0
	}
	if s.p.refused >= mostRefused {
		return fmt.Errorf("PostgreSQL has refused %d changes within an hour, and the writer waits: %w", s.p.refused, refusal)
	}
	if err := s.ensure(ctx); err != nil {
		return err
	}
	refused := 0
	err := inTransaction(ctx, s.conn, func(tx pgx.Tx) error {
		if err := s.fence(ctx, tx); err != nil {
			return err
		}
		b.removeRows()
		one := batch{ids: b.ids}
		for e, err := range s.frame.Entries() {
			if err != nil {
				break // the batch has a gap for it
			}
			if e.Seq <= b.from[partition] || e.Seq > b.to[partition] {
				continue
			}
			one.removeRows()
			one.add(partition, e, s.keepsOf(partition), nil)
			switch err := pgx.BeginFunc(ctx, tx, func(point pgx.Tx) error { return one.writeRows(ctx, point) }); {
			case isRefusal(err):
				refused++
				s.p.rare.Error("PostgreSQL refuses a change, and is written without it", "refusal", "namespace", string(e.Namespace),
					"entity", string(e.Entity), "check", string(e.Check), "err", err)
			case err != nil:
				return err
			default:
				b.add(partition, e, s.keepsOf(partition), nil)
			}
		}
		if refused > 0 {
			b.gaps = append(b.gaps, gap{
				partition: partition, from: b.to[partition] - 1, to: b.to[partition], until: b.newest[partition],
				changes: refused, reason: "PostgreSQL refused them: " + refusal.Error(),
			})
		}
		if err := s.noteGaps(ctx, tx); err != nil {
			return err
		}
		return s.move(ctx, tx)
	})
	if err != nil {
		return err
	}
	s.p.refused += refused
	s.p.metrics.refused.Add(float64(refused))
	s.wrote(begin)
	return nil
}
