package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// named are the types of definitions that other definitions name.
var named = []string{
	client.Handlers.Type, client.Filters.Type, client.Mutators.Type, client.Assets.Type, client.Hooks.Type, client.Pipelines.Type,
	client.FallbackPipelines.Type,
	client.Calendars.Type, client.Contacts.Type, client.Rotas.Type, client.Roles.Type, client.ClusterRoles.Type, client.Users.Type,
}

const (
	askedAtOnce   = 50 // names in one request
	mostReferrers = 10 // told of one name
)

// where names a definition: its type, its namespace, and its name.
type where [3]string

// warnOfReferrers warns of definitions that name something which is about to be deleted, and which are not deleted too. It
// is no reason to fail: a server that does not know the question gives no warning. Unwritten objects are as a dry run would
// write them: what they name counts, and not what the server has of them.
func (s *invocation) warnOfReferrers(ctx context.Context, gone, unwritten []*object) {
	going := map[where]bool{}
	var asked []*object
	for _, o := range gone {
		going[where{o.kind.Type, o.namespace, o.name}] = true
		if slices.Contains(named, o.kind.Type) {
			asked = append(asked, o)
		}
	}
	if len(asked) == 0 {
		return
	}
	told, more := map[string]int{}, map[string]int{} // by what is named
	needs := map[where]string{}                      // of a calendar that stays: which calendar is deleted that it needs
	for len(asked) > 0 {
		found, unlisted, err := s.allReferrers(ctx, asked, unwritten)
		if err != nil && !errors.Is(err, client.ErrNotFound) && ctx.Err() == nil {
			text := fmt.Sprintf("what still names %s is not known: %v", theOne(asked), bare(err))
			fmt.Fprintln(s.errOut, "Warning:", printable(text))
		}
		if err != nil {
			return
		}
		maps.Copy(more, unlisted)
		asked = nil
		for _, r := range found {
			at := where{r.Type, r.Namespace, r.Name}
			if going[at] {
				continue
			}
			what := r.What + " " + r.Named
			name := r.Name
			if r.Namespace != "" && r.Namespace != s.namespace {
				name = r.Namespace + "/" + name
			}
			text, root := fmt.Sprintf("%s %s still names %s", r.Type, name, what), what
			if of, ok := needs[where{client.Calendars.Type, r.Namespace, r.Named}]; ok && r.What == client.Calendars.Word() {
				text, root = fmt.Sprintf("%s %s names %s, which needs %s", r.Type, name, what, of), of
			}
			if told[what]++; told[what] <= mostReferrers {
				fmt.Fprintln(s.errOut, "Warning:", printable(text))
			}
			// A calendar counts as missing without one that it names, for all that names it.
			if _, known := needs[at]; r.Type == client.Calendars.Type && !known {
				needs[at] = root
				asked = append(asked, &object{kind: calendarKind, namespace: r.Namespace, name: r.Name})
			}
		}
	}
	for _, what := range slices.Sorted(maps.Keys(told)) {
		if more := told[what] - mostReferrers; more > 0 {
			fmt.Fprintln(s.errOut, "Warning:", printable(fmt.Sprintf("%d more still name %s", more, what)))
		}
	}
	for _, what := range slices.Sorted(maps.Keys(more)) {
		text := fmt.Sprintf("%d more name %s, which the server did not list", more[what], what)
		fmt.Fprintln(s.errOut, "Warning:", printable(text))
	}
}

// allReferrers returns what names some objects, in the order of kinds. Unwritten objects count, and not what the server has of
// them. Of very many, only their number is known.
func (s *invocation) allReferrers(ctx context.Context, asked, unwritten []*object) (
	found []resource.Referrer, more map[string]int, err error,
) {
	if found, more, err = s.referrers(ctx, asked); err != nil {
		return nil, nil, err
	}
	about, ours := map[where]bool{}, map[where]bool{}
	for _, o := range asked {
		about[where{o.kind.Type, o.namespace, o.name}] = true
	}
	for _, o := range unwritten {
		ours[where{o.kind.Type, o.namespace, o.name}] = true
	}
	found = slices.DeleteFunc(found, func(r resource.Referrer) bool { return ours[where{r.Type, r.Namespace, r.Name}] })
	for _, o := range unwritten {
		for _, u := range o.uses() {
			at := where{u.Kind.Type, "", u.Name}
			if u.Kind.Namespaced {
				at[1] = o.namespace
			}
			r := resource.Referrer{Type: o.kind.Type, Namespace: o.namespace, Name: o.name, What: u.Kind.Word(), Named: u.Name}
			if about[at] && !slices.Contains(found, r) {
				found = append(found, r)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b resource.Referrer) int {
		return cmp.Or(placeOfType(a.Type)-placeOfType(b.Type), strings.Compare(a.Namespace, b.Namespace),
			strings.Compare(a.Name, b.Name))
	})
	return found, more, nil
}

// referrers asks what names some objects. Of very many it returns only the number of those that are not listed, by what
// they name.
func (s *invocation) referrers(ctx context.Context, asked []*object) (
	found []resource.Referrer, more map[string]int, err error,
) {
	places := map[string][]string{} // what to ask for, by namespace
	words := map[string]string{}
	for _, o := range asked {
		namespace, to := o.namespace, o.kind.Role+"/"+o.name
		if !o.kind.Namespaced {
			namespace = "-"
		}
		places[namespace] = append(places[namespace], to)
		words[to] = o.kind.Word() + " " + o.name
	}
	more = map[string]int{}
	for _, namespace := range slices.Sorted(maps.Keys(places)) {
		for names := range slices.Chunk(places[namespace], askedAtOnce) {
			var answer resource.Referrers
			path := "/api/lapwing/v1/namespaces/" + url.PathEscape(namespace) + "/referrers?" + url.Values{"to": names}.Encode()
			if err := s.client.Do(ctx, http.MethodGet, path, nil, &answer); err != nil {
				return nil, nil, err
			}
			found = append(found, answer.Referrers...)
			for to, n := range answer.More {
				more[words[to]] += n
			}
		}
	}
	return found, more, nil
}

// theOne names one object, or says how many there are.
func theOne(list []*object) string {
	if len(list) == 1 {
		return list[0].kind.Word() + " " + list[0].name
	}
	return fmt.Sprintf("these %d resources", len(list))
}

// uses returns what an object names.
func (o *object) uses() []resource.Use {
	spec := o.kind.New()
	data, err := json.Marshal(o.body)
	if err == nil {
		err = json.Unmarshal(data, spec)
	}
	if err != nil {
		return nil // the server would not take it
	}
	_, uses := resource.Uses(spec)
	return uses
}

// placeOfType returns the place of a type in the order of kinds.
func placeOfType(name string) int {
	return slices.IndexFunc(resource.Kinds, func(k *resource.Kind) bool { return k.Type == name })
}
