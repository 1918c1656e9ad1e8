package handler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/calendar"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/internal/fields"
	"github.com/lapwing-monitoring/lapwing/oncall"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// present has the events that escalations see.
type present struct {
	mu     sync.Mutex
	events map[string]*resource.Event
	once   func() // if not nil, called at the next question
}

func (p *present) Event(_, entity, _ string) (*resource.Event, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := p.once; f != nil {
		p.once = nil
		f()
	}
	ev := p.events[entity]
	if ev == nil {
		return nil, nil
	}
	copied, check := *ev, *ev.Check
	copied.Check = &check
	return &copied, nil
}

// set changes an entity's event; status -1 deletes it.
func (p *present) set(entity string, status int, silenced ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.events == nil {
		p.events = map[string]*resource.Event{}
	}
	if status < 0 {
		delete(p.events, entity)
		return
	}
	ev := event(entity, "now")
	ev.Check.Status, ev.Check.Silenced = uint32(status), silenced
	p.events[entity] = ev
}

// ladder is a dispatcher with an escalation: alice at once, the rota after ten minutes, and again half an hour later.
type ladder struct {
	*bundle
	world  *present
	traces *traces
	mu     sync.Mutex
	sent   []string // time since the begin, ID, and contact
}

func escalation() *resource.Handler {
	return &resource.Handler{Metadata: resource.ObjectMeta{Namespace: "default", Name: "page"}, Type: resource.EscalationType,
		Escalation: &resource.HandlerEscalation{Repeat: 1, Steps: []resource.EscalationStep{
			{Notify: []resource.EscalationTarget{{Contact: "alice"}}},
			{After: 600, Notify: []resource.EscalationTarget{{Rota: "ops"}, {Handler: "chat"}}},
		}}}
}

func meta(name string) resource.ObjectMeta {
	return resource.ObjectMeta{Namespace: "default", Name: name}
}

func climbing(t *testing.T, db *pebble.DB, def *resource.Handler, change ...func(*Options)) *ladder {
	return climbingWith(t, db, def, func(send.Job) send.Result {
		return send.Result{Kind: send.KindOK, Recipients: []string{"example.org"}}
	}, change...)
}

// climbingWith is climbing with receivers that answer as given. What is stored is looked at as soon as it starts: before
// that the events must be there, and all definitions. So a test that stops a ladder has the next one see the same world.
func climbingWith(
	t *testing.T, db *pebble.DB, def *resource.Handler, answer func(send.Job) send.Result, change ...func(*Options),
) *ladder {
	l := &ladder{world: new(present), traces: new(traces)}
	var b *bundle
	opts := Options{DB: db, Trace: l.traces.record, Present: l.world.Event,
		OnCall: oncall.New(func() *config.Snapshot { return b.handlers.snapshot() }, calendar.New(nil))}
	for _, f := range change {
		f(&opts)
	}
	l.bundle = setup(t, opts, def, hook("mail"), hook("chat"))
	b = l.bundle
	define(b.handlers, config.Contacts, &resource.Contact{Metadata: meta("alice"), Email: "alice@example.org", Handlers: []string{"mail"}})
	define(b.handlers, config.Contacts, &resource.Contact{Metadata: meta("bob"), Handlers: []string{"mail"}})
	define(b.handlers, config.Rotas, &resource.Rota{Metadata: meta("ops"), Contacts: []string{"bob", "alice"}, Start: "2000-01-01T00:00", Shift: 7 * 86400})
	define(b.handlers, config.Silences, &resource.Silenced{Metadata: meta("ack"), Creator: "carol", Acknowledgement: true})
	begin := time.Now()
	b.send = func(_ context.Context, _ *resource.Handler, _ *delivery.Delivery, job send.Job) send.Result {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.sent = append(l.sent, time.Since(begin).Round(time.Second).String()+" "+job.ID)
		return answer(job)
	}
	b.start(t)
	return l
}

// seeing has a ladder see a world that was there before it.
func seeing(world *present) func(*Options) {
	return func(o *Options) { o.Present = world.Event }
}

// after waits, and returns what was sent meanwhile, in order.
func (l *ladder) after(wait time.Duration) []string {
	time.Sleep(wait) // the bubble's time
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	sent := l.sent
	l.sent = nil
	slices.Sort(sent)
	return sent
}

func wantSent(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: sent %q, want %q", what, got, want)
	}
}

