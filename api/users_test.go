package api

import (
	"net/http"
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const usersPath = "/api/core/v2/users"

// signs expects a status for a sign-in.
func (s *server) signs(user, password string, status int) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+"/auth", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.SetBasicAuth(user, password)
	resp, err := s.http.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != status {
		s.t.Errorf("%s with %q: %d, want %d", user, password, resp.StatusCode, status)
	}
}

func hashOf(t *testing.T, password string) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return string(hash)
}

func TestUsers(t *testing.T) {
	s := newServer(t, nil)
	post := func(body string) *answer { return s.do("POST", usersPath, body) }
	post(`{"username":"alice","password":"correct horse","groups":["ops"]}`).is(http.StatusCreated)
	s.signs("alice", "correct horse", 200)
	post(`{"username":"alice","password":"another one"}`).refuses(http.StatusConflict, codeExists, "resource already exists")
	s.signs("alice", "correct horse", 200)
	for body, want := range map[string]string{
		`{"username":"","password":"correct horse"}`:    "username must not be empty",
		`{"username":"A b","password":"correct horse"}`: "username cannot contain spaces or special characters",
		`{"username":"bob","password":"seven77"}`:       "password length must be at least 8 characters",
		`{"username":"bob"}`:                            "a password or its hash is required",
		`{"username":"bob","password":"correct horse","password_hash":"` + hashOf(t, "another one") +
			`"}`: "hashed password does not the match the cleartext password, only one of those should be provided",
	} {
		post(body).refuses(http.StatusBadRequest, codeInvalid, want)
	}
	post(`{"username":"bob","password":"correct horse","password_hash":"` + hashOf(t, "correct horse") +
		`","disabled":true}`).is(http.StatusCreated)
	s.signs("bob", "correct horse", 401)
	s.do("PUT", usersPath+"/bob/reinstate", "").is(http.StatusCreated)
	s.signs("bob", "correct horse", 200)

	if got := s.do("GET", usersPath, "").names(); got != "admin agent alice bob" {
		t.Errorf("users %s", got)
	}
	if got := s.do("GET", usersPath+"?limit=2", "").names(); got != "admin agent" {
		t.Errorf("first page %s", got)
	}
	for _, path := range []string{usersPath, usersPath + "/alice"} {
		if body := s.do("GET", path, "").is(http.StatusOK).body; strings.Contains(body, "assword") || strings.Contains(body, "$2") {
			t.Errorf("%s shows passwords: %s", path, body)
		}
	}

	put := func(name, body string) *answer { return s.do("PUT", usersPath+"/"+name, body) }
	put("alice", `{"username":"carol","password":"correct horse"}`).
		refuses(http.StatusBadRequest, codeInvalid, "the username (carol) does not match the username on the request (alice)")
	put("alice", `{"username":"alice"}`).refuses(http.StatusBadRequest, codeInvalid, "a password or its hash is required")
	put("alice", `{"username":"alice","password_hash":"`+hashOf(t, "a new one")+`"}`).is(http.StatusCreated)
	s.signs("alice", "correct horse", 401)
	s.signs("alice", "a new one", 200)
	if body := s.do("GET", usersPath+"/alice", "").body; body != `{"username":"alice","disabled":false}` {
		t.Errorf("replaced by %s", body)
	}
	put("dave", `{"username":"dave","password":"correct horse"}`).is(http.StatusCreated)

	groups := func(want string) {
		t.Helper()
		var u resource.User
		s.do("GET", usersPath+"/dave", "").is(http.StatusOK).has(&u)
		if got := strings.Join(u.Groups, " "); got != want {
			t.Errorf("groups %q, want %q", got, want)
		}
	}
	for _, g := range []string{"b", "a", "b", "c"} {
		s.do("PUT", usersPath+"/dave/groups/"+g, "").is(http.StatusCreated)
	}
	groups("b a c")
	s.do("DELETE", usersPath+"/dave/groups/a", "").is(http.StatusNoContent)
	s.do("DELETE", usersPath+"/dave/groups/missing", "").is(http.StatusNoContent)
	groups("b c")
	s.do("DELETE", usersPath+"/dave/groups", "").is(http.StatusNoContent)
	groups("")

	for range 2 {
		s.do("DELETE", usersPath+"/dave", "").is(http.StatusNoContent)
	}
	s.signs("dave", "correct horse", 401)
	if body := s.do("GET", usersPath+"/dave", "").body; body != `{"username":"dave","disabled":true}` {
		t.Errorf("disabled: %s", body)
	}
	post(`{"username":"dave","password":"correct horse"}`).is(http.StatusConflict)

	for _, tc := range []struct{ method, path string }{
		{"GET", ""}, {"DELETE", ""}, {"PUT", "/reinstate"}, {"PUT", "/groups/a"}, {"DELETE", "/groups/a"}, {"DELETE", "/groups"},
	} {
		s.do(tc.method, usersPath+"/nobody"+tc.path, "").refuses(http.StatusNotFound, codeNotFound, "not found")
	}
	s.do("PATCH", usersPath+"/dave", `{}`, "Content-Type", mergePatchType).is(http.StatusMethodNotAllowed)
}

