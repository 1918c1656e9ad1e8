package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Verdict is what became of an event in one workflow: delivered, waiting, held, grouped, folded, filtered, silenced,
// inhibited, no_handler, dead, dropped or failed.
type Verdict string

// The verdicts.
const (
	Delivered Verdict = "delivered"
	Waiting   Verdict = "waiting"
	Held      Verdict = "held"
	Grouped   Verdict = "grouped"
	Folded    Verdict = "folded"
	Filtered  Verdict = "filtered"
	Silenced  Verdict = "silenced"
	Inhibited Verdict = "inhibited"
	NoHandler Verdict = "no_handler"
	Dead      Verdict = "dead"
	Dropped   Verdict = "dropped"
	Failed    Verdict = "failed"
)

// Outcome is what became of one event. Times in it are Unix milliseconds.
type Outcome struct {
	Event      string     `json:"event"`
	Namespace  string     `json:"namespace"`
	Entity     string     `json:"entity"`
	Check      string     `json:"check"`
	Status     uint32     `json:"status"`
	Incident   bool       `json:"incident,omitempty"`
	Resolution bool       `json:"resolution,omitempty"`
	Received   int64      `json:"received"`
	Deliveries []Delivery `json:"deliveries"`
}

// Delivery is what became of an event in one workflow.
type Delivery struct {
	ID        string    `json:"id"`
	Event     string    `json:"event"`
	Received  int64     `json:"received"`
	Pipeline  string    `json:"pipeline,omitempty"` // "" if the event names the handler itself
	Workflow  string    `json:"workflow,omitempty"`
	Handler   string    `json:"handler,omitempty"`
	Verdict   Verdict   `json:"verdict"`
	Reason    string    `json:"reason,omitempty"`
	Into      string    `json:"into,omitempty"` // what a folded one went out with
	Steps     []Step    `json:"steps,omitempty"`
	Attempts  []Attempt `json:"attempts,omitempty"`
	Updated   int64     `json:"updated"`
	Repeats   int       `json:"repeats,omitempty"` // later events that came to the same end
	Last      int64     `json:"last,omitempty"`    // when the last of them came
	Status    uint32    `json:"status"`
	Namespace string    `json:"namespace"`
	Entity    string    `json:"entity"`
	Check     string    `json:"check"`
}

// Step is what one part of a workflow said: pass, deny or error.
type Step struct {
	Kind       string  `json:"kind"` // filter, mutator, silence, inhibit, group or resolve
	Name       string  `json:"name,omitempty"`
	Expression string  `json:"expression,omitempty"`
	Verdict    string  `json:"verdict,omitempty"`
	Error      string  `json:"error,omitempty"`
	Saw        []Value `json:"saw,omitempty"`
	Micros     int64   `json:"micros,omitempty"`
}

// Value is something that an expression looked at.
type Value struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Attempt is one try to hand an event over.
type Attempt struct {
	At     int64  `json:"at"`
	Millis int64  `json:"millis"`
	Result string `json:"result"` // ok, failed, timeout or error
	Status int    `json:"status,omitempty"`
	Output string `json:"output,omitempty"`
	Error  string `json:"error,omitempty"`
	Next   int64  `json:"next,omitempty"`
}

const ours = "/api/lapwing/v1/namespaces/"

// Trace asks what became of the newest events of a check; the newest comes first.
func (c *Client) Trace(ctx context.Context, namespace, entity, check string, limit int) ([]Outcome, error) {
	var out []Outcome
	path := ours + escape(namespace) + "/events/" + escape(entity) + "/" + escape(check) + "/trace?limit=" + strconv.Itoa(limit)
	if err := c.Do(ctx, http.MethodGet, path, nil, &out); err != nil {
		return nil, fmt.Errorf("get trace of %s/%s: %w", entity, check, err)
	}
	return out, nil
}

