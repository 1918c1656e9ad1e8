package config

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapwing-monitoring/lapwing/broker"
)

// message is one of the bucket as its watcher gets it: a check in the namespace default.
func message(name string, revision uint64) broker.Message {
	return broker.Message{
		Seq: revision, Subject: subjectPrefix + bucketKey(Checks.String(), "default", name),
		Data: fmt.Appendf(nil, `{"metadata":{"namespace":"default","name":%q}}`, name),
	}
}

// watched returns a store without a broker. The test feeds it in place of the watcher.
func watched() *Store {
	s := &Store{advanced: make(chan struct{}), listeners: map[int]func(Change){}, stored: map[string]stored{}}
	s.metrics = newMetrics(nil, s)
	s.snapshot.Store(Empty())
	return s
}

// TestWritesWaitForListeners blocks a listener: its write must not return before the listener does, although the
// snapshot already has the write.
func TestWritesWaitForListeners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := watched()
		heard, goOn := "", make(chan struct{})
		s.OnChange(func(c Change) {
			<-goOn
			heard += " " + c.Name
		})
		returned := make(chan error, 1)
		go func() { returned <- s.wait(t.Context(), 7) }()
		go s.apply([]broker.Message{message("other", 6), message("mine", 7)}, false)
		synctest.Wait()
		if _, ok := Get(s.Snapshot(), Checks, "default", "mine"); !ok {
			t.Fatal("the snapshot does not hold the write")
		}
		for range 2 {
			if len(returned) > 0 {
				t.Errorf("a write returned when the listener had heard of%q", heard)
			}
			goOn <- struct{}{}
			synctest.Wait()
		}
		if err := <-returned; err != nil || heard != " other mine" {
			t.Errorf("%v; the listener has heard of%q", err, heard)
		}
	})
}

// TestWriteNeedNotWaitForever: a hanging listener delays writes, and each still ends with its context.
func TestWriteNeedNotWaitForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := watched()
		goOn := make(chan struct{})
		s.OnChange(func(Change) { <-goOn })
		go s.apply([]broker.Message{message("mine", 7)}, false)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.wait(ctx, 7); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it waited and got %v", err)
		}
		close(goOn)
	})
}
