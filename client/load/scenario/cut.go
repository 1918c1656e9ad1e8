package scenario

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// CutSubscriptions leaves the scenario the first n of its agents' subscriptions. Round-robin checks with {n} in their
// name become as many more as they have fewer subscriptions, so that the turns per second stay the same. The scenario
// is not usable after an error.
func (s *Scenario) CutSubscriptions(n int) error {
	var all []string
	for _, g := range s.Agents {
		for _, subscription := range g.Subscriptions {
			if !slices.Contains(all, subscription) {
				all = append(all, subscription)
			}
		}
	}
	if n < 1 || n > len(all) {
		return fmt.Errorf("the scenario has %d subscriptions, not %d", len(all), n)
	}
	cut := func(subscriptions []string) (kept []string) {
		for _, subscription := range subscriptions {
			if slices.Contains(all[:n], subscription) {
				kept = append(kept, subscription)
			}
		}
		return kept
	}
	turns := make([]int, len(s.Checks)) // of each check's tick
	for i := range s.Checks {
		turns[i] = s.runners(&s.Checks[i])
	}
	for i := range s.Agents {
		g := &s.Agents[i]
		if g.Subscriptions = cut(g.Subscriptions); len(g.Subscriptions) == 0 {
			return fmt.Errorf("agents %s have none of the first %d subscriptions", g.Name, n)
		}
		g.SubscriptionsPerAgent = min(g.SubscriptionsPerAgent, len(g.Subscriptions))
	}
	for i := range s.Checks {
		c := &s.Checks[i]
		if c.Subscriptions = cut(c.Subscriptions); len(c.Subscriptions) == 0 {
			return fmt.Errorf("checks %s have none of the first %d subscriptions", c.Name, n)
		}
		if c.RoundRobin && strings.Contains(c.Name, Numbered) {
			c.Count = int(math.Round(float64(c.Count*turns[i]) / float64(s.runners(c))))
		}
		if c.Count > maxObjects {
			return fmt.Errorf("%d checks %s would be needed; %d are possible", c.Count, c.Name, maxObjects)
		}
	}
	return nil
}
