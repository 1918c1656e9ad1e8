//go:build !agentonly

package main

import (
	"io"
	"strings"
	"testing"
)

// TestVerifyAnUnusedDirectory: a check of a backup must not pass because the directory is the wrong one.
func TestVerifyAnUnusedDirectory(t *testing.T) {
	cmd := backendCommand()
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	cmd.SetArgs([]string{"verify", "--state-dir", t.TempDir()})
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "no backend has used") {
		t.Errorf("got %v", err)
	}
}
