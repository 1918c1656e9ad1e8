package ctl

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/api/client"
)

// kinds are all that the client can work with, in the order of their commands. To add one, give it a client.Kind and
// a display, in a file of its own, and name it here.
var kinds = []*kind{checkKind, entityKind, eventKind, handlerKind, namespaceKind}

// kind is a kind of resource as commands see it. Resources travel as the JSON that the API sent, so that printing or
// putting back one loses no field, not even one that this version does not know.
type kind struct {
	client.Kind[json.RawMessage]

	singular string   // the name of its command
	args     []string // what names one resource
	// nameField is where the spec holds the name, for kinds without metadata. The others have it in metadata.name,
	// and events in their entity and check.
	nameField string

	goType  reflect.Type
	columns []column
	// row returns the cells of a table's line, with the namespace as one more at its end.
	row  func(raw json.RawMessage) ([]string, error)
	info func(raw json.RawMessage) (*infoBlock, error)

	// extra are commands beside list, info and delete.
	extra []func(*kind) *cobra.Command
}

// display says how resources of type T are shown.
type display[T any] struct {
	singular  string
	args      []string // default NAME
	nameField string
	columns   []cellOf[T]
	title     func(*T) string
	fields    []fieldOf[T]
	namespace func(*T) string // nil if not namespaced
	extra     []func(*kind) *cobra.Command
}

// cellOf is a column of a table and what it shows of a T.
type cellOf[T any] struct {
	column
	text func(*T) string
}

// fieldOf is a line of an info block.
type fieldOf[T any] struct {
	label string
	text  func(*T) string
}

func newKind[T any](k client.Kind[T], d display[T]) *kind {
	out := &kind{
		Kind:      client.Kind[json.RawMessage](k),
		singular:  d.singular,
		args:      d.args,
		nameField: d.nameField,
		goType:    reflect.TypeFor[T](),
		extra:     d.extra,
	}
	if out.args == nil {
		out.args = []string{"NAME"}
	}
	for _, c := range d.columns {
		out.columns = append(out.columns, c.column)
	}
	out.row = func(raw json.RawMessage) ([]string, error) {
		item, err := decode[T](raw)
		if err != nil {
			return nil, err
		}
		row := make([]string, 0, len(d.columns)+1)
		for _, c := range d.columns {
			row = append(row, c.text(item))
		}
		if d.namespace != nil {
			row = append(row, d.namespace(item))
		}
		return row, nil
	}
	out.info = func(raw json.RawMessage) (*infoBlock, error) {
		item, err := decode[T](raw)
		if err != nil {
			return nil, err
		}
		block := &infoBlock{title: d.title(item)}
		for _, f := range d.fields {
			block.lines = append(block.lines, infoLine{f.label, f.text(item)})
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

// kindByType finds the kind with that name in wrapped resources.
func kindByType(apiVersion, typ string) (*kind, bool) {
	for _, k := range kinds {
		if k.Type == typ && (apiVersion == "" || apiVersion == client.APIVersion) {
			return k, true
		}
	}
	return nil, false
}

// How cells show values.

func number[N int32 | int64 | uint32](n N) string { return strconv.FormatInt(int64(n), 10) }

func yesNo(b bool) string { return strconv.FormatBool(b) }

func unixTime(seconds int64) string {
	if seconds == 0 {
		return "N/A"
	}
	return time.Unix(seconds, 0).String()
}

// comma joins for tables, where room is scarce; commaSpace for info blocks.
func comma(list []string) string      { return strings.Join(list, ",") }
func commaSpace(list []string) string { return strings.Join(list, ", ") }
