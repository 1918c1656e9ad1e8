//go:build !agentonly

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/metric"
	"github.com/lapwing-monitoring/lapwing/metric/series"
	"github.com/lapwing-monitoring/lapwing/metric/whisper"
)

// runWhisper runs a command and returns its output and its exit status.
func runWhisper(t *testing.T, cmd *cobra.Command, args ...string) (out string, status int, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetArgs(append(args, "--config-file", os.DevNull))
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.ExecuteContext(t.Context())
	var code exitStatus
	switch {
	case errors.As(err, &code):
		return stdout.String(), code.code, nil
	case err != nil:
		return stdout.String(), 1, err
	}
	return stdout.String(), 0, nil
}

func TestWhisperCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree, state, out := filepath.Join(dir, "tree"), filepath.Join(dir, "state"), filepath.Join(dir, "out")
	schemas := filepath.Join(dir, "schemas.conf")
	if err := os.WriteFile(schemas, []byte("[all]\npattern = .*\nretentions = 10s:1h,1m:1d\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	archives := []series.Archive{{Step: 10, Points: 360}, {Step: 60, Points: 1440}}
	now := time.Now().Unix()
	points := [][]whisper.Point{{{Time: now - 600, Value: 1.5}},
		{{Time: now - 7200, Value: 2.5}, {Time: now - 600, Value: 1.5}}}
	for _, name := range []string{"a.b", "a.c"} {
		path, err := whisper.PathOf(tree, name, true)
		if err != nil {
			t.Fatal(err)
		}
		if err := whisper.Write(path, archives, series.Average, 0, points); err != nil {
			t.Fatal(err)
		}
	}
	flags := []string{"--state-dir", state, "--storage-schemas-file", schemas}
	with := func(args ...string) []string { return append(args, flags...) }

	text, status, err := runWhisper(t, importWhisperCommand(), with(tree)...)
	if err != nil || status != 0 {
		t.Fatalf("import: status %d, %v\n%s", status, err, text)
	}
	for _, want := range []string{"files              2\n", "imported           2\n", "points             6",
		"read back and equal  6\n"} {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), strings.Join(strings.Fields(want), " ")) {
			t.Errorf("import says\n%s\nwithout %q", text, want)
		}
	}

	// The second time, only what is new counts. A bad file is in the report.
	if err := os.WriteFile(filepath.Join(tree, "bad.wsp"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	text, status, err = runWhisper(t, importWhisperCommand(), with(tree, "--output", "json")...)
	var report whisper.Report
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Errorf("report %s: %v", text, err)
	}
	if err != nil || status != exitIncomplete || report.Done != 2 || report.FailedCount != 1 ||
		!strings.Contains(report.Failed[0].Reason, "the file is empty") {
		t.Errorf("second import: status %d, %v, %+v", status, err, report)
	}

	text, status, err = runWhisper(t, exportWhisperCommand(), with(out, "a.b")...)
	if err != nil || status != 0 || !strings.Contains(text, "files written") {
		t.Fatalf("export: status %d, %v\n%s", status, err, text)
	}
	f, err := whisper.Read(filepath.Join(out, "a", "b.wsp"), whisper.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range archives {
		want := points[i][len(points[i])-1]
		got := f.Archives[i].Points()
		if len(got) != len(points[i]) || got[len(got)-1] != (whisper.Point{Time: series.Floor(want.Time, a.Step), Value: want.Value}) {
			t.Errorf("archive %d: %v", i, got)
		}
	}

	// Not while a server has the store open.
	off, err := metric.OpenOffline(metric.OfflineOptions{Dir: state})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := runWhisper(t, importWhisperCommand(), with(tree)...); !errors.Is(err, metric.ErrInUse) {
		t.Errorf("import into a store in use: %v", err)
	}
	if err := off.Close(); err != nil {
		t.Error(err)
	}

	for want, args := range map[string][]string{
		"no directory tiers":    {out, "--state-dir", filepath.Join(dir, "nowhere")},
		"neither text nor json": with(out, "--output", "xml"),
	} {
		if _, _, err := runWhisper(t, exportWhisperCommand(), args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("export %v: error %v, want %q", args, err, want)
		}
	}
	for want, args := range map[string][]string{
		"--match":             with(tree, "--match", "("),
		"--tagged-names-file": with(tree, "--tagged-names-file", filepath.Join(dir, "none")),
	} {
		if _, _, err := runWhisper(t, importWhisperCommand(), args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("import %v: error %v, want %q", args, err, want)
		}
	}
}
