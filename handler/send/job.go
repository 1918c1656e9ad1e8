package send

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/lapwing-monitoring/lapwing/resource"
)

var errNoEvent = errors.New("there is no event")

// data is what handlers get that take it as it is. It is never nil without an error.
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

// event is what handlers get that write messages of their own: what the mutator made of the event, if that is an event.
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
