package doctor_test

import (
	"os"
	"testing"

	"github.com/lapwing-monitoring/lapwing/internal/testpostgres"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if testpostgres.Remove() != nil && code == 0 {
		code = 1
	}
	os.Exit(code)
}
