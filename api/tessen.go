package api

import (
	"errors"
	"net/http"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// serveTessen adds the switch for Sensu's reports about its users. Clients and dumps read and set it; there are no
// reports.
func (a *API) serveTessen() {
	a.route(core+"tessen", access{resource: "tessen"}, methods{http.MethodGet: a.tessen, http.MethodPut: a.putTessen})
}

func (a *API) tessen(w *response, r *request) error { return w.tagged(r, a.tessenConfig()) }

func (a *API) tessenConfig() *resource.TessenConfig {
	if c, ok := config.Get(a.opts.Config.Snapshot(), config.Tessen, "", resource.TessenName); ok {
		return c
	}
	return &resource.TessenConfig{}
}

func (a *API) putTessen(w *response, r *request) error {
	c := new(resource.TessenConfig)
	if err := a.decode(w, r, c); err != nil {
		return err
	}
	if !r.conditional() {
		if err := config.Put(r.Context(), a.opts.Config, config.Tessen, c); err != nil {
			return err
		}
		return w.tagged(r, c)
	}
	// There is always a value to compare with: the default, if none was written.
	if err := config.Create(r.Context(), a.opts.Config, config.Tessen, a.tessenConfig()); err != nil && !errors.Is(err, config.ErrExists) {
		return err
	}
	_, err := config.Update(r.Context(), a.opts.Config, config.Tessen, "", resource.TessenName,
		func(old *resource.TessenConfig) (*resource.TessenConfig, error) {
			return c, r.precondition(old)
		})
	if err != nil {
		return err
	}
	return w.tagged(r, c)
}