// TestEscalation: an incident takes its steps by the clock, later incidents of the check are part of it, and its resolution
// goes to those who know of it.
func TestEscalation(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		l := climbing(t, db, escalation())
		l.world.set("srv", 2)
		l.Dispatch(incident("page", 1, "srv"))
		wantSent(t, "first step", l.after(time.Second), "0s 0-1-1/page/1/alice/mail")
		if tr := l.traces.of("0-1-1/page"); tr.Verdict != trace.Held ||
			tr.Reason != "step 1 of 2 reached alice by mail; step 2 follows at 2000-01-01T00:10:00Z unless it is acknowledged" {
			t.Errorf("the trace is %+v", tr)
		}
		l.Dispatch(incident("page", 2, "srv"))
		synctest.Wait()
		if tr := l.traces.of("0-2-1/page"); tr.Verdict != trace.Merged || tr.Into != "0-1-1/page" {
			t.Errorf("a later incident: %+v", tr)
		}
		list, more, err := l.Escalations("default", "", "", 10)
		if err != nil || more || len(list) != 1 || list[0].Steps != 1 || !slices.Equal(list[0].Notified, []string{"alice"}) ||
			time.UnixMilli(list[0].Next).UTC().Format(time.TimeOnly) != "00:10:00" {
			t.Errorf("the list is %+v (%v, %v)", list, more, err)
		}
		wantSent(t, "before the second step", l.after(598*time.Second))
		wantSent(t, "second step", l.after(2*time.Second), "10m0s 0-1-1/page/2//chat", "10m0s 0-1-1/page/2/bob/mail")
		wantSent(t, "again", l.after(31*time.Minute), "40m0s 0-1-1/page/3/alice/mail")
		wantSent(t, "again, second step", l.after(10*time.Minute), "50m0s 0-1-1/page/4//chat", "50m0s 0-1-1/page/4/bob/mail")
		wantSent(t, "all steps are taken", l.after(48*time.Hour))
		l.world.set("srv", 0)
		l.Dispatch(resolution("page", 3, "srv"))
		wantSent(t, "resolved", l.after(time.Second),
			"48h51m1s 0-3-1/page/resolved//chat", "48h51m1s 0-3-1/page/resolved/alice/mail", "48h51m1s 0-3-1/page/resolved/bob/mail")
		for _, id := range []string{"0-1-1/page", "0-3-1/page"} {
			if tr := l.traces.of(id); tr.Verdict != trace.Delivered || !strings.HasSuffix(tr.Reason, "resolved; told alice, chat, bob") &&
				!strings.HasSuffix(tr.Reason, "resolved; told alice, bob, chat") {
				t.Errorf("%s: %+v", id, tr)
			}
		}
		if first := l.traces.of("0-1-1/page").Steps[0]; time.UnixMilli(first.At).UTC().Format(time.RFC3339) != "2000-01-01T00:00:00Z" {
			t.Errorf("the first step is %+v", first)
		}
		l.flush(t, 0)
		time.Sleep(time.Minute) // the bubble's time
		synctest.Wait()
		if left := stored(t, db); len(left) > 0 {
			t.Errorf("left in the database: %q", left)
		}
		if list, _, _ := l.Escalations("", "", "", 10); len(list) > 0 {
			t.Errorf("the list is %+v", list)
		}
		l.Dispatch(resolution("page", 4, "srv"))
		wantSent(t, "a resolution without an escalation", l.after(time.Second))
		if tr := l.traces.of("0-4-1/page"); tr.Verdict != trace.Filtered {
			t.Errorf("its trace is %+v", tr)
		}
	})
}

// TestEscalationIsHeld: an acknowledgement and a silence stop it; when they end, it begins again with other IDs.
func TestEscalationIsHeld(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		l := climbing(t, db, escalation())
		define(l.handlers, config.Silences, &resource.Silenced{Metadata: meta("ack"), Creator: "carol", Reason: "on it", Acknowledgement: true})
		l.world.set("srv", 2)
		l.Dispatch(incident("page", 1, "srv"))
		wantSent(t, "first step", l.after(time.Second), "0s 0-1-1/page/1/alice/mail")
		l.world.set("srv", 2, "ack")
		wantSent(t, "acknowledged", l.after(time.Hour))
		if tr := l.traces.of("0-1-1/page"); tr.Verdict != trace.Held || tr.Reason != "acknowledged by carol: on it" {
			t.Errorf("the trace is %+v", tr)
		}
		if list, _, err := l.Escalations("", "", "", 10); err != nil || len(list) != 1 || list[0].Held != "acknowledged by carol: on it" || list[0].Next != 0 {
			t.Errorf("the list is %+v (%v)", list, err)
		}
		l.world.set("srv", 2)
		wantSent(t, "not any more", l.after(time.Minute), "1h1m0s 0-1-1/page/2/alice/mail")
		l.world.set("srv", -1)
		wantSent(t, "deleted", l.after(time.Hour))
		if tr := l.traces.of("0-1-1/page"); tr.Verdict != trace.Filtered || tr.Reason != "after 2 steps: the event was deleted" {
			t.Errorf("the trace is %+v", tr)
		}
	})
}

// TestResolutionDuringAStep: a resolution that comes while a step is taken ends the escalation at once.
func TestResolutionDuringAStep(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		l := climbing(t, db, escalation())
		l.world.set("srv", 2)
		l.world.once = func() { l.Dispatch(resolution("page", 2, "srv")) }
		l.Dispatch(incident("page", 1, "srv"))
		wantSent(t, "both", l.after(time.Second), "0s 0-1-1/page/1/alice/mail", "0s 0-2-1/page/resolved/alice/mail")
	})
}

// TestEscalationsFillTheRoom: while escalations take all the room for deliveries that wait, each still hears of its
// resolution, and others go on when one has ended.
func TestEscalationsFillTheRoom(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		l := climbing(t, db, escalation(), func(o *Options) { o.ParkSize = 2 })
		for i, entity := range []string{"a", "b", "c"} {
			l.world.set(entity, 2)
			l.Dispatch(incident("page", i+1, entity))
			synctest.Wait()
		}
		wantSent(t, "two have room", l.after(2*time.Minute), "0s 0-1-1/page/1/alice/mail", "0s 0-2-1/page/1/alice/mail")
		if n := l.metric(t, "lapwing_handler_queue_spilled"); n != 1 {
			t.Fatalf("%v deliveries are on disk, want 1", n)
		}
		l.world.set("a", 0)
		l.Dispatch(resolution("page", 4, "a"))
		wantSent(t, "one is over", l.after(time.Second), "2m0s 0-3-1/page/1/alice/mail", "2m0s 0-4-1/page/resolved/alice/mail")
	})
}

