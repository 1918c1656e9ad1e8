package send

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/lapwing-monitoring/lapwing/resource"
)

var errNoEvent = errors.New("there is no event")

// data returns the input of handlers that send it unchanged. It is never nil without an error.
func (j *Job) data() ([]byte, error) {
	if j.Data != nil {
		return j.Data, nil
	}
	if j.Mutated {
		return []byte{}, nil
	}
	if j.Event == nil {
		return nil, errNoEvent
	}
	b, err := json.Marshal(j.Event)
	if err != nil {
		return nil, fmt.Errorf("write event: %w", err)
	}
	return b, nil
}

// event returns the input of handlers that write messages of their own: the mutator's result, if that is an event,
// else the event.
func (j *Job) event() (*resource.Event, error) {
	if j.Mutated {
		ev := new(resource.Event)
		if json.Unmarshal(j.Data, ev) == nil && ev.Entity != nil {
			return ev, nil
		}
	}
	if j.Event == nil || j.Event.Entity == nil {
		return nil, errNoEvent
	}
	return j.Event, nil
}

// renderer renders templates over the event.
func (j *Job) renderer(ctx context.Context) (*renderer, error) {
	ev, err := j.event()
	if err != nil {
		return nil, err
	}
	return newRenderer(ctx, newView(ev, *j)), nil
}
