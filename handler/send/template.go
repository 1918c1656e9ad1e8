package send

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	htmltemplate "html/template"
	"io"
	"os"
	"reflect"
	"strings"
	"text/template"
	"text/template/parse"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

const (
	// maxRendered is how many bytes a template may write, and each of its functions may return.
	maxRendered = 256 << 10
	// maxSteps is how many rounds of loops and calls of templates one run may make.
	maxSteps = 100_000
	// maxDepth is how deep templates may call each other.
	maxDepth = 100
	// maxRenderTime bounds the time that the bounds above still allow.
	maxRenderTime = 5 * time.Second
)

var (
	errRendersTooMuch = fmt.Errorf("the template writes more than %d bytes", maxRendered)
	errRendersForever = fmt.Errorf("the template makes more than %d steps", maxSteps)
	errRendersTooDeep = fmt.Errorf("templates call each other more than %d deep", maxDepth)
	errRendersSlowly  = errors.New("the template takes too long")
)

// engine is the common part of text/template and html/template.
type engine interface {
	Execute(w io.Writer, data any) error
}

// renderer renders the templates of one attempt.
type renderer struct {
	ctx  context.Context
	view *view
	time time.Duration // of one template
	err  error         // the first failure
}

func newRenderer(ctx context.Context, v *view) *renderer {
	return &renderer{ctx: ctx, view: v, time: maxRenderTime}
}

// text renders a template, or fallback if that is empty. After a failure it renders nothing.
func (r *renderer) text(name, text, fallback string) string {
	if text == "" {
		text = fallback
	}
	return r.render(name, text, func(trees map[string]*parse.Tree, funcs map[string]any) (engine, error) {
		set := template.New(name).Option("missingkey=zero").Funcs(funcs)
		for n, tree := range trees {
			if _, err := set.AddParseTree(n, tree); err != nil {
				return nil, err
			}
		}
		return set.Lookup(name), nil
	})
}

// html does the same for HTML, and escapes event data.
func (r *renderer) html(name, text string) string {
	return r.render(name, text, func(trees map[string]*parse.Tree, funcs map[string]any) (engine, error) {
		set := htmltemplate.New(name).Option("missingkey=zero").Funcs(funcs)
		for n, tree := range trees {
			if _, err := set.AddParseTree(n, tree); err != nil {
				return nil, err
			}
		}
		return set.Lookup(name), nil
	})
}

// all renders a map of templates.
func (r *renderer) all(name string, texts map[string]string) map[string]string {
	out := make(map[string]string, len(texts))
	for key, text := range texts {
		out[key] = r.text(name+" "+key, text, "")
	}
	return out
}

// failure returns the result of a failed rendering.
func (r *renderer) failure() Result {
	if errors.Is(r.err, errRendersSlowly) {
		return Result{Err: r.err, Temporary: true, Kind: KindTimeout} // may be due to a busy machine
	}
	return permanent(r.err)
}

func (r *renderer) render(name, text string, build func(map[string]*parse.Tree, map[string]any) (engine, error)) string {
	if r.err != nil || !strings.Contains(text, "{{") {
		return text
	}
	out, err := r.execute(name, text, build)
	if err != nil {
		r.err = fmt.Errorf("render %s: %w", name, err)
		return ""
	}
	return out
}

func (r *renderer) execute(name, text string, build func(map[string]*parse.Tree, map[string]any) (engine, error)) (out string, err error) {
	defer func() {
		if p := recover(); p != nil { // the template packages do not catch run-time errors
			err = fmt.Errorf("the template fails: %v", p)
		}
	}()
	ctx, cancel := context.WithTimeout(r.ctx, r.time)
	defer cancel()
	b := &budget{ctx: ctx}
	funcs := b.funcs()
	trees, err := parse.Parse(name, text, "", "", funcs, goFuncs)
	if err != nil {
		return "", err
	}
	for _, tree := range trees {
		instrument(tree, funcs)
	}
	tmpl, err := build(trees, funcs)
	if err != nil {
		return "", err
	}
	if err := tmpl.Execute(b, r.view); err != nil {
		return "", err
	}
	return b.out.String(), nil
}

// budget is what one run of a template may still use. The template writes to it.
type budget struct {
	ctx          context.Context
	out          bytes.Buffer
	steps, depth int
}

