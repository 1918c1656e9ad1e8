package test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/backend"
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

func basic(user, password string) http.Header {
	return http.Header{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))}}
}

func TestHandshakeRefusals(t *testing.T) {
	b := testbackend.Start(t, nil)
	none := http.Header{"Authorization": nil}
	for _, tc := range []struct {
		name   string
		header http.Header
		status int
		body   string
	}{
		{"no credentials", none, 401, "missing credentials"},
		{"wrong password", basic("agent", "guess"), 401, "bad credentials"},
		{"unknown user", basic("nobody", "guess"), 401, "bad credentials"},
		// The agents' user has rights in all namespaces, so a missing one is 404 for it and not 403.
		{"unknown namespace", http.Header{wire.HeaderNamespace: {"nowhere"}}, 404, `namespace "nowhere" not found`},
		{"no namespace", http.Header{wire.HeaderNamespace: {""}}, 404, `namespace "" not found`},
		{"no name", http.Header{wire.HeaderAgentName: {""}}, 400, "Sensu-Agentname"},
		{"foreign origin", http.Header{"Origin": {"http://evil.example"}}, 403, "origin"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, err := b.TryDialAgent("a", tc.header)
			var refused *wire.HandshakeError
			if !errors.As(err, &refused) {
				t.Fatalf("got %v, want a refusal", err)
			}
			if refused.Status != tc.status || !strings.Contains(refused.Body, tc.body) {
				t.Fatalf("got %d %q, want %d %q", refused.Status, refused.Body, tc.status, tc.body)
			}
		})
	}
	resp, err := http.Get("http://" + b.AgentAddr().String() + "/")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 401 {
		t.Errorf("a browser gets %d", resp.StatusCode)
	}
}

// TestBadMessages sends invalid messages. The session must live on or be closed as specified, the message must be
// counted, and the backend must still work.
func TestBadMessages(t *testing.T) {
	b := testbackend.Start(t, func(o *backend.Options) { o.Session.MaxMessage = 100_000 })
	event := func(change func(*resource.Event)) []byte {
		ev := testbackend.Event("a", "c", 0, time.Now().Unix())
		change(ev)
		frame, err := wire.Append(nil, wire.TypeEvent, wire.Protobuf, ev)
		if err != nil {
			t.Fatal(err)
		}
		return frame
	}
	for _, tc := range []struct {
		name    string
		message []byte
		counter string // grows by at least one
		closed  uint16 // close code; 0: the session goes on
	}{
		{"no type", []byte("nonsense without a line feed"), "lapwing_agent_bad_frames_total", wire.CloseGoingAway},
		{"over the limit", append([]byte("event\n"), make([]byte, 200_000)...), "lapwing_agent_bad_frames_total", wire.CloseTooBig},
		{"unknown type", []byte("dance\n{}"), "lapwing_agent_bad_frames_total", 0},
		{"undecodable event", []byte("event\n\xff\xff\xff"), "lapwing_events_rejected_total", 0},
		{"empty event", []byte("event\n"), "lapwing_events_rejected_total", 0},
		{"JSON where protobuf was agreed", []byte(`event` + "\n" + `{"check":{}}`), "lapwing_events_rejected_total", 0},
		{"batch that was not agreed", []byte("events\n\x01"), "lapwing_agent_bad_frames_total", 0},
		{"event without entity", event(func(ev *resource.Event) { ev.Entity = nil }), "lapwing_events_rejected_total", 0},
		{"event without check name", event(func(ev *resource.Event) { ev.Check.Metadata.Name = "" }), "lapwing_events_rejected_total", 0},
		{"event without check and metrics", event(func(ev *resource.Event) { ev.Check = nil }), "lapwing_events_rejected_total", 0},
		{"event with a bad entity name", event(func(ev *resource.Event) { ev.Entity.Metadata.Name = "a b" }), "lapwing_events_rejected_total", 0},
		{"event of another namespace", event(func(ev *resource.Event) { ev.Entity.Metadata.Namespace = "sensu-system" }), "lapwing_events_rejected_total", 0},
		{"ttl below the interval", event(func(ev *resource.Event) { ev.Check.TTL = 9 }), "lapwing_events_rejected_total", 0},
		{"event of the future", event(func(ev *resource.Event) { ev.Timestamp += 86400 }), "lapwing_events_clock_skewed_total", 0},
		{"undecodable keepalive", []byte("keepalive\n\x0a\xff"), "lapwing_events_rejected_total", 0},
		{"keepalive of another agent", testbackend.Keepalive(t, "other", wire.Protobuf), "lapwing_events_rejected_total", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conn, _ := b.DialAgent(t, "a", nil)
			readType(t, conn) // entity_config
			before := b.Counter(t, tc.counter)
			if err := conn.Write(tc.message); err != nil && tc.closed == 0 {
				t.Fatal(err)
			}
			eventually(t, 60*time.Second, tc.counter+" grows", func() bool { return b.Counter(t, tc.counter) > before })
			if tc.closed != 0 {
				_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
				var closed *wire.CloseError
				if _, err := conn.Read(); !errors.As(err, &closed) || closed.Code != tc.closed {
					t.Fatalf("got %v, want close code %d", err, tc.closed)
				}
				return
			}
			folded := b.Counter(t, "lapwing_events_folded_total")
			write(t, conn, testbackend.Keepalive(t, "a", wire.Protobuf))
			eventually(t, 60*time.Second, "the session goes on", func() bool { return b.Counter(t, "lapwing_events_folded_total") > folded })
		})
	}
	ev, err := client.Get(t.Context(), b.Client, client.Events, "default", client.EventName("a", "c"))
	if err != nil {
		t.Fatal(err)
	}
	if skew := time.Until(time.Unix(ev.Timestamp, 0)); skew > time.Minute {
		t.Errorf("an event of the future stands %s ahead", skew)
	}
}

