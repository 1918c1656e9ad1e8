package api

import (
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// serveHooks adds the commands that agents run after checks. A check names its hooks: see checks.go.
func (a *API) serveHooks() {
	k := &kind[resource.HookConfig]{
		api: a, Kind: config.Hooks,
		reason: resourceInvalid,
	}
	k.serve()
}
