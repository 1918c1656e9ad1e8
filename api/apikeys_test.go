package api

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const keysPath = "/api/core/v2/apikeys"

// key makes an API key for a user.
func (s *server) key(user string) string {
	s.t.Helper()
	a := s.do("POST", keysPath, `{"username":"`+user+`"}`).is(http.StatusCreated)
	key, ok := strings.CutPrefix(a.header.Get("Location"), keysPath+"/")
	if !ok || a.body != "" {
		s.t.Fatalf("Location %q, body %q", a.header.Get("Location"), a.body)
	}
	return key
}

func with(key string) []string { return []string{"Authorization", "Key " + key} }

func TestAPIKeys(t *testing.T) {
	s := newServer(t, nil)
	key := s.key(admin)
	name := auth.APIKeyName(key)
	s.do("GET", checksPath, "", with(key)...).is(http.StatusOK)
	s.do("GET", checksPath, "", with(name)...).refuses(http.StatusUnauthorized, codeUnauthenticated, "invalid credentials")

	// The key is only in the answer that made it.
	list := s.do("GET", keysPath, "").is(http.StatusOK).body
	stored, _ := config.Get(s.store.Snapshot(), config.APIKeys, "", name)
	if strings.Contains(list, key) || !strings.Contains(list, name) || strings.Contains(list, stored.Hash) {
		t.Errorf("listed as %s", list)
	}
	for _, either := range []string{key, name} {
		var got resource.APIKey
		s.do("GET", keysPath+"/"+either, "").is(http.StatusOK).has(&got)
		if got.Metadata.Name != either || got.Username != admin || got.Hash != "" || got.CreatedAt == 0 || got.Metadata.CreatedBy != admin {
			t.Errorf("%s is %+v", either, got)
		}
	}

	// It acts with the user's present rights, without the rights that every signed-in user has.
	s.user("alice", "ops")
	alices := s.key("alice")
	s.do("GET", checksPath, "", with(alices)...).is(http.StatusForbidden)
	s.grant("ops", "default", resource.Rule{Verbs: []string{"list"}, Resources: []string{"checks"}})
	s.do("GET", checksPath, "", with(alices)...).is(http.StatusOK)
	s.do("GET", usersPath+"/alice", "", with(alices)...).is(http.StatusForbidden)
	s.do("DELETE", usersPath+"/alice", "").is(http.StatusNoContent)
	s.do("GET", checksPath, "", with(alices)...).is(http.StatusUnauthorized)
	s.do("PUT", usersPath+"/alice/reinstate", "").is(http.StatusCreated)
	s.do("GET", checksPath, "", with(alices)...).is(http.StatusOK)
	s.do("GET", "/auth", "", with(alices)...).is(http.StatusUnauthorized)

	patch := func(name, body string) *answer {
		return s.do("PATCH", keysPath+"/"+name, body, "Content-Type", mergePatchType)
	}
	patch(alices, `{"metadata":{"labels":{"for":"ci"}}}`).is(http.StatusOK)
	patch(auth.APIKeyName(alices), `{"metadata":{"annotations":{"a":"b"}},"created_at":1,"hash":"x"}`).is(http.StatusOK)
	patch(alices, `{"username":"admin"}`).refuses(http.StatusBadRequest, codeInvalid, "an api key cannot be given to another user")
	patch(alices, `{"metadata":{"name":"x"}}`).is(http.StatusBadRequest)
	patch(alices, `{"metadata":{"name":"`+alices+`"}}`).is(http.StatusOK)
	got, _ := config.Get(s.store.Snapshot(), config.APIKeys, "", auth.APIKeyName(alices))
	if got.Metadata.Labels["for"] != "ci" || got.Metadata.Annotations["a"] != "b" || got.CreatedAt == 1 {
		t.Errorf("patched to %+v", got)
	}
	s.do("GET", checksPath, "", with(alices)...).is(http.StatusOK)
	for _, either := range []string{alices, auth.APIKeyName(alices)} {
		tag := s.do("GET", keysPath+"/"+either, "").header.Get("Etag")
		s.do("PATCH", keysPath+"/"+either, `{}`, "Content-Type", mergePatchType, "If-Match", tag).is(http.StatusOK)
		s.do("PATCH", keysPath+"/"+either, `{}`, "Content-Type", mergePatchType, "If-Match", `"no"`).is(http.StatusPreconditionFailed)
	}

	s.do("DELETE", keysPath+"/"+alices, "").is(http.StatusNoContent)
	s.do("GET", checksPath, "", with(alices)...).is(http.StatusUnauthorized)
	s.do("DELETE", keysPath+"/"+name, "").is(http.StatusNoContent)
	s.do("GET", checksPath, "", with(key)...).is(http.StatusUnauthorized)
	for _, method := range []string{"GET", "DELETE"} {
		for _, gone := range []string{key, name, "not-a-key"} {
			s.do(method, keysPath+"/"+gone, "").refuses(http.StatusNotFound, codeNotFound, "not found")
		}
	}
	s.do("POST", keysPath, `{"username":"admin","metadata":{"namespace":"default"}}`).
		refuses(http.StatusBadRequest, codeInvalid, "api key cannot have a namespace")
	s.do("POST", keysPath, `{`).is(http.StatusBadRequest)
}

