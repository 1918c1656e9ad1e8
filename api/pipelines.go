package api

import (
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func (a *API) servePipelines() {
	k := &kind[resource.Pipeline]{
		api: a, Kind: config.Pipelines,
		meta:     func(p *resource.Pipeline) *resource.ObjectMeta { return &p.Metadata },
		validate: (*resource.Pipeline).Validate,
		reason:   resourceInvalid,
	}
	k.serve()
}
