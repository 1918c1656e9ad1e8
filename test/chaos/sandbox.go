//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
)

// A run lives in namespaces of its own for mounts, networks and processes. When its process ends, even by SIGKILL, the
// kernel ends the backends in it, unmounts their disks and removes their networks. Only files stay.

// errCannot is the reason why this machine cannot play schedules.
var errCannot = errors.New("schedules cannot be played here")

// canPlay checks what runs need.
func canPlay() error {
	if os.Getuid() != 0 {
		return fmt.Errorf("%w: network namespaces and mounts need root", errCannot)
	}
	for _, program := range []string{"ip", "mount", "mkfs.ext4"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w: %s is missing: install iproute2, mount and e2fsprogs", errCannot, program)
		}
	}
	return nil
}

// enterSandbox runs this program once more in new namespaces, and returns its exit status.
func enterSandbox(ctx context.Context, args []string) int {
	// The kernel kills the child when the thread that began it ends, so the thread must not end earlier.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return exitPassed
	case errors.Is(err, syscall.EPERM):
		fmt.Fprintln(os.Stderr, "chaos: no namespaces here:", err)
		return exitCannot
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exit.ExitCode()
	}
	fmt.Fprintln(os.Stderr, "chaos:", err)
	return exitFailed
}

// furnishSandbox makes the mounts of the new namespaces.
func furnishSandbox() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", "/run/netns", "tmpfs", 0, ""); err != nil { // the names of this run's networks
		return fmt.Errorf("mount /run/netns: %w", err)
	}
	return nil
}

const (
	runPrefix   = "seed-"
	runningFile = "running" // the program that plays the run has a lock on it
)

// newRunDir makes the directory of a run, and locks it until the file is closed.
func newRunDir(parent string, seed uint64) (dir string, lock *os.File, err error) {
	dir, err = os.MkdirTemp(parent, fmt.Sprintf("%s%d-", runPrefix, seed))
	if err != nil {
		return "", nil, err
	}
	if lock, err = os.Create(filepath.Join(dir, runningFile)); err == nil {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
	}
	return dir, lock, err
}

// removeDeadRuns removes the directories of runs whose program was killed: they have the file, and no lock on it. Runs
// that failed have no such file, and stay.
func removeDeadRuns(parent string) error {
	paths, err := filepath.Glob(filepath.Join(parent, runPrefix+"*", runningFile))
	if err != nil {
		return err
	}
	for _, path := range paths {
		lock, err := os.Open(path)
		if err != nil {
			continue // its own program has removed it
		}
		dead := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
		_ = lock.Close()
		if !dead {
			continue
		}
		if err := os.RemoveAll(filepath.Dir(path)); err != nil {
			return err
		}
	}
	return nil
}
