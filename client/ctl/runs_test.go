package ctl

import (
	"slices"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestTargetsWithoutNames: the server names agents only to users who may list all entities.
func TestTargetsWithoutNames(t *testing.T) {
	const hidden = "  they are not named, since you may not list all entities"
	for _, tc := range []struct {
		name    string
		targets resource.CheckTargets
		want    bool
	}{
		{"no agent", resource.CheckTargets{}, false},
		{"named", resource.CheckTargets{Agents: 1, Names: []string{"srv1"}}, false},
		{"away and named", resource.CheckTargets{NotConnected: 1, NotConnectedNames: []string{"srv1"}}, false},
		{"not named", resource.CheckTargets{Agents: 1}, true},
		{"away and not named", resource.CheckTargets{NotConnected: 2}, true},
	} {
		if got := slices.Contains(targetLines(&tc.targets), hidden); got != tc.want {
			t.Errorf("%s: it says that names are hidden: %v, want %v", tc.name, got, tc.want)
		}
	}
	if got := targetLines(&resource.CheckTargets{NotConnected: 2}); !slices.Contains(got, "  not connected: 2 entities") {
		t.Errorf("two that are not named: %q", got)
	}
}
