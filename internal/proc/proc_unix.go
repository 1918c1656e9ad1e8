//go:build unix

package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

func shell(command string) *exec.Cmd {
	cmd := exec.Command("sh", "-c", command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// killGroup kills a command's process group as a whole: no member can start another process in between.
func killGroup(cmd *exec.Cmd) error {
	err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	if err != nil {
		return fmt.Errorf("kill process group: %w", err)
	}
	return nil
}

// exitStatus is the shell's view of how a process ended: its exit code, or 128 plus the signal that ended it.
func exitStatus(state *os.ProcessState) int {
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return state.ExitCode()
}

// waited returns what the system counted for a process and the children it waited for.
func waited(state *os.ProcessState) Usage {
	u := Usage{CPU: state.UserTime() + state.SystemTime()}
	if ru, ok := state.SysUsage().(*syscall.Rusage); ok {
		u.Memory = int64(ru.Maxrss) * rssUnit
	}
	return u
}

func variable(name string) string { return name }

// pause is the time for the system to end killed processes before they are looked for again.
const pause = 2 * time.Millisecond
