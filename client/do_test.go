package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"
)

func TestDo(t *testing.T) {
	var got string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.Method + " " + r.URL.EscapedPath() + " " + r.Header.Get("Authorization") + " " + string(body)
		if r.Method == http.MethodDelete {
			http.Error(w, `{"message":"not found","code":2}`, http.StatusNotFound)
			return
		}
		io.WriteString(w, `{"b":2}`)
	})
	const path = "/api/core/v2/namespaces/default/pipelines/a%2Fb"
	var out json.RawMessage
	must(t, c.Do(t.Context(), http.MethodPut, path, map[string]int{"a": 1}, &out))
	if want := "PUT " + path + ` Key k {"a":1}`; got != want || string(out) != `{"b":2}` {
		t.Errorf("sent %s, want %s; read %s", got, want, out)
	}
	err := c.Do(t.Context(), http.MethodDelete, path, nil, nil)
	if want := "DELETE " + path + ": not found"; !errors.Is(err, ErrNotFound) || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// roundTrip is a transport.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestManyDeadLetters: all dead letters of a handler may take longer than a usual request.
func TestManyDeadLetters(t *testing.T) {
	var until time.Time
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"count":69000}`) })
	transport := c.http.Transport
	c.http.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		until, _ = r.Context().Deadline()
		return transport.RoundTrip(r)
	})
	for name, f := range map[string]func(context.Context, string, DeadLetterChoice) (int, error){
		"redrive": func(ctx context.Context, namespace string, which DeadLetterChoice) (int, error) {
			done, err := c.RedriveDeadLetters(ctx, namespace, which)
			return done.Count, err
		},
		"delete": c.DeleteDeadLetters,
		"count": func(ctx context.Context, namespace string, which DeadLetterChoice) (int, error) {
			would, err := c.CountDeadLetters(ctx, namespace, which)
			return would.Count, err
		},
	} {
		n, err := f(t.Context(), "default", DeadLetterChoice{Handler: "mail"})
		must(t, err)
		if left := time.Until(until); n != 69_000 || left < longWork/2 {
			t.Errorf("%s: %d, and an answer had to come within %v", name, n, left)
		}
	}
}

// TestConditions uses a server that knows one tag.
func TestConditions(t *testing.T) {
	var got string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.Method + " " + r.Header.Get("If-Match") + " " + r.Header.Get("Content-Type") + " " + string(body)
		w.Header().Set("Etag", `"a"`)
		if m := r.Header.Get("If-Match"); m != "" && m != `"a"` {
			http.Error(w, `{"message":"precondition failed","code":7}`, http.StatusPreconditionFailed)
			return
		}
		io.WriteString(w, `{"name":"dev"}`)
	})
	ns, tag, err := GetTagged(t.Context(), c, Namespaces, "", "dev")
	must(t, err)
	if ns.Name != "dev" || tag != `"a"` {
		t.Errorf("got %v, tag %s", ns, tag)
	}
	must(t, PutIf(t.Context(), c, Namespaces, "", "dev", tag, ns))
	if want := `PUT "a" application/json {"name":"dev"}`; got != want {
		t.Errorf("sent %s, want %s", got, want)
	}
	if err := PutIf(t.Context(), c, Namespaces, "", "dev", `"b"`, ns); !errors.Is(err, ErrPrecondition) {
		t.Errorf("error %v", err)
	}
	must(t, Put(t.Context(), c, Namespaces, "", "dev", ns))
	must(t, Patch(t.Context(), c, Checks, "dev", "cpu", map[string]any{"ttl": nil}))
	if want := `PATCH  application/merge-patch+json {"ttl":null}`; got != want {
		t.Errorf("sent %s, want %s", got, want)
	}
}

func TestExchange(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			io.WriteString(w, "text\n"+r.Header.Get("Authorization"))
			return
		}
		w.Header().Set("Location", APIKeys.Path("", "secret"))
		w.WriteHeader(http.StatusCreated)
	})
	location, err := c.GrantAPIKey(t.Context(), "alice")
	must(t, err)
	if location != "/api/core/v2/apikeys/secret" {
		t.Errorf("location %s", location)
	}
	var text []byte
	must(t, c.GetPublic(t.Context(), "/metrics", &text))
	if string(text) != "text\n" {
		t.Errorf("read %q", text)
	}
}
