package ctl

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/lapwing-monitoring/lapwing/internal/manifest"
)

// change is a field that differs between two versions of a resource.
type change struct {
	Path string `json:"path"` // for example metadata.labels.team or rules[0].verbs
	From any    `json:"from"` // null if the field is new
	To   any    `json:"to"`   // null if the field is removed

	added, removed bool
}

// write prints the change on a line.
func (c *change) write(w io.Writer, color bool) {
	switch {
	case c.added:
		fmt.Fprintln(w, paint(color, green, fmt.Sprintf("    + %s: %s", c.Path, shortJSON(c.To))))
	case c.removed:
		fmt.Fprintln(w, paint(color, red, fmt.Sprintf("    - %s: %s", c.Path, shortJSON(c.From))))
	default:
		fmt.Fprintln(w, paint(color, yellow, fmt.Sprintf("    ~ %s: %s → %s", c.Path, shortJSON(c.From), shortJSON(c.To))))
	}
}

// shortJSON returns a value for people, in one line.
func shortJSON(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return printable(strings.TrimSuffix(b.String(), "\n"))
}

// changesBetween returns the fields that differ, ordered by path.
func changesBetween(before, after map[string]any) []change {
	return diffMaps(nil, "", before, after)
}

func diffMaps(out []change, path string, before, after map[string]any) []change {
	keys := maps.Clone(before)
	maps.Copy(keys, after)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		at := manifest.FieldPath(path, key)
		old, was := before[key]
		now, is := after[key]
		switch {
		case !was || (old == nil && now != nil):
			if now != nil {
				out = append(out, change{Path: at, To: now, added: true})
			}
		case !is || now == nil:
			if old != nil {
				out = append(out, change{Path: at, From: old, removed: true})
			}
		default:
			out = diffValues(out, at, old, now)
		}
	}
	return out
}

// diffValues compares two values. Lists of objects of the same length are compared object by object; other lists differ
// as a whole.
func diffValues(out []change, path string, old, now any) []change {
	if reflect.DeepEqual(plain(old), plain(now)) {
		return out
	}
	oldMap, oldIs := old.(map[string]any)
	nowMap, nowIs := now.(map[string]any)
	if oldIs && nowIs {
		return diffMaps(out, path, oldMap, nowMap)
	}
	oldList, oldIs := old.([]any)
	nowList, nowIs := now.([]any)
	if oldIs && nowIs && len(oldList) == len(nowList) && allMaps(oldList) && allMaps(nowList) {
		for i := range oldList {
			out = diffValues(out, path+"["+strconv.Itoa(i)+"]", oldList[i], nowList[i])
		}
		return out
	}
	return append(out, change{Path: path, From: old, To: now})
}

func allMaps(list []any) bool {
	return !slices.ContainsFunc(list, func(v any) bool { _, ok := v.(map[string]any); return !ok })
}
