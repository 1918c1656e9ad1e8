package backend

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/lapwing-monitoring/lapwing/broker"
)

// quickOptions are those of a backend on ports of its own.
func quickOptions(t *testing.T) Options {
	o := DefaultOptions()
	o.StateDir, o.APIListenAddress, o.AgentHost, o.AgentPort = t.TempDir(), "127.0.0.1:0", "127.0.0.1", 0
	o.Admin.Password, o.Log.MinFree, o.Auth.HashCost = "P@ssw0rd!", 1<<20, bcrypt.MinCost
	return o
}

func started(t *testing.T, opts Options) *Backend {
	t.Helper()
	b, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Stop(context.Background()) })
	return b
}

// lines is a log that goroutines write and a test reads.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func TestDeadListenerEndsTheBackend(t *testing.T) {
	for name, tc := range map[string]struct {
		port func(*Backend) net.Listener
		want string
	}{
		"api":    {func(b *Backend) net.Listener { return b.ports.api }, "api listener failed"},
		"agents": {func(b *Backend) net.Listener { return b.ports.agents }, "agents listener failed"},
		"pprof":  {func(b *Backend) net.Listener { return b.ports.pprof }, "pprof listener failed"},
	} {
		t.Run(name, func(t *testing.T) {
			opts := quickOptions(t)
			opts.Pprof = "127.0.0.1:0"
			b := started(t, opts)
			select {
			case <-b.Done():
				t.Fatalf("it ends by itself: %v", b.Err())
			default:
			}
			if b.Err() != nil {
				t.Fatal(b.Err())
			}
			_ = tc.port(b).Close()
			select {
			case <-b.Done():
			case <-time.After(time.Minute):
				t.Fatal("a listener is dead and the backend goes on")
			}
			if err := b.Err(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("it ends with %v, want %q", err, tc.want)
			}
			if err := b.Stop(context.Background()); err != nil {
				t.Errorf("stop: %v", err)
			}
		})
	}
}

// TestClosedBrokerConnectionEndsTheBackend has the broker close its only connection for good, which no write survives.
func TestClosedBrokerConnectionEndsTheBackend(t *testing.T) {
	b := started(t, quickOptions(t))
	options := reflect.ValueOf(b.running.log).Elem().FieldByName("opts")
	nats := (*broker.Broker)(options.FieldByName("Broker").UnsafePointer())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _, _ = nats.JetStream().Publish(ctx, strings.Repeat("x", 1<<20), nil) }()
	select {
	case <-b.Done():
	case <-time.After(time.Minute):
		t.Fatal("nothing can be written and the backend goes on")
	}
	if err := b.Err(); err == nil || !strings.Contains(err.Error(), "broker failed: ") {
		t.Errorf("it ends with %v", err)
	}
	stopping, cancel := context.WithTimeout(t.Context(), stopTimeout)
	defer cancel()
	_ = b.Stop(stopping) // parts say that they could not write
	if stopping.Err() != nil {
		t.Error("it does not end")
	}
}

func TestStopIsBoundedAndNamesThePart(t *testing.T) {
	opts, log := quickOptions(t), new(lines)
	opts.Logger = slog.New(slog.NewTextHandler(log, nil))
	b := started(t, opts)
	release := make(chan struct{})
	b.push("a part that hangs", func() error { <-release; return nil })
	b.push("a part that fails", func() error { return errors.New("no way") })
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no time at all
	err := b.Stop(ctx)
	close(release)
	if err == nil || !strings.Contains(err.Error(), "stop a part that hangs: it did not end in time") ||
		!strings.Contains(err.Error(), "stop a part that fails: no way") {
		t.Errorf("stopped with %v", err)
	}
	if text := log.String(); !strings.Contains(text, `part="a part that hangs"`) || !strings.Contains(text, "state database") {
		t.Errorf("the log names neither the part nor what was left running:\n%s", text)
	}
	if err := b.Stop(context.Background()); err != nil {
		t.Errorf("stop again: %v", err)
	}
}

