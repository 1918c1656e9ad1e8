package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
)

// Names with a meaning for the whole namespace: built-in filters, and handlers of events that come from no team's
// check.
var (
	namesOfFilters  = filter.Names
	namesOfHandlers = []string{"keepalive", "registration", "lapwing"}
)

// mayName refuses a new definition with one of the names to a role that is limited by labels, because it would affect
// other teams.
func mayName(t *act, name string, old bool, names []string) error {
	if old || t.permit.Selector() == nil || !slices.Contains(names, name) {
		return nil
	}
	return forbidden("the name %s stands for all of the namespace, and your role's rule is limited to %s",
		name, strings.Join(t.permit.Labels(), " or "))
}

// outOfReach refuses to make an object that a role limited by labels does not reach, or to change one into it. The
// message has the object's values of the labels in the role's rules.
func outOfReach(t *act, f selector.Fields) error {
	var has []string
	for _, term := range t.permit.Selector().Terms() {
		text := "no " + term.Name
		if v := f.Label(term.Name); !v.Missing() {
			text = term.Name + ": " + resource.Short(v.String())
		}
		if !slices.Contains(has, text) {
			has = append(has, text)
		}
	}
	return limitedTo(t, "metadata.labels has "+strings.Join(has, " and "))
}

// taken refuses to replace an object that a role limited by labels does not reach. It does not show the labels.
func taken(t *act) error { return limitedTo(t, "the stored object does not match") }

func limitedTo(t *act, why string) error {
	return &apiError{
		status: http.StatusForbidden, code: codeDenied, outer: true,
		message: errDenied.message + ": your role's rule is limited to " + strings.Join(t.permit.Labels(), " or ") + ", and " + why,
	}
}
