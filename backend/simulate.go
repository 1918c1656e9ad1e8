package backend

import (
	"context"

	"github.com/lapwing-monitoring/lapwing/api"
	"github.com/lapwing-monitoring/lapwing/pipeline/workflow"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// simulator lets the API try events.
func simulator(workflows *workflow.Workflows) func(context.Context, string, *api.Draft, *resource.Event, bool) []trace.Delivery {
	return func(ctx context.Context, namespace string, draft *api.Draft, ev *resource.Event, commands bool) []trace.Delivery {
		return workflows.Simulate(ctx, workflow.Overlay{
			Handlers: draft.Handlers, Filters: draft.Filters, Mutators: draft.Mutators, Pipelines: draft.Pipelines, RunCommands: commands,
		}, ev, namespace)
	}
}
