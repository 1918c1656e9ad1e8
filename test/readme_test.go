package test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
)

// readme runs the commands of README.md and CONTRIBUTING.md, in a directory that looks like the repository.
type readme struct {
	t          *testing.T
	dir        string
	api, agent string // addresses
	password   string
	env        []string // beside this process's
}

// pages returns the text of both pages.
func (r *readme) pages() (text []byte) {
	r.t.Helper()
	for _, path := range []string{"../README.md", "../CONTRIBUTING.md"} {
		page, err := os.ReadFile(path)
		if err != nil {
			r.t.Fatal(err)
		}
		text = append(text, page...)
	}
	return text
}

// commands are the lines of the pages' blocks of code that call the program, without their comments.
func (r *readme) commands() (out []string) {
	r.t.Helper()
	for line := range strings.Lines(string(r.pages())) {
		if command, ok := strings.CutPrefix(line, "    bin/lapwing "); ok {
			command, _, _ = strings.Cut(command, "  #")
			out = append(out, strings.TrimSpace(command))
		}
	}
	return out
}

// command makes a process of a line. Addresses and paths of the reader's machine are replaced by this test's.
func (r *readme) command(ctx context.Context, line string, more ...string) *exec.Cmd {
	here := strings.NewReplacer("127.0.0.1:8080", r.api, "127.0.0.1:8081", r.agent, "PASSWORD", r.password)
	cmd := exec.CommandContext(ctx, filepath.Join("bin", "lapwing"), append(strings.Fields(here.Replace(line)), more...)...)
	cmd.Dir = r.dir
	cmd.Env = append(append(os.Environ(), r.env...), "HOME="+r.dir, "XDG_CONFIG_HOME="+r.dir, "TMPDIR="+r.dir)
	return cmd
}

// run expects a line to end with one of these statuses.
func (r *readme) run(line string, statuses []int, more ...string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Minute)
	defer cancel()
	text, err := r.command(ctx, line, more...).CombinedOutput()
	status := 0
	if exit, ok := err.(*exec.ExitError); ok {
		status, err = exit.ExitCode(), nil
	}
	for _, s := range statuses {
		if err == nil && s == status {
			return string(text)
		}
	}
	r.t.Errorf("lapwing %s: exit status %d, %v\n%s", line, status, err, text)
	return string(text)
}

// background runs a line until the test ends, with its output in a file, whose name it returns.
func (r *readme) background(line string, more ...string) (output string) {
	r.t.Helper()
	cmd := r.command(context.WithoutCancel(r.t.Context()), line, more...)
	file, err := os.CreateTemp(r.dir, "output")
	if err != nil {
		r.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = file, file
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		_ = file.Close()
		if text, err := os.ReadFile(file.Name()); err == nil && r.t.Failed() {
			r.t.Logf("lapwing %s:\n%s", line, tailOf(text, 3000))
		}
	})
	return file.Name()
}

// says waits until a file contains a matching text, and returns the match's first group.
func (r *readme) says(file, pattern string) string {
	r.t.Helper()
	var found [][]byte
	eventually(r.t, time.Minute, "the output matches "+pattern, func() bool {
		text, err := os.ReadFile(file)
		if err != nil {
			r.t.Fatal(err)
		}
		found = regexp.MustCompile(pattern).FindSubmatch(text)
		return found != nil
	})
	return string(found[len(found)-1])
}

// TestREADME runs every command of both pages against a real backend. An unknown command fails it.
func TestREADME(t *testing.T) {
	t.Parallel()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	r := &readme{t: t, dir: t.TempDir(), api: "127.0.0.1:" + freePort(t), agent: "127.0.0.1:" + freePort(t)}
	repository, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(r.dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"bin/lapwing": path, "examples": repository + "/examples", "bench": repository + "/bench"} {
		if err := os.Symlink(to, filepath.Join(r.dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	agentPort := r.agent[strings.LastIndexByte(r.agent, ':')+1:]
	actions := map[string]func(line string){
		"backend": func(line string) {
			output := r.background(line, "--api-listen-address", r.api, "--agent-host", "127.0.0.1", "--agent-port", agentPort, "--config-file", os.DevNull, "--min-free-disk", "1000000")
			r.password = r.says(output, `with the password "([^"]+)"`)
			eventually(t, time.Minute, "the backend is ready", func() bool {
				resp, err := http.Get("http://" + r.api + "/ready")
				if err != nil {
					return false
				}
				defer resp.Body.Close()
				_, _ = io.Copy(io.Discard, resp.Body)
				return resp.StatusCode == http.StatusOK
			})
		},
		"agent": func(line string) {
			r.background(line, "--name", "here", "--config-file", os.DevNull, "--disable-api", "--disable-sockets", "--statsd-disable")
		},
		"configure": func(line string) {
			r.run(line, []int{0}, "-n", "--url", "http://"+r.api, "--username", "admin", "--password", r.password)
		},
		"create": func(line string) {
			r.run(line, []int{0})
			r.run(strings.Replace(line, "/checks.yaml", "", 1), []int{0}) // the other examples too
		},
		"event list": func(line string) {
			output := r.background(line)
			for _, check := range []string{"cpu", "disk", "hello"} {
				r.says(output, `here\W.*\b`+check+`\b`)
			}
		},
		"migrate sensu": func(line string) {
			from := testbackend.Start(t, nil) // acts as a Sensu backend
			r.env = append(r.env, "LAPWING_FROM_PASSWORD="+testbackend.Password)
			line = strings.Replace(line, "http://sensu:8080", "http://"+from.APIAddr().String(), 1)
			r.run(line, []int{0}, "--from-username", testbackend.User)
		},
		"doctor": func(line string) { r.run(line, []int{0, 1}, "--interval", "100ms") },
		"load": func(line string) {
			if _, file, ok := strings.Cut(line, "--scenario "); ok { // it takes minutes
				if _, err := os.Stat(filepath.Join(r.dir, strings.Fields(file)[0])); err != nil {
					t.Error(err)
				}
				return
			}
			more := []string{
				"--api-url", "http://" + r.api, "--backends", "ws://" + r.agent, "--count", "2", "--checks", "2", "--check-interval", "1s", "--duration", "3s",
				"--warm-up", "1s", "--probes", "1",
			}
			r.run(line, []int{0}, more...)
		},
	}
	commands := r.commands()
	if len(commands) < 8 {
		t.Fatalf("the pages have the commands %q", commands)
	}
	ran := map[string]bool{}
	for _, line := range commands {
		words := strings.Fields(line)
		act, name := actions[words[0]], words[0]
		if act == nil && len(words) > 1 {
			name = words[0] + " " + words[1]
			act = actions[name]
		}
		if act == nil {
			t.Errorf("a page calls lapwing %s, and this test does not know how to run that", line)
			continue
		}
		ran[name] = true
		act(line)
	}
	for name := range actions {
		if !ran[name] {
			t.Errorf("no page calls lapwing %s any more", name)
		}
	}
	// No block of code may write into a directory of the sources.
	for _, dir := range regexp.MustCompile(`--(?:state-dir|cache-dir|dir) \./(\S+)`).FindAllSubmatch(r.pages(), -1) {
		ignored, err := os.ReadFile("../.gitignore")
		if top, _, _ := bytes.Cut(dir[1], []byte("/")); err != nil || !bytes.Contains(ignored, fmt.Appendf(nil, "/%s/\n", top)) {
			t.Errorf("a page writes into %s, which is not left out of the repository", dir[1])
		}
	}
}
