package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

func serve(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(handler)
	c, err := New(Options{URL: srv.URL, APIKey: "k"})
	must(t, err)
	t.Cleanup(func() { c.Close(); srv.Close() })
	return c
}

func TestNewRefusesURLs(t *testing.T) {
	for _, u := range []string{"", "lapwing:8080", "ftp://lapwing", "http://", "http://a:b@lapwing", "http://lapwing?x=1", "http://a b"} {
		if _, err := New(Options{URL: u}); err == nil {
			t.Errorf("%q is taken", u)
		} else if strings.Contains(err.Error(), "a:b@") {
			t.Errorf("error shows a password: %v", err)
		}
	}
}

func TestPath(t *testing.T) {
	f := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	f(Namespaces.Path("ignored", "dev"), "/api/core/v2/namespaces/dev")
	f(Tessen.Path("", "ignored"), "/api/core/v2/tessen")
	f(Silences.Path("dev", "*:disk"), "/api/core/v2/namespaces/dev/silenced/%2A:disk")
	f(EntityConfigs.Path("dev", "srv1"), "/api/core/v3/namespaces/dev/entity-configs/srv1")
	f(AuthProviders.Path("", "okta"), "/api/enterprise/authentication/v2/authproviders/okta")
	f(PostgresConfigs.Path("", "db"), "/api/enterprise/store/v1/provider/db")
	f(Checks.Path("", ""), "/api/core/v2/checks")
	f(Checks.Path("dev", ""), "/api/core/v2/namespaces/dev/checks")
	f(Checks.Path("dev", "a:b/c*d e"), "/api/core/v2/namespaces/dev/checks/a:b%2Fc%2Ad%20e")
	f(Checks.Path("dev", ".."), "/api/core/v2/namespaces/dev/checks/%2E%2E")
	f(Events.Path("dev", EventName("srv/1", "")), "/api/core/v2/namespaces/dev/events/srv/1%2F")
	f(Events.Path("dev", EventName("srv1", "cpu")), "/api/core/v2/namespaces/dev/events/srv1/cpu")
	f(Kind[json.RawMessage](Events).Path("dev", EventName("srv1", "cpu")), "/api/core/v2/namespaces/dev/events/srv1/cpu")
}

func TestNamesAreChecked(t *testing.T) {
	c := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") })
	ctx := t.Context()
	f := func(err error, want string) {
		t.Helper()
		if err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	f(Delete(ctx, c, Checks, "default", ""), `delete checks in namespace "default": the name is empty`)
	f(Delete(ctx, c, Checks, "", "cpu"), `delete checks "cpu": the namespace is empty`)
	f(Delete(ctx, c, Events, "default", "srv1"), `delete events "srv1" in namespace "default": the name "srv1" is not of the form ENTITY/CHECK`)
	f(Put(ctx, c, Events, "default", "/cpu", &resource.Event{}),
		`put events "/cpu" in namespace "default": the name "/cpu" is not of the form ENTITY/CHECK`)
	f(Post(ctx, c, Checks, "", &resource.CheckConfig{}), `create checks: the namespace is empty`)
}

func TestVerbs(t *testing.T) {
	var got []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, strings.TrimSpace(r.Method+" "+r.URL.EscapedPath()+" "+r.Header.Get("Authorization")+" "+r.Header.Get("Content-Type")+" "+string(body)))
		switch r.Method {
		case http.MethodGet:
			io.WriteString(w, `{"name": "dev"}`)
		case http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		default:
			w.WriteHeader(http.StatusCreated)
		}
	})
	ctx := t.Context()
	n, err := Get(ctx, c, Namespaces, "", "dev")
	must(t, err)
	if n.Name != "dev" {
		t.Errorf("got %v", n)
	}
	must(t, Post(ctx, c, Namespaces, "", n))
	must(t, Put(ctx, c, Namespaces, "", "dev", n))
	must(t, Delete(ctx, c, Namespaces, "", "dev"))
	want := []string{
		`GET /api/core/v2/namespaces/dev Key k application/json`,
		`POST /api/core/v2/namespaces Key k application/json {"name":"dev"}`,
		`PUT /api/core/v2/namespaces/dev Key k application/json {"name":"dev"}`,
		`DELETE /api/core/v2/namespaces/dev Key k application/json`,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestErrors(t *testing.T) {
	f := func(status int, body string, want Error, is error) {
		t.Helper()
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			io.WriteString(w, body)
		})
		_, err := Get(t.Context(), c, Checks, "default", "cpu")
		var got *Error
		want.Method, want.Path = http.MethodGet, "/api/core/v2/namespaces/default/checks/cpu"
		if !errors.As(err, &got) || !reflect.DeepEqual(*got, want) {
			t.Fatalf("got %#v (%v), want %#v", got, err, want)
		}
		if err.Error() != `get checks "cpu" in namespace "default": `+want.Message {
			t.Errorf("text %q", err)
		}
		for _, e := range []error{ErrUnauthenticated, ErrDenied, ErrNotFound, ErrExists} {
			if errors.Is(err, e) != (e == is) {
				t.Errorf("errors.Is(%v, %v) = %v", err, e, errors.Is(err, e))
			}
		}
	}
	f(404, `{"message":"not found","code":2}`, Error{Status: 404, Code: 2, Message: "not found"}, ErrNotFound)
	f(403, `{"Code":4,"Message":"unauthorized to perform action"}`, Error{Status: 403, Code: 4, Message: "unauthorized to perform action"}, ErrDenied)
	f(409, "resource already exists\n", Error{Status: 409, Code: 0, Message: "resource already exists"}, ErrExists)
	f(401, "Request unauthorized\n", Error{Status: 401, Code: 0, Message: "Request unauthorized"}, ErrUnauthenticated)
	f(405, "", Error{Status: 405, Code: 0, Message: "the API returned: 405 Method Not Allowed"}, nil)
	f(502, "<html><body>Bad Gateway</body></html>", Error{Status: 502, Code: 0, Message: "the API returned: 502 Bad Gateway"}, nil)
	f(500, `{"code":0}`, Error{Status: 500, Code: 0, Message: "the API returned: 500 Internal Server Error"}, nil)
}

