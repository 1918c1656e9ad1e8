package api

import (
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// serveFallbackPipelines adds lists of pipelines, at the paths of Sensu's newer clients.
func (a *API) serveFallbackPipelines() {
	k := &kind[resource.FallbackPipeline]{
		api: a, Kind: config.FallbackPipelines,
		reason: resourceInvalid,
	}
	k.serve()
}
