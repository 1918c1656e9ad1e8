package ctl_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/client/ctl"
)

// watching is a running "event list --watch".
type watching struct {
	t      *testing.T
	lines  *bufio.Scanner
	errs   *bufio.Scanner
	cancel context.CancelFunc
	done   chan error
}

func watch(t *testing.T, api *fakeAPI, args ...string) *watching {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	t.Setenv("TZ", "UTC")
	ctx, cancel := context.WithCancel(t.Context())
	outR, outW := io.Pipe()
	errR, errW := io.Pipe()
	root := newRoot()
	root.SetOut(outW)
	root.SetErr(errW)
	root.SetArgs(append([]string{"event", "list", "--watch", "--api-url", api.url, "--api-key", "good-key"}, args...))
	w := &watching{t: t, lines: bufio.NewScanner(outR), errs: bufio.NewScanner(errR), cancel: cancel, done: make(chan error, 1)}
	go func() {
		err := root.ExecuteContext(ctx)
		outW.Close()
		errW.Close()
		w.done <- err
	}()
	t.Cleanup(func() {
		cancel()
		outR.Close()
		errR.Close()
	})
	return w
}

// next expects the next line of output to have the words in this order.
func (w *watching) next(words ...string) {
	w.t.Helper()
	if !w.lines.Scan() {
		w.t.Fatalf("output ended, want %q", words)
	}
	rest := w.lines.Text()
	for _, word := range words {
		_, after, ok := strings.Cut(rest, word)
		if !ok {
			w.t.Fatalf("line %q, want %q", w.lines.Text(), words)
		}
		rest = after
	}
}

// stop interrupts the command and expects success and no more output.
func (w *watching) stop() {
	w.t.Helper()
	w.cancel()
	for w.lines.Scan() {
		w.t.Errorf("extra line %q", w.lines.Text())
	}
	if err := <-w.done; err != nil {
		w.t.Errorf("error %v", err)
	}
}

func TestWatch(t *testing.T) {
	api := newFakeAPI(t, nil)
	api.putEvent("default", "srv1", "disk", 2, "full\nvery full\n")
	w := watch(t, api)
	w.next("Entity", "Check", "Output", "State", "For", "Silenced", "Age")
	w.next("─────")
	w.next("srv1", "disk", "full", "CRITICAL", "false")
	w.next("very full")

	<-api.opened
	api.putEvent("default", "srv1", "disk", 0, "\nfree again\nwith details\n")
	w.next("srv1", "disk", "free again", "OK")
	api.putEvent("default", "srv2", "ping", 1, "slow")
	w.next("srv2", "ping", "slow", "WARNING")
	api.deleteEvent("default", "srv1", "unknown")
	api.deleteEvent("default", "srv1", "disk")
	w.next("srv1", "disk", "(deleted)")
	w.stop()
}

// TestWatchReconnects breaks the stream: only changes from the time without it are shown.
func TestWatchReconnects(t *testing.T) {
	api := newFakeAPI(t, nil)
	api.putEvent("default", "same", "c", 0, "x")
	api.putEvent("default", "changes", "c", 0, "x")
	api.putEvent("default", "goes", "c", 0, "x")
	w := watch(t, api, "--all-namespaces")
	w.next("Entity", "Namespace")
	w.next("─────")
	w.next("changes", "default")
	w.next("goes", "default")
	w.next("same", "default")
	<-api.opened
	api.mu.Lock()
	streams := api.streams
	api.streams = nil // they miss the changes from now on
	api.mu.Unlock()
	api.putEvent("dev", "comes", "c", 0, "x")
	api.putEvent("default", "changes", "c", 2, "y")
	api.deleteEvent("default", "goes", "c")
	for _, s := range streams {
		close(s)
	}
	if !w.errs.Scan() || w.errs.Text() != "live stream interrupted: read live stream: unexpected EOF; trying again in 1s" {
		t.Errorf("message %q", w.errs.Text())
	}
	w.next("changes", "y", "CRITICAL", "default")
	w.next("comes", "x", "OK", "dev")
	w.next("goes", "(deleted)", "default")
	w.stop()
}

// TestWatchGoesOnElsewhere breaks the stream of one of two backends: the other one is asked at once.
func TestWatchGoesOnElsewhere(t *testing.T) {
	api := newFakeAPI(t, nil)
	second := httptest.NewServer(api)
	t.Cleanup(func() {
		api.endStreams()
		second.Close()
	})
	api.putEvent("default", "srv1", "disk", 2, "full")
	w := watch(t, api, "--format", "json", "--api-url", api.url+","+second.URL)
	w.next(`"full"`)
	<-api.opened
	api.endStreams()
	want := "live stream interrupted: read live stream: unexpected EOF; it goes on at " + second.URL
	if !w.errs.Scan() || w.errs.Text() != want {
		t.Errorf("message %q, want %q", w.errs.Text(), want)
	}
	<-api.opened
	api.putEvent("default", "srv1", "disk", 0, "room")
	w.next(`"room"`)
	w.stop()
}

