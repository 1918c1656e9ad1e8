package session_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// bomb is an event that once stopped the backend, or filled it.
type bomb struct {
	name, reason string
	spoil        func(*resource.Event)
}

func bombs() []bomb {
	long := strings.Repeat("n", 5000)
	return []bomb{
		{"entity name", "must not be longer than 255 bytes, it has 5000", func(ev *resource.Event) { ev.Entity.Metadata.Name = long }},
		{"check name", "must not be longer than 255 bytes, it has 5000", func(ev *resource.Event) { ev.Check.Metadata.Name = long }},
		{"proxy entity name", "must not be longer than 255 bytes, it has 5000", func(ev *resource.Event) { ev.Check.ProxyEntityName = long }},
		{"ttl", "check ttl 9223372036854776 is out of bounds", func(ev *resource.Event) { ev.Check.TTL = 9223372036854776 }},
		{"size", "bytes that can be stored", func(ev *resource.Event) { ev.Check.Output = strings.Repeat("x", 9<<20) }},
	}
}

// logBuffer is a log that a test can read.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

func large(o *testbackend.Options) { o.Session.MaxMessage, o.API.RequestLimit = 30e6, 30e6 }

// requireServing checks that the backend still takes events of other agents.
func requireServing(t *testing.T, b *testbackend.Backend, check string) {
	t.Helper()
	ev := testbackend.Event("healthy", check, 0, time.Now().Unix())
	if err := client.Put(t.Context(), b.Client, client.Events, "default", "healthy/"+check, ev); err != nil {
		t.Fatalf("an event of another is not taken any more: %v", err)
	}
}

