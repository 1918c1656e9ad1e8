package filter_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/filter"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := pool().Stop(); err != nil {
		code = 1
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// pool is for tests that do not kill its workers on purpose.
var pool = sync.OnceValue(func() *filter.Pool {
	p, err := filter.NewPool(filter.PoolOptions{})
	if err == nil {
		err = p.Start(context.Background())
	}
	if err != nil {
		panic(err)
	}
	return p
})
