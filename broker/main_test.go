package broker_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/internal/testnats"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if testnats.Remove() != nil && code == 0 {
			code = 1
		}
		os.Exit(code)
	}))
}
