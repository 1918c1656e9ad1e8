package handler

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestNothingThatIsKeptTellsASecret: a server repeats the URL and a header in its refusal. They must not be in the
// dead letter, the trace or the log.
func TestNothingThatIsKeptTellsASecret(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, "no hook at %s for %s", r.RequestURI, r.Header.Get("X-Anything"))
	}))
	defer srv.Close()
	sender, err := send.New(send.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := sender.Stop(); err != nil {
			t.Error(err)
		}
	}()
	h := hook("a")
	h.Webhook = &resource.HandlerWebhook{URL: srv.URL + "/in/hush-token-1", Headers: map[string]string{"X-Anything": "hush-header"}}
	var log bytes.Buffer
	var tr traces
	var sent notifications
	b := setup(t, Options{
		Sender: sender, Trace: tr.record, Notify: sent.record,
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}, h)
	b.start(t)
	b.Dispatch(incident("a", 1, "e1"))
	b.finished.wait(1)
	b.flush(t, 0)
	letter, found, err := b.DeadLetter("default", "0-1-1.a")
	if err != nil || !found {
		t.Fatal(err)
	}
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	traced, err := json.Marshal(tr.of("0-1-1/a"))
	if err != nil {
		t.Fatal(err)
	}
	notified, err := json.Marshal(sent.all)
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range map[string]string{
		"dead letter": letter.Reason + letter.Output, "trace": string(traced), "log": log.String(), "notification": string(notified),
	} {
		if strings.Contains(text, "hush") || !strings.Contains(text, "no hook at "+resource.Redacted+" for "+resource.Redacted) {
			t.Errorf("the %s has %s", where, text)
		}
	}
}
