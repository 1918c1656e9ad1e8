// Package testpool starts the worker processes for expressions, for tests of their callers.
package testpool

import (
	"testing"

	"github.com/lapwing-monitoring/lapwing/filter"
)

// Pool runs until the test has ended.
func Pool(t testing.TB) *filter.Pool {
	t.Helper()
	p, err := filter.NewPool(filter.PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	return p
}
