package proc

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// rssUnit is the system's unit for memory.
const rssUnit = 1024

// markName is the variable that all descendants of a command inherit, unless they empty their environment.
const markName = "LAPWING_RUN"

// maxHunt bounds the search for processes that have left the process group.
const maxHunt = time.Second

// tree is a command and all processes that it starts.
type tree struct {
	cmd   *exec.Cmd
	mark  []byte // as in an environment
	group *cgroup
	watch bool         // the command's memory is wanted
	seen  *memoryWatch // nil unless watch
}

func newTree(cmd *exec.Cmd, opts *Options) (*tree, error) {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	mark := markName + "=" + hex.EncodeToString(random[:])
	cmd.Env = append(cmd.Env, mark)
	t := &tree{cmd: cmd, mark: []byte(mark), watch: opts.WatchMemory}
	if opts.Cgroups == nil {
		return t, nil
	}
	var err error
	if t.group, err = opts.Cgroups.add(opts.Limits); err != nil {
		return t, err
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(t.group.dir.Fd())
	return t, nil
}

func (t *tree) started() error {
	if t.watch {
		t.seen = watchMemory(t.cmd.Process.Pid)
	}
	return nil
}

func (t *tree) close() {
	t.endWatch()
	if t.group != nil {
		t.group.close()
	}
}

// endWatch returns the observed peak, and ends the sampling. It may be called more than once.
func (t *tree) endWatch() int64 {
	if t.seen == nil {
		return 0
	}
	defer func() { t.seen = nil }()
	return t.seen.end()
}

func (t *tree) usage(state *os.ProcessState) Usage {
	u := waited(state)
	if peak := t.endWatch(); u.Memory <= ownPeak() {
		u.Memory = peak
	}
	if t.group != nil {
		t.group.usage(&u)
	}
	return u
}

// kill kills all processes. It first stops everything, until a search finds nothing new: a stopped process can neither
// start others nor lose its children to init, where they would not be recognised any more.
func (t *tree) kill() error {
	if t.group != nil {
		if err := t.group.kill(); err == nil {
			return nil
		}
	}
	_ = syscall.Kill(-t.cmd.Process.Pid, syscall.SIGSTOP)
	deadline := time.Now().Add(maxHunt)
	for {
		found := t.members()
		for stopped := map[int]bool{}; time.Now().Before(deadline); found = t.members() {
			more := false
			for _, pid := range found {
				if !stopped[pid] {
					stopped[pid], more = true, true
					_ = syscall.Kill(pid, syscall.SIGSTOP)
				}
			}
			if !more {
				break
			}
		}
		err := killGroup(t.cmd)
		if err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		for _, pid := range found {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		switch {
		case len(found) == 0:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("some of its processes are still there after %s", maxHunt)
		}
		time.Sleep(pause)
	}
}

// process is a process as a search sees it.
type process struct {
	pid, parent int
	ours        bool
}

// members returns the processes with the mark, and all descendants of these and of the command, which may have emptied
// their environment. It leaves out zombies.
func (t *tree) members() (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var all []process
	at := map[int]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		parent, zombie, ok := parentOf(pid)
		if !ok || zombie {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		at[pid] = len(all)
		all = append(all, process{pid: pid, parent: parent, ours: pid == t.cmd.Process.Pid || err == nil && marked(env, t.mark)})
	}
	for more := true; more; {
		more = false
		for i := range all {
			p := &all[i]
			if above, ok := at[p.parent]; ok && !p.ours && all[above].ours {
				p.ours, more = true, true
			}
		}
	}
	for i := range all {
		if all[i].ours && all[i].pid != os.Getpid() {
			pids = append(pids, all[i].pid)
		}
	}
	return pids
}

// marked reports whether an environment contains the mark.
func marked(env, mark []byte) bool {
	for len(env) > 0 {
		one, rest, _ := bytes.Cut(env, []byte{0})
		if bytes.Equal(one, mark) {
			return true
		}
		env = rest
	}
	return false
}

// parentOf reads the stat file of a process, whose second field is a name in parentheses that may hold anything.
func parentOf(pid int) (parent int, zombie, ok bool) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, false, false
	}
	_, rest, found := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	fields := bytes.Fields(rest)
	if !found || len(fields) < 2 {
		return 0, false, false
	}
	parent, err = strconv.Atoi(string(fields[1]))
	return parent, fields[0][0] == 'Z' || fields[0][0] == 'X', err == nil
}
