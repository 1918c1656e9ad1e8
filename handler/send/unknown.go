package send

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"text/template/parse"

	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	// maxUnknown is how many unknown fields of a handler are told.
	maxUnknown = 20
	// maxSearched is how many bytes of a handler's templates are searched for them.
	maxSearched = 256 << 10
)

// UnknownFields says which fields the templates of a handler read that do not exist: subject: there is no field .Chek (.Check?).
// Each delivery would fail for good. Where the type of a value is only known when the template runs, nothing is said: keys of
// maps, results of functions, variables, and what other templates are called with.
func UnknownFields(h *resource.Handler) []string {
	u := &unknown{funcs: new(budget).funcs()}
	switch {
	case h.Type == "webhook" && h.Webhook != nil:
		u.search("body", h.Webhook.Body)
	case h.Type == "slack" && h.Slack != nil:
		u.search("channel", h.Slack.Channel)
		u.search("title", h.Slack.Title)
		u.search("text", h.Slack.Text)
	case h.Type == "pagerduty" && h.PagerDuty != nil:
		p := h.PagerDuty
		u.search("dedup_key", p.DedupKey)
		u.search("summary", p.Summary)
		u.search("component", p.Component)
		u.search("group", p.Group)
		u.search("class", p.Class)
		u.search("link", p.Link)
	case h.Type == "email" && h.Email != nil:
		m := h.Email
		for _, to := range m.To {
			u.search("to", to)
		}
		for _, cc := range m.Cc {
			u.search("cc", cc)
		}
		u.search("subject", m.Subject)
		u.search("text", m.Text)
		u.search("html", m.HTML)
		u.searchAll("header", m.Headers)
	case h.Type == "alertmanager" && h.Alertmanager != nil:
		u.searchAll("label", h.Alertmanager.Labels)
		u.searchAll("annotation", h.Alertmanager.Annotations)
		u.search("link", h.Alertmanager.Link)
	case h.Type == "graphite" && h.Graphite != nil && h.Graphite.Prefix != nil:
		u.search("prefix", *h.Graphite.Prefix)
	case h.Type == "influx" && h.Influx != nil:
		u.searchAll("tag", h.Influx.Tags)
	}
	return u.texts
}

// unknown is a search for unknown fields in the templates of a handler.
type unknown struct {
	funcs    map[string]any
	searched int    // bytes
	name     string // of the template
	texts    []string
}

func (u *unknown) searchAll(name string, texts map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		u.search(name+" "+key, texts[key])
	}
}

// search walks a template. One that cannot be parsed is refused elsewhere.
func (u *unknown) search(name, text string) {
	if u.searched += len(text); u.searched > maxSearched || !strings.Contains(text, "{{") {
		return
	}
	trees, err := parse.Parse(name, text, "", "", u.funcs, goFuncs)
	if err != nil || trees[name] == nil {
		return
	}
	u.name = name
	u.list(trees[name].Root, reflect.TypeFor[*view]())
}

// list walks nodes with the type of their dot, which is nil if it is not known.
func (u *unknown) list(list *parse.ListNode, dot reflect.Type) {
	if list == nil {
		return
	}
	for _, node := range list.Nodes {
		switch n := node.(type) {
		case *parse.ActionNode:
			u.pipe(n.Pipe, dot)
		case *parse.TemplateNode:
			u.pipe(n.Pipe, dot)
		case *parse.IfNode:
			u.pipe(n.Pipe, dot)
			u.list(n.List, dot)
			u.list(n.ElseList, dot)
		case *parse.WithNode:
			u.list(n.List, u.pipe(n.Pipe, dot))
			u.list(n.ElseList, dot)
		case *parse.RangeNode:
			u.list(n.List, element(u.pipe(n.Pipe, dot)))
			u.list(n.ElseList, dot)
		}
	}
}

// pipe walks a pipeline and returns the type of its value, or nil.
func (u *unknown) pipe(p *parse.PipeNode, dot reflect.Type) (t reflect.Type) {
	if p == nil {
		return nil
	}
	for _, command := range p.Cmds {
		for _, arg := range command.Args {
			t = u.value(arg, dot)
		}
	}
	if len(p.Cmds) == 1 && len(p.Cmds[0].Args) == 1 {
		return t
	}
	return nil // a function's result
}

// value walks an operand and returns its type, or nil.
func (u *unknown) value(node parse.Node, dot reflect.Type) reflect.Type {
	switch n := node.(type) {
	case *parse.DotNode:
		return dot
	case *parse.FieldNode:
		return u.fields("", n.Ident, dot)
	case *parse.VariableNode:
		if n.Ident[0] == "$" {
			return u.fields("$", n.Ident[1:], reflect.TypeFor[*view]())
		}
	case *parse.ChainNode:
		return u.fields(n.Node.String(), n.Field, u.value(n.Node, dot))
	case *parse.PipeNode:
		return u.pipe(n, dot)
	}
	return nil
}

// fields follows the names of fields from a value of type t. It tells the first one that does not exist.
func (u *unknown) fields(path string, names []string, t reflect.Type) reflect.Type {
	for _, name := range names {
		if t == nil {
			return nil
		}
		next, ok := field(t, name)
		if !ok {
			u.tell(path, name, t)
			return nil
		}
		path, t = path+"."+name, next
	}
	return t
}

func (u *unknown) tell(path, name string, t reflect.Type) {
	text := fmt.Sprintf("%s: there is no field %s.%s", u.name, path, name)
	if nearest := optionerr.Nearest(name, fieldsOf(t)); nearest != "" {
		text += fmt.Sprintf(" (%s.%s?)", path, nearest)
	}
	if len(u.texts) < maxUnknown && !slices.Contains(u.texts, text) {
		u.texts = append(u.texts, text)
	}
}

// field finds a field, a method or a key as package template does. Its type is nil if it is not known.
func field(t reflect.Type, name string) (of reflect.Type, ok bool) {
	t = plain(t)
	if m, ok := reflect.PointerTo(t).MethodByName(name); ok {
		if m.Type.NumOut() == 0 {
			return nil, true
		}
		return known(m.Type.Out(0)), true
	}
	switch t.Kind() {
	case reflect.Struct:
		f, ok := t.FieldByName(name)
		return known(f.Type), ok && f.IsExported()
	case reflect.Map:
		return known(t.Elem()), true
	}
	return nil, false
}

// fieldsOf returns the names of the fields of a struct.
func fieldsOf(t reflect.Type) (names []string) {
	if t = plain(t); t.Kind() != reflect.Struct {
		return nil
	}
	for _, f := range reflect.VisibleFields(t) {
		if _, ok := t.FieldByName(f.Name); ok && f.IsExported() {
			names = append(names, f.Name)
		}
	}
	return names
}

// plain returns what a pointer points to, and other types as they are.
func plain(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// known returns nil for interfaces, since their values have types of their own.
func known(t reflect.Type) reflect.Type {
	if t == nil || t.Kind() == reflect.Interface {
		return nil
	}
	return t
}

// element returns the type of dot in a loop over values of type t, or nil.
func element(t reflect.Type) reflect.Type {
	if t == nil {
		return nil
	}
	switch t = plain(t); t.Kind() {
	case reflect.Slice, reflect.Array, reflect.Map:
		return known(t.Elem())
	}
	return nil
}
