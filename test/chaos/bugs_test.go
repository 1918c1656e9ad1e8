//go:build linux

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/internal/longtest"
)

// root is the module's directory, relative to this package's.
const root = "../.."

// bug is a fault of the product that is planted on purpose. The text above its patch has the arguments of the schedule
// that finds it, and what the checker then says.
type bug struct {
	name, patch string
	args        []string
	finds       string
}

var (
	bugArgs  = regexp.MustCompile(`(?m)^chaos: (.+)$`)
	bugFinds = regexp.MustCompile(`(?m)^finds: (.+)$`)
	bugFile  = regexp.MustCompile(`(?m)^--- a/(.+)$`)
)

func bugs(t *testing.T) (all []bug) {
	t.Helper()
	paths, err := filepath.Glob("bugs/*.patch")
	if err != nil || len(paths) < 3 {
		t.Fatalf("there are %d planted bugs, %v; the harness must be tried on three at least", len(paths), err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		args, finds := bugArgs.FindSubmatch(text), bugFinds.FindSubmatch(text)
		if args == nil || finds == nil {
			t.Fatalf("%s does not say which schedule finds it, and what it finds", path)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".patch")
		all = append(all, bug{name, string(text), strings.Fields(string(args[1])), string(finds[1])})
	}
	return all
}

// overlay applies a patch to copies of the files that it changes. It returns the path of a file for
// `go build -overlay`, which puts the copies in the place of the originals.
func (b *bug) overlay(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	for _, match := range bugFile.FindAllStringSubmatch(b.patch, -1) {
		original, err := filepath.Abs(filepath.Join(root, match[1]))
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(original)
		if err != nil {
			t.Fatal(err)
		}
		planted := filepath.Join(dir, match[1])
		if err := os.MkdirAll(filepath.Dir(planted), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(planted, text, 0o644); err != nil {
			t.Fatal(err)
		}
		replace[original] = planted
	}
	apply := exec.Command("git", "apply", "-")
	apply.Dir, apply.Stdin = dir, strings.NewReader(b.patch)
	apply.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("bugs/%s.patch does not apply any more: plant the bug anew.\n%s", b.name, out)
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPlantedBugsApply fails when the product has changed so that a planted bug does not fit any more.
func TestPlantedBugsApply(t *testing.T) {
	for _, b := range bugs(t) {
		b.overlay(t)
	}
}

// TestPlantedBugsAreFound plays the schedule of each planted bug. The checker must find it.
func TestPlantedBugsAreFound(t *testing.T) {
	longtest.Only(t)
	t.Parallel()
	for _, b := range bugs(t) {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			binary := filepath.Join(t.TempDir(), "lapwing")
			build := exec.Command("go", "build", "-overlay", b.overlay(t), "-o", binary, "./cmd/lapwing")
			build.Dir = root
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("build: %v\n%s", err, out)
			}
			status, out := chaos(t, append(b.args, "-binary", binary, "-rest", "40s")...)
			if status != exitViolated || !strings.Contains(out, b.finds) {
				t.Errorf("the planted bug was not found: exit status %d\n%s", status, out)
			}
		})
	}
}
