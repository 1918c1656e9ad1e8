package ctl

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// limitedTo matches the first label that a role's rule wants, in the refusal of an object without it.
var limitedTo = regexp.MustCompile(`limited to ([^\s"]+) == "?([^\s"]+)"?[ ,].*metadata\.labels`)

// lacksLabels adds to a refusal for an object's labels the flag that sets them. The command must have --labels.
func lacksLabels(err error) error {
	if !errors.Is(err, client.ErrDenied) || !strings.Contains(err.Error(), "metadata.labels") {
		return err
	}
	example := "team=red"
	if m := limitedTo.FindStringSubmatch(err.Error()); m != nil {
		example = m[1] + "=" + strings.TrimSuffix(m[2], ",")
	}
	return hint(err, "Set labels with --labels, such as --labels %s.", example)
}

// hiddenSilence explains that a silence exists already which the user cannot see, so the name is taken: a silence with
// selectors has a name of its own. If the user sees the silence, or asked for that name, err is returned.
func (s *invocation) hiddenSilence(ctx context.Context, err error, body map[string]any) error {
	raw, encodeErr := jsonOf(body)
	if encodeErr != nil {
		return err
	}
	one, decodeErr := decode[silenced](raw)
	if decodeErr != nil {
		return err
	}
	name := one.DerivedName()
	_, seen := client.Get(ctx, s.client, client.Silences, s.namespace, name)
	if !errors.Is(seen, client.ErrNotFound) && !errors.Is(seen, client.ErrDenied) {
		return err
	}
	err = reworded(err, "a silence named %s already exists, which your role does not let you see", name)
	if one.Selects() {
		return hint(err, "Choose another name with --name.")
	}
	words := []string{"silenced", "create", "--name", "NAME", "--field-selector", selectorOf(one)}
	for _, key := range slices.Sorted(maps.Keys(one.Metadata.Labels)) {
		words = append(words, "--labels", key+"="+one.Metadata.Labels[key])
	}
	return hint(err, "A silence of your own needs a name, and a selector in place of --check and --subscription, for example:\n  %s",
		s.commandLine(words...))
}

var plainSelectorWord = regexp.MustCompile(`^[a-zA-Z0-9_./:+@-]+$`)

// selectorWord quotes a value for a selector, if it must.
func selectorWord(word string) string {
	if plainSelectorWord.MatchString(word) {
		return word
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(word) + `"`
}

// selectorOf returns a field selector for the events of a silence's check and subscription.
func selectorOf(one *silenced) string {
	var terms []string
	if one.Check != "" && one.Check != "*" {
		terms = append(terms, "event.check.name == "+selectorWord(one.Check))
	}
	entity, ok := strings.CutPrefix(one.Subscription, resource.EntitySubscription(""))
	switch {
	case ok:
		terms = append(terms, "event.entity.name == "+selectorWord(entity))
	case one.Subscription != "" && one.Subscription != "*":
		terms = append(terms, selectorWord(one.Subscription)+" in event.check.subscriptions")
	}
	return strings.Join(terms, " && ")
}
