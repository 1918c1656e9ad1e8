// Package testnats runs real NATS servers for tests, each as a process that can be killed. The program is built from
// the version of its module that lapwing uses.
package testnats

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The user of the default accounts.
const (
	User     = "lapwing"
	Password = "s3cret-of-nats"
)

// Options says how servers differ from the ones that lapwing's documents recommend. Zero fields do not.
type Options struct {
	// Accounts is the part of the configuration about accounts. Default: User in an account of its own.
	Accounts string
	// WithoutJetStream has the servers store nothing.
	WithoutJetStream bool
	// MaxPayload bounds a message. Default 8MB.
	MaxPayload string
	// More is added to each configuration.
	More string
}

// accounts are the default ones.
const accounts = `
accounts {
  LAPWING { jetstream: enabled, users: [ { user: ` + User + `, password: "` + Password + `" } ] }
  SYS { users: [ { user: admin, password: admin } ] }
}
system_account: SYS
`

// Servers are servers that form one cluster; a single one forms none.
type Servers struct {
	t     testing.TB
	nodes []*node
}

type node struct {
	dir, client, routes string // the directory and the addresses
	cmd                 *exec.Cmd
}

// dir is where the program is, once it is built.
var dir string

var binary = sync.OnceValues(func() (string, error) {
	var err error
	if dir, err = os.MkdirTemp("", "lapwing-nats-"); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "nats-server")
	out, err := exec.Command("go", "build", "-o", path, "github.com/nats-io/nats-server/v2").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build nats-server: %w\n%s", err, out)
	}
	return path, nil
})

// Remove removes the program. The TestMain of a package that uses New calls it at the end.
func Remove() error {
	if dir == "" {
		return nil
	}
	return os.RemoveAll(dir)
}

// New starts n servers. The test's end stops them.
func New(t testing.TB, n int, o Options) *Servers {
	t.Helper()
	if o.Accounts == "" {
		o.Accounts = accounts
	}
	if o.MaxPayload == "" {
		o.MaxPayload = "8MB"
	}
	s := &Servers{t: t}
	for range n {
		s.nodes = append(s.nodes, &node{dir: t.TempDir(), client: freeAddress(t), routes: freeAddress(t)})
	}
	for i := range s.nodes {
		if err := os.WriteFile(s.nodes[i].config(), []byte(s.configuration(i, &o)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for i := range s.nodes {
			s.Kill(i)
		}
	})
	for i := range s.nodes {
		s.Start(i)
	}
	return s
}

func (n *node) config() string { return filepath.Join(n.dir, "nats.conf") }

func (s *Servers) configuration(i int, o *Options) string {
	var b strings.Builder
	n := s.nodes[i]
	fmt.Fprintf(&b, "server_name: %s\nlisten: %q\nmax_payload: %s\n", s.Name(i), n.client, o.MaxPayload)
	if !o.WithoutJetStream {
		fmt.Fprintf(&b, "jetstream { store_dir: %q, sync_interval: always }\n", filepath.Join(n.dir, "store"))
	}
	if len(s.nodes) > 1 {
		fmt.Fprintf(&b, "cluster {\n  name: test\n  listen: %q\n  routes: [\n", n.routes)
		for _, other := range s.nodes {
			fmt.Fprintf(&b, "    \"nats://%s\"\n", other.routes)
		}
		b.WriteString("  ]\n}\n")
	}
	b.WriteString(o.Accounts + o.More)
	return b.String()
}

// freeAddress returns an address that nothing listens on. Its port is none that the system gives to connections: a
// server listens there again and again.
func freeAddress(t testing.TB) string {
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

// Name returns a server's name.
func (s *Servers) Name(i int) string { return fmt.Sprint("nats-", i) }

// Index returns which server has the name.
func (s *Servers) Index(name string) int {
	s.t.Helper()
	for i := range s.nodes {
		if s.Name(i) == name {
			return i
		}
	}
	s.t.Fatalf("no server is called %q", name)
	return -1
}

// URLs returns where the servers are, without a user.
func (s *Servers) URLs() []string {
	var urls []string
	for _, n := range s.nodes {
		urls = append(urls, "nats://"+n.client)
	}
	return urls
}

// SignedIn returns the URLs with User and its password.
func (s *Servers) SignedIn() []string {
	var urls []string
	for _, n := range s.nodes {
		urls = append(urls, "nats://"+User+":"+Password+"@"+n.client)
	}
	return urls
}

// Start starts a server and returns when it takes connections.
func (s *Servers) Start(i int) {
	s.t.Helper()
	path, err := binary()
	if err != nil {
		s.t.Fatal(err)
	}
	n := s.nodes[i]
	log, err := os.OpenFile(filepath.Join(n.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	n.cmd = exec.Command(path, "-c", n.config())
	n.cmd.Stdout, n.cmd.Stderr = log, log
	if err := n.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", n.client)
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Since(begin) > time.Minute {
			text, _ := os.ReadFile(log.Name())
			s.t.Fatalf("server %d of NATS takes no connections: %v\n%s", i, err, text)
		}
	}
}

// Kill kills a server as kill -9 does. It can be started again.
func (s *Servers) Kill(i int) { s.signal(i, syscall.SIGKILL) }

// Stop stops a server in order.
func (s *Servers) Stop(i int) { s.signal(i, syscall.SIGTERM) }

func (s *Servers) signal(i int, sig syscall.Signal) {
	n := s.nodes[i]
	if n.cmd == nil {
		return
	}
	if err := n.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Errorf("signal server %d of NATS: %v", i, err)
	}
	_ = n.cmd.Wait() // it says how the signal ended it
	n.cmd = nil
}
