package proc

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// shell hands the command over as it is: cmd.exe does not understand the quotes that os/exec would add.
func shell(ctx context.Context, command string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "cmd")
	cmd.SysProcAttr = &syscall.SysProcAttr{CmdLine: "cmd /c " + command}
	return cmd
}

// killGroup kills the command only: Windows has no process groups, and what the command started goes on.
func killGroup(cmd *exec.Cmd) error { return cmd.Process.Kill() }

func exitStatus(state *os.ProcessState) int { return state.ExitCode() }

// variable makes names equal that differ in case only, as Windows does.
func variable(name string) string { return strings.ToUpper(name) }
