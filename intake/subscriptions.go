package intake

import (
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Agents choose their own subscriptions. With the subscription of another entity an agent would get that entity's
// check requests, with all their contents, and answer them in its place. "*" stands for all subscriptions elsewhere.

// ofOthers reports whether a subscription is forbidden to the agent of that name.
func ofOthers(subscription, name string) bool {
	entity, ok := strings.CutPrefix(subscription, resource.EntitySubscription(""))
	return subscription == "*" || ok && entity != name
}

// OwnSubscriptions returns an agent's subscriptions without those of other entities. It never changes the given list.
func (i *Intake) OwnSubscriptions(namespace, name string, subscriptions []string) []string {
	other := func(s string) bool { return ofOthers(s, name) }
	at := slices.IndexFunc(subscriptions, other)
	if at < 0 || i.opts.AnySubscription {
		return subscriptions
	}
	i.rare.Warn("agent has a subscription of others, which is left out (--agent-any-subscription lets it have them)", namespace+"/"+name,
		"namespace", namespace, "agent", name, "subscription", resource.Short(subscriptions[at]))
	return slices.DeleteFunc(slices.Clone(subscriptions), other)
}