// TestAPIKeysOfOthers: a user who may make API keys tries to become the administrator.
func TestAPIKeysOfOthers(t *testing.T) {
	s := newServer(t, nil)
	s.grant("keymakers", "", resource.Rule{Verbs: []string{"*"}, Resources: []string{"apikeys"}})
	s.grant("helpdesk", "", resource.Rule{Verbs: []string{"update"}, Resources: []string{"users"}, ResourceNames: []string{"mallory"}})
	mallory := []string{"Authorization", "Bearer " + s.user("mallory", "keymakers")}
	const key = "0d0b0f4e-6f0c-4a7a-9d47-3f0b1c2d4e5f"
	for _, user := range []string{admin, "agent", "nobody"} {
		s.do("POST", keysPath, `{"username":"`+user+`"}`, mallory...).refuses(http.StatusForbidden, codeDenied,
			"unauthorized to perform action")
		s.do("PUT", keysPath+"/"+key, `{"username":"`+user+`"}`, mallory...).is(http.StatusForbidden)
	}
	s.do("GET", usersPath, "", with(key)...).is(http.StatusUnauthorized)
	s.do("POST", keysPath, `{"username":"mallory"}`, mallory...).is(http.StatusCreated)
	s.do("PUT", keysPath+"/"+key, `{"username":"mallory"}`, mallory...).is(http.StatusCreated)

	// The right to change a user includes acting as that user.
	ann := []string{"Authorization", "Bearer " + s.user("ann", "keymakers", "helpdesk")}
	s.do("POST", keysPath, `{"username":"mallory"}`, ann...).is(http.StatusCreated)
	s.do("POST", keysPath, `{"username":"admin"}`, ann...).is(http.StatusForbidden)
}

// TestAPIKeysFromElsewhere stores keys of another cluster, so that their users need not change.
func TestAPIKeysFromElsewhere(t *testing.T) {
	s := newServer(t, nil)
	const key = "0d0b0f4e-6f0c-4a7a-9d47-3f0b1c2d4e5f"
	put := func(name, body string) *answer { return s.do("PUT", keysPath+"/"+name, body) }
	put(key, `{"metadata":{"name":"`+key+`","labels":{"for":"ci"}},"username":"admin","created_at":1600000000}`).is(http.StatusCreated)
	s.do("GET", checksPath, "", with(key)...).is(http.StatusOK)
	name := auth.APIKeyName(key)
	if got, _ := config.Get(s.store.Snapshot(), config.APIKeys, "", name); got.CreatedAt != 1600000000 ||
		got.Metadata.Labels["for"] != "ci" {
		t.Errorf("stored %+v", got)
	}

	// A dump of ours has the public names: restored next to the key, it changes nothing; elsewhere it must not become a
	// key.
	put(name, `{"metadata":{"name":"`+name+`"},"username":"admin"}`).is(http.StatusCreated)
	s.do("GET", checksPath, "", with(key)...).is(http.StatusOK)
	s.do("DELETE", keysPath+"/"+name, "").is(http.StatusNoContent)
	put(name, `{"username":"admin"}`).refuses(http.StatusBadRequest, codeInvalid, name+" is the public name of an api key and not the key")
	s.do("GET", checksPath, "", with(name)...).is(http.StatusUnauthorized)

	put("short", `{"username":"admin"}`).is(http.StatusBadRequest)
	put(key, `{"username":"nobody"}`).refuses(http.StatusBadRequest, codeInvalid, "user does not exist")
	put(key, `{"metadata":{"name":"x"},"username":"admin"}`).
		refuses(http.StatusBadRequest, codeInvalid, "the name of the resource (x) does not match the name of the URI ("+key+")")
	put(key, `{"username":"admin"}`).is(http.StatusCreated)
	put(key, `{"username":"agent"}`).refuses(http.StatusBadRequest, codeInvalid, "an api key cannot be given to another user")
}

func TestAPIKeysAreNotLogged(t *testing.T) {
	var log bytes.Buffer
	s := newServer(t, func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	key := s.key(admin)
	s.do("GET", keysPath+"/"+key, "", with(key)...).is(http.StatusOK)
	s.do("DELETE", keysPath+"/"+key, "", with(key)...).is(http.StatusNoContent)
	if text := log.String(); strings.Contains(text, key) || !strings.Contains(text, auth.APIKeyName(key)) {
		t.Errorf("the log has the key, or nothing of it:\n%s", text)
	}
}
