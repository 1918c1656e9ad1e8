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

// showRights prints all that a user may do, for the question in query; everywhere adds the rights of single namespaces.
func (s *invocation) showRights(ctx context.Context, query url.Values, everywhere bool) error {
	var raw json.RawMessage
	if err := s.client.Do(ctx, http.MethodGet, "/api/lapwing/v1/auth/rights?"+query.Encode(), nil, &raw); err != nil {
		return s.missingUser(ctx, query, err)
	}
	got, err := decode[client.RightsAnswer](raw)
	if err != nil {
		return err
	}
	if everywhere {
		if err := s.addRights(ctx, query, got); err != nil {
			return err
		}
		if raw, err = json.Marshal(got); err != nil {
			return err
		}
	}
	unknown := s.unknownResources(ctx, got.Rights)
	rights, unlabelled := effective(got.Rights, unknown)
	if len(rights) == 0 {
		fmt.Fprintf(s.errOut, "%s may do nothing here\n", printable(cmp.Or(got.User, "such a user")))
	}
	if len(unlabelled) > 0 {
		fmt.Fprintln(s.errOut, printable("rules limited by labels do not count for resources without labels: "+commaSpace(unlabelled)))
	}
	for _, name := range slices.Sorted(maps.Keys(unknown)) {
		fmt.Fprintln(s.errOut, printable(unknown[name]))
	}
	return s.printPlain(raw, func(json.RawMessage) (shown, error) {
		t := &table{columns: []column{{title: "Verbs"}, {title: "Resources"}, {title: "Names"}, {title: "Labels"}, {title: "Granted By"}}}
		for _, r := range rights {
			by := r.Binding.Name
			if r.Binding.Namespace != "" {
				by = r.Binding.Namespace + "/" + by
			}
			t.rows = append(t.rows, []string{
				comma(r.Verbs), comma(r.Resources), comma(r.ResourceNames), r.LabelSelector,
				fmt.Sprintf("%s %s (%s %s)", r.Binding.Type, by, r.Role.Type, r.Role.Name),
			})
		}
		return t, nil
	})
}

// mostAskedResources is how many names of resources in rules are looked up one by one.
const mostAskedResources = 50

// unknownResources returns the names in rules that are no resource's, each with what the server says of it: they allow nothing.
func (s *invocation) unknownResources(ctx context.Context, rights []client.Right) map[string]string {
	asked, unknown := map[string]bool{"*": true}, map[string]string{}
	for _, k := range resource.Kinds {
		asked[k.Role] = true
	}
	for _, r := range rights {
		for _, name := range r.Resources {
			if asked[name] || len(asked) >= len(resource.Kinds)+mostAskedResources {
				continue
			}
			asked[name] = true
			var answer client.CanIAnswer
			q := url.Values{"verb": {"get"}, "resource": {name}, "namespace": {"-"}}
			err := s.client.Do(ctx, http.MethodGet, "/api/lapwing/v1/auth/can-i?"+q.Encode(), nil, &answer)
			if err == nil && answer.Unknown {
				unknown[name] = answer.Note
			}
		}
	}
	return unknown
}

// effective returns the rights without the resources for which they do not count, and those resources that have no labels.
func effective(all []client.Right, unknown map[string]string) (rights []client.Right, unlabelled []string) {
	for _, r := range all {
		unlabelled = append(unlabelled, r.Unlabelled...)
		r.Resources = slices.DeleteFunc(slices.Clone(r.Resources), func(name string) bool {
			return slices.Contains(r.Unlabelled, name) || unknown[name] != ""
		})
		if len(r.Resources) > 0 {
			rights = append(rights, r)
		}
	}
	slices.Sort(unlabelled)
	return rights, slices.Compact(unlabelled)
}

// addRights adds the rights that count in one namespace only, of each namespace that the asking user sees.
func (s *invocation) addRights(ctx context.Context, query url.Values, to *client.RightsAnswer) error {
	for one, err := range client.All(ctx, s.client, client.Namespaces, "", client.ListOptions{ChunkSize: defaultChunkSize}) {
		if err != nil {
			return err
		}
		query.Set("namespace", one.Name)
		var there client.RightsAnswer
		if err := s.client.Do(ctx, http.MethodGet, "/api/lapwing/v1/auth/rights?"+query.Encode(), nil, &there); err != nil {
			return err
		}
		for _, r := range there.Rights {
			if r.Binding.Namespace != "" { // the others are in the answer for the whole cluster
				to.Rights = append(to.Rights, r)
			}
		}
	}
	return nil
}

// rulesText returns rules in short: get,list checks (name a,b); delete events (region == eu).
func rulesText(rules []resource.Rule) string {
	var out []string
	for _, r := range rules {
		text := comma(r.Verbs) + " " + comma(r.Resources)
		var limits []string
		if len(r.ResourceNames) > 0 {
			limits = append(limits, "name "+comma(r.ResourceNames))
		}
		if r.LabelSelector != "" {
			limits = append(limits, r.LabelSelector)
		}
		if len(limits) > 0 {
			text += " (" + strings.Join(limits, "; ") + ")"
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

// roleRules shows the rules of a list of roles.
var roleRules = &addition{
	title: "Allows",
	list: func(context.Context, *client.Client, string, client.ListOptions) (cells, error) {
		return func(raw json.RawMessage) string {
			r, err := decode[role](raw)
			if err != nil {
				return ""
			}
			return rulesText(r.Rules)
		}, nil
	},
	one: noLine,
}

// boundRules shows what the roles of a list of bindings allow, as far as the user may list roles.
var boundRules = &addition{
	title: "Allows",
	list: func(ctx context.Context, c *client.Client, namespace string, _ client.ListOptions) (cells, error) {
		texts := map[string]string{} // by type, namespace and name
		for r, err := range client.All(ctx, c, client.ClusterRoles, "", client.ListOptions{}) {
			if errors.Is(err, client.ErrDenied) {
				break
			}
			if err != nil {
				return nil, err
			}
			texts["ClusterRole//"+r.Metadata.Name] = rulesText(r.Rules)
		}
		for r, err := range client.All(ctx, c, client.Roles, namespace, client.ListOptions{}) {
			if errors.Is(err, client.ErrDenied) {
				break
			}
			if err != nil {
				return nil, err
			}
			texts["Role/"+r.Metadata.Namespace+"/"+r.Metadata.Name] = rulesText(r.Rules)
		}
		return func(raw json.RawMessage) string {
			b, err := decode[roleBinding](raw)
			if err != nil {
				return ""
			}
			if b.RoleRef.Type == "ClusterRole" {
				return texts["ClusterRole//"+b.RoleRef.Name]
			}
			return texts["Role/"+b.Metadata.Namespace+"/"+b.RoleRef.Name]
		}, nil
	},
	one: noLine,
}

func noLine(context.Context, *client.Client, string, string) (string, error) { return "", nil }

// missingUser names the user of a question about rights who does not exist.
func (s *invocation) missingUser(ctx context.Context, query url.Values, err error) error {
	user := query.Get("as")
	if !absent(err) || user == "" {
		return err
	}
	near, names := s.nearest(ctx, client.Kind[json.RawMessage](client.Users), "", user, resourceName(userKind), client.ListOptions{})
	if slices.Contains(names, user) {
		return err // another thing is missing
	}
	text := "See 'lapwing user list' for the existing ones; for a user of a sign-in provider add --as-group."
	if near != "" {
		text = fmt.Sprintf("Did you mean %q? %s", near, text)
	}
	return hint(fmt.Errorf("there is no user %s", user), "%s", text)
}
