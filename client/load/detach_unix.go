//go:build unix

package load

import (
	"os/exec"
	"syscall"
)

// detach keeps the terminal's signals from a command.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
