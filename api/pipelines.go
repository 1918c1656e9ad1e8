package api

import (
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func (a *API) servePipelines() {
	k := &kind[resource.Pipeline]{
		api: a, Kind: config.Pipelines,
		reason: resourceInvalid,
	}
	k.serve()
}
