package silence

import (
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestStoredSelector has a selector that the API refuses, and with which a stored silence still loads.
func TestStoredSelector(t *testing.T) {
	rule, err := Compile(&resource.Silenced{FieldSelector: "event.check.status == failing"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := rule.CheckValues(); err == nil || !strings.Contains(err.Error(), "it is a whole number") {
		t.Error(err)
	}
}
