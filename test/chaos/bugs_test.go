//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/internal/longtest"
)

// root is the module's directory, relative to this package's.
const root = "../.."

// bug is a fault of the product that is planted on purpose. Its file has, in paragraphs: what the fault is; the
// arguments of the schedule that finds it, and what the checker then says; and changes of the sources. A change is the
// path of a file, lines that are in it once, each behind a minus, and what replaces them, each behind a plus.
type bug struct {
	name    string
	args    []string
	finds   string
	changes []change
}

type change struct{ path, before, after string }

func bugs(t *testing.T) (all []bug) {
	t.Helper()
	paths, err := filepath.Glob("bugs/*.txt")
	if err != nil || len(paths) < 3 {
		t.Fatalf("there are %d planted bugs, %v; the harness must be tried on three at least", len(paths), err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		paragraphs := strings.Split(string(text), "\n\n")
		if len(paragraphs) < 3 {
			t.Fatalf("%s: it needs a text, a schedule and a change", path)
		}
		schedule, finds, _ := strings.Cut(paragraphs[1], "\n")
		args, isSchedule := strings.CutPrefix(schedule, "chaos: ")
		finds, isFinds := strings.CutPrefix(finds, "finds: ")
		if !isSchedule || !isFinds {
			t.Fatalf("%s does not say which schedule finds it, and what it finds", path)
		}
		b := bug{name: strings.TrimSuffix(filepath.Base(path), ".txt"), args: strings.Fields(args), finds: finds}
		for _, paragraph := range paragraphs[2:] {
			b.changes = append(b.changes, parseChange(t, path, paragraph))
		}
		all = append(all, b)
	}
	return all
}

func parseChange(t *testing.T, path, paragraph string) (c change) {
	t.Helper()
	for i, line := range strings.Split(strings.TrimSuffix(paragraph, "\n"), "\n") {
		switch {
		case i == 0:
			c.path = line
		case line[0] == '-':
			c.before += line[1:] + "\n"
		case line[0] == '+':
			c.after += line[1:] + "\n"
		default:
			t.Fatalf("%s: %q is neither before nor after", path, line)
		}
	}
	return c
}

// overlay makes changed copies of the files. It returns the path of a file for `go build -overlay`, which puts the
// copies in the place of the originals.
func (b *bug) overlay(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	for i, c := range b.changes {
		original, err := filepath.Abs(filepath.Join(root, c.path))
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(original)
		if err != nil {
			t.Fatalf("bugs/%s.txt: %v: plant the bug anew", b.name, err)
		}
		if n := strings.Count(string(text), c.before); n != 1 {
			t.Fatalf("bugs/%s.txt: %s has these lines %d times, and not once: plant the bug anew\n%s",
				b.name, c.path, n, c.before)
		}
		replace[original] = filepath.Join(dir, fmt.Sprintf("%d.go", i))
		planted := strings.Replace(string(text), c.before, c.after, 1)
		if err := os.WriteFile(replace[original], []byte(planted), 0o644); err != nil {
			t.Fatal(err)
		}
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
