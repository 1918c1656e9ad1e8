package backend_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/backend"
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/internal/testbroker"
	"github.com/lapwing-monitoring/lapwing/internal/testcert"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestPostgresAway: without its database a backend starts and is ready, and /health says that PostgreSQL is away.
func TestPostgresAway(t *testing.T) {
	get := func(b *testbackend.Backend, path string) string {
		t.Helper()
		resp, err := http.Get("http://" + b.APIAddr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("GET %s: %s %v: %s", path, resp.Status, err, body)
		}
		return string(body)
	}
	b := testbackend.Start(t, func(o *testbackend.Options) {
		o.Postgres.DSN = "postgres://lapwing:s3cret@127.0.0.1:1/x" // a port that nothing listens on
	})
	if text := get(b, "/ready"); text != "ready\n" {
		t.Errorf("/ready: %q", text)
	}
	health := get(b, "/health")
	for _, want := range []string{
		`"Err":"","Healthy":true}],"Header"`,
		`"PostgresHealth":[{"Name":"postgres","Err":"PostgreSQL is not written to`, `"Active":true,"Healthy":false}]`,
	} {
		if !strings.Contains(health, want) {
			t.Errorf("/health lacks %s: %s", want, health)
		}
	}
	if strings.Contains(health, "127.0.0.1:1") || strings.Contains(health, "s3cret") {
		t.Errorf("/health is public, and says too much: %s", health)
	}
	members, err := b.Client.Postgres(t.Context())
	if err != nil || len(members) != 1 || !members[0].Configured || members[0].Connected || members[0].Journal.MaxBytes == 0 {
		t.Errorf("status: %+v, %v", members, err)
	}
	without := testbackend.Start(t, nil)
	if text := get(without, "/health"); strings.Contains(text, "Postgres") {
		t.Errorf("/health without PostgreSQL: %s", text)
	}
}

// TestPostgresDefinitionBesideFlag: a definition that --postgres-dsn makes useless is logged, by name and without its
// DSN.
func TestPostgresDefinitionBesideFlag(t *testing.T) {
	logged := make(unusedDefinitions, 8)
	b := testbackend.Start(t, func(o *testbackend.Options) {
		o.Postgres.DSN = "postgres://lapwing@127.0.0.1:1/x" // a port that nothing listens on
		o.Logger = slog.New(slog.NewTextHandler(logged, nil))
	})
	definition := resource.PostgresConfig{
		Metadata: resource.ObjectMeta{Name: "reports"},
		Spec:     resource.PostgresSpec{DSN: "postgres://u:s3cret@127.0.0.1:1/y"},
	}
	err := b.Client.Do(t.Context(), http.MethodPut, "/api/enterprise/store/v1/provider/reports", definition, nil)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case line := <-logged:
		if !strings.Contains(line, "level=WARN") || !strings.Contains(line, "name=reports") || strings.Contains(line, "s3cret") {
			t.Errorf("logged: %s", line)
		}
	case <-time.After(time.Minute):
		t.Error("nothing was logged about the definition")
	}
}

// unusedDefinitions gets the lines of a log about definitions that have no effect.
type unusedDefinitions chan string

func (c unusedDefinitions) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "--postgres-dsn is set") {
		c <- string(line)
	}
	return len(line), nil
}

