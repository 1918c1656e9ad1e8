package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
)

// authCommand has the commands about permissions and sign-in providers.
func authCommand() *cobra.Command {
	return groupOf("auth", "show permissions, and manage sign-in providers", "can-i list checks",
		canICommand(), listCommand(ldapKind), infoCommand(ldapKind), deleteCommand(ldapKind))
}

// answer is the server's answer to a question about a permission.
type answer client.CanIAnswer

func canICommand() *cobra.Command {
	var (
		all    bool
		list   bool
		as     string
		groups []string
	)
	cmd := &cobra.Command{
		Use:   "can-i VERB RESOURCE [NAME]",
		Short: "show whether you or another user may do something",
		Long: `Show whether you or another user may do something. VERB is get, list, create, update or delete. RESOURCE is a name as in
roles, for example checks. The answer yes names the binding and the role that allow it. The exit code for no is 2, and 1 for
a resource that no request asks for.

Resources of the whole cluster, for example users and clusterroles, are in no namespace: only ClusterRoleBindings count for
them. To acknowledge is create on silenced; histories, reports and notifications are read with get and list on events.

With --as the question is about another user. The groups of --as-group replace the user's own groups: so you can try a
role before you bind it.`,
		Example: `  lapwing auth can-i update checks
  lapwing auth can-i delete events --as alice --namespace production
  lapwing auth can-i --list --namespace production
  lapwing auth can-i get checks cpu --as nobody --as-group ops --format json`,
		Args: func(cmd *cobra.Command, words []string) error {
			if list {
				return args()(cmd, words)
			}
			if len(words) == 3 {
				return nil
			}
			return args("VERB", "RESOURCE")(cmd, words)
		},
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			query := url.Values{"namespace": {s.namespace}}
			if !list {
				query.Set("verb", args[0])
				query.Set("resource", resourceWord(args[1]))
			}
			if len(args) > 2 {
				query.Set("name", args[2])
			}
			if all {
				query.Set("namespace", "-")
			}
			if as != "" {
				query.Set("as", as)
			}
			for _, g := range trimmed(groups) {
				query.Add("group", g)
			}
			if list {
				return s.showRights(ctx, query, all)
			}
			var raw json.RawMessage
			if err := s.client.Do(ctx, http.MethodGet, "/api/lapwing/v1/auth/can-i?"+query.Encode(), nil, &raw); err != nil {
				return s.missingUser(ctx, query, err)
			}
			got, err := decode[answer](raw)
			if err != nil {
				return err
			}
			if got.Unknown && s.format == formatTabular {
				return hint(errors.New(got.Note), "docs/access.md has the names of resources, and what they allow.")
			}
			if err := s.printPlain(raw, func(json.RawMessage) (shown, error) { return got, nil }); err != nil {
				return err
			}
			if got.Unknown {
				return errors.New(got.Note)
			}
			if !got.Allowed {
				return errNo
			}
			return nil
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&list, "list", false, "list all that is allowed, and by which binding, in place of a question")
	f.BoolVar(&all, "all-namespaces", false,
		"check the permission in all namespaces at once; with --list also list the rights of single namespaces")
	f.StringVar(&as, "as", "", "user to check instead of yourself")
	f.StringSliceVar(&groups, "as-group", nil, "ask about members of these groups, comma separated")
	formatFlag(cmd)
	return cmd
}

// resourceWord returns the name in roles of a kind that the user may have called check or CheckConfig.
func resourceWord(word string) string {
	if k, ok := kindByName(word); ok && !k.Wrapped {
		return k.Plural
	}
	return word
}

func (a *answer) show(s *invocation) error {
	if !a.Allowed {
		text := "no"
		if len(a.LabelSelectors) > 0 {
			text += ": its labels do not match " + strings.Join(a.LabelSelectors, " or ")
		}
		switch {
		case a.Note != "":
			text += ": " + printable(a.Note)
		case len(a.LabelSelectors) == 0 && a.User != "":
			text += printable(": no role of " + a.User + " allows it (groups: " + cmp.Or(commaSpace(a.Groups), "none") + ")")
		}
		_, err := fmt.Fprintln(s.out, text)
		return err
	}
	text := "yes"
	if a.Binding != nil && a.Role != nil {
		binding := a.Binding.Name
		if a.Binding.Namespace != "" {
			binding = a.Binding.Namespace + "/" + binding
		}
		text += fmt.Sprintf(": %s %s binds %s %s", a.Binding.Type, binding, a.Role.Type, a.Role.Name)
	}
	if _, err := fmt.Fprintln(s.out, text); err != nil {
		return err
	}
	if a.Note != "" {
		fmt.Fprintln(s.out, "note:", printable(a.Note))
	}
	for _, selector := range a.LabelSelectors {
		fmt.Fprintln(s.out, "only where labels match:", selector)
	}
	return nil
}
