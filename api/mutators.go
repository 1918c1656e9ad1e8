package api

import (
	"cmp"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func (a *API) serveMutators() {
	k := &kind[resource.Mutator]{
		api: a, Kind: config.Mutators,
		meta:     func(m *resource.Mutator) *resource.ObjectMeta { return &m.Metadata },
		validate: func(m *resource.Mutator) error { return cmp.Or(m.Validate(), a.opts.MutatorAllowed(m)) },
		reason:   resourceInvalid,
		hide:     (*resource.Mutator).Redacted,
		settle:   func(_ *request, m, old *resource.Mutator) (*resource.Mutator, error) { return m.WithSecrets(old) },
	}
	k.serve()
}
