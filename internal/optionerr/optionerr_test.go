package optionerr_test

import (
	"errors"
	"fmt"
	"math"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
)

func TestList(t *testing.T) {
	f := func(want string, add func(*optionerr.List)) {
		t.Helper()
		var l optionerr.List
		add(&l)
		got := ""
		if err := l.Err(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	f("", func(l *optionerr.List) {
		optionerr.Within(l, "n", 0, 5, 10)
		optionerr.Within(l, "n", 5, 5, 10)
		optionerr.Within(l, "n", 10, 5, 10)
		optionerr.OneOf(l, "w", "b", "a", "b")
		optionerr.Port(l, "p", 0)
	})
	f("--n: -1 is negative: it must be from 5 to 10", func(l *optionerr.List) { optionerr.Within(l, "n", -1, 5, 10) })
	f("--n: 11 is out of range: it must be from 5 to 10", func(l *optionerr.List) { optionerr.Within(l, "n", uint64(11), 5, 10) })
	f("--n: NaN is out of range: it must be from 0.5 to 10", func(l *optionerr.List) { optionerr.Within(l, "n", math.NaN(), 0.5, 10) })
	f("--d: -5s is negative: it must be from 1ms to 1h", func(l *optionerr.List) {
		optionerr.Within(l, "d", -5*time.Second, time.Millisecond, time.Hour)
	})
	f("--p: 65536 is not a port: it must be from 0, for any free port, to 65535", func(l *optionerr.List) { optionerr.Port(l, "p", 65536) })
	f(`--w: "pip" is not known: it must be pipe, tcp or udp; the nearest is "pipe"`, func(l *optionerr.List) {
		optionerr.OneOf(l, "w", "pip", "pipe", "tcp", "udp")
	})
	f(`--w: "" is not known: it must be text or json`, func(l *optionerr.List) { optionerr.OneOf(l, "w", "", "text", "json") })
	f("--a: 1\n--b: 2", func(l *optionerr.List) { l.Add("b", "2"); l.Add("a", "1") })
}

func TestAll(t *testing.T) {
	var l optionerr.List
	l.Add("a", "1")
	l.Add("b", "2")
	err := fmt.Errorf("start: %w", errors.Join(errors.New("x"), l.Err()))
	all := optionerr.All(err)
	if len(all) != 2 || all[0].Flag != "a" || all[1].Flag != "b" {
		t.Fatalf("%v", all)
	}
	all[0].From = "key a of x.yml"
	if got, want := err.Error(), "start: x\n--a: 1\n--b: 2"; got != want { // an error that was formatted before
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := l.Err().Error(), "--a (key a of x.yml): 1\n--b: 2"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	mixed := errors.Join(l.Err(), errors.New("y"), fmt.Errorf("z: %w", errors.New("inner")), fmt.Errorf("w: %w", l.Err()))
	if others := optionerr.Others(mixed); others == nil || others.Error() != "y\nz: inner" {
		t.Errorf("others: %v", others)
	}
	if optionerr.Others(l.Err()) != nil || optionerr.Others(nil) != nil {
		t.Error("errors of options are taken for others")
	}
	if optionerr.All(nil) != nil || optionerr.All(errors.New("x")) != nil {
		t.Error("errors of others are taken for errors of options")
	}
}

// TestInclude keeps one error for each option.
func TestInclude(t *testing.T) {
	var first, second optionerr.List
	first.Add("a", "it is empty")
	second.Add("a", "it is no address")
	second.Add("b", "it is negative")
	first.Include(second.Err())
	first.Include(nil)
	first.Include(errors.New("no option"))
	if got, want := first.Err().Error(), "--a: it is empty\n--b: it is negative\nno option"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestListen names a port that cannot be bound by its flag, and the cause without repeating the address.
func TestListen(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	address := busy.Addr().String()
	_, inUse := net.Listen("tcp", address)
	for want, err := range map[string]error{
		"--a " + address + ": " + syscall.EADDRINUSE.Error(): fmt.Errorf("listener: %w", inUse),
		"--a " + address + ": no memory":                     errors.New("no memory"),
	} {
		got := optionerr.Listen("--a", address, err)
		if got.Error() != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if !errors.Is(optionerr.Listen("--a", address, inUse), syscall.EADDRINUSE) {
		t.Error("the cause is lost")
	}
}

func TestNearest(t *testing.T) {
	known := []string{"db1", "web1", "check-cpu", "check_disk", "SRV-DB-01"}
	f := func(name, want string) {
		t.Helper()
		if got := optionerr.Nearest(name, known); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	f("wbe1", "web1") // a swap is one edit
	f("ewb1", "web1")
	f("chek-cpu", "check-cpu")
	f("check-dsik", "check_disk")
	f("srv-db-02", "SRV-DB-01")
	f("SRV-DB-10", "SRV-DB-01")
	f("mail", "")
	f("", "")
}
