package resource

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func TestHandlerDelivery(t *testing.T) {
	handler := func() *Handler {
		return &Handler{Metadata: ObjectMeta{Name: "h", Namespace: "default"}, Type: "pipe", Command: "true"}
	}
	f := func(want string, change func(*Handler)) {
		t.Helper()
		h := handler()
		change(h)
		err := h.Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	f("", func(h *Handler) {
		h.Retry = &HandlerRetry{MaxAttempts: 3, Backoff: 1, MaxBackoff: 60, MaxAge: 3600, Statuses: []int{1, 75}}
		h.Concurrency, h.RateLimit = 4, &HandlerRate{PerSecond: 0.5}
		h.Group = &HandlerGroup{By: []string{"entity.labels.rack"}, Wait: 30}
		h.Resolve = &HandlerResolve{OnlyAfterAlert: true, Delay: 60}
	})
	f("concurrency", func(h *Handler) { h.Concurrency = 100000 })
	f("rate_limit", func(h *Handler) { h.RateLimit = &HandlerRate{} })
	f("rate_limit", func(h *Handler) { h.RateLimit = &HandlerRate{PerSecond: math.NaN()} })
	f("empty field", func(h *Handler) { h.Group = &HandlerGroup{By: []string{""}} })
	f("at most 16", func(h *Handler) { h.Group = &HandlerGroup{By: make([]string, 17)} })
	f("max_backoff", func(h *Handler) { h.Retry = &HandlerRetry{MaxBackoff: math.MaxUint32} })
	f("delay of resolve", func(h *Handler) { h.Resolve = &HandlerResolve{Delay: math.MaxUint32} })

	b, err := json.Marshal(handler())
	for _, field := range []string{"retry", "concurrency", "rate_limit", "group", "resolve"} {
		if err != nil || strings.Contains(string(b), field) {
			t.Errorf("a handler without %s shows it: %s %v", field, b, err)
		}
	}
}
