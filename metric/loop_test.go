package metric

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/lapwing-monitoring/lapwing/metric/carbon"
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