// TestResolvedBeforeTheFirstStep: an escalation that has notified no one is not delivered.
func TestResolvedBeforeTheFirstStep(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		def := escalation()
		def.Escalation.Steps[0].After = 600
		l := climbing(t, db, def)
		for _, entity := range []string{"resolved", "denied"} {
			l.world.set(entity, 2)
		}
		l.Dispatch(incident("page", 1, "resolved"))
		l.Dispatch(incident("page", 2, "denied"))
		wantSent(t, "before the first step", l.after(time.Minute))
		for _, entity := range []string{"resolved", "denied"} {
			l.world.set(entity, 0)
		}
		l.Dispatch(resolution("page", 3, "resolved"))
		wantSent(t, "resolved", l.after(time.Hour))
		for _, id := range []string{"0-1-1/page", "0-2-1/page", "0-3-1/page"} {
			if tr := l.traces.of(id); tr.Verdict != trace.Filtered {
				t.Errorf("%s: %+v", id, tr)
			}
		}
	})
}

// TestResolvedWhileItWaited: the end of an escalation that notified no one says what it waited for.
func TestResolvedWhileItWaited(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		def := escalation()
		def.Escalation.Quiet = []resource.EscalationQuiet{{Severities: []string{"warning"}, Calendars: []string{"night"}}}
		l := climbing(t, db, def)
		define(l.handlers, config.Calendars, &resource.Calendar{Metadata: meta("night"), Windows: []resource.CalendarWindow{
			{RRule: "FREQ=DAILY", Begin: "22:00", End: "06:00"},
		}})
		l.world.set("srv", 1)
		l.Dispatch(incident("page", 1, "srv"))
		wantSent(t, "in the night", l.after(time.Second))
		if list, _, err := l.Escalations("default", "srv", "cpu", 10); err != nil || len(list) != 1 {
			t.Errorf("of the event: %+v (%v)", list, err)
		}
		for _, other := range [][2]string{{"other", "cpu"}, {"srv", "disk"}} {
			if list, _, err := l.Escalations("default", other[0], other[1], 10); err != nil || len(list) > 0 {
				t.Errorf("of %s: %+v (%v)", other, list, err)
			}
		}
		l.world.set("srv", 0)
		l.Dispatch(resolution("page", 2, "srv"))
		wantSent(t, "resolved", l.after(time.Second))
		const want = "resolved before anyone was notified; it waited: step 1 is due, but it is quiet for severity warning until " +
			"2000-01-01T06:00:00Z: calendar night"
		if tr := l.traces.of("0-1-1/page"); tr.Verdict != trace.Filtered || tr.Reason != want {
			t.Errorf("the trace is %+v", tr)
		}
	})
}

// TestShortAcknowledgement: an acknowledgement that ends before the escalation looks again changes nothing, and one that a
// further event of the check shows makes it begin again.
func TestShortAcknowledgement(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		l := climbing(t, db, escalation())
		l.world.set("srv", 2)
		l.Dispatch(incident("page", 1, "srv"))
		wantSent(t, "first step", l.after(time.Second), "0s 0-1-1/page/1/alice/mail")
		l.world.set("srv", 2, "ack")
		wantSent(t, "acknowledged", l.after(5*time.Second))
		l.world.set("srv", 2)
		wantSent(t, "not told again", l.after(9*time.Minute))
		l.world.set("srv", 2, "ack")
		l.Dispatch(incident("page", 2, "srv"))
		wantSent(t, "acknowledged again", l.after(time.Second))
		l.world.set("srv", 2)
		wantSent(t, "an event showed it", l.after(time.Minute), "10m6s 0-1-1/page/2/alice/mail")
	})
}

// TestEscalationSeesThatItPasses: filters that deny the resolution do not keep an escalation going.
func TestEscalationSeesThatItPasses(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		l := climbing(t, db, escalation())
		l.world.set("srv", 2)
		l.Dispatch(incident("page", 1, "srv"))
		wantSent(t, "first step", l.after(time.Second), "0s 0-1-1/page/1/alice/mail")
		l.world.set("srv", 0)
		wantSent(t, "it passes", l.after(time.Hour))
		if tr := l.traces.of("0-1-1/page"); tr.Verdict != trace.Delivered {
			t.Errorf("the trace is %+v", tr)
		}
	})
}

// TestEscalationOutlivesRestarts: steps that were taken are not taken again, and the next one comes at its time.
func TestEscalationOutlivesRestarts(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		var all []string
		world := new(present)
		world.set("srv", 2)
		for i := range 4 { // at 0, 7, 14 and 21 minutes
			l := climbing(t, db, escalation(), seeing(world))
			if i == 0 {
				l.Dispatch(incident("page", 1, "srv"))
			}
			for _, one := range l.after(7 * time.Minute) {
				_, id, _ := strings.Cut(one, " ")
				all = append(all, id)
			}
			l.flush(t, 0)
			if err := l.Stop(); err != nil {
				t.Fatal(err)
			}
		}
		wantSent(t, "in all", all, "0-1-1/page/1/alice/mail", "0-1-1/page/2//chat", "0-1-1/page/2/bob/mail")
	})
}