func TestBadEventsThroughTheAPI(t *testing.T) {
	b := testbackend.Start(t, nil)
	put := func(change func(*resource.Event)) error {
		ev := testbackend.Event("a", "c", 0, time.Now().Unix())
		ev.Entity.EntityClass = resource.EntityProxyClass
		change(ev)
		return client.Post(t.Context(), b.Client, client.Events, "default", ev)
	}
	for _, tc := range []struct {
		name   string
		change func(*resource.Event)
		text   string
	}{
		{"no entity", func(ev *resource.Event) { ev.Entity = nil }, "event must contain an entity"},
		{"named", func(ev *resource.Event) { ev.Metadata.Name = "x" }, "events cannot be named"},
		{"no check name", func(ev *resource.Event) { ev.Check.Metadata.Name = "" }, "check name must not be empty"},
		{"future", func(ev *resource.Event) { ev.Timestamp += 86400 }, "timestamp"},
	} {
		var refused *client.Error
		if err := put(tc.change); !errors.As(err, &refused) || refused.Status != 400 || !strings.Contains(refused.Message, tc.text) {
			t.Errorf("%s: got %v, want 400 with %q", tc.name, err, tc.text)
		}
	}
	if err := put(func(*resource.Event) {}); err != nil {
		t.Errorf("a good event: %v", err)
	}
	if err := put(func(ev *resource.Event) { ev.Check = nil; ev.Metrics = &resource.Metrics{} }); err != nil {
		t.Errorf("an event with metrics only: %v", err)
	}
}

func TestStartFailuresNameTheThing(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	port := busy.Addr().(*net.TCPAddr).Port
	usedDir := t.TempDir()
	testbackend.Start(t, func(o *backend.Options) { o.StateDir = usedDir })
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		change func(*backend.Options)
		text   string
	}{
		{"API port in use", func(o *backend.Options) { o.APIListenAddress = busy.Addr().String() }, busy.Addr().String()},
		{"agent port in use", func(o *backend.Options) { o.AgentPort = port }, busy.Addr().String()},
		{"state directory in use", func(o *backend.Options) { o.StateDir = usedDir }, usedDir + " is in use"},
		{"state directory is a file", func(o *backend.Options) { o.StateDir = filepath.Join(file, "x") }, file},
		{"missing certificate", func(o *backend.Options) {
			o.TLS = backend.TLS{CertFile: "/nonexistent.pem", KeyFile: "/nonexistent.key"}
		}, "/nonexistent.pem"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			opts := testbackend.OptionsIn(t.TempDir())
			tc.change(&opts)
			b, err := backend.New(opts)
			if err == nil {
				err = b.Start(t.Context())
				if err := b.Stop(context.Background()); err != nil {
					t.Errorf("stop after a failed start: %v", err)
				}
			}
			if err == nil || !strings.Contains(err.Error(), tc.text) {
				t.Fatalf("got %v, want an error that names %q", err, tc.text)
			}
		})
	}
}

