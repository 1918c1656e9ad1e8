package postgres

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/internal/testpostgres"
	"github.com/lapwing-monitoring/lapwing/notification"
	"github.com/lapwing-monitoring/lapwing/postgres/journal"
)

// sent is a member's store of notifications.
type sent struct {
	*notification.Store
	t    *testing.T
	fs   vfs.FS
	db   *pebble.DB
	opts notification.Options
	stop func()
	n    int // how many were recorded
}

func newSent(t *testing.T, opts notification.Options) *sent {
	t.Helper()
	s := &sent{t: t, fs: vfs.NewMem(), opts: opts}
	s.open()
	t.Cleanup(func() { s.stop() })
	return s
}

// open opens the store, as a new process does.
func (s *sent) open() {
	s.t.Helper()
	var err error
	s.db, err = pebble.Open("db", &pebble.Options{FS: s.fs})
	check(s.t, err)
	o := s.opts
	o.DB, o.Delay, o.SyncDelay = s.db, time.Millisecond, time.Nanosecond
	s.Store, err = notification.New(o)
	check(s.t, err)
	check(s.t, s.Start(s.t.Context()))
	s.stop = sync.OnceFunc(func() {
		check(s.t, s.Store.Stop())
		check(s.t, s.db.Close())
	})
}

// record records some, each numbered in its output, and waits until no crash can lose them.
func (s *sent) record(n int, change ...func(*notification.Notification)) {
	s.t.Helper()
	for range n {
		one := &notification.Notification{
			At: time.Now().UnixMilli(), Millis: 5, Type: "email", Recipients: []string{"ops@example.com", "dev@example.com"}, Result: "ok",
			Attempt: 1, Final: true, Events: 1, Output: fmt.Sprint(s.n),
			Header: delivery.Header{
				ID: "0-1-0/mail", EventID: "0-1-0", Namespace: "default", Entity: "web1", Check: "disk", Handler: "mail", Status: 2, Incident: true,
			},
		}
		for _, f := range change {
			f(one)
		}
		s.Record(one)
		s.n++
	}
	for deadline := time.Now().Add(time.Minute); s.Newest() < uint64(s.n); runtime.Gosched() {
		if time.Now().After(deadline) {
			s.t.Fatalf("the store has %d of %d notifications", s.Newest(), s.n)
		}
	}
}

// as has a writer copy the notifications.
func (s *sent) as(name, id string) func(*journal.Options, *Options, *Settings) {
	return func(_ *journal.Options, o *Options, _ *Settings) {
		o.Notifications, o.Member, o.MemberID = s.Store, name, id
	}
}

// awaitPosition waits until a member's position is a number.
func awaitPosition(t *testing.T, dsn, id string, number int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	check(t, err)
	defer func() { check(t, conn.Close(context.Background())) }()
	for deadline := time.Now().Add(time.Minute); ; {
		var got int
		err := conn.QueryRow(t.Context(), `SELECT number FROM lapwing_data.notification_position WHERE member = $1`, id).Scan(&got)
		if err == nil && got == number { // there may be no table yet
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("notifications of %s are written up to %d, want %d (%v)", id, got, number, err)
		}
	}
}

// wantOnce checks that the notifications of a member are there once, from the first output to the last, in their order.
func wantOnce(t *testing.T, dsn, member string, from, to int) {
	t.Helper()
	want(t, "notifications of "+member, query(t, dsn, `SELECT count(*), count(DISTINCT number), min(output::int), max(output::int),
		bool_and(number = output::int + 1) FROM lapwing_data.notification WHERE member = $1`, member),
		fmt.Sprintf("%d|%d|%d|%d|true", to-from, to-from, from, to-1))
}

// TestRealNotificationsSurviveKills kills and pauses the server while notifications are copied.
func TestRealNotificationsSurviveKills(t *testing.T) {
	b, pg, s := newBed(t), server(t), newSent(t, notification.Options{})
	b.start(pg.DSN(), func(j *journal.Options, o *Options, set *Settings) {
		s.as("web", "id1")(j, o, set)
		o.Timeout, o.ConnectTimeout = 500*time.Millisecond, 500*time.Millisecond
	})
	s.record(3000) // more than a transaction
	awaitPosition(t, b.dsn, "id1", 3000)
	for range 3 {
		pg.Kill(t)
		s.record(500)
		pg.StartAgain(t)
		s.record(500)
		pg.Kill(t) // while it catches up
		pg.StartAgain(t)
		s.record(500)
	}
	pg.Pause(t)
	s.record(100)
	pg.Resume(t)
	awaitPosition(t, b.dsn, "id1", s.n)
	wantOnce(t, b.dsn, "web", 0, s.n)
	want(t, "the largest transaction", query(t, b.dsn,
		`SELECT max(n) <= 2000 FROM (SELECT count(*) AS n FROM lapwing_data.notification GROUP BY xmin::text) x`), "true")
	if got := testutil.ToFloat64(b.writer.metrics.rows.WithLabelValues(tableNotification)); got < float64(s.n)-2000*10 || got > float64(s.n) {
		t.Errorf("%v rows were counted, and %d written", got, s.n)
	}
}

