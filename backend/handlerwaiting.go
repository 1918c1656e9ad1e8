package backend

import (
	"context"
	"fmt"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/handler"
)

// waitingQuestion asks members for what waits for handlers.
type waitingQuestion struct {
	Namespace string `json:"namespace,omitempty"`
	Handler   string `json:"handler,omitempty"`
	Limit     int    `json:"limit,omitempty"`
	// Health asks for how the attempts of all handlers go instead (handler.Dispatcher.Health).
	Health bool `json:"health,omitempty"`
}

type waitingAnswer struct {
	Handlers []delivery.Waiting `json:"handlers"`
}

// waitingHere answers what waits at this member: the deliveries of the partitions that it owns.
func (v *clusterView) waitingHere(_ context.Context, q *waitingQuestion) (a waitingAnswer, err error) {
	if q.Health {
		a.Handlers = v.parts.handlers.Health()
		return a, nil
	}
	if a.Handlers, err = v.parts.handlers.Waiting(q.Namespace, q.Handler, q.Limit); err != nil {
		return a, fmt.Errorf("look at what waits for handlers: %w", err)
	}
	if v.members.Alone() {
		return a, nil
	}
	for i := range a.Handlers {
		for k := range a.Handlers[i].Deliveries {
			a.Handlers[i].Deliveries[k].Member = v.name
		}
	}
	return a, nil
}

// Waiting returns what waits for handlers at all members, and the members that did not answer.
func (v *clusterView) Waiting(ctx context.Context, namespace, name string, limit int) (
	[]delivery.Waiting, []string, error,
) {
	return v.waiting(ctx, &waitingQuestion{Namespace: namespace, Handler: name, Limit: limit})
}

// HandlerHealth returns how the attempts of all handlers go at all members, and the members that did not answer.
func (v *clusterView) HandlerHealth(ctx context.Context) ([]delivery.Waiting, []string, error) {
	return v.waiting(ctx, &waitingQuestion{Health: true})
}

func (v *clusterView) waiting(ctx context.Context, q *waitingQuestion) ([]delivery.Waiting, []string, error) {
	own, err := v.waitingHere(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	all, err := askAll[waitingAnswer](ctx, v.members, questionWaiting, q)
	if err != nil {
		return nil, nil, err
	}
	answers, missing := answersOf(all)
	lists := [][]delivery.Waiting{own.Handlers}
	for _, a := range answers {
		lists = append(lists, a.Handlers)
	}
	return handler.JoinWaiting(q.Limit, lists...), missing, nil
}

// retryQuestion asks members to make the deliveries due that wait for the next attempt of a handler.
type retryQuestion struct {
	Namespace string `json:"namespace"`
	Handler   string `json:"handler"`
}

type retryAnswer struct {
	Count int `json:"count"`
}

func (v *clusterView) retryHere(_ context.Context, q *retryQuestion) (retryAnswer, error) {
	return retryAnswer{v.parts.handlers.RetryNow(q.Namespace, q.Handler)}, nil
}

// RetryWaiting makes deliveries of a handler due at all members. It returns their number, and the members that did not
// answer.
func (v *clusterView) RetryWaiting(ctx context.Context, namespace, name string) (n int, missing []string, err error) {
	q := &retryQuestion{namespace, name}
	n = v.parts.handlers.RetryNow(namespace, name)
	all, err := askAll[retryAnswer](ctx, v.members, questionRetry, q)
	if err != nil {
		return n, nil, err
	}
	answers, missing := answersOf(all)
	for _, a := range answers {
		n += a.Count
	}
	return n, missing, nil
}
