//go:build !agentonly

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/client/migrate"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
)

const smallDump = `
type: CheckConfig
metadata: {name: disk, namespace: shop}
spec: {command: check-disk, interval: 30, subscriptions: [linux]}
`

func textFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestMigrateSensu(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	from, to := testbackend.Start(t, nil), testbackend.Start(t, nil)
	urlOf := func(b *testbackend.Backend) string { return "http://" + b.APIAddr().String() }
	location, err := to.Client.GrantAPIKey(t.Context(), testbackend.User)
	if err != nil {
		t.Fatal(err)
	}
	key := location[strings.LastIndexByte(location, '/')+1:]
	// command runs it and returns what it printed and its exit status.
	command := func(stdin string, args ...string) (stdout, stderr string, code int) {
		t.Helper()
		var out, errOut bytes.Buffer
		cmd := migrateSensuCommand()
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetIn(strings.NewReader(stdin))
		cmd.SetOut(&out)
		cmd.SetErr(&errOut)
		cmd.SetArgs(append([]string{"--api-url", urlOf(to), "--api-key", key}, args...))
		err := cmd.ExecuteContext(t.Context())
		if status, ok := err.(exitStatus); ok {
			return out.String(), errOut.String(), status.code
		}
		if err != nil {
			return out.String(), err.Error(), 1
		}
		return out.String(), errOut.String(), 0
	}
	report := func(text string) (r migrate.Report) {
		t.Helper()
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		return r
	}

	out, errOut, code := command(smallDump, "-f", "-", "-o", "json", "--dry-run")
	if r := report(out); code != 0 || !r.DryRun || r.Verified || len(r.Changes) != 2 ||
		!strings.Contains(errOut, "checks: 1") {
		t.Errorf("dry run: exit %d\n%s\n%s", code, out, errOut)
	}
	out, errOut, code = command("", "-f", textFile(t, smallDump), "-o", "json", "-q")
	if r := report(out); code != 0 || !r.Verified || len(r.Changes) != 2 || errOut != "" {
		t.Errorf("copy of a file: exit %d\n%s\n%s", code, out, errOut)
	}
	if _, err := client.Get(t.Context(), to.Client, client.Checks, "shop", "disk"); err != nil {
		t.Error(err)
	}
	out, _, code = command(strings.Replace(smallDump, "interval", "intervall", 1), "-f", "-")
	if code != 2 || !strings.Contains(out, "Refused:") {
		t.Errorf("copy of what is refused: exit %d\n%s", code, out)
	}

	password := textFile(t, testbackend.Password+"\n")
	out, errOut, code = command("", "--from", urlOf(from), "--from-username", testbackend.User, "--from-password-file",
		password)
	if code != 0 || !strings.Contains(out, "equal now") {
		t.Errorf("copy of a backend: exit %d\n%s\n%s", code, out, errOut)
	}

	for _, tc := range []struct {
		want string
		args []string
	}{
		{"no credentials", nil},
		{"no credentials", []string{"--from", urlOf(from)}},
		{"exclude", []string{"--from", urlOf(from), "-f", "x"}},
		{"no such file", []string{"-f", "/nowhere/at/all"}},
		{"same cluster", []string{"--from", urlOf(to), "--from-username", testbackend.User, "--from-password-file", password}},
		{"needs --from-password-file", []string{"--from", urlOf(from), "--from-username", testbackend.User}},
		{"nauthorized", []string{"--from", urlOf(from), "--from-username", testbackend.User, "--from-password-file", textFile(t, "wrong-password")}},
		{"line 2", []string{"-f", "-", "--password-hashes", textFile(t, "# comment\nann:plain\n")}},
		{`no namespace "shpo" (shop?)`, []string{"-f", "-", "--namespaces", "shpo"}},
		{"neither text nor json", []string{"-f", "-", "-o", "xml"}},
	} {
		if out, errOut, code := command(smallDump, tc.args...); code != 1 || !strings.Contains(errOut, tc.want) || out != "" {
			t.Errorf("%q: exit %d, %q, %q; want 1, %q", tc.args, code, out, errOut, tc.want)
		}
	}
}

func TestReadHashes(t *testing.T) {
	got, err := readHashes(textFile(t, "# who: what\n\nann:$2a$10$abc\r\nbob:$2y$05$d:ef\n"))
	if err != nil || len(got) != 2 || got["ann"] != "$2a$10$abc" || got["bob"] != "$2y$05$d:ef" {
		t.Errorf("got %v, %v", got, err)
	}
}
