package ctl_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeAPI is the part of the API that the commands use: sign-in, resources in memory, pages, errors in the specified
// shapes, and the live stream. It checks only what a test needs to fail.
type fakeAPI struct {
	url string

	mu      sync.Mutex
	log     *os.File                  // a line for each request, if not nil
	objects map[string]map[string]any // by plural/namespace/name
	issued  int
	live    map[string]bool      // access tokens
	refresh string               // the only valid refresh token
	streams []chan string        // open live streams
	fixed   map[string]any       // answers by path
	opened  chan struct{}        // gets a value for each opened stream
	cut     bool                 // live streams are refused
	meddle  func(map[string]any) // called just before an object is next put, as another client's change
}

func newFakeAPI(t testing.TB, log *os.File) *fakeAPI {
	a := &fakeAPI{
		log: log,
		objects: map[string]map[string]any{"namespaces//default": {"name": "default"},
			"users//admin": {"username": "admin", "disabled": false}},
		live:   map[string]bool{},
		fixed:  fixedAnswers(),
		opened: make(chan struct{}, 100),
	}
	srv := httptest.NewServer(a)
	t.Cleanup(func() {
		a.endStreams()
		srv.Close()
	})
	a.url = srv.URL
	return a
}

type apiError struct {
	status, code int
	message      string
}

