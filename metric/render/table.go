package render

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// FunctionInfo describes a function, for people and for editors of targets.
type FunctionInfo struct {
	Name        string      `json:"name"`
	Function    string      `json:"function"`
	Description string      `json:"description"`
	Module      string      `json:"module"`
	Group       string      `json:"group"`
	Params      []ParamInfo `json:"params"`
}

// ParamInfo describes a parameter. Default may be +Inf, which JSON cannot carry: write it as 1e9999.
type ParamInfo struct {
	Name        string   `json:"name"`
	Type        string   `json:"type"`
	Required    bool     `json:"required,omitempty"`
	Default     any      `json:"default,omitempty"`
	Multiple    bool     `json:"multiple,omitempty"`
	Options     []string `json:"options,omitempty"`
	Suggestions []any    `json:"suggestions,omitempty"`
}

// The groups of functions.
const (
	groupCombine      = "Combine"
	groupTransform    = "Transform"
	groupCalculate    = "Calculate"
	groupFilterSeries = "Filter Series"
	groupFilterData   = "Filter Data"
	groupSorting      = "Sorting"
	groupAlias        = "Alias"
	groupGraph        = "Graph"
	groupSpecial      = "Special"
)

// paramKind is the type of a parameter, by the name that /functions shows.
type paramKind string

const (
	kindSeries        paramKind = "seriesList"
	kindSeriesLists   paramKind = "seriesLists"
	kindFloat         paramKind = "float"
	kindInteger       paramKind = "integer"
	kindNode          paramKind = "node"
	kindNodeOrTag     paramKind = "nodeOrTag"
	kindTag           paramKind = "tag"
	kindString        paramKind = "string"
	kindBool          paramKind = "boolean"
	kindInterval      paramKind = "interval"
	kindIntOrInterval paramKind = "intOrInterval"
	kindIntOrInf      paramKind = "intOrInf"
	kindDate          paramKind = "date"
	kindAggregation   paramKind = "aggFunc"
	kindCallback      paramKind = "aggOrSeriesFunc"
	kindAny           paramKind = "any"
)

// param is a parameter of a function.
type param struct {
	name     string
	kind     paramKind
	required bool
	// def is the value of a parameter that is not given: nil, a float64, an int, a string or a bool.
	def any
	// multiple is for the last parameter: it takes all further positional arguments.
	multiple    bool
	options     []string
	suggestions []any
	// fraction lets an integer have a fraction.
	fraction bool
	// shown is the kind that /functions shows, if it is another: the function checks the value itself.
	shown paramKind
}

// function is a row of the table: what a function is called, what it takes, and what it does.
type function struct {
	name        string
	aliases     []string
	group       string
	description string
	params      []param
	// lazy functions evaluate their first argument themselves.
	lazy bool
	run  func(c *call) ([]*Series, error)
	// lists is in place of run for functions that return lists of series.
	lists func(c *call) ([][]*Series, error)
}

type table struct {
	rows   []*function
	byName map[string]*function
}

func newTable() *table {
	t := &table{byName: map[string]*function{}}
	for _, rows := range [][]function{combineFunctions(), transformFunctions(), timeFunctions(), calculateFunctions(),
		filterFunctions(), sortFunctions(), aliasFunctions(), graphFunctions(), specialFunctions()} {
		for i := range rows {
			f := &rows[i]
			t.rows = append(t.rows, f)
			t.byName[f.name] = f
			for _, a := range f.aliases {
				t.byName[a] = f
			}
		}
	}
	return t
}

func (t *table) find(name string) *function { return t.byName[name] }

// Functions describes all functions, sorted by name.
func Functions() []FunctionInfo { return newTable().infos() }

