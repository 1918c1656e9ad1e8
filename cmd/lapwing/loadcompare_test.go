//go:build !agentonly

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/client/load/report"
)

func TestLoadCompare(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"few", "many"} {
		if err := report.Write(filepath.Join(dir, name),
			&report.Report{Title: "run-" + name, Protocol: "sensu"}); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) (string, error) {
		cmd := loadCommand()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SetArgs(append([]string{"compare", "--output", filepath.Join(dir, "page")}, args...))
		err := cmd.Execute()
		return out.String(), err
	}
	// A run is given by its directory or its file.
	out, err := run(filepath.Join(dir, "few"), filepath.Join(dir, "many", report.JSONFile))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(strings.TrimSpace(out))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"run-few", "run-many"} {
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("the page does not mention %s", want)
		}
	}
	if _, err := run(filepath.Join(dir, "none")); err == nil {
		t.Error("a run that is not there was compared")
	}
}
