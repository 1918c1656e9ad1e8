package api

import (
	"fmt"
	"net/http"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const datastores = "/api/enterprise/" + resource.StoreAPIVersion + "/"

// postgresConfigs serves the definitions of PostgreSQL, at the paths of Sensu's commercial edition.
type postgresConfigs struct {
	kind[resource.PostgresConfig]
}

func (a *API) servePostgresConfigs() {
	c := &postgresConfigs{kind[resource.PostgresConfig]{
		api: a, Kind: config.PostgresConfigs, base: datastores, reason: resourceInvalid,
		warning: a.unusedPostgres,
		finish: func(_ *act, p, old *resource.PostgresConfig) (*resource.PostgresConfig, error) {
			return p.WithSecrets(old)
		},
	}}
	a.definitions[c.String()] = definition{like: new(resource.PostgresConfig), erase: c.erase}
	c.serveRoutes(methods{http.MethodGet: c.list},
		methods{http.MethodGet: c.get, http.MethodPut: c.put, http.MethodDelete: c.delete})
}

// put answers 200, as Sensu does for this kind.
func (c *postgresConfigs) put(w *response, r *request) error {
	obj := new(resource.PostgresConfig)
	if err := c.api.decode(w, r, obj); err != nil {
		return err
	}
	err := c.replace(r.Context(), r.act, obj)
	return w.written(r, http.StatusOK, err)
}

// unusedPostgres warns about several definitions: only the first by name is used.
func (a *API) unusedPostgres(_ *act, p *resource.PostgresConfig) string {
	first, count := p.Metadata.Name, 1
	for other := range config.List(a.opts.Config.Snapshot(), config.PostgresConfigs, "") {
		if name := other.Metadata.Name; name != p.Metadata.Name {
			first = min(first, name)
			count++
		}
	}
	if count == 1 {
		return ""
	}
	return fmt.Sprintf("there are %d definitions of PostgreSQL, and only the first by name is used: %s", count,
		resource.Short(first))
}
