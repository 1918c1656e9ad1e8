package computed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/state"
)

// Source finds and reads events. State is the one of a backend; tests have their own.
type Source interface {
	// Find returns the events of a namespace, "" for all, that a selector selects.
	Find(ctx context.Context, namespace string, sel *selector.Selector) ([]state.Key, error)
	// Event fails with state.ErrNotFound if there is none.
	Event(k state.Key) (*resource.Event, error)
}

// State is the newest events, as a Source. *state.State is a Reader.
type State struct{ Reader }

// Reader reads events.
type Reader interface {
	Select(ctx context.Context, query state.Query) (*state.Page, error)
	Event(namespace, entity, check string) (*resource.Event, error)
}

// Find implements Source.
func (s State) Find(ctx context.Context, namespace string, sel *selector.Selector) ([]state.Key, error) {
	page, err := s.Select(ctx, state.Query{Namespace: namespace, Selector: sel})
	if err != nil {
		return nil, err
	}
	return slices.AppendSeq(make([]state.Key, 0, page.Len()), page.Keys()), nil
}

// Event implements Source.
func (s State) Event(k state.Key) (*resource.Event, error) {
	return s.Reader.Event(k.Namespace, k.Entity, k.Check)
}

// Intake takes events. Each call returns when the event can be read. *intake.Intake is one.
type Intake interface {
	Submit(ctx context.Context, ev *resource.Event) error
	DeleteEvent(ctx context.Context, namespace, entity, check string) error
}

// Result is what a definition says about one entity.
type Result struct {
	Entity, Check, Output string
	Status                uint32
	// Labels of the check, beside those of the definition.
	Labels map[string]string
	// Figures are stored as JSON in the event's annotation. They must be of texts and finite numbers.
	Figures any
}

// NewEvent returns a result as an event of a proxy entity.
func (r *Runner) NewEvent(name resource.Name, interval uint32, as *resource.ComputedResult,
	res *Result) *resource.Event {
	labels := map[string]string{}
	maps.Copy(labels, as.Labels)
	maps.Copy(labels, res.Labels)
	labels[r.opts.Label] = name.Name
	figures, _ := json.Marshal(res.Figures) // texts and finite numbers cannot fail
	now := time.Now().Unix()
	return &resource.Event{
		Timestamp: now, ID: resource.NewEventID(), Pipelines: as.Pipelines,
		Metadata: resource.ObjectMeta{Namespace: name.Namespace,
			Annotations: map[string]string{r.opts.Annotation: string(figures)}},
		Entity: &resource.Entity{
			EntityClass:   resource.EntityProxyClass,
			Subscriptions: []string{resource.EntitySubscription(res.Entity)},
			Metadata:      resource.ObjectMeta{Namespace: name.Namespace, Name: res.Entity},
		},
		Check: &resource.Check{
			Metadata: resource.ObjectMeta{Namespace: name.Namespace, Name: res.Check, Labels: labels,
				Annotations: as.Annotations},
			Interval: interval, Status: res.Status, Output: res.Output, Executed: now, Issued: now,
			Handlers: as.Handlers, Pipelines: as.Pipelines,
		},
	}
}

// Made reports whether an event is a result of a definition: any client can set the label alone.
func (r *Runner) Made(ev *resource.Event) bool {
	return ev.Check != nil && ev.Metadata.Annotations[r.opts.Annotation] != ""
}

// submitting is how many events of a definition are submitted at a time: each waits until it is durable.
const submitting = 16

// Submit submits events, and returns the first errors.
func (r *Runner) Submit(ctx context.Context, events []*resource.Event) error {
	var underWay sync.WaitGroup
	var errs errorList
	room := make(chan struct{}, submitting)
	for _, ev := range events {
		room <- struct{}{}
		underWay.Go(func() {
			errs.add(r.opts.Intake.Submit(ctx, ev))
			<-room
		})
	}
	underWay.Wait()
	return errs.joined()
}

// Own returns a selector of the events of a definition.
func (r *Runner) Own(name string) (*selector.Selector, error) {
	return selector.Parse(fmt.Sprintf("%s == %q", r.opts.Label, name), "")
}

// Unknown submits events of status unknown for a definition that cannot be evaluated: its last ones would look current.
func (r *Runner) Unknown(ctx context.Context, own []state.Key, why error) error {
	var events []*resource.Event
	for _, k := range own {
		ev, err := r.opts.Source.Event(k)
		if err != nil || !r.Made(ev) || ev.Check.Status == 3 {
			continue
		}
		events = append(events, Follow(ev, 3, why.Error()))
	}
	return r.Submit(ctx, events)
}

// Retire resolves an event that will not come again, and removes it.
func (r *Runner) Retire(ctx context.Context, k state.Key, why string) error {
	ev, err := r.opts.Source.Event(k)
	if errors.Is(err, state.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read result %s/%s: %w", k.Entity, k.Check, err)
	}
	if !r.Made(ev) {
		return nil
	}
	if ev.IsIncident() {
		if err := r.opts.Intake.Submit(ctx, Follow(ev, 0, why)); err != nil {
			return fmt.Errorf("resolve %s/%s: %w", k.Entity, k.Check, err)
		}
	}
	if err := r.opts.Intake.DeleteEvent(ctx, k.Namespace, k.Entity, k.Check); err != nil {
		return fmt.Errorf("remove %s/%s: %w", k.Entity, k.Check, err)
	}
	return nil
}

// RetireAll retires several events, and returns the first errors.
func (r *Runner) RetireAll(ctx context.Context, keys []state.Key, why string) error {
	var errs errorList
	for _, k := range keys {
		errs.add(r.Retire(ctx, k, why))
	}
	return errs.joined()
}

// Follow returns the event after the last one of a check.
func Follow(last *resource.Event, status uint32, output string) *resource.Event {
	now := time.Now().Unix()
	ev, check := *last, *last.Check
	ev.Check, ev.ID, ev.Timestamp = &check, resource.NewEventID(), now
	check.Status, check.Output, check.Executed, check.Issued = status, output, now, now
	check.History, check.OccurrencesWatermark, check.LastOK = nil, 0, 0
	return &ev
}

// errorList collects the first errors of several goroutines.
type errorList struct {
	mu   sync.Mutex
	errs []error
}

func (l *errorList) add(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && len(l.errs) < 3 {
		l.errs = append(l.errs, err)
	}
}

func (l *errorList) joined() error { return errors.Join(l.errs...) }
