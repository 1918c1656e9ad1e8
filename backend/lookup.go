package backend

import (
	"errors"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// errNotLoaded is what scripts hear that look up events before there are any.
var errNotLoaded = errors.New("the events are not loaded yet")

// Event and Events are for the scripts of filters and mutators.
func (s *loadedState) Event(namespace, entity, check string) (*resource.Event, error) {
	select {
	case <-s.loaded:
		return s.state.Event(namespace, entity, check)
	default:
		return nil, errNotLoaded
	}
}

func (s *loadedState) Events(namespace, entity, after string, limit int) ([]*resource.Event, string, error) {
	select {
	case <-s.loaded:
		return s.state.Events(namespace, entity, after, limit)
	default:
		return nil, "", errNotLoaded
	}
}