func TestPasswords(t *testing.T) {
	s := newServer(t, nil)
	token := s.user("alice")
	own := []string{"Authorization", "Bearer " + token}
	change := func(who []string, path, body string) *answer {
		return s.do("PUT", usersPath+"/"+path, strings.ReplaceAll(body, "HASH", hashOf(t, "second one")), who...)
	}
	wrong := "resource is invalid: wrong password for user alice"
	change(own, "alice/password", `{"password":"wrong","password_hash":"HASH"}`).refuses(http.StatusBadRequest, codeInvalid, wrong)
	change(own, "alice/change_password", `{"password":"wrong","password_new":"third one"}`).refuses(http.StatusBadRequest, codeInvalid, wrong)
	change(own, "alice/change_password", `{"password":"`+password+`","password_new":"short"}`).
		refuses(http.StatusBadRequest, codeInvalid, "password length must be at least 8 characters")
	change(own, "alice/password", `{"password":"`+password+`"}`).
		refuses(http.StatusBadRequest, codeInvalid, "a password or its hash is required")
	s.signs("alice", password, 200)
	change(own, "alice/password", `{"password":"`+password+`","password_hash":"HASH"}`).is(http.StatusCreated)
	s.signs("alice", "second one", 200)
	change(own, "alice/change_password", `{"password":"second one","password_new":"third one"}`).is(http.StatusCreated)
	s.signs("alice", "third one", 200)
	s.signs("alice", "second one", 401)

	// The paths for the own user are not for other users, and the own user's rights end there.
	change(own, "admin/password", `{"password":"`+password+`","password_hash":"HASH"}`).is(http.StatusForbidden)
	change(own, "alice/reset_password", `{"password_hash":"HASH"}`).is(http.StatusForbidden)
	s.do("PUT", usersPath+"/alice", `{"username":"alice","password":"correct horse","groups":["cluster-admins"]}`,
		own...).is(http.StatusForbidden)
	s.do("PUT", usersPath+"/alice/groups/cluster-admins", "", own...).is(http.StatusForbidden)
	s.do("DELETE", usersPath+"/alice", "", own...).is(http.StatusForbidden)
	s.do("GET", usersPath+"/alice", "", own...).is(http.StatusOK)
	s.do("GET", usersPath, "", own...).is(http.StatusForbidden)

	// An administrator needs no present password, and ends the user's sign-ins.
	id, err := s.users.Password(t.Context(), "alice", "third one")
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := s.users.Issue(t.Context(), id, s.url)
	if err != nil {
		t.Fatal(err)
	}
	s.now.Add(2)
	change(nil, "alice/reset_password", `{"password_hash":"HASH"}`).is(http.StatusCreated)
	s.signs("alice", "second one", 200)
	s.do("POST", "/auth/token", `{"refresh_token":"`+tokens.Refresh+`"}`, "Authorization",
		"Bearer "+tokens.Access).is(http.StatusUnauthorized)
	change(nil, "nobody/reset_password", `{"password_hash":"HASH"}`).is(http.StatusNotFound)
	change(nil, "nobody/password", `{"password":"x","password_hash":"HASH"}`).is(http.StatusNotFound)
	change(nil, "alice/reset_password", `{}`).
		refuses(http.StatusBadRequest, codeInvalid, "a password or its hash is required")
	change(nil, "alice/reset_password", `{`).is(http.StatusBadRequest)
}