// TestLongError: a refusal with a long list of mistakes is read whole; of a long text, the beginning is the message.
func TestLongError(t *testing.T) {
	body := `{"message":"no","code":1,"mistakes":[{"field":"a","message":"` + strings.Repeat("x", 500<<10) + `"}]}`
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, body)
	})
	_, err := Get(t.Context(), c, Checks, "default", "cpu")
	var got *Error
	if !errors.As(err, &got) || got.Code != 1 || got.Message != "no" || len(got.Mistakes) != 1 {
		t.Errorf("code %d, %d mistakes, message of %d bytes", got.Code, len(got.Mistakes), len(got.Message))
	}
	for _, list := range []string{`"all"`, `[1,2]`, `[null,{"field":"a"}]`} {
		body = `{"message":"bad","code":1,"mistakes":` + list + `}`
		_, err = Get(t.Context(), c, Checks, "default", "cpu")
		if !errors.As(err, &got) || got.Code != 1 || got.Message != "bad" || len(got.Mistakes) != 0 {
			t.Errorf("mistakes %s: %+v", list, got)
		}
	}
	body = strings.Repeat("x", 500<<10)
	if _, err = Get(t.Context(), c, Checks, "default", "cpu"); !errors.As(err, &got) || len(got.Message) != 64<<10 {
		t.Errorf("message of %d bytes", len(got.Message))
	}
}

func TestAnswerThatIsNotJSON(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") })
	_, err := Get(t.Context(), c, Checks, "default", "cpu")
	if err == nil || !strings.Contains(err.Error(), "read answer: invalid character '<'") {
		t.Errorf("error %v", err)
	}
}

// pager serves n namespaces, in pages if the request asks for pages.
func pager(n int, queries *[]string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		*queries = append(*queries, r.URL.RawQuery)
		q := r.URL.Query()
		from, _ := strconv.Atoi(q.Get("continue"))
		to := n
		if limit, _ := strconv.Atoi(q.Get("limit")); limit > 0 && from+limit < n {
			to = from + limit
			w.Header().Set("Sensu-Continue", strconv.Itoa(to))
		}
		page := []resource.Namespace{}
		for i := from; i < to; i++ {
			page = append(page, resource.Namespace{Name: strconv.Itoa(i)})
		}
		json.NewEncoder(w).Encode(page)
	}
}

func TestListPages(t *testing.T) {
	f := func(n, chunk int, wantQueries ...string) {
		t.Helper()
		var queries []string
		c := serve(t, pager(n, &queries))
		got, err := List(t.Context(), c, Namespaces, "", ListOptions{ChunkSize: chunk})
		must(t, err)
		if len(got) != n || got == nil {
			t.Errorf("got %d of %d", len(got), n)
		}
		for i, ns := range got {
			if ns.Name != strconv.Itoa(i) {
				t.Errorf("%d is %s", i, ns.Name)
			}
		}
		if !reflect.DeepEqual(queries, wantQueries) {
			t.Errorf("queries %q, want %q", queries, wantQueries)
		}
	}
	f(0, 0, "")
	f(7, 0, "")
	f(7, 3, "limit=3", "continue=3&limit=3", "continue=6&limit=3")
	f(6, 3, "limit=3", "continue=3&limit=3")
	f(0, 3, "limit=3")
}

