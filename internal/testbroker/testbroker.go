// Package testbroker runs the brokers of a cluster's members in one process, for tests of what uses them. Their routes
// are real connections over TLS, which a test can cut: a member that is cut off and then stopped has no chance to hand
// anything over, as if it was killed.
package testbroker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/internal/testcert"
)

// ClusterName is the name of the clusters.
const ClusterName = "test"

// Cluster is a set of members, which run or not.
type Cluster struct {
	t       testing.TB
	members []*member
	ca      *testcert.Authority

	mu     sync.Mutex // guards the fields below
	cut    map[string]bool
	routes []route
}

type member struct {
	opts   broker.Options
	broker *broker.Broker // nil while it does not run
}

// route is a connection between two members.
type route struct {
	conn net.Conn
	a, b string
}

// New makes a cluster of n members, none of which runs yet.
func New(t testing.TB, n int) *Cluster {
	t.Helper()
	c := &Cluster{t: t, cut: map[string]bool{}, ca: testcert.New(t, "cluster")}
	var peers []string
	for range n {
		peers = append(peers, FreeAddress(t))
	}
	for i := range n {
		name := fmt.Sprintf("m%d", i)
		c.members = append(c.members, &member{opts: broker.Options{Dir: t.TempDir(), Name: name, Cluster: &broker.Cluster{
			Name: ClusterName, Members: n, ListenAddress: peers[i], Peers: peers, TLS: c.TLS(c.ca, name),
		}}})
	}
	t.Cleanup(c.stopAll)
	return c
}

// FreeAddress returns an address that nothing listens on. Its port is none that the system gives to connections: a
// member listens there again and again.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for range 1000 {
		address := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000))
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close()
			return address
		}
	}
	t.Fatal("no free port")
	return ""
}

// CA returns the authority that has signed the members' certificates.
func (c *Cluster) CA() *testcert.Authority { return c.ca }

// TLS makes a member's certificate and its TLS settings. The member trusts the cluster's authority.
func (c *Cluster) TLS(ca *testcert.Authority, name string) *tls.Config {
	c.t.Helper()
	pair := ca.Issue(c.t, []string{name, "127.0.0.1"}, nil)
	cert, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		c.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(c.ca.Cert)
	config := &tls.Config{
		Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, RootCAs: pool,
		MinVersion: tls.VersionTLS13,
	}
	accepting := config.Clone()
	config.VerifyConnection = func(s tls.ConnectionState) error { return c.admit(nil, name, s) }
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		mine := accepting.Clone()
		mine.VerifyConnection = func(s tls.ConnectionState) error { return c.admit(hello.Conn, name, s) }
		return mine, nil
	}
	return config
}

// admit refuses routes of members that are cut off, and notes all others. conn is nil at the end that connects.
func (c *Cluster) admit(conn net.Conn, name string, s tls.ConnectionState) error {
	peer := s.PeerCertificates[0].Subject.CommonName
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut[name] || c.cut[peer] {
		return errors.New("the test has cut this route")
	}
	if conn != nil {
		c.routes = append(c.routes, route{conn, name, peer})
	}
	return nil
}

// Options returns a member's options. A test may change them before the member starts.
func (c *Cluster) Options(i int) *broker.Options { return &c.members[i].opts }

// Member returns a member's broker, or nil if it does not run.
func (c *Cluster) Member(i int) *broker.Broker { return c.members[i].broker }

// Index returns which member has the name.
func (c *Cluster) Index(name string) int {
	c.t.Helper()
	for i, m := range c.members {
		if m.opts.Name == name {
			return i
		}
	}
	c.t.Fatalf("no member is called %q", name)
	return -1
}

// Launch starts members at the same moment, and returns when all have started.
func (c *Cluster) Launch(which ...int) {
	c.t.Helper()
	errs := make([]error, len(which))
	var starting sync.WaitGroup
	for k, i := range which {
		starting.Go(func() { errs[k] = c.Start(c.t.Context(), i) })
	}
	starting.Wait()
	for k, err := range errs {
		if err != nil {
			c.t.Fatalf("start member %d: %v", which[k], err)
		}
	}
}

// Start starts a member.
func (c *Cluster) Start(ctx context.Context, i int) error {
	b, err := broker.New(c.members[i].opts)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.members[i].broker = b
	c.mu.Unlock()
	return b.Start(ctx)
}

// Cut breaks all routes of a member, and lets it make none.
func (c *Cluster) Cut(i int) {
	name := c.members[i].opts.Name
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut[name] = true
	left := c.routes[:0]
	for _, r := range c.routes {
		if r.a == name || r.b == name {
			_ = r.conn.Close()
		} else {
			left = append(left, r)
		}
	}
	c.routes = left
}

// Heal lets a member make routes again.
func (c *Cluster) Heal(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.cut, c.members[i].opts.Name)
}

// Kill cuts a member off and stops it. It can be started again.
func (c *Cluster) Kill(i int) {
	c.t.Helper()
	c.Cut(i)
	c.Stop(i)
	c.Heal(i)
}

// Stop stops a member in order.
func (c *Cluster) Stop(i int) {
	c.t.Helper()
	if err := c.stop(i); err != nil {
		c.t.Errorf("stop member %d: %v", i, err)
	}
}

func (c *Cluster) stop(i int) error {
	c.mu.Lock()
	b := c.members[i].broker
	c.members[i].broker = nil
	c.mu.Unlock()
	if b == nil {
		return nil
	}
	return b.Stop()
}

func (c *Cluster) stopAll() {
	for i := range c.members {
		if err := c.stop(i); err != nil {
			c.t.Errorf("stop member %d: %v", i, err)
		}
	}
}

// Eventually polls until done returns nil, for a minute and a half at most.
func Eventually(t testing.TB, done func() error) {
	t.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for {
		err := done()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
