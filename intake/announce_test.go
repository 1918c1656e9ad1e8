package intake

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestLostAnnouncementIsReported registers an agent whose session ends while the log takes nothing.
func TestLostAnnouncementIsReported(t *testing.T) {
	var lines bytes.Buffer
	i := IntakeOf(t, 1, Options{Logger: slog.New(slog.NewTextHandler(&lines, nil))})
	if err := i.opts.Log.Stop(); err != nil {
		t.Fatal(err)
	}
	agent := &resource.Entity{
		Metadata: resource.ObjectMeta{Namespace: "default", Name: "web1"}, EntityClass: resource.EntityAgentClass,
		System: resource.System{Hostname: "web1"},
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := i.registrationEvent(ctx, agent, time.Now()); err == nil {
		t.Error("the log took it")
	}
	if text := lines.String(); !strings.Contains(text, "registration of an agent was not announced") ||
		!strings.Contains(text, "entity=web1") {
		t.Errorf("logged:\n%s", text)
	}
}
