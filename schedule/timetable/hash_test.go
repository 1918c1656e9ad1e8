package timetable

import (
	"crypto/fips140"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

func TestHashes(t *testing.T) {
	for name, want := range map[string]Hash{"": MD5, "md5": MD5, "sha256": SHA256} {
		if got, err := ParseHash(name); err != nil || got != want {
			t.Errorf("%q: %v, %v", name, got, err)
		}
	}
	if _, err := ParseHash("sha1"); err == nil {
		t.Error("sha1 was taken")
	}
	// The first 8 bytes of SHA-256, lowest first, modulo a minute; computed independently.
	for name, want := range map[string]time.Duration{"check-cpu": 33, "dns": 55, "ping": 43, "load": 19} {
		if got := SHA256.Phase(name, time.Minute); got != want*time.Second {
			t.Errorf("%s: phase %s, want %d s", name, got, want)
		}
	}
	// Either spreads names evenly.
	for _, h := range []Hash{MD5, SHA256} {
		var count [10]int
		for i := range 10_000 {
			count[h.Phase(fmt.Sprint("check-", i), 10*time.Second)/time.Second]++
		}
		for second, n := range count {
			if n < 850 || n > 1150 {
				t.Errorf("hash %d: %d of 10,000 names in second %d of 10", h, n, second)
			}
		}
	}
}

func TestEvery(t *testing.T) {
	for _, tc := range []struct {
		cron     string
		interval uint32
		want     time.Duration
	}{
		{"", 10, 10 * time.Second}, {"", 0, 0}, {"@every 90s", 10, 90 * time.Second}, {"@every 1500ms", 0, time.Second}, {"@every 1ms", 0, time.Second},
		{"@hourly", 10, 0}, {"* * * * *", 10, 0}, {"nonsense", 10, 0},
	} {
		c := &resource.CheckConfig{Cron: tc.cron, Interval: tc.interval}
		if got := Every(c); got != tc.want {
			t.Errorf("%+v: every %s", tc, got)
		}
		times, err := Cron(c)
		if even := times == nil && err == nil; even != (tc.want > 0) {
			t.Errorf("%+v: %v, %v", tc, times, err)
		}
	}
}

// TestPhasesUnderFIPS runs TestIntervalPhase where MD5 is refused: phases are the same as on all other hosts.
func TestPhasesUnderFIPS(t *testing.T) {
	if fips140.Enforced() {
		t.Skip("runs there already")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^(TestIntervalPhase|TestHashes)$", "-test.v")
	cmd.Env = append(os.Environ(), "GODEBUG=fips140=only")
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), "--- PASS") != 2 {
		t.Errorf("%v\n%s", err, out)
	}
}
