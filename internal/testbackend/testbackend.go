// Package testbackend starts a real backend for tests of its clients, on ports of its own and in a directory of the
// test.
package testbackend

import (
	"context"
	"encoding/base64"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/backend"
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/telemetry"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// The administrator and the agents' user of a test backend.
const (
	User          = "admin"
	Password      = "P@ssw0rd!"
	AgentUser     = "agent"
	AgentPassword = "P@ssw0rd!"
)

// Backend is a running backend with a signed-in client.
type Backend struct {
	*backend.Backend
	Client   *client.Client
	Registry *prometheus.Registry
}

// CheapHash is the lowest cost of bcrypt. With the race detector a hash of the usual cost takes a quarter of a second, and a start
// makes three.
const CheapHash = 4

// Options are backend's, for tests of packages that it imports.
type Options = backend.Options

// OptionsIn returns the options of a backend on free ports of the loopback interface, with its state in a directory.
func OptionsIn(dir string) Options {
	o := backend.DefaultOptions()
	o.StateDir, o.APIListenAddress, o.AgentHost, o.AgentPort = dir, "127.0.0.1:0", "127.0.0.1", 0
	o.Admin.Username, o.Admin.Password, o.Auth.HashCost = User, Password, CheapHash
	o.Log.MinFree, o.Registry = 1<<20, telemetry.Registry()
	return o
}

// Start runs a backend until the test ends. change, if not nil, adjusts its options.
func Start(t testing.TB, change func(*Options)) *Backend {
	t.Helper()
	opts := OptionsIn(t.TempDir())
	if change != nil {
		change(&opts)
	}
	b, err := backend.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(context.Background()); err != nil {
			t.Errorf("stop backend: %v", err)
		}
	})
	c, err := client.New(client.Options{
		URL: "http://" + b.APIAddr().String(), Username: User, Password: Password, Timeout: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &Backend{Backend: b, Client: c, Registry: opts.Registry}
}

// URL is where agents connect.
func (b *Backend) URL() string { return "ws://" + b.AgentAddr().String() }

// Counter returns the value of one of the backend's metrics, summed over its labels.
func (b *Backend) Counter(t testing.TB, name string) float64 {
	t.Helper()
	families, err := b.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

// DialAgent opens an agent's connection as a Sensu agent would, and returns it before anything was read from it.
// Headers in extra are added or replace the usual ones.
func (b *Backend) DialAgent(t testing.TB, name string, extra http.Header) (*wire.Conn, http.Header) {
	t.Helper()
	conn, answer, err := b.TryDialAgent(name, extra)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(wire.CloseGoingAway, "bye") })
	return conn, answer
}

// TryDialAgent is DialAgent for handshakes that may fail.
func (b *Backend) TryDialAgent(name string, extra http.Header) (*wire.Conn, http.Header, error) {
	return DialAgentAt(b.URL(), name, extra)
}

// DialAgentAt is TryDialAgent for a backend in another process.
func DialAgentAt(url, name string, extra http.Header) (*wire.Conn, http.Header, error) {
	h := http.Header{
		wire.HeaderAgentName:     {name},
		wire.HeaderNamespace:     {"default"},
		wire.HeaderUser:          {AgentUser},
		wire.HeaderSubscriptions: {"linux"},
		"Accept":                 {wire.ContentType(wire.Protobuf)},
		"Authorization":          {"Basic " + base64.StdEncoding.EncodeToString([]byte(AgentUser+":"+AgentPassword))},
	}
	for k, v := range extra {
		h[k] = v
	}
	return wire.Dial(context.Background(), url, h, wire.DialOptions{})
}

// Entity is an agent's entity in its keepalives.
func Entity(name string) *resource.Entity {
	return &resource.Entity{
		EntityClass: resource.EntityAgentClass, Subscriptions: []string{"linux"}, SensuAgentVersion: "test",
		System:   resource.System{Hostname: name, OS: "linux", Arch: "amd64"},
		Metadata: resource.ObjectMeta{Name: name, Namespace: "default"},
	}
}

// Keepalive is the frame of an agent's keepalive.
func Keepalive(t testing.TB, name string, enc wire.Encoding) []byte {
	t.Helper()
	ev := resource.Event{
		Timestamp: 1, Entity: Entity(name), Sequence: 1, ID: resource.NewEventID(),
		Check: &resource.Check{Metadata: resource.ObjectMeta{Name: "keepalive", Namespace: "default"}, Interval: 20, Timeout: 120},
	}
	frame, err := wire.Append(nil, wire.TypeKeepalive, enc, &ev)
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

// Event is a check result of an agent.
func Event(entity, check string, status uint32, executed int64) *resource.Event {
	return &resource.Event{
		Timestamp: executed, Entity: Entity(entity), ID: resource.NewEventID(), Sequence: 1,
		Check: &resource.Check{
			Metadata: resource.ObjectMeta{Name: check, Namespace: "default"}, Command: "check-" + check, Interval: 10,
			Subscriptions: []string{"linux"}, Status: status, Executed: executed, Issued: executed, Duration: 0.01,
			Output: "result of " + check,
		},
	}
}
