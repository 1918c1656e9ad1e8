package api

import (
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// serveHooks adds the commands that agents run after checks. Which check has which is said by the check: see checks.go.
func (a *API) serveHooks() {
	k := &kind[resource.HookConfig]{
		api: a, Kind: config.Hooks,
		meta:     func(h *resource.HookConfig) *resource.ObjectMeta { return &h.Metadata },
		validate: (*resource.HookConfig).Validate,
		reason:   resourceInvalid,
	}
	k.serve()
}
