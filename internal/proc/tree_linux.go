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

const (
	// maxHunt bounds the search for processes that have left the process group.
	maxHunt = time.Second
	// minPasses is how often all processes are looked at, even if that takes longer than maxHunt, as on a busy machine.
	minPasses = 10
)

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
// start others nor lose its children to init, where they would not be recognised any more. A process that was killed
// runs no more code, so it does not matter when the system removes it, unless it sleeps in the kernel.
func (t *tree) kill() error {
	if t.group != nil {
		if err := t.group.kill(); err == nil {
			return nil
		}
	}
	return t.hunt(time.Now().Add(maxHunt))
}

// hunt is kill without a control group.
func (t *tree) hunt(deadline time.Time) error {
	_ = syscall.Kill(-t.cmd.Process.Pid, syscall.SIGSTOP)
	killed := map[int]bool{}
	for pass := 1; ; pass++ {
		found := t.stop(deadline)
		err := killGroup(t.cmd)
		if err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		news, asleep := false, false
		for _, p := range found {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
			news, asleep = news || !killed[p.pid], asleep || p.state == 'D'
			killed[p.pid] = true
		}
		switch over := time.Now().After(deadline); {
		case len(found) == 0, over && !news && !asleep:
			return nil
		case over && (!news || pass >= minPasses):
			return fmt.Errorf("some of its processes are still there after %s", maxHunt)
		}
		time.Sleep(pause)
	}
}

// stop stops all processes, until a search finds nothing new, and returns what it has found.
func (t *tree) stop(deadline time.Time) []process {
	stopped := map[int]bool{}
	for pass := 1; ; pass++ {
		found, news := t.members(), false
		for _, p := range found {
			if !stopped[p.pid] {
				stopped[p.pid], news = true, true
				_ = syscall.Kill(p.pid, syscall.SIGSTOP)
			}
		}
		if !news || pass >= minPasses && time.Now().After(deadline) {
			return found
		}
	}
}

// process is a process as a search sees it.
type process struct {
	pid, parent int
	state       byte
	ours        bool
}

// members returns the processes with the mark, and all descendants of these and of the command, which may have emptied
// their environment. It leaves out zombies.
func (t *tree) members() (found []process) {
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
		parent, state, ok := parentOf(pid)
		if !ok || state == 'Z' || state == 'X' {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		at[pid] = len(all)
		all = append(all, process{
			pid: pid, parent: parent, state: state, ours: pid == t.cmd.Process.Pid || err == nil && marked(env, t.mark),
		})
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
			found = append(found, all[i])
		}
	}
	return found
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
func parentOf(pid int) (parent int, state byte, ok bool) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, 0, false
	}
	_, rest, found := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	fields := bytes.Fields(rest)
	if !found || len(fields) < 2 {
		return 0, 0, false
	}
	parent, err = strconv.Atoi(string(fields[1]))
	return parent, fields[0][0], err == nil
}