// TestQuiet: an escalation waits while it is quiet for its severity, unless that rises.
func TestQuiet(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		def := escalation()
		def.Escalation.Quiet = []resource.EscalationQuiet{{Severities: []string{"warning"}, Calendars: []string{"night"}}}
		l := climbing(t, db, def)
		define(l.handlers, config.Calendars, &resource.Calendar{Metadata: meta("night"), Windows: []resource.CalendarWindow{
			{RRule: "FREQ=DAILY", Begin: "22:00", End: "06:00"},
		}})
		for _, entity := range []string{"mild", "grave", "worse"} {
			l.world.set(entity, 1)
		}
		l.world.set("grave", 2)
		for i, entity := range []string{"mild", "grave", "worse"} {
			l.Dispatch(incident("page", i+1, entity))
		}
		wantSent(t, "in the night", l.after(time.Second), "0s 0-2-1/page/1/alice/mail")
		l.world.set("grave", 1) // it would be quiet for the second step, which is due later
		if tr := l.traces.of("0-1-1/page"); tr.Reason !=
			"step 1 is due, but it is quiet for severity warning until 2000-01-01T06:00:00Z: calendar night" {
			t.Errorf("the trace is %+v", tr)
		}
		list, _, err := l.Escalations("default", "", "", 10)
		if err != nil || len(list) != 3 {
			t.Fatalf("the list is %+v (%v)", list, err)
		}
		for _, one := range list {
			want := ""
			if one.Entity != "grave" {
				want = "night 2000-01-01T06:00:00Z"
			}
			got := ""
			if one.Quiet != "" {
				got = one.Quiet + " " + time.UnixMilli(one.QuietUntil).UTC().Format(time.RFC3339)
			}
			if got != want {
				t.Errorf("%s is quiet until %q, want %q", one.Entity, got, want)
			}
		}
		l.world.set("grave", -1)
		l.world.set("worse", 2)
		l.Dispatch(incident("page", 4, "worse"))
		wantSent(t, "it gets worse", l.after(time.Second), "1s 0-3-1/page/1/alice/mail")
		l.world.set("worse", -1)
		wantSent(t, "until the morning", l.after(6*time.Hour-3*time.Second))
		wantSent(t, "in the morning", l.after(2*time.Second), "6h0m0s 0-1-1/page/1/alice/mail")
	})
}

// TestEscalationFindsNoOne: a step that reaches no one makes the next one come at once.
func TestEscalationFindsNoOne(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		def := escalation()
		def.Escalation.Steps[0].Notify = []resource.EscalationTarget{{Contact: "zoe"}, {Label: "team"}}
		l := climbing(t, db, def)
		l.world.set("srv", 2)
		l.Dispatch(incident("page", 1, "srv"))
		wantSent(t, "the second step", l.after(time.Second), "0s 0-1-1/page/2//chat", "0s 0-1-1/page/2/bob/mail")
		tr := l.traces.of("0-1-1/page")
		if len(tr.Steps) == 0 || !slices.ContainsFunc(tr.Steps, func(s trace.Step) bool {
			return s.Error == "there is no contact zoe; neither the check nor the entity has a label team"
		}) {
			t.Errorf("the trace is %+v", tr)
		}
		if n := l.metric(t, "lapwing_handler_escalation_steps_total", "no_one"); n != 1 {
			t.Errorf("%v steps found no one", n)
		}
	})
}

// TestEscalatedDelivery: what a delivery knows of its escalation is stored, also in a dead letter.
func TestEscalatedDelivery(t *testing.T) {
	dl := incident("mail", 1, "srv")
	dl.Escalation, dl.Step, dl.Contact = "page", 3, "alice"
	got, err := decodeDelivery(resource.Name{Namespace: "default", Name: "mail"}, 0, position{1, 1}, appendDelivery(nil, dl))
	if err != nil || got.Header != dl.Header {
		t.Errorf("read %+v (%v), want %+v", got, err, dl)
	}
	dead, err := decodeLetter(letterKey("default", letterID(dl)), encodeLetter(dl, progress{attempts: 2}, 7, "no", ""))
	if err != nil || dead.dl.Header != dl.Header {
		t.Errorf("read %+v (%v)", dead, err)
	}
}

// TestClimb: what an escalation has done is stored. Earlier releases read what they know of it, and their files are read.
func TestClimb(t *testing.T) {
	c := &climb{1, 2, 3, []recipient{
		{Recipient: oncall.Recipient{Contact: "alice", Rota: "ops", Handler: "mail"}, step: 3, at: 7, fate: failed, reached: true, reason: "no"},
		{Recipient: oncall.Recipient{Handler: "chat"}, step: 2},
	}, "silenced by x", "there is no contact zoe", []recipient{
		{Recipient: oncall.Recipient{Contact: "alice", Handler: "mail"}, step: 1, at: 5}, {Recipient: oncall.Recipient{Handler: "chat"}, step: 1, fate: arrived},
	}}
	got, err := decodeProgress(progress{attempts: 1, first: 2, due: 3, climb: c}.encode())
	if err != nil || !reflect.DeepEqual(got.climb, c) || got.due != 3 {
		t.Errorf("read %+v (%v)", got.climb, err)
	}
	b := []byte{1, 4, 6, 1, 2, 3, 2} // as an earlier release wrote it
	b = fields.AppendBytes(fields.AppendBytes(b, "alice/mail"), "/chat")
	if whole := (progress{attempts: 1, first: 2, due: 3, climb: c}).encode(); !bytes.HasPrefix(whole, b) {
		t.Errorf("earlier releases cannot read %q", whole)
	}
	got, err = decodeProgress(b)
	if err != nil || got.climb == nil || got.climb.taken != 3 || len(got.climb.notified) != 2 || got.climb.notified[1].Handler != "chat" {
		t.Fatalf("read %+v (%v)", got.climb, err)
	}
	if reached, sending, missed := got.climb.names(); !slices.Equal(reached, []string{"alice", "chat"}) || sending != nil || missed != nil {
		t.Errorf("an earlier release reached %q, and not %q, %q", reached, sending, missed)
	}
}

