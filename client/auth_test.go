package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// authServer is a transport that issues tokens which last five minutes, accepts each refresh token once, and records
// its requests. It runs inside a synctest bubble.
type authServer struct {
	mu      sync.Mutex
	calls   []string
	issued  int
	expires map[string]time.Time // by access token
	refresh string               // the only valid one
	broken  bool                 // refuses every refresh
	reply   string               // instead of tokens
	skew    time.Duration        // how far its clock is ahead
}

func (s *authServer) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(time.Millisecond) // the bubble's time: other requests come during this one
	s.mu.Lock()
	defer s.mu.Unlock()
	authorization := req.Header.Get("Authorization")
	body, _ := io.ReadAll(req.Body)
	s.calls = append(s.calls, strings.TrimSpace(req.Method+" "+req.URL.Path+" "+authorization+" "+string(body)))
	answer := func(status int, body string) (*http.Response, error) {
		return &http.Response{
			StatusCode: status, Status: http.StatusText(status), Header: http.Header{}, Request: req,
			Body: io.NopCloser(strings.NewReader(body)),
		}, nil
	}
	switch req.URL.Path {
	case "/auth":
		if user, pass, ok := req.BasicAuth(); !ok || user != "admin" || pass != "secret" {
			return answer(401, "Unauthorized\n")
		}
		return answer(200, s.issue())
	case "/auth/token":
		var in struct {
			Token string `json:"refresh_token"`
		}
		json.Unmarshal(body, &in)
		if s.broken || in.Token != s.refresh {
			return answer(401, "Request unauthorized\n")
		}
		return answer(200, s.issue())
	case "/auth/logout":
		return answer(200, "")
	}
	if authorization == "Key k" {
		return answer(200, "[]")
	}
	if exp, ok := s.expires[strings.TrimPrefix(authorization, "Bearer ")]; !ok || !time.Now().Add(s.skew).Before(exp) {
		return answer(401, `{"Code":5,"Message":"invalid credentials"}`)
	}
	return answer(200, "[]")
}

func (s *authServer) issue() string {
	if s.reply != "" {
		return s.reply
	}
	s.issued++
	exp := time.Now().Add(5 * time.Minute)
	t := Tokens{AccessToken: fmt.Sprint("a", s.issued), RefreshToken: fmt.Sprint("r", s.issued), ExpiresAt: exp.Unix()}
	s.expires = map[string]time.Time{t.AccessToken: exp}
	s.refresh = t.RefreshToken
	out, _ := json.Marshal(t)
	return string(out)
}

func (s *authServer) client(t *testing.T, opts Options) *Client {
	t.Helper()
	opts.URL = "http://lapwing.test"
	opts.HTTPClient = &http.Client{Transport: s}
	c, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// took checks the calls so far and clears them.
func (s *authServer) took(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := strings.Join(s.calls, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("calls:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
	s.calls = nil
}

const (
	listChecks = "GET /api/core/v2/namespaces/default/checks"
	basic      = "Basic YWRtaW46c2VjcmV0"
)

func list(c *Client) error {
	_, err := List(context.Background(), c, Checks, "default", ListOptions{})
	return err
}

func TestSignInAndRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var saved []Tokens
		s := &authServer{}
		c := s.client(t, Options{Username: "admin", Password: "secret", OnTokens: func(t Tokens) { saved = append(saved, t) }})
		must(t, list(c))
		must(t, list(c))
		s.took(t, "GET /auth "+basic, listChecks+" Bearer a1", listChecks+" Bearer a1")

		time.Sleep(5*time.Minute - renewAhead - time.Second)
		must(t, list(c))
		s.took(t, listChecks+" Bearer a1")

		time.Sleep(time.Second) // the token is still good, but about to expire
		must(t, list(c))
		s.took(t, `POST /auth/token Bearer a1 {"refresh_token":"r1"}`, listChecks+" Bearer a2")

		if len(saved) != 2 || saved[0].RefreshToken != "r1" || saved[1] != c.Tokens() || saved[1].RefreshToken != "r2" {
			t.Errorf("saved %v, has %v", saved, c.Tokens())
		}
	})
}

func TestConcurrentRequestsRenewOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &authServer{}
		c := s.client(t, Options{Username: "admin", Password: "secret"})
		must(t, list(c))
		time.Sleep(time.Hour)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if err := list(c); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if s.issued != 2 {
			t.Errorf("%d pairs of tokens were issued, want 2", s.issued)
		}
	})
}

func TestRenewAfterRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &authServer{}
		c := s.client(t, Options{Username: "admin", Password: "secret"})
		must(t, list(c))
		s.took(t, "GET /auth "+basic, listChecks+" Bearer a1")

		// The server's clock is ahead: the token has expired there, and not here. The body must be sent again.
		s.skew = time.Hour
		err := Put(t.Context(), c, Namespaces, "", "dev", &resource.Namespace{Name: "dev"})
		if !errors.Is(err, ErrUnauthenticated) || !strings.Contains(err.Error(), `put namespaces "dev": invalid credentials`) {
			t.Errorf("error %v", err)
		}
		s.took(t,
			`PUT /api/core/v2/namespaces/dev Bearer a1 {"name":"dev"}`,
			`POST /auth/token Bearer a1 {"refresh_token":"r1"}`,
			`PUT /api/core/v2/namespaces/dev Bearer a2 {"name":"dev"}`)

		// The server forgot the sign-in: the password is used again.
		s.skew, s.expires, s.broken = 0, nil, true
		must(t, list(c))
		s.took(t, listChecks+" Bearer a2", `POST /auth/token Bearer a2 {"refresh_token":"r2"}`, "GET /auth "+basic, listChecks+" Bearer a3")
	})
}

func TestRenewWithoutPassword(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &authServer{broken: true}
		old := Tokens{AccessToken: "old", RefreshToken: "r0", ExpiresAt: time.Now().Unix()}
		c := s.client(t, Options{Tokens: old})
		err := list(c)
		want := `list checks in namespace "default": renew tokens: Request unauthorized`
		if err == nil || err.Error() != want || !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("error %v, want %s", err, want)
		}
		s.took(t, `POST /auth/token Bearer old {"refresh_token":"r0"}`)

		s.broken, s.refresh, s.reply = false, "r0", `{"access_token":"x","expires_at":5}`
		if err := list(c); err == nil || !strings.Contains(err.Error(), "the answer holds no tokens") {
			t.Errorf("error %v", err)
		}
		if c.Tokens() != old {
			t.Errorf("tokens are %v", c.Tokens())
		}
	})
}

func TestRenewUsesTokensOfAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &authServer{}
		other := s.client(t, Options{Username: "admin", Password: "secret"})
		must(t, list(other))
		var held, done int
		opts := Options{
			Tokens: Tokens{AccessToken: "old", RefreshToken: "r0", ExpiresAt: time.Now().Unix()},
			BeforeRefresh: func() (Tokens, func()) {
				held++
				return other.Tokens(), func() { done++ }
			},
			OnTokens: func(Tokens) {
				if held != done+1 {
					t.Error("tokens are saved outside of the turn")
				}
			},
		}
		s.took(t, "GET /auth "+basic, listChecks+" Bearer a1")
		must(t, list(s.client(t, opts)))
		s.took(t, listChecks+" Bearer a1")

		// The tokens that the other process saved have expired too: renew those, not ours.
		time.Sleep(time.Hour)
		must(t, list(s.client(t, opts)))
		s.took(t, `POST /auth/token Bearer a1 {"refresh_token":"r1"}`, listChecks+" Bearer a2")
		if held != 2 || done != 2 {
			t.Errorf("%d turns taken, %d given back", held, done)
		}
	})
}

func TestAPIKeyWins(t *testing.T) {
	s := &authServer{}
	c := s.client(t, Options{APIKey: "k", Tokens: Tokens{AccessToken: "a"}, Username: "admin"})
	must(t, list(c))
	s.took(t, listChecks+" Key k")
}

func TestNoCredentials(t *testing.T) {
	s := &authServer{}
	c := s.client(t, Options{})
	if err := list(c); !errors.Is(err, ErrNoCredentials) {
		t.Errorf("error %v", err)
	}
	if err := c.Logout(t.Context()); !errors.Is(err, ErrNoCredentials) {
		t.Errorf("error %v", err)
	}
	s.took(t)
}

func TestLogout(t *testing.T) {
	s := &authServer{}
	c := s.client(t, Options{Username: "admin", Password: "secret"})
	if _, err := c.Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	must(t, c.Logout(t.Context()))
	s.took(t, "GET /auth "+basic, `POST /auth/logout Bearer a1 {"refresh_token":"r1"}`)
	if c.Tokens() != (Tokens{}) {
		t.Errorf("tokens are %v", c.Tokens())
	}
}

func TestWrongPassword(t *testing.T) {
	s := &authServer{}
	c := s.client(t, Options{Username: "admin", Password: "guess"})
	err := list(c)
	var refused *Error
	if !errors.As(err, &refused) || !reflect.DeepEqual(*refused, Error{Status: 401, Message: "Unauthorized", Method: "GET", Path: "/auth"}) {
		t.Errorf("error %v", err)
	}
	s.took(t, "GET /auth Basic YWRtaW46Z3Vlc3M=")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestCredentialsAreOnlyTested(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if user, pass, _ := r.BasicAuth(); r.URL.Path != "/auth/test" || user != "alice" || pass != "right" {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
		}
	})
	must(t, c.TestCredentials(t.Context(), "alice", "right"))
	if err := c.TestCredentials(t.Context(), "alice", "wrong"); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("error %v", err)
	}
	if got := c.Tokens(); got != (Tokens{}) {
		t.Errorf("a session was begun: %v", got)
	}
}
