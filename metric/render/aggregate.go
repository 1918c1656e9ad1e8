package render

import (
	"math"
	"slices"
	"strings"
)

// aggregation makes one value of several; NaN are unknown. It returns NaN if there is no result.
type aggregation func(values []float64) float64

// aggregations are the aggregations by name, in the order in which they are shown.
var aggregations = [...]struct {
	name string
	f    aggregation
}{
	{"average", mean}, {"avg", mean}, {"avg_zero", meanOfAll}, {"count", countKnown}, {"current", lastKnown},
	{"diff", difference}, {"last", lastKnown}, {"max", maximum}, {"median", median}, {"min", minimum},
	{"multiply", product}, {"range", spread}, {"rangeOf", spread}, {"stddev", deviation}, {"sum", total},
	{"total", total},
}

func aggregationByName(name string) aggregation {
	for _, a := range aggregations {
		if a.name == name {
			return a.f
		}
	}
	return nil
}

func aggregationNames() []string {
	out := make([]string, len(aggregations))
	for i, a := range aggregations {
		out[i] = a.name
	}
	return out
}

// consolidationFunction is for what consolidateBy knows; others have been refused there.
func consolidationFunction(name string) aggregation {
	if name == "first" {
		return firstKnown
	}
	if f := aggregationByName(name); f != nil {
		return f
	}
	return mean
}

func total(values []float64) float64 {
	sum, known := sumKnown(values)
	if known == 0 {
		return nan
	}
	return sum
}

func sumKnown(values []float64) (sum float64, known int) {
	for _, v := range values {
		if v == v {
			sum += v
			known++
		}
	}
	return sum, known
}

func mean(values []float64) float64 {
	sum, known := sumKnown(values)
	if known == 0 {
		return nan
	}
	return sum / float64(known)
}

func meanOfAll(values []float64) float64 {
	if len(values) == 0 {
		return nan
	}
	sum, _ := sumKnown(values)
	return sum / float64(len(values))
}

func countKnown(values []float64) float64 {
	_, known := sumKnown(values)
	return float64(known)
}

func firstKnown(values []float64) float64 {
	for _, v := range values {
		if v == v {
			return v
		}
	}
	return nan
}

func lastKnown(values []float64) float64 {
	for _, v := range slices.Backward(values) {
		if v == v {
			return v
		}
	}
	return nan
}

func difference(values []float64) float64 {
	result, first := nan, true
	for _, v := range values {
		switch {
		case v != v:
		case first:
			result, first = v, false
		default:
			result -= v
		}
	}
	return result
}

func maximum(values []float64) float64 {
	result := nan
	for _, v := range values {
		if v > result || v == v && result != result {
			result = v
		}
	}
	return result
}

func minimum(values []float64) float64 {
	result := nan
	for _, v := range values {
		if v < result || v == v && result != result {
			result = v
		}
	}
	return result
}

// product is unknown if any value is.
func product(values []float64) float64 {
	if len(values) == 0 {
		return nan
	}
	result := 1.0
	for _, v := range values {
		result *= v
	}
	return result
}

func spread(values []float64) float64 { return maximum(values) - minimum(values) }

// deviation is the standard deviation of the known values as a population.
func deviation(values []float64) float64 {
	return math.Sqrt(variance(values))
}

func variance(values []float64) float64 {
	sum, known := sumKnown(values)
	if known == 0 {
		return nan
	}
	average := sum / float64(known)
	squares := 0.0
	for _, v := range values {
		if v == v {
			squares += (v - average) * (v - average)
		}
	}
	return squares / float64(known)
}

// median copies the values. Loops use the function that forScratch returns.
func median(values []float64) float64 { return medianInPlace(slices.Clone(values)) }

// medianInPlace changes the order of the values.
func medianInPlace(values []float64) float64 {
	known := sortKnown(values)
	n := len(known)
	if n == 0 {
		return nan
	}
	if n%2 == 1 {
		return known[n/2]
	}
	return (known[n/2-1] + known[n/2]) / 2
}

// forScratch returns an aggregation that may change the order of its values, so that it need not copy them.
func forScratch(name string) aggregation {
	if name == "median" {
		return medianInPlace
	}
	return aggregationByName(name)
}

// sortKnown moves the known values to the front of values, sorts them and returns them.
func sortKnown(values []float64) []float64 {
	known := values[:0]
	for _, v := range values {
		if v == v {
			known = append(known, v)
		}
	}
	slices.Sort(known)
	return known
}

