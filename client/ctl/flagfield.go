package ctl

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// flagField is a field of a kind that the command line sets: by a flag of create and update, by the answer to a
// question, and for checks by set-… and remove-….
type flagField struct {
	flag, short string
	usage       string
	field       string // in the resource, for example socket.host
	kind        fieldKind
	initial     string // the value of a new resource
	required    bool
	unasked     bool // no question asks for it, so that scripts that answer Sensu's questions still work
}

type fieldKind uint8

const (
	textField fieldKind = iota
	numberField
	secondsField // a number of seconds, or a time such as 1d12h
	decimalField
	yesNoField
	listField       // comma separated
	expressionField // comma separated, except for commas in brackets and quotes
)

// parse returns the field's JSON value for a word.
func (f *flagField) parse(word string) (any, error) {
	switch f.kind {
	case numberField:
		n, err := strconv.ParseInt(strings.TrimSpace(word), 10, 64)
		if err != nil && strings.Contains(f.usage, "seconds") {
			if n, err = parseExpire(word); err != nil {
				return nil, fmt.Errorf("%q is neither a number of seconds nor a time such as 10s or 2h", word)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%q is not a whole number", word)
		}
		return json.Number(strconv.FormatInt(n, 10)), nil
	case secondsField:
		n, err := parseExpire(strings.TrimSpace(word))
		if err != nil || n <= 0 {
			return nil, fmt.Errorf("%q is neither a number of seconds nor a time such as 2h or 1d12h", word)
		}
		return json.Number(strconv.FormatInt(n, 10)), nil
	case decimalField:
		word = strings.TrimSpace(word)
		if f, err := strconv.ParseFloat(word, 64); err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("%q is not a number", word)
		}
		return strconv.ParseFloat(word, 64)
	case yesNoField:
		b, err := strconv.ParseBool(strings.TrimSpace(word))
		if err != nil {
			return nil, fmt.Errorf("%q is neither true nor false", word)
		}
		return b, nil
	case listField:
		return splitList(word), nil
	case expressionField:
		return splitExpressions(word), nil
	}
	return word, nil
}

// empty returns the field's value when nothing is set.
func (f *flagField) empty() any {
	switch f.kind {
	case numberField, decimalField:
		return json.Number("0")
	case yesNoField:
		return false
	case listField, expressionField:
		return []string{}
	}
	return ""
}

// show returns the inverse of parse, for questions.
func (f *flagField) show(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case []any:
		var words []string
		for _, word := range v {
			words = append(words, fmt.Sprint(word))
		}
		return comma(words)
	}
	return fmt.Sprint(v)
}

// title returns the field's name in questions.
func (f *flagField) title() string {
	title := strings.ReplaceAll(f.flag, "-", " ")
	return strings.ToUpper(title[:1]) + title[1:]
}

// splitList splits at commas, and removes blanks after them.
func splitList(word string) []string {
	words, err := csv.NewReader(strings.NewReader(word)).Read()
	if err != nil { // for example a single quote
		words = strings.Split(word, ",")
	}
	return trimmed(words)
}