// TestAgentBombs has agents send what once disabled the backend until a restart. Each bomb is refused alone: a lapwing
// agent gets the reason and does not send the event again, the log has one line for each cause, and all other events
// are taken.
func TestAgentBombs(t *testing.T) {
	t.Parallel()
	var log logBuffer
	b := testbackend.Start(t, func(o *testbackend.Options) {
		large(o)
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	stock, own := dial(t, b, "stock", nil), dial(t, b, "own", lapwingHeaders)
	seq := uint64(1)
	for _, bomb := range bombs() {
		ev := testbackend.Event("stock", "bomb", 0, time.Now().Unix())
		bomb.spoil(ev)
		frame, err := wire.Append(nil, wire.TypeEvent, wire.Protobuf, ev)
		if err != nil {
			t.Fatal(err)
		}
		if err := stock.Write(frame); err != nil {
			t.Fatal(err)
		}
		ev = testbackend.Event("own", "bomb", 0, time.Now().Unix())
		bomb.spoil(ev)
		seq++
		if err := own.Write(wire.AppendEvents(nil, seq, []wire.Item{{Event: ev.AppendProto(nil)}})); err != nil {
			t.Fatal(err)
		}
		var reason string
		for acked := uint64(0); acked < seq; {
			switch typ, payload := own.next(); typ {
			case wire.TypeRefused:
				var n uint64
				if n, reason, err = wire.DecodeRefused(payload); err != nil || n != seq {
					t.Errorf("%s: refused %d, %v", bomb.name, n, err)
				}
			case wire.TypeAck:
				if acked, err = wire.DecodeAck(payload); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !strings.Contains(reason, bomb.reason) || len(reason) > 1000 {
			t.Errorf("%s: the reason is %.300q", bomb.name, reason)
		}
		requireServing(t, b, "beside")
	}
	wait(t, "all bombs are counted", func() bool {
		return b.Counter(t, "lapwing_events_rejected_total") == float64(2*len(bombs()))
	})
	for i := range 50 { // one bad agent does not flood the log
		ev := testbackend.Event("stock", "bomb", 0, time.Now().Unix())
		ev.Check.TTL = int64(1e15) + int64(i)
		frame, _ := wire.Append(nil, wire.TypeEvent, wire.Protobuf, ev)
		if err := stock.Write(frame); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, "all refusals are counted", func() bool {
		return b.Counter(t, "lapwing_events_rejected_total") == float64(2*len(bombs())+50)
	})
	if n := log.count("event was not taken"); n != 4 { // one an agent and cause: invalid, or too large
		t.Errorf("%d lines about %v events", n, b.Counter(t, "lapwing_events_rejected_total"))
	}
}

// TestAPIBombs sends the same events, and definitions with them, through the API.
func TestAPIBombs(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, large)
	want := func(name string, err error, status int, text string) {
		t.Helper()
		var refused *client.Error
		if !errors.As(err, &refused) || refused.Status != status || !strings.Contains(refused.Message, text) {
			t.Errorf("%s: got %.300v, want %d and %q", name, err, status, text)
		}
		requireServing(t, b, "beside")
	}
	for _, bomb := range bombs() {
		ev := testbackend.Event("web-1", "bomb", 0, time.Now().Unix())
		bomb.spoil(ev)
		status := http.StatusBadRequest
		if bomb.name == "size" {
			status = http.StatusRequestEntityTooLarge
		}
		want(bomb.name, client.Post(t.Context(), b.Client, client.Events, "default", ev), status, bomb.reason)
	}
	long := strings.Repeat("n", 5000)
	const tooLong = "must not be longer than 255 bytes, it has 5000"
	meta := resource.ObjectMeta{Name: long, Namespace: "default"}
	check := &resource.CheckConfig{Metadata: meta, Command: "true", Interval: 1}
	want("check", client.Post(t.Context(), b.Client, client.Checks, "default", check), http.StatusBadRequest, tooLong)
	user := &resource.User{Username: long, Password: "P@ssw0rd!"}
	want("user", client.Post(t.Context(), b.Client, client.Users, "", user), http.StatusBadRequest, tooLong)
	namespace := &resource.Namespace{Name: long}
	want("namespace", client.Post(t.Context(), b.Client, client.Namespaces, "", namespace), http.StatusBadRequest, tooLong)
	want("silence", client.Post(t.Context(), b.Client, client.Silences, "default", &resource.Silenced{
		Metadata: resource.ObjectMeta{Namespace: "default"}, Check: long,
	}), http.StatusBadRequest, tooLong)
	for name, put := range map[string]func() error{
		"check": func() error { return client.Put(t.Context(), b.Client, client.Checks, "default", long, check) },
		"user": func() error {
			return client.Put(t.Context(), b.Client, client.Users, "", long, &resource.User{Username: long, Password: "P@ssw0rd!"})
		},
		"namespace": func() error {
			return client.Put(t.Context(), b.Client, client.Namespaces, "", long, &resource.Namespace{Name: long})
		},
		"entity": func() error {
			entity := &resource.Entity{Metadata: meta, EntityClass: resource.EntityProxyClass}
			return client.Put(t.Context(), b.Client, client.Entities, "default", long, entity)
		},
		"event": func() error {
			ev := testbackend.Event(long, "c", 0, time.Now().Unix())
			return client.Put(t.Context(), b.Client, client.Events, "default", client.EventName(long, "c"), ev)
		},
	} {
		want("PUT of a "+name, put(), http.StatusBadRequest, tooLong)
	}
	want("delete", client.Delete(t.Context(), b.Client, client.Checks, "default", long), http.StatusNotFound, "not found")
	check.Metadata.Name, check.Command = "big", strings.Repeat("x", 9<<20)
	err := client.Post(t.Context(), b.Client, client.Checks, "default", check)
	want("big check", err, http.StatusRequestEntityTooLarge, "bytes that can be stored")
}

// TestHandshakeNames: an agent with a long name is refused.
func TestHandshakeNames(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, nil)
	_, _, err := b.TryDialAgent(strings.Repeat("n", 300), nil)
	var refused *wire.HandshakeError
	if !errors.As(err, &refused) || refused.Status != http.StatusBadRequest {
		t.Errorf("got %v", err)
	}
}
