package session

import (
	"context"
	"errors"
	"runtime"
	"testing"

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
