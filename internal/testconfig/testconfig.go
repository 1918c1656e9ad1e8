// Package testconfig starts a store of definitions on a broker of its own, for tests of whatever reads or writes them.
package testconfig

import (
	"testing"

	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/config"
)

// Store is empty, and runs until the test has ended.
func Store(t testing.TB) *config.Store {
	t.Helper()
	s, _ := WithBroker(t)
	return s
}

// WithBroker is Store for tests that take the broker away from it.
func WithBroker(t testing.TB) (*config.Store, *broker.Broker) {
	t.Helper()
	b, err := broker.New(broker.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
	s, err := config.New(config.Options{Broker: b})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s, b
}