// TestTornLog leaves half a message at the end of the log, as a crash of the machine may, and expects all acknowledged
// events.
func TestTornLog(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	p.start()
	c := p.client()
	for i := range int64(20) {
		ev := testbackend.Event("torn", "check-0", 0, i+1)
		ev.Entity.EntityClass = resource.EntityProxyClass
		if err := client.Put(t.Context(), c, client.Events, "default", client.EventName("torn", "check-0"), ev); err != nil {
			t.Fatal(err)
		}
	}
	p.kill(syscall.SIGKILL)
	blocks, err := filepath.Glob(filepath.Join(p.dir, "state", "broker", "jetstream", "*", "streams", "EVENTLOG_*", "msgs", "*.blk"))
	if err != nil || len(blocks) == 0 {
		t.Fatalf("no blocks of the log found: %v", err)
	}
	for _, block := range blocks {
		f, err := os.OpenFile(block, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("\x7f\x01\x00\x00torn"); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	p.start()
	if got := occurrences(t, c, "torn", 0); got != 20 {
		t.Fatalf("%d of 20 acknowledged events are left", got)
	}
}

// TestFullDisk runs the backend on a small file system, fills it, and makes room again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mountSmall(t, dir, 96<<20)
	b := testbackend.Start(t, func(o *backend.Options) { o.StateDir, o.Log.MinFree = filepath.Join(dir, "state"), 32<<20 })
	put := func(n int64) error {
		ev := testbackend.Event("full", "check-0", 0, n)
		ev.Entity.EntityClass = resource.EntityProxyClass
		return client.Put(t.Context(), b.Client, client.Events, "default", client.EventName("full", "check-0"), ev)
	}
	// An event that is on its way when the disk fills waits and may be answered 504: it is neither refused nor
	// promised.
	var sent, accepted, unknown int64
	try := func() (refused *client.Error) {
		sent++
		err := put(sent)
		switch {
		case err == nil:
			accepted++
		case !errors.As(err, &refused):
			t.Fatal(err)
		case refused.Status == http.StatusGatewayTimeout:
			unknown++
		}
		return refused
	}
	if err := try(); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(dir, "ballast")
	fillUp(t, ballast)
	eventually(t, 60*time.Second, "events are refused, and why", func() bool {
		refused := try()
		return refused != nil && refused.Status == http.StatusServiceUnavailable && strings.Contains(refused.Message, "disk is full")
	})
	if resp, err := http.Get("http://" + b.APIAddr().String() + "/metrics"); err != nil || resp.StatusCode != 200 {
		t.Errorf("metrics on a full disk: %v", err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	eventually(t, 60*time.Second, "events are taken again", func() bool { return try() == nil })
	if got := occurrences(t, b.Client, "full", 0); got < accepted || got > accepted+unknown {
		t.Errorf("%d events are there; %d were accepted, %d are unknown", got, accepted, unknown)
	}
}

// fillUp writes until the file system has no more room.
func fillUp(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for {
		if _, err := f.Write(block); err != nil {
			if errors.Is(err, syscall.ENOSPC) {
				return
			}
			t.Fatal(err)
		}
	}
}

// TestLiveStream follows an event from the API to an open stream.
func TestLiveStream(t *testing.T) {
	b := testbackend.Start(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := make(chan string, 10)
	done := make(chan error, 1)
	go func() {
		done <- b.Client.Stream(ctx, "default", func(e client.StreamEvent) error {
			seen <- string(e.Type)
			return nil
		})
	}()
	if typ := <-seen; typ != "synced" {
		t.Fatalf("first came %q", typ)
	}
	ev := testbackend.Event("live", "c", 1, 1)
	ev.Entity.EntityClass = resource.EntityProxyClass
	if err := client.Post(t.Context(), b.Client, client.Events, "default", ev); err != nil {
		t.Fatal(err)
	}
	if typ := <-seen; typ != "event" {
		t.Fatalf("then came %q", typ)
	}
	if err := client.Delete(t.Context(), b.Client, client.Events, "default", client.EventName("live", "c")); err != nil {
		t.Fatal(err)
	}
	if typ := <-seen; typ != "delete" {
		t.Fatalf("then came %q", typ)
	}
	cancel()
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, io.EOF) {
		t.Errorf("stream ended with %v", err)
	}
}

// TestStartOnAFullDisk kills a backend, fills its disk and starts it again. It must say once why it waits, answer at
// once, use almost no CPU, and continue by itself when there is space.
func TestStartOnAFullDisk(t *testing.T) {
	t.Parallel()
	p := newProcess(t, "--min-free-disk", "33554432")
	mountSmall(t, filepath.Join(p.dir, "state"), 96<<20)
	p.start()
	p.kill(syscall.SIGKILL)
	ballast := filepath.Join(p.dir, "state", "ballast")
	fillUp(t, ballast)
	before, err := os.Stat(p.log.Name())
	if err != nil {
		t.Fatal(err)
	}
	p.launch()
	patient := &http.Client{Timeout: 10 * time.Second}
	get := func(path string) (status int, body string) {
		resp, err := patient.Get("http://" + p.api + path)
		if err != nil {
			return 0, err.Error()
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return 0, err.Error()
		}
		return resp.StatusCode, string(text)
	}
	eventually(t, 60*time.Second, "the reason is told", func() bool {
		status, body := get("/ready")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "disk full: ") && strings.Contains(body, "--min-free-disk")
	})
	if status, body := get("/api/core/v2/namespaces"); status != http.StatusServiceUnavailable || !strings.Contains(body, "disk full: ") {
		t.Errorf("the API answers %d %q", status, body)
	}
	if status, body := get("/health"); status != http.StatusServiceUnavailable || !strings.Contains(body, "disk full: ") || !strings.Contains(body, `"Healthy":false`) {
		t.Errorf("/health answers %d %q", status, body)
	}
	c, err := client.New(client.Options{URL: "http://" + p.api, Username: testbackend.User, Password: testbackend.Password})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Login(t.Context()); err == nil || !strings.Contains(err.Error(), "disk full: ") {
		t.Errorf("a client is told %v", err)
	}
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	top := exec.CommandContext(t.Context(), path, "top", "--once", "--api-url", "http://"+p.api, "--config-dir", t.TempDir(), "--api-key", "83abef1e-e7d7-4beb-91fc-79ad90084d5b")
	if out, err := top.CombinedOutput(); err == nil || !strings.Contains(string(out), "disk full: ") {
		t.Errorf("top says %v %s", err, out)
	}
	used, begin := p.processor(), time.Now()
	<-time.After(3 * time.Second) // the time to measure; a slow machine gives a process less CPU, not more
	if spent := p.processor() - used; spent > time.Since(begin)/4 {
		t.Errorf("it used %v of CPU in %v of waiting", spent, time.Since(begin))
	}
	text, err := os.ReadFile(p.log.Name())
	if err != nil {
		t.Fatal(err)
	}
	if said := strings.Split(strings.TrimSpace(string(text[before.Size():])), "\n"); len(said) != 1 || !strings.Contains(said[0], "disk full: ") {
		t.Errorf("the log says %q", said)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	eventually(t, 60*time.Second, "it goes on by itself", func() bool {
		status, _ := get("/ready")
		return status == http.StatusOK
	})
}

// processor returns the CPU time of a backend, 0 if the system does not report it.
func (p *process) processor() time.Duration {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name of the program may have spaces
	fields := strings.Fields(rest)
	ticks := 0
	for _, field := range fields[11:13] { // its own and the system's for it, in hundredths of a second
		n, err := strconv.Atoi(field)
		if err != nil {
			p.t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100
}
