//go:build !linux

package testpostgres

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"
)

// No server starts on these systems, so nothing needs to signal one.

func give(string) error {
	return fmt.Errorf("servers of PostgreSQL for tests run on Linux: %w", errors.ErrUnsupported)
}

func asUser(*exec.Cmd) error { return errors.ErrUnsupported }

func freeze(int) []int { return nil }

func thaw(int) {}

func send(int, syscall.Signal) {}

func waitGone(int) {}

func removeSharedMemory(string) {}
