package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestReplayAnswers has events that begin later than the time that was asked for, and a database that is away.
func TestReplayAnswers(t *testing.T) {
	events, fault := []ReplayedEvent{{}, {ID: "1-1-0", Received: 5000}, {ID: "1-2-0", Received: 7000, Selected: true}}, error(nil)
	s := newServer(t, func(o *Options) {
		o.Replay = func(_ context.Context, _ *Replay, each func(ReplayedEvent) error) error {
			for _, e := range events {
				if err := each(e); err != nil {
					return err
				}
			}
			return fault
		}
	})
	s.do("PUT", "/api/core/v2/namespaces/default/pipelines/pager", `{"metadata":{"name":"pager","namespace":"default"},"workflows":[]}`).is(201)
	run := func() *answer {
		return s.do("POST", "/api/lapwing/v1/namespaces/default/pipeline/replay", `{"since":"1970-01-01T00:00:01Z","pipeline":"pager"}`)
	}
	first := func() string {
		lines := strings.Split(strings.TrimSpace(run().is(http.StatusOK).body), "\n")
		var last replayLine
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Summary == nil {
			t.Fatalf("%v in %s", err, lines)
		}
		if last.Summary.First == nil {
			return ""
		}
		return last.Summary.First.Format("15:04:05")
	}
	if got := first(); got != "00:00:05" {
		t.Errorf("the first event is of %q", got)
	}
	events = nil
	if got := first(); got != "" {
		t.Errorf("no event is of %q", got)
	}
	fault = errors.New("no connection")
	var refused struct{ Message string }
	if run().is(http.StatusServiceUnavailable).has(&refused); refused.Message != "no connection" {
		t.Errorf("message %q", refused.Message)
	}
}

// lastLine looks whether a replay is under way when the last line of one is written.
type lastLine struct {
	*httptest.ResponseRecorder
	api           *API
	seen, between bool
}

func (l *lastLine) Write(b []byte) (int, error) {
	if strings.Contains(string(b), `"summary"`) {
		l.api.mu.Lock()
		l.seen, l.between = true, l.api.replays["default"]
		l.api.mu.Unlock()
	}
	return l.ResponseRecorder.Write(b)
}

// TestReplayEndsBeforeItsAnswer lets a client that has read the summary begin the next replay.
func TestReplayEndsBeforeItsAnswer(t *testing.T) {
	s := newServer(t, func(o *Options) {
		o.Replay = func(context.Context, *Replay, func(ReplayedEvent) error) error { return nil }
	})
	body := `{"since":"1h","handlers":[{"metadata":{"name":"h","namespace":"default"},"type":"pipe","command":"true"}]}`
	req := httptest.NewRequest(http.MethodPost, "/api/lapwing/v1/namespaces/default/pipeline/replay", strings.NewReader(body))
	req.Header.Set("Authorization", "Bearer "+s.token)
	w := &lastLine{ResponseRecorder: httptest.NewRecorder(), api: s.API}
	s.ServeHTTP(w, req)
	if !w.seen || w.between {
		t.Errorf("summary written: %v, with the replay still under way: %v; %d %s", w.seen, w.between, w.Code, w.Body)
	}
}
