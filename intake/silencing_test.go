package intake_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

const ownPath = "/api/lapwing/v1/namespaces/default/"

// submit sends an event of a proxy entity through the API, and returns the stored event.
func submit(t *testing.T, b *testbackend.Backend, entity, check string, status uint32, change func(*resource.Event)) *resource.Event {
	t.Helper()
	ev := testbackend.Event(entity, check, status, time.Now().Unix())
	ev.Entity.EntityClass = resource.EntityProxyClass
	if change != nil {
		change(ev)
	}
	if err := client.Post(t.Context(), b.Client, client.Events, "default", ev); err != nil {
		t.Fatal(err)
	}
	return get(t, b, entity+"/"+check)
}

func get(t *testing.T, b *testbackend.Backend, name string) *resource.Event {
	t.Helper()
	ev, err := client.Get(t.Context(), b.Client, client.Events, "default", name)
	if err != nil {
		t.Fatal(err)
	}
	return ev
}

// written makes a handler that appends a line for each event, and returns a function that waits for that many lines.
func written(t *testing.T, b *testbackend.Backend, handler, command string, filters ...string) func(want string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "lines")
	h := &resource.Handler{
		Metadata: resource.ObjectMeta{Namespace: "default", Name: handler}, Type: "pipe",
		Command: command + " >> " + file, Filters: filters,
	}
	if err := client.Post(t.Context(), b.Client, client.Handlers, "default", h); err != nil {
		t.Fatal(err)
	}
	return func(want string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; {
			text, err := os.ReadFile(file)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			got := strings.Join(strings.Fields(string(text)), " ")
			if got == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("handler %s wrote %q, want %q", handler, got, want)
			}
			<-time.After(10 * time.Millisecond) // between checks for a state that must come
		}
	}
}

// TestAgentsEventsAreSilencedBySelectors uses an agent before and after its registration.
func TestAgentsEventsAreSilencedBySelectors(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, nil)
	a := connect(t, b, "web1")
	executed := time.Now().Unix() - 100
	send := func(check string, change func(*resource.Event)) *resource.Event {
		t.Helper()
		executed++
		ev := testbackend.Event("web1", check, 2, executed)
		if change != nil {
			change(ev)
		}
		frame, err := wire.Append(nil, wire.TypeEvent, wire.Protobuf, ev)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Write(frame); err != nil {
			t.Fatal(err)
		}
		return eventually(t, b, "web1/"+check, func(ev *resource.Event) bool { return ev.Check.Executed == executed })
	}
	of := func(name, label, field string) {
		t.Helper()
		silence(t, b, "", "", func(s *resource.Silenced) { s.Metadata.Name, s.LabelSelector, s.FieldSelector = name, label, field })
	}
	of("disks", "", "event.check.name =~ '^disk'")
	of("db", "tier == db", "")
	of("eu", "region == eu", "")
	sees(t, "by name", send("disk0", nil), "disks")
	sees(t, "another name", send("cpu", nil), "")
	sees(t, "by a label of the check",
		send("cpu", func(ev *resource.Event) { ev.Check.Metadata.Labels = map[string]string{"tier": "db"} }), "db")
	sees(t, "the same check without it", send("cpu", nil), "")
	if err := a.Write(testbackend.Keepalive(t, "web1", wire.Protobuf)); err != nil {
		t.Fatal(err)
	}
	eventually(t, b, "web1/keepalive", func(*resource.Event) bool { return true })
	ent, err := client.Get(t.Context(), b.Client, client.Entities, "default", "web1")
	if err != nil {
		t.Fatal(err)
	}
	ent.Metadata.Labels = map[string]string{"region": "eu"}
	if err := client.Put(t.Context(), b.Client, client.Entities, "default", "web1", ent); err != nil {
		t.Fatal(err)
	}
	sees(t, "what was stored before", get(t, b, "web1/disk0"), "disks eu")
	sees(t, "by a label of the entity", send("disk0", nil), "disks eu")
	// All of that holds for events stored before the silence too, until it is gone.
	of("again", "", "event.entity.name == web1")
	sees(t, "a new silence", get(t, b, "web1/cpu"), "again eu")
	for _, name := range []string{"again", "eu"} {
		if err := client.Delete(t.Context(), b.Client, client.Silences, "default", name); err != nil {
			t.Fatal(err)
		}
	}
	sees(t, "without it", get(t, b, "web1/cpu"), "")
}

