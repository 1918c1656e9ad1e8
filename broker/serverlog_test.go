package broker

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
)

// TestServerLinesAreRare: a member that is refused again and again makes one line a minute, others keep theirs.
func TestServerLinesAreRare(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	l := serverLog{log: log, rare: rarelog.New(log)}
	for n := range 20 {
		l.Errorf("192.0.2.1:%d - rid:%d - TLS route handshake error: %s", 40000+n, n, "bad certificate")
	}
	l.Errorf("192.0.2.2:40000 - rid:30 - TLS route handshake error: bad certificate")
	for n := range 20 {
		l.Errorf("[fd00::1]:%d - rid:%d - TLS route handshake error: %s", 40000+n, n, "bad certificate")
	}
	l.Errorf("[fd00::2]:40000 - rid:30 - TLS route handshake error: bad certificate %s", strings.Repeat("x", 1000))
	l.Warnf("JetStream cluster stream '$G > %s' has NO quorum, stalled", "EVENTLOG_0")
	l.Warnf("JetStream cluster stream '$G > %s' has NO quorum, stalled", "EVENTLOG_1")
	if n := strings.Count(out.String(), "\n"); n != 6 || strings.Contains(out.String(), "1000 bytes") {
		t.Errorf("there are %d lines, want 6 whole ones:\n%s", n, out.String())
	}
}