// percentile is percentileInPlace of a copy of the values.
func percentile(values []float64, p float64, interpolated bool) float64 {
	return percentileInPlace(slices.Clone(values), p, interpolated)
}

// percentileInPlace returns the p-th percentile of the known values: of rank p/100·(n+1), or between two if
// interpolated. It changes the order of the values.
func percentileInPlace(values []float64, p float64, interpolated bool) float64 {
	return percentileOfSorted(sortKnown(values), p, interpolated)
}

func percentileOfSorted(known []float64, p float64, interpolated bool) float64 {
	n := len(known)
	if n == 0 {
		return nan
	}
	rank := p / 100 * float64(n+1)
	whole := math.Floor(rank)
	if !interpolated {
		whole = math.Ceil(rank)
	}
	switch {
	case whole < 1:
		return known[0]
	case whole > float64(n):
		return known[n-1]
	case interpolated && whole < float64(n):
		low, high := known[int(whole)-1], known[int(whole)]
		return low + (rank-whole)*(high-low)
	}
	return known[int(whole)-1]
}

// maxStep is the largest common step that different steps may have: a century.
const maxStep = 100 * 366 * 86400

// normalised is a list of series with a common step, to be read by rows.
type normalised struct {
	start, end, step int64
	// columns are the values of each series, consolidated to step; they differ in length.
	columns [][]float64
	rows    int
}

// normalise makes the steps of the series equal, each with its own consolidation. Rows are by index: they are not
// aligned by time.
func (c *call) normalise(list []*Series) (*normalised, error) {
	n := &normalised{start: list[0].Start, end: list[0].End, step: list[0].Step, columns: make([][]float64, len(list))}
	for _, s := range list[1:] {
		n.start, n.end = min(n.start, s.Start), max(n.end, s.End)
		if n.step != s.Step {
			if n.step = lcm(n.step, s.Step); n.step <= 0 || n.step > maxStep {
				return nil, c.fail("", "the steps of the series have no common step below a century")
			}
		}
	}
	n.end -= (n.end - n.start) % n.step
	for i, s := range list {
		if s.Step == n.step {
			n.columns[i] = s.Values
		} else {
			if err := c.compute(int64(len(s.Values))); err != nil {
				return nil, err
			}
			n.columns[i] = consolidateValues(s.Values, int(n.step/s.Step), s.Consolidation, s.XFilesFactor)
		}
		n.rows = max(n.rows, len(n.columns[i]))
	}
	return n, nil
}

func lcm(a, b int64) int64 {
	if a <= 0 || b <= 0 {
		return 0
	}
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	if q := a / x; q <= maxStep && b <= maxStep {
		return q * b
	}
	return 0
}

// rowBlock is how many rows are gathered at once: a cache line of each series.
const rowBlock = 8

// each calls f with each row, which f may change but not keep. It gathers several rows at once, because a walk over one
// row touches as many cache lines as there are series.
func (n *normalised) each(c *call, f func(i int, row []float64)) error {
	if err := c.compute(int64(n.rows) * int64(len(n.columns))); err != nil {
		return err
	}
	width := len(n.columns)
	block := make([]float64, rowBlock*width)
	for from := 0; from < n.rows; from += rowBlock {
		if from%1024 == 0 {
			if err := c.ev.ctx.Err(); err != nil {
				return err
			}
		}
		high := min(rowBlock, n.rows-from)
		for j, column := range n.columns {
			for k := range high {
				v := nan
				if from+k < len(column) {
					v = column[from+k]
				}
				block[k*width+j] = v
			}
		}
		for k := range high {
			f(from+k, block[k*width:(k+1)*width])
		}
	}
	return nil
}

// maxCombinedName bounds a name that is made of other names.
const maxCombinedName = 16 << 20

// combine makes one series of a list by rows. Its name is its path expression too.
func (c *call) combine(list []*Series, name string, f func(row []float64) float64) (*Series, error) {
	if len(name) > maxCombinedName {
		return nil, &LimitError{Limit: "bytes of a name", Max: maxCombinedName, Asked: int64(len(name)),
			Hint: "combine fewer series"}
	}
	n, err := c.normalise(list)
	if err != nil {
		return nil, err
	}
	s := &Series{Name: name, PathExpression: name, Tags: map[string]string{"name": name}, Start: n.start, End: n.end,
		Step: n.step, Values: make([]float64, n.rows), Consolidation: "average", ValuesPerPoint: 1,
		XFilesFactor: c.factorOf(list), outer: outerFactor(list)}
	err = n.each(c, func(i int, row []float64) { s.Values[i] = f(row) })
	return s, err
}

