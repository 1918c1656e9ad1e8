package filter

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dop251/goja"

	"github.com/lapwing-monitoring/lapwing/internal/fields"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Events looks up the newest events of checks for scripts.
type Events interface {
	// Event returns the newest event of an entity's check, or an error that explains why there is none.
	Event(namespace, entity, check string) (*resource.Event, error)
	// Events returns the events of a namespace and of one entity, or of all for "", after a place, at most limit.
	Events(namespace, entity, after string, limit int) (events []*resource.Event, next string, err error)
}

const (
	// maxAsked bounds the events that one expression may look up by name, and maxListed the events of a namespace for
	// ListEvents. Beyond that they throw.
	maxAsked, maxListed = 100, 1000
	// maxLooked bounds the size of all events that are looked up together, in bytes.
	maxLooked = 32 << 20
)

// functions returns the functions of `sensu`, with which scripts look up other events of their event's namespace. Names
// and results are those of Sensu's commercial edition.
func (s *sandbox) functions() *goja.Object {
	o := s.vm.NewObject()
	set := func(name string, f func(goja.FunctionCall) (goja.Value, error)) {
		s.define(o, name, func(call goja.FunctionCall) goja.Value {
			if s.events == nil || s.current == nil {
				panic(s.vm.NewTypeError("%s: other events cannot be looked up here", name))
			}
			v, err := f(call)
			if err != nil {
				panic(s.vm.NewTypeError("%s: %s", name, err))
			}
			return v
		})
	}
	set("FetchEvent", func(call goja.FunctionCall) (goja.Value, error) {
		ev, err := s.fetch(call.Argument(0).String(), call.Argument(1).String())
		if err != nil {
			return nil, err
		}
		return newObject(s.vm, ev), nil
	})
	set("ListEvents", func(goja.FunctionCall) (goja.Value, error) {
		events, next, err := s.events.Events(s.namespace(), "", "", maxListed)
		switch {
		case err != nil:
			return nil, err
		case next != "":
			return nil, fmt.Errorf("the namespace has more than %d events", maxListed)
		}
		s.answer("sensu.ListEvents()", "a list of "+strconv.Itoa(len(events)))
		items := make([]any, len(events))
		for i, ev := range events {
			items[i] = newObject(s.vm, ev)
		}
		return s.vm.NewArray(items...), nil
	})
	statuses := func(call goja.FunctionCall) (goja.Value, error) {
		list, err := s.statuses(call.Arguments)
		if err != nil {
			return nil, err
		}
		items := make([]any, len(list))
		for i, status := range list {
			items[i] = status
		}
		return s.vm.NewArray(items...), nil
	}
	set("EventStatus", statuses)
	set("CheckStatus", statuses)
	set("CheckDependencies", func(call goja.FunctionCall) (goja.Value, error) {
		list, err := s.statuses(call.Arguments)
		if err != nil {
			return nil, err
		}
		for _, status := range list {
			if status != 0 {
				return s.vm.ToValue(false), nil
			}
		}
		return s.vm.ToValue(true), nil
	})
	return o
}

// InCalendar reports whether a calendar of a namespace is active at a time, and why not, if there is more to say than that.
type InCalendar func(namespace, name string, at time.Time) (active bool, why string)

// calendars answers whether a calendar is active, and why not. The worker does.
type calendars interface {
	InCalendar(name string, at int64) (active bool, why string, err error)
}

// inCalendar is in_calendar(name, t): whether a calendar of the event's namespace is active at t in Unix seconds, by default
// now. Where calendars cannot be looked up, none is active.
func (s *sandbox) inCalendar(call goja.FunctionCall) goja.Value {
	name, at := text(call.Argument(0)), s.now
	if t := call.Argument(1); !goja.IsUndefined(t) {
		at = t.ToInteger()
	}
	asker, ok := s.events.(calendars)
	if !ok || s.current == nil {
		return s.vm.ToValue(false)
	}
	if s.asked++; s.asked > maxAsked {
		panic(s.vm.NewTypeError("in_calendar: more than %d events and calendars are asked for", maxAsked))
	}
	active, why, err := asker.InCalendar(name, at)
	if err != nil {
		panic(s.vm.NewTypeError("in_calendar: %s", err))
	}
	saw := strconv.FormatBool(active)
	if why != "" {
		saw += " (" + why + ")"
	}
	s.answer(fmt.Sprintf("in_calendar(%q)", name), saw)
	return s.vm.ToValue(active)
}

