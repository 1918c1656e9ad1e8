package testpostgres

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if Remove() != nil && code == 0 {
			code = 1
		}
		os.Exit(code)
	}))
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func execute(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func value[T any](t *testing.T, conn *pgx.Conn, sql string) (v T) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func TestRealSettingsAndDatabases(t *testing.T) {
	s := Start(t, Options{Settings: map[string]string{"max_wal_size": "321MB", "application_name": "it's"}})
	a, b := connect(t, s.Database(t)), connect(t, s.Database(t))
	for name, want := range map[string]string{
		"max_wal_size": "321MB", "application_name": "it's", "fsync": "on", "server_encoding": "UTF8", "lc_collate": "C",
		"listen_addresses": "127.0.0.1",
	} {
		if got := value[string](t, a, "SHOW "+name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	execute(t, a, "CREATE TABLE only_here ()")
	if got := value[*string](t, b, "SELECT to_regclass('only_here')::text"); got != nil {
		t.Errorf("databases share table %s", *got)
	}
	fast := connect(t, Start(t, Options{NoFsync: true}).DSN())
	if got := value[string](t, fast, "SHOW fsync"); got != "off" {
		t.Errorf("fsync is %s, want off", got)
	}
}

func TestRealStopAndKillKeepData(t *testing.T) {
	s := Start(t, Options{})
	dsn := s.Database(t)
	execute(t, connect(t, dsn), "CREATE TABLE numbers AS SELECT 1 AS n")
	for name, end := range map[string]func(testing.TB){"stop": s.Stop, "kill": s.Kill} {
		pids := append(children(s.cmd.Process.Pid), s.cmd.Process.Pid)
		end(t)
		for _, pid := range pids {
			if state, _, ok := stat(pid); ok && state != 'Z' {
				t.Errorf("%s left process %d in state %c", name, pid, state)
			}
		}
		if conn, err := pgx.Connect(t.Context(), dsn); err == nil {
			_ = conn.Close(t.Context())
			t.Errorf("%s: the server takes connections", name)
		}
		s.StartAgain(t)
		if got := value[int](t, connect(t, dsn), "SELECT n FROM numbers"); got != 1 {
			t.Errorf("after %s the table holds %d", name, got)
		}
	}
}

func TestRealKilledServerIsRemoved(t *testing.T) {
	var dir string
	t.Run("server", func(t *testing.T) {
		s := Start(t, Options{NoFsync: true})
		dir = s.dir
		s.Kill(t)
	})
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directory of a killed server: %v", err)
	}
}

func TestRealPause(t *testing.T) {
	s := Start(t, Options{NoFsync: true})
	conn := connect(t, s.DSN())
	s.Pause(t)
	for _, pid := range s.paused {
		if state, _, ok := stat(pid); ok && state != 'T' && state != 'Z' {
			t.Errorf("process %d is in state %c", pid, state)
		}
	}
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "SELECT 1")
		done <- err
	}()
	select {
	case err := <-done:
		t.Errorf("a paused server answers: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	s.Resume(t)
	if err := <-done; err != nil {
		t.Errorf("after the pause: %v", err)
	}
}

func TestRealPausedServerIsRemoved(t *testing.T) {
	Start(t, Options{NoFsync: true}).Pause(t)
}

func TestVersion(t *testing.T) {
	for path, want := range map[string]int{
		"/usr/lib/postgresql/9/bin/initdb": 9, "/usr/lib/postgresql/17/bin/initdb": 17, "/usr/local/bin/initdb": 0,
	} {
		if got := version(path); got != want {
			t.Errorf("version(%s) = %d, want %d", path, got, want)
		}
	}
}