func TestAPIAnswersWhileStarting(t *testing.T) {
	opts := quickOptions(t)
	opts.Admin.Password = "" // has Announce called in the middle of the start
	var b *Backend
	get := func(l net.Listener, path string) string {
		resp, err := http.Get("http://" + l.Addr().String() + path)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.Status + " " + string(body)
	}
	var during []string
	opts.Announce = func(string, string) {
		during = []string{get(b.ports.api, "/ready"), get(b.ports.api, "/api/core/v2/namespaces"), get(b.ports.agents, "/")}
	}
	b, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Stop(context.Background()) })
	if len(during) != 3 {
		t.Fatal("nothing was asked during the start")
	}
	for _, answer := range during {
		if !strings.HasPrefix(answer, "503 ") || !strings.Contains(answer, "the backend is starting: ") {
			t.Errorf("during the start: %s", answer)
		}
	}
	if answer := get(b.ports.api, "/ready"); !strings.HasPrefix(answer, "200 ") {
		t.Errorf("after it: %s", answer)
	}
	if answer := get(b.ports.agents, "/health"); !strings.HasPrefix(answer, "200 ") {
		t.Errorf("at the agents' port after it: %s", answer)
	}
}

// TestNothingIsMadeBeforePortsAreBound starts where a port is in use: a first password that was shown then would be lost.
func TestNothingIsMadeBeforePortsAreBound(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for flags, change := range map[string]func(*Options){
		"--api-listen-address":       func(o *Options) { o.APIListenAddress = busy.Addr().String() },
		"--agent-host, --agent-port": func(o *Options) { o.AgentPort = busy.Addr().(*net.TCPAddr).Port },
		"--pprof-listen-address":     func(o *Options) { o.Pprof = busy.Addr().String() },
	} {
		t.Run(flags, func(t *testing.T) {
			opts := quickOptions(t)
			opts.Admin.Password = ""
			announced := 0
			opts.Announce = func(string, string) { announced++ }
			good := opts
			change(&opts)
			want := flags + " " + busy.Addr().String() + ": " + syscall.EADDRINUSE.Error()
			if _, err := New(opts); err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("it is made with %v, want %s", err, want)
			}
			if _, err := os.Stat(filepath.Join(opts.StateDir, "lock")); announced != 0 || !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the state directory is touched (%v), or a password was shown that the operator may not have seen", err)
			}
			started(t, good)
			if announced != 1 {
				t.Errorf("the next start shows the password %d times", announced)
			}
		})
	}
}

