package pipeline

import (
	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/state"
)

// Deliveries returns what Route would dispatch.
func (r *Router) Deliveries(a *state.Applied) []*delivery.Delivery {
	sn := r.config()
	if !r.passes(sn, a) {
		return nil
	}
	return r.deliveries(nil, sn, a)
}