// TestRealNotificationsOfTwoMembers: each member copies its own, also if neither owns a partition, and under its id: two
// members may have the same name.
func TestRealNotificationsOfTwoMembers(t *testing.T) {
	b, pg := newBed(t), server(t)
	one, two := newSent(t, notification.Options{}), newSent(t, notification.Options{})
	two.record(7)
	b.start(pg.DSN(), one.as("web", "id1"))
	b.owns.Store(false)
	db, err := pebble.Open("", &pebble.Options{FS: vfs.NewMem()})
	check(t, err)
	other := b.open(db, t.TempDir(), pg.DSN(), two.as("web", "id2"))
	t.Cleanup(func() { other.stop(); check(t, db.Close()) })
	other.owns.Store(false)
	one.record(5)
	awaitPosition(t, b.dsn, "id1", 5)
	awaitPosition(t, b.dsn, "id2", 7)
	want(t, "rows", query(t, b.dsn, `SELECT count(*) FROM lapwing.notifications WHERE member = 'web'`), "12")
}

// TestRealNotificationsAfterRestarts: the next process goes on where the last one was, under another name too. A store
// that was restored from a backup counts again from an earlier number, and nothing that it records is left out.
func TestRealNotificationsAfterRestarts(t *testing.T) {
	b, pg, s := newBed(t), server(t), newSent(t, notification.Options{})
	b.start(pg.DSN(), s.as("web", "id1"))
	s.record(3)
	awaitPosition(t, b.dsn, "id1", 3)
	b.stop()
	s.stop()
	s.open()
	s.record(4)
	b.backend = b.open(b.db, b.dir, b.dsn, s.as("renamed", "id1"))
	awaitPosition(t, b.dsn, "id1", 7)
	wantOnce(t, b.dsn, "web", 0, 3)
	wantOnce(t, b.dsn, "renamed", 3, 7)
	b.stop()

	old := newSent(t, notification.Options{})
	old.record(2) // the backup's
	b.backend = b.open(b.db, b.dir, b.dsn, old.as("restored", "id1"))
	old.record(1)
	awaitPosition(t, b.dsn, "id1", 3)
	wantOnce(t, b.dsn, "restored", 2, 3)
	old.record(9)
	awaitPosition(t, b.dsn, "id1", 12)
	wantOnce(t, b.dsn, "restored", 2, 12)
}

// TestRealNotificationsThatAreGone: those that the store has removed before they could be copied are counted.
func TestRealNotificationsThatAreGone(t *testing.T) {
	b, pg, s := newBed(t), server(t), newSent(t, notification.Options{MaxBytes: 64 << 10})
	b.start(pg.DSN(), s.as("web", "id1"))
	s.record(10)
	awaitPosition(t, b.dsn, "id1", 10)
	pg.Stop(t)
	for s.Oldest() < 100 {
		s.record(10)
	}
	s.stop() // removes no more
	oldest := int(s.Oldest())
	pg.StartAgain(t)
	s.open()
	b.stop()
	b.backend = b.open(b.db, b.dir, b.dsn, s.as("web", "id1"))
	awaitPosition(t, b.dsn, "id1", s.n)
	want(t, "rows", query(t, b.dsn, `SELECT count(*), min(number) FILTER (WHERE number > 10) FROM lapwing_data.notification`),
		fmt.Sprintf("%d|%d", 10+s.n-oldest+1, oldest))
	if got := testutil.ToFloat64(b.writer.metrics.lost); got != float64(oldest-11) {
		t.Errorf("%v are counted as missing, want %d", got, oldest-11)
	}
}

// TestRealOddNotifications copies what PostgreSQL does not take as it is, and leaves out what is too old to be kept.
func TestRealOddNotifications(t *testing.T) {
	b, s := newBed(t), newSent(t, notification.Options{})
	dsn := testpostgres.Start(t, testpostgres.Options{NoFsync: true}).DSN()
	b.start(dsn, func(j *journal.Options, o *Options, set *Settings) {
		s.as("w\x00b", "id1")(j, o, set)
		set.Notifications = 24 * time.Hour
	})
	s.record(1, func(n *notification.Notification) {
		n.Recipients, n.Error, n.Entity, n.Status, n.Millis = []string{"a\x00b", `{"x",y\}`, ""}, "no\x00", "e\xff", math.MaxUint32, math.MaxInt64
	})
	s.record(1, func(n *notification.Notification) { n.Recipients, n.At = nil, math.MaxInt64 })
	s.record(1, func(n *notification.Notification) { n.At = time.Now().AddDate(0, 0, -2).UnixMilli() })
	awaitPosition(t, dsn, "id1", 3)
	want(t, "rows", query(t, dsn, `SELECT output, recipients, entity, error, status, millis, member FROM lapwing.notifications ORDER BY output`),
		strings.Join([]string{
			"0|[a\ufffdb {\"x\",y\\} ]|e\ufffd|no\ufffd|-1|2147483647|w\ufffdb",
			"1|[]|web1||2|5|w\ufffdb",
		}, "\n"))
}
