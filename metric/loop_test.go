package metric

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/metric/carbon"
	"github.com/lapwing-monitoring/lapwing/metric/relay"
)

func TestReaches(t *testing.T) {
	for _, tc := range []struct {
		host, bound string
		want        bool
	}{
		{"127.0.0.1", "127.0.0.1", true},
		{"127.0.0.2", "127.0.0.1", false},
		{"127.0.0.2", "0.0.0.0", true},
		{"127.0.0.1", "::", true},
		{"::1", "::", true},
		{"::1", "127.0.0.1", false},
		{"::ffff:127.0.0.1", "127.0.0.1", true},
		{"0.0.0.0", "127.0.0.1", true},
		{"0.0.0.0", "::", true},
		{"192.0.2.1", "::", false}, // an address for documents, which no host has
		{"192.0.2.1", "192.0.2.1", true},
		{"localhost", "::", true},
	} {
		if got, err := reaches(t.Context(), tc.host, netip.MustParseAddr(tc.bound)); err != nil || got != tc.want {
			t.Errorf("%s reaches %s: %v, %v", tc.host, tc.bound, got, err)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := reaches(ended, "a.name.invalid", netip.MustParseAddr("::")); err == nil {
		t.Error("a host without an address is no error")
	}
}

// TestRelayToItself: a listener of the server itself is refused as a destination of its relay.
func TestRelayToItself(t *testing.T) {
	for _, tc := range []struct {
		listen, destination, protocol string
		other, refused                bool
	}{
		{listen: "127.0.0.1:0", destination: "127.0.0.1", protocol: "line", refused: true},
		{listen: "0.0.0.0:0", destination: "localhost", protocol: "pickle", refused: true},
		{listen: "127.0.0.1:0", destination: "127.0.0.1", protocol: "line", other: true},
		{listen: "127.0.0.1:0", destination: "127.0.0.1", protocol: "udp"},
		{listen: "127.0.0.1:0", destination: "192.0.2.1", protocol: "line"},
	} {
		o := DefaultOptions()
		o.Dir, o.LineAddress = t.TempDir(), tc.listen
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		port := s.Addr(carbon.LineTCP).(*net.TCPAddr).Port
		if tc.other {
			port = port%65535 + 1
		}
		s.opts.Relay.Destinations = []string{"192.0.2.2:2003", fmt.Sprintf("%s:%d:a", tc.destination, port)}
		s.opts.Relay.Protocol = tc.protocol
		if err := s.refuseOwnAddress(); err != nil != tc.refused {
			t.Errorf("%+v: %v", tc, err)
		}
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// lines is a writer that passes on each write that contains a text, if there is room.
type lines struct {
	with string
	to   chan string
}

func (l lines) Write(p []byte) (int, error) {
	if strings.Contains(string(p), l.with) {
		select {
		case l.to <- string(p):
		default:
		}
	}
	return len(p), nil
}

// TestLoop has another server send back what it gets: the server sees the figures about its own relay.
func TestLoop(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	logged := make(chan string, 1)
	o := DefaultOptions()
	o.Dir, o.LineAddress, o.SelfInterval, o.Store.MinFreeBytes = t.TempDir(), "127.0.0.1:0", 10*time.Millisecond, -1
	o.Relay.Protocol, o.Relay.Destinations = relay.Line.String(), []string{other.Addr().String()}
	o.Logger = slog.New(slog.NewTextHandler(lines{"come back to it", logged}, nil))
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	var underWay sync.WaitGroup
	underWay.Go(func() {
		from, err := other.Accept()
		if err != nil {
			return
		}
		defer from.Close()
		to, err := net.Dial("tcp", s.Addr(carbon.LineTCP).String())
		if err != nil {
			t.Error(err)
			return
		}
		defer to.Close()
		_, _ = io.Copy(to, from) // it ends with an error when the server stops
	})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if line := <-logged; !strings.Contains(line, "carbon.relays.localhost-a.destinations.127_0_0_1:") {
		t.Errorf("the log has %s", line)
	}
	_ = other.Close()
	if err := s.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	underWay.Wait()
}

func TestIsOwnFigure(t *testing.T) {
	o := DefaultOptions()
	o.Dir, o.LineAddress, o.SelfHost, o.Store.MinFreeBytes = t.TempDir(), "127.0.0.1:0", "web1.example", -1
	o.Relay.Destinations = []string{"192.0.2.1:2004:b", "192.0.2.2:2004"}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Stop(context.Background()) }()
	var own []string
	for _, name := range []string{
		"carbon.relays.web1_example-a.destinations.192_0_2_1:2004:b.sent",
		"carbon.relays.web1_example-a.destinations.192_0_2_2:2004:None.sent",
		"carbon.relays.web1_example-a.destinations.192_0_2_3:2004:b.sent", // of a carbon-relay on the same host
		"carbon.relays.web2-a.destinations.192_0_2_1:2004:b.sent",
		"carbon.agents.web1_example-a.cpuUsage", // of a carbon-cache on the same host
		"a.b",
	} {
		if s.isOwnFigure(name) {
			own = append(own, name)
		}
	}
	want := []string{"carbon.relays.web1_example-a.destinations.192_0_2_1:2004:b.sent",
		"carbon.relays.web1_example-a.destinations.192_0_2_2:2004:None.sent"}
	if !slices.Equal(own, want) {
		t.Errorf("own are %q, want %q", own, want)
	}
}
