package agent

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// shell keeps cmd.exe from seeing the quotes that os/exec would put around the command.
func shell(command string) *exec.Cmd {
	cmd := exec.Command("cmd")
	cmd.SysProcAttr = &syscall.SysProcAttr{CmdLine: `cmd /c ` + command}
	return cmd
}

// group is a command. Windows has no process groups to kill: what the command started outlives it.
type group struct{ cmd *exec.Cmd }

func newGroup(cmd *exec.Cmd) group { return group{cmd} }

func (g group) kill() error { return g.cmd.Process.Kill() }

func exitStatus(state *os.ProcessState) int {
	if state == nil {
		return statusUnknown
	}
	return state.ExitCode()
}

// envKey makes names that differ in case only equal, as they are on Windows.
func envKey(name string) string { return strings.ToUpper(name) }
