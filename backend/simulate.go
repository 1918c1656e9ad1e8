package backend

import (
	"context"

	"github.com/lapwing-monitoring/lapwing/api"
	"github.com/lapwing-monitoring/lapwing/pipeline/workflow"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// simulator lets the API try events.
func simulator(workflows *workflow.Workflows) func(context.Context, *api.SimulateOptions) []trace.Delivery {
	return func(ctx context.Context, o *api.SimulateOptions) []trace.Delivery {
		return workflows.Simulate(ctx, workflow.Overlay{
			Handlers: o.Draft.Handlers, Filters: o.Draft.Filters, Mutators: o.Draft.Mutators, Pipelines: o.Draft.Pipelines,
			RunCommands: o.RunCommands, At: o.At,
		}, o.Event, o.Namespace)
	}
}
