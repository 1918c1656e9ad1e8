package render

import (
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/internal/natural"
)

func sortFunctions() []function {
	only := []param{seriesParam}
	return []function{
		{name: "sortByName", group: groupSorting, run: sortByName, params: []param{seriesParam,
			{name: "natural", kind: kindBool, def: false}, {name: "reverse", kind: kindBool, def: false}},
			description: "Sorts by name. Natural order has web9 before web10."},
		{name: "sortBy", group: groupSorting, params: []param{seriesParam,
			{name: "func", kind: kindAggregation, def: "average"}, {name: "reverse", kind: kindBool, def: false}},
			run: func(c *call) ([]*Series, error) {
				f := c.aggregation(1)
				return ordered(c.series(0), func(s *Series) float64 { return aggregateOf(f, s) }, c.truth(2)), nil
			},
			description: "Sorts by an aggregate, the lowest first; series without values come first."},
		{name: "sortByMaxima", group: groupSorting, params: only, description: "Sorts by the largest point, descending.",
			run: func(c *call) ([]*Series, error) {
				return ordered(c.series(0), func(s *Series) float64 { return maximum(s.Values) }, true), nil
			}},
		{name: "sortByTotal", group: groupSorting, params: only, description: "Sorts by the sum of the points, descending.",
			run: func(c *call) ([]*Series, error) {
				return ordered(c.series(0), func(s *Series) float64 { return total(s.Values) }, true), nil
			}},
		{name: "sortByMinima", group: groupSorting, params: only,
			description: "Sorts the series that have a point above 0 by their smallest point.",
			run: func(c *call) ([]*Series, error) {
				list := slices.DeleteFunc(slices.Clone(c.series(0)), func(s *Series) bool { return !(maximum(s.Values) > 0) })
				return ordered(list, func(s *Series) float64 { return minimum(s.Values) }, false), nil
			}},
	}
}

func sortByName(c *call) ([]*Series, error) {
	list := slices.Clone(c.series(0))
	type keyed struct {
		s   *Series
		key string
	}
	keys := make([]keyed, len(list))
	for i, s := range list {
		keys[i] = keyed{s, s.Name}
		if c.truth(1) {
			keys[i].key = natural.Key(s.Name)
		}
	}
	slices.SortStableFunc(keys, func(a, b keyed) int {
		if c.truth(2) {
			a, b = b, a
		}
		return strings.Compare(a.key, b.key)
	})
	for i, k := range keys {
		list[i] = k.s
	}
	return list, nil
}
