package proc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Cgroups are control groups (version 2) for commands, below that of this process. No process can leave its group, so
// all of a command can be killed at once and its usage counted. With the controllers it can be limited too.
type Cgroups struct {
	dir    string
	limits bool
	number atomic.Uint64

	mu   sync.Mutex // guards left
	left []string   // groups with children in the background
}

// OpenCgroups prepares control groups. It needs the right to: root's, or a group that systemd has delegated. For limits
// this process moves into a group of its own beside them.
func OpenCgroups(name string) (*Cgroups, error) {
	base, err := ownCgroup()
	if err != nil {
		return nil, err
	}
	c := &Cgroups{dir: filepath.Join(base, name+"-"+strconv.Itoa(os.Getpid()))}
	if err := os.Mkdir(c.dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("make control group: %w", err)
	}
	if _, err := os.Stat(filepath.Join(c.dir, "cgroup.kill")); err != nil {
		_ = os.Remove(c.dir)
		return nil, fmt.Errorf("control groups cannot kill on this system: %w", err)
	}
	c.limits = enableControllers(base, c.dir)
	return c, nil
}

// ownCgroup is the directory of this process's control group.
func ownCgroup() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("find control groups: %w", err)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", fmt.Errorf("find control groups: %w", err)
	}
	path, ok := "", false
	for line := range strings.Lines(string(own)) {
		if rest, found := strings.CutPrefix(strings.TrimSpace(line), "0::"); found {
			path, ok = rest, true
		}
	}
	for line := range strings.Lines(string(mounts)) {
		before, after, found := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if ok && found && strings.HasPrefix(after, "cgroup2 ") && len(fields) > 4 {
			return filepath.Join(fields[4], path), nil
		}
	}
	return "", errNoCgroups
}

// controllers are the ones that Limits need.
var controllers = []string{"cpu", "memory", "pids"}

// enableControllers enables limits for groups below dir, if possible.
func enableControllers(base, dir string) bool {
	available, err := os.ReadFile(filepath.Join(base, "cgroup.controllers"))
	if err != nil {
		return false
	}
	for _, name := range controllers {
		if !slices.Contains(strings.Fields(string(available)), name) {
			return false
		}
	}
	enable := func(dir string) error {
		return os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+strings.Join(controllers, " +")), 0)
	}
	if enable(base) == nil {
		return enable(dir) == nil
	}
	// A group with its own processes cannot limit groups below it.
	self := filepath.Join(base, "self")
	if err := os.Mkdir(self, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return false
	}
	if err := os.WriteFile(filepath.Join(self, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		return false
	}
	return enable(base) == nil && enable(dir) == nil
}

// CanLimit reports whether Limits can be set.
func (c *Cgroups) CanLimit() bool { return c.limits }

// Close removes empty groups. Commands must have ended.
func (c *Cgroups) Close() error {
	c.sweep()
	if err := os.Remove(c.dir); err != nil {
		return fmt.Errorf("remove control group: %w", err)
	}
	return nil
}

// sweep removes groups whose last process has ended.
func (c *Cgroups) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = slices.DeleteFunc(c.left, func(path string) bool { return os.Remove(path) == nil })
}

// cgroup is the group of one command.
type cgroup struct {
	all  *Cgroups
	path string
	dir  *os.File
}

func (c *Cgroups) add(limits Limits) (*cgroup, error) {
	if limits != (Limits{}) && !c.limits {
		return nil, errors.New("its control group cannot be limited here: it has not all of the controllers " + strings.Join(controllers, ", "))
	}
	g := &cgroup{all: c, path: filepath.Join(c.dir, strconv.FormatUint(c.number.Add(1), 10))}
	if err := os.Mkdir(g.path, 0o755); err != nil {
		return nil, fmt.Errorf("make control group: %w", err)
	}
	for _, set := range []struct {
		file, value string
		wanted      bool
	}{
		{"cpu.max", fmt.Sprintf("%d 100000", int64(limits.CPU*100000)), limits.CPU > 0},
		{"memory.max", strconv.FormatInt(limits.Memory, 10), limits.Memory > 0},
		{"memory.swap.max", "0", limits.Memory > 0},
		{"pids.max", strconv.Itoa(limits.Processes), limits.Processes > 0},
	} {
		if !set.wanted {
			continue
		}
		err := os.WriteFile(filepath.Join(g.path, set.file), []byte(set.value), 0)
		if err != nil && !(set.file == "memory.swap.max" && errors.Is(err, os.ErrNotExist)) { // a system without swap
			_ = os.Remove(g.path)
			return nil, fmt.Errorf("limit control group: %w", err)
		}
	}
	var err error
	if g.dir, err = os.Open(g.path); err != nil {
		_ = os.Remove(g.path)
		return nil, fmt.Errorf("open control group: %w", err)
	}
	return g, nil
}

// kill ends all processes of the group, and waits until they are gone.
func (g *cgroup) kill() error {
	if err := os.WriteFile(filepath.Join(g.path, "cgroup.kill"), []byte("1"), 0); err != nil {
		return fmt.Errorf("kill control group: %w", err)
	}
	for deadline := time.Now().Add(maxHunt); ; time.Sleep(pause) {
		events, err := os.ReadFile(filepath.Join(g.path, "cgroup.events"))
		if err == nil && bytes.Contains(events, []byte("populated 0")) {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("some of its processes are still there after %s", maxHunt), err)
		}
	}
}

// usage replaces the leader's usage by that of the whole group.
func (g *cgroup) usage(u *Usage) {
	if stat, err := os.Open(filepath.Join(g.path, "cpu.stat")); err == nil {
		for lines := bufio.NewScanner(stat); lines.Scan(); {
			if value, ok := strings.CutPrefix(lines.Text(), "usage_usec "); ok {
				if n, err := strconv.ParseInt(value, 10, 64); err == nil {
					u.CPU = time.Duration(n) * time.Microsecond
				}
			}
		}
		stat.Close()
	}
	if peak, err := os.ReadFile(filepath.Join(g.path, "memory.peak")); err == nil {
		if n, err := strconv.ParseInt(strings.TrimSpace(string(peak)), 10, 64); err == nil {
			u.Memory = n
		}
	}
}

// close removes the group, now or when the processes left in the background have ended.
func (g *cgroup) close() {
	g.dir.Close()
	g.all.sweep()
	if err := os.Remove(g.path); err != nil {
		g.all.mu.Lock()
		g.all.left = append(g.all.left, g.path)
		g.all.mu.Unlock()
	}
}