func TestWatchFormats(t *testing.T) {
	f := func(format string, first, second, deleted []string) {
		t.Helper()
		api := newFakeAPI(t, nil)
		api.putEvent("default", "srv1", "disk", 2, "a & b")
		w := watch(t, api, "--format", format)
		for _, line := range first {
			w.next(line)
		}
		<-api.opened
		api.putEvent("default", "srv1", "disk", 0, "ok")
		for _, line := range second {
			w.next(line)
		}
		api.deleteEvent("default", "srv1", "disk")
		for _, line := range deleted {
			w.next(line)
		}
		w.stop()
	}
	gone := []string{`{"deleted":true,"namespace":"default","entity":"srv1","check":"disk"}`}
	f("json", []string{`{"check":{"metadata":{"name":"disk","namespace":"default"},"output":"a & b","status":2},"entity"`},
		[]string{`"output":"ok","status":0}`}, gone)
	f("wrapped-json", []string{`{"type":"Event","api_version":"core/v2","metadata":`}, []string{`"output":"ok","status":0}`}, gone)
	yaml := func(output, status string) []string {
		return []string{"---", "type: Event", "api_version: core/v2", "metadata: null", "spec:", "  check:", "    metadata:",
			"      name: disk", "      namespace: default", "    output: " + output, "    status: " + status, "  entity:",
			"    entity_class: proxy", "    metadata:", "      name: srv1", "      namespace: default",
			"  id: 3c3cbb4c-0f3f-4b8e-9a3e-5d8c6d0b8a55", "  timestamp: 1795237119"}
	}
	f("yaml", yaml("a & b", "2"), yaml("ok", "0"),
		[]string{"---", "deleted: true", `namespace: "default"`, `entity: "srv1"`, `check: "disk"`})
}

func TestWatchFails(t *testing.T) {
	api := newFakeAPI(t, nil)
	t.Setenv("HOME", t.TempDir())
	f := func(want string, args ...string) {
		t.Helper()
		root := newRoot()
		var out, errs bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&errs)
		root.SetArgs(append([]string{"event", "list", "--watch"}, args...))
		err := root.Execute()
		if err == nil || !strings.Contains(err.Error(), want) || out.Len() > 0 || ctl.ExitCode(err) != 1 {
			t.Errorf("error %v, want %s; output %q", err, want, out.String())
		}
	}
	f("open live stream: invalid credentials\nCheck the API key.", "--api-url", api.url, "--api-key", "bad")
	f(`Your roles do not allow this in namespace "default"`, "--api-url", api.url, "--api-key", "guest-key")
	f("connection refused\nIs a backend listening there?", "--api-url", "http://127.0.0.1:1", "--api-key", "x")
	api.mu.Lock()
	api.cut = true
	api.mu.Unlock()
	f("open live stream: stopping", "--api-url", api.url, "--api-key", "good-key")

	// Sensu's backend has no such route.
	f("The backend has no live stream of events; it may be Sensu Go.", "--api-url", api.url+"/other", "--api-key", "good-key")
}

// TestWatchSelected follows an event into the selection and out of it again.
func TestWatchSelected(t *testing.T) {
	api := newFakeAPI(t, nil)
	api.putEvent("default", "srv1", "disk", 2, "full")
	api.putEvent("default", "srv1", "ping", 0, "here")
	w := watch(t, api, "--format", "json", "--field-selector", `event.check.status != "0" && event.entity.name =~ "^srv"`)
	w.next(`"full"`)
	<-api.opened
	api.putEvent("default", "srv1", "ping", 0, "still here")
	api.putEvent("default", "other", "ping", 2, "elsewhere")
	api.putEvent("default", "srv1", "ping", 1, "slow")
	w.next(`"slow"`)
	api.putEvent("default", "srv1", "disk", 0, "room again") // shown once more
	w.next(`"room again"`)
	api.putEvent("default", "srv1", "disk", 0, "more room")
	api.deleteEvent("default", "srv1", "disk") // no longer shown
	api.deleteEvent("default", "srv1", "ping")
	w.next(`"deleted":true`, `"ping"`)
	w.stop()
}
