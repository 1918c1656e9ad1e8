package ctl

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/internal/flaggroup"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
)

const typesHelp = `A type has names like checks, check or core/v2.CheckConfig. Separate several types by commas; all means every type.
'lapwing describe-type all' lists them.`

// described is a type in the output of describe-type.
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
		Short: "list the types of resources and their names",
		Long: `List the types of resources and their names. The list comes from this program and not from the server.

` + typesHelp,
		Example: "  lapwing describe-type all\n  lapwing describe-type checks,core/v2.Handler --format yaml",
		Args:    args("TYPE,..."),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := resolve(cmd)
			if err != nil {
				return err
			}
			s := newInvocation(cmd, set)
			list, err := kindsNamed(args[0])
			if err != nil {
				return err
			}
			return s.describe(list)
		},
	}
	formatFlag(cmd)
	cmd.ValidArgs = append(typeNames(), "all")
	return flaggroup.Only(cmd)
}

func (s *invocation) describe(list []*kind) error {
	out := make([]described, len(list))
	for i, k := range list {
		out[i] = described{k.FullName(), k.Plural, k.Group, k.Type, k.Namespaced}
	}
	raw, err := jsonOf(out)
	if err != nil {
		return err
	}
	return s.printPlain(raw, func(json.RawMessage) (shown, error) {
		t := &table{columns: []column{{title: "Fully Qualified Name"}, {title: "Short Name"}, {title: "API Version"},
			{title: "Type"}, {title: "Namespaced"}}}
		for _, d := range out {
			t.rows = append(t.rows, []string{d.Name, d.ShortName, d.APIVersion, d.Type, yesNo(d.Namespaced)})
		}
		return t, nil
	})
}

// kindsNamed returns the kinds in a comma separated list, in its order and without repeats.
func kindsNamed(list string) ([]*kind, error) {
	var out []*kind
	for _, name := range splitList(list) {
		if strings.EqualFold(name, "all") {
			return dumped(), nil
		}
		k, ok := kindByName(name)
		if !ok {
			return nil, unknownType(name, "%s is a file or directory: a type is needed, as in 'lapwing describe-type all'.")
		}
		if !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	if len(out) == 0 {
		return nil, hint(fmt.Errorf("no type is given"), "See 'lapwing describe-type all' for the types.")
	}
	return out, nil
}

// unknownType is the error of a word that is no type. ofFile is the hint if the word is a file.
func unknownType(name, ofFile string) error {
	err := fmt.Errorf("unknown type %q", name)
	if near := optionerr.Nearest(name, typeNames()); near != "" {
		err = fmt.Errorf("%w: did you mean %q?", err, near)
	} else if _, missing := os.Stat(name); missing == nil {
		return hint(err, ofFile, shellWord(name))
	}
	return hint(err, "See 'lapwing describe-type all' for the types.")
}

// typeNames returns the short names of all kinds.
func typeNames() []string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.Plural)
	}
	return names
}