// outerFactor is what setXFilesFactor set for any of the series.
func outerFactor(list []*Series) *float64 {
	for _, s := range list {
		if s.outer != nil {
			return s.outer
		}
	}
	return nil
}

// factorOf is the xFilesFactor with which a list is combined: what setXFilesFactor set inside, or the request's.
func (c *call) factorOf(list []*Series) float64 {
	if f := outerFactor(list); f != nil {
		return *f
	}
	return c.request().XFilesFactor
}

// aggregate makes one series of a list. The name begins with the name of the aggregation.
func (c *call) aggregate(list []*Series, function string, xFilesFactor float64) (*Series, error) {
	if aggregationByName(function) == nil {
		if short := strings.TrimSuffix(function, "Series"); aggregationByName(short) != nil {
			function = short
		} else {
			return nil, c.fail("func", "%q is no aggregation: use one of %s", shorten(function),
				strings.Join(aggregationNames(), ", "))
		}
	}
	f := forScratch(function)
	each := func(row []float64) float64 { return withFactor(f, row, len(row), xFilesFactor) }
	if xFilesFactor <= 0 && function != "count" && function != "avg_zero" {
		// These give no value for a row of unknown points by themselves.
		each = f
	}
	s, err := c.combine(list, function+"Series("+pathExpressions(list)+")", each)
	if err != nil {
		return nil, err
	}
	s.XFilesFactor = xFilesFactor
	s.Tags = commonTags(list)
	if _, ok := s.Tags["name"]; !ok {
		s.Tags["name"] = s.Name
	}
	s.Tags["aggregatedBy"] = function
	return s, nil
}

// pathExpressions joins the different path expressions of the series.
func pathExpressions(list []*Series) string {
	seen := make(map[string]bool, 1)
	var out []string
	for _, s := range list {
		if !seen[s.PathExpression] {
			seen[s.PathExpression] = true
			out = append(out, s.PathExpression)
		}
	}
	return strings.Join(out, ",")
}

// commonTags returns the tags that are equal in all series.
func commonTags(list []*Series) map[string]string {
	common := make(map[string]string, len(list[0].Tags)+1)
	for k, v := range list[0].Tags {
		common[k] = v
	}
	for _, s := range list[1:] {
		for k, v := range common {
			if w, ok := s.Tags[k]; !ok || w != v {
				delete(common, k)
			}
		}
	}
	return common
}

// nodes joins what the node numbers and tags select of a series' name.
func nodes(s *Series, selectors []value) string {
	parts := make([]string, len(selectors))
	var path []string
	for i, v := range selectors {
		if v.kind == numberValue {
			if path == nil {
				path = strings.Split(pathOf(s.Name), ".")
			}
			n := int(v.number)
			if n < 0 {
				n += len(path)
			}
			if n >= 0 && n < len(path) {
				parts[i] = path[n]
				continue
			}
		}
		parts[i] = s.Tags[v.String()]
	}
	return strings.Join(parts, ".")
}

// pathOf returns the first path expression in a name that ends with a parenthesis, or the name; both without tags. Of a
// name that is no target, because an alias is in it, it is the text at the beginning behind all function names.
func pathOf(name string) string {
	path := name
	if strings.HasSuffix(name, ")") && len(name) <= maxTargetBytes {
		p := &parser{text: name}
		p.blanks()
		if e, err := p.expression(0); err == nil {
			if first := firstPath(e); first != nil {
				path = first.Text
			}
		} else {
			path = leadingPath(name)
		}
	}
	path, _, _ = strings.Cut(path, ";")
	return path
}

func leadingPath(name string) string {
	p := &parser{text: name}
	for {
		start := p.pos
		p.blanks()
		if p.identifier() == "" || p.peek() != '(' {
			p.pos = start
			break
		}
		p.pos++
	}
	p.blanks()
	start := p.pos
	if _, err := p.path(); err != nil {
		return ""
	}
	return name[start:p.pos]
}

func firstPath(e *Expr) *Expr {
	if e.Kind == PathExpr {
		return e
	}
	for _, a := range e.Args {
		if p := firstPath(a); p != nil {
			return p
		}
	}
	return nil
}
