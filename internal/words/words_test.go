package words

import (
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestTryIsShort: a long error does not push the time of the next attempt out of sight.
func TestTryIsShort(t *testing.T) {
	clock := func(int64) string { return "later" }
	try := resource.EscalationTry{Contact: "anna", Handler: "mail", Attempts: 1, Error: strings.Repeat("é", 100)}
	if got, want := Try(&try, time.Now(), clock), " by mail: 1 attempt failed: "+try.Error+"; the next is due"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	whole := Try(&try, time.Now(), clock)
	try.Error += "é\nsecond line"
	if got, want := Try(&try, time.Now(), clock), strings.Replace(whole, ";", "…;", 1); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
