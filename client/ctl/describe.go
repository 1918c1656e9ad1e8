package ctl

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

const typesHelp = `A type is named like checks, check or core/v2.CheckConfig; several are separated by commas, and all stands for every
type. 'lapwing describe-type all' lists them.`

// described is a type as describe-type prints it.
type described struct {
	Name       string `json:"name"`
	ShortName  string `json:"short_name"`
	APIVersion string `json:"api_version"`
	Type       string `json:"type"`
	Namespaced bool   `json:"namespaced"`
}

func describeTypeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "describe-type TYPE,...",
		Short: "list types of resources and what they are called",
		Long: `List types of resources and what they are called. The server is not asked.

` + typesHelp,
		Example: "  lapwing describe-type all\n  lapwing describe-type checks,core/v2.Handler --format yaml",
		Args:    args("TYPE,..."),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := resolve(cmd)
			if err != nil {
				return err
			}
			s := newSession(cmd, set)
			list, err := kindsNamed(args[0])
			if err != nil {
				return err
			}
			return s.describe(list)
		},
	}
	formatFlag(cmd)
	cmd.ValidArgs = append(typeNames(), "all")
	return cmd
}

func (s *session) describe(list []*kind) error {
	out := make([]described, len(list))
	for i, k := range list {
		out[i] = described{k.FullName(), k.Plural, k.Group, k.Type, k.Namespaced}
	}
	raw, err := jsonOf(out)
	if err != nil {
		return err
	}
	return s.printPlain(raw, func(json.RawMessage) (shown, error) {
		t := &table{columns: []column{{title: "Fully Qualified Name"}, {title: "Short Name"}, {title: "API Version"}, {title: "Type"}, {title: "Namespaced"}}}
		for _, d := range out {
			t.rows = append(t.rows, []string{d.Name, d.ShortName, d.APIVersion, d.Type, yesNo(d.Namespaced)})
		}
		return t, nil
	})
}

// kindsNamed are the kinds in a comma separated list, in its order and once each.
func kindsNamed(list string) ([]*kind, error) {
	var out []*kind
	for _, name := range splitList(list) {
		if strings.EqualFold(name, "all") {
			return dumped(), nil
		}
		k, ok := kindByName(name)
		if !ok {
			return nil, hint(fmt.Errorf("unknown type %q", name), "See 'lapwing describe-type all' for those there are.")
		}
		if !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	if len(out) == 0 {
		return nil, hint(fmt.Errorf("no type is named"), "See 'lapwing describe-type all' for those there are.")
	}
	return out, nil
}

// typeNames are the short names of all kinds.
func typeNames() []string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.Plural)
	}
	return names
}
