package test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/backend"
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestDeadlinesOfUnreadableEvents damages the stored events of a dead host: its keepalive fails all the same, and so
// does a check of another host, with the status in its definition; an agent that wants it is deregistered.
func TestDeadlinesOfUnreadableEvents(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	begin := func() (*backend.Backend, *client.Client) {
		opts := testbackend.OptionsIn(dir)
		b, err := backend.New(opts)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		c, err := client.New(client.Options{URL: "http://" + b.APIAddr().String(), Username: testbackend.User, Password: testbackend.Password})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return b, c
	}
	b, c := begin()
	put := func(entity, check string, change func(*resource.Check)) {
		t.Helper()
		ev := &resource.Event{
			Entity: &resource.Entity{Metadata: resource.ObjectMeta{Name: entity, Namespace: "default"}, EntityClass: "agent", Deregister: entity == "short-lived"},
			Check:  &resource.Check{Metadata: resource.ObjectMeta{Name: check, Namespace: "default"}, Interval: 1, Executed: time.Now().Unix()},
		}
		change(ev.Check)
		if err := client.Put(t.Context(), c, client.Entities, "default", ev.Entity.Metadata.Name, ev.Entity); err != nil {
			t.Fatal(err)
		}
		if err := client.Post(t.Context(), c, client.Events, "default", ev); err != nil {
			t.Fatal(err)
		}
	}
	def := &resource.CheckConfig{
		Metadata: resource.ObjectMeta{Name: "backup", Namespace: "default"}, Command: "true", Interval: 1, TTL: 5, Subscriptions: []string{"linux"}, TTLStatus: 2,
	}
	if err := client.Put(t.Context(), c, client.Checks, "default", "backup", def); err != nil {
		t.Fatal(err)
	}
	put("short-lived", "keepalive", func(c *resource.Check) { c.Timeout = 5 })
	put("host-of-keepalive", "keepalive", func(c *resource.Check) { c.Timeout = 5 })
	put("host-of-backup", "backup", func(c *resource.Check) { c.TTL = 5 })
	if err := b.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	spoilBodies(t, dir)

	b, c = begin()
	defer func() {
		if err := b.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	for check, want := range map[string]uint32{"keepalive": 1, "backup": 2} {
		var ev *resource.Event
		eventually(t, time.Minute, "the deadline of "+check+" counts", func() (ok bool) {
			var err error
			ev, err = client.Get(t.Context(), c, client.Events, "default", client.EventName("host-of-"+check, check))
			return err == nil && ev.Check.Status == want
		})
		if ev.Entity.Metadata.Name != "host-of-"+check || ev.Check.Occurrences != 1 {
			t.Errorf("event of %s: %+v", check, ev.Check)
		}
	}
	eventually(t, time.Minute, "an agent that wanted it is deregistered", func() bool {
		_, err := client.Get(t.Context(), c, client.Entities, "default", "short-lived")
		return err != nil
	})
}

// spoilBodies overwrites the bodies of all stored events. It also removes the backend's notes about the database's
// files, or the backend would find that another program has written them.
func spoilBodies(t *testing.T, dir string) {
	t.Helper()
	db, err := pebble.Open(filepath.Join(dir, "state"), &pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{'b'}, UpperBound: []byte{'c'}})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		if err := db.Set(it.Key(), []byte{0xff, 0xff, 0xff}, pebble.Sync); err != nil {
			t.Fatal(err)
		}
		n++
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	if n != 3 {
		t.Fatalf("%d events are stored, want 3", n)
	}
	if err := os.Remove(filepath.Join(dir, "files")); err != nil {
		t.Fatal(err)
	}
}