func (b *budget) Write(p []byte) (int, error) {
	if b.out.Len()+len(p) > maxRendered {
		return 0, errRendersTooMuch
	}
	return b.out.Write(p)
}

// step is called at the start of each round of a loop and of each template.
func (b *budget) step() (bool, error) {
	b.steps++
	if b.steps > maxSteps {
		return false, errRendersForever
	}
	if b.steps%64 == 0 && b.ctx.Err() != nil {
		return false, errRendersSlowly
	}
	return false, nil
}

func (b *budget) enter() (bool, error) {
	b.depth++
	if b.depth > maxDepth {
		return false, errRendersTooDeep
	}
	return b.step()
}

func (b *budget) leave() bool {
	b.depth--
	return false
}

// The names of the functions that instrument calls.
const (
	stepFunc  = "lapwingStep"
	enterFunc = "lapwingEnter"
	leaveFunc = "lapwingLeave"
)

// instrument makes a template call the budget at each place where it could run for ever. Package template cannot be stopped from
// outside, and a loop over a large number need not write anything.
func instrument(tree *parse.Tree, funcs map[string]any) {
	call := func(name string) parse.Node {
		t, err := parse.Parse(name, "{{if "+name+"}}{{end}}", "", "", funcs)
		if err != nil {
			panic(err)
		}
		return t[name].Root.Nodes[0]
	}
	var walk func(list *parse.ListNode)
	walk = func(list *parse.ListNode) {
		if list == nil {
			return
		}
		for _, node := range list.Nodes {
			switch n := node.(type) {
			case *parse.IfNode:
				walk(n.List)
				walk(n.ElseList)
			case *parse.WithNode:
				walk(n.List)
				walk(n.ElseList)
			case *parse.RangeNode:
				walk(n.List)
				walk(n.ElseList)
				n.List.Nodes = append([]parse.Node{call(stepFunc)}, n.List.Nodes...)
			}
		}
	}
	walk(tree.Root)
	if tree.Root != nil {
		tree.Root.Nodes = append(append([]parse.Node{call(enterFunc)}, tree.Root.Nodes...), call(leaveFunc))
	}
}

// goFuncs are the functions of package template that stay as they are. The others are in funcs, with bounds.
var goFuncs = map[string]any{
	"and": true, "call": true, "index": true, "slice": true, "len": true, "not": true, "or": true,
	"eq": true, "ge": true, "gt": true, "le": true, "lt": true, "ne": true,
}

// funcs returns the functions for templates. They make no string larger than maxRendered, and never wait.
func (b *budget) funcs() map[string]any {
	// bounded limits a function's arguments and its result.
	bounded := func(f func(...any) string) func(...any) (string, error) {
		return func(args ...any) (string, error) {
			if _, err := b.step(); err != nil {
				return "", err
			}
			size := 0
			for _, arg := range args {
				if s, ok := arg.(string); ok {
					size += len(s)
				}
			}
			if size > maxRendered {
				return "", errRendersTooMuch
			}
			return limit(f(args...))
		}
	}
	return map[string]any{
		stepFunc:  b.step,
		enterFunc: b.enter,
		leaveFunc: b.leave,

		"print":    bounded(fmt.Sprint),
		"println":  bounded(fmt.Sprintln),
		"html":     bounded(template.HTMLEscaper),
		"js":       bounded(template.JSEscaper),
		"urlquery": bounded(template.URLQueryEscaper),
		"printf": func(format string, args ...any) (string, error) {
			if wide(format) {
				return "", errors.New("printf: a width of more than three digits, or *, is not for templates")
			}
			return bounded(func(args ...any) string { return fmt.Sprintf(args[0].(string), args[1:]...) })(append([]any{format}, args...)...)
		},

		"contains":  func(part, s string) bool { return strings.Contains(s, part) },
		"hasPrefix": func(prefix, s string) bool { return strings.HasPrefix(s, prefix) },
		"hasSuffix": func(suffix, s string) bool { return strings.HasSuffix(s, suffix) },
		"lower":     func(s string) (string, error) { return limit(strings.ToLower(s)) },
		"upper":     func(s string) (string, error) { return limit(strings.ToUpper(s)) },
		"trim":      strings.TrimSpace,
		"trunc":     truncate,
		"lines":     firstLines,
		"replace": func(old, with, s string) (string, error) {
			if _, err := b.step(); err != nil {
				return "", err
			}
			if strings.Count(s, old)*len(with)+len(s) > maxRendered {
				return "", errRendersTooMuch
			}
			return strings.ReplaceAll(s, old, with), nil
		},
		"join": func(sep string, list []string) (string, error) {
			size := len(list) * len(sep)
			for _, s := range list {
				size += len(s)
			}
			if size > maxRendered {
				return "", errRendersTooMuch
			}
			return strings.Join(list, sep), nil
		},
		"default": func(fallback, value any) any {
			if truth, ok := template.IsTrue(value); !ok || !truth {
				return fallback
			}
			return value
		},
		"toJson": func(v any) (string, error) {
			if _, err := b.step(); err != nil {
				return "", err
			}
			text, err := json.Marshal(v)
			if err != nil {
				return "", err
			}
			return limit(string(text))
		},
		"mrkdwn":        func(s string) (string, error) { return limit(mrkdwn(s)) },
		"date":          date,
		"duration":      func(seconds any) (string, error) { return duration(seconds) },
		"severity":      func(status any) (string, error) { return severityOf(status) },
		"UnixTime":      func(seconds int64) time.Time { return time.Unix(seconds, 0) },
		"UUIDFromBytes": uuid.FromBytes,
		"Hostname":      os.Hostname,
	}
}