func (t *table) infos() []FunctionInfo {
	callbacks := aggregationNames()
	for name, f := range t.byName {
		if f.callable() {
			callbacks = append(callbacks, name)
		}
	}
	sort.Strings(callbacks)
	callbacks = slices.Compact(callbacks)
	var out []FunctionInfo
	for name, f := range t.byName {
		out = append(out, f.info(name, callbacks))
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// callable reports whether groupByNode may call f with a group of series.
func (f *function) callable() bool {
	if f.lazy || f.run == nil || f.group != groupCombine || len(f.params) == 0 || f.params[0].kind != kindSeries {
		return false
	}
	return !slices.ContainsFunc(f.params[1:], func(p param) bool { return p.required })
}

func (f *function) info(name string, callbacks []string) FunctionInfo {
	info := FunctionInfo{Name: name, Description: f.description, Module: "lapwing.metric.render", Group: f.group,
		Params: []ParamInfo{}}
	var signature []string
	for _, p := range f.params {
		kind := p.kind
		if p.shown != "" {
			kind = p.shown
		}
		pi := ParamInfo{Name: p.name, Type: string(kind), Required: p.required, Default: p.def, Multiple: p.multiple,
			Options: p.options, Suggestions: p.suggestions}
		switch kind {
		case kindAggregation:
			pi.Options = aggregationNames()
		case kindCallback:
			pi.Options = callbacks
		case kindIntOrInterval:
			pi.Suggestions = []any{5, 7, 10, "1min", "5min", "10min", "30min", "1hour"}
		}
		info.Params = append(info.Params, pi)
		switch {
		case p.multiple:
			signature = append(signature, "*"+p.name)
		case p.required:
			signature = append(signature, p.name)
		default:
			signature = append(signature, p.name+"="+signatureDefault(p.def))
		}
	}
	info.Function = name + "(" + strings.Join(signature, ", ") + ")"
	return info
}

func signatureDefault(def any) string {
	switch d := def.(type) {
	case nil:
		return "None"
	case bool:
		if d {
			return "True"
		}
		return "False"
	case string:
		return "'" + d + "'"
	case float64:
		if math.IsInf(d, 1) {
			return "inf"
		}
		return formatG(d)
	}
	return fmt.Sprint(def)
}

type valueKind uint8

const (
	noneValue valueKind = iota
	seriesValue
	listsValue
	numberValue
	stringValue
	boolValue
)

// value is an evaluated argument.
type value struct {
	kind    valueKind
	series  []*Series
	lists   [][]*Series
	number  float64
	integer bool
	text    string
	truth   bool
	given   bool
}

// String returns the value as names show it.
func (v value) String() string {
	switch v.kind {
	case numberValue:
		if v.integer {
			return strconv.FormatFloat(v.number, 'f', -1, 64)
		}
		return formatFloat(v.number)
	case stringValue:
		return v.text
	case boolValue:
		if v.truth {
			return "True"
		}
		return "False"
	}
	return "None"
}

// call is a function with its arguments, checked against the table.
type call struct {
	ev   *evaluation
	fn   *function
	expr *Expr
	// name is the name by which the function was called.
	name string
	// args has a value for each parameter that is not multiple; rest has those of the multiple one.
	args []value
	rest []value
	// first is the first argument of a lazy function.
	first *Expr
}

func (c *call) fail(argument, format string, args ...any) error {
	return &ArgumentError{Function: c.name, Argument: argument, Message: fmt.Sprintf(format, args...)}
}

// bind evaluates the arguments of the expression and binds them to the parameters.
func (c *call) bind() error {
	var positional []value
	for i, a := range c.expr.Args {
		if i == 0 && c.fn.lazy {
			c.first = a
			positional = append(positional, value{kind: seriesValue})
			continue
		}
		v, err := c.ev.value(a)
		if err != nil {
			return err
		}
		positional = append(positional, v)
	}
	named := map[string]value{}
	for _, a := range c.expr.Named {
		if c.fn.lazy && len(c.fn.params) > 0 && a.Name == c.fn.params[0].name {
			c.first = a.Value
			named[a.Name] = value{kind: seriesValue}
			continue
		}
		v, err := c.ev.value(a.Value)
		if err != nil {
			return err
		}
		named[a.Name] = v
	}
	return c.bindValues(positional, named)
}

func (c *call) bindValues(positional []value, named map[string]value) error {
	used := 0
	for i := range c.fn.params {
		p := &c.fn.params[i]
		if p.multiple {
			for _, v := range positional[min(i, len(positional)):] {
				v, err := c.check(p, v)
				if err != nil {
					return err
				}
				c.rest = append(c.rest, v)
			}
			positional = positional[:min(i, len(positional))]
			if v, ok := named[p.name]; ok && len(c.rest) == 0 {
				used++
				v, err := c.check(p, v)
				if err != nil {
					return err
				}
				c.rest = append(c.rest, v)
			}
			if p.required && len(c.rest) == 0 {
				return c.fail(p.name, "at least one is required")
			}
			continue
		}
		var v value
		given, ok := named[p.name]
		switch {
		case i < len(positional) && ok:
			return c.fail(p.name, "it is given twice")
		case i < len(positional):
			v = positional[i]
		case ok:
			used++
			v = given
		case p.required:
			return c.fail(p.name, "it is required: %s", c.fn.info(c.name, nil).Function)
		default:
			c.args = append(c.args, defaultValue(p.def))
			continue
		}
		v, err := c.check(p, v)
		if err != nil {
			return err
		}
		v.given = true
		c.args = append(c.args, v)
	}
	if n := len(c.fn.params); len(positional) > n {
		return c.fail("", "it takes at most %d arguments, not %d: %s", n, len(positional), c.fn.info(c.name, nil).Function)
	}
	if used < len(named) {
		names := make([]string, 0, len(named))
		for n := range named {
			if !slices.ContainsFunc(c.fn.params, func(p param) bool { return p.name == n }) {
				names = append(names, n)
			}
		}
		sort.Strings(names)
		return c.fail(strings.Join(names, ", "), "there is no such argument: %s", c.fn.info(c.name, nil).Function)
	}
	return nil
}

func defaultValue(def any) value {
	switch d := def.(type) {
	case float64:
		return value{kind: numberValue, number: d}
	case int:
		return value{kind: numberValue, number: float64(d), integer: true}
	case string:
		return value{kind: stringValue, text: d}
	case bool:
		return value{kind: boolValue, truth: d}
	}
	return value{}
}

// check makes the value one of the parameter's kind.
func (c *call) check(p *param, v value) (value, error) {
	if v.kind == noneValue {
		if p.required && p.kind != kindAny {
			return v, c.fail(p.name, "it must not be None")
		}
		return defaultValue(p.def), nil
	}
	wrong := func(want string) (value, error) {
		return v, c.fail(p.name, "it must be %s, not %s", want, v.describe())
	}
	switch p.kind {
	case kindSeries:
		if v.kind == listsValue {
			var all []*Series
			for _, l := range v.lists {
				all = append(all, l...)
			}
			return value{kind: seriesValue, series: all}, nil
		}
		if v.kind != seriesValue {
			return wrong("series")
		}
	case kindSeriesLists:
		if v.kind == seriesValue {
			return value{kind: listsValue, lists: [][]*Series{v.series}}, nil
		}
		if v.kind != listsValue {
			return wrong("lists of series")
		}
	case kindFloat, kindInteger, kindNode, kindIntOrInf:
		n, ok := v.toNumber()
		if !ok {
			return wrong("a number")
		}
		v = n
		if v.number != v.number || math.IsInf(v.number, 0) && p.kind != kindIntOrInf && p.kind != kindFloat {
			return wrong("a finite number")
		}
		if p.kind != kindFloat && !p.fraction && v.number != math.Trunc(v.number) {
			return wrong("a whole number")
		}
		if p.kind != kindFloat && p.kind != kindIntOrInf && math.Abs(v.number) > 1<<53 {
			return wrong("a smaller number")
		}
	case kindNodeOrTag:
		if v.kind == numberValue && (v.number != math.Trunc(v.number) || math.Abs(v.number) > 1<<31) {
			return wrong("a whole number or the name of a tag")
		}
		if v.kind != numberValue && v.kind != stringValue {
			return wrong("a whole number or the name of a tag")
		}
	case kindString, kindTag, kindDate:
		if v.kind == numberValue {
			v = value{kind: stringValue, text: v.String()}
		}
		if v.kind != stringValue {
			return wrong("a string in quotes")
		}
	case kindBool:
		switch {
		case v.kind == numberValue:
			v = value{kind: boolValue, truth: v.number != 0}
		case v.kind == stringValue && strings.EqualFold(v.text, "true"):
			v = value{kind: boolValue, truth: true}
		case v.kind == stringValue && (strings.EqualFold(v.text, "false") || v.text == ""):
			v = value{kind: boolValue}
		case v.kind != boolValue:
			return wrong("true or false")
		}
	case kindInterval:
		if v.kind != stringValue {
			return wrong("an interval in quotes, as '5min'")
		}
	case kindIntOrInterval:
		if v.kind != numberValue && v.kind != stringValue {
			return wrong("a number of points or an interval in quotes, as '5min'")
		}
	case kindAggregation, kindCallback:
		if v.kind != stringValue {
			return wrong("the name of a function in quotes")
		}
		if p.kind == kindAggregation && aggregationByName(v.text) == nil {
			return v, c.fail(p.name, "%q is no aggregation: use one of %s", shorten(v.text),
				strings.Join(aggregationNames(), ", "))
		}
	}
	if len(p.options) > 0 && v.kind == stringValue && !slices.Contains(p.options, v.text) {
		return v, c.fail(p.name, "%q is not known: use one of %s", shorten(v.text), strings.Join(p.options, ", "))
	}
	return v, nil
}

// toNumber reads numbers from strings and truth values too.
func (v value) toNumber() (value, bool) {
	switch v.kind {
	case numberValue:
		return v, true
	case boolValue:
		n := value{kind: numberValue, integer: true}
		if v.truth {
			n.number = 1
		}
		return n, true
	case stringValue:
		text := strings.TrimSpace(v.text)
		if !isNumber(text) {
			return v, false
		}
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return v, false
		}
		_, notInteger := strconv.ParseInt(text, 10, 64)
		return value{kind: numberValue, number: f, integer: notInteger == nil}, true
	}
	return v, false
}

func (v value) describe() string {
	switch v.kind {
	case seriesValue:
		return "series (a string needs quotes)"
	case listsValue:
		return "lists of series"
	case stringValue:
		return strconv.Quote(shorten(v.text))
	}
	return v.String()
}

func (c *call) run() (value, error) {
	if c.fn.lists != nil {
		lists, err := c.fn.lists(c)
		return value{kind: listsValue, lists: lists}, err
	}
	list, err := c.fn.run(c)
	return value{kind: seriesValue, series: list}, err
}

func (c *call) series(i int) []*Series { return c.args[i].series }
func (c *call) float(i int) float64    { return c.args[i].number }
func (c *call) truth(i int) bool       { return c.args[i].truth }
func (c *call) text(i int) string      { return c.args[i].text }
func (c *call) given(i int) bool       { return c.args[i].given }
func (c *call) present(i int) bool     { return c.args[i].kind != noneValue }
func (c *call) paramName(i int) string { return c.fn.params[i].name }
func (c *call) compute(n int64) error  { return c.ev.compute(n) }
func (c *call) request() *Request      { return &c.ev.req }
func (c *call) integer(i int) int      { return clampInt(c.args[i].number) }
func (c *call) time(s string) (time.Time, error) {
	return ParseTime(s, time.Unix(c.ev.req.Now, 0), c.ev.req.Location)
}

func clampInt(f float64) int { return int(max(-1<<53, min(1<<53, f))) }

// seconds reads an interval of at least a second.
func (c *call) seconds(i int) (int64, error) {
	d, err := ParseInterval(c.text(i))
	if err != nil {
		return 0, c.fail(c.paramName(i), "%v", err)
	}
	if d < time.Second {
		return 0, c.fail(c.paramName(i), "interval %q: it must be positive", shorten(c.text(i)))
	}
	return int64(d / time.Second), nil
}

// aggregation returns the function of a parameter, which was checked when it was bound.
func (c *call) aggregation(i int) aggregation { return aggregationByName(c.text(i)) }

// all returns the series of the multiple parameter as one list.
func (c *call) all() []*Series {
	var out []*Series
	for _, v := range c.rest {
		out = append(out, v.series...)
	}
	return out
}

// mapValues replaces the values of s by f of each; f decides what it makes of NaN.
func (c *call) mapValues(s *Series, f func(float64) float64) error {
	if err := c.compute(int64(len(s.Values))); err != nil {
		return err
	}
	out := make([]float64, len(s.Values))
	for i, v := range s.Values {
		out[i] = f(v)
	}
	s.Values = out
	return nil
}

// rename gives a series a name that is its path expression too.
func rename(s *Series, name string) {
	s.Name = name
	s.PathExpression = name
}

// flat returns a series of the same value n times.
func repeated(v float64, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = v
	}
	return out
}

var nan = math.NaN()
