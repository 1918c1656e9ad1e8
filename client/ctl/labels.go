package ctl

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// labelColumns are the columns of labels that a list has on request, as kubectl has them.
type labelColumns struct {
	all  bool     // one column for all labels
	keys []string // a column for each of these
}

// flags adds the flags, if resources of the kind have labels.
func (l *labelColumns) flags(cmd *cobra.Command, k *kind) {
	meta, ok := k.goType.FieldByName("Metadata")
	if !ok || meta.Type != reflect.TypeFor[resource.ObjectMeta]() {
		return
	}
	f := cmd.Flags()
	f.BoolVar(&l.all, "show-labels", false, "show all labels, in one more column")
	f.StringSliceVarP(&l.keys, "label-columns", "L", nil, "labels to show, in a column each, for example region,team")
	cmd.Example += fmt.Sprintf("\n  lapwing %s list --label-columns region,team", k.Command)
}

// of returns a kind with the columns of labels in its tables.
func (l *labelColumns) of(k *kind) *kind {
	if !l.all && len(l.keys) == 0 {
		return k
	}
	with := *k
	with.columns = slices.Clone(k.columns)
	for _, key := range l.keys {
		with.columns = append(with.columns, column{title: key, keep: true})
	}
	if l.all {
		with.columns = append(with.columns, column{title: "Labels", text: true})
	}
	with.rows = func(raw json.RawMessage) ([][]string, error) {
		rows, err := k.rows(raw)
		if err != nil {
			return nil, err
		}
		labels, err := labelsOf(k, raw)
		if err != nil {
			return nil, err
		}
		var cells []string
		for _, key := range l.keys {
			cells = append(cells, labels[key])
		}
		if l.all {
			var pairs []string
			for _, key := range slices.Sorted(maps.Keys(labels)) {
				pairs = append(pairs, key+"="+labels[key])
			}
			cells = append(cells, strings.Join(pairs, ","))
		}
		for i := range rows { // behind the other columns, and before the namespace
			rows[i] = slices.Insert(rows[i], len(k.columns), cells...)
		}
		return rows, nil
	}
	return &with
}

// labelsOf returns the labels of a resource. Those of an event are its own, its check's and its entity's, in this order
// of precedence, as selectors see them.
func labelsOf(k *kind, raw json.RawMessage) (map[string]string, error) {
	type labelled struct{ Metadata resource.ObjectMeta }
	var item struct {
		labelled
		Check, Entity labelled
	}
	if err := json.Unmarshal(raw, &item); err != nil {
		return nil, fmt.Errorf("decode labels of %s: %w", k.Command, err)
	}
	labels := map[string]string{}
	if k.Type == client.Events.Type {
		maps.Copy(labels, item.Entity.Metadata.Labels)
		maps.Copy(labels, item.Check.Metadata.Labels)
	}
	maps.Copy(labels, item.Metadata.Labels)
	return labels, nil
}
