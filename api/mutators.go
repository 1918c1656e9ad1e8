package api

import (
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func (a *API) serveMutators() {
	k := &kind[resource.Mutator]{
		api: a, Kind: config.Mutators,
		accept: a.opts.MutatorAllowed,
		reason: resourceInvalid,
		hide:   (*resource.Mutator).Redacted,
		view: func(m *resource.Mutator) any {
			shown := *m
			shown.Author = nil // Sensu's clients do not know the field
			return &shown
		},
	}
	author := withAuthor(a, func(m *resource.Mutator) **resource.Author { return &m.Author }, k.Meta)
	k.finish = func(t *act, m, old *resource.Mutator) (*resource.Mutator, error) {
		m, err := m.WithSecrets(old)
		if err != nil {
			return nil, err
		}
		return author(t, m, old)
	}
	k.serve()
}
