package resource

import (
	"errors"
	"fmt"
	"strings"
)

// Mistake is a broken rule of a definition. Its text as an error is that of API answers, which clients compare.
type Mistake struct {
	// Field is the path of the field to change, as in files: cron, subdues[0], metadata.name. It is "" if no single field is
	// wrong.
	Field string
	Err   error
	Short string // the same in fewer words, with the field's name; "" = Err's
}

func (m *Mistake) Error() string { return m.Err.Error() }
func (m *Mistake) Unwrap() error { return m.Err }

// Text returns the mistake in few words, for people who see its place.
func (m *Mistake) Text() string {
	if m.Short != "" {
		return m.Short
	}
	return m.Err.Error()
}

// mistakes are all broken rules of a definition. The text is the first one's, as Sensu reports no more.
type mistakes []error

func (m mistakes) Error() string   { return m[0].Error() }
func (m mistakes) Unwrap() []error { return m }

// MaxMistakes bounds the broken rules that are collected of one definition: each costs a hundred times what a client sends
// to break it.
const MaxMistakes = 100

var errMoreMistakes = errors.New("there are more mistakes from here on")

// add adds err, the reason why a field is wrong. It ignores nil, and what is beyond MaxMistakes.
func (m *mistakes) add(field string, err error) {
	if err == nil || len(*m) > MaxMistakes {
		return
	}
	list, several := err.(mistakes)
	if !several {
		list = mistakes{err}
	}
	for _, one := range list {
		if len(*m) == MaxMistakes {
			*m = append(*m, InField(fieldOf(InField(field, one)), errMoreMistakes))
			return
		}
		*m = append(*m, InField(field, one))
	}
}

// fieldOf returns the field that an error of a rule is about.
func fieldOf(err error) string {
	if m, ok := err.(*Mistake); ok {
		return m.Field
	}
	return ""
}

func (m mistakes) asError() error {
	if len(m) == 0 {
		return nil
	}
	return m
}

// JoinMistakes returns what both errors of rules report, or nil.
func JoinMistakes(a, b error) error {
	var all mistakes
	all.add("", a)
	all.add("", b)
	return all.asError()
}

// InField says that an error of a rule is about a field, or about a part of it.
func InField(field string, err error) error {
	switch e := err.(type) {
	case nil:
		return nil
	case mistakes:
		out := make(mistakes, len(e))
		for i := range e {
			out[i] = InField(field, e[i])
		}
		return out
	case *Mistake:
		return &Mistake{joinField(field, e.Field), e.Err, e.Short}
	}
	return &Mistake{Field: field, Err: err}
}

// InItem says that an error of a rule is about an item of a list. Its text begins with them: windows 2: end needs begin.
func InItem(list string, i int, err error) error {
	var out mistakes
	for _, m := range Mistakes(err) {
		out = append(out, &Mistake{Field: joinField(fmt.Sprintf("%s[%d]", list, i), m.Field), Err: fmt.Errorf("%s %d: %w", list, i+1, m.Err)})
	}
	return out.asError()
}

func joinField(outer, inner string) string {
	if outer == "" || inner == "" || strings.HasPrefix(inner, "[") {
		return outer + inner
	}
	return outer + "." + inner
}

// Mistakes returns all that an error of rules reports.
func Mistakes(err error) (list []*Mistake) {
	switch e := err.(type) {
	case nil:
	case mistakes:
		for _, one := range e {
			list = append(list, Mistakes(one)...)
		}
	case *Mistake:
		list = append(list, e)
	default:
		list = append(list, &Mistake{Err: err})
	}
	return list
}
