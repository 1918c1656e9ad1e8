package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// dialLive connects to the live path with the headers of a browser.
func (s *server) dialLive(header http.Header) (*wire.Conn, error) {
	conn, _, err := wire.Dial(s.t.Context(), strings.Replace(s.url, "http", "ws", 1)+livePath, header, wire.DialOptions{})
	if err == nil {
		_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
		s.t.Cleanup(func() { _ = conn.Close(wire.CloseGoingAway, "bye") })
	}
	return conn, err
}

// pageCookies signs the page in and returns its cookies.
func (s *server) pageCookies() string {
	a := s.do("POST", sessionPath, `{"username":"admin","password":"`+password+`"}`, pageHeader, "1", "Authorization", "").is(200)
	var all []string
	for _, cookie := range a.header.Values("Set-Cookie") {
		name, _, _ := strings.Cut(cookie, ";")
		all = append(all, name)
	}
	return strings.Join(all, "; ")
}

// nextLive reads messages until one that is no beat.
func nextLive(t *testing.T, conn *wire.Conn) string {
	t.Helper()
	for {
		message, err := conn.Read()
		if err != nil {
			t.Fatal(err)
		}
		if string(message) != "{}" {
			return string(message)
		}
	}
}

func TestLive(t *testing.T) {
	s := newServer(t, nil)
	s.event("default", "a", "x", 2)
	page := http.Header{"Cookie": {s.pageCookies()}, "Origin": {s.url}}
	conn, err := s.dialLive(page)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(text string) {
		t.Helper()
		if err := conn.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	ask(`{"open":7,"path":"` + viewPath + `/stream"}`)
	if got := nextLive(t, conn); !strings.HasPrefix(got, "7:event: window\ndata: {\"counts\":{\"critical\":1,") {
		t.Fatalf("first message: %s", got)
	}
	s.event("default", "a", "x", 0)
	if got := nextLive(t, conn); !strings.Contains(got, `"critical":0`) {
		t.Fatalf("after the change: %s", got)
	}
	ask(`{"close":7}`)
	if got := nextLive(t, conn); got != `{"id":7,"status":200}` {
		t.Fatalf("after the close: %s", got)
	}
	for path, want := range map[string]string{
		viewPath + "/stream?sort=name":                   `"status":400,"message":"sort: `,
		viewPath:                                         `"status":400,"message":"\"` + viewPath + `\" is no path of a stream"`,
		"//other.example" + viewPath + "/stream":         `is no path of a stream`,
		"/api/core/v2/namespaces/default/events/stream":  `is no path of a stream`,
		"/api/lapwing/v1/namespaces/../v2/stream":        `"status":404`,
		"/api/lapwing/v1/namespaces/default/nope/stream": `"status":404`,
	} {
		ask(fmt.Sprintf(`{"open":8,"path":%q}`, path))
		if got := nextLive(t, conn); !strings.Contains(got, want) || !strings.HasPrefix(got, `{"id":8,`) {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	ask("no JSON")
	if _, err := conn.Read(); closeCode(err) != wire.CloseProtocol {
		t.Errorf("after a message that is no JSON: %v", err)
	}
}

func closeCode(err error) uint16 {
	closed, _ := errors.AsType[*wire.CloseError](err)
	if closed == nil {
		return 0
	}
	return closed.Code
}

// TestLiveCredentials: cookies count only for the backend's own page, each stream has its own rights, and expired credentials
// open no more streams.
func TestLiveCredentials(t *testing.T) {
	s := newServer(t, nil)
	cookies := s.pageCookies()
	for name, header := range map[string]http.Header{
		"no credentials":                {"Origin": {s.url}},
		"another site":                  {"Cookie": {cookies}, "Origin": {"http://other.example"}},
		"no origin":                     {"Cookie": {cookies}},
		"another site of the browser's": {"Cookie": {cookies}, "Origin": {s.url}, "Sec-Fetch-Site": {"same-site"}},
	} {
		_, err := s.dialLive(header)
		if refused, ok := errors.AsType[*wire.HandshakeError](err); !ok || refused.Status != 401 {
			t.Errorf("%s: %v, want 401", name, err)
		}
	}
	s.do("GET", livePath, "").is(400)

	behindProxy, err := s.dialLive(http.Header{"Cookie": {cookies}, "Origin": {"https://monitoring.example"}, "Sec-Fetch-Site": {"same-origin"}})
	if err != nil {
		t.Fatal(err)
	}
	s.now.Add(6 * 60) // the access token has expired
	if err := behindProxy.Write([]byte(`{"open":1,"path":"` + viewPath + `/stream"}`)); err != nil {
		t.Fatal(err)
	}
	if got := nextLive(t, behindProxy); !strings.HasPrefix(got, `{"id":1,"status":401,`) {
		t.Errorf("with expired credentials: %s", got)
	}

	few, err := s.dialLive(http.Header{"Authorization": {"Bearer " + s.user("nora")}})
	if err != nil {
		t.Fatal(err)
	}
	if err := few.Write([]byte(`{"open":1,"path":"` + viewPath + `/stream"}`)); err != nil {
		t.Fatal(err)
	}
	if got := nextLive(t, few); !strings.HasPrefix(got, `{"id":1,"status":403,`) {
		t.Errorf("without rights: %s", got)
	}
}

func TestLiveBounds(t *testing.T) {
	s := newServer(t, nil)
	conn, err := s.dialLive(http.Header{"Authorization": {"Bearer " + s.user("ann", "cluster-admins")}})
	if err != nil {
		t.Fatal(err)
	}
	for id := 1; id <= maxLiveStreams+1; id++ {
		if err := conn.Write(fmt.Appendf(nil, `{"open":%d,"path":"%s/stream"}`, id, viewPath)); err != nil {
			t.Fatal(err)
		}
	}
	var refused liveEnd
	for refused.ID == 0 {
		if message := nextLive(t, conn); strings.HasPrefix(message, "{") {
			if err := json.Unmarshal([]byte(message), &refused); err != nil {
				t.Fatal(err)
			}
		}
	}
	if refused.ID != maxLiveStreams+1 || refused.Status != 503 {
		t.Errorf("refused: %+v", refused)
	}
	if err := conn.Write([]byte(`{"open":1,"path":"` + viewPath + `/stream"}`)); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = conn.Read()
	}
	if closeCode(err) != wire.CloseProtocol {
		t.Errorf("the number of an open stream a second time: %v", err)
	}
}

// TestLiveSignIn: a stream of the page ends with its sign-in, and some time after its access token.
func TestLiveSignIn(t *testing.T) {
	for name, end := range map[string]func(s *server, cookies string){
		"signed out": func(s *server, cookies string) {
			s.do("DELETE", sessionPath, "", pageHeader, "1", "Authorization", "", "Cookie", cookies).is(204)
		},
		"the access token is old": func(s *server, _ string) { s.now.Add(7 * 60) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nil)
			s.heartbeat = 20 * time.Millisecond
			cookies := s.pageCookies()
			conn, err := s.dialLive(http.Header{"Cookie": {cookies}, "Origin": {s.url}})
			if err != nil {
				t.Fatal(err)
			}
			for i, path := range []string{viewPath + "/stream", "/api/lapwing/v1/namespaces/-/config/stream"} {
				if err := conn.Write(fmt.Appendf(nil, `{"open":%d,"path":"%s"}`, i+1, path)); err != nil {
					t.Fatal(err)
				}
				nextLive(t, conn)
			}
			end(s, cookies)
			over := map[uint64]bool{}
			for len(over) < 2 {
				var e liveEnd
				if message := nextLive(t, conn); strings.HasPrefix(message, "{") {
					if err := json.Unmarshal([]byte(message), &e); err != nil {
						t.Fatal(err)
					}
					over[e.ID] = true
				}
			}
		})
	}
}

