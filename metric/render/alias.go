package render

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

func aliasFunctions() []function {
	positions := []param{seriesParam, {name: "pos", kind: kindInteger, multiple: true}}
	return []function{
		{name: "alias", group: groupAlias, params: []param{seriesParam,
			{name: "newName", kind: kindString, required: true}}, run: alias,
			description: "Names the series."},
		{name: "aliasSub", group: groupAlias, run: aliasSub, params: []param{seriesParam,
			{name: "search", kind: kindString, required: true}, {name: "replace", kind: kindString, required: true}},
			description: "Changes the names by a regular expression. \\1 in the replacement is the first group."},
		{name: "aliasByNode", group: groupAlias, run: aliasByNodes, params: []param{seriesParam,
			{name: "nodes", kind: kindNodeOrTag, required: true, multiple: true}},
			description: "Names each series by nodes of its name or by its tags."},
		{name: "aliasByTags", group: groupAlias, run: aliasByNodes, params: []param{seriesParam,
			{name: "tags", kind: kindNodeOrTag, required: true, multiple: true}},
			description: "Names each series by its tags or by nodes of its name."},
		{name: "aliasByMetric", group: groupAlias, params: []param{seriesParam}, run: aliasByMetric,
			description: "Names each series by the last node of its name."},
		{name: "aliasQuery", group: groupAlias, run: aliasQuery, params: []param{seriesParam,
			{name: "search", kind: kindString, required: true}, {name: "replace", kind: kindString, required: true},
			{name: "newName", kind: kindString, required: true}},
			description: "Puts the last value of another series, whose name is made from each name by a regular " +
				"expression, into the new name in the place of %d or %.2f."},
		{name: "legendValue", group: groupAlias, run: legendValue, params: []param{seriesParam,
			{name: "valuesTypes", kind: kindString, multiple: true}},
			description: "Appends aggregates of each series to its name; with si or binary at the end, with a unit."},
		{name: "lower", group: groupAlias, params: positions, run: changeCase(strings.ToLower),
			description: "Writes the names in lower case, or only the characters at some positions."},
		{name: "upper", group: groupAlias, params: positions, run: changeCase(strings.ToUpper),
			description: "Writes the names in upper case, or only the characters at some positions."},
		{name: "substr", group: groupSpecial, run: substr, params: []param{seriesParam,
			{name: "start", kind: kindNode, def: 0}, {name: "stop", kind: kindNode, def: 0}},
			description: "Names each series by its nodes from start to before stop."},
		{name: "cactiStyle", group: groupSpecial, run: cactiStyle, params: []param{seriesParam,
			{name: "system", kind: kindString, options: []string{"si", "binary"}}, {name: "units", kind: kindString}},
			description: "Appends the last, largest and smallest value to the names, in columns."},
	}
}

func alias(c *call) ([]*Series, error) {
	for _, s := range c.series(0) {
		s.Name = c.text(1)
	}
	return c.series(0), nil
}

func aliasSub(c *call) ([]*Series, error) {
	re, err := c.regex(1)
	if err != nil {
		return nil, err
	}
	for _, s := range c.series(0) {
		if err := c.compute(1); err != nil {
			return nil, err
		}
		if s.Name, err = re.replace(s.Name, c.text(2)); err != nil {
			return nil, c.fail("replace", "%v", err)
		}
	}
	return c.series(0), nil
}

func aliasByNodes(c *call) ([]*Series, error) {
	for _, s := range c.series(0) {
		s.Name = nodes(s, c.rest)
	}
	return c.series(0), nil
}

func aliasByMetric(c *call) ([]*Series, error) {
	for _, s := range c.series(0) {
		name := s.Name
		if strings.HasSuffix(name, ")") {
			name = pathOf(name)
		}
		s.Name = name[strings.LastIndexByte(name, '.')+1:]
	}
	return c.series(0), nil
}

func aliasQuery(c *call) ([]*Series, error) {
	re, err := c.regex(1)
	if err != nil {
		return nil, err
	}
	for _, s := range c.series(0) {
		query, err := re.replace(s.Name, c.text(2))
		if err != nil {
			return nil, c.fail("replace", "%v", err)
		}
		list, err := c.ev.text(query)
		if err != nil {
			return nil, err
		}
		if len(list) == 0 {
			return nil, c.fail("search", "no series is named %q", shorten(query))
		}
		v := lastKnown(list[0].Values)
		if v != v {
			return nil, c.fail("search", "series %q has no values", shorten(query))
		}
		if s.Name, err = formatPercent(c.text(3), v); err != nil {
			return nil, c.fail("newName", "%v", err)
		}
	}
	return c.series(0), nil
}

