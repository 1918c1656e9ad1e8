package resource

import (
	"fmt"
	"slices"
	"strings"
)

// Unsupported is something that a definition asks for and lapwing does not do, although it stores the definition.
type Unsupported struct {
	Text    string // what happens
	Instead string // what to use instead
}

func (u Unsupported) String() string { return u.Text + ": " + u.Instead }

// UnsupportedIn returns what a definition asks for and does not get.
func UnsupportedIn(obj any) (list []Unsupported) {
	const backendInstead = "remove secrets, and use env_vars, --handler-env of the backend, or a file"
	switch o := obj.(type) {
	case *CheckConfig:
		if len(o.Secrets) > 0 {
			list = append(list, Unsupported{
				"it wants secrets (" + secretNames(o.Secrets) + ") and there are no secrets providers, so it does not run and its events are unknown",
				"remove secrets, and use env_vars or a file on the hosts of the agents"})
		}
		if o.Subdue.hasRanges() {
			list = append(list, Unsupported{"subdue does nothing, as in Sensu", "use subdues"})
		}
	case *Handler:
		if len(o.Secrets) > 0 && o.Type == "pipe" {
			list = append(list, Unsupported{
				"it wants secrets (" + secretNames(o.Secrets) + ") and there are no secrets providers, so all its alerts become dead letters",
				backendInstead})
		}
	case *Mutator:
		if len(o.Secrets) > 0 && o.Type != "javascript" {
			list = append(list, Unsupported{
				"it wants secrets (" + secretNames(o.Secrets) + ") and there are no secrets providers, so handlers that use it send nothing",
				backendInstead})
		}
	}
	return list
}

func secretNames(list []Secret) string {
	var names []string
	for _, s := range list {
		if name := s.Name; name != "" {
			names = append(names, name)
		} else {
			names = append(names, fmt.Sprintf("%q", s.Secret))
		}
	}
	return strings.Join(names, ", ")
}

func (w *TimeWindowWhen) hasRanges() bool {
	if w == nil {
		return false
	}
	d := &w.Days
	return len(slices.Concat(d.All, d.Sunday, d.Monday, d.Tuesday, d.Wednesday, d.Thursday, d.Friday, d.Saturday)) > 0
}
