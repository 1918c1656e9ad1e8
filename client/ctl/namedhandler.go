package ctl

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
)

// unknownNames returns an error if a namespace or handlers that a user named for a list that is empty do not exist, each
// "" for none. A handler may be deleted and still have what is listed: has reports whether it has any, and others has the
// names of such handlers. Both may be nil. A user who may not see the handlers gets no error.
func (s *invocation) unknownNames(
	ctx context.Context, namespace string, handlers []string, has func(handler string) bool, others func() []string,
) error {
	if err := s.knownNamespace(ctx, namespace); err != nil && (has == nil || !has("")) {
		return err
	}
	for _, name := range handlers {
		_, err := s.handlersNamed(ctx, namespace, name)
		if !errors.Is(err, errNoHandler) && !errors.Is(err, client.ErrNotFound) || has != nil && has(name) {
			continue
		}
		text, list := "no handler "+name+" in namespace "+namespace, "lapwing handler list"
		if namespace == "" {
			text, list = "no handler "+name+" in any namespace", list+" --all-namespaces"
		}
		see := "See '" + list + "' for the existing ones."
		var deleted []string
		if others != nil {
			deleted = others()
		}
		if near := optionerr.Nearest(name, append(s.handlerNames(ctx, namespace), deleted...)); near != "" {
			see = fmt.Sprintf("Did you mean %q? %s", near, see)
		}
		return hint(errors.New(text), "%s", see)
	}
	return nil
}

// handlerNames returns the names of handlers, those that the user may see.
func (s *invocation) handlerNames(ctx context.Context, namespace string) (names []string) {
	for h, err := range client.All(ctx, s.client, client.Handlers, namespace, client.ListOptions{ChunkSize: defaultChunkSize}) {
		if err != nil || len(names) == mostNames {
			break
		}
		names = append(names, h.Metadata.Name)
	}
	return names
}

// unknownInDeadLetters is unknownNames of a command about dead letters.
func (s *invocation) unknownInDeadLetters(ctx context.Context, namespace string, handlers []string) error {
	has := func(handler string) bool { return s.countDeadLetters(ctx, namespace, handler, 1) > 0 }
	return s.unknownNames(ctx, namespace, handlers, has, func() (names []string) {
		seen := 0
		for d, err := range s.client.DeadLetters(ctx, namespace, "", "") {
			if seen++; err != nil || seen > mostNames {
				break
			}
			if !slices.Contains(names, d.Handler) {
				names = append(names, d.Handler)
			}
		}
		return names
	})
}

// countDeadLetters returns how many dead letters a handler has, at most limit. Without the right to see them it returns 0.
func (s *invocation) countDeadLetters(ctx context.Context, namespace, handler string, limit int) (n int) {
	for _, err := range s.client.DeadLetters(ctx, namespace, handler, "") {
		if err != nil {
			return n
		}
		if n++; n == limit {
			break
		}
	}
	return n
}

// tellDeadLetters says beside what waits for a handler, or for all of them for "", that there are dead letters, and reports
// whether there are.
func (s *invocation) tellDeadLetters(ctx context.Context, namespace, handler string) bool {
	const most = 1000 // a page
	n := s.countDeadLetters(ctx, namespace, handler, most)
	if n == 0 {
		return false
	}
	text, words := plural(n, "dead letter"), []string{"deadletter", "list"}
	if n == most {
		text = "at least " + text
	}
	if namespace == "" {
		words = append(words, "--all-namespaces")
	}
	if handler == "" {
		fmt.Fprintf(s.errOut, "besides, there are dead letters, which nothing sends by itself: %s: %s\n", text, s.commandLine(words...))
		return true
	}
	words = append(words, "--handler", handler)
	fmt.Fprintf(s.errOut, "handler %s has %s: %s\n", printable(handler), text, s.commandLine(words...))
	return true
}
