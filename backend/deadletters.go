package backend

import (
	"context"
	"errors"
	"time"

	"github.com/lapwing-monitoring/lapwing/api"
	"github.com/lapwing-monitoring/lapwing/handler"
	"github.com/lapwing-monitoring/lapwing/pipeline"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// deadLetters shows the API those of the handlers.
type deadLetters struct{ handlers *handler.Dispatcher }

func (d deadLetters) List(namespace, handler, after string, limit int) (letters []api.DeadLetter, next string, err error) {
	found, next, err := d.handlers.DeadLetters(namespace, handler, after, limit)
	if err != nil {
		return nil, "", err
	}
	for i := range found {
		letters = append(letters, viewDeadLetter(&found[i]))
	}
	return letters, next, nil
}

func (d deadLetters) Get(namespace, id string) (*api.DeadLetter, bool, error) {
	found, err := d.handlers.DeadLetter(namespace, id)
	if errors.Is(err, handler.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	letter := viewDeadLetter(&found)
	// One whose event cannot be read is still worth to be seen.
	if letter.Event, err = found.Event(); err != nil {
		letter.Event = nil
	}
	return &letter, true, nil
}

func (d deadLetters) Redrive(ctx context.Context, namespace string, ids []string, handler string) (int, error) {
	return d.handlers.Redrive(ctx, namespace, ids, handler)
}

func (d deadLetters) Delete(ctx context.Context, namespace string, ids []string, handler string) (int, error) {
	return d.handlers.DeleteDeadLetters(ctx, namespace, ids, handler)
}

func viewDeadLetter(d *handler.DeadLetter) api.DeadLetter {
	return api.DeadLetter{
		ID: d.ID, Namespace: d.Namespace, Handler: d.Handler, Pipeline: d.Pipeline, Workflow: d.Workflow, Entity: d.Entity, Check: d.Check,
		Status: d.Status, Reason: d.Reason, Output: d.Output, Attempts: d.Attempts, First: unixMilli(d.First), Last: unixMilli(d.Last),
	}
}

func unixMilli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// simulator lets the API try events.
func simulator(router *pipeline.Router) func(context.Context, string, *api.Draft, *resource.Event, bool) []trace.Delivery {
	return func(ctx context.Context, namespace string, draft *api.Draft, ev *resource.Event, commands bool) []trace.Delivery {
		return router.Simulate(ctx, pipeline.Overlay{
			Handlers: draft.Handlers, Filters: draft.Filters, Mutators: draft.Mutators, Pipelines: draft.Pipelines, RunCommands: commands,
		}, ev, namespace)
	}
}
