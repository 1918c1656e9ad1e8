//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A member's state is on an ext4 of its own in a sparse file. Freezing the file system is a disk that stands still:
// writes and syncs wait until it is thawed, and a process that waits for one cannot even be killed. Freezing it again
// and again is a slow disk. Neither needs device mapper, which many kernels do not have. Shutting the file system down
// without a flush is a power cut: what was written and not synced is gone when it is mounted again.

const (
	diskBytes = 768 << 20
	diskImage = "disk.img"
	diskMount = "disk"

	// FIFREEZE and FITHAW of linux/fs.h, EXT4_IOC_SHUTDOWN of linux/ext4.h.
	ioctlFreeze   = 0xC0045877
	ioctlThaw     = 0xC0045878
	ioctlShutdown = 0x8004587D
	// noLogFlush shuts down without writing anything more, not even the journal.
	noLogFlush = 2
)

// disk is a member's disk.
type disk struct {
	image, dir string

	full atomic.Bool // from fill to empty

	mu      sync.Mutex    // guards the fields below
	stop    chan struct{} // ends the slowness; nil if there is none
	stopped chan struct{}
}

// newDisk makes and mounts a disk below a directory. The kernel unmounts it with the sandbox.
func newDisk(parent string) (*disk, error) {
	d := &disk{image: filepath.Join(parent, diskImage), dir: filepath.Join(parent, diskMount)}
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Create(d.image)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(diskBytes); err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	if err := command("mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1", d.image); err != nil {
		return nil, err
	}
	return d, d.mount()
}

func (d *disk) mount() error { return command("mount", "-o", "loop", d.image, d.dir) }

// lose ends the disk's work at once, as a power cut does. The disk must be mounted again, after the end of the
// processes that use it.
func (d *disk) lose() error {
	root, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if err := unix.IoctlSetPointerInt(int(root.Fd()), ioctlShutdown, noLogFlush); err != nil {
		return fmt.Errorf("shut down %s: %w", d.dir, err)
	}
	return nil
}

// remount brings a lost disk back, with what was synced.
func (d *disk) remount() error {
	if err := command("umount", d.dir); err != nil {
		return err
	}
	return d.mount()
}

func command(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// removeDisks removes the disks of a run from its directory. They are large.
func removeDisks(runDir string) {
	images, _ := filepath.Glob(filepath.Join(runDir, "*", diskImage))
	for _, image := range images {
		_ = os.Remove(image)
	}
}

// slow makes the disk stand still for a time again and again, with short times of work in between, until fast is
// called.
func (d *disk) slow(stall, work time.Duration) error {
	root, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	stop, stopped := make(chan struct{}), make(chan struct{})
	d.stop, d.stopped = stop, stopped
	go func() {
		defer close(stopped)
		defer func() { _ = root.Close() }()
		fd := int(root.Fd())
		for goesOn := true; goesOn; {
			if err := unix.IoctlSetInt(fd, ioctlFreeze, 0); err != nil {
				fmt.Fprintf(os.Stderr, "chaos: freeze %s: %v\n", d.dir, err)
				return
			}
			goesOn = pause(stop, stall)
			if err := unix.IoctlSetInt(fd, ioctlThaw, 0); err != nil {
				fmt.Fprintf(os.Stderr, "chaos: thaw %s: %v\n", d.dir, err)
				return
			}
			goesOn = goesOn && pause(stop, work)
		}
	}()
	return nil
}

// pause waits, and reports whether it waited to the end.
func pause(stop <-chan struct{}, length time.Duration) bool {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-stop:
		return false
	}
}

// fast ends slow.
func (d *disk) fast() {
	d.mu.Lock()
	stop, stopped := d.stop, d.stopped
	d.stop = nil
	d.mu.Unlock()
	if stop != nil {
		close(stop)
		<-stopped
	}
}

func (d *disk) ballast() string { return filepath.Join(d.dir, "ballast") }

// fill takes all free space but a little.
func (d *disk) fill(leave int64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(d.dir, &fs); err != nil {
		return fmt.Errorf("free space of %s: %w", d.dir, err)
	}
	d.full.Store(true)
	f, err := os.Create(d.ballast())
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	free := int64(fs.Bavail)*fs.Bsize - leave
	if free <= 0 {
		return nil
	}
	if err := unix.Fallocate(int(f.Fd()), 0, 0, free); err != nil {
		return fmt.Errorf("fill %s: %w", d.dir, err)
	}
	return nil
}

// empty makes room again, for good: a power cut does not bring the file back.
func (d *disk) empty() error {
	if err := os.Remove(d.ballast()); err != nil && !os.IsNotExist(err) {
		return err
	}
	root, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	err = errors.Join(root.Sync(), root.Close())
	d.full.Store(false)
	return err
}
