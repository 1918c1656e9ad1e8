package handler

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/calendar"
	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/oncall"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// redrive redrives dead letters of the namespace default, and returns how many were queued.
func (b *bundle) redrive(t *testing.T, choice delivery.Redrive) (int, error) {
	choice.Namespace = "default"
	done, err := b.Redrive(t.Context(), choice)
	return done.Count, err
}

// redriven redrives dead letters of the namespace default, and compares the answer, the error, and the IDs of the letters in
// the answer with want. The test ends if they differ: it would wait for more than comes.
func (b *bundle) redriven(t *testing.T, choice delivery.Redrive, want string) {
	t.Helper()
	choice.Namespace = "default"
	got, err := b.Redrive(t.Context(), choice)
	var ids []string
	for _, l := range got.Letters {
		ids = append(ids, l.ID)
	}
	got.Letters = nil
	if got := fmt.Sprint(got, err, ids); got != want {
		t.Fatalf("%+v: %s, want %s", choice, got, want)
	}
}

// TestRedriveOrder: dead letters of a check are sent in the order of their events, also if they died again. The
// order of their keys does not count.
func TestRedriveOrder(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		b := setup(t, Options{DB: db}, hook("a"))
		good := false
		a := b.attempts(func(*delivery.Delivery, int) send.Result {
			if good {
				return send.Result{Kind: send.KindOK}
			}
			return never
		})
		b.start(t)
		var want []string
		for i := 8; i < 12; i++ { // their keys begin with 0-10, 0-11, 0-8, 0-9
			dl := incident("a", i, "e")
			want = append(want, dl.ID)
			b.Dispatch(dl)
		}
		b.finished.wait(4)
		b.flush(t, 0)
		if n, err := b.redrive(t, delivery.Redrive{IDs: []string{"0-9-1.a", "0-8-1.a", "0-8-1.a"}}); n != 2 || err != nil {
			t.Fatalf("queued %d, %v", n, err)
		}
		b.finished.wait(6)
		b.flush(t, 0)
		if got := a.order[4:]; !slices.Equal(got, want[:2]) {
			t.Errorf("of some it sent %v, want %v", got, want[:2])
		}
		good = true
		if n, err := b.redrive(t, delivery.Redrive{Handler: "a"}); n != 4 || err != nil {
			t.Fatalf("queued %d, %v", n, err)
		}
		b.finished.wait(10)
		if got := a.order[6:]; !slices.Equal(got, want) {
			t.Errorf("sent %v, want %v", got, want)
		}
	})
}

// TestRedriveOfADeletedHandler: its dead letters stay.
func TestRedriveOfADeletedHandler(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		b := setup(t, Options{DB: db}, hook("a"), hook("b"))
		b.attempts(func(*delivery.Delivery, int) send.Result { return never })
		b.start(t)
		for i := range 3 {
			b.Dispatch(incident("a", 2*i+1, fmt.Sprint("e", i)))
			b.Dispatch(incident("b", 2*i+2, fmt.Sprint("e", i)))
		}
		b.finished.wait(6)
		b.flush(t, 0)
		b.handlers.delete("default", "a")
		b.attempts(nil)
		if n := b.metric(t, "lapwing_handler_dead_letters_without_handler", "a"); n != 3 {
			t.Errorf("%v of a are counted", n)
		}
		if n := b.metric(t, "lapwing_handler_dead_letters_without_handler", "b"); n != 0 {
			t.Errorf("%v of b are counted", n)
		}
		want := "{0 0 0 0 3 [a] []} <nil>"
		if got, err := b.Redrive(t.Context(), delivery.Redrive{Namespace: "default", Handler: "a"}); fmt.Sprint(got, err) != want {
			t.Errorf("of the deleted one: %v %v, want %s", got, err, want)
		}
		want = "{3 0 3 0 3 [a] []} <nil>" // no event fails
		if got, err := b.Redrive(t.Context(), delivery.Redrive{}); fmt.Sprint(got, err) != want {
			t.Errorf("of all: %v %v, want %s", got, err, want)
		}
		b.finished.wait(9)
		b.flush(t, 0)
		letters, _, err := b.DeadLetters("", "", "", 100)
		if err != nil || len(letters) != 3 || letters[0].Handler != "a" {
			t.Fatalf("left are %+v, %v", letters, err)
		}
		b.handlers.put(hook("a"))
		if n, err := b.redrive(t, delivery.Redrive{Handler: "a"}); n != 3 || err != nil {
			t.Errorf("defined again: %d, %v", n, err)
		}
		b.finished.wait(12)
	})
}