// TestPostgresDefinitionLacksAFile: a file is gone that the definition names. The backend starts, keeps the changes, says
// why it does not write them, and tries again. The password is neither in the status nor in the log.
func TestPostgresDefinitionLacksAFile(t *testing.T) {
	dir, ca := t.TempDir(), testcert.New(t, "ca").File
	file := filepath.Join(t.TempDir(), "ca.pem")
	var log safeBuffer
	start := func(t *testing.T) *testbackend.Backend {
		return testbackend.Start(t, func(o *testbackend.Options) {
			*o = testbackend.OptionsIn(dir)
			o.Logger, o.Postgres.Writer.RetryMax = slog.New(slog.NewJSONHandler(&log, nil)), 10*time.Millisecond
		})
	}
	t.Run("definition", func(t *testing.T) {
		testcert.Copy(t, ca, file)
		err := start(t).Client.Do(t.Context(), http.MethodPut, "/api/enterprise/store/v1/provider/db", map[string]any{
			"type": "PostgresConfig", "api_version": "store/v1", "metadata": map[string]any{"name": "db"},
			"spec": map[string]any{"dsn": "host=127.0.0.1 port=1 user=u password = HUNTER2 sslrootcert=" + file},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
	})
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	b := start(t)
	status := func(says string) {
		t.Helper()
		testbroker.Eventually(t, func() error {
			members, err := b.Client.Postgres(t.Context())
			if err != nil || len(members) != 1 || !members[0].Configured || !strings.Contains(members[0].Error, says) {
				return fmt.Errorf("status %+v, %v: want an error with %q", members, err, says)
			}
			if strings.Contains(members[0].Error, "HUNTER2") {
				t.Errorf("the status has the password: %s", members[0].Error)
			}
			return nil
		})
	}
	status("the file of sslrootcert cannot be read: no such file")
	if err := b.Client.Do(t.Context(), http.MethodPost, "/api/core/v2/namespaces/default/events", map[string]any{
		"entity": testbackend.Entity("web"), "check": map[string]any{
			"metadata": map[string]any{"name": "disk", "namespace": "default"}, "interval": 60, "status": 0,
		},
	}, nil); err != nil {
		t.Fatal(err)
	}
	testbroker.Eventually(t, func() error {
		if members, err := b.Client.Postgres(t.Context()); err != nil || members[0].Journal.Bytes == 0 {
			return fmt.Errorf("the journal is empty: %+v, %v", members, err)
		}
		return nil
	})
	testcert.Copy(t, ca, file)
	status("refused")
	if text := log.String(); strings.Contains(text, "HUNTER2") || !strings.Contains(text, "sslrootcert") {
		t.Errorf("log: %s", text)
	}
}

// safeBuffer is a buffer for several goroutines.
type safeBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// TestPostgresWithoutJournal: a file in the place of the journal's directory matters to a backend with --postgres-dsn
// alone. A bad DSN keeps it from starting, too, and the error does not have the password.
func TestPostgresWithoutJournal(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "postgres-journal"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var log safeBuffer
	t.Run("no database", func(t *testing.T) {
		testbackend.Start(t, func(o *testbackend.Options) {
			*o = testbackend.OptionsIn(dir)
			o.Logger = slog.New(slog.NewJSONHandler(&log, nil))
		})
	})
	if !strings.Contains(log.String(), "the journal for PostgreSQL cannot be opened") {
		t.Errorf("log: %s", &log)
	}
	for dsn, says := range map[string]string{
		"postgres://u@127.0.0.1:1/x":                                  "open the journal: ",
		"host=h user=u password = HUNTER2 sslrootcert=/nowhere/a.pem": "the file of sslrootcert cannot be read",
	} {
		o := testbackend.OptionsIn(dir)
		o.Postgres.DSN = dsn
		b, err := backend.New(o)
		if err == nil {
			err = errors.Join(b.Start(t.Context()), b.Stop(context.Background()))
		}
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "HUNTER2") {
			t.Errorf("%s: %v, want something with %q", dsn, err, says)
		}
	}
}

// TestPostgresEvent: a backend that keeps changes for a database that is away, on a disk that is nearly full, says so by
// an event.
func TestPostgresEvent(t *testing.T) {
	dir := t.TempDir()
	start := func(t *testing.T) *testbackend.Backend {
		return testbackend.Start(t, func(o *testbackend.Options) {
			*o = testbackend.OptionsIn(dir)
			o.Postgres.DSN, o.Postgres.Journal.MinFree = "postgres://lapwing@127.0.0.1:1/x", 1<<60
		})
	}
	const events = "/api/core/v2/namespaces/default/events"
	t.Run("one change", func(t *testing.T) {
		b := start(t)
		body := map[string]any{"entity": testbackend.Entity("web"), "check": map[string]any{
			"metadata": map[string]any{"name": "disk", "namespace": "default"}, "interval": 60, "status": 0,
		}}
		if err := b.Client.Do(t.Context(), http.MethodPost, events, body, nil); err != nil {
			t.Fatal(err)
		}
	})
	b := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var ev resource.Event
	for {
		err := b.Client.Do(ctx, http.MethodGet, events+"/"+resource.BackendEntity+"/postgres", nil, &ev)
		if err == nil {
			break
		}
		if !errors.Is(err, client.ErrNotFound) {
			t.Fatal(err)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("there is no event about PostgreSQL")
		}
	}
	for _, part := range []string{"the oldest changes are lost", "make room on the disk of the state directory", "lapwing postgres status"} {
		if ev.Check.Status != 2 || !strings.Contains(ev.Check.Output, part) {
			t.Errorf("status %d, %q lacks %q", ev.Check.Status, ev.Check.Output, part)
		}
	}
}
