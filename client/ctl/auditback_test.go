package ctl

import (
	"encoding/json"
	"testing"

	"github.com/lapwing-monitoring/lapwing/client"
)

// TestThenOfAWholeChange: a change with the whole definition needs no other changes, which the log may lack: it has none of
// the end of an expired silence.
func TestThenOfAWholeChange(t *testing.T) {
	e := &client.AuditEntry{ID: 1, Action: "create", Changes: []client.AuditChange{{New: json.RawMessage(`{"reason":"new disks"}`)}}}
	for before, want := range map[bool]string{false: "new disks", true: ""} {
		got, err := new(invocation).then(t.Context(), nil, e, before)
		if reason, _ := got["reason"].(string); err != nil || reason != want || before != (got == nil) {
			t.Errorf("before %v: %v, %v", before, got, err)
		}
	}
}