// TestNoPassword makes a user without a password, as an answer shows one, and then sets the password.
func TestNoPassword(t *testing.T) {
	s := newServer(t, nil)
	path, shown := usersPath+"/alice", `{"username":"alice","disabled":false,"no_password":true}`
	s.do("PUT", path, shown).is(http.StatusCreated)
	if got := s.do("GET", path, "").is(http.StatusOK).body; got != shown {
		t.Errorf("got %s, want %s", got, shown)
	}
	if u, _ := config.Get(s.store.Snapshot(), config.Users, "", "alice"); u.NoPassword || u.PasswordHash != resource.NobodysHash {
		t.Errorf("stored %+v", u)
	}
	s.signs("alice", password, 401)
	s.do("PUT", path+"/reset_password", `{"password_hash":"`+hashOf(t, password)+`"}`).is(http.StatusCreated)
	if got := s.do("GET", path, "").is(http.StatusOK).body; strings.Contains(got, "no_password") {
		t.Errorf("with a password it is %s", got)
	}
	s.signs("alice", password, 200)
	s.do("PUT", path, strings.Replace(shown, "{", `{"password":"another one",`, 1)).is(http.StatusCreated)
	s.signs("alice", "another one", 200)
}

// TestSameUserAgain applies a definition repeatedly: it must not sign the user out.
func TestSameUserAgain(t *testing.T) {
	s := newServer(t, nil)
	body := `{"username":"alice","password_hash":"` + hashOf(t, password) + `"}`
	s.do("PUT", usersPath+"/alice", body).is(http.StatusCreated)
	id, err := s.users.Password(t.Context(), "alice", password)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := s.users.Issue(t.Context(), id, s.url)
	if err != nil {
		t.Fatal(err)
	}
	s.now.Add(2)
	s.do("PUT", usersPath+"/alice", body).is(http.StatusCreated)
	s.do("PUT", usersPath+"/alice", strings.Replace(body, "{", `{"signed_out":99999999999,`, 1)).is(http.StatusCreated)
	s.do("POST", "/auth/token", `{"refresh_token":"`+tokens.Refresh+`"}`, "Authorization", "Bearer "+tokens.Access).is(http.StatusOK)
	if u, _ := config.Get(s.store.Snapshot(), config.Users, "", "alice"); u.SignedOut != 0 || u.Password != "" {
		t.Errorf("stored %+v", u)
	}
}

func TestGuessingIsSlowedDown(t *testing.T) {
	s := newServer(t, nil)
	for i := range 6 {
		s.signs("admin", "guess"+string(rune('a'+i)), 401)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/auth", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("admin", "another guess")
	resp, err := s.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
		t.Errorf("status %d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	s.signs("admin", password, 200) // known since newServer
	token := s.user("alice")
	for i := range 6 {
		s.do("PUT", usersPath+"/alice/change_password", `{"password":"guess`+string(rune('a'+i))+`","password_new":"third one"}`,
			"Authorization", "Bearer "+token).is(http.StatusBadRequest)
	}
	a := s.do("PUT", usersPath+"/alice/change_password", `{"password":"one more","password_new":"third one"}`,
		"Authorization", "Bearer "+token)
	if a.is(http.StatusTooManyRequests); a.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}
