package intake

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

// TestRegistrationOutlivesItsSession ends a session while the entity of its agent is being written. The write
// succeeds, and the result says so: otherwise the agent would be registered without an announcement.
func TestRegistrationOutlivesItsSession(t *testing.T) {
	store := testconfig.Store(t)
	i := &Intake{opts: Options{Config: store}, quotas: newQuotas(Quotas{}, nil, nil), registering: make(chan struct{}, 1)}
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
	<-held // no write returns before the listener does
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

// TestHostsAreBounded: an agent cannot fill the memory with descriptions of its host under many names. An agent with
// too many facts is registered without them.
func TestHostsAreBounded(t *testing.T) {
	i := IntakeOf(t, 1, Options{})
	keepalive := func(name string, annotation, arch int) error { return sayOfHost(t, i, name, annotation, arch) }
	if err := keepalive("usual", 1000, 1000); err != nil {
		t.Error(err)
	}
	if err := keepalive("facts", 0, maxFacts); err != nil {
		t.Error(err)
	}
	if err := keepalive("annotations", maxDefinition, 0); rejectionOf(err) == nil || !strings.Contains(err.Error(), "more than 65536") {
		t.Errorf("annotations of 64 KiB: %v", err)
	}
	requireHost(t, i, "usual", "defined, with facts")
	requireHost(t, i, "facts", "defined")
	requireHost(t, i, "annotations", "")
}

// TestHostsOfANamespaceAreBounded: many agents together cannot fill the memory with descriptions of their hosts, nor
// can one agent with proxy entities. A registered agent keeps what is stored of it, and does not count as dead.
// Deleting a host makes room.
func TestHostsOfANamespaceAreBounded(t *testing.T) {
	i := IntakeOf(t, 1, Options{Quotas: Quotas{NamespaceBytes: 155_000}})
	recount := func() { // as happens after a while, or after a restart
		i.quotas.count.mu.Lock()
		defer i.quotas.count.mu.Unlock()
		clear(i.quotas.count.counts)
	}
	keepalive := func(name string, annotation, arch int, refused bool) {
		t.Helper()
		err := sayOfHost(t, i, name, annotation, arch)
		if errors.As(err, new(*resource.QuotaError)) != refused || !refused && err != nil {
			t.Errorf("keepalive of %s: %v", name, err)
		}
	}
	annotation := func(name string, want int) {
		t.Helper()
		cfg, ok := config.Get(i.opts.Config.Snapshot(), config.Entities, "default", name)
		if !ok || len(cfg.Metadata.Annotations["a"]) != want {
			t.Errorf("%s has not %d bytes of annotations: %v", name, want, ok)
		}
	}
	keepalive("first", 50_000, 50_000, false)
	keepalive("second", 60_000, 0, true)
	keepalive("second", 40_000, 30_000, false)
	requireHost(t, i, "first", "defined, with facts")
	requireHost(t, i, "second", "defined")
	recount()
	keepalive("first", 60_000, 50_000, false)
	annotation("first", 60_000)
	keepalive("first", 64_000, 50_000, false)
	annotation("first", 60_000)
	keepalive("first", 1000, 50_000, false)
	annotation("first", 1000)
	keepalive("second", 60_000, 30_000, false)
	annotation("second", 60_000)
	requireHost(t, i, "second", "defined, with facts")

	proxy := &resource.Entity{Metadata: resource.ObjectMeta{
		Namespace: "default", Name: "proxy", Annotations: map[string]string{"a": strings.Repeat("x", 40_000)},
	}}
	if err := i.ensureProxy(t.Context(), "first", proxy, true); !errors.As(err, new(*resource.QuotaError)) {
		t.Errorf("a proxy entity past the quota: %v", err)
	}
	if err := config.Delete(t.Context(), i.opts.Config, config.Entities, "default", "second"); err != nil {
		t.Fatal(err)
	}
	recount()
	if err := i.ensureProxy(t.Context(), "first", proxy, true); err != nil {
		t.Error(err)
	}
	proxy.Metadata.Name, proxy.Metadata.Annotations["a"] = "large", strings.Repeat("x", maxDefinition)
	if err := i.ensureProxy(t.Context(), "first", proxy, true); rejectionOf(err) == nil {
		t.Errorf("a proxy entity with %d bytes of annotations: %v", maxDefinition, err)
	}
}

// sayOfHost sends the first keepalive of a session of an agent that manages its entity, with that many bytes of
// annotations and facts.
func sayOfHost(t *testing.T, i *Intake, name string, annotation, arch int) error {
	return i.Keepalive(t.Context(), &resource.Event{
		Timestamp: time.Now().Unix(),
		Check:     &resource.Check{Metadata: resource.ObjectMeta{Namespace: "default", Name: "keepalive"}, Interval: 20},
		Entity: &resource.Entity{
			EntityClass: resource.EntityAgentClass, System: resource.System{Arch: strings.Repeat("x", arch)},
			Metadata: resource.ObjectMeta{
				Namespace: "default", Name: name, Labels: map[string]string{ManagedByLabel: managedByAgent},
				Annotations: map[string]string{"a": strings.Repeat("x", annotation)},
			},
		},
	}, Source{Namespace: "default", Agent: name}, true)
}

// requireHost checks what is stored of an agent's host.
func requireHost(t *testing.T, i *Intake, name, want string) {
	t.Helper()
	if err := i.Report(t.Context(), "default", "behind-all", 0, ""); err != nil { // earlier records are folded then, too
		t.Fatal(err)
	}
	got := ""
	if _, ok := config.Get(i.opts.Config.Snapshot(), config.Entities, "default", name); ok {
		got = "defined"
	}
	if len(i.opts.State.EntityStateBytes("default", name)) > 0 {
		got += ", with facts"
	}
	if got != want {
		t.Errorf("%s is %q, want %q", name, got, want)
	}
}
