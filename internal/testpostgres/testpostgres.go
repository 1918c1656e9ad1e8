// Package testpostgres runs real PostgreSQL servers for tests, each a process in a directory of its own on a free port
// of the loopback interface. A test may stop, kill, pause and start its server again; the test's end stops and removes
// it. The programs are the newest that Debian's packages have installed, or those in PATH. A test is skipped if there
// are none, or if the system is not Linux. Each TestMain of a package that calls Start calls Remove at the end.
package testpostgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// User is the superuser of each server. It needs no password.
const User = "postgres"

// patience bounds each wait for a server: a busy machine with a slow disk needs a while.
const patience = 2 * time.Minute

// Options says how a server differs from one with PostgreSQL's defaults.
type Options struct {
	// Settings are added to postgresql.conf, so that ALTER SYSTEM can still change them.
	Settings map[string]string
	// NoFsync makes the server faster. It loses nothing if processes are killed, only if the machine fails.
	NoFsync bool
}

// Server is a PostgreSQL server. Its methods are for one goroutine at a time.
type Server struct {
	dir       string
	port      int
	cmd       *exec.Cmd
	ended     chan struct{} // closed when the process was waited for
	paused    []int
	databases int
}

var (
	errPort     = errors.New("its port is in use")
	errNoServer = errors.New("PostgreSQL is not installed: no initdb in /usr/lib/postgresql/*/bin, nor in PATH")
)

// shared is made once for all tests of a process: initdb takes a second.
var shared struct {
	once sync.Once
	err  error
	bin  string // the directory of programs
	dir  string // holds a new server's data
}

// Remove removes what servers share. The TestMain of a package that calls Start calls it at the end.
func Remove() error { return os.RemoveAll(shared.dir) }

// findPrograms returns the directory of the newest server's programs.
func findPrograms() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		path, err := exec.LookPath("initdb")
		if err != nil {
			return "", errNoServer
		}
		found = []string{path}
	}
	newest := slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })
	if newest, err = filepath.EvalSymlinks(newest); err != nil {
		return "", fmt.Errorf("find PostgreSQL: %w", err)
	}
	return filepath.Dir(newest), nil
}

// version is the major version in a path of Debian, else 0.
func version(initdb string) int {
	v, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(initdb))))
	if err != nil {
		return 0
	}
	return v
}

func prepare() error {
	var err error
	if shared.bin, err = findPrograms(); err != nil {
		return err
	}
	if shared.dir, err = newDir(); err != nil {
		return err
	}
	return run(filepath.Join(shared.bin, "initdb"), "--pgdata="+filepath.Join(shared.dir, "data"), "--auth=trust",
		"--username="+User, "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
}

// newDir makes a directory that the server's user owns.
func newDir() (string, error) {
	dir, err := os.MkdirTemp("", "lapwing-postgres-")
	if err != nil {
		return "", err
	}
	return dir, give(dir)
}

// run runs a program as the server's user.
func run(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	if err := asUser(cmd); err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s: %w\n%s", filepath.Base(name), err, out)
	}
	return nil
}

