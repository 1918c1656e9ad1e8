package backend

import (
	"context"
	"errors"
	"time"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/state"
)

// errNotLoaded is what scripts hear that look up events before there are any.
var errNotLoaded = errors.New("the events are not loaded yet")

// lookupTime bounds the search for the events that a limited author may read.
const lookupTime = 5 * time.Second

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
	return s.search(state.Query{Namespace: namespace, Entity: entity, After: after, Limit: limit})
}

func (s *loadedState) search(query state.Query) (events []*resource.Event, next string, err error) {
	select {
	case <-s.loaded:
	default:
		return nil, "", errNotLoaded
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupTime)
	defer cancel()
	page, err := s.state.Select(ctx, query)
	if err != nil {
		return nil, "", err
	}
	for ev, err := range page.Events() {
		if err != nil {
			return nil, "", err
		}
		events = append(events, ev)
	}
	return events, page.Next, nil
}

// errNotLimited is what scripts hear if their look-ups cannot be limited to what the author may list.
var errNotLimited = errors.New("its author may not list all events, and these cannot be limited")

// noEvents refuses every look-up.
type noEvents struct{}

func (noEvents) Event(_, _, _ string) (*resource.Event, error) { return nil, errNotLimited }

func (noEvents) Events(_, _, _ string, _ int) ([]*resource.Event, string, error) {
	return nil, "", errNotLimited
}

// permitLookups limits what a script looks up to what the author of its definition may list.
func permitLookups(users *auth.Auth, agents bool) func(*resource.Author, filter.Events) filter.Events {
	return func(author *resource.Author, events filter.Events) filter.Events {
		if author == nil {
			return events
		}
		all, ok := events.(*loadedState)
		if !ok {
			return noEvents{}
		}
		return &permittedEvents{all, func(namespace string) (*selector.Selector, error) { return readLimit(users, agents, author, namespace) }}
	}
}

// permittedEvents are the events that an author may list. The rights are asked for at each look-up.
type permittedEvents struct {
	all   *loadedState
	limit func(namespace string) (*selector.Selector, error)
}

// Event answers for an event that the author may not read as for one that does not exist.
func (p *permittedEvents) Event(namespace, entity, check string) (*resource.Event, error) {
	limit, err := p.limit(namespace)
	if err != nil {
		return nil, err
	}
	ev, err := p.all.Event(namespace, entity, check)
	if err == nil && !limit.Match(selector.Event(ev)) {
		return nil, state.ErrNotFound
	}
	return ev, err
}

func (p *permittedEvents) Events(namespace, entity, after string, most int) ([]*resource.Event, string, error) {
	limit, err := p.limit(namespace)
	if err != nil {
		return nil, "", err
	}
	return p.all.search(state.Query{Namespace: namespace, Entity: entity, Selector: limit, After: after, Limit: most})
}
