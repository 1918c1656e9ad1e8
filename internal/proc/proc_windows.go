package proc

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// shell passes the command unchanged: cmd.exe does not understand the quotes that os/exec would add. It does not run
// before it is in its job.
func shell(command string) *exec.Cmd {
	cmd := exec.Command("cmd")
	cmd.SysProcAttr = &syscall.SysProcAttr{CmdLine: "cmd /c " + command, CreationFlags: windows.CREATE_SUSPENDED}
	return cmd
}

// tree is a job: a command and all that it starts, none of which can leave it.
type tree struct {
	cmd *exec.Cmd
	job windows.Handle
}

func newTree(cmd *exec.Cmd, opts *Options) (*tree, error) {
	t := &tree{cmd: cmd}
	if opts.Cgroups != nil {
		return t, errNoCgroups
	}
	var err error
	if t.job, err = windows.CreateJobObject(nil, nil); err != nil {
		return t, fmt.Errorf("make job: %w", err)
	}
	return t, nil
}

// started puts the command into its job and lets it run.
func (t *tree) started() error {
	pid := uint32(t.cmd.Process.Pid)
	h, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, pid)
	if err != nil {
		return fmt.Errorf("open process: %w", err)
	}
	defer func() { _ = windows.CloseHandle(h) }()
	if err := windows.AssignProcessToJobObject(t.job, h); err != nil {
		return fmt.Errorf("assign process to job: %w", err)
	}
	return resume(pid)
}

// resume starts the threads of a process, which has one.
func resume(pid uint32) error {
	all, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return fmt.Errorf("list threads: %w", err)
	}
	defer func() { _ = windows.CloseHandle(all) }()
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err = windows.Thread32First(all, &entry); err == nil; err = windows.Thread32Next(all, &entry) {
		if entry.OwnerProcessID != pid {
			continue
		}
		h, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID)
		if err != nil {
			return fmt.Errorf("open thread: %w", err)
		}
		_, err = windows.ResumeThread(h)
		_ = windows.CloseHandle(h)
		if err != nil {
			return fmt.Errorf("resume thread: %w", err)
		}
	}
	return nil
}

func (t *tree) kill() error {
	if err := windows.TerminateJobObject(t.job, StatusTimeout); err != nil {
		return fmt.Errorf("end job: %w", err)
	}
	return nil
}

// usage is that of the command alone.
func (t *tree) usage(state *os.ProcessState) Usage {
	return Usage{CPU: state.UserTime() + state.SystemTime()}
}

// close lets processes in the background live on.
func (t *tree) close() {
	if t.job != 0 {
		_ = windows.CloseHandle(t.job)
	}
}

func exitStatus(state *os.ProcessState) int { return state.ExitCode() }

// variable makes names equal that differ in case only, as Windows does.
func variable(name string) string { return strings.ToUpper(name) }