func (s *sandbox) namespace() string {
	if s.current.Entity != nil && s.current.Entity.Metadata.Namespace != "" {
		return s.current.Entity.Metadata.Namespace
	}
	return s.current.Metadata.Namespace
}

func (s *sandbox) fetch(entity, check string) (*resource.Event, error) {
	if s.asked++; s.asked > maxAsked {
		return nil, fmt.Errorf("more than %d events are asked for", maxAsked)
	}
	name := fmt.Sprintf("sensu.FetchEvent(%q, %q)", entity, check)
	ev, err := s.events.Event(s.namespace(), entity, check)
	if err != nil {
		s.answer(name, err.Error())
		return nil, fmt.Errorf("event %s/%s: %w", entity, check, err)
	}
	if ev.Check != nil {
		s.answer(name, "status "+strconv.FormatUint(uint64(ev.Check.Status), 10))
	}
	return ev, nil
}

func (s *sandbox) answer(name, value string) {
	if len(s.answers) < maxSeen {
		s.answers = append(s.answers, Value{cut(name), cut(value)})
	}
}

// statuses returns the statuses of the named checks: names are of the event's entity, or {entity, check} objects;
// single or in lists.
func (s *sandbox) statuses(args []goja.Value) (list []uint32, err error) {
	for _, arg := range args {
		if o, ok := arg.(*goja.Object); ok && o.ClassName() == "Array" {
			items := make([]goja.Value, min(s.entries(o), maxAsked+1))
			for i := range items {
				items[i] = o.Get(strconv.Itoa(i))
			}
			inner, err := s.statuses(items)
			if err != nil {
				return nil, err
			}
			list = append(list, inner...)
			continue
		}
		var entity, check string
		if o, ok := arg.(*goja.Object); ok {
			entity, check = text(o.Get("entity")), text(o.Get("check"))
		} else {
			check = text(arg)
		}
		if entity == "" && s.current.Entity != nil {
			entity = s.current.Entity.Metadata.Name
		}
		ev, err := s.fetch(entity, check)
		if err != nil {
			return nil, err
		}
		if ev.Check == nil {
			return nil, errors.New("the event has no check")
		}
		list = append(list, ev.Check.Status)
	}
	return list, nil
}

// text returns the text of a value, or "" for none.
func text(v goja.Value) string {
	if v == nil || goja.IsUndefined(v) {
		return ""
	}
	return v.String()
}

// lookIn answers the look-ups of scripts, from the namespace of their event.
func lookIn(events Events, inCalendar InCalendar, about *resource.Event) func(body []byte) []byte {
	if events == nil {
		return nil
	}
	namespace := (&sandbox{current: about}).namespace()
	return func(body []byte) []byte {
		if len(body) > 0 && body[0] == lookCalendar {
			r := readFields(body[1:])
			name, at := r.Text(), r.Int()
			active, why := false, ""
			if r.Err() == nil && inCalendar != nil {
				active, why = inCalendar(namespace, name, time.Unix(at, 0))
			}
			return fields.AppendBytes(fields.AppendBool(fields.AppendBytes(nil, ""), active), why)
		}
		list, more, err := lookUp(events, namespace, body)
		if err != nil {
			return fields.AppendBytes(nil, cmp.Or(cutError(err.Error()), "it cannot be read"))
		}
		b := fields.AppendBool(fields.AppendBytes(nil, ""), more)
		b = binary.AppendUvarint(b, uint64(len(list)))
		for _, ev := range list {
			if b = appendEvent(b, ev); len(b) > maxLooked {
				return fields.AppendBytes(nil, fmt.Sprintf("the events have more than %d bytes", maxLooked))
			}
		}
		return b
	}
}

func lookUp(events Events, namespace string, body []byte) (list []*resource.Event, more bool, err error) {
	if len(body) == 0 {
		return nil, false, errFrame
	}
	r := readFields(body[1:])
	switch body[0] {
	case lookEvent:
		entity, check := r.Text(), r.Text()
		ev, err := events.Event(namespace, entity, check)
		return []*resource.Event{ev}, false, err
	case lookEvents:
		list, next, err := events.Events(namespace, "", "", maxListed)
		return list, next != "", err
	}
	return nil, false, errFrame
}
