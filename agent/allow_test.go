//go:build unix

package agent

import (
	"crypto/sha512"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

func writeAllowList(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "allow.yml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAllowList(t *testing.T) {
	t.Parallel()
	list, err := readAllowList(writeAllowList(t, `
- exec: check-disk
  args: ["-w 80", "-c", "90", "-v"]
- exec: /usr/bin/env sh
  args: [""]
- exec: builtin:cpu
  args: ["--warning 90"]
`))
	if err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]bool{
		"check-disk":                          true,
		"check-disk -w 80 -c 90":              true,
		"  check-disk   -c 90   -w 80 -v -v ": true,
		"check-disk -w 8":                     false,
		"check-disk -w":                       false,
		"check-disk 80":                       false,
		"check-disks":                         false,
		"check-disk; reboot":                  false,
		"check-disk -v;reboot":                false,
		"check-disk $(reboot)":                false,
		"check-disk -v\nreboot":               false,
		"sudo check-disk":                     false,
		"/usr/bin/env sh":                     true,
		"/usr/bin/env":                        false,
		"/usr/bin/env sh -c reboot":           false,
		"builtin:cpu --warning 90":            true,
		"builtin:log --warning 90":            false,
		"":                                    false,
	} {
		if _, ok := list.find(command, "/bin"); ok != want {
			t.Errorf("%q is allowed: %v, want %v", command, ok, want)
		}
	}
}

func TestAllowListChecksum(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := []byte("#!/bin/sh\n")
	if err := os.WriteFile(filepath.Join(dir, "plugin"), script, 0o700); err != nil {
		t.Fatal(err)
	}
	sum := sha512.Sum512(script)
	list := allowList{{Exec: "plugin", Args: []string{}, Sha512: strings.ToUpper(hex.EncodeToString(sum[:]))}}
	if _, ok := list.find("plugin", "/nowhere:"+dir); !ok {
		t.Error("it is not found in the search path")
	}
	if _, ok := list.find("plugin", "/nowhere"); ok {
		t.Error("a program that is not there is allowed")
	}
	if err := os.WriteFile(filepath.Join(dir, "plugin"), append(script, '\n'), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, ok := list.find("plugin", dir); ok {
		t.Error("a program that was changed is allowed")
	}
}

func TestAllowListRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"- exec: a":                        "no args",
		"- args: ['']":                     "no exec",
		"- {exec: a, args: [], arg: x}":    "unknown field",
		"exec: a":                          "cannot unmarshal",
		`[{"exec": "a", "args": "b"}]`:     "cannot unmarshal",
		"- exec: a\n  args: ['\n  more: {": "",
	} {
		if _, err := readAllowList(writeAllowList(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", text, err, want)
		}
	}
	if _, err := readAllowList("/nowhere"); err == nil {
		t.Error("a file that is not there is read")
	}
}

func TestAgentAllowList(t *testing.T) {
	t.Parallel()
	path := writeAllowList(t, `[{"exec": "echo", "args": ["r7", "$WHO"]}, {"exec": "env", "args": [], "enable_env": true}]`)
	b := new(fakeBackend).start(t)
	_, s := startAgent(t, b, func(o *Options) { o.AllowList = path })
	issued := int64(0)
	run := func(command string) *resource.Check {
		t.Helper()
		config := shellCheck("c", command)
		config.EnvVars = []string{"WHO=somebody"}
		config.CheckHooks = []resource.HookList{{Type: "ok", Hooks: []string{"h"}}}
		issued++
		hook := resource.HookConfig{Metadata: resource.ObjectMeta{Name: "h", Namespace: "default"}, Command: "reboot", Timeout: 1}
		return s.request(&resource.CheckRequest{Config: config, Issued: issued, Hooks: []resource.HookConfig{hook}}).Check
	}
	c := run("echo {{ .labels.rack }} $WHO") // allowed with its tokens replaced
	if c.Status != 0 || c.Output != "r7\n" {
		t.Errorf("allowed: got %d %q", c.Status, c.Output)
	}
	if len(c.Hooks) != 1 || c.Hooks[0].Status != 3 || !strings.Contains(c.Hooks[0].Output, "denied by the agent allow list") {
		t.Errorf("hook: got %+v", c.Hooks)
	}
	if c := run("env"); !strings.Contains(c.Output, "WHO=somebody") {
		t.Errorf("with its environment: got %q", c.Output)
	}
	if c := run("echo r8"); c.Status != 3 || c.Output != "check command denied by the agent allow list" {
		t.Errorf("denied: got %d %q", c.Status, c.Output)
	}
	if c := run("builtin:load"); c.Status != 3 {
		t.Errorf("collector that is not in the list: got %d %q", c.Status, c.Output)
	}
	if _, err := New(Options{AllowList: "/nowhere"}); err == nil {
		t.Error("an agent starts without its list")
	}
}
