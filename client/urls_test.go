package client

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// backends are the servers of one API, which a test stops and starts again.
type backends struct {
	mu    sync.Mutex // guards the fields below
	doing map[string]func(r *http.Request) (*http.Response, error)
	asked []string
}

var errRefused = errors.New("connection refused")

func (b *backends) RoundTrip(r *http.Request) (*http.Response, error) {
	b.mu.Lock()
	b.asked = append(b.asked, r.Method+" "+r.URL.Host)
	do := b.doing[r.URL.Host]
	b.mu.Unlock()
	return do(r)
}

func (b *backends) set(host string, do func(r *http.Request) (*http.Response, error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.doing[host] = do
}

func (b *backends) took() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	asked := b.asked
	b.asked = nil
	return asked
}

func answer(status int, body string) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
	}
}

func broken(*http.Request) (*http.Response, error) { return nil, errRefused }

func hanging(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func threeBackends(t *testing.T) (*backends, *Client) {
	t.Helper()
	b := &backends{doing: map[string]func(*http.Request) (*http.Response, error){
		"a": answer(200, `"a"`), "b": answer(200, `"b"`), "c": answer(200, `"c"`),
	}}
	c, err := New(Options{
		URL: "http://a,http://b/, http://c", APIKey: "k",
		HTTPClient: &http.Client{Transport: b}, Timeout: 15 * time.Second,
	})
	must(t, err)
	return b, c
}

func TestSeveralURLs(t *testing.T) {
	b, c := threeBackends(t)
	get := func(want string, asked ...string) {
		t.Helper()
		var got string
		if err := c.Do(t.Context(), http.MethodGet, "/x", nil, &got); err != nil || got != want {
			t.Errorf("answer %q, %v, want %q", got, err, want)
		}
		if took := b.took(); !slices.Equal(took, asked) {
			t.Errorf("asked %q, want %q", took, asked)
		}
	}
	get("a", "GET a")
	b.set("a", broken)
	get("b", "GET a", "GET b")
	b.set("a", answer(200, `"a"`))
	get("b", "GET b") // it stays
	b.set("b", answer(503, `{"message":"starting"}`))
	get("c", "GET b", "GET c")
	b.set("c", answer(404, `{"message":"not found"}`))
	if err := c.Do(t.Context(), http.MethodGet, "/x", nil, nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("an answer that is no failure of the backend: %v", err)
	}
	b.took()
	if urls := c.URLs(); !slices.Equal(urls, []string{"http://c", "http://a", "http://b"}) {
		t.Errorf("URLs %q", urls)
	}

	// All fail: the last error counts, and each is asked once.
	for _, host := range []string{"a", "b", "c"} {
		b.set(host, broken)
	}
	if err := c.Do(t.Context(), http.MethodGet, "/x", nil, nil); !errors.Is(err, errRefused) {
		t.Errorf("without any backend: %v", err)
	}
	if took := b.took(); !slices.Equal(took, []string{"GET c", "GET a", "GET b"}) {
		t.Errorf("asked %q", took)
	}
	for _, list := range []string{"http://a,", "http://a,b", ",http://a"} {
		if _, err := New(Options{URL: list}); err == nil {
			t.Errorf("%q is taken", list)
		}
	}
}

// TestWritesAreSentOnce: a write goes elsewhere only if no backend can have got it.
func TestWritesAreSentOnce(t *testing.T) {
	b, c := threeBackends(t)
	for _, fault := range []func(*http.Request) (*http.Response, error){broken, answer(503, `{"message":"busy"}`)} {
		b.set("a", fault)
		if err := c.Do(t.Context(), http.MethodPost, "/x", struct{}{}, nil); err == nil {
			t.Error("the write is said to be done")
		}
		if took := b.took(); !slices.Equal(took, []string{"POST a"}) {
			t.Errorf("asked %q", took)
		}
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `"there"`) }))
	defer there.Close()
	c, err := New(Options{URL: gone.URL + "," + there.URL, APIKey: "k"})
	must(t, err)
	defer c.Close()
	var got string
	if err := c.Do(t.Context(), http.MethodPost, "/x", struct{}{}, &got); err != nil || got != "there" {
		t.Errorf("a write to a backend that does not listen: %q, %v", got, err)
	}
}

// TestBackendThatHangs: a backend that takes a connection and says nothing has its share of the timeout.
func TestBackendThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := threeBackends(t)
		b.set("a", hanging)
		begin := time.Now()
		var got string
		if err := c.Do(t.Context(), http.MethodGet, "/x", nil, &got); err != nil || got != "b" || time.Since(begin) != 5*time.Second {
			t.Errorf("answer %q, %v after %s", got, err, time.Since(begin))
		}
	})
}

// TestStreamGoesOnElsewhere: a stream that breaks resumes at the next backend, from its position.
func TestStreamGoesOnElsewhere(t *testing.T) {
	b, c := threeBackends(t)
	var positions []string
	stream := func(text string) func(*http.Request) (*http.Response, error) {
		return func(r *http.Request) (*http.Response, error) {
			positions = append(positions, r.URL.Query().Get("last_event_id"))
			return answer(200, text)(r)
		}
	}
	b.set("a", stream("event: synced\nid: 1.1\ndata: {}\n\nid: 2.2\n\n"))
	b.set("b", stream("event: synced\nid: 3.3\ndata: {}\n\n"))
	position := ""
	for range 2 {
		err := c.StreamWith(t.Context(), "", StreamOptions{Position: &position}, func(StreamEvent) error { return nil })
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the stream ends with %v", err)
		}
	}
	took := b.took()
	if !slices.Equal(took, []string{"GET a", "GET b"}) || !slices.Equal(positions, []string{"", "2.2"}) ||
		position != "3.3" {
		t.Errorf("asked %q from %q, then at %q", took, positions, position)
	}
	b.set("c", stream("event: synced\nid: 4.4\ndata: {}\n\n"))
	mine := errors.New("enough")
	_ = c.StreamWith(t.Context(), "", StreamOptions{}, func(StreamEvent) error { return mine })
	if c.URLs()[0] != "http://c" {
		t.Errorf("the callback's error has the client leave: %q", c.URLs())
	}
}