// trimmed returns the words without blanks around them, and without empty words.
func trimmed(list []string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// splitExpressions splits at commas between expressions, not at those within them.
func splitExpressions(text string) []string {
	var out []string
	var quote rune
	depth, start, escaped := 0, 0, false
	for i, r := range text {
		switch {
		case escaped:
			escaped = false
		case quote != 0:
			escaped = r == '\\'
			if r == quote {
				quote = 0
			}
		case r == '"', r == '\'', r == '`':
			quote = r
		case strings.ContainsRune("([{", r):
			depth++
		case strings.ContainsRune(")]}", r):
			depth--
		case r == ',' && depth <= 0:
			out = append(out, text[start:i])
			start = i + 1
		}
	}
	return trimmed(append(out, text[start:]))
}

// fieldFlags are the flags of fields.
type fieldFlags struct {
	fields []flagField
	set    *pflag.FlagSet
}

// fieldValue is the value of a flag: the field's JSON after Set.
type fieldValue struct {
	field *flagField
	value any
}

func (v *fieldValue) String() string {
	if v.field == nil {
		return ""
	}
	if list, ok := v.value.([]string); ok {
		return comma(list)
	}
	return v.field.show(v.value)
}

// Type returns the word for the value in help.
func (v *fieldValue) Type() string {
	return [...]string{textField: "string", numberField: "int", decimalField: "number", yesNoField: "bool", listField: "strings",
		expressionField: "strings"}[v.field.kind]
}

// Set parses a word. A list may be given in several flags.
func (v *fieldValue) Set(word string) error {
	value, err := v.field.parse(word)
	if err != nil {
		return err
	}
	if more, ok := value.([]string); ok {
		if list, ok := v.value.([]string); ok {
			value = append(list, more...)
		}
	}
	v.value = value
	return nil
}

// addFieldFlags adds a flag for each field. With withInitial, help shows the initial values as defaults.
func addFieldFlags(set *pflag.FlagSet, fields []flagField, withInitial bool) *fieldFlags {
	for i := range fields {
		f := &fields[i]
		v := &fieldValue{field: f}
		flag := set.VarPF(v, f.flag, f.short, f.usage)
		if f.kind == yesNoField {
			flag.NoOptDefVal = "true"
		}
		if withInitial {
			flag.DefValue = f.initial
		}
		if f.flag == "timeout" {
			set.SetAnnotation(f.flag, shadows, []string{"true"})
		}
	}
	return &fieldFlags{fields, set}
}

// apply writes the values of set flags into a resource, and reports whether any flag was set.
func (f *fieldFlags) apply(body map[string]any) (any bool, err error) {
	for i := range f.fields {
		field := &f.fields[i]
		flag := f.set.Lookup(field.flag)
		if !flag.Changed {
			continue
		}
		any = true
		if err := setPath(body, field.field, flag.Value.(*fieldValue).value); err != nil {
			return any, err
		}
	}
	return any, nil
}

// applyInitial writes the fields' initial values.
func (f *fieldFlags) applyInitial(body map[string]any) error {
	for i := range f.fields {
		field := &f.fields[i]
		if field.initial == "" {
			continue
		}
		value, err := field.parse(field.initial)
		if err != nil {
			return fmt.Errorf("initial value of --%s: %w", field.flag, err)
		}
		if err := setPath(body, field.field, value); err != nil {
			return err
		}
	}
	return nil
}

// missing returns an error that names the required flags that are not set, in package cobra's words.
func (f *fieldFlags) missing() error {
	var names []string
	for _, field := range f.fields {
		if field.required && !f.set.Lookup(field.flag).Changed {
			names = append(names, strconv.Quote(field.flag))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("required flag(s) %s not set", commaSpace(names))
}

// ask asks for each field, with the resource's value as the default answer.
func (f *fieldFlags) ask(q *questions, body map[string]any) error {
	for i := range f.fields {
		field := &f.fields[i]
		if field.unasked {
			continue
		}
		before := field.show(getPath(body, field.field))
		answer := before
		if err := q.ask(field.title(), &answer); err != nil {
			return err
		}
		if answer == before {
			continue
		}
		value, err := field.parse(answer)
		if err != nil {
			return fmt.Errorf("%s: %w", field.title(), err)
		}
		if err := setPath(body, field.field, value); err != nil {
			return err
		}
	}
	return nil
}

// setPath sets a field, for example socket.host, and makes the objects on the path.
func setPath(body map[string]any, path string, value any) error {
	for {
		first, rest, nested := strings.Cut(path, ".")
		if !nested {
			body[path] = value
			return nil
		}
		sub, err := subMap(body, first)
		if err != nil {
			return err
		}
		body, path = sub, rest
	}
}

func getPath(body map[string]any, path string) any {
	for {
		first, rest, nested := strings.Cut(path, ".")
		if !nested {
			return body[path]
		}
		body, _ = body[first].(map[string]any)
		path = rest
	}
}
