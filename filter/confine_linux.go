package filter

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// workerPath is this program, even if its file was replaced since the start.
const workerPath = "/proc/self/exe"

// detach makes a worker die with the backend, and shields it from signals of the backend's terminal.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
}

// confine limits this process's resources. The memory is in addition to the present size: a binary with the race
// detector has terabytes.
func confine(memory int64) error {
	if err := closeInherited(); err != nil {
		return err
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	data, err := dataSize(status)
	if err != nil {
		return err
	}
	limit := uint64(data + memory*memoryFactor)
	for _, l := range []struct {
		which int
		to    unix.Rlimit
	}{
		{unix.RLIMIT_DATA, unix.Rlimit{Cur: limit, Max: limit}},
		{unix.RLIMIT_CORE, unix.Rlimit{}},
		{unix.RLIMIT_FSIZE, unix.Rlimit{}}, // a pipe is not a file
	} {
		if err := unix.Setrlimit(l.which, &l.to); err != nil {
			return fmt.Errorf("set limit %d: %w", l.which, err)
		}
	}
	// A script that breaks out of the engine must not gain rights from setuid programs.
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

// dataSize is the private writable memory of a process, in bytes.
func dataSize(status []byte) (int64, error) {
	for line := range bytes.Lines(status) {
		if kb, ok := strings.CutPrefix(string(line), "VmData:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kb), "kB")), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read /proc/self/status: %w", err)
			}
			return n << 10, nil
		}
	}
	return 0, fmt.Errorf("read /proc/self/status: it has no VmData")
}

// closeInherited closes files that the backend inherited without close-on-exec. It keeps those of Go's runtime.
func closeInherited() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < 3 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
	return nil
}