func (a *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/api/lapwing/v1/namespaces/") && strings.HasSuffix(r.URL.Path, "/events/stream") {
		a.stream(w, r)
		return
	}
	if strings.HasPrefix(r.URL.Path, "/api/lapwing/v1/dry-run/") { // as Sensu, which does not know it
		http.NotFound(w, r)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.log != nil {
		fmt.Fprintf(a.log, "%s %s\n", r.Method, r.URL.RequestURI())
	}
	switch r.URL.Path {
	case "/auth":
		if user, pass, _ := r.BasicAuth(); user != "admin" || pass != "P@ssw0rd!" {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		a.issue(w)
		return
	case "/auth/test":
		if user, pass, _ := r.BasicAuth(); user != "admin" || pass != "P@ssw0rd!" {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
		}
		return
	case "/auth/logout":
		a.live, a.refresh = nil, ""
		return
	case "/metrics":
		io.WriteString(w, "# HELP lapwing_events_received_total Events.\nlapwing_events_received_total{source=\"a\"} 3\nlapwing_events_received_total{source=\"b }\"} 4 1795237119000\n"+
			"lapwing_agent_sessions{namespace=\"default\"} 40000\nlapwing_state_lag_seconds 0.25\n")
		return
	case "/auth/token":
		var in struct {
			Token string `json:"refresh_token"`
		}
		json.NewDecoder(r.Body).Decode(&in)
		if in.Token != a.refresh {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		a.issue(w)
		return
	}
	out, err := a.serve(w.Header(), r)
	switch {
	case err.status != 0:
		w.WriteHeader(err.status)
		json.NewEncoder(w).Encode(map[string]any{"message": err.message, "code": err.code})
	case out != nil:
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(out)
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	default:
		w.WriteHeader(http.StatusCreated)
	}
}

func (a *fakeAPI) issue(w http.ResponseWriter) {
	a.issued++
	access := fmt.Sprint("access-", a.issued)
	a.live = map[string]bool{access: true}
	a.refresh = fmt.Sprint("refresh-", a.issued)
	json.NewEncoder(w).Encode(map[string]any{
		"access_token": access, "refresh_token": a.refresh, "expires_at": time.Now().Add(5 * time.Minute).Unix(),
	})
}

func (a *fakeAPI) authorized(r *http.Request) apiError {
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	switch {
	case scheme == "Bearer" && a.live[secret], scheme == "Key" && secret == "good-key":
		return apiError{}
	case scheme == "Key" && secret == "guest-key":
		return apiError{403, 4, "unauthorized to perform action"}
	}
	return apiError{401, 5, "invalid credentials"}
}

// sub answers requests below a resource, for example for the hooks of a check. It only writes them to the log, with
// their body.
func (a *fakeAPI) sub(r *http.Request, plural, namespace, name string) (any, apiError) {
	name, _, _ = strings.Cut(name, "/")
	if a.objects[plural+"/"+namespace+"/"+name] == nil {
		return nil, apiError{404, 2, "not found"}
	}
	body, _ := io.ReadAll(r.Body)
	if a.log != nil && len(body) > 0 {
		fmt.Fprintf(a.log, "%s\n", body)
	}
	return nil, apiError{}
}

// tag returns the entity tag of an object.
func tag(object map[string]any) string {
	data, _ := json.Marshal(object)
	return fmt.Sprintf("%q", fmt.Sprint(crc32.ChecksumIEEE(data)))
}

// merge applies a merge patch.
func merge(object, patch map[string]any) {
	for key, v := range patch {
		inner, isMap := v.(map[string]any)
		old, wasMap := object[key].(map[string]any)
		switch {
		case v == nil:
			delete(object, key)
		case isMap && wasMap:
			merge(old, inner)
		default:
			object[key] = v
		}
	}
}

var plurals = []string{
	"namespaces", "clusterroles", "clusterrolebindings", "users", "apikeys", "tessen", "assets", "checks", "entities", "events",
	"filters", "handlers", "hooks", "mutators", "pipelines", "fallbackPipeline", "roles", "rolebindings", "silenced",
}

// serve answers requests about resources.
func (a *fakeAPI) serve(header http.Header, r *http.Request) (any, apiError) {
	if answer, ok := a.fixed[r.URL.Path]; ok {
		if err := a.authorized(r); err.status != 0 && strings.HasPrefix(r.URL.Path, "/api/core/") {
			return nil, err
		}
		return answer, apiError{}
	}
	if r.URL.Path == "/api/lapwing/v1/auth/can-i" {
		return canI(r), a.authorized(r)
	}
	rest, ok := strings.CutPrefix(r.URL.Path, "/api/core/v2/")
	if !ok {
		return nil, apiError{404, 2, "not found"}
	}
	if err := a.authorized(r); err.status != 0 {
		return nil, err
	}
	segments := strings.Split(rest, "/")
	plural, namespace, name := segments[0], "", ""
	if plural == "namespaces" && len(segments) > 2 {
		namespace, plural, name = segments[1], segments[2], strings.Join(segments[3:], "/")
	} else if len(segments) > 1 {
		name = strings.Join(segments[1:], "/")
	}
	if !slices.Contains(plurals, plural) {
		return nil, apiError{404, 2, "not found"}
	}
	if plural == "tessen" {
		name = "tessen"
	}
	if plural != "events" && strings.Contains(name, "/") {
		return a.sub(r, plural, namespace, name)
	}
	key := plural + "/" + namespace + "/" + name
	old, exists := a.objects[key]
	switch r.Method {
	case http.MethodGet:
		if name == "" {
			return a.list(header, r, plural, namespace), apiError{}
		}
		if !exists {
			return nil, apiError{404, 2, "not found"}
		}
		header.Set("Etag", tag(old))
		return old, apiError{}
	case http.MethodDelete:
		if !exists {
			return nil, apiError{404, 2, "not found"}
		}
		delete(a.objects, key)
		return nil, apiError{}
	case http.MethodPut:
		if change := a.meddle; change != nil {
			a.meddle = nil
			change(old)
		}
		if want := r.Header.Get("If-Match"); want != "" && want != tag(old) {
			return nil, apiError{412, 7, "precondition failed"}
		}
	}
	var body map[string]any
	dec := json.NewDecoder(r.Body)
	dec.UseNumber()
	if err := dec.Decode(&body); err != nil {
		return nil, apiError{400, 1, err.Error()}
	}
	if r.Method == http.MethodPatch {
		if !exists {
			return nil, apiError{404, 2, "not found"}
		}
		merge(old, body)
		return old, apiError{}
	}
	if plural == "apikeys" {
		name = "0a48fc8a-fa06-4b7f-83d6-44a0ae40fd4a"
		header.Set("Location", "/api/core/v2/apikeys/"+name)
		meta(body)["name"] = name
		a.objects[key+name] = body
		return nil, apiError{}
	}
	if r.Method == http.MethodPost {
		name, _ = meta(body)["name"].(string)
		switch plural {
		case "namespaces":
			name, _ = body["name"].(string)
		case "users":
			name, _ = body["username"].(string)
		case "silenced":
			subscription, _ := body["subscription"].(string)
			check, _ := body["check"].(string)
			name = cmp.Or(subscription, "*") + ":" + cmp.Or(check, "*")
			meta(body)["name"] = name
		}
		key += name
		if a.objects[key] != nil {
			return nil, apiError{409, 3, "resource already exists"}
		}
	}
	if err := a.check(plural, namespace, name, body); err.status != 0 {
		return nil, err
	}
	a.objects[key] = body
	if plural == "entities" {
		return body, apiError{}
	}
	return nil, apiError{}
}

func meta(object any) map[string]any {
	m, _ := object.(map[string]any)["metadata"].(map[string]any)
	return m
}

// check refuses and fills in what the real API would.
func (a *fakeAPI) check(plural, namespace, name string, body map[string]any) apiError {
	if namespace == "" {
		return apiError{}
	}
	if a.objects["namespaces//"+namespace] == nil {
		return apiError{404, 0, fmt.Sprintf("the namespace %s does not exist", namespace)}
	}
	where := meta(body)
	if plural == "events" {
		where = meta(body["entity"])
	}
	if ns := where["namespace"]; ns != namespace {
		return apiError{400, 1, fmt.Sprintf("the namespace of the resource (%v) does not match the namespace of the URI (%s)", ns, namespace)}
	}
	switch plural {
	case "events":
		if body["id"] == nil {
			body["id"] = "3c3cbb4c-0f3f-4b8e-9a3e-5d8c6d0b8a55"
		}
	case "checks":
		if (body["interval"] == nil || body["interval"] == json.Number("0")) && body["cron"] == nil {
			return apiError{400, 1, "resource is invalid: check interval must be greater than 0 or a valid cron schedule must be provided"}
		}
	}
	if plural != "events" && where["name"] != name {
		return apiError{400, 1, fmt.Sprintf("the name of the resource (%v) does not match the name of the URI (%s)", where["name"], name)}
	}
	return apiError{}
}

func (a *fakeAPI) list(header http.Header, r *http.Request, plural, namespace string) []any {
	out := []any{}
	q := r.URL.Query()
	limit, _ := strconv.Atoi(q.Get("limit"))
	for _, key := range slices.Sorted(maps.Keys(a.objects)) {
		prefix := plural + "/"
		if namespace != "" || plural == "namespaces" {
			prefix += namespace + "/"
		}
		if !strings.HasPrefix(key, prefix) || key <= q.Get("continue") {
			continue
		}
		if limit > 0 && len(out) == limit {
			last := out[limit-1].(map[string]any)
			header.Set("Sensu-Continue", plural+"/"+fmt.Sprint(meta(last)["namespace"])+"/"+fmt.Sprint(meta(last)["name"]))
			break
		}
		out = append(out, a.objects[key])
	}
	return out
}

// stream returns the live stream: the present events, then those that send passes on.
func (a *fakeAPI) stream(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	if err := a.authorized(r); err.status != 0 || a.cut {
		a.mu.Unlock()
		if a.cut {
			err = apiError{503, 0, "stopping"}
		}
		w.WriteHeader(err.status)
		fmt.Fprintf(w, `{"Code":%d,"Message":%q}`, err.code, err.message)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(a.objects)) {
		if strings.HasPrefix(key, "events/") {
			data, _ := json.Marshal(a.objects[key])
			fmt.Fprintf(w, "event: event\ndata: %s\n\n", data)
		}
	}
	messages := make(chan string, 100)
	a.streams = append(a.streams, messages)
	a.mu.Unlock()

	io.WriteString(w, "event: synced\ndata: {}\n\n")
	w.(http.Flusher).Flush()
	a.opened <- struct{}{}
	for {
		select {
		case m, open := <-messages:
			if !open {
				return
			}
			io.WriteString(w, m)
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// putEvent stores an event and sends it to the live streams.
func (a *fakeAPI) putEvent(namespace, entity, check string, status int, output string) {
	event := map[string]any{
		"entity": map[string]any{"entity_class": "proxy", "metadata": map[string]any{"name": entity, "namespace": namespace}},
		"check": map[string]any{"status": status, "output": output,
			"metadata": map[string]any{"name": check, "namespace": namespace}},
		"timestamp": 1795237119,
		"id":        "3c3cbb4c-0f3f-4b8e-9a3e-5d8c6d0b8a55",
	}
	data, _ := json.Marshal(event)
	a.mu.Lock()
	a.objects["events/"+namespace+"/"+entity+"/"+check] = event
	a.mu.Unlock()
	a.send("event: event\ndata: " + string(data) + "\n\n")
}

func (a *fakeAPI) deleteEvent(namespace, entity, check string) {
	a.mu.Lock()
	delete(a.objects, "events/"+namespace+"/"+entity+"/"+check)
	a.mu.Unlock()
	a.send(fmt.Sprintf("event: delete\ndata: {\"namespace\":%q,\"entity\":%q,\"check\":%q}\n\n", namespace, entity, check))
}

func (a *fakeAPI) send(message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.streams {
		s <- message
	}
}

func (a *fakeAPI) endStreams() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.streams {
		close(s)
	}
	a.streams = nil
}

// fixedAnswers returns the answers that never change.
func fixedAnswers() map[string]any {
	id := json.Number("14443217398291624256")
	header := map[string]any{"cluster_id": id, "member_id": id}
	return map[string]any{
		"/health": map[string]any{"ClusterHealth": []any{
			map[string]any{"MemberID": id, "MemberIDHex": "c8730d66636ff140", "Name": "one", "Err": "", "Healthy": true},
			map[string]any{"MemberID": 255, "MemberIDHex": "ff", "Name": "two", "Err": "no answer", "Healthy": false},
		}, "Header": header},
		// The public index of assets.
		"/api/v1/assets/sensu/disk": map[string]any{"versions": []any{version("0.9.0"),
			version("0.10.1"), version("0.10.0"), version("1.0.0-rc1")}},
		"/api/v1/assets/sensu/disk/0.10.1/release_asset_builds": build("0.10.1", "abc"),
		"/api/v1/assets/sensu/disk/0.9.0/release_asset_builds":  build("0.9.0", "def"),
		"/version":                map[string]any{"sensu_backend": "6.12.0"},
		"/api/core/v2/cluster/id": "97a8b5c7-741c-4b52-a4fe-0d4a68d9ccae",
		"/api/lapwing/v1/cluster": clusterStatus(),
		"/api/core/v2/cluster/members": map[string]any{"header": header, "members": []any{
			map[string]any{"ID": id, "name": "one", "peerURLs": []string{"http://a:1", "http://b:2"}, "clientURLs": []string{"http://a:3"}},
		}},
	}
}

// clusterStatus is the status of a cluster where something is wrong.
func clusterStatus() any {
	member := func(name string, more map[string]any) any {
		m := map[string]any{
			"id": name, "name": name, "version": "1.2.3", "api_url": "http://" + name + ":8080", "up": true, "ready": true, "leased": true,
			"on_roster": true, "sessions": 7, "disk_free": 12_345_000_000, "clock_skew_seconds": -0.2, "revision": 40,
			"definitions_lag": 0, "folded": []int{9, 8}, "fold_lag": []int{0, 0},
		}
		maps.Copy(m, more)
		return m
	}
	return map[string]any{
		"problems": []string{"1 of 4 members is away: b for 12 s", "the clock of c is 60 s ahead of that of a"},
		"member":   "a", "size": 4, "roster": 5, "leader": "c", "disk_reserve": 1e9,
		"members": []any{
			member("a", nil), member("b", map[string]any{"up": false, "away_seconds": 12.9}),
			member("c", map[string]any{"clock_skew_seconds": 60.1, "definitions_lag": 3, "fold_lag": []int{2, 900}, "draining": true}),
			member("d", map[string]any{"ready": false}),
		},
		"partitions": []any{
			map[string]any{"partition": 0, "owner": "a", "roster": 5}, map[string]any{"partition": 1, "owner": "", "roster": 5},
		},
		"streams": []any{
			map[string]any{"name": "KV_config", "holds": "definitions", "leader": "c", "copies": 3, "replicas": []any{
				map[string]any{"member": "a", "current": true, "offline": false, "lag": 0, "heard_seconds": 0.1},
				map[string]any{"member": "b", "current": false, "offline": true, "lag": 9, "heard_seconds": 12},
			}},
			map[string]any{"name": "EVENTLOG_0", "holds": "partition 0", "leader": "a", "copies": 3, "replicas": []any{
				map[string]any{"member": "c", "current": false, "offline": false, "lag": 4, "heard_seconds": 0.1},
				map[string]any{"member": "d", "current": false, "offline": false, "lag": 0, "heard_seconds": 0.1},
			}},
			map[string]any{"name": "EVENTLOG_1", "holds": "partition 1", "leader": "", "copies": 3, "error": "no answer within 700ms",
				"replicas": []any{}},
		},
	}
}

// canI allows every user to read.
func canI(r *http.Request) any {
	q := r.URL.Query()
	out := map[string]any{"allowed": q.Get("verb") == "get", "user": cmp.Or(q.Get("as"), "admin"),
		"groups": q["group"], "binding": nil, "role": nil}
	if out["allowed"] == true {
		out["binding"] = map[string]any{"type": "RoleBinding", "namespace": q.Get("namespace"), "name": "readers"}
		out["role"] = map[string]any{"type": "ClusterRole", "name": "view"}
	}
	return out
}

func jsonText(v any) string {
	data, _ := json.Marshal(v)
	return string(data)
}

func version(v string) any { return map[string]any{"version": v} }

// build returns an asset as the public index has it.
func build(version, hash string) any {
	return map[string]any{
		"type": "Asset", "api_version": "core/v2",
		"metadata": map[string]any{"name": "sensu/disk", "labels": nil, "annotations": map[string]any{
			"io.sensu.bonsai.namespace": "sensu", "io.sensu.bonsai.name": "disk", "io.sensu.bonsai.version": version,
		}},
		"spec": map[string]any{"builds": []any{map[string]any{"url": "https://example.com/a/disk.tar.gz", "sha512": hash}}},
	}
}