func TestAllStopsEarly(t *testing.T) {
	var queries []string
	c := serve(t, pager(100, &queries))
	for ns, err := range All(t.Context(), c, Namespaces, "", ListOptions{ChunkSize: 10}) {
		must(t, err)
		if ns.Name == "10" {
			break
		}
	}
	if len(queries) != 2 {
		t.Errorf("queries %q", queries)
	}
}

func TestListSelectorsAndEntity(t *testing.T) {
	var got string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.URL.String()
		io.WriteString(w, "[]")
	})
	_, err := List(t.Context(), c, Events, "dev", ListOptions{
		Entity: "srv:1", FieldSelector: `event.check.status != "0"`, LabelSelector: "a == b",
	})
	must(t, err)
	want := "/api/core/v2/namespaces/dev/events/srv:1?fieldSelector=event.check.status+%21%3D+%220%22&labelSelector=a+%3D%3D+b"
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestListEndlessPages(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Sensu-Continue", "again")
		io.WriteString(w, `[{"name":"x"}]`)
	})
	_, err := List(t.Context(), c, Namespaces, "", ListOptions{ChunkSize: 1})
	_, _, err2 := c.StateHistory(t.Context(), "default", "e", "c", time.Unix(0, 0), time.Unix(1, 0))
	for _, err := range []error{err, err2} {
		if err == nil || !strings.Contains(err.Error(), `page "again" with the same page again`) {
			t.Errorf("error %v", err)
		}
	}
}

func TestListFailsOnSecondPage(t *testing.T) {
	var queries []string
	pages := pager(10, &queries)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if len(queries) == 1 {
			http.Error(w, "no more", 500)
			return
		}
		pages(w, r)
	})
	got, err := List(t.Context(), c, Namespaces, "", ListOptions{ChunkSize: 5})
	if err == nil || err.Error() != "list namespaces: no more" || got != nil {
		t.Errorf("got %v, error %v", got, err)
	}
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := roundTripFunc(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		c, err := New(Options{URL: "http://lapwing.test/", APIKey: "k", HTTPClient: &http.Client{Transport: hang},
			Timeout: 3 * time.Second})
		must(t, err)
		start := time.Now()
		err = list(c)
		want := `list checks in namespace "default": no answer from http://lapwing.test within 3s`
		if err == nil || err.Error() != want || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if d := time.Since(start); d != 3*time.Second {
			t.Errorf("took %v", d)
		}
		if err := c.Stream(t.Context(), "", nil); err == nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stream: error %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := Get(ctx, c, Checks, "default", "x"); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestPublicEndpoints(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Errorf("%s was sent credentials", r.URL)
		}
		switch r.URL.Path {
		case "/prefix/version":
			io.WriteString(w, `{"sensu_backend":"6.12.0","api_groups":{"core/v2":"v2.20.0"}}`)
		case "/prefix/health":
			io.WriteString(w, `{"Alarms":null,"ClusterHealth":[{"MemberID":18446744073709551615,"Name":"b1","Err":"","Healthy":true}],"Header":{"cluster_id":9223372036854775809}}`)
		case "/prefix/ready":
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			t.Errorf("asked for %s", r.URL)
		}
	}))
	defer srv.Close()
	c, err := New(Options{URL: srv.URL + "/prefix/"})
	must(t, err)
	defer c.Close()
	v, err := c.Version(t.Context())
	must(t, err)
	if v.SensuBackend != "6.12.0" || v.APIGroups["core/v2"] != "v2.20.0" {
		t.Errorf("got %v", v)
	}
	h, err := c.Health(t.Context())
	must(t, err)
	if len(h.ClusterHealth) != 1 || h.ClusterHealth[0] != (MemberHealth{MemberID: 1<<64 - 1, Name: "b1",
		Healthy: true}) || h.Header.ClusterID != 1<<63+1 {
		t.Errorf("got %+v", h)
	}
	if err := c.Ready(t.Context()); err == nil || err.Error() != "ask whether ready: the API returned: 503 Service Unavailable" {
		t.Errorf("error %v", err)
	}
}

func TestConnectionIsReused(t *testing.T) {
	var remotes []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		remotes = append(remotes, r.RemoteAddr)
		w.WriteHeader(http.StatusCreated)
		w.Write(bytes.Repeat([]byte(" "), 100<<10))
	})
	for range 3 {
		must(t, Post(t.Context(), c, Namespaces, "", &resource.Namespace{Name: "x"}))
	}
	if remotes[0] != remotes[2] {
		t.Errorf("connections from %q", remotes)
	}
}
