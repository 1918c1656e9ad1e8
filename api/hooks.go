package api

import (
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// serveHooks adds the commands that agents run after checks. Which check has which is said by the check: see checks.go.
func (a *API) serveHooks() {
	k := &kind[resource.HookConfig]{
		api: a, Kind: config.Hooks,
		reason: resourceInvalid,
	}
	k.serve()
}
