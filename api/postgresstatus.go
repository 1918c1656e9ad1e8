package api

import (
	"net/http"

	"github.com/lapwing-monitoring/lapwing/postgres"
)

// PostgresStatus is how the copy of events in PostgreSQL stands, as one backend writes it.
type PostgresStatus struct {
	// Member is the backend's name.
	Member string `json:"member"`
	// Unknown is why nothing else is known of it.
	Unknown string `json:"unknown,omitempty"`
	// Gone says that it was not heard for long: others write for it.
	Gone bool `json:"gone,omitempty"`
	postgres.Status
}

// PostgresHealth is the state of this backend's connection to PostgreSQL and of its journal, as /health shows it. The
// backend is healthy without them.
type PostgresHealth struct {
	Name string // of the definition
	Err  string // why it is not healthy
}

// servePostgresStatus adds how PostgreSQL stands. Users who may see the status of the cluster may see it.
func (a *API) servePostgresStatus() {
	who := access{resource: "cluster", name: func(*request) string { return "status" }, always: true}
	a.route(ours+"postgres", who, methods{http.MethodGet: a.postgresStatus})
}

func (a *API) postgresStatus(w *response, r *request) error {
	list := newArray(w, "")
	if a.opts.Postgres != nil {
		all := a.opts.Postgres(r.Context())
		for i := range all {
			if err := list.add(&all[i]); err != nil {
				return err
			}
		}
	}
	return list.finish()
}
