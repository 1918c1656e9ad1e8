package testpostgres

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// serverUser returns the ids that servers run as: PostgreSQL refuses to run as root.
func serverUser() (uid, gid int, err error) {
	if os.Getuid() != 0 {
		return os.Getuid(), os.Getgid(), nil
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		return 0, 0, fmt.Errorf("find an ordinary user for PostgreSQL: %w", err)
	}
	if uid, err = strconv.Atoi(u.Uid); err != nil {
		return 0, 0, fmt.Errorf("user id of nobody: %w", err)
	}
	if gid, err = strconv.Atoi(u.Gid); err != nil {
		return 0, 0, fmt.Errorf("group id of nobody: %w", err)
	}
	return uid, gid, nil
}

// give makes the server's user the owner.
func give(dir string) error {
	uid, gid, err := serverUser()
	if err != nil {
		return err
	}
	return os.Chown(dir, uid, gid)
}

// asUser makes a command run as the server's user, in a session of its own: an interrupt of the tests is not its.
func asUser(cmd *exec.Cmd) error {
	uid, gid, err := serverUser()
	if err != nil {
		return err
	}
	cmd.Dir = "/" // the user need not be able to reach the test's
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	return nil
}

// freeze stops the server's first process, then its children, and returns all of them when they stand still.
func freeze(pid int) []int {
	send(pid, syscall.SIGSTOP)
	waitState(pid, "TZ")
	all := append([]int{pid}, children(pid)...)
	for _, child := range all[1:] {
		send(child, syscall.SIGSTOP)
	}
	for _, child := range all[1:] {
		waitState(child, "TZ")
	}
	return all
}

func thaw(pid int) { send(pid, syscall.SIGCONT) }

// send ignores errors: the process may have ended.
func send(pid int, sig syscall.Signal) { _ = syscall.Kill(pid, sig) }

// waitGone waits until the process runs no more. It may stay a zombie if the system's first process waits for none.
func waitGone(pid int) { waitState(pid, "ZX") }

// waitState waits until a process is in one of the states, or is gone.
func waitState(pid int, states string) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if state, _, ok := stat(pid); !ok || bytes.IndexByte([]byte(states), state) >= 0 {
			return
		}
	}
}

// children returns the processes that one has started: a server's processes have no children themselves.
func children(parent int) (found []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if _, of, ok := stat(pid); ok && of == parent {
				found = append(found, pid)
			}
		}
	}
	return found
}

// stat reads a process's state and parent, which follow its name in parentheses.
func stat(pid int) (state byte, parent int, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, false
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 2 {
		return 0, 0, false
	}
	parent, err = strconv.Atoi(string(fields[1]))
	return fields[0][0], parent, err == nil
}

// removeSharedMemory removes the segment of a killed server, which the system would keep.
func removeSharedMemory(id string) {
	if n, err := strconv.Atoi(id); err == nil {
		_, _ = unix.SysvShmCtl(n, unix.IPC_RMID, nil)
	}
}
