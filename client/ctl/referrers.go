package ctl

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

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

// warnOfReferrers warns of definitions that name something which is about to be deleted, and which are not deleted too. It
// is no reason to fail: a server that does not know the question, or does not answer, gives no warning.
func (s *invocation) warnOfReferrers(ctx context.Context, gone []*object, leaves func(*resource.Referrer) bool) {
	places := map[string][]string{} // what to ask for, by namespace
	going := map[[3]string]bool{}
	for _, o := range gone {
		going[[3]string{o.kind.Type, o.namespace, o.name}] = true
		if !slices.Contains(named, o.kind.Type) {
			continue
		}
		namespace := o.namespace
		if !o.kind.Namespaced {
			namespace = "-"
		}
		places[namespace] = append(places[namespace], o.kind.Role+"/"+o.name)
	}
	told := map[string]int{} // by what is named
	for _, namespace := range slices.Sorted(maps.Keys(places)) {
		for names := range slices.Chunk(places[namespace], askedAtOnce) {
			var found []resource.Referrer
			path := "/api/lapwing/v1/namespaces/" + url.PathEscape(namespace) + "/referrers?" + url.Values{"to": names}.Encode()
			if err := s.client.Do(ctx, http.MethodGet, path, nil, &found); err != nil {
				return
			}
			for i := range found {
				r := &found[i]
				if going[[3]string{r.Type, r.Namespace, r.Name}] || leaves != nil && leaves(r) {
					continue
				}
				what := fmt.Sprintf("%s %s", r.What, r.Named)
				if told[what]++; told[what] <= mostReferrers {
					name := r.Name
					if r.Namespace != "" && r.Namespace != s.namespace {
						name = r.Namespace + "/" + name
					}
					fmt.Fprintln(s.errOut, "Warning:", printable(fmt.Sprintf("%s %s still names %s", r.Type, name, what)))
				}
			}
		}
	}
	for _, what := range slices.Sorted(maps.Keys(told)) {
		if more := told[what] - mostReferrers; more > 0 {
			fmt.Fprintln(s.errOut, "Warning:", printable(fmt.Sprintf("%d more still name %s", more, what)))
		}
	}
}

// mentions reports whether a text is a value somewhere in a part of a definition.
func mentions(part any, text string) bool {
	switch part := part.(type) {
	case string:
		return part == text
	case []any:
		return slices.ContainsFunc(part, func(one any) bool { return mentions(one, text) })
	case map[string]any:
		for _, one := range part {
			if mentions(one, text) {
				return true
			}
		}
	}
	return false
}
