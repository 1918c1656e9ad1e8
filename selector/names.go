package selector

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Names are the fields that selectors can ask of resources of one kind. A selector that asks for another one, or for a
// value that the field cannot have, would select nothing, which looks like good news.
type Names struct {
	prefix string
	fields map[string]fieldType
	maps   []string // with a dot at the end: any key may follow
}

// fieldType says which values a field can have.
type fieldType uint8

const (
	anyText fieldType = iota
	aBool
	aNumber
	aDecimal
	aTime
	aList
)

// closed are the fields whose text is one of a few.
var closed = map[string][]string{
	"event.check.state":                {"passing", "failing", "flapping"},
	"filter.action":                    {"allow", "deny"},
	"handler.type":                     resource.HandlerTypes,
	"rolebinding.role_ref.type":        {"Role", "ClusterRole"},
	"clusterrolebinding.role_ref.type": {"Role", "ClusterRole"},
}

var known sync.Map // reflect.Type -> *Names

// NamesOf returns the names of the fields that Resource shows of resources like the given one. The names of an entity
// include those of its agent's report.
func NamesOf(example any) *Names {
	t := reflect.TypeOf(example)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if n, ok := known.Load(t); ok {
		return n.(*Names)
	}
	n := &Names{prefix: prefixOf(t), fields: map[string]fieldType{}}
	n.add(t)
	switch t {
	case reflect.TypeFor[resource.EntityConfig]():
		n.add(reflect.TypeFor[resource.Entity]())
	case reflect.TypeFor[resource.Event]():
		for name, typ := range map[string]fieldType{
			"event.name": anyText, "event.namespace": anyText, "event.is_incident": aBool, "event.is_silenced": aBool,
			"event.check.is_silenced": aBool,
		} {
			n.fields[name] = typ
		}
	}
	known.Store(t, n)
	return n
}

// Fields returns the names of the fields, sorted. Those of maps, such as labels, end with a dot: any key may follow.
func (n *Names) Fields() []string {
	return slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(n.fields)), n.maps...)))
}

func (n *Names) add(t reflect.Type) {
	s := shapeOf(t)
	for path, p := range s.fields {
		n.fields[n.prefix+"."+path] = p.typ
	}
	for _, m := range s.maps {
		n.maps = append(n.maps, n.prefix+"."+m.path)
	}
}

// Parse is like the package's Parse, and also checks the fields.
func (n *Names) Parse(label, field string) (*Selector, error) {
	return n.ParseAll([]string{label}, []string{field})
}