// formatPercent puts v in the place of the one conversion in format.
func formatPercent(format string, v float64) (string, error) {
	var b strings.Builder
	used := false
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		start := i
		for i++; i < len(format) && strings.IndexByte("-+ 0#", format[i]) >= 0; i++ {
		}
		for ; i < len(format) && (format[i] >= '0' && format[i] <= '9' || format[i] == '.'); i++ {
		}
		if i >= len(format) || i-start > 6 {
			return "", fmt.Errorf("%q has an unfinished conversion", shorten(format))
		}
		spec := format[start:i]
		if format[i] == '%' {
			b.WriteByte('%')
			continue
		}
		if used {
			return "", fmt.Errorf("%q has more than one conversion", shorten(format))
		}
		used = true
		switch format[i] {
		case 'd', 'i', 'u':
			if math.Abs(v) >= 1<<63 {
				return "", fmt.Errorf("the value %s is too large for %%d", formatG(v))
			}
			fmt.Fprintf(&b, spec+"d", int64(v))
		case 'e', 'E', 'f', 'F', 'g', 'G':
			if !strings.Contains(spec, ".") {
				spec += ".6"
			}
			fmt.Fprintf(&b, spec+string(format[i]), v)
		case 's', 'r':
			fmt.Fprintf(&b, spec+"s", formatFloat(v))
		default:
			return "", fmt.Errorf("%q has a conversion that is not %%d, %%f, %%e, %%g or %%s", shorten(format))
		}
	}
	if !used {
		return "", fmt.Errorf("%q has no conversion as %%d or %%.2f", shorten(format))
	}
	return b.String(), nil
}

// unitPrefix is a prefix of a unit and its size.
type unitPrefix struct {
	name string
	size float64
}

var unitSystems = map[string][]unitPrefix{
	"si":     {{"P", 1e15}, {"T", 1e12}, {"G", 1e9}, {"M", 1e6}, {"K", 1e3}},
	"binary": {{"Pi", 1 << 50}, {"Ti", 1 << 40}, {"Gi", 1 << 30}, {"Mi", 1 << 20}, {"Ki", 1 << 10}},
}

// withUnit writes a value with two decimals and the prefix and name of its unit.
func withUnit(v float64, system, unit string) string {
	if v != v {
		return "nan"
	}
	prefix := ""
	for _, p := range unitSystems[system] {
		if math.Abs(v) >= p.size {
			prefix = p.name
			v /= p.size
			break
		}
	}
	text := strconv.FormatFloat(v, 'f', 2, 64)
	if unit != "" {
		return text + " " + prefix + unit
	}
	return text + prefix
}

func legendValue(c *call) ([]*Series, error) {
	types := make([]string, len(c.rest))
	for i, v := range c.rest {
		types[i] = v.text
	}
	system := ""
	if n := len(types); n > 0 && unitSystems[types[n-1]] != nil {
		system, types = types[n-1], types[:n-1]
	}
	for _, s := range c.series(0) {
		for _, t := range types {
			text := "(?)"
			if f := aggregationByName(t); f != nil {
				v := aggregateOf(f, s)
				switch {
				case system != "":
					text = withUnit(v, system, "")
				case t == "count" && v == v:
					text = strconv.FormatFloat(v, 'f', 0, 64)
				default:
					text = formatKnown(v)
				}
			}
			if system != "" {
				s.Name = fmt.Sprintf("%-20s%-5s%-10s", s.Name, t, text)
			} else {
				s.Name = fmt.Sprintf("%s (%s: %s)", s.Name, t, text)
			}
		}
	}
	return c.series(0), nil
}

func cactiStyle(c *call) ([]*Series, error) {
	list := c.series(0)
	system, unit := c.text(1), c.text(2)
	columns := make([][3]string, len(list))
	var widths [3]int
	nameWidth := 0
	for i, s := range list {
		nameWidth = max(nameWidth, len(s.Name))
		for k, v := range [...]float64{lastKnown(s.Values), maximum(s.Values), minimum(s.Values)} {
			columns[i][k] = withUnit(v, system, unit)
			widths[k] = max(widths[k], len(columns[i][k])+3)
		}
	}
	for i, s := range list {
		s.Name = fmt.Sprintf("%-*s Current:%-*s Max:%-*s Min:%-*s ", nameWidth, s.Name, widths[0], columns[i][0],
			widths[1], columns[i][1], widths[2], columns[i][2])
	}
	return list, nil
}

func changeCase(change func(string) string) func(c *call) ([]*Series, error) {
	return func(c *call) ([]*Series, error) {
		for _, s := range c.series(0) {
			if len(c.rest) == 0 {
				s.Name = change(s.Name)
				continue
			}
			letters := []rune(s.Name)
			for _, v := range c.rest {
				i := int(v.number)
				if i < 0 {
					i += len(letters)
				}
				if i >= 0 && i < len(letters) {
					if r := []rune(change(string(letters[i]))); len(r) == 1 {
						letters[i] = r[0]
					}
				}
			}
			s.Name = string(letters)
		}
		return c.series(0), nil
	}
}

func substr(c *call) ([]*Series, error) {
	for _, s := range c.series(0) {
		left := strings.LastIndexByte(s.Name, '(') + 1
		right := strings.IndexByte(s.Name, ')')
		if right < 0 {
			right = len(s.Name)
		}
		parts := strings.Split(s.Name[left:max(left, right)], ".")
		from, to := bound(c.integer(1), len(parts)), len(parts)
		if stop := c.integer(2); stop != 0 {
			to = bound(stop, len(parts))
		}
		name, _, _ := strings.Cut(strings.Join(parts[min(from, to):to], "."), ",")
		s.Name = name
	}
	return c.series(0), nil
}

// bound is an index of a slice of n things; a negative one counts from the end.
func bound(i, n int) int {
	if i < 0 {
		i += n
	}
	return max(0, min(i, n))
}
