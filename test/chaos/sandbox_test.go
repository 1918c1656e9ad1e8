//go:build linux

package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inSandbox runs the calling test once more in a sandbox, and reports whether it is in there.
func inSandbox(t *testing.T) bool {
	t.Helper()
	if os.Getenv("LAPWING_CHAOS_SANDBOX") != "" {
		if err := furnishSandbox(); err != nil {
			t.Fatal(err)
		}
		return true
	}
	if err := canPlay(); err != nil {
		t.Skip(err)
	}
	t.Setenv("LAPWING_CHAOS_SANDBOX", "1")
	switch status := enterSandbox(t.Context(), []string{"-test.run", "^" + t.Name() + "$"}); status {
	case exitPassed:
	case exitCannot:
		t.Skip("no namespaces here")
	default:
		t.Errorf("in the sandbox the test ends with exit status %d", status)
	}
	return false
}

// socket opens a UDP socket in a member's network.
func socket(t *testing.T, member int) *net.UDPConn {
	t.Helper()
	opened := make(chan *net.UDPConn)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		defer close(opened)
		network, err := os.Open("/run/netns/" + memberName(member))
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = network.Close() }()
		if err := unix.Setns(int(network.Fd()), unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(memberAddr(member)), Port: 5000})
		if err != nil {
			t.Error(err)
			return
		}
		opened <- conn
	}()
	conn := <-opened
	if conn == nil {
		t.FailNow()
	}
	return conn
}

// TestNetworkFaults sends packets between three members while links are cut. What is sent during a cut must be lost,
// and everything else must arrive.
func TestNetworkFaults(t *testing.T) {
	if !inSandbox(t) {
		return
	}
	if err := newNetwork(3); err != nil {
		t.Fatal(err)
	}
	var sockets []*net.UDPConn
	for i := range 3 {
		sockets = append(sockets, socket(t, i))
	}
	send := func(from, to int, text string) {
		_, _ = sockets[from].WriteToUDP([]byte(text), &net.UDPAddr{IP: net.ParseIP(memberAddr(to)), Port: 5000})
	}
	// arrives sends until a text arrives, and fails if another one does.
	arrives := func(from, to int, text string) {
		t.Helper()
		b := make([]byte, 100)
		for until := time.Now().Add(time.Minute); ; {
			send(from, to, text)
			_ = sockets[to].SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			n, _, err := sockets[to].ReadFromUDP(b)
			if got := string(b[:n]); err == nil && got == text {
				return
			} else if err == nil && got == "lost" {
				t.Fatalf("m%d has got what m%d sent during the cut", to, from)
			}
			if time.Now().After(until) {
				t.Fatalf("nothing arrives from m%d at m%d", from, to)
			}
		}
	}
	lost := func(pairs ...[2]int) {
		for _, p := range pairs {
			send(p[0], p[1], "lost")
		}
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	all := func(text string) {
		t.Helper()
		for from := range 3 {
			for to := range 3 {
				if from != to {
					arrives(from, to, text)
				}
			}
		}
	}
	all("before")

	do(block(0, 1))
	lost([2]int{0, 1})
	arrives(1, 0, "other way")
	arrives(0, 2, "other member")
	do(unblock(0, 1))
	all("after one way")

	r := run{members: make([]*member, 3)}
	do(r.begin(Fault{Kind: KindIsolate, Member: 2}))
	lost([2]int{0, 2}, [2]int{1, 2}, [2]int{2, 0}, [2]int{2, 1})
	arrives(0, 1, "the rest")
	do(r.heal(Fault{Kind: KindIsolate, Member: 2}))
	all("after isolate")

	do(cut(1))
	arrives(2, 0, "the rest again")
	// The kernel keeps a packet for a second or two while it looks for its neighbour, so it may come after the cut.
	send(0, 1, "early")
	_ = sockets[1].SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	for b := make([]byte, 100); ; {
		n, _, err := sockets[1].ReadFromUDP(b)
		if err != nil {
			break // nothing more has come
		}
		if string(b[:n]) == "early" {
			t.Error("m1 has got a packet during its cut")
		}
	}
	do(mend(1))
	all("after cut")
}

// TestDiskFaults writes to a disk that stands still, to one that is full, and to one that loses its power.
func TestDiskFaults(t *testing.T) {
	if !inSandbox(t) {
		return
	}
	dir := t.TempDir()
	d, err := newDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Unmount(d.dir, syscall.MNT_DETACH) }()
	write := func(name string) error { return os.WriteFile(filepath.Join(d.dir, name), make([]byte, 1<<20), 0o600) }
	if err := write("a"); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := d.slow(time.Second, 10*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for n := 0; time.Since(begin) < 1500*time.Millisecond; n++ {
		if err := write("a"); err != nil {
			t.Fatal(err)
		}
		if n > 1000 {
			t.Fatalf("a slow disk has taken %d files in %s", n, time.Since(begin))
		}
	}
	d.fast()
	if err := d.fill(filledDiskLeaves); err != nil {
		t.Fatal(err)
	}
	if err := write("b"); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a write to a full disk: %v", err)
	}
	if err := d.empty(); err != nil {
		t.Fatal(err)
	}
	if err := write("b"); err != nil {
		t.Error(err)
	}

	synced, err := os.Open(filepath.Join(d.dir, "b"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(synced.Sync(), synced.Close(), write("c")); err != nil {
		t.Fatal(err)
	}
	if err := d.lose(); err != nil {
		t.Fatal(err)
	}
	if err := write("d"); !errors.Is(err, syscall.EIO) {
		t.Errorf("a write after the power cut: %v", err)
	}
	if err := d.remount(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(d.dir, "b")); err != nil || len(b) != 1<<20 {
		t.Errorf("a synced file has %d bytes after the power cut, %v", len(b), err)
	}
	if b, err := os.ReadFile(filepath.Join(d.dir, "c")); err == nil && len(b) == 1<<20 {
		t.Error("a file that was not synced has survived the power cut")
	}
}
