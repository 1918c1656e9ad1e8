package api

import (
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func (a *API) serveChecks() {
	k := &kind[resource.CheckConfig]{
		api: a, Kind: config.Checks,
		meta:     func(c *resource.CheckConfig) *resource.ObjectMeta { return &c.Metadata },
		validate: (*resource.CheckConfig).Validate,
		reason:   resourceInvalid,
	}
	k.serve()
}
