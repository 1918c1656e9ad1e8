package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lapwing-monitoring/lapwing/notification"
)

// notifications is what the session knows of the member's rows in the table notification.
type notifications struct {
	spans
	known bool   // has and at were read
	has   uint64 // the position in the database
	at    uint64 // the newest number that needs no copy; less than has if the store went back
}

// maxNotifications bounds the rows of a transaction.
const maxNotifications = 2000

// notificationColumns are those of notificationRow.
var notificationColumns = []string{
	"at", "number", "status", "attempt", "millis", "events", "incident", "resolution", "final", "member", "namespace", "entity",
	"check", "pipeline", "workflow", "handler", "type", "recipients", "merged", "result", "error", "output", "delivery", "event",
}

// notify gives notifications a turn: one transaction at most. more says that there is work for another one.
func (s *session) notify(ctx context.Context) (more bool, err error) {
	store, n := s.p.opts.Notifications, &s.notifications
	if store == nil {
		return false, nil
	}
	if !n.known {
		if err := s.bounded(ctx, s.readNotified); err != nil {
			return false, err
		}
	}
	newest := store.Newest()
	if newest <= n.at {
		return false, nil
	}
	list, err := store.After(n.at, maxNotifications)
	if err != nil {
		return false, err
	}
	to := newest // if there are none, the store has removed all of them
	if len(list) > 0 {
		to = list[len(list)-1].Number
	}
	switch err := s.bounded(ctx, func(ctx context.Context) error { return s.writeNotifications(ctx, list, to) }); {
	case errors.Is(err, errMoved):
		n.known = false
		return true, nil
	case err != nil:
		return false, err
	}
	if lost := to - n.at - uint64(len(list)); lost > 0 {
		s.p.metrics.lost.Add(float64(lost))
		s.p.log.Warn("notifications are missing in PostgreSQL: they were removed here before they could be copied",
			"after", n.at, "up to", to, "missing", lost)
	}
	n.has, n.at = to, to
	return len(list) == maxNotifications, nil
}

// readNotified reads how far this member's notifications are written. A store that was restored from a backup counts
// from an earlier number: what it records from then on is copied.
func (s *session) readNotified(ctx context.Context) error {
	n := &s.notifications
	var number int64
	err := s.conn.QueryRow(ctx, "SELECT number FROM lapwing_data.notification_position WHERE member = $1", s.p.opts.MemberID).Scan(&number)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("read the position of notifications: %w", err)
	}
	n.has, n.at, n.known = uint64(number), uint64(number), true
	if !s.p.notified && n.has > s.p.firstNewest {
		s.p.log.Warn("PostgreSQL has newer notifications of this backend than its store had at the start: was it restored?",
			"postgres", n.has, "store", s.p.firstNewest)
		n.at = s.p.firstNewest
	}
	return nil
}

// writeNotifications commits rows and the position behind them. It returns errMoved if the database is at another
// position: an earlier transaction of this backend, whose end was not known, was committed.
func (s *session) writeNotifications(ctx context.Context, list []notification.Notification, to uint64) error {
	n := &s.notifications
	oldest := n.cutoff(time.Now())
	var rows [][]any
	for i := range list {
		one := &list[i]
		if one.At < oldest {
			continue
		}
		at := instant(one.At)
		if err := n.ensure(ctx, s.conn, *at); err != nil {
			return err
		}
		rows = append(rows, s.notificationRow(one, *at))
	}
	err := inTransaction(ctx, s.conn, func(tx pgx.Tx) error {
		if err := s.fenceNotifications(ctx, tx); err != nil {
			return err
		}
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"lapwing_data", tableNotification}, notificationColumns,
			pgx.CopyFromRows(rows))
		if err != nil {
			return fmt.Errorf("write %d notifications: %w", len(rows), err)
		}
		_, err = tx.Exec(ctx, "UPDATE lapwing_data.notification_position SET number = $2 WHERE member = $1", s.p.opts.MemberID, int64(to))
		if err != nil {
			return fmt.Errorf("move the position of notifications: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.p.notified = true
	s.p.metrics.rows.WithLabelValues(tableNotification).Add(float64(len(rows)))
	return nil
}

// fenceNotifications locks the member's position until the transaction ends, and checks that it is where it was.
func (s *session) fenceNotifications(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "INSERT INTO lapwing_data.notification_position (member, number) VALUES ($1, 0) ON CONFLICT DO NOTHING",
		s.p.opts.MemberID)
	if err != nil {
		return fmt.Errorf("begin the position of notifications: %w", err)
	}
	var number int64
	err = tx.QueryRow(ctx, "SELECT number FROM lapwing_data.notification_position WHERE member = $1 FOR UPDATE",
		s.p.opts.MemberID).Scan(&number)
	if err != nil {
		return fmt.Errorf("lock the position of notifications: %w", err)
	}
	if uint64(number) != s.notifications.has {
		return fmt.Errorf("notifications are written up to %d: %w", number, errMoved)
	}
	return nil
}

func (s *session) notificationRow(n *notification.Notification, at time.Time) []any {
	recipients := make([]string, len(n.Recipients))
	for i, r := range n.Recipients {
		recipients[i] = text(r)
	}
	merged := make([]string, len(n.Merged))
	for i, m := range n.Merged {
		merged[i] = text(m.Entity + "/" + m.Check)
	}
	return []any{
		at, int64(n.Number), int32(n.Status), small(n.Attempt), small(n.Millis), small(n.Events), n.Incident, n.Resolution, n.Final,
		text(s.p.opts.Member), text(n.Namespace), text(n.Entity), text(n.Check), text(n.Pipeline), text(n.Workflow), text(n.Handler),
		text(n.Type), recipients, merged, text(n.Result), text(n.Error), text(n.Output), text(n.ID), text(n.EventID),
	}
}

// small returns the nearest number that fits into int.
func small[T int | int64](v T) int32 { return int32(max(math.MinInt32, min(int64(v), math.MaxInt32))) }
