package api

import (
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func (a *API) serveHandlers() {
	k := &kind[resource.Handler]{
		api: a, Kind: config.Handlers,
		accept: a.opts.HandlerAllowed,
		reason: resourceInvalid,
		hide:   (*resource.Handler).Redacted,
		finish: func(t *act, h, old *resource.Handler) (*resource.Handler, error) {
			if err := mayName(t, h.Metadata.Name, old != nil, namesOfHandlers); err != nil {
				return nil, err
			}
			return h.WithSecrets(old)
		},
	}
	k.serve()
}
