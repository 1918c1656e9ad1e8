package handler

import (
	"context"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// Workflow is what the pipeline knows of a delivery: whether it goes out, and as what. Workers ask, several at a time.
type Workflow interface {
	// Decide says whether the delivery goes out.
	Decide(ctx context.Context, dl *Delivery, ev *resource.Event) Decision
	// Shape makes of the event what the handler gets. An error is final: the delivery becomes a dead letter.
	Shape(ctx context.Context, dl *Delivery, ev *resource.Event) (data []byte, steps []trace.Step, err error)
	// Fold makes one event of the newest events of a group's pairs.
	Fold(dl *Delivery, key string, events []*resource.Event) *resource.Event
	// Fallback is the deliveries that take the place of one that became a dead letter. Partition and position are given to
	// them here.
	Fallback(dl *Delivery, ev *resource.Event) []*Delivery
}

// Decision is a verdict on a delivery.
type Decision struct {
	// Verdict ends the delivery with this, and Reason says why; "" lets it go on.
	Verdict trace.Verdict
	Reason  string
	// Hold, if not 0, has the question asked again after so long. The deliveries of the pair wait.
	Hold time.Duration
	// GroupKey is what the members of a group have in common; "" for none.
	GroupKey string
	// Steps is how it came to that.
	Steps []trace.Step
}