// Start runs a server until the test ends, and returns when it takes connections.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	shared.once.Do(func() { shared.err = prepare() })
	switch {
	case errors.Is(shared.err, errNoServer), errors.Is(shared.err, errors.ErrUnsupported):
		t.Skip(shared.err)
	case shared.err != nil:
		t.Fatal(shared.err)
	}
	dir, err := newDir()
	s := &Server{dir: dir}
	t.Cleanup(func() { s.close(t) })
	if err != nil {
		t.Fatal(err)
	}
	if err := run("cp", "-R", "-p", filepath.Join(shared.dir, "data"), s.data()); err != nil {
		t.Fatal(err)
	}
	if err := s.configure(o); err != nil {
		t.Fatalf("configure PostgreSQL: %v", err)
	}
	for range 20 {
		s.port = freePort(t)
		if err = s.start(); !errors.Is(err, errPort) {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) configure(o Options) error {
	// Shared memory in files goes with the directory, even if the server is killed.
	settings := []string{
		"listen_addresses = '127.0.0.1'", "unix_socket_directories = " + quote(s.dir), "dynamic_shared_memory_type = mmap",
	}
	if o.NoFsync {
		settings = append(settings, "fsync = off")
	}
	for name, value := range o.Settings {
		settings = append(settings, name+" = "+quote(value))
	}
	f, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("\n" + strings.Join(settings, "\n") + "\n")
	return errors.Join(err, f.Close())
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// PID returns the process id of the server's first process; the others are its children.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// freePort returns a port that nothing listens on. It is none that the system gives to connections: a server listens
// there again and again.
func freePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := 10_000 + rand.IntN(20_000)
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

// start starts the server and waits until it says that it is ready.
func (s *Server) start() error {
	path := filepath.Join(s.dir, "log")
	log, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	s.cmd = exec.Command(filepath.Join(shared.bin, "postgres"), "-D", s.data(), "-p", strconv.Itoa(s.port))
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := asUser(s.cmd); err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	cmd, ended := s.cmd, make(chan struct{})
	go func() {
		_ = cmd.Wait() // it says how a signal ended it
		close(ended)
	}()
	s.ended = ended
	for deadline := time.Now().Add(patience); !s.ready(); {
		select {
		case <-ended:
			s.cmd = nil
			text, _ := os.ReadFile(path)
			if strings.Contains(string(text), "Address already in use") {
				return fmt.Errorf("start PostgreSQL: %w: %d", errPort, s.port)
			}
			return fmt.Errorf("PostgreSQL ended at its start:\n%s", text)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(path)
			return fmt.Errorf("PostgreSQL is not ready after %s:\n%s", patience, text)
		}
	}
	return nil
}

// ready reads the file in which the server says how it is, and who it is: a port could be another server's.
func (s *Server) ready() bool {
	lines := s.pidFile()
	return len(lines) >= 8 && lines[0] == strconv.Itoa(s.cmd.Process.Pid) && strings.HasPrefix(lines[7], "ready")
}

func (s *Server) pidFile() []string {
	text, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		return nil
	}
	return strings.Split(string(text), "\n")
}

// DSN returns where the server's first database is.
func (s *Server) DSN() string { return s.dsn("postgres") }

func (s *Server) dsn(database string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", User, s.port, database)
}

// Database makes a new, empty database and returns its DSN.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	s.databases++
	name := fmt.Sprint("test", s.databases)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	return s.dsn(name)
}

// Log returns what the server has written since its last start.
func (s *Server) Log(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Stop stops the server in order. Connections are cut off.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	if err := s.end(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
}

// end sends the signal to a server that runs, and waits for its end.
func (s *Server) end(sig syscall.Signal) error {
	if s.cmd == nil {
		return nil
	}
	s.resume()
	_ = s.cmd.Process.Signal(sig) // it may have ended
	select {
	case <-s.ended:
		s.cmd = nil
		return nil
	case <-time.After(patience):
		s.kill()
		return fmt.Errorf("PostgreSQL has not stopped in %s: it was killed", patience)
	}
}

// StartAgain starts a stopped or killed server on the same port with the same data.
func (s *Server) StartAgain(t testing.TB) {
	t.Helper()
	if s.cmd != nil {
		t.Fatal("PostgreSQL runs already")
	}
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
}

// Kill kills all processes of the server as kill -9 does, and returns when they have ended.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	if s.cmd == nil {
		t.Fatal("PostgreSQL does not run")
	}
	s.kill()
}

// kill first freezes the server, since a frozen one starts no further process.
func (s *Server) kill() {
	all := freeze(s.cmd.Process.Pid)
	for _, pid := range all {
		send(pid, syscall.SIGKILL)
	}
	<-s.ended
	for _, pid := range all {
		waitGone(pid)
	}
	s.cmd, s.paused = nil, nil
}

// Pause freezes all processes of the server: connections stay open, and nothing answers.
func (s *Server) Pause(t testing.TB) {
	t.Helper()
	if s.cmd == nil {
		t.Fatal("PostgreSQL does not run")
	}
	s.paused = freeze(s.cmd.Process.Pid)
}

// Resume ends Pause.
func (s *Server) Resume(t testing.TB) {
	t.Helper()
	s.resume()
}

func (s *Server) resume() {
	for _, pid := range s.paused {
		thaw(pid)
	}
	s.paused = nil
}

// close stops and removes the server. It does not wait for a checkpoint, since the data goes too.
func (s *Server) close(t testing.TB) {
	if err := s.end(syscall.SIGQUIT); err != nil {
		t.Error(err)
	}
	if lines := s.pidFile(); len(lines) >= 7 { // it was killed, and not started again
		if fields := strings.Fields(lines[6]); len(fields) == 2 {
			removeSharedMemory(fields[1])
		}
	}
	if err := os.RemoveAll(s.dir); err != nil {
		t.Errorf("remove PostgreSQL: %v", err)
	}
}
