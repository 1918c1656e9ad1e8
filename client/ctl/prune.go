package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func pruneCommand() *cobra.Command {
	var (
		in                  inputFiles
		users, omit         []string
		allUsers, wide, dry bool
		labelSelector       string
	)
	cmd := &cobra.Command{
		Use:   "prune TYPE,...",
		Short: "delete resources that were created or applied from files and are no longer in the files",
		Long: `Delete resources of some types that "create -f" or "apply" made and that are no longer in the given files: resources with the
label ` + managedBy + `: sensuctl, in the current namespace, created by you.

` + typesHelp + `

` + filesHelp + `

What is deleted is printed, with a warning of what still names it. Nothing is asked: try --dry-run first. 'lapwing apply
--prune' does the same for resources that apply has made, and needs no support by the server.`,
		Example: `  lapwing prune checks,handlers -r -f config/ --dry-run
  lapwing prune all -r -f config/ --omit entities --all-users
  lapwing prune clusterroles -f roles.yaml --cluster-wide --format json`,
		Args: args("TYPE,..."),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			list, err := kindsNamed(args[0])
			if err != nil {
				return err
			}
			all := len(list) == len(dumped())
			if len(omit) > 0 {
				omitted, err := kindsNamed(comma(omit))
				if err != nil {
					return err
				}
				list = slices.DeleteFunc(list, func(k *kind) bool { return slices.Contains(omitted, k) })
			}
			in.whole = true
			objects, err := readObjects(ctx, s, &in)
			if err != nil {
				return err
			}
			query := url.Values{"namespaces": {s.namespace}}
			for _, k := range list {
				if all && (k.Prune == 0 || !k.Namespaced && !wide) {
					continue
				}
				query.Add("types", k.FullName())
			}
			for name, on := range map[string]bool{"allUsers": allUsers, "clusterWide": wide, "dryRun": dry} {
				if on {
					query.Set(name, "true")
				}
			}
			for _, user := range trimmed(users) {
				query.Add("users", user)
			}
			if labelSelector != "" {
				query.Set("labelSelector", labelSelector)
			}
			keep := []json.RawMessage{}
			for _, o := range objects {
				raw, err := jsonOf(o.wrapped())
				if err != nil {
					return err
				}
				keep = append(keep, raw)
			}
			const path = "/api/enterprise/prune/v1alpha?"
			try := maps.Clone(query)
			try.Set("dryRun", "true") // first see what still names it
			var deleted json.RawMessage
			if err := s.client.Do(ctx, http.MethodPost, path+try.Encode(), keep, &deleted); err != nil {
				return err
			}
			if len(objectsNamed(deleted)) == 0 && !wide {
				if err := s.knownNamespace(ctx, s.namespace); err != nil {
					return err
				}
			}
			gone := objectsNamed(deleted)
			s.warnOfReferrers(ctx, gone, nil)
			var left stranded
			for _, o := range gone {
				left.add(ctx, s, o)
			}
			if !dry {
				if err := s.client.Do(ctx, http.MethodPost, path+query.Encode(), keep, &deleted); err != nil {
					return err
				}
			}
			left.tell(s, dry)
			if err := s.printPlain(deleted, prunedTable); err != nil {
				return err
			}
			pruned, err := decode[[]client.Reference](deleted)
			if err == nil && s.format == formatTabular {
				word := "deleted"
				if dry {
					word = "would delete"
				}
				fmt.Fprintln(s.out, word, len(*pruned))
			}
			return nil
		}),
	}
	f := cmd.Flags()
	in.flags(cmd)
	f.BoolVarP(&allUsers, "all-users", "a", false, "also delete resources that other users created")
	f.StringSliceVarP(&users, "users", "u", nil, "delete only resources that these users created, comma separated")
	f.BoolVarP(&wide, "cluster-wide", "c", false, "also delete resources without a namespace")
	f.BoolVarP(&dry, "dry-run", "d", false, "only print what prune would delete")
	f.StringSliceVarP(&omit, "omit", "o", nil, "types to leave out, comma separated")
	f.StringVar(&labelSelector, "label-selector", "", "only resources whose labels match, for example 'region == eu'")
	formatFlag(cmd)
	cmd.ValidArgs = append(typeNames(), "all")
	return cmd
}

func prunedTable(raw json.RawMessage) (shown, error) {
	list, err := decode[[]client.Reference](raw)
	if err != nil {
		return nil, fmt.Errorf("decode number of deleted orphans: %w", err)
	}
	t := &table{columns: []column{{title: "Type"}, {title: "Namespace"}, {title: "Name"}}}
	for _, d := range *list {
		meta := cmp.Or(d.Metadata, &resource.ObjectMeta{})
		t.rows = append(t.rows, []string{d.APIVersion + "." + d.Type, meta.Namespace, meta.Name})
	}
	return t, nil
}

// objectsNamed returns what the server's answer names.
func objectsNamed(raw json.RawMessage) (out []*object) {
	list, err := decode[[]client.Reference](raw)
	if err != nil {
		return nil
	}
	for _, one := range *list {
		k, ok := kindByType(one.APIVersion, one.Type)
		if meta := one.Metadata; ok && meta != nil {
			out = append(out, &object{kind: k, namespace: meta.Namespace, name: meta.Name})
		}
	}
	return out
}
