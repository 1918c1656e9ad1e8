package backend

import (
	"testing"

	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// openEvents is a source of events that cannot be limited.
type openEvents struct{}

func (openEvents) Event(_, _, _ string) (*resource.Event, error) { return &resource.Event{}, nil }

func (openEvents) Events(_, _, _ string, _ int) ([]*resource.Event, string, error) {
	return []*resource.Event{{}}, "", nil
}

// TestUnknownEventsAreRefused: scripts of an author look up nothing in a source of events that cannot be limited.
func TestUnknownEventsAreRefused(t *testing.T) {
	permit := permitLookups(nil, false)
	var limited filter.Events = permit(&resource.Author{User: "eve"}, openEvents{})
	if ev, err := limited.Event("default", "web1", "disk"); err == nil {
		t.Errorf("an author gets %+v", ev)
	}
	if list, _, err := limited.Events("default", "", "", 10); err == nil {
		t.Errorf("an author gets %+v", list)
	}
	if _, err := permit(nil, openEvents{}).Event("default", "web1", "disk"); err != nil {
		t.Errorf("without an author: %v", err)
	}
}
