package trace

import (
	"cmp"
	"slices"
)

// Join puts the outcomes of a check's events together that several backends have kept, the newest first, within the bounds
// of the query. Two backends may report on the same delivery, after the second one has taken over from the first; what was
// reported last counts.
func (q Query) Join(of ...[]Outcome) []Outcome {
	var reports []*Delivery
	for _, events := range of {
		for i := range events {
			for j := range events[i].Deliveries {
				reports = append(reports, &events[i].Deliveries[j])
			}
		}
	}
	slices.SortStableFunc(reports, func(a, b *Delivery) int { return cmp.Compare(a.Updated, b.Updated) })
	var all []*Delivery
	byID := map[string]*Delivery{}
	for _, d := range reports {
		if before := byID[d.ID]; before != nil {
			before.Merge(d)
			continue
		}
		byID[d.ID] = d
		all = append(all, d)
	}
	return q.group(all)
}
