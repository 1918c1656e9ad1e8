package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"time"
)

const ours = "/api/lapwing/v1/namespaces/"

// ExplainOptions say what to explain.
type ExplainOptions struct {
	// At leaves out events that the server received later, unless it is zero.
	At time.Time
	// Outcomes asks for the events that the answer is about too, newest first, with what became of them.
	Outcomes bool
}

// Explain answers whether people were told of a check's failure, and why or why not.
func (c *Client) Explain(ctx context.Context, namespace, entity, check string, opts ExplainOptions) (*Explanation, error) {
	q := url.Values{}
	if !opts.At.IsZero() {
		q.Set("at", opts.At.Format(time.RFC3339Nano))
	}
	if opts.Outcomes {
		q.Set("outcomes", "true")
	}
	path := ours + escape(namespace) + "/events/" + escape(entity) + "/" + escape(check) + "/explain?" + q.Encode()
	out := new(Explanation)
	if err := c.Do(ctx, http.MethodGet, path, nil, out); err != nil {
		return nil, fmt.Errorf("explain %s/%s: %w", entity, check, err)
	}
	if opts.Outcomes && out.Outcomes == nil {
		return nil, fmt.Errorf("explain %s/%s: the server is of an earlier release and does not give outcomes with the answer", entity, check)
	}
	return out, nil
}

// Simulate returns what would happen to an event; nothing is sent to handlers. Without an event it uses the newest
// event of the check on the entity. Definitions in the simulation replace definitions of the same names in the backend.
func (c *Client) Simulate(ctx context.Context, namespace string, s *Simulation) (*Simulated, error) {
	var out Simulated
	if err := c.Do(ctx, http.MethodPost, ours+escape(namespace)+"/pipelines/simulate", s, &out); err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	if out.At != s.At {
		return nil, errors.New("simulate: the server is of an earlier release and simulates the present only")
	}
	return &out, nil
}

func deadLetters(namespace string) string {
	if namespace == "" {
		namespace = "-"
	}
	return ours + escape(namespace) + "/deadletters"
}

// DeadLetters lists the dead letters of a namespace and a handler, selected by fields such as deadletter.entity. "" means
// all.
func (c *Client) DeadLetters(ctx context.Context, namespace, handler, fieldSelector string) iter.Seq2[*DeadLetter, error] {
	return func(yield func(*DeadLetter, error) bool) {
		q := url.Values{"limit": {"1000"}}
		if handler != "" {
			q.Set("handler", handler)
		}
		if fieldSelector != "" {
			q.Set("fieldSelector", fieldSelector)
		}
		for {
			var page []DeadLetter
			header, err := c.Exchange(ctx, http.MethodGet, deadLetters(namespace)+"?"+q.Encode(), nil, &page)
			if err != nil {
				yield(nil, fmt.Errorf("list dead letters: %w", err))
				return
			}
			for i := range page {
				if !yield(&page[i], nil) {
					return
				}
			}
			next := header.Get("Sensu-Continue")
			if next == "" {
				return
			}
			q.Set("continue", next)
		}
	}
}

// DeadLetter returns one dead letter with its event.
func (c *Client) DeadLetter(ctx context.Context, namespace, id string) (*DeadLetter, error) {
	out := new(DeadLetter)
	if err := c.Do(ctx, http.MethodGet, deadLetters(namespace)+"/"+escape(id), nil, out); err != nil {
		return nil, fmt.Errorf("get dead letter %s: %w", id, err)
	}
	return out, nil
}

// RedriveDeadLetters queues dead letters for their handlers once more. With WithDryRun it tells what that would do.
func (c *Client) RedriveDeadLetters(ctx context.Context, namespace string, which DeadLetterChoice) (*Redriven, error) {
	out := new(Redriven)
	if err := c.Do(patiently(ctx), http.MethodPost, deadLetters(namespace)+"/redrive", which, out); err != nil {
		return nil, fmt.Errorf("redrive dead letters: %w", err)
	}
	return out, nil
}

// DeleteDeadLetters deletes dead letters, and returns how many there were. With WithDryRun it deletes none.
func (c *Client) DeleteDeadLetters(ctx context.Context, namespace string, which DeadLetterChoice) (int, error) {
	n := 0
	for _, id := range which.IDs {
		err := c.Do(ctx, http.MethodDelete, deadLetters(namespace)+"/"+escape(id), nil, nil)
		switch {
		case err == nil:
			n++
		case !errors.Is(err, ErrNotFound):
			return n, fmt.Errorf("delete dead letter %s: %w", id, err)
		}
	}
	if len(which.IDs) > 0 {
		return n, nil
	}
	out, err := c.deleteChosen(ctx, namespace, which)
	return out.Count, err
}

// maxCounted is how many named dead letters CountDeadLetters reads.
const maxCounted = 20

// CountDeadLetters returns how many dead letters DeleteDeadLetters would delete, and the first of them if the user may read
// them. Named ones are asked for one by one, as they are deleted: that needs the same rights.
func (c *Client) CountDeadLetters(ctx context.Context, namespace string, which DeadLetterChoice) (DeadLetterCount, error) {
	if len(which.IDs) == 0 {
		return c.deleteChosen(WithDryRun(ctx), namespace, which)
	}
	var out DeadLetterCount
	var err error
	if out.Count, err = c.DeleteDeadLetters(WithDryRun(ctx), namespace, which); err != nil {
		return out, err
	}
	for _, id := range which.IDs[:min(len(which.IDs), maxCounted)] {
		if one, err := c.DeadLetter(ctx, namespace, id); err == nil {
			out.Letters = append(out.Letters, *one)
		}
	}
	return out, nil
}

// deleteChosen deletes dead letters with one request.
func (c *Client) deleteChosen(ctx context.Context, namespace string, which DeadLetterChoice) (out DeadLetterCount, err error) {
	q := url.Values{"id": which.IDs}
	if which.Handler != "" {
		q.Set("handler", which.Handler)
	}
	if which.All {
		q.Set("all", "true")
	}
	if err := c.Do(patiently(ctx), http.MethodDelete, deadLetters(namespace)+"?"+q.Encode(), nil, &out); err != nil {
		return out, fmt.Errorf("delete dead letters: %w", err)
	}
	return out, nil
}
