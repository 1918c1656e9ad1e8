package api

import (
	"slices"
	"strings"
)

// Names that mean something to the whole namespace: filters that are built in, and handlers of events that no team's check makes.
var (
	namesOfFilters  = []string{"is_incident", "not_silenced", "has_metrics", "fatigue_check", "allow_list"}
	namesOfHandlers = []string{"keepalive", "registration", "lapwing"}
)

// mayName refuses a new definition with one of the names to a role that is limited by labels, because it would act on other teams.
func mayName(r *request, name string, old bool, names []string) error {
	if old || r.permit.Selector() == nil || !slices.Contains(names, name) {
		return nil
	}
	return forbidden("the name %s stands for all of the namespace, and your role's rule is limited to %s", name, strings.Join(r.permit.Labels(), " or "))
}
