package postgres

import (
	"context"
	"fmt"
	"time"
)

// A member that joined while PostgreSQL was away, or lost its journal, may become the owner of a partition and lack changes
// that other members have. Then it asks for them in the database, and a member that has them writes them in its place. If
// none does for a while, they are a gap.

// lack is what the journal of a partition's owner does not have.
type lack struct {
	upTo  uint64    // its last message; 0 if nothing lacks
	begun time.Time // when it was seen
	since time.Time // when it was seen, or PostgreSQL got some of it
	asked bool      // the database says so
	over  bool      // no member has it
}

// lacks notes that the journal of a partition goes on behind a message, and reports whether to wait for other members.
func (s *session) lacks(partition int, upTo uint64) (wait bool) {
	l := &s.lack[partition]
	if l.upTo == 0 {
		now := time.Now()
		*l = lack{upTo: upTo, begun: now, since: now}
	}
	return !l.over
}

// lacksSince returns when it was seen that something lacks.
func (s *session) lacksSince() (since time.Time, lack bool) {
	for i := range s.lack {
		if l := &s.lack[i]; l.upTo > 0 && (!lack || l.begun.Before(since)) {
			since, lack = l.begun, true
		}
	}
	return since, lack
}

// impatient reports whether PostgreSQL got nothing for long of what lacks.
func (s *session) impatient() bool {
	for i := range s.lack {
		if l := &s.lack[i]; l.upTo > 0 && !l.over && time.Since(l.since) >= s.p.opts.Patience {
			return true
		}
	}
	return false
}

// ask tells the other members what lacks.
func (s *session) ask(ctx context.Context) error {
	var partitions []int
	for i := range s.lack {
		if l := &s.lack[i]; l.upTo > 0 && !l.asked {
			partitions = append(partitions, i)
			l.asked = true
		}
	}
	if len(partitions) == 0 {
		return nil
	}
	s.p.log.Info("the journal of this backend lacks changes: others are asked to write them to PostgreSQL", "partitions", partitions)
	return s.want(ctx, partitions, true)
}

// want says in the database whether the changes of partitions lack that follow their positions.
func (s *session) want(ctx context.Context, partitions []int, lack bool) error {
	return s.bounded(ctx, func(ctx context.Context) error {
		_, err := s.conn.Exec(ctx, `UPDATE lapwing_data.position SET wanted = CASE WHEN $2 THEN clock_timestamp() END
			WHERE partition = ANY($1)`, partitions, lack)
		if err != nil {
			return fmt.Errorf("ask other members for changes: %w", err)
		}
		return nil
	})
}

// answered looks at what has come of the changes that lack, after the positions were read: had are the positions before.
// reread says that the journal is to be read again.
func (s *session) answered(ctx context.Context, had []uint64) (reread bool, err error) {
	var written []int
	for i := range s.lack {
		l := &s.lack[i]
		switch {
		case l.upTo == 0:
		case !s.owned[i]:
			*l = lack{}
		case s.has[i] >= l.upTo:
			*l = lack{}
			written = append(written, i)
		case s.has[i] != had[i]:
			l.since = time.Now()
		case !l.over && time.Since(l.since) >= s.p.opts.Patience:
			l.over, reread = true, true
		}
	}
	if len(written) > 0 {
		reread, err = true, s.want(ctx, written, false)
	}
	return reread, err
}

// help begins and ends to write for other owners. Then the journal is to be read again.
func (s *session) help() (reread bool) {
	for i, wanted := range s.wanted {
		s.cannot[i] = s.cannot[i] && wanted
		helps := wanted && !s.owned[i] && !s.cannot[i]
		reread = reread || helps && !s.helps[i]
		s.helps[i] = helps
	}
	return reread
}

// writes reports whether this session writes a partition.
func (s *session) writes(partition int) bool { return s.owned[partition] || s.helps[partition] }