// Simulation says what to try: an event, or if that is nil the newest of a check on an entity. Definitions in it count in
// place of those that the backend has.
type Simulation struct {
	Event       json.RawMessage   `json:"event,omitempty"`
	Entity      string            `json:"entity,omitempty"`
	Check       string            `json:"check,omitempty"`
	Handlers    []json.RawMessage `json:"handlers,omitempty"`
	Filters     []json.RawMessage `json:"filters,omitempty"`
	Mutators    []json.RawMessage `json:"mutators,omitempty"`
	Pipelines   []json.RawMessage `json:"pipelines,omitempty"`
	RunCommands bool              `json:"run_commands,omitempty"`
}

// Simulate asks what would become of an event. Nothing is handed over to anything.
func (c *Client) Simulate(ctx context.Context, namespace string, s *Simulation) ([]Delivery, error) {
	var out struct {
		Deliveries []Delivery `json:"deliveries"`
	}
	if err := c.Do(ctx, http.MethodPost, ours+escape(namespace)+"/pipelines/simulate", s, &out); err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	return out.Deliveries, nil
}

// DeadLetter is a delivery that its handler never took. Its times are Unix milliseconds.
type DeadLetter struct {
	ID        string          `json:"id"`
	Namespace string          `json:"namespace"`
	Handler   string          `json:"handler"`
	Pipeline  string          `json:"pipeline,omitempty"`
	Workflow  string          `json:"workflow,omitempty"`
	Entity    string          `json:"entity"`
	Check     string          `json:"check"`
	Status    uint32          `json:"status"`
	Reason    string          `json:"reason"`
	Output    string          `json:"output,omitempty"`
	Attempts  int             `json:"attempts"`
	First     int64           `json:"first"`
	Last      int64           `json:"last"`
	Event     *resource.Event `json:"event,omitempty"` // only of one that is asked for by its ID
}

// DeadLetterChoice says which dead letters are meant: one of its fields must be set.
type DeadLetterChoice struct {
	IDs     []string `json:"ids,omitempty"`
	Handler string   `json:"handler,omitempty"`
	All     bool     `json:"all,omitempty"`
}

func deadLetters(namespace string) string {
	if namespace == "" {
		namespace = "-"
	}
	return ours + escape(namespace) + "/deadletters"
}

// DeadLetters lists the dead letters of a namespace, or of all if it is "", and of a handler, unless that is "".
func (c *Client) DeadLetters(ctx context.Context, namespace, handler string) iter.Seq2[*DeadLetter, error] {
	return func(yield func(*DeadLetter, error) bool) {
		q := url.Values{"limit": {"1000"}}
		if handler != "" {
			q.Set("handler", handler)
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

// DeadLetter gets one dead letter with its event.
func (c *Client) DeadLetter(ctx context.Context, namespace, id string) (*DeadLetter, error) {
	out := new(DeadLetter)
	if err := c.Do(ctx, http.MethodGet, deadLetters(namespace)+"/"+escape(id), nil, out); err != nil {
		return nil, fmt.Errorf("get dead letter %s: %w", id, err)
	}
	return out, nil
}

// RedriveDeadLetters has them handed over once more, and returns how many there were.
func (c *Client) RedriveDeadLetters(ctx context.Context, namespace string, which DeadLetterChoice) (int, error) {
	var out struct{ Count int }
	if err := c.Do(ctx, http.MethodPost, deadLetters(namespace)+"/redrive", which, &out); err != nil {
		return 0, fmt.Errorf("redrive dead letters: %w", err)
	}
	return out.Count, nil
}

// DeleteDeadLetters forgets them, and returns how many there were.
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
	q := url.Values{}
	if which.Handler != "" {
		q.Set("handler", which.Handler)
	}
	if which.All {
		q.Set("all", "true")
	}
	var out struct{ Count int }
	if err := c.Do(ctx, http.MethodDelete, deadLetters(namespace)+"?"+q.Encode(), nil, &out); err != nil {
		return 0, fmt.Errorf("delete dead letters: %w", err)
	}
	return out.Count, nil
}
