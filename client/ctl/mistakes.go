package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/lapwing-monitoring/lapwing/client"
)

// fileSet is what files have, and what is wrong with it.
type fileSet struct {
	objects []*object // those without a mistake that can be seen here
	drafts  []*object // those with one that the server can decode: it may find more
	wrong   []mistake
	others  []mistake      // what else the server refuses; they are told with mistakes
	place   map[string]int // of files in their order
}

// all returns all objects that the server can check.
func (set *fileSet) all() []*object { return slices.Concat(set.objects, set.drafts) }

// tell prints all mistakes in the order of files and lines. It returns an error if there is one.
func (set *fileSet) tell(w io.Writer) error {
	if len(set.wrong) == 0 {
		return nil
	}
	set.wrong = append(set.wrong, set.others...)
	files := map[string]bool{}
	slices.SortStableFunc(set.wrong, func(a, b mistake) int {
		return cmp.Or(set.place[a.source]-set.place[b.source], a.line-b.line)
	})
	for _, m := range set.wrong {
		fmt.Fprintln(w, printable(m.String()))
		files[m.source] = true
	}
	return &mistakesError{len(set.wrong), len(files)}
}

// try sends all objects as a dry run and notes the mistakes that the server finds. What else it refuses, and what keeps
// the requests from it, is left to the write.
func (set *fileSet) try(ctx context.Context, s *invocation, send func(context.Context, *object) error) {
	s.quiet = true
	defer func() { s.quiet = false }()
	for _, o := range set.all() {
		if o.kind == eventKind { // there is no dry run of it
			continue
		}
		err := send(client.WithDryRun(ctx), o)
		if err != nil && (!refusal(err) || noDryRun(err) || errors.Is(err, client.ErrUnauthenticated)) {
			return
		}
		set.refused(o, err)
	}
}

// noDryRunOf begins the server's refusal of a dry run of a kind that has none.
const noDryRunOf = "there is no dry run of this request"

// refused notes why the server refuses an object, and reports whether it is for mistakes in the object.
func (set *fileSet) refused(o *object, err error) bool {
	found := o.mistakesIn(err)
	set.wrong = append(set.wrong, found...)
	var refused *client.Error
	if len(found) > 0 || !errors.As(err, &refused) || len(refused.Mistakes) > 0 || strings.HasPrefix(refused.Message, noDryRunOf) {
		return len(found) > 0
	}
	line := o.from.at.line
	if errors.Is(err, client.ErrNotFound) {
		makes := func(one *object) bool { return one.kind == namespaceKind && one.name == o.namespace }
		if slices.ContainsFunc(set.all(), makes) {
			return false
		}
		line = o.from.lineOf("metadata.namespace")
	}
	set.others = append(set.others, mistake{o.from.source, line, o.kind.Type + " " + o.name, refused.Message})
	return false
}

// noDryRun reports whether the error of a dry run says that the server has none.
func noDryRun(err error) bool {
	var refused *client.Error
	return errors.Is(err, client.ErrNotFound) && errors.As(err, &refused) && refused.Code == 0
}

// mistakesIn returns the mistakes of the object that the server named in its answer to a dry run, each at the line of its
// field.
func (o *object) mistakesIn(err error) (found []mistake) {
	var refused *client.Error
	if !errors.As(err, &refused) {
		return nil
	}
	for _, m := range refused.Mistakes {
		if m.Field != "" && slices.Contains(o.meant, m.Field) {
			continue // that is said already
		}
		if m.Field == "" { // most texts begin with the field
			first, _, _ := strings.Cut(m.Message, " ")
			if _, there := o.body[strings.TrimSuffix(first, ":")]; there {
				m.Field = strings.TrimSuffix(first, ":")
			}
		}
		found = append(found, mistake{o.from.source, o.from.lineOf(m.Field), o.kind.Type + " " + o.name, m.Message})
	}
	return found
}

// lineOf returns the line of a field that has a path of the server's, such as subdues[0].begin; without the field, that of
// what it would be in.
func (d *document) lineOf(field string) int {
	if field == "" {
		return d.at.line
	}
	var steps []any
	if field != "metadata" && !strings.HasPrefix(field, "metadata.") {
		steps = append(steps, "spec")
	}
	for _, part := range strings.Split(field, ".") {
		key, rest, _ := strings.Cut(part, "[")
		steps = append(steps, key)
		if i, err := strconv.Atoi(strings.TrimSuffix(rest, "]")); err == nil {
			steps = append(steps, i)
		}
	}
	return d.at.find(steps).line
}
