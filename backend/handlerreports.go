package backend

import (
	"context"
	"fmt"
	"log/slog"
	"math/bits"
	"strings"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/cluster"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/handler"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/ownevent"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// lookAtHandlers is how often the members are asked at most how deliveries go.
const lookAtHandlers = 10 * time.Second

// handlerReports reports by events that nothing gets through a handler, and resolves them. One member reports for all. An
// event of an earlier process, or of another member, stays open until an attempt has succeeded since, or nothing of the
// handler waits and no dead letters of it are kept.
type handlerReports struct {
	after    time.Duration // how long a handler must fail; 0 for no events
	health   func(context.Context) (list []delivery.Waiting, missing []string, err error)
	letters  func(resource.Name) int // dead letters that are kept
	snapshot func() *config.Snapshot
	acts     func() bool
	reporter *ownevent.Reporter
	rare     *rarelog.Log

	cancel func()
	wg     sync.WaitGroup
}

func newHandlerReports(p *parts, after time.Duration, log *slog.Logger) *handlerReports {
	rare := rarelog.New(log.With("component", "handler"))
	return &handlerReports{
		after: after, health: p.view.HandlerHealth, letters: p.handlers.DeadLettersOf, snapshot: p.config.Snapshot,
		acts: p.members.acts(cluster.HandlersLane), rare: rare, cancel: func() {},
		reporter: ownevent.New(ownevent.Options{
			One: handler.FailingEvent, Many: handler.FailingEvents, About: "failing handlers",
			FewLeft:  "Few handlers fail, or none: those that fail have events of their own.",
			Snapshot: p.config.Snapshot, State: p.state, Report: p.intake.Report, Rare: rare,
		}),
	}
}

// Start is part of a part's life.
func (r *handlerReports) Start(ctx context.Context) error {
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.wg.Go(func() { r.run(ctx) })
	return nil
}

// Stop waits for a report that is on its way.
func (r *handlerReports) Stop() error {
	r.cancel()
	r.wg.Wait()
	return nil
}

func (r *handlerReports) run(ctx context.Context) {
	every := lookAtHandlers
	if r.after > 0 {
		every = min(every, r.after)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if r.acts() {
			r.look(ctx)
		} else {
			r.reporter.Forget()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look makes the events for what has changed. If they are switched off, it resolves the open ones.
func (r *handlerReports) look(ctx context.Context) {
	now, open := time.Now(), r.reporter.Open()
	if r.after == 0 {
		r.reporter.Make(ctx, now, r.reporter.Events(now, open, nil, func(resource.Name) (string, bool) {
			return "The backend makes no events about failing handlers any more.", true
		}))
		return
	}
	list, missing, err := r.health(ctx)
	if err != nil {
		if ctx.Err() == nil {
			r.rare.Warn("members were not asked how deliveries go", "", "err", err)
		}
		return
	}
	found, states := map[string]*ownevent.Found{}, map[resource.Name]*delivery.Waiting{}
	for i := range list {
		w := &list[i]
		event := failingEvent(w.Namespace, w.Handler)
		states[event] = w
		if w.FailingSince == 0 || open[event] == 0 && now.Sub(time.UnixMilli(w.FailingSince)) < r.after {
			continue
		}
		f := found[w.Namespace]
		if f == nil {
			f = &ownevent.Found{}
			f.Many = func() ownevent.Says { return saysMany(f.Things) }
			found[w.Namespace] = f
		}
		f.Things = append(f.Things, ownevent.Thing{Name: w.Handler, Says: saysFailing(w)})
	}
	defined := r.definedOf(open)
	events := r.reporter.Events(now, open, found, func(event resource.Name) (string, bool) {
		switch name, ok := defined[event]; {
		case !ok:
			return "The handler is not defined any more.", true
		case len(missing) > 0:
			return "", false // it may fail there
		default:
			return r.over(name, states[event])
		}
	})
	r.reporter.Make(ctx, now, events)
}

// failingEvent returns the event about a handler.
func failingEvent(namespace, name string) resource.Name {
	return resource.Name{Namespace: namespace, Name: ownevent.EventName(handler.FailingEvent, name)}
}

// definedOf returns the handlers that open events are about and that are defined, by event.
func (r *handlerReports) definedOf(open map[resource.Name]uint32) map[resource.Name]resource.Name {
	defined := map[resource.Name]resource.Name{}
	if len(open) == 0 {
		return defined
	}
	for h := range config.List(r.snapshot(), config.Handlers, "") {
		if event := failingEvent(h.Metadata.Namespace, h.Metadata.Name); open[event] > 0 {
			defined[event] = resource.NameOf(&h.Metadata)
		}
	}
	return defined
}

// over reports whether the event about a handler is to be resolved, and what it says then. w is nil if no member has had
// a delivery to it since its start.
func (r *handlerReports) over(name resource.Name, w *delivery.Waiting) (output string, yes bool) {
	letters := r.letters(name)
	var rest string
	if letters > 0 {
		rest = fmt.Sprintf(" %s kept: send them again with lapwing deadletter redrive --handler %s --newest --failing-only",
			countOf(letters, "dead letter is", "dead letters are"), name.Name)
	}
	switch {
	case w != nil && w.FailingSince > 0:
		return "", false // it is counted with many others
	case w != nil && w.LastDelivered > 0 && w.LastDelivered >= w.LastFailed:
		return fmt.Sprintf("The handler %s works again: a delivery succeeded at %s.%s", name.Name,
			ownevent.Clock(time.UnixMilli(w.LastDelivered)), rest), true
	case w != nil && w.LastDelivered+w.LastFailed > 0, letters == 0 && (w == nil || w.Retrying == 0):
		return fmt.Sprintf("No delivery that failed waits for the handler %s any more.%s", name.Name, rest), true
	}
	return "", false // no attempt since the start
}

// saysFailing returns what the event about one handler says.
func saysFailing(w *delivery.Waiting) ownevent.Says {
	text := fmt.Sprintf("Alerts do not get through: no delivery to the handler %s has succeeded since %s. %s failed",
		w.Handler, ownevent.Clock(time.UnixMilli(w.FailingSince)), countOf(w.Failures, "attempt", "attempts"))
	if w.Retrying > 0 {
		text += fmt.Sprintf(", %s tried again", countOf(w.Retrying, "delivery is", "deliveries are"))
	}
	if w.Died > 0 {
		text += fmt.Sprintf(", %s gave up as dead letters", countOf(w.Died, "delivery", "deliveries"))
	}
	if w.LastError != "" {
		text += ". The last error: " + w.LastError
	}
	return ownevent.Says{Status: 2, Output: fmt.Sprintf("%s. See lapwing handler waiting %[2]s. When the receiver works again, "+
		"lapwing handler retry %[2]s sends at once what waits, and lapwing deadletter redrive --handler %[2]s --newest --failing-only the dead letters.",
		strings.TrimSuffix(text, "."), w.Handler)}
}

// saysMany returns what the event that counts failing handlers says. Its words change when the number has doubled or
// halved.
func saysMany(failing []ownevent.Thing) ownevent.Says {
	var names []string
	for _, one := range failing[:min(len(failing), ownevent.MostNamed)] {
		names = append(names, one.Name)
	}
	if more := len(failing) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return ownevent.Says{
		Status: 2, Why: fmt.Sprint(bits.Len(uint(len(failing)))),
		Output: fmt.Sprintf("Alerts do not get through: deliveries to %s fail, and none succeeds: %s. See lapwing handler waiting. "+
			"Check what they have in common: the network of the backend, a proxy, name resolution, a certificate.",
			countOf(len(failing), "handler", "handlers"), strings.Join(names, ", ")),
	}
}

// countOf returns a number with its noun.
func countOf(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", many)
}

var _ part = (*handlerReports)(nil)
