package backend

import (
	"crypto/x509"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/internal/testcert"
)

// TestMemberCertificate: a member whose certificate the others would refuse does not start.
func TestMemberCertificate(t *testing.T) {
	ca := testcert.New(t, "ca")
	names := []string{"a.example.com", "192.0.2.1"}
	good := ca.Issue(t, names, nil)
	expired := ca.Issue(t, names, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Hour) })
	only := func(usage x509.ExtKeyUsage) testcert.Pair {
		return ca.Issue(t, names, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{usage} })
	}
	here := Cluster{ListenAddress: "192.0.2.1:1", Peers: []string{"b:1"}}
	for what, tc := range map[string]struct {
		c    Cluster
		pair testcert.Pair
		want string
	}{
		"the own address":      {here, good, ""},
		"the name among peers": {Cluster{ListenAddress: "0.0.0.0:1", Peers: []string{"b:1", "a.example.com:1"}}, good, ""},
		"the host for agents":  {Cluster{ListenAddress: "10.0.0.1:1", AdvertiseHost: "a.example.com", Peers: []string{"b:1"}}, good, ""},
		"no address": {
			Cluster{ListenAddress: "10.0.0.1:1", Peers: []string{"b:1"}}, good,
			"for a.example.com, 192.0.2.1, and the other members connect to 10.0.0.1 or b",
		},
		"a listener for all":     {Cluster{ListenAddress: ":1", AdvertiseHost: "c", Peers: []string{"b:1"}}, good, "to b or c"},
		"an address, not a name": {Cluster{ListenAddress: "192.0.2.2:1", Peers: []string{"192.0.2.3:1"}}, good, "192.0.2.2 or 192.0.2.3"},
		"no names": {
			here, ca.Issue(t, names, func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = nil, nil }),
			"has no names or addresses (subjectAltName), and the other members connect to 192.0.2.1 or b",
		},
		"expired":              {here, expired, "expired"},
		"for servers only":     {here, only(x509.ExtKeyUsageServerAuth), "as a client's"},
		"for clients only":     {here, only(x509.ExtKeyUsageClientAuth), "as a server's"},
		"of another authority": {here, testcert.New(t, "other").Issue(t, names, nil), "unknown authority"},
	} {
		tc.c.CertFile, tc.c.KeyFile, tc.c.TrustedCAFile = tc.pair.Cert, tc.pair.Key, ca.File
		tc.c.complete()
		err := tc.c.checkCertificate()
		bad := (*optionerr.Error)(nil)
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", what, err)
		case tc.want != "" && (!errors.As(err, &bad) || bad.Flag != "cluster-cert-file" || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: %v, want %q", what, err, tc.want)
		}
	}
}

// TestRouteHost: members that learn of this one from others get a host that its certificate has, if there is one.
func TestRouteHost(t *testing.T) {
	pair := testcert.New(t, "ca").Issue(t, []string{"a.example.com"}, nil)
	for _, tc := range []struct {
		listen, advertised, want string
		certified                bool
	}{
		{"192.0.2.1:1", "a.example.com", "192.0.2.1", false},
		{"192.0.2.1:1", "a.example.com", "a.example.com", true},
		{"192.0.2.1:1", "", "192.0.2.1", true},
		{"0.0.0.0:1", "a.example.com", "a.example.com", true},
		{"0.0.0.0:1", "b", "b", false},
		{"0.0.0.0:1", "b", "", true},
	} {
		c := Cluster{ListenAddress: tc.listen, AdvertiseHost: tc.advertised, Peers: []string{"b:1"}}
		if c.complete(); tc.certified {
			c.CertFile, c.KeyFile = pair.Cert, pair.Key
		}
		if host := c.routeHost(); host != tc.want {
			t.Errorf("a member that listens at %s and is at %q gives %q, want %q", tc.listen, tc.advertised, host, tc.want)
		}
	}
}

// TestAdvertisedHost: agents and clients are not sent to an address that only means "all".
func TestAdvertisedHost(t *testing.T) {
	here, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for listen, want := range map[string]string{"192.0.2.1:1": "192.0.2.1", "0.0.0.0:1": here, "[::]:1": here, ":1": here} {
		c := Cluster{ListenAddress: listen, Peers: []string{"b:1"}}
		if c.complete(); c.AdvertiseHost != want {
			t.Errorf("a member that listens at %s is at %q, want %q", listen, c.AdvertiseHost, want)
		}
	}
}