// failing makes the deliveries of some handlers fail for good, until they are to go through.
func (l *ladder) failing(handlers ...string) {
	sends := l.send
	l.send = func(ctx context.Context, h *resource.Handler, dl *delivery.Delivery, job send.Job) send.Result {
		res := sends(ctx, h, dl, job)
		if slices.Contains(handlers, dl.Handler) {
			return send.Result{Err: errors.New("no STARTTLS")}
		}
		return res
	}
}

// TestStepFails: when all deliveries of a step have failed, the next step comes at once, and the escalation says whom it
// reached. One delivery that got through is enough to wait.
func TestStepFails(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		def := escalation()
		def.Escalation.Repeat = 0
		l := climbing(t, db, def)
		l.failing("mail")
		l.world.set("srv", 2)
		l.Dispatch(incident("page", 1, "srv"))
		wantSent(t, "both steps", l.after(2*time.Second), "0s 0-1-1/page/1/alice/mail", "0s 0-1-1/page/2//chat", "0s 0-1-1/page/2/bob/mail")
		tr := l.traces.of("0-1-1/page")
		if want := "step 2 of 2 reached chat: bob by mail (rota ops) failed: no STARTTLS; it has told chat, and no step follows"; tr.Reason != want {
			t.Errorf("the trace says %q, want %q", tr.Reason, want)
		}
		var verdicts []string
		for _, st := range tr.Steps {
			verdicts = append(verdicts, st.Name+" "+st.Verdict+": "+st.Error)
		}
		if want := []string{"step 1 error: alice by mail failed: no STARTTLS", "step 2 pass: bob by mail (rota ops) failed: no STARTTLS"}; !slices.Equal(verdicts, want) {
			t.Errorf("the steps are %q", verdicts)
		}
		list, _, err := l.Escalations("", "", "", 10)
		if err != nil || len(list) != 1 || !slices.Equal(list[0].Notified, []string{"chat"}) || !slices.Equal(list[0].Failed, []string{"alice", "bob"}) {
			t.Errorf("the list is %+v (%v)", list, err)
		}
		l.world.set("srv", 0)
		l.Dispatch(resolution("page", 2, "srv"))
		l.after(time.Second)
		tr = l.traces.of("0-1-1/page")
		if want := "after 2 steps: resolved; told chat; it failed to reach alice, bob"; tr.Verdict != trace.Delivered || tr.Reason != want {
			t.Errorf("the trace is %+v", tr)
		}
		l.flush(t, 0)
		for _, key := range stored(t, db) {
			if !strings.HasPrefix(key, "dx") && !strings.Contains(key, "dx") {
				t.Errorf("left in the database: %q", key)
			}
		}
	})
}

// TestNoStepReaches: an escalation all of whose deliveries fail has alerted no one, also when it is over.
func TestNoStepReaches(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		def := escalation()
		def.Escalation.Repeat = 0
		l := climbing(t, db, def)
		l.failing("mail", "chat")
		l.world.set("srv", 2)
		l.Dispatch(incident("page", 1, "srv"))
		l.after(2 * time.Second)
		if tr := l.traces.of("0-1-1/page"); !strings.HasSuffix(tr.Reason, "; no one was reached, and no step follows") ||
			l.metric(t, "lapwing_handler_escalation_gave_up", "no_one") != 1 || l.metric(t, "lapwing_handler_escalations_given_up", "page") != 1 ||
			slices.ContainsFunc(tr.Steps, func(s trace.Step) bool { return s.Verdict != trace.Error }) {
			t.Errorf("the trace is %+v", tr)
		}
		l.world.set("srv", 0)
		l.Dispatch(resolution("page", 2, "srv"))
		l.after(time.Second)
		if n := l.metric(t, "lapwing_handler_escalations_given_up", "page"); n != 0 {
			t.Errorf("%v escalations have given up behind the resolution", n)
		}
		const want = "after 2 steps: resolved; no one was reached; it failed to reach alice, bob, chat: alice by mail failed: no STARTTLS; " +
			"bob by mail (rota ops) failed: no STARTTLS; chat failed: no STARTTLS"
		if tr := l.traces.of("0-1-1/page"); tr.Verdict != trace.Dropped || tr.Reason != want {
			t.Errorf("the trace is %+v", tr)
		}
	})
}

// wantTries checks the only delivery of the only escalation that is tried again, also at a backend that sends nothing: that
// knows what the log has.
func (l *ladder) wantTries(t *testing.T, want resource.EscalationTry) {
	t.Helper()
	opts := l.opts
	opts.Registerer = prometheus.NewRegistry()
	other, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []*Dispatcher{l.Dispatcher, other} {
		list, _, err := d.Escalations("", "", "", 10)
		if err != nil || len(list) != 1 || !slices.Equal(list[0].Sending, []string{want.Contact}) ||
			!slices.Equal(list[0].Tries, []resource.EscalationTry{want}) {
			t.Errorf("the list is %+v (%v)", list, err)
		}
		want.Error = ""
	}
}

