package session

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/testconfig"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestRegistrationOutlivesItsSession ends a session while the entity of its agent is written. The write succeeds, and says so:
// otherwise the agent would be registered without an announcement.
func TestRegistrationOutlivesItsSession(t *testing.T) {
	store := testconfig.Store(t)
	i := &Intake{opts: IntakeOptions{Config: store}, registering: make(chan struct{}, 1)}
	entity := func(name string) *resource.EntityConfig {
		return &resource.EntityConfig{Metadata: resource.ObjectMeta{Namespace: "default", Name: name}, EntityClass: resource.EntityAgentClass}
	}
	held, release := make(chan struct{}), make(chan struct{})
	defer store.OnChange(func(ch config.Change) {
		if ch.Name == "holds-up" {
			close(held)
			<-release
		}
	})()
	first := make(chan error)
	go func() { first <- config.Create(t.Context(), store, config.Entities, entity("holds-up")) }()
	<-held // no write returns until the listener does
	ctx, cancel := context.WithCancel(t.Context())
	created := make(chan error)
	go func() { created <- i.create(ctx, entity("web1")) }()
	for len(i.registering) == 0 {
		runtime.Gosched()
	}
	cancel()
	for range 1000 {
		runtime.Gosched()
	}
	close(release)
	if err := errors.Join(<-first, <-created); err != nil {
		t.Error(err)
	}
	if _, ok := config.Get(store.Snapshot(), config.Entities, "default", "web1"); !ok {
		t.Error("the entity was not written")
	}
}

// TestHostsAreBounded: an agent cannot fill the memory with what it says of its host, under one name after the other. One with too many
// facts of its system is registered without them.
func TestHostsAreBounded(t *testing.T) {
	i := IntakeOf(t, 1, IntakeOptions{})
	keepalive := func(name string, annotation, arch int) error {
		return i.keepalive(t.Context(), &resource.Event{
			Timestamp: time.Now().Unix(),
			Check:     &resource.Check{Metadata: resource.ObjectMeta{Namespace: "default", Name: "keepalive"}, Interval: 20},
			Entity: &resource.Entity{
				EntityClass: resource.EntityAgentClass, System: resource.System{Arch: strings.Repeat("x", arch)},
				Metadata: resource.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{"a": strings.Repeat("x", annotation)}},
			},
		}, source{namespace: "default", agent: name}, true)
	}
	if err := keepalive("usual", 1000, 1000); err != nil {
		t.Error(err)
	}
	if err := keepalive("facts", 0, maxFacts); err != nil {
		t.Error(err)
	}
	if err := keepalive("annotations", maxDefinition, 0); rejectionOf(err) == nil || !strings.Contains(err.Error(), "more than 65536") {
		t.Errorf("annotations of 64 KiB: %v", err)
	}
	if err := i.Report(t.Context(), "default", "behind-all", 0, ""); err != nil { // what comes before it is folded, too
		t.Fatal(err)
	}
	for name, want := range map[string]struct{ defined, facts bool }{"usual": {true, true}, "facts": {true, false}, "annotations": {}} {
		_, defined := config.Get(i.opts.Config.Snapshot(), config.Entities, "default", name)
		facts := len(i.opts.State.EntityStateBytes("default", name)) > 0
		if defined != want.defined || facts != want.facts {
			t.Errorf("%s: defined %v, facts %v", name, defined, facts)
		}
	}
}
