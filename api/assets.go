package api

import (
	"fmt"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func (a *API) serveAssets() {
	k := &kind[resource.Asset]{
		api: a, Kind: config.Assets,
		reason: resourceInvalid,
		hide:   (*resource.Asset).Redacted,
		finish: func(_ *act, asset, old *resource.Asset) (*resource.Asset, error) { return asset.WithSecrets(old) },
	}
	k.accept = func(asset *resource.Asset) error {
		if err := checkExpressions(asset.Filters); err != nil {
			return resource.InField("filters", err)
		}
		for i, b := range asset.Builds {
			if err := checkExpressions(b.Filters); err != nil {
				return resource.InField(fmt.Sprintf("builds[%d].filters", i), err)
			}
		}
		return nil
	}
	k.serve()
}
