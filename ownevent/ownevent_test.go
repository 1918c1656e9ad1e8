package ownevent

import (
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

func TestEventName(t *testing.T) {
	if got := EventName("late-check-", "disk"); got != "late-check-disk" {
		t.Error(got)
	}
	long := strings.Repeat("x", resource.MaxName)
	a, b := EventName("late-check-", long), EventName("late-check-", long[1:]+"y")
	if len(a) != resource.MaxName || len(b) != resource.MaxName || a == b {
		t.Errorf("%q, %q", a, b)
	}
}