// TestStepFailsLater: a step whose deliveries are tried again waits for them; the next step comes when the last attempt has
// failed, also behind a restart.
func TestStepFailsLater(t *testing.T) {
	for _, restart := range []bool{false, true} {
		fakeTime(t, func(t *testing.T, db *pebble.DB) {
			def := escalation()
			begin := time.Now()
			var all []string
			world := new(present)
			world.set("srv", 2)
			start := func() *ladder {
				return climbingWith(t, db, def, func(job send.Job) send.Result {
					if job.Contact.Name == "alice" {
						return send.Result{Err: errors.New("refused"), Temporary: time.Since(begin) < time.Minute}
					}
					return send.Result{Kind: send.KindOK}
				}, seeing(world))
			}
			l := start()
			l.Dispatch(incident("page", 1, "srv"))
			l.after(40 * time.Second)
			l.wantTries(t, resource.EscalationTry{Contact: "alice", Handler: "mail", Attempts: 16, Error: "refused", Next: begin.UnixMilli() + 65_735})
			if tr := l.traces.of("0-1-1/page"); !strings.HasPrefix(tr.Reason, "step 1 of 2 notifies alice by mail; step 2 follows at 2000-01-01T00:10:00Z") ||
				tr.Steps[0].Verdict != "" {
				t.Errorf("the trace is %+v", tr)
			}
			if restart {
				l.flush(t, 0)
				if err := l.Stop(); err != nil {
					t.Fatal(err)
				}
				l = start()
				synctest.Wait()
				l.wantTries(t, resource.EscalationTry{Contact: "alice", Handler: "mail", Attempts: 16, Next: begin.UnixMilli() + 65_735})
			}
			for _, one := range l.after(3 * time.Minute) {
				_, id, _ := strings.Cut(one, " ")
				all = append(all, id)
			}
			if count := len(slices.DeleteFunc(slices.Clone(all), func(id string) bool { return id != "0-1-1/page/2/bob/mail" })); count != 1 {
				t.Errorf("restart %v: step 2 was sent %d times in 3 minutes: %q", restart, count, all)
			}
		})
	}
}

// TestStepReachesLater: a step whose deliveries get through after some attempts says whom it reached, also if a later step has
// notified the same contacts meanwhile, and behind a restart.
func TestStepReachesLater(t *testing.T) {
	for _, restart := range []bool{false, true} {
		fakeTime(t, func(t *testing.T, db *pebble.DB) {
			def := escalation()
			def.Escalation.RepeatAfter = 30
			def.Escalation.Steps = []resource.EscalationStep{{Notify: []resource.EscalationTarget{{Contact: "alice"}, {Handler: "chat"}}}}
			begin := time.Now()
			world, told := new(present), new(traces)
			world.set("srv", 2)
			start := func() *ladder {
				return climbingWith(t, db, def, func(send.Job) send.Result {
					if time.Since(begin) < time.Minute {
						return send.Result{Err: errors.New("refused"), Temporary: true}
					}
					return send.Result{Kind: send.KindOK}
				}, seeing(world), func(o *Options) { o.Trace, o.Backoff = told.record, 10*time.Second })
			}
			steps := func(names ...string) {
				t.Helper()
				var got []string
				for _, st := range told.of("0-1-1/page").Steps {
					text := st.Name + " at " + time.UnixMilli(st.At).Sub(begin).Round(time.Second).String()
					for _, saw := range st.Saw {
						text += ", " + saw.Name + " " + saw.Value
					}
					got = append(got, text)
				}
				if !slices.Equal(got, names) {
					t.Errorf("restart %v: the steps are %q, want %q", restart, got, names)
				}
			}
			l := start()
			l.Dispatch(incident("page", 1, "srv"))
			l.after(40 * time.Second)
			steps("step 1 at 0s, notifies alice by mail, chat", "step 2 at 30s, notifies alice by mail, chat")
			if restart {
				l.flush(t, 0)
				if err := l.Stop(); err != nil {
					t.Fatal(err)
				}
				l = start()
			}
			l.after(2 * time.Minute)
			steps("step 1 at 0s, reached alice by mail, chat", "step 2 at 30s, reached alice by mail, chat")
		})
	}
}

// TestDeletedHandlerTakesNoStep: an escalation whose handler is deleted says so before it ends.
func TestDeletedHandlerTakesNoStep(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		l := climbing(t, db, escalation())
		l.world.set("srv", 2)
		l.Dispatch(incident("page", 1, "srv"))
		l.after(time.Minute)
		l.handlers.delete("default", "page")
		list, _, err := l.Escalations("", "", "", 10)
		if err != nil || len(list) != 1 || list[0].Held != "the handler is deleted, and no step follows" || list[0].Next != 0 {
			t.Errorf("the list is %+v (%v)", list, err)
		}
		wantSent(t, "later", l.after(time.Hour))
		if list, _, err := l.Escalations("", "", "", 10); err != nil || len(list) > 0 {
			t.Errorf("the list is %+v (%v)", list, err)
		}
	})
}

// TestContactsDoNotWait: while the delivery to a contact is tried again, the next step reaches another one by the same handler,
// and the trace has the deliveries that wait behind the first one.
func TestContactsDoNotWait(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		l := climbingWith(t, db, escalation(), func(job send.Job) send.Result {
			if job.Contact.Name == "alice" {
				return send.Result{Err: errors.New("mailbox is full"), Temporary: true}
			}
			return send.Result{Kind: send.KindOK}
		})
		l.world.set("srv", 2)
		l.Dispatch(incident("page", 1, "srv"))
		sent := slices.DeleteFunc(l.after(15*time.Minute), func(one string) bool { return strings.Contains(one, "alice") })
		wantSent(t, "the second step", sent, "10m0s 0-1-1/page/2//chat", "10m0s 0-1-1/page/2/bob/mail")
		l.world.set("srv", 0)
		l.Dispatch(resolution("page", 2, "srv"))
		l.after(time.Second)
		if behind := l.Queued("default", "srv", "cpu", 10); len(behind) != 1 || behind[0].ID != "0-2-1/page/resolved/alice/mail" {
			t.Errorf("behind: %+v", behind)
		}
	})
}

