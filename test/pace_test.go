package test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/backend"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// TestPaceOnAFullDisk: while the disk is full, lapwing agents are asked to keep their events, and afterwards to send
// them, slowly at first. Sensu agents are sent nothing.
func TestPaceOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mountSmall(t, dir, 96<<20)
	b := testbackend.Start(t, func(o *backend.Options) { o.StateDir, o.Log.MinFree = filepath.Join(dir, "state"), 32<<20 })
	own, _ := b.DialAgent(t, "own", http.Header{wire.HeaderProtocol: {wire.ProtocolVersion}, wire.HeaderEpoch: {"00000000000000ff"}})
	stock, _ := b.DialAgent(t, "stock", nil)
	readType(t, own)
	readType(t, stock)
	told := func(want wire.Pace) {
		t.Helper()
		typ, payload := read(t, own)
		if typ != wire.TypePace {
			t.Fatalf("got %s, want a pace", typ)
		}
		if pace, every, err := wire.DecodePace(payload); err != nil || pace != want || (every > 0) != (want == wire.PaceSlow) {
			t.Fatalf("told %s %s, %v, want %s", pace, every, err, want)
		}
		if n := b.Counter(t, "lapwing_agent_pace"); n != float64(want) {
			t.Errorf("the metric is %v", n)
		}
	}
	ballast := filepath.Join(dir, "ballast")
	fillUp(t, ballast)
	told(wire.PaceSpool)
	late, _ := b.DialAgent(t, "late", http.Header{wire.HeaderProtocol: {wire.ProtocolVersion}, wire.HeaderEpoch: {"00000000000000fe"}})
	readType(t, late)
	if typ := readType(t, late); typ != wire.TypePace {
		t.Errorf("an agent that comes now is sent %s", typ)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	told(wire.PaceSlow)
	told(wire.PaceGo)
	if n := b.Counter(t, "lapwing_agent_pace_changes_total"); n != 3 {
		t.Errorf("%v changes", n)
	}
	// Too short a time can miss a message, but cannot cause one.
	if err := stock.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if msg, err := stock.Read(); err == nil {
		t.Errorf("a stock agent was sent %.20q", msg)
	}
}
