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

// workerPath is this program, even if its file was replaced since it began.
const workerPath = "/proc/self/exe"

// detach has a worker die with the backend, and keeps the signals of the backend's terminal from it.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
}

// confine bounds this process. The memory is on top of what it has already: a binary with the race detector has terabytes.
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
		{unix.RLIMIT_FSIZE, unix.Rlimit{}}, // a pipe is no file
	} {
		if err := unix.Setrlimit(l.which, &l.to); err != nil {
			return fmt.Errorf("set limit %d: %w", l.which, err)
		}
	}
	// A script that breaks out of the engine gets nothing from programs that have more rights.
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

// closeInherited closes files that the backend has from its own parent without the mark that children do not get them. Those
// of Go's runtime stay.
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