// TestResolutionsPass: a resolution is handled if all the silences that apply let it pass.
func TestResolutionsPass(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, nil)
	lines := written(t, b, "log", "grep -o 'result of [a-z]*' | tail -c 5", "not_silenced")
	names := func(ev *resource.Event) { ev.Check.Handlers = []string{"log"} }
	silence(t, b, "", "pass", func(s *resource.Silenced) { s.PassResolve = true })
	silence(t, b, "", "both", func(s *resource.Silenced) { s.PassResolve = true })
	silence(t, b, "entity:web1", "both", nil)
	for _, check := range []string{"both", "pass"} {
		sees(t, check+" fails", submit(t, b, "web1", check, 2, names),
			map[string]string{"both": "*:both entity:web1:both", "pass": "*:pass"}[check])
		sees(t, check+" still fails", submit(t, b, "web1", check, 1, names),
			map[string]string{"both": "*:both entity:web1:both", "pass": "*:pass"}[check])
	}
	submit(t, b, "web1", "both", 0, names)
	sees(t, "it is silenced all the same", submit(t, b, "web1", "pass", 0, names), "*:pass")
	lines("pass") // and no line before it
	submit(t, b, "web1", "pass", 0, names)
	submit(t, b, "web1", "free", 2, names)
	lines("pass free")
}

// TestAcknowledgementEnds: an acknowledgement ends with its incident, whose resolution is handled.
func TestAcknowledgementEnds(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, nil)
	lines := written(t, b, "log", "grep -o '\"status\":[0-9],\"total' | cut -c 10", "not_silenced")
	names := func(ev *resource.Event) { ev.Check.Handlers = []string{"log"} }
	submit(t, b, "web1", "disk", 2, names)
	lines("2")
	ack := ownPath + "events/web1/disk/ack"
	if err := b.Client.Do(t.Context(), http.MethodPost, ack, map[string]any{"comment": "on it"}, nil); err != nil {
		t.Fatal(err)
	}
	sees(t, "the stored event", get(t, b, "web1/disk"), "entity:web1:disk")
	sees(t, "the next", submit(t, b, "web1", "disk", 1, names), "entity:web1:disk")
	sees(t, "the resolution", submit(t, b, "web1", "disk", 0, names), "")
	lines("2 0")
	sees(t, "the next incident", submit(t, b, "web1", "disk", 2, names), "")
	lines("2 0 2")
	var refused *client.Error
	for deadline := time.Now().Add(time.Minute); ; {
		_, err := client.Get(t.Context(), b.Client, client.Silences, "default", "entity:web1:disk")
		if errors.As(err, &refused) && refused.Status == 404 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the acknowledgement is still there")
		}
	}
}

// TestReminder: a silence's reminder comes once, before the silence ends, although the silence applies to its check.
func TestReminder(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, nil)
	lines := written(t, b, "oncall", "grep -o 'It silences [0-9]* events, of which [0-9]* fail'", "not_silenced", "is_incident")
	submit(t, b, "web1", "disk", 2, nil)
	submit(t, b, "web1", "cpu", 0, nil)
	begun := time.Now()
	silence(t, b, "entity:web1", "", func(s *resource.Silenced) {
		s.Expire, s.Remind, s.RemindHandlers = 4, 2, []string{"oncall"}
	})
	lines("It silences 2 events, of which 1 fail")
	if took := time.Since(begun); took < time.Second {
		t.Errorf("it came after %s", took)
	}
	if n := b.Counter(t, "lapwing_silence_reminders_total"); n != 1 {
		t.Errorf("%v reminders are counted", n)
	}
	if _, err := client.Get(t.Context(), b.Client, client.Events, "default", "web1/silence-reminder"); err == nil {
		t.Error("the reminder has left an event")
	}
}

// TestStreamsShowSilences: streams of events show a silence's beginning and end like events.
func TestStreamsShowSilences(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, nil)
	submit(t, b, "web1", "disk", 2, nil)
	submit(t, b, "web1", "cpu", 2, nil)
	seen := make(chan string, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.Client.Stream(t.Context(), "default", func(change client.StreamEvent) error {
			if ev := change.Event; ev != nil && ev.Check != nil {
				seen <- ev.Check.Metadata.Name + " " + strings.Join(ev.Check.Silenced, " ")
			} else {
				seen <- "synced"
			}
			return nil
		})
	}()
	t.Cleanup(func() { <-done })
	want := func(what string) {
		t.Helper()
		for {
			select {
			case got := <-seen:
				if got == what {
					return
				}
			case <-time.After(time.Minute):
				t.Fatalf("%q was not seen", what)
			}
		}
	}
	want("synced")
	of := silence(t, b, "", "disk", func(s *resource.Silenced) { s.Expire = 6 })
	want("disk " + of) // a silence that has ended does not show
	want("disk ")      // it expires
	if len(seen) != 0 {
		t.Errorf("more is seen: %s", <-seen)
	}
}
