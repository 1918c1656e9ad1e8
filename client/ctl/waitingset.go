package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// waitingOf is what waits for the handlers that a command names.
type waitingOf struct {
	list []client.Waiting
	// members are the handlers of the named one if that is a set. A set has no queue: list is what waits for them.
	members []string
}

// waitingFor asks what waits for a handler, "" for all, in a namespace, "" for all. If nothing does, it looks at the
// handler's definition: there may be none, or it may be a set. A user who may not see it gets no error for that.
func (s *invocation) waitingFor(ctx context.Context, namespace, name string, limit int) (w waitingOf, err error) {
	w.list, err = s.client.Waiting(ctx, namespace, name, limit)
	if err != nil || len(w.list) > 0 || name == "" {
		return w, err
	}
	defined, err := s.handlersNamed(ctx, namespace, name)
	if errors.Is(err, client.ErrDenied) {
		return w, nil
	}
	if err != nil {
		return w, err
	}
	for i := range defined {
		in := defined[i].Metadata.Namespace
		for _, member := range s.membersOf(ctx, &defined[i]) {
			list, err := s.client.Waiting(ctx, in, member, limit)
			if err != nil {
				return w, err
			}
			w.list = append(w.list, list...)
			if !slices.Contains(w.members, member) {
				w.members = append(w.members, member)
			}
		}
	}
	slices.SortStableFunc(w.list, func(a, b client.Waiting) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Handler, b.Handler))
	})
	return w, nil
}

// who says whom a command is about.
func (w *waitingOf) who(name string) string {
	switch {
	case name == "":
		return "handlers"
	case len(w.members) > 0:
		return fmt.Sprintf("the handlers of the set %s (%s)", name, strings.Join(w.members, ", "))
	}
	return "handler " + name
}

// handlersNamed returns the handler of a name, or those of all namespaces. It is an error if there is none.
func (s *invocation) handlersNamed(ctx context.Context, namespace, name string) (found []resource.Handler, err error) {
	if namespace != "" {
		h, err := client.Get(ctx, s.client, client.Handlers, namespace, name)
		if absent(err) {
			err = reworded(err, "there is no handler %s in namespace %s", name, namespace)
		}
		if errors.Is(err, client.ErrNotFound) {
			return nil, hint(err, "See 'lapwing handler list' for the existing ones.")
		}
		if err != nil {
			return nil, err
		}
		return []resource.Handler{*h}, nil
	}
	var names []string
	for h, err := range client.All(ctx, s.client, client.Handlers, "", client.ListOptions{ChunkSize: defaultChunkSize}) {
		if err != nil {
			return nil, err
		}
		if names = append(names, h.Metadata.Name); h.Metadata.Name == name {
			found = append(found, *h)
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	text := "See 'lapwing handler list --all-namespaces' for the existing ones."
	if near := optionerr.Nearest(name, names); near != "" {
		text = fmt.Sprintf("Did you mean %q? %s", near, text)
	}
	return nil, hint(fmt.Errorf("%w %s in any namespace", errNoHandler, name), "%s", text)
}

var errNoHandler = errors.New("no handler")

// membersOf returns the handlers that a set calls, with those of sets in it; none if the handler is no set. It leaves
// out what is not defined: nothing waits for that.
func (s *invocation) membersOf(ctx context.Context, h *resource.Handler) (members []string) {
	seen := map[string]bool{h.Metadata.Name: true}
	for sets := []*resource.Handler{h}; len(sets) > 0; sets = sets[1:] {
		if sets[0].Type != "set" {
			continue
		}
		for _, name := range sets[0].Handlers {
			if seen[name] {
				continue
			}
			seen[name] = true
			member, err := client.Get(ctx, s.client, client.Handlers, h.Metadata.Namespace, name)
			switch {
			case errors.Is(err, client.ErrNotFound):
			case err == nil && member.Type == "set":
				sets = append(sets, member)
			default: // what cannot be looked at may be a handler
				members = append(members, name)
			}
		}
	}
	return members
}
