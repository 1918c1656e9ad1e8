package config

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// stored is an entry of the bucket as its watcher gets it: a check in the namespace default.
type stored struct {
	name     string
	revision uint64
}

func (e stored) Bucket() string { return bucketName }
func (e stored) Key() string    { return bucketKey(Checks.String(), "default", e.name) }
func (e stored) Value() []byte {
	return fmt.Appendf(nil, `{"metadata":{"namespace":"default","name":%q}}`, e.name)
}
func (e stored) Revision() uint64                { return e.revision }
func (e stored) Created() time.Time              { return time.Now() }
func (e stored) Delta() uint64                   { return 0 }
func (e stored) Operation() jetstream.KeyValueOp { return jetstream.KeyValuePut }

// watched returns a store without a broker. The test feeds it in place of the watcher.
func watched() *Store {
	s := &Store{advanced: make(chan struct{}), listeners: map[int]func(Change){}}
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
		go s.apply([]jetstream.KeyValueEntry{stored{"other", 6}, stored{"mine", 7}})
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
		go s.apply([]jetstream.KeyValueEntry{stored{"mine", 7}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.wait(ctx, 7); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it waited and got %v", err)
		}
		close(goOn)
	})
}
