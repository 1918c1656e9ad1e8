package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const streamStart = `event: event
data: {"entity":{"metadata":{"name":"srv1","namespace":"dev"}},"check":{"metadata":{"name":"cpu","namespace":"dev"},"status":2}}

event: synced
data: {}

: still here

event: event
data: {"entity":{"metadata":{"name":"srv2","namespace":"dev"}},"metrics":{"points":[]}}

event: delete
data: {"namespace":"dev","entity":"srv1","check":"cpu"}

event: from-the-future
data: ?

`

func streamOf(text string) *Client {
	c, err := New(Options{URL: "http://lapwing.test", APIKey: "k", HTTPClient: &http.Client{
		Transport: roundTripFunc(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path != "/api/lapwing/v1/namespaces/-/events/stream" || r.Header.Get("Accept") != "text/event-stream" {
				return nil, fmt.Errorf("unexpected request %s %v", r.URL, r.Header)
			}
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(text))}, nil
		}),
	}})
	if err != nil {
		panic(err)
	}
	return c
}

func TestStream(t *testing.T) {
	var got []string
	err := streamOf(streamStart).Stream(t.Context(), "", func(ev StreamEvent) error {
		got = append(got, fmt.Sprint(ev.Type, " ", ev.Namespace, " ", ev.Entity, " ", ev.Check, " ", ev.Event != nil))
		return nil
	})
	want := []string{"event dev srv1 cpu true", "synced    false", "event dev srv2  true", "delete dev srv1 cpu false"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q", got)
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v", err)
	}
}

func TestStreamEnds(t *testing.T) {
	ours := errors.New("ours")
	if err := streamOf(streamStart).Stream(t.Context(), "", func(StreamEvent) error { return ours }); err != ours {
		t.Errorf("error %v", err)
	}
	nothing := func(StreamEvent) error { return nil }
	if err := streamOf(streamStart+"event: overflow\ndata: {}\n\n").Stream(t.Context(), "", nothing); err != ErrOverflow {
		t.Errorf("error %v", err)
	}
	for text, want := range map[string]string{
		"event: event\ndata: {\n\n":  "read live stream: decode event: unexpected end of JSON input",
		"event: event\ndata: {}\n\n": "read live stream: decode event: it has no entity",
		"event: delete\ndata: 5\n\n": "read live stream: decode deletion: ",
	} {
		if err := streamOf(text).Stream(t.Context(), "", nothing); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: error %v", text, err)
		}
	}
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"Code":4,"Message":"unauthorized to perform action"}`, http.StatusForbidden)
	})
	if err := c.Stream(t.Context(), "dev", nothing); !errors.Is(err, ErrDenied) {
		t.Errorf("error %v", err)
	}
}

// TestStreamSilence sends comments, then nothing: the stream must survive the comments and end in the silence.
func TestStreamSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		c, err := New(Options{URL: "http://lapwing.test", APIKey: "k", HTTPClient: &http.Client{
			Transport: roundTripFunc(func(r *http.Request) (*http.Response, error) {
				body, w := io.Pipe()
				go func() {
					defer w.Close()
					for range 6 {
						io.WriteString(w, ": ping\n")
						time.Sleep(10 * time.Second)
					}
					io.WriteString(w, "event: synced\ndata: {}\n\n")
					<-r.Context().Done()
					w.CloseWithError(r.Context().Err())
				}()
				return &http.Response{StatusCode: 200, Body: body}, nil
			}),
		}})
		must(t, err)
		synced := time.Time{}
		err = c.Stream(t.Context(), "dev", func(ev StreamEvent) error {
			synced = time.Now()
			time.Sleep(time.Hour) // our own slowness is not the server's silence
			return nil
		})
		if d := synced.Sub(start); d != time.Minute {
			t.Errorf("synced after %v", d)
		}
		if err == nil || err.Error() != "read live stream: the live stream was silent for 15s" {
			t.Errorf("error %v", err)
		}
		if d := time.Since(synced); d != time.Hour+silenceLimit {
			t.Errorf("gave up after %v", d)
		}
	})
}

func TestStreamCanceled(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "event: synced\ndata: {}\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	err := c.Stream(ctx, "dev", func(StreamEvent) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestStreamResumes(t *testing.T) {
	var asked string
	body := "event: reset\ndata: {}\n\nid: 7-1\nevent: synced\ndata: {}\n\nid: 8-2\n\n"
	c, err := New(Options{URL: "http://lapwing.test", APIKey: "k", HTTPClient: &http.Client{
		Transport: roundTripFunc(func(r *http.Request) (*http.Response, error) {
			asked = r.URL.RawQuery
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(body))}, nil
		}),
	}})
	must(t, err)
	position, wantPosition := "", "8-2"
	var got []StreamType
	opts := StreamOptions{FieldSelector: "a == b", LabelSelector: "c == d", Position: &position}
	stream := func() {
		t.Helper()
		err := c.StreamWith(t.Context(), "dev", opts, func(ev StreamEvent) error { got = append(got, ev.Type); return nil })
		if !errors.Is(err, io.ErrUnexpectedEOF) || position != wantPosition {
			t.Errorf("error %v, position %q", err, position)
		}
	}
	stream()
	if want := "fieldSelector=a+%3D%3D+b&labelSelector=c+%3D%3D+d"; asked != want {
		t.Errorf("asked %s, want %s", asked, want)
	}
	stream()
	if !strings.HasSuffix(asked, "&last_event_id=8-2") {
		t.Errorf("asked %s", asked)
	}
	body, wantPosition = "id:\n\n", ""
	stream()
	body = ": still here\n\n"
	if stream(); strings.Contains(asked, "last_event_id") {
		t.Errorf("asked %s, after the server had taken the position back", asked)
	}
	if want := []StreamType{StreamReset, StreamSynced, StreamReset, StreamSynced}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q", got)
	}
}
