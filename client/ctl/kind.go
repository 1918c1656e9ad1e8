package ctl

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// kinds has all kinds that the client knows, in the order of resource.Kinds, which is the order of dumps. To add one,
// give its row there a display, in a file of its own, and add it here.
var kinds = inTableOrder(
	namespaceKind, clusterRoleKind, clusterRoleBindingKind, userKind, apiKeyKind, tessenKind,
	assetKind, checkKind, entityKind, eventKind, filterKind, handlerKind, hookKind, mutatorKind, pipelineKind,
	fallbackKind, roleKind, roleBindingKind, silencedKind,
	aggregateKind, metricCheckKind, calendarKind, contactKind, rotaKind, entityConfigKind, ldapKind, adKind, oidcKind, postgresKind,
)

func inTableOrder(list ...*kind) []*kind {
	place := func(k *kind) int {
		return slices.IndexFunc(resource.Kinds, func(row *resource.Kind) bool {
			return row.Group == k.Group && (row.Type == k.Type || slices.Contains(row.Types, k.Type))
		})
	}
	slices.SortStableFunc(list, func(a, b *kind) int { return place(a) - place(b) })
	return list
}

// dumped returns the kinds that "all" means: all but entity configs, because entities include them, and sign-in
// providers, because dumps cannot show their secrets.
func dumped() []*kind {
	return slices.DeleteFunc(slices.Clone(kinds), func(k *kind) bool {
		return k.Group == resource.CoreV3 || k.Group == resource.AuthAPIVersion
	})
}

// kind is how commands see a kind of resource. Resources stay in the JSON that the API sent. So printing a resource or
// putting it back loses no field, not even a field that this version does not know.
type kind struct {
	client.Kind[json.RawMessage]

	args    []string // the arguments that name one resource
	example string   // an example of them

	goType  reflect.Type
	columns []column
	// rows returns a table's lines for one resource, with the namespace as one more cell at the end. An asset has a
	// line for each build.
	rows func(raw json.RawMessage) ([][]string, error)
	// info lays out one resource for people.
	info func(raw json.RawMessage) (shown, error)

	addition *addition // nil for none

	fields         []flagField // flags of create and update
	createExamples string

	can can
	// extra are commands in addition to the common ones.
	extra []func(*kind) *cobra.Command
}

// can says which of the common commands a kind has.
type can uint8

const (
	canList can = 1 << iota
	canInfo
	canDelete
	canCreate
	canUpdate
)

// display says how resources of type T are shown.
type display[T any] struct {
	args      []string // default NAME
	example   string
	columns   []cellOf[T]
	split     func(*T) []*T // into the lines of a table; nil = one line
	title     func(*T) string
	fields    []fieldOf[T]
	layout    func(*T) shown // instead of title and fields
	addition  *addition
	namespace func(*T) string // nil if not namespaced

	create         []flagField
	createExamples string
	can            can
	extra          []func(*kind) *cobra.Command
}

// cellOf is a column of a table, with the function for its cells.
type cellOf[T any] struct {
	column
	text func(*T) string
}

// fieldOf is a line of an info block. A line without text is left out.
type fieldOf[T any] struct {
	label string
	text  func(*T) string
	unset func(*T) bool // nil = never
}

// shown is a resource laid out for people.
type shown interface {
	show(s *invocation) error
}

func newKind[T any](k client.Kind[T], d display[T]) *kind {
	out := &kind{
		Kind:    client.Kind[json.RawMessage](k),
		args:    d.args,
		example: d.example,
		goType:  reflect.TypeFor[T](),
		fields:  d.create,
		can:     d.can,
		extra:   d.extra,

		addition:       d.addition,
		createExamples: d.createExamples,
	}
	if out.args == nil {
		out.args = []string{"NAME"}
	}
	if out.example == "" {
		out.example = "my-" + k.Command
	}
	for _, c := range d.columns {
		out.columns = append(out.columns, c.column)
	}
	out.rows = func(raw json.RawMessage) ([][]string, error) {
		item, err := decode[T](raw)
		if err != nil {
			return nil, err
		}
		items := []*T{item}
		if d.split != nil {
			items = d.split(item)
		}
		var rows [][]string
		for _, item := range items {
			row := make([]string, 0, len(d.columns)+1)
			for _, c := range d.columns {
				row = append(row, c.text(item))
			}
			if d.namespace != nil {
				row = append(row, d.namespace(item))
			}
			rows = append(rows, row)
		}
		return rows, nil
	}
	out.info = func(raw json.RawMessage) (shown, error) {
		item, err := decode[T](raw)
		if err != nil {
			return nil, err
		}
		if d.layout != nil {
			return d.layout(item), nil
		}
		block := &infoBlock{title: d.title(item)}
		for _, f := range d.fields {
			if f.unset == nil || !f.unset(item) {
				block.lines = append(block.lines, infoLine{f.label, f.text(item)})
			}
		}
		return block, nil
	}
	return out
}

func decode[T any](raw json.RawMessage) (*T, error) {
	item := new(T)
	if err := json.Unmarshal(raw, item); err != nil {
		return nil, fmt.Errorf("decode %T: %w", *item, err)
	}
	return item, nil
}

// kindByType returns the kind with that type in wrapped resources.
func kindByType(apiVersion, typ string) (*kind, bool) {
	for _, k := range kinds {
		if k.Type == typ && (apiVersion == k.Group || apiVersion == "") {
			return k, true
		}
	}
	return nil, false
}

// kindByName returns the kind for checks, check, CheckConfig or core/v2.CheckConfig, in any case.
func kindByName(name string) (*kind, bool) {
	for _, k := range kinds {
		joined, underscored := strings.ReplaceAll(k.Command, "-", ""), strings.ReplaceAll(k.Command, "-", "_")
		names := []string{k.FullName(), k.Plural, k.Type, k.Command, joined, underscored}
		if k.Type == client.Silences.Type {
			names = append(names, silenceAlias, silenceAlias+"s")
		}
		for _, known := range names {
			if known != "" && strings.EqualFold(name, known) {
				return k, true
			}
		}
	}
	return nil, false
}

// words returns the name of the kind's resources in sentences.
func (k *kind) words() string {
	switch k.Type {
	case client.Silences.Type:
		return "silenced entries"
	case client.Tessen.Type:
		return "tessen configuration"
	case client.Entities.Type:
		return "entities"
	}
	return k.word() + "s"
}

// word returns the name of one resource in sentences.
func (k *kind) word() string {
	switch k.Type {
	case client.Silences.Type:
		return "silenced entry"
	case client.APIKeys.Type:
		return "API key"
	}
	return strings.ReplaceAll(k.Command, "-", " ")
}

// Texts for values in cells.

func number[N int | int32 | int64 | uint32](n N) string { return strconv.FormatInt(int64(n), 10) }

func yesNo(b bool) string { return strconv.FormatBool(b) }

func unixTime(seconds int64) string {
	if seconds == 0 {
		return "N/A"
	}
	return time.Unix(seconds, 0).String()
}

// comma joins for tables, where space is scarce; commaSpace for info blocks.
func comma(list []string) string { return strings.Join(list, ",") }
