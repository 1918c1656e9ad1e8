package api

import (
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func (a *API) serveMutators() {
	k := &kind[resource.Mutator]{
		api: a, Kind: config.Mutators,
		meta:     func(m *resource.Mutator) *resource.ObjectMeta { return &m.Metadata },
		validate: (*resource.Mutator).Validate,
		reason:   resourceInvalid,
	}
	k.serve()
}
