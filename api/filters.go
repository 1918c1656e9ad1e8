package api

import (
	"fmt"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func (a *API) serveFilters() {
	k := &kind[resource.EventFilter]{
		api: a, Kind: config.Filters,
		reason: resourceInvalid,
		view: func(f *resource.EventFilter) any {
			shown := *f
			shown.Author = nil // Sensu's clients do not know the field
			return &shown
		},
	}
	authored := withAuthor(a, func(f *resource.EventFilter) **resource.Author { return &f.Author }, k.Meta)
	k.finish = func(t *act, f, old *resource.EventFilter) (*resource.EventFilter, error) {
		if err := mayName(t, f.Metadata.Name, old != nil, namesOfFilters); err != nil {
			return nil, err
		}
		return authored(t, f, old)
	}
	k.accept = func(f *resource.EventFilter) error {
		return resource.InField("expressions", checkExpressions(f.Expressions))
	}
	k.alone = true
	k.serve()
}

// checkExpressions refuses JavaScript that cannot be parsed. Otherwise the first event would fail.
func checkExpressions(expressions []string) (wrong error) {
	found := 0
	for i, e := range expressions {
		err := filter.CheckSyntax(e)
		if len(e) > filter.MaxExpression {
			err = fmt.Errorf("expression %d is longer than %d bytes", i, filter.MaxExpression)
		} else if err != nil {
			err = fmt.Errorf("syntax error in expression %d: %w", i, err)
		}
		if err == nil {
			continue
		}
		wrong = resource.JoinMistakes(wrong, resource.InField(fmt.Sprintf("[%d]", i), err))
		if found++; found > resource.MaxMistakes {
			break // no more are told
		}
	}
	return wrong
}

// checkProxyExpressions is checkExpressions for a check's proxy requests, which may be nil.
func checkProxyExpressions(p *resource.ProxyRequests) error {
	if p == nil {
		return nil
	}
	return resource.InField("proxy_requests.entity_attributes", checkExpressions(p.EntityAttributes))
}
