package load

import (
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestEventPipelines: a check's pipelines are beside the check in the event, as an agent writes them.
func TestEventPipelines(t *testing.T) {
	ref := resource.ResourceReference{Name: "p", Type: "Pipeline", APIVersion: "core/v2"}
	for _, refs := range [][]resource.ResourceReference{nil, {ref}, {ref, {Name: "q", Type: "Pipeline", APIVersion: "core/v2"}}} {
		c := newCheck(&resource.CheckConfig{Metadata: resource.ObjectMeta{Name: "c", Namespace: "default"}, Interval: 10, Pipelines: refs})
		var ev resource.Event
		if err := ev.UnmarshalProto(c.pipelines); err != nil {
			t.Fatal(err)
		}
		if len(ev.Pipelines) != len(refs) {
			t.Fatalf("%d pipelines, want %d", len(ev.Pipelines), len(refs))
		}
		for i, got := range ev.Pipelines {
			if got != refs[i] {
				t.Errorf("pipeline %d is %+v, want %+v", i, got, refs[i])
			}
		}
	}
}