// ParseAll is like the package's ParseAll, and also checks the fields.
func (n *Names) ParseAll(labels, fields []string) (*Selector, error) {
	s, err := ParseAll(labels, fields)
	if err == nil {
		err = n.Check(s)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Check returns an error, for the user, if a selector asks for a field that there is not, or compares one with a value
// that it cannot have. Labels may have any name.
func (n *Names) Check(s *Selector) error {
	for _, t := range s.Terms() {
		if t.Label || slices.ContainsFunc(n.maps, func(m string) bool { return strings.HasPrefix(t.Name, m) }) {
			continue
		}
		typ, known := n.fields[t.Name]
		if !known {
			return n.unknown(t)
		}
		if err := t.fits(typ); err != nil {
			return fmt.Errorf("field %q in field selector: %w", t.Name, err)
		}
	}
	return nil
}

// maxNamed is the most names that an error lists, and maxName the longest one for which a similar one is searched.
const (
	maxNamed = 12
	maxName  = 128
)

func (n *Names) unknown(t *Term) error {
	text := fmt.Sprintf("unknown field %q in field selector", resource.Short(t.Name))
	if t.op == opContains {
		if _, swapped := n.fields[t.literals[0].text]; swapped {
			return fmt.Errorf("%s: the value stands before the list, as in: %s in %s", text, t.Name, t.literals[0].text)
		}
	}
	if near := n.nearest(t.Name); near != "" {
		return fmt.Errorf("%s: did you mean %q?", text, near)
	}
	if len(n.fields) <= maxNamed {
		return fmt.Errorf("%s: the fields are %s", text, strings.Join(slices.Sorted(maps.Keys(n.fields)), ", "))
	}
	if !strings.HasPrefix(t.Name, n.prefix+".") {
		return fmt.Errorf("%s: the names begin with %s, as in %s", text, n.prefix, n.some())
	}
	return errors.New(text)
}

// some is a name that all kinds but a few have.
func (n *Names) some() string {
	for _, name := range []string{n.prefix + ".name", n.prefix + ".username"} {
		if _, ok := n.fields[name]; ok {
			return name
		}
	}
	return n.prefix + ".labels.region"
}

// nearest returns the name that is probably meant, or "".
func (n *Names) nearest(name string) string {
	if len(name) > maxName {
		return ""
	}
	all := slices.SortedFunc(maps.Keys(n.fields), func(a, b string) int { // the least nested first
		return cmp.Or(cmp.Compare(strings.Count(a, "."), strings.Count(b, ".")), cmp.Compare(a, b))
	})
	ours := strings.HasPrefix(name, n.prefix+".")
	if !ours { // check.name of an event is event.check.name, and event.check.name of a check is check.name
		for tail, more := name, true; more; _, tail, more = strings.Cut(tail, ".") {
			if known := endingIn(all, tail); known != "" {
				return known
			}
		}
		name = n.prefix + "." + name
	}
	parent := name[:strings.LastIndexByte(name, '.')+1]
	var beside, ends []string
	for _, known := range all {
		if end, ok := strings.CutPrefix(known, parent); ok && !strings.Contains(end, ".") {
			beside, ends = append(beside, known), append(ends, end)
		}
	}
	if len(beside) == 0 {
		return optionerr.Nearest(name, all)
	}
	if end := optionerr.Nearest(name[len(parent):], ends); end != "" {
		return beside[slices.Index(ends, end)]
	}
	return endingIn(all, name[len(parent):])
}

// endingIn returns the first name with an end of whole parts, or "".
func endingIn(names []string, end string) string {
	if i := slices.IndexFunc(names, func(name string) bool { return strings.HasSuffix(name, "."+end) }); i >= 0 {
		return names[i]
	}
	return ""
}

// fits returns an error if the term compares with a value that a field of the type cannot have.
func (t *Term) fits(typ fieldType) error {
	allowed := closed[t.Name]
	switch t.op {
	case opMatches, opRegex:
		return nil
	case opLess, opLessEqual, opGreater, opGreaterEqual:
		switch {
		case allowed != nil:
			return fmt.Errorf("it is one of %s, and has no order", strings.Join(allowed, ", "))
		case typ == aBool:
			return errors.New("it is true or false, and has no order")
		case typ == aList:
			return errors.New("it is a list, and has no order")
		}
		return nil
	}
	if typ == aBool {
		allowed = []string{"true", "false"}
	}
	for _, l := range t.literals {
		switch {
		case allowed != nil && !slices.Contains(allowed, l.text):
			err := fmt.Errorf("it is one of %s, never %q", strings.Join(allowed, ", "), resource.Short(l.text))
			if near := optionerr.Nearest(resource.Short(l.text), allowed); near != "" {
				err = fmt.Errorf("%w: did you mean %q?", err, near)
			}
			return err
		case typ == aTime && !l.integer:
			return fmt.Errorf("it is a time, never %q: compare times with < or >, as in %s > now-2h", resource.Short(l.text), t.Name)
		case typ == aNumber && !l.integer:
			return fmt.Errorf("it is a whole number, never %q", resource.Short(l.text))
		case typ == aDecimal:
			if _, err := strconv.ParseFloat(l.text, 64); err != nil {
				return fmt.Errorf("it is a number, never %q", resource.Short(l.text))
			}
		}
	}
	return nil
}