// TestRedriveOfPastIncidents: incidents of checks that pass by now, or are deleted, are counted and can be left out.
// Resolutions are not.
func TestRedriveOfPastIncidents(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		world := new(present)
		h := newHandlers(hook("a"))
		b := setup(t, Options{DB: db, Present: world.Event, OnCall: oncall.New(h.snapshot, calendar.New(nil))}, hook("a"))
		a := b.attempts(func(*delivery.Delivery, int) send.Result { return never })
		b.start(t)
		for i, entity := range []string{"fails", "passes", "gone"} {
			b.Dispatch(incident("a", i+1, entity))
		}
		b.Dispatch(resolution("a", 4, "passes"))
		b.finished.wait(4)
		b.flush(t, 0)
		world.set("fails", 1)
		world.set("passes", 0)
		for _, tc := range []struct {
			choice delivery.Redrive
			want   string
		}{
			{delivery.Redrive{DryRun: true}, "{4 1 2 0 0 [] []} <nil> [0-1-1.a 0-2-1.a 0-3-1.a 0-4-1.a]"},
			{delivery.Redrive{DryRun: true, FailingOnly: true}, "{2 1 2 0 0 [] []} <nil> [0-1-1.a 0-4-1.a]"},
			{delivery.Redrive{DryRun: true, IDs: []string{"0-2-1.a", "0-2-1.a", "none"}}, "{1 0 1 0 0 [] []} <nil> [0-2-1.a]"},
			{delivery.Redrive{FailingOnly: true}, "{2 1 2 0 0 [] []} <nil> []"},
		} {
			b.redriven(t, tc.choice, tc.want)
		}
		b.finished.wait(6)
		if got := a.order[4:]; !slices.Contains(got, "0-1-1/a") || !slices.Contains(got, "0-4-1/a") {
			t.Errorf("sent %v, want the incident that lasts and the resolution", got)
		}
	})
}

// TestRedriveOfEarlierIncidents: what is of an incident before the present one is left out as what has passed is.
func TestRedriveOfEarlierIncidents(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		world := new(present)
		h := newHandlers(hook("a"))
		b := setup(t, Options{DB: db, Present: world.Event, OnCall: oncall.New(h.snapshot, calendar.New(nil))}, hook("a"))
		b.attempts(func(*delivery.Delivery, int) send.Result { return never })
		b.start(t)
		at := func(dl *delivery.Delivery, executed int64) {
			ev := new(resource.Event)
			if err := ev.UnmarshalProto(dl.Event); err != nil {
				t.Fatal(err)
			}
			ev.Check.Executed = executed
			dl.Event = ev.AppendProto(nil)
			b.Dispatch(dl)
		}
		at(incident("a", 1, "e"), 100)
		at(resolution("a", 2, "e"), 150)
		at(incident("a", 3, "e"), 200)
		at(incident("a", 4, "e"), 0) // of a program that says no time
		b.finished.wait(4)
		b.flush(t, 0)
		world.set("e", 2)
		world.events["e"].Check.LastOK = 150
		b.redriven(t, delivery.Redrive{DryRun: true}, "{4 1 2 0 0 [] []} <nil> [0-1-1.a 0-2-1.a 0-3-1.a 0-4-1.a]")
		b.redriven(t, delivery.Redrive{DryRun: true, FailingOnly: true}, "{2 0 2 0 0 [] []} <nil> [0-3-1.a 0-4-1.a]")
		world.events["e"].Check.LastOK = 0
		b.redriven(t, delivery.Redrive{DryRun: true, FailingOnly: true}, "{3 0 1 0 0 [] []} <nil> [0-1-1.a 0-3-1.a 0-4-1.a]")
	})
}

