package handler

import (
	"slices"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// This file follows whether a handler's deliveries succeed. Dispatch takes no part in it: the workers note how each turn
// went, with the lock that they hold then.

// The backend's events about failing handlers: FailingEvent with the handler's name, or FailingEvents for many. Attempts
// to deliver them do not count as failures: so such an event never causes another one.
const (
	FailingEvent  = "handler-failing-"
	FailingEvents = "handlers-failing"
)

// remindEvery is the time between two log lines about a handler that fails all the time.
const remindEvery = time.Hour

// health is how the attempts of a handler have gone since the last one that succeeded. queue.mu guards it. Times are
// Unix milliseconds, and 0 if there was none.
type health struct {
	failing   int64 // when the first attempt failed
	failures  int   // how many did
	died      int   // how many deliveries became dead letters
	delivered int64 // when the last attempt succeeded
	logged    int64 // when the log was last told that they fail
}

// aboutFailing reports whether a delivery is of one of the backend's events about failing handlers.
func (it *item) aboutFailing() bool {
	return it.Entity == resource.BackendEntity && (it.Check == FailingEvents || strings.HasPrefix(it.Check, FailingEvent))
}

// aboutFailing reports whether all members of a group are of such events.
func (g *group) aboutFailing() bool {
	return !slices.ContainsFunc(g.members, func(m *member) bool { return !m.aboutFailing() })
}

// noteTurn notes how a turn went. first is when the first attempt of its delivery or group was made. A delivery that
// has failed since before a restart shows how long the handler has failed. The caller holds mu.
func (q *queue) noteTurn(out *outcome, first int64, aboutFailing bool) {
	if out.delivered {
		q.succeeded()
	}
	if out.errorText != "" && !aboutFailing {
		q.failed(out, first)
	}
}

// succeeded notes an attempt that succeeded. The caller holds mu.
func (q *queue) succeeded() {
	h := &q.health
	if h.failing > 0 {
		q.d.rare.Info("handler works again", q.name.String(), "namespace", q.name.Namespace, "handler", q.name.Name,
			"failed_since", logTime(h.failing), "failures", h.failures, "dead_letters", h.died)
	}
	*h = health{delivered: time.Now().UnixMilli()}
}

// failed notes an attempt that failed. The caller holds mu.
func (q *queue) failed(out *outcome, first int64) {
	h, now := &q.health, time.Now().UnixMilli()
	h.failures++
	h.died += out.died
	if h.failing == 0 {
		h.failing, h.logged = now, now
		if first > h.delivered {
			h.failing = first
		}
		q.d.rare.Warn("handler has begun to fail", q.name.String(), "namespace", q.name.Namespace, "handler", q.name.Name,
			"failed_since", logTime(h.failing), "err", q.lastError)
		return
	}
	if now-h.logged >= remindEvery.Milliseconds() {
		h.logged = now
		q.d.log.Warn("handler still fails", "namespace", q.name.Namespace, "handler", q.name.Name,
			"failed_since", logTime(h.failing), "failures", h.failures, "dead_letters", h.died, "retrying", q.retrying, "err", q.lastError)
	}
}

func logTime(millis int64) string { return time.UnixMilli(millis).UTC().Format(time.RFC3339) }

// describeHealth adds how the attempts go. The handler fails if a delivery waits for another attempt, or dead letters
// are kept, and nothing has succeeded since. The caller holds mu.
func (q *queue) describeHealth(w *delivery.Waiting) {
	w.LastError, w.LastFailed, w.LastDelivered = q.lastError, q.lastFailed, q.health.delivered
	if h := &q.health; h.failing > 0 && (q.retrying > 0 || h.died > 0 && q.d.letters.count(q.name) > 0) {
		w.FailingSince, w.Failures, w.Died = h.failing, h.failures, h.died
	}
}

// Health returns how the attempts of all defined handlers of which this process has a queue go, by name. It looks at no
// delivery: of what Waiting returns there is only how many are retried, and whether they fail.
func (d *Dispatcher) Health() []delivery.Waiting {
	list := []delivery.Waiting{}
	d.mu.RLock()
	for name, q := range d.queues {
		if _, ok := d.lookup(name.Namespace, name.Name); ok {
			list = append(list, q.healthNow())
		}
	}
	d.mu.RUnlock()
	return JoinWaiting(0, list)
}

func (q *queue) healthNow() delivery.Waiting {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := delivery.Waiting{Namespace: q.name.Namespace, Handler: q.name.Name, Retrying: q.retrying}
	q.describeHealth(&w)
	return w
}

// DeadLettersOf returns how many dead letters of a handler are kept.
func (d *Dispatcher) DeadLettersOf(name resource.Name) int { return d.letters.count(name) }
