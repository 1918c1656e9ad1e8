//go:build unix

package agent

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

func shell(command string) *exec.Cmd { return exec.Command("sh", "-c", command) }

// group is a command's process group: the shell and all it starts, unless they leave it.
type group struct{ cmd *exec.Cmd }

// newGroup makes cmd, which has not started yet, the leader of a process group.
func newGroup(cmd *exec.Cmd) group {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return group{cmd}
}

// kill ends every process of the group at once.
func (g group) kill() error {
	err := syscall.Kill(-g.cmd.Process.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	if err != nil {
		return fmt.Errorf("kill process group: %w", err)
	}
	return nil
}

// exitStatus is the shell's view of how a process ended: its exit code, or 128 and the signal that ended it.
func exitStatus(state *os.ProcessState) int {
	if state == nil {
		return statusUnknown
	}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return state.ExitCode()
}

func envKey(name string) string { return name }