// TestReachedAfterTheEnd: an escalation that is over while its deliveries are tried again has alerted when they get through,
// and not before.
func TestReachedAfterTheEnd(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		def := escalation()
		def.Escalation.Steps = []resource.EscalationStep{{Notify: []resource.EscalationTarget{{Contact: "alice"}, {Handler: "chat"}}}}
		begin := time.Now()
		l := climbingWith(t, db, def, func(send.Job) send.Result {
			if time.Since(begin) < 5*time.Minute {
				return send.Result{Err: errors.New("451 try later"), Temporary: true}
			}
			return send.Result{Kind: send.KindOK}
		}, func(o *Options) { o.Backoff = time.Minute })
		l.world.set("srv", 2)
		l.Dispatch(incident("page", 1, "srv"))
		l.after(2 * time.Minute)
		l.world.set("srv", 0)
		l.Dispatch(resolution("page", 2, "srv"))
		told := func() trace.Delivery {
			l.after(time.Second)
			list := []trace.Delivery{l.traces.of("0-1-1/page"), l.traces.of("0-1-1/page/1/alice/mail"), l.traces.of("0-1-1/page/1//chat")}
			trace.Escalated(list)
			return list[0]
		}
		const over = "after 1 step: resolved; no one was reached yet; under way to alice, chat"
		if tr := told(); tr.Verdict != trace.Dropped || tr.Reason != over || tr.Steps[0].Reached != 0 {
			t.Errorf("when it is over: %+v", tr)
		}
		l.after(time.Hour)
		tr := told()
		if tr.Verdict != trace.Delivered || !strings.HasPrefix(tr.Reason, over+"; got through since: ") || tr.Steps[0].Verdict != trace.Pass ||
			tr.Steps[0].Reached < begin.Add(5*time.Minute).UnixMilli() {
			t.Errorf("when it got through: %+v", tr)
		}
	})
}

// TestHoldThatIsOver: the end of an escalation does not name a hold that was over before.
func TestHoldThatIsOver(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		def := escalation()
		def.Escalation.Steps = []resource.EscalationStep{{After: 60, Notify: []resource.EscalationTarget{{Contact: "zoe"}}}}
		l := climbing(t, db, def)
		for _, entity := range []string{"noone", "early"} {
			l.world.set(entity, 2, "ack")
		}
		l.Dispatch(incident("page", 1, "noone"))
		l.after(90 * time.Second)
		l.world.set("noone", 2)
		l.after(time.Hour)
		if list, _, err := l.Escalations("", "", "", 10); err != nil || len(list) != 1 || list[0].Steps != 2 || list[0].Held != "" {
			t.Errorf("the list is %+v (%v)", list, err)
		}
		l.Dispatch(incident("page", 2, "early"))
		l.after(time.Second)
		l.world.set("early", 2)
		l.Dispatch(incident("page", 3, "early")) // it looks, and its step is due later
		l.after(time.Second)
		for i, entity := range []string{"noone", "early"} {
			l.world.set(entity, 0)
			l.Dispatch(resolution("page", 4+i, entity))
		}
		l.after(time.Second)
		for id, want := range map[string]string{
			"0-1-1/page": "after 2 steps: resolved; no one was reached: there is no contact zoe",
			"0-2-1/page": "resolved before anyone was notified",
		} {
			if tr := l.traces.of(id); tr.Reason != want {
				t.Errorf("%s: %q, want %q", id, tr.Reason, want)
			}
		}
	})
}

// TestHoldOutlivesRestart: an escalation knows after a restart what held it.
func TestHoldOutlivesRestart(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		world := new(present)
		world.set("srv", 2, "ack")
		for i := range 2 {
			l := climbing(t, db, escalation(), seeing(world))
			if i == 0 {
				l.Dispatch(incident("page", 1, "srv"))
				l.after(time.Second)
				l.flush(t, 0)
				if err := l.Stop(); err != nil {
					t.Fatal(err)
				}
				continue
			}
			world.set("srv", 0)
			l.Dispatch(resolution("page", 2, "srv"))
			l.after(time.Second)
			if tr := l.traces.of("0-1-1/page"); tr.Reason != "resolved before anyone was notified; it waited: acknowledged by carol" {
				t.Errorf("the trace is %+v", tr)
			}
		}
	})
}

// TestAddress: the handler of a contact gets the contact's annotations, and the event stays as it is.
func TestAddress(t *testing.T) {
	h := newHandlers()
	define(h, config.Contacts, &resource.Contact{Metadata: resource.ObjectMeta{Namespace: "default", Name: "alice", Annotations: map[string]string{
		"sensu.io/plugins/email/config/to-email": "alice@example.org", "lapwing.io/last-applied": "{}",
	}}, Email: "alice@example.org", Handlers: []string{"mail"}})
	d := &Dispatcher{opts: Options{OnCall: oncall.New(h.snapshot, calendar.New(nil)),
		AcknowledgeURL: func(dl *delivery.Delivery, _ *resource.Event) (string, error) { return "https://x/" + dl.Contact, nil }}}
	dl := incident("mail", 1, "srv")
	ev := event("srv", "")
	if got, to := d.address(dl, ev); got != ev || to != (send.Contact{}) {
		t.Errorf("a delivery without a contact: %+v, %+v", got, to)
	}
	dl.Escalation, dl.Step, dl.Contact = "page", 1, "alice"
	got, to := d.address(dl, ev)
	if want := (send.Contact{Name: "alice", Email: "alice@example.org", Escalation: "page", Step: 1, AcknowledgeURL: "https://x/alice"}); to != want {
		t.Errorf("the contact is %+v", to)
	}
	a := got.Check.Metadata.Annotations
	if len(a) != 6 || a["sensu.io/plugins/email/config/to-email"] == "" || a["lapwing.io/contact"] != "alice" || a["lapwing.io/escalation-step"] != "1" {
		t.Errorf("the annotations are %v", a)
	}
	if len(ev.Check.Metadata.Annotations) > 0 {
		t.Errorf("the event has %v", ev.Check.Metadata.Annotations)
	}
	dl.Step = 0
	if _, to := d.address(dl, ev); to.AcknowledgeURL != "" {
		t.Errorf("a resolution has the link %s", to.AcknowledgeURL)
	}
}

