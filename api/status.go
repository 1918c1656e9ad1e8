package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Health is the state of the cluster, as /health shows it.
type Health struct {
	ClusterID uint64
	MemberID  uint64 // this backend's
	Term      uint64 // number of the newest list of members
	Members   []Member
	Postgres  []PostgresHealth // empty without PostgreSQL
}

// Member is one backend of the cluster.
type Member struct {
	ID   uint64
	Name string
	Err  string // why it is not healthy
	URL  string // of its API; "" if that is not known

	Draining bool // it sends its agents to other backends, which is healthy
}

func (a *API) serveStatus() {
	public := access{public: true, always: true}
	a.route("/health", public, methods{http.MethodGet: a.health})
	a.route("/ready", public, methods{http.MethodGet: a.ready})
	a.route("/version", public, methods{http.MethodGet: a.version})
	metrics := promhttp.HandlerFor(a.opts.Gatherer, promhttp.HandlerOpts{})
	who := public
	if a.opts.MetricsAuth {
		who = access{always: true, resource: "metrics", name: func(*request) string { return "" }}
	}
	a.route("/metrics", who, methods{http.MethodGet: func(w *response, r *request) error {
		metrics.ServeHTTP(w, r.Request)
		return nil
	}})
}

// health always answers 200: the status is in the table.
func (a *API) health(w *response, r *request) error {
	if t := r.FormValue("timeout"); t != "" {
		if _, err := strconv.Atoi(t); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return nil
		}
	}
	return answerHealth(w, http.StatusOK, a.opts.Health(r.Context()))
}

// healthAnswer is the state of the backends of a cluster.
type healthAnswer struct {
	Alarms        []string       `json:"Alarms"` // always null: there is no etcd
	ClusterHealth []memberHealth `json:"ClusterHealth"`
	Header        clusterHeader  `json:"Header"`
	// PostgresHealth is missing without PostgreSQL. The backends are healthy without it.
	PostgresHealth []postgresHealth `json:"PostgresHealth,omitempty"`
}

// postgresHealth is the state of the answering backend's connection to PostgreSQL, and of its journal.
type postgresHealth struct {
	Name    string `json:"Name"`
	Err     string `json:"Err"`
	Active  bool   `json:"Active"`
	Healthy bool   `json:"Healthy"`
}

// memberHealth is the state of one backend, as the others see it.
type memberHealth struct {
	MemberID    uint64 `json:"MemberID"`
	MemberIDHex string `json:"MemberIDHex"`
	Name        string `json:"Name"`
	Err         string `json:"Err"` // why it is not healthy
	Healthy     bool   `json:"Healthy"`
	Draining    bool   `json:"Draining,omitempty"` // it sends its agents to other backends
}

// clusterHeader says which backend answers.
type clusterHeader struct {
	ClusterID uint64 `json:"cluster_id"`
	MemberID  uint64 `json:"member_id"`
	Term      uint64 `json:"raft_term"`
}

func answerHealth(w *response, status int, h Health) error {
	out := healthAnswer{ClusterHealth: []memberHealth{}, Header: clusterHeader{h.ClusterID, h.MemberID, h.Term}}
	for _, p := range h.Postgres {
		out.PostgresHealth = append(out.PostgresHealth, postgresHealth{p.Name, p.Err, true, p.Err == ""})
	}
	for _, m := range h.Members {
		out.ClusterHealth = append(out.ClusterHealth,
			memberHealth{m.ID, strconv.FormatUint(m.ID, 16), m.Name, m.Err, m.Err == "", m.Draining})
	}
	body, err := encode(out)
	if err != nil {
		return err
	}
	w.text(status, string(body))
	return nil
}

// aloneHealth returns the health of a backend without a cluster.
func (a *API) aloneHealth(context.Context) Health {
	name, err := os.Hostname()
	if err != nil {
		name = "lapwing"
	}
	m := Member{ID: xxhash.Sum64String(name), Name: name}
	if err := a.opts.Ready(); err != nil {
		m.Err = err.Error()
	}
	since, _, _ := a.opts.Drain.Draining()
	m.Draining = !since.IsZero()
	return Health{ClusterID: m.ID, MemberID: m.ID, Members: []Member{m}}
}

func (a *API) ready(w *response, _ *request) error {
	if err := a.gate(); err != nil {
		return err
	}
	if err := cmp.Or(a.opts.Ready(), a.opts.Impaired()); err != nil {
		w.text(http.StatusServiceUnavailable, err.Error()+"\n")
		return nil
	}
	if since, _, sessions := a.opts.Drain.Draining(); !since.IsZero() {
		text := fmt.Sprintf("draining since %s: agents are sent to other backends, %d are left\n",
			since.UTC().Format(time.RFC3339), sessions)
		w.text(http.StatusServiceUnavailable, text)
		return nil
	}
	w.text(http.StatusOK, "ready\n")
	return nil
}

// versionAnswer is the version of the backend and of its API. Its fields are in alphabetical order.
type versionAnswer struct {
	APIGroups map[string]string `json:"api_groups"`
	Etcd      map[string]string `json:"etcd"` // empty versions: clients read them, and there is no etcd
	Backend   string            `json:"sensu_backend"`
}

func (a *API) version(w *response, _ *request) error {
	body, err := encode(versionAnswer{
		APIGroups: map[string]string{"core/v2": "v2.20.0", "core/v3": "v3.9.0"},
		Etcd:      map[string]string{"etcdserver": "", "etcdcluster": ""},
		Backend:   a.opts.Version,
	})
	if err != nil {
		return err
	}
	w.text(http.StatusOK, string(body))
	return nil
}
