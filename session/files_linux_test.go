package session_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// filesVariable makes a process of this test run a backend with few file descriptors.
const filesVariable = "LAPWING_TEST_FILES"

// TestFilesRunOut opens 1,500 connections to a backend with a limit of 1,024 files, and leaves them idle. Agents and
// users with credentials still get in, even if the configured bounds are higher than the limit of files.
func TestFilesRunOut(t *testing.T) {
	if most := os.Getenv(filesVariable); most != "" {
		backendWithFewFiles(t, most)
		return
	}
	for _, most := range []string{"default", "5000"} {
		t.Run(most, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFilesRunOut$")
			cmd.Env = append(os.Environ(), filesVariable+"="+most)
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			var log lockedBuffer
			cmd.Stderr = &log
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(stdout)
			first, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			var api, agents string
			if _, err := fmt.Sscan(first, &api, &agents); err != nil {
				t.Fatalf("%q: %v", first, err)
			}
			attackFiles(t, api, agents)
			stdin.Close()
			rest, _ := io.ReadAll(lines)
			if err := cmd.Wait(); err != nil {
				t.Errorf("the backend ended with %v\n%s", err, rest)
			}
			want := "connections are running out"
			if most != "default" {
				want = "file descriptors are used up"
			}
			if text := log.String(); !strings.Contains(text, want) {
				t.Errorf("nothing was logged of it: %s", text)
			}
		})
	}
}

func attackFiles(t *testing.T, api, agents string) {
	t.Helper()
	for i := range 1_500 {
		to := agents
		if i%5 == 4 {
			to = api
		}
		c, err := net.DialTimeout("tcp", to, 20*time.Second)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		defer c.Close()
	}
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for i := range 5 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+api+"/auth", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth(testbackend.User, testbackend.Password)
		resp, err := client.Do(req)
		if err != nil {
			t.Errorf("sign-in %d: %v", i, err)
		} else {
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("sign-in %d: %s", i, resp.Status)
			}
		}
	}
	// Each in turn needs descriptors, and no sign-in in between gives one back.
	for i := range 20 {
		conn, _, err := testbackend.DialAgentAt("ws://"+agents, fmt.Sprint("agent-", i), nil)
		if err != nil {
			t.Errorf("agent %d: %v", i, err)
			continue
		}
		defer conn.Close(wire.CloseGoingAway, "bye")
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(); err != nil {
			t.Errorf("agent %d: %v", i, err)
		}
	}
}

// backendWithFewFiles is the child process. most is its bound on connections.
func backendWithFewFiles(t *testing.T, most string) {
	few := syscall.Rlimit{Cur: 1024, Max: 1024}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	b := testbackend.Start(t, func(o *testbackend.Options) {
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
		if most != "default" {
			o.Session.MaxConnections, o.APIConns.Max = 5000, 5000
		}
	})
	fmt.Println(b.APIAddr(), b.AgentAddr())
	_, _ = io.Copy(io.Discard, os.Stdin)
}
