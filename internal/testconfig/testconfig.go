// Package testconfig starts an empty store of definitions on its own broker, for tests of its readers and writers.
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

// WithBroker is Store for tests that stop the broker.
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
