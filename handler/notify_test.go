package handler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/notification"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// notifications collects what Notify gets.
type notifications struct {
	mu  sync.Mutex
	all []*notification.Notification
}

func (n *notifications) record(one *notification.Notification) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, one)
}

func (n *notifications) results() (out []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, one := range n.all {
		out = append(out, fmt.Sprintf("%s %s %d %t", one.ID, one.Result, one.Attempt, one.Final))
	}
	return out
}

// TestNotifyEachAttempt: n attempts are n notifications, and only the last one is final.
func TestNotifyEachAttempt(t *testing.T) {
	var sent notifications
	h := pipe("a", "/usr/bin/page ops")
	h.Retry = &resource.HandlerRetry{MaxAttempts: 3}
	b := setup(t, Options{Notify: sent.record}, h)
	b.send = func(_ context.Context, _ *resource.Handler, dl *delivery.Delivery, job send.Job) send.Result {
		if dl.Entity == "e1" || job.Attempt < 3 {
			return send.Result{Err: errors.New("busy"), Temporary: true, Status: 75, Output: []byte("later")}
		}
		return send.Result{}
	}
	b.start(t)
	b.Dispatch(incident("a", 1, "e1"))
	b.finished.wait(1)
	b.Dispatch(incident("a", 2, "e2"))
	b.finished.wait(2)
	want := []string{"0-1-1/a error 1 false", "0-1-1/a error 2 false", "0-1-1/a error 3 true",
		"0-2-1/a error 1 false", "0-2-1/a error 2 false", "0-2-1/a ok 3 true"}
	if got := sent.results(); !slices.Equal(got, want) {
		t.Errorf("notifications %q, want %q", got, want)
	}
	n := sent.all[0]
	if n.Entity != "e1" || n.Type != "pipe" || !slices.Equal(n.Recipients, []string{"/usr/bin/page"}) || n.Error != "busy" ||
		n.Output != "later" || !n.Incident || n.Status != 2 || n.EventID != "0-1-1" || n.At == 0 || n.Events != 1 {
		t.Errorf("notification %+v", n)
	}
}

// TestNotifyGroup: a group is one notification for each attempt, and names its members.
func TestNotifyGroup(t *testing.T) {
	var sent notifications
	h := pipe("a", "page")
	h.Group = &resource.HandlerGroup{By: []string{"event.entity.labels.rack"}, Wait: 1}
	b := setup(t, Options{Notify: sent.record}, h)
	b.start(t)
	for i := range 3 {
		b.Dispatch(incident("a", i+1, fmt.Sprint("r1-", i)))
	}
	b.finished.wait(3)
	if len(sent.all) != 1 {
		t.Fatalf("notifications %q, want one", sent.results())
	}
	n := sent.all[0]
	var members []string
	for _, m := range n.Merged {
		members = append(members, m.ID+" "+m.Entity)
	}
	if want := []string{"0-1-1/a r1-0", "0-2-1/a r1-1", "0-3-1/a r1-2"}; n.Events != 3 || !slices.Equal(members, want) {
		t.Errorf("%d events, %q, want %q", n.Events, members, want)
	}
	if !strings.Contains(n.ID, "/group-") || n.Result != "ok" || !n.Final || n.Attempt != 1 {
		t.Errorf("notification %+v", n)
	}
}

// TestNotifyContact: the contact of an escalation's step is the first recipient, also of the resolution.
func TestNotifyContact(t *testing.T) {
	fakeTime(t, func(t *testing.T, db *pebble.DB) {
		var sent notifications
		l := climbing(t, db, escalation(), func(o *Options) { o.Notify = sent.record })
		l.world.set("srv", 2)
		l.Dispatch(incident("page", 1, "srv"))
		l.after(10 * time.Minute)
		l.world.set("srv", 0)
		l.Dispatch(resolution("page", 2, "srv"))
		l.after(time.Second)
		var got []string
		for _, n := range sent.all {
			got = append(got, n.ID+" to "+strings.Join(n.Recipients, ","))
		}
		slices.Sort(got)
		wantSent(t, "recipients", got,
			"0-1-1/page/1/alice/mail to alice,example.org", "0-1-1/page/2//chat to example.org", "0-1-1/page/2/bob/mail to bob,example.org",
			"0-2-1/page/resolved//chat to example.org", "0-2-1/page/resolved/alice/mail to alice,example.org",
			"0-2-1/page/resolved/bob/mail to bob,example.org")
	})
}

// TestPointsAreNoNotifications: what writes points to a store has no place in the history.
func TestPointsAreNoNotifications(t *testing.T) {
	var sent notifications
	b := setup(t, Options{Notify: sent.record}, pipe("a", "page"))
	at := attempt{attempts: []trace.Attempt{{At: 1}}}
	for _, typ := range resource.HandlerTypes {
		b.notify(&resource.Handler{Type: typ}, &delivery.Header{ID: typ}, 1, &at, nil)
	}
	for _, n := range sent.all {
		if n.Type == "graphite" || n.Type == "influx" {
			t.Errorf("a notification of type %s", n.Type)
		}
	}
	if want := len(resource.HandlerTypes) - 2; len(sent.all) != want {
		t.Errorf("%d notifications, want %d", len(sent.all), want)
	}
}
