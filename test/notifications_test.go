package test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestNotificationHistory: a webhook that refuses an event once is two notifications, which a restart keeps. A secret of
// the handler that the receiver repeats is in neither of them.
func TestNotificationHistory(t *testing.T) {
	var mu sync.Mutex
	tries, arrived := 0, make(chan struct{})
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if tries++; tries == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		} else if tries == 2 {
			defer close(arrived)
		}
		_, _ = w.Write([]byte(r.RequestURI + " " + r.Header.Get("X-Token")))
	}))
	defer hook.Close()
	dir := t.TempDir()
	start := func(t *testing.T) *testbackend.Backend {
		return testbackend.Start(t, func(o *testbackend.Options) { o.StateDir, o.Handler.Backoff = dir, time.Millisecond })
	}
	var first []*client.Notification
	t.Run("sent", func(t *testing.T) {
		b := start(t)
		ctx := t.Context()
		if err := b.Client.Do(ctx, http.MethodPut, "/api/core/v2/namespaces/default/handlers/ops", &resource.Handler{
			Metadata: resource.ObjectMeta{Namespace: "default", Name: "ops"}, Type: "webhook",
			Webhook: &resource.HandlerWebhook{URL: hook.URL + "/hush-path?key=hush-query", Headers: map[string]string{"X-Token": "hush-header"}},
			Retry:   &resource.HandlerRetry{MaxAttempts: 3},
		}, nil); err != nil {
			t.Fatal(err)
		}
		ev := testbackend.Event("web1", "disk", 2, 1)
		ev.Check.Handlers = []string{"ops"}
		if err := b.Client.Do(ctx, http.MethodPut, "/api/core/v2/namespaces/default/events/web1/disk", ev, nil); err != nil {
			t.Fatal(err)
		}
		<-arrived
		eventually(t, time.Minute, "the second notification", func() bool {
			first = listNotifications(t, b)
			return len(first) == 2
		})
	})
	b := start(t)
	second := listNotifications(t, b)
	before, _ := json.Marshal(first)
	after, _ := json.Marshal(second)
	if string(before) != string(after) {
		t.Fatalf("before the restart %s, after it %s", before, after)
	}
	if strings.Contains(string(after), "hush") || !strings.Contains(string(after), resource.Redacted) {
		t.Errorf("a secret is kept, or the answer is not: %s", after)
	}
	host := strings.TrimPrefix(hook.URL, "http://")
	for i, want := range []client.Notification{
		{Result: "ok", Attempt: 2, Final: true, Number: 2}, {Result: "failed", Attempt: 1, Number: 1},
	} {
		n := second[i]
		if n.Result != want.Result || n.Attempt != want.Attempt || n.Final != want.Final || n.Number != want.Number ||
			n.Entity != "web1" || n.Type != "webhook" || n.Member == "" || !slices.Equal(n.Recipients, []string{host}) {
			t.Errorf("notification %+v, want %+v to %s", n, want, host)
		}
	}
}

func listNotifications(t *testing.T, b *testbackend.Backend) (list []*client.Notification) {
	t.Helper()
	for n, err := range b.Client.Notifications(context.Background(), "default", client.NotificationOptions{Entity: "web1"}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, n)
	}
	return list
}