// relay is the log of two members: what the owner appends, both fold. The owner dies at an append, before or after the log
// has it.
type relay struct {
	mu      sync.Mutex
	members [2]*Dispatcher
	seq     uint64
	appends int
	dies    int         // at this append
	has     bool        // the log has that append
	dead    atomic.Bool // read without mu: members ask with a lock that they need for what is appended
}

// relayEnd is one member's end of a relay.
type relayEnd struct {
	*relay
	first bool
}

func (r *relayEnd) Partition(string, string) int { return 0 }

func (r *relayEnd) AppendTo(ctx context.Context, partition int, rec *eventlog.Record, acker eventlog.Acker, token uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first && r.dead.Load() {
		return eventlog.ErrClosed
	}
	if r.appends++; r.first && r.appends == r.dies {
		r.dead.Store(true)
		if !r.has {
			return eventlog.ErrClosed
		}
	}
	r.seq++
	for i, m := range r.members {
		if i == 0 && r.dead.Load() {
			continue
		}
		if _, err := m.Fold(partition, r.seq, 1, rec.Body, nil); err != nil {
			return err
		}
	}
	if acker != nil && !(r.first && r.dead.Load()) {
		acker.Logged(token, partition, 1, nil)
	}
	return nil
}

// TestEscalationTakeover: the owner dies at each of its appends, and the other member goes on: each step is taken at its
// time, and what is sent again has the same ID. If the first step fails, the second one comes at once.
func TestEscalationTakeover(t *testing.T) {
	for dies := 1; dies <= 4; dies++ {
		for _, has := range []bool{false, true} {
			for _, fails := range []bool{false, true} {
				t.Run(fmt.Sprintf("append %d %v %v", dies, has, fails), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { takeOverEscalation(t, dies, has, fails) })
				})
			}
		}
	}
}

func takeOverEscalation(t *testing.T, dies int, has, fails bool) {
	h := newHandlers(escalation(), hook("mail"), hook("chat"))
	define(h, config.Contacts, &resource.Contact{Metadata: meta("alice"), Handlers: []string{"mail"}})
	define(h, config.Contacts, &resource.Contact{Metadata: meta("bob"), Handlers: []string{"mail"}})
	define(h, config.Rotas, &resource.Rota{Metadata: meta("ops"), Contacts: []string{"bob"}, Start: "2000-01-01T00:00", Shift: 86400})
	world := new(present)
	world.set("srv", 2)
	log := &relay{dies: dies, has: has}
	begin := time.Now()
	var mu sync.Mutex
	sent := map[string][]time.Duration{}
	for i := range log.members {
		db := openDB(t, "db", vfs.NewMem())
		alive := func() bool { return i == 1 || !log.dead.Load() }
		d, err := New(Options{
			DB: db, Config: h.snapshot, Workflows: newWorkflows(t, h), Backoff: time.Second, Log: &relayEnd{log, i == 0}, Origin: fmt.Sprint(i),
			StopTimeout: time.Millisecond, MayRun: alive, Present: world.Event, OnCall: oncall.New(h.snapshot, calendar.New(nil)),
			Sender: newSender(t, func(_ context.Context, _ *resource.Handler, dl *delivery.Delivery, job send.Job) send.Result {
				mu.Lock()
				defer mu.Unlock()
				sent[dl.ID] = append(sent[dl.ID], time.Since(begin).Round(time.Second))
				if fails && job.Contact.Name == "alice" {
					return send.Result{Err: errors.New("refused")}
				}
				return send.Result{Kind: send.KindOK}
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		log.members[i] = d
		if err := d.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := errors.Join(d.Stop(), db.Close()); err != nil {
				t.Error(err)
			}
		}()
	}
	owner, next := log.members[0], log.members[1]
	if err := owner.Own(0, 0); err != nil {
		t.Fatal(err)
	}
	owner.Dispatch(incident("page", 1, "srv"))
	owner.Routed(0, 1)
	took := false
	for range 900 { // 15 minutes, and the other member notices within a second
		time.Sleep(time.Second) // the bubble's time
		synctest.Wait()
		dead := log.dead.Load()
		if dead && !took {
			took = true
			if err := next.Own(0, 0); err != nil {
				t.Fatal(err)
			}
			next.Dispatch(incident("page", 1, "srv"))
			next.Routed(0, 1)
		}
	}
	if !took {
		t.Fatalf("the owner made %d appends only", log.appends)
	}
	mu.Lock()
	defer mu.Unlock()
	second := 10 * time.Minute
	if fails {
		second = 0
	}
	want := map[string]time.Duration{"0-1-1/page/1/alice/mail": 0, "0-1-1/page/2/bob/mail": second, "0-1-1/page/2//chat": second}
	for id, at := range want {
		times := sent[id]
		if len(times) == 0 || len(times) > 2 || times[0] < at || times[len(times)-1] > at+2*time.Second {
			t.Errorf("%s went out at %v, want %v, and at most once again", id, times, at)
		}
	}
	if len(sent) != len(want) {
		t.Errorf("sent %v", sent)
	}
}
