package api

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/google/uuid"
)

// serveCluster adds Sensu's paths about the cluster. Its members cannot be changed here: there is no etcd. Lapwing's own
// paths are in clusterstatus.go.
func (a *API) serveCluster() {
	named := func(name string) access {
		return access{resource: "cluster", name: func(*request) string { return name }}
	}
	a.route(core+"cluster/id", named("id"), methods{http.MethodGet: a.clusterID})
	a.route(core+"cluster/members", named("members"), methods{http.MethodGet: a.members, http.MethodPost: a.changeMember})
	a.route(core+"cluster/members/{id}", named("members"), methods{http.MethodPut: a.changeMember, http.MethodDelete: a.changeMember})
}

// clusterID answers with a UUID that is the same on all backends of the cluster and never changes.
func (a *API) clusterID(w *response, r *request) error {
	secret, err := a.opts.Config.Secret(r.Context(), "cluster-id", 16)
	if err != nil {
		return err
	}
	id := uuid.UUID(secret[:16])
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // version 4, from random bytes
	w.text(http.StatusOK, strconv.Quote(id.String())+"\n")
	return nil
}

// clusterMembers lists the backends of a cluster.
type clusterMembers struct {
	Header  clusterHeader   `json:"header"`
	Members []clusterMember `json:"members"`
}

// clusterMember is one backend. Its URLs for clients are those of its API; it has none for peers.
type clusterMember struct {
	ID         uint64   `json:"ID"`
	Name       string   `json:"name"`
	PeerURLs   []string `json:"peerURLs"`
	ClientURLs []string `json:"clientURLs"`
}

func (a *API) members(w *response, r *request) error {
	h := a.opts.Health(r.Context())
	out := clusterMembers{clusterHeader{h.ClusterID, h.MemberID, h.Term}, []clusterMember{}}
	for _, m := range h.Members {
		urls := []string{}
		if m.URL != "" {
			urls = append(urls, m.URL)
		}
		out.Members = append(out.Members, clusterMember{m.ID, m.Name, []string{}, urls})
	}
	body, err := encode(out)
	if err != nil {
		return err
	}
	w.text(http.StatusOK, string(body))
	return nil
}

// changeMember refuses, with Sensu's text where Sensu refuses too.
func (a *API) changeMember(w *response, r *request) error {
	if id := r.PathValue("id"); id != "" {
		if _, err := strconv.ParseUint(id, 16, 64); err != nil {
			http.Error(w, fmt.Sprintf("bad id (%s): %v", id, err), http.StatusBadRequest)
			return nil
		}
	}
	if r.Method != http.MethodDelete && r.URL.Query().Get("peer-addrs") == "" {
		http.Error(w, "missing peer-addrs form value", http.StatusBadRequest)
		return nil
	}
	http.Error(w, "the members of the cluster cannot be changed through the API: there is no etcd; lapwing cluster remove "+
		"removes a member", http.StatusBadRequest)
	return nil
}
