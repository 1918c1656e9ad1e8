package audit

import (
	"fmt"
	"sync"
	"testing"

	"github.com/lapwing-monitoring/lapwing/internal/testbroker"
)

// TestLogOfACluster records on each of three members: each reads all entries, also after one has died.
func TestLogOfACluster(t *testing.T) {
	c := testbroker.New(t, 3)
	c.Launch(0, 1, 2)
	var logs [3]*Log
	var starting sync.WaitGroup
	for i := range logs {
		starting.Go(func() {
			l, err := New(Options{Broker: c.Member(i)})
			if err == nil {
				err = l.Start(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
			logs[i] = l
		})
	}
	starting.Wait()
	if t.Failed() {
		return
	}
	want := 0
	record := func(i int) {
		logs[i].Record(t.Context(), Entry{User: fmt.Sprintf("user-%d", i), Action: "execute", Name: "x"})
		want++
	}
	for i := range logs {
		record(i)
	}
	for i, l := range logs {
		if got := l.all(t, Query{}); len(got) != want || got[0].User != "user-2" {
			t.Errorf("member %d reads %+v", i, got)
		}
	}
	leader, err := c.Member(0).StreamStatus(t.Context(), streamName)
	if err != nil {
		t.Fatal(err)
	}
	dead := c.Index(leader.Leader)
	lives := (dead + 1) % 3
	c.Kill(dead)
	record(lives)
	testbroker.Eventually(t, func() error {
		got, _, err := logs[(dead+2)%3].Read(t.Context(), Query{Limit: 10})
		if err == nil && len(got) != want {
			err = fmt.Errorf("after a death %d entries are read, want %d", len(got), want)
		}
		return err
	})
}
