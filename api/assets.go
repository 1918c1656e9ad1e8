package api

import (
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
			return err
		}
		for _, b := range asset.Builds {
			if err := checkExpressions(b.Filters); err != nil {
				return err
			}
		}
		return nil
	}
	k.serve()
}
