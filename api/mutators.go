package api

import (
	"fmt"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func (a *API) serveMutators() {
	k := &kind[resource.Mutator]{
		api: a, Kind: config.Mutators,
		accept: a.acceptMutator,
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

// acceptMutator refuses JavaScript that cannot be parsed: otherwise the first event would fail.
func (a *API) acceptMutator(m *resource.Mutator) error {
	if m.Type == "javascript" {
		if err := filter.CheckMutatorSyntax(m.Eval); err != nil {
			return resource.InField("eval", fmt.Errorf("syntax error in eval: %w", err))
		}
	}
	return a.opts.MutatorAllowed(m)
}