func TestOptionsNameTheirFlags(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"--state-dir: ":                  func(o *Options) { o.StateDir = "" },
		"--api-listen-address: ":         func(o *Options) { o.APIListenAddress = "8080" },
		"--pprof-listen-address: ":       func(o *Options) { o.Pprof = "6060" },
		"--agent-port: 70000":            func(o *Options) { o.AgentPort = 70000 },
		"--agent-spread: 2m0s":           func(o *Options) { o.Session.Spread = 2 * time.Minute },
		"--agent-read-delay: 1s":         func(o *Options) { o.Session.ReadDelay = time.Second },
		"--agent-port: -1 is not a port": func(o *Options) { o.AgentPort = -1 },
		"--agent-spread: -1s is negative: it must be from 10ms to 1m, or 0 for all at once": func(o *Options) {
			o.Session.Spread = -time.Second
		},
		"--trace-sample: -1 is negative: it must be from 1 to 1073741824, or 0 for none": func(o *Options) { o.Trace.Sample = -1 },
		"--agent-quota-events: -1 is negative: it must be from 1 to 2305843009213693952, or 0 for no bound": func(o *Options) {
			o.Intake.Quotas.AgentEvents = -1
		},
		"--assets-mirror-bytes: -1 is negative: ": func(o *Options) { o.Mirror.MaxBytes = -1 },
		"--state-history-age: -1ns is negative: ": func(o *Options) { o.State.HistoryAge = -1 },
		"--cluster-admin-username: ":              func(o *Options) { o.Admin.Username = "" },
		"--peers: this names the member itself alone": func(o *Options) {
			o.Cluster.ListenAddress, o.Cluster.Peers = "127.0.0.1:1", []string{"127.0.0.1:1"}
		},
		"--cluster-size: 2 members, and --peers names 3": func(o *Options) {
			o.Cluster = Cluster{ListenAddress: "127.0.0.1:1", Peers: []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}, Size: 2}
		},
		`--name: "a b" has a space`:                func(o *Options) { o.Cluster.Name = "a b" },
		`--name: "b\xfcro" is no text`:             func(o *Options) { o.Cluster.Name = "b\xfcro" },
		`--name: "a\x01" is no text`:               func(o *Options) { o.Cluster.Name = "a\x01" },
		`--name: "unknown-1" begins with unknown-`: func(o *Options) { o.Cluster.Name = "unknown-1" },
		"--phase-hash: ":                           func(o *Options) { o.PhaseHash = "crc" },
		"--password-hash: ":                        func(o *Options) { o.Auth.Hash = "md5" },
		"--cluster-admin-api-key: ":                func(o *Options) { o.Admin.APIKey = "x" },
		"--access-token-lifetime: ":                func(o *Options) { o.Auth.AccessLifetime = 1 },
		"--refresh-token-lifetime: 1m0s":           func(o *Options) { o.Auth.RefreshLifetime = time.Minute },
		"--jwt-private-key-file: ":                 func(o *Options) { o.JWTPublicKeyFile = "x" },
		"--handler-workers: -1":                    func(o *Options) { o.Handler.Workers = -1 },
		"--trace-age: -1s":                         func(o *Options) { o.Trace.MaxAge = -time.Second },
		"--agent-auth-crl-urls: it needs":          func(o *Options) { o.TLS.AgentCRLs = []string{"x"} },
		"--agent-queue: -1 is negative: it must be from 1 to 1000000\n--handler-queue: -1 is negative": func(o *Options) {
			o.Session.SendQueue, o.Handler.QueueSize = -1, -1 // all at once
		},
		`--allowed-handler-types: "pip" is not known: it must be pipe, tcp`: func(o *Options) { o.Send.Types = []string{"pip"} },
		"--agent-message-timeout: -5s is negative: it must be from 1ms":     func(o *Options) { o.Session.MessageTimeout = -5 * time.Second },
		"--event-log-partitions: 99 is out of range":                        func(o *Options) { o.Log.Partitions = 99 },
		"--api-max-connections: -1 is negative":                             func(o *Options) { o.APIConns.Max = -1 },
		"--trusted-proxies: ":                                               func(o *Options) { o.TrustedProxies = []string{"x"} },
		"--handler-secret-dirs: ":                                           func(o *Options) { o.Send.SecretDirs = []string{"x"} },
		"--handler-env: ":                                                   func(o *Options) { o.Send.PassEnv = []string{"A=b"} },
		"--directory-max-wrong-passwords: 1001":                             func(o *Options) { o.Auth.DirectoryGuesses = 1001 },
		"--audit-log-file: ":                                                func(o *Options) { o.Audit.File = "/nonexistent/audit" },
		"--event-log-file: ":                                                func(o *Options) { o.EventFile.Path = "/nonexistent/events.log" },
		"--event-log-max-bytes: 1 ":                                         func(o *Options) { o.EventFile.MaxBytes = 1 },
		"--agent-host: ":                                                    func(o *Options) { o.AgentHost = "10.0.0.1:8081" },
		"--trace-bytes: ":                                                   func(o *Options) { o.Trace.MaxBytes = 1 << 62 },
	} {
		opts := quickOptions(t)
		change(&opts)
		if _, err := New(opts); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestLockErrorsSayWhy(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/lock", 0o700); err != nil { // cannot be opened as a file, not even by root
		t.Fatal(err)
	}
	if _, err := openStateDir(dir); err == nil || strings.Contains(err.Error(), "in use") || !strings.Contains(err.Error(), dir) {
		t.Errorf("a lock that is a directory: %v", err)
	}
	denied := &fs.PathError{Op: "open", Path: "/x/lock", Err: syscall.EACCES} // root may open all files, so this one is made up
	if err := lockError("/x", denied); !strings.Contains(err.Error(), "no permission") || strings.Contains(err.Error(), "in use") {
		t.Errorf("without permission: %v", err)
	}
	if err := lockError("/x", syscall.EAGAIN); !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("in use: %v", err)
	}
}

func TestAgentAtTheAPIsPort(t *testing.T) {
	b := started(t, quickOptions(t))
	req, err := http.NewRequest(http.MethodGet, "http://"+b.APIAddr().String()+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "websocket")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "agents connect to --agent-port") {
		t.Errorf("an agent gets %s %s", resp.Status, body)
	}
}
