package backend

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapwing-monitoring/lapwing/cluster"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
)

// silentMembers is the bus and the log of a member whose others answer no question. The log takes one roster.
type silentMembers struct {
	t       *testing.T
	c       *cluster.Cluster
	hear    func(reply string, data []byte)
	rosters atomic.Int32

	mu    sync.Mutex               // guards the field below
	asked map[string]time.Duration // by member: how long an answer was waited for
	fails int                      // how many questions fail at once; the one behind them is answered. 0 answers none
}

func (s *silentMembers) Partitions() int { return 1 }

func (s *silentMembers) AppendTo(_ context.Context, partition int, r *eventlog.Record, acker eventlog.Acker, token uint64) error {
	const roster = 1 // begins its record; a renewal begins with 2
	if r.Body[0] == roster && s.rosters.Add(1) > 1 {
		return nil
	}
	err := s.c.Fold(partition, 1, r.Body)
	acker.Logged(token, partition, 1, err)
	return nil
}

func (s *silentMembers) Publish(string, []byte) error { return nil }

func (s *silentMembers) Subscribe(_ string, f func(string, []byte)) (func(), error) {
	s.hear = f
	return func() {}, nil
}

func (s *silentMembers) Request(ctx context.Context, subject string, _ []byte) ([]byte, error) {
	begin := time.Now()
	if answer, err := s.atOnce(); answer != nil || err != nil {
		return answer, err
	}
	<-ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[strings.Split(subject, ".")[3]] = time.Since(begin)
	return nil, ctx.Err()
}

func (s *silentMembers) atOnce() (answer []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.fails--; {
	case s.fails > 0:
		return nil, errors.New("no listener")
	case s.fails == 0:
		return []byte{0}, nil
	}
	return nil, nil
}

// beats has members be heard.
func (s *silentMembers) beats(ids ...string) {
	for _, id := range ids {
		data, err := json.Marshal(cluster.Beat{ID: id, Life: "1", Hears: []string{"a"}, Rosters: []uint64{0}, Ready: true, Leased: true})
		if err != nil {
			s.t.Fatal(err)
		}
		s.hear("", data)
	}
}

// TestWriteWaitsForMembers: a write waits for a member that is silent and still on the roster, but not for long.
func TestWriteWaitsForMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &silentMembers{t: t, asked: map[string]time.Duration{}}
		db, err := pebble.Open("", &pebble.Options{FS: vfs.NewMem(), Logger: dbLog{slog.New(slog.DiscardHandler)}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		s.c, err = cluster.New(cluster.Options{
			ID: "a", Name: "a", Size: 3, Log: s, Bus: s, Describe: func() cluster.Info { return cluster.Info{} },
		})
		if err == nil {
			err = s.c.Load(db)
		}
		if err == nil {
			err = s.c.Start(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.c.Stop() }()
		s.c.Ready()
		for range 3 {
			s.beats("b", "c")
			time.Sleep(500 * time.Millisecond)
		}
		if s.rosters.Load() == 0 {
			t.Fatal("the members are on no roster")
		}
		for range 6 { // c is silent
			time.Sleep(500 * time.Millisecond)
			s.beats("b")
		}
		m := &membership{Cluster: s.c, rare: rarelog.New(slog.New(slog.DiscardHandler))}
		if err := m.waitRevision(t.Context(), 7); err != nil {
			t.Error(err)
		}
		if s.asked["b"] != peerWait || s.asked["c"] != silentWait || len(s.asked) != 2 {
			t.Errorf("the write waited for the members so long: %v", s.asked)
		}
		for fails, ok := range map[int]bool{1: true, 5: true, 100: false} { // the first is the answer itself
			s.fails = fails
			begin := time.Now()
			err := m.askRevision(t.Context(), "b", nil)
			took, want := time.Since(begin), time.Duration(fails-1)*askAgain
			if (err == nil) != ok || took > silentWait+2*askAgain || ok && took != want {
				t.Errorf("question %d was answered: %v after %v", fails, err, took)
			}
		}
	})
}
