package api

import (
	"net/http"
	"net/http/cookiejar"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// browser is a client that keeps cookies.
func (s *server) browser() *http.Client {
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return &http.Client{Jar: jar, Transport: s.http.Transport}
}

// with makes requests with another client, for the time of f.
func (s *server) with(c *http.Client, f func()) {
	before := s.http
	s.http = c
	defer func() { s.http = before }()
	f()
}

func TestPageSession(t *testing.T) {
	s := newServer(t, nil)
	page := []string{pageHeader, "1", "Authorization", ""}
	s.with(s.browser(), func() {
		s.do("GET", sessionPath, "", page...).is(401)
		s.do("POST", sessionPath, `{"username":"admin","password":"wrong"}`, page...).is(401)
		signedIn := s.do("POST", sessionPath, `{"username":"admin","password":"`+password+`"}`, page...).is(200)
		var who pageSession
		signedIn.has(&who)
		if who.User != admin || who.Expires != 300 || len(who.Groups) == 0 {
			t.Errorf("signed in as %+v", who)
		}
		for _, cookie := range signedIn.header.Values("Set-Cookie") {
			if !strings.Contains(cookie, "; HttpOnly") || !strings.Contains(cookie, "; SameSite=Strict") {
				t.Errorf("cookie %s", cookie)
			}
		}
		if strings.Contains(signedIn.body, "ey") {
			t.Errorf("the answer has a token: %s", signedIn.body)
		}
		s.do("GET", sessionPath, "", page...).is(200).has(&who)
		s.do("GET", eventsPath, "", page...).is(200)

		// Another site cannot set the header, and its requests have no user.
		s.do("GET", eventsPath, "", "Authorization", "").is(401)
		s.do("DELETE", eventsPath+"/a/b", "", "Authorization", "").is(401)
		s.do("PUT", sessionPath, "", "Authorization", "").is(401)
		s.do("POST", sessionPath, `{"username":"admin","password":"`+password+`"}`, "Authorization", "").is(400)
		s.do("DELETE", sessionPath, "", "Authorization", "").is(400)

		// The access token ends, and the sign-in is renewed.
		s.now.Add(6 * 60)
		s.do("GET", eventsPath, "", page...).is(401)
		s.do("GET", sessionPath, "", page...).is(401)
		s.do("PUT", sessionPath, "", page...).is(200).has(&who)
		if who.User != admin || who.Expires != 300 {
			t.Errorf("renewed: %+v", who)
		}
		s.do("GET", eventsPath, "", page...).is(200)
		// Headers with a token go before cookies.
		s.do("GET", eventsPath, "", pageHeader, "1", "Authorization", "Bearer x").is(401)

		s.do("DELETE", sessionPath, "", page...).is(204)
		s.do("GET", eventsPath, "", page...).is(401)
		s.do("PUT", sessionPath, "", page...).is(401)
	})
}

// TestPageSessionOver: a sign-in that was not renewed for long is over, and its cookies are removed.
func TestPageSessionOver(t *testing.T) {
	s := newServer(t, nil)
	page := []string{pageHeader, "1", "Authorization", ""}
	s.with(s.browser(), func() {
		s.do("POST", sessionPath, `{"username":"admin","password":"`+password+`"}`, page...).is(200)
		s.now.Add(13 * 60 * 60)
		over := s.do("PUT", sessionPath, "", page...).is(401)
		if n := strings.Count(strings.Join(over.header.Values("Set-Cookie"), "\n"), "Max-Age=0"); n != 2 {
			t.Errorf("%d cookies are removed, want 2", n)
		}
	})
}

// TestPageTabs: tabs that renew at the same moment, with the same cookies, all stay signed in.
func TestPageTabs(t *testing.T) {
	s := newServer(t, nil)
	before := s.pageCookies()
	var group sync.WaitGroup
	answers := make([]*http.Response, 8)
	for i := range answers {
		group.Go(func() {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.url+sessionPath, nil)
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set(pageHeader, "1")
			r.Header.Set("Cookie", before)
			if answers[i], err = s.http.Do(r); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
	var after []string
	for _, a := range answers {
		a.Body.Close()
		if a.StatusCode != http.StatusOK {
			t.Fatalf("a renewal: %d", a.StatusCode)
		}
		after = append(after, strings.Join(a.Header.Values("Set-Cookie"), "; "))
	}
	if len(slices.Compact(after)) != 1 {
		t.Error("the tabs got different tokens")
	}
	s.do("GET", sessionPath, "", pageHeader, "1", "Authorization", "", "Cookie", after[0]).is(200)

	// Much later the first refresh token is used again, as a thief would use a copy: that ends the sign-in.
	s.now.Add(int64(2 * renewalFor / time.Second))
	if s.do("PUT", sessionPath, "", pageHeader, "1", "Authorization", "", "Cookie", before).status < 400 {
		t.Error("a refresh token counted twice")
	}
}

// TestPageKey: a screen with an API key needs no sign-in, has the rights of the key's user, and ends with the key.
func TestPageKey(t *testing.T) {
	s := newServer(t, nil)
	s.grant("watch", "default", resource.Rule{Verbs: []string{"list", "delete"}, Resources: []string{"events"}})
	s.user("wall", "watch")
	made := s.do("POST", "/api/core/v2/apikeys", `{"username":"wall"}`).is(201)
	key := made.header.Get("Location")[strings.LastIndex(made.header.Get("Location"), "/")+1:]
	page := []string{pageHeader, "1", "Authorization", ""}
	s.with(s.browser(), func() {
		s.do("POST", sessionPath, `{"key":"no key"}`, page...).is(401)
		begun := s.do("POST", sessionPath, `{"key":"`+key+`"}`, page...).is(200)
		if cookie := begun.header.Get("Set-Cookie"); !strings.Contains(cookie, "; HttpOnly") || !strings.Contains(cookie, "; SameSite=Strict") {
			t.Errorf("cookie %s", cookie)
		}
		for _, method := range []string{"GET", "PUT"} {
			var who pageSession
			s.do(method, sessionPath, "", page...).is(200).has(&who)
			if who.User != "wall" || who.Expires != keyShown {
				t.Errorf("%s: %+v", method, who)
			}
		}
		s.do("GET", viewPath, "", page...).is(200)
		s.do("GET", viewPath, "", "Authorization", "").is(401)                                   // another site
		s.do("DELETE", eventsPath+"/a/b", "", page...).refuses(403, codeDenied, errWall.message) // although the user may
		s.do("DELETE", sessionPath, "", page...).is(204)
		s.do("GET", viewPath, "", page...).is(401)

		s.do("POST", sessionPath, `{"key":"`+key+`"}`, page...).is(200)
		s.do("DELETE", "/api/core/v2/apikeys/"+key, "").is(204)
		s.do("GET", viewPath, "", page...).is(401)
		s.do("PUT", sessionPath, "", page...).is(401)
	})
}
