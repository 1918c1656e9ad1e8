package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
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
