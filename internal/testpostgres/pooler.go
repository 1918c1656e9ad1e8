package testpostgres

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Pooler runs PgBouncer in front of the server until the test ends. through returns the way to a database of the server
// through it. Clients share its connections as mode says: "session" or "transaction"; each use takes another connection.
// The test is skipped if PgBouncer is not installed.
func (s *Server) Pooler(t testing.TB, mode string) (through func(dsn string) string) {
	t.Helper()
	program, err := exec.LookPath("/usr/sbin/pgbouncer")
	if err != nil {
		if program, err = exec.LookPath("pgbouncer"); err != nil {
			t.Skip("PgBouncer is not installed: no /usr/sbin/pgbouncer, and none in PATH")
		}
	}
	for range 20 {
		port := freePort(t)
		if err = s.pool(t, program, mode, port); err == nil {
			return func(dsn string) string {
				return strings.Replace(dsn, fmt.Sprintf(":%d/", s.port), fmt.Sprintf(":%d/", port), 1)
			}
		}
		if !errors.Is(err, errPort) {
			break
		}
	}
	t.Fatal(err)
	return nil
}

// pool starts PgBouncer and waits until it takes connections.
func (s *Server) pool(t testing.TB, program, mode string, port int) error {
	dir, err := newDir()
	if err != nil {
		return err
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	settings := filepath.Join(dir, "pgbouncer.ini")
	err = os.WriteFile(settings, fmt.Appendf(nil, `[databases]
* = host=127.0.0.1 port=%d user=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = %s
default_pool_size = 4
server_round_robin = 1
`, s.port, User, port, mode), 0o644) //nolint:gosec // PgBouncer runs as another user
	if err != nil {
		return err
	}
	cmd := exec.Command(program, "--quiet", settings)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd.Stdout, cmd.Stderr = log, log
	if err := asUser(cmd); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start PgBouncer: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it says how a signal ended it
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		select {
		case <-ended:
			text, _ := os.ReadFile(log.Name())
			if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err != nil {
				return fmt.Errorf("start PgBouncer: %w: %d", errPort, port)
			} else {
				_ = l.Close()
			}
			return fmt.Errorf("PgBouncer ended at its start:\n%s", text)
		default:
		}
		if conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return conn.Close()
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(log.Name())
			return fmt.Errorf("PgBouncer is not ready after %s:\n%s", patience, text)
		}
	}
}
