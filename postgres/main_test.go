package postgres

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/internal/testpostgres"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if testpostgres.Remove() != nil && code == 0 {
			code = 1
		}
		os.Exit(code)
	}))
}
