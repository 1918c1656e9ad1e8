package ctl_test

import (
	"encoding/json"
	"fmt"
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

// fakeAPI is the API as far as the commands see it: sign-in, resources in memory, pages, errors of the shapes that
// the specification gives, and the live stream. It checks only what a test needs to fail.
type fakeAPI struct {
	url string

	mu      sync.Mutex
	log     *os.File                  // a line for each request, if not nil
	objects map[string]map[string]any // by plural/namespace/name
	issued  int
	live    map[string]bool // access tokens
	refresh string          // the refresh token that is good
	streams []chan string   // open live streams
	opened  chan struct{}   // a value for each opened one
	cut     bool            // live streams are refused
}

func newFakeAPI(t testing.TB, log *os.File) *fakeAPI {
	a := &fakeAPI{
		log:     log,
		objects: map[string]map[string]any{"namespaces//default": {"name": "default"}},
		live:    map[string]bool{},
		opened:  make(chan struct{}, 100),
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

// serve answers requests about resources.
func (a *fakeAPI) serve(header http.Header, r *http.Request) (any, apiError) {
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
		name = segments[1]
	}
	if !slices.Contains([]string{"namespaces", "checks", "entities", "events", "handlers"}, plural) {
		return nil, apiError{404, 2, "not found"}
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
		return old, apiError{}
	case http.MethodDelete:
		if !exists {
			return nil, apiError{404, 2, "not found"}
		}
		delete(a.objects, key)
		return nil, apiError{}
	}
	var body map[string]any
	dec := json.NewDecoder(r.Body)
	dec.UseNumber()
	if err := dec.Decode(&body); err != nil {
		return nil, apiError{400, 1, err.Error()}
	}
	if r.Method == http.MethodPost {
		name, _ = meta(body)["name"].(string)
		if plural == "namespaces" {
			name, _ = body["name"].(string)
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

// check refuses what the real API would, and fills in what it would.
func (a *fakeAPI) check(plural, namespace, name string, body map[string]any) apiError {
	if plural == "namespaces" {
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

// stream is the live stream: the events that are there, then what send passes on.
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