// TestUserStreams: one user's streams are bounded, over all connections; others are not kept from theirs.
func TestUserStreams(t *testing.T) {
	s := newServer(t, nil)
	r := &request{act: &act{user: &auth.Identity{User: "ann"}}}
	var ends []func()
	for range maxUserStreams {
		end, err := s.beginStream(r)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	defer func() {
		for _, end := range ends {
			end()
		}
	}()
	var refused *apiError
	if _, err := s.beginStream(r); !errors.As(err, &refused) || refused.status != http.StatusTooManyRequests {
		t.Errorf("a stream too many: %v", err)
	}
	other, err := s.beginStream(&request{act: &act{user: &auth.Identity{User: "eve"}}})
	if err != nil {
		t.Fatal(err)
	}
	other()
	ends[0]()
	ends = ends[1:]
	end, err := s.beginStream(r)
	if err != nil {
		t.Fatal(err)
	}
	end()
}

// TestLiveFailure: a stream that fails after a part of its answer ends, and nothing else does.
func TestLiveFailure(t *testing.T) {
	s := newServer(t, nil)
	failing := func(w *response, _ *request) error {
		if _, err := w.Write([]byte("a part")); err != nil {
			return err
		}
		return errors.New("the rest cannot be read")
	}
	s.API.route("/api/lapwing/v1/namespaces/{namespace}/failing/stream", streamAccess, methods{http.MethodGet: failing})
	conn, err := s.dialLive(http.Header{"Cookie": {s.pageCookies()}, "Origin": {s.url}})
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range []string{"/api/lapwing/v1/namespaces/default/failing/stream", viewPath + "/stream"} {
		if err := conn.Write(fmt.Appendf(nil, `{"open":%d,"path":"%s"}`, i+1, path)); err != nil {
			t.Fatal(err)
		}
	}
	ended, went := false, false
	for !ended || !went {
		message := nextLive(t, conn)
		ended = ended || strings.HasPrefix(message, `{"id":1,`)
		went = went || strings.HasPrefix(message, "2:")
	}
}

// TestLiveStop: the backend's stop ends connections with all their streams.
func TestLiveStop(t *testing.T) {
	s := newServer(t, nil)
	conn, err := s.dialLive(http.Header{"Authorization": {"Bearer " + s.user("ann", "cluster-admins")}})
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Write([]byte(`{"open":1,"path":"` + viewPath + `/stream"}`)); err != nil {
		t.Fatal(err)
	}
	nextLive(t, conn)
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = conn.Read()
	}
	if closeCode(err) != wire.CloseGoingAway {
		t.Errorf("after the stop: %v", err)
	}
}