func limit(s string) (string, error) {
	if len(s) > maxRendered {
		return "", errRendersTooMuch
	}
	return s, nil
}

// wide reports whether a format pads values to a thousand characters or more, or to an argument's width.
func wide(format string) bool {
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			continue
		}
		digits := 0
		for i++; i < len(format) && strings.IndexByte("+-# 0123456789.[]*", format[i]) >= 0; i++ {
			switch c := format[i]; {
			case c == '*':
				return true
			case c < '0' || c > '9':
				digits = 0
			default:
				if digits++; digits > 3 {
					return true
				}
			}
		}
	}
	return false
}

// truncate cuts s to n characters, the last of which marks the cut.
func truncate(n int, s string) string {
	if n <= 0 {
		return ""
	}
	if len(s) <= n || utf8.RuneCountInString(s) <= n {
		return s
	}
	at := 0
	for range n - 1 {
		_, size := utf8.DecodeRuneInString(s[at:])
		at += size
	}
	return s[:at] + "…"
}

// firstLines returns the first n lines of s, without blanks around them.
func firstLines(n int, s string) string {
	s = strings.TrimSpace(s)
	at := 0
	for range n {
		i := strings.IndexByte(s[at:], '\n')
		if i < 0 {
			return s
		}
		at += i + 1
	}
	return strings.TrimSpace(s[:at])
}

// date formats a time, or Unix seconds, in UTC.
func date(layout string, at any) (string, error) {
	if len(layout) > 1000 {
		return "", errors.New("date: the layout is too long")
	}
	if t, ok := at.(time.Time); ok {
		return t.UTC().Format(layout), nil
	}
	seconds, err := integer(at)
	if err != nil {
		return "", fmt.Errorf("date: %w", err)
	}
	return time.Unix(seconds, 0).UTC().Format(layout), nil
}

func duration(seconds any) (string, error) {
	n, err := integer(seconds)
	if err != nil {
		return "", fmt.Errorf("duration: %w", err)
	}
	return (time.Duration(n) * time.Second).String(), nil
}

func integer(v any) (int64, error) {
	value := reflect.ValueOf(v)
	switch {
	case value.CanInt():
		return value.Int(), nil
	case value.CanUint():
		return int64(value.Uint()), nil
	case value.CanFloat():
		return int64(value.Float()), nil
	}
	return 0, fmt.Errorf("%v is no number", v)
}

func severityOf(status any) (string, error) {
	n, err := integer(status)
	if err != nil {
		return "", fmt.Errorf("severity: %w", err)
	}
	return severity(uint32(n)), nil
}

// severity names a status.
func severity(status uint32) string {
	switch status {
	case 0:
		return "ok"
	case 1:
		return "warning"
	case 2:
		return "critical"
	}
	return "unknown"
}