// TestRedriveOfTheNewest: of several dead letters of a check, a handler and a contact the newest is sent, also if an older
// one died once more in the meantime. The others stay.
func TestRedriveOfTheNewest(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		world := new(present)
		h := newHandlers(hook("a"), hook("b"))
		b := setup(t, Options{DB: db, Present: world.Event, OnCall: oncall.New(h.snapshot, calendar.New(nil))}, hook("a"), hook("b"))
		a := b.attempts(func(*delivery.Delivery, int) send.Result { return never })
		b.start(t)
		world.set("e", 2)
		world.set("passes", 0)
		for i := 8; i < 11; i++ { // their keys begin with 0-10, 0-8, 0-9
			b.Dispatch(incident("a", i, "e"))
		}
		b.Dispatch(incident("b", 11, "e"))
		b.Dispatch(resolution("a", 12, "passes"))
		b.Dispatch(incident("a", 13, "passes"))
		for step, contact := range []string{"alice", "bob", "alice"} { // steps of one incident
			dl := incident("b", 14, "paged")
			dl.Sub, dl.Escalation, dl.Step, dl.Contact = 10+step, "page", step+1, contact
			dl.ID = fmt.Sprint(dl.ID, step)
			b.Dispatch(dl)
		}
		b.finished.wait(9)
		b.flush(t, 0)
		if n, err := b.redrive(t, delivery.Redrive{IDs: []string{"0-8-1.a"}}); n != 1 || err != nil { // and it dies again
			t.Fatalf("queued %d, %v", n, err)
		}
		b.finished.wait(10)
		b.flush(t, 0)
		before := len(a.order)
		for _, tc := range []struct {
			choice delivery.Redrive
			want   string
		}{
			{delivery.Redrive{DryRun: true, Handler: "b"}, "{4 0 3 0 0 [] []} <nil> [0-11-1.b 0-14-10.b 0-14-11.b 0-14-12.b]"},
			{delivery.Redrive{DryRun: true, Newest: true}, "{5 0 3 4 0 [] []} <nil> [0-10-1.a 0-11-1.b 0-13-1.a 0-14-11.b 0-14-12.b]"},
			{delivery.Redrive{DryRun: true, Newest: true, Handler: "b"}, "{3 0 2 1 0 [] []} <nil> [0-11-1.b 0-14-11.b 0-14-12.b]"},
			{delivery.Redrive{DryRun: true, Newest: true, IDs: []string{"0-9-1.a", "0-11-1.b"}}, "{2 0 0 0 0 [] []} <nil> [0-9-1.a 0-11-1.b]"},
			{delivery.Redrive{Newest: true, FailingOnly: true}, "{3 1 4 2 0 [] []} <nil> []"}, // the resolution is older than what has passed
		} {
			b.redriven(t, tc.choice, tc.want)
		}
		b.finished.wait(13)
		b.flush(t, 0)
		if got, want := slices.Sorted(slices.Values(a.order[before:])), []string{"0-10-1/a", "0-11-1/b", "0-12-1/a"}; !slices.Equal(got, want) {
			t.Errorf("sent %v, want %v", got, want)
		}
		letters, _, err := b.DeadLetters("", "", "", 100)
		if err != nil || len(letters) != 9 {
			t.Errorf("%d dead letters, want all 9: %v", len(letters), err)
		}
	})
}

// TestDryRunsOfManyLetters: dry runs count all dead letters, and answer the first of them.
func TestDryRunsOfManyLetters(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		b := setup(t, Options{DB: db}, hook("a"))
		b.attempts(func(*delivery.Delivery, int) send.Result { return never })
		b.start(t)
		const count = shownLetters + 5
		for i := range count {
			b.Dispatch(incident("a", i+1, fmt.Sprint("e", i)))
		}
		b.finished.wait(count)
		b.flush(t, 0)
		would, err := b.Redrive(t.Context(), delivery.Redrive{Namespace: "default", DryRun: true})
		if err != nil || would.Count != count || len(would.Letters) != shownLetters || would.Letters[shownLetters-1].Entity != "e19" {
			t.Errorf("of sending: %+v, %v", would, err)
		}
		n, first, err := b.CountDeadLetters(t.Context(), "", nil, "a")
		if err != nil || n != count || len(first) != shownLetters {
			t.Errorf("of deleting: %d, %d shown, %v", n, len(first), err)
		}
	})
}
