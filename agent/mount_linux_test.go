package agent

import (
	"syscall"
	"testing"
)

// mountSmall mounts a file system of 128 KiB on dir until the test ends.
func mountSmall(t *testing.T, dir string) {
	t.Helper()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=128k"); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
}
