package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/client"
)

// fileSet is what files have, and what is wrong with it.
type fileSet struct {
	objects []*object // those without a mistake that can be seen here
	drafts  []*object // those with one that the server can decode: it may find more
	named   []*object // all with a type and a name, with any mistakes
	wrong   []mistake
	denied  []mistake // what the roles do not allow: no mistakes, but they too stop before the first write
	others  []mistake // what else the server refuses; they are told with mistakes
	types   typeHelp
	place   map[string]int // of files in their order
}

// all returns all objects that the server can check.
func (set *fileSet) all() []*object { return slices.Concat(set.objects, set.drafts) }

// tell prints all mistakes, and what the roles do not allow, in the order of files and lines. It returns an error if there
// is one of them.
func (set *fileSet) tell(w io.Writer) error {
	if len(set.wrong)+len(set.denied) == 0 {
		return nil
	}
	if len(set.wrong) > 0 {
		set.wrong = append(set.wrong, set.others...)
	}
	files := map[string]bool{}
	for _, m := range set.wrong {
		files[m.source] = true
	}
	all := slices.Concat(set.wrong, set.denied)
	slices.SortStableFunc(all, func(a, b mistake) int {
		return cmp.Or(set.place[a.source]-set.place[b.source], a.line-b.line)
	})
	for _, m := range all {
		fmt.Fprintln(w, printable(m.String()))
	}
	for _, line := range set.types.lines() {
		fmt.Fprintln(w, line)
	}
	if len(set.wrong) == 0 {
		return hint(fmt.Errorf("your roles do not allow %s; nothing was changed", plural(len(set.denied), "resource")),
			"See your rights and their limits with 'lapwing auth can-i --list'.")
	}
	return &mistakesError{len(set.wrong), len(files), len(set.denied)}
}

// try sends all objects as a dry run and notes the mistakes that the server finds, and what the roles do not allow. What
// else it refuses, and what keeps the requests from it, is left to the write.
func (set *fileSet) try(ctx context.Context, s *invocation, send func(context.Context, *object) error) {
	s.quiet = true
	defer func() { s.quiet = false }()
	for _, o := range set.all() {
		if o.kind == eventKind { // it defines nothing
			continue
		}
		s.expected.sends(o)
		err := send(client.WithDryRun(ctx), o)
		if err != nil && (!refusal(err) || client.NoDryRun(err) || errors.Is(err, client.ErrUnauthenticated)) {
			return
		}
		set.refused(o, err)
	}
}

// refused notes why the server refuses an object, and reports whether that stops before the first write.
func (set *fileSet) refused(o *object, err error) bool {
	var refused *client.Error
	itsUser := func(one *object) bool { return one.kind == userKind && one.name == o.body["username"] }
	if o.kind == apiKeyKind && errors.As(err, &refused) && slices.ContainsFunc(set.all(), itsUser) { // the user comes first
		before := len(refused.Mistakes)
		refused.Mistakes = slices.DeleteFunc(refused.Mistakes, func(m client.FieldMistake) bool { return m.Field == "username" })
		if before > 0 && len(refused.Mistakes) == 0 {
			return false
		}
	}
	found := o.mistakesIn(err)
	set.wrong = append(set.wrong, found...)
	if len(found) > 0 || !errors.As(err, &refused) || len(refused.Mistakes) > 0 || client.NoDryRunOf(refused) {
		return len(found) > 0
	}
	line, what := o.from.Line(), o.kind.Type+" "+o.name
	if errors.Is(err, client.ErrDenied) {
		text := refused.Message
		if to := aimOf(refused); !reasoned(err) && to.role != "" {
			text = fmt.Sprintf("you lack the right to %s %s", to.verb, to.role)
			if to.namespace != "" {
				text += " in namespace " + to.namespace
			}
		}
		set.denied = append(set.denied, mistake{o.from.Source, line, what, text})
		return true
	}
	if errors.Is(err, client.ErrNotFound) {
		makes := func(one *object) bool { return one.kind == namespaceKind && one.name == o.namespace }
		if slices.ContainsFunc(set.all(), makes) {
			return false
		}
		line = o.from.LineOf("metadata.namespace")
	}
	set.others = append(set.others, mistake{o.from.Source, line, what, refused.Message})
	return false
}

// mistakesIn returns the mistakes of the object that the server named in its answer to a dry run, each at the line of its
// field.
func (o *object) mistakesIn(err error) (found []mistake) {
	var refused *client.Error
	if !errors.As(err, &refused) {
		return nil
	}
	list := refused.Mistakes
	if len(list) == 0 && refusesObject(refused) {
		list = []client.FieldMistake{{Message: refused.Message}}
	}
	for _, m := range list {
		if m.Field != "" && slices.Contains(o.meant, m.Field) {
			continue // that is said already
		}
		if m.Field == "" { // most texts begin with the field
			first, _, _ := strings.Cut(m.Message, " ")
			if _, there := o.body[strings.TrimSuffix(first, ":")]; there {
				m.Field = strings.TrimSuffix(first, ":")
			}
		}
		found = append(found, mistake{o.from.Source, o.from.LineOf(m.Field), o.kind.Type + " " + o.name, m.Message})
	}
	return found
}

// refusesObject reports whether the server refuses the object of a write for what it is, even if the answer lists no
// mistakes.
func refusesObject(refused *client.Error) bool {
	switch refused.Status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge:
		return !client.NoDryRunOf(refused)
	}
	return false
}
