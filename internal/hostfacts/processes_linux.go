package hostfacts

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// maxRead bounds the processes that are looked at, because each costs some ten microseconds. procfs lists them by their
// ids, lowest first.
const maxRead = 10_000

// clockTicks is the kernel's USER_HZ, which is 100 on all architectures that Go has.
const clockTicks = 100

// DiscoversProcesses says whether Processes works on this system.
const DiscoversProcesses = true

// Processes returns the host's processes by their ids, within the bounds of an entity, and how many there are. If not
// all are returned, the largest in memory are; the kernel's own threads come last.
func Processes(ctx context.Context) (some []resource.Process, total int, err error) {
	return processesIn(ctx, cmp.Or(os.Getenv("HOST_PROC"), "/proc"), maxRead)
}

func processesIn(ctx context.Context, root string, most int) (some []resource.Process, total int, err error) {
	host, err := readHost(root)
	if err != nil {
		return nil, 0, fmt.Errorf("read processes: %w", err)
	}
	dir, err := os.Open(root)
	if err != nil {
		return nil, 0, fmt.Errorf("list processes: %w", err)
	}
	names, err := dir.Readdirnames(-1)
	if err = errors.Join(err, dir.Close()); err != nil {
		return nil, 0, fmt.Errorf("list processes: %w", err)
	}
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		if total++; total > most {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, 0, fmt.Errorf("read processes: %w", err)
		}
		stat, err := os.ReadFile(filepath.Join(root, name, "stat"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			total-- // it has ended in the meantime
			continue
		}
		if errors.Is(err, fs.ErrPermission) {
			continue // /proc is mounted with hidepid
		}
		if err != nil {
			return nil, 0, fmt.Errorf("read process %s: %w", name, err)
		}
		p, err := parseStat(stat, host)
		if err != nil {
			return nil, 0, fmt.Errorf("read process %s: %w", name, err)
		}
		some = append(some, p)
	}
	slices.SortFunc(some, func(a, b resource.Process) int {
		return cmp.Or(cmp.Compare(kernelsOwn(&a), kernelsOwn(&b)), cmp.Compare(b.MemoryPercent, a.MemoryPercent), cmp.Compare(a.PID, b.PID))
	})
	some = some[:min(len(some), resource.MaxProcesses)]
	for i := range some {
		if len(some[i].Name) == maxComm {
			some[i].Name = longName(root, &some[i])
		}
	}
	some = resource.BoundProcesses(some)
	slices.SortFunc(some, func(a, b resource.Process) int { return cmp.Compare(a.PID, b.PID) })
	return some, total, nil
}

// kthreadd is the process that is the parent of the kernel's threads.
const kthreadd = 2

func kernelsOwn(p *resource.Process) int {
	if p.PID == kthreadd || p.PPID == kthreadd {
		return 1
	}
	return 0
}

// maxComm is the length at which the kernel cuts the names of processes.
const maxComm = 15

// longName returns the whole name of a process whose name may be cut: its command line begins with it.
func longName(root string, p *resource.Process) string {
	line, err := os.ReadFile(filepath.Join(root, strconv.Itoa(int(p.PID)), "cmdline"))
	if err != nil {
		return p.Name
	}
	first, _, _ := bytes.Cut(line[:min(len(line), 4096)], []byte{0})
	if name := filepath.Base(string(first)); strings.HasPrefix(name, p.Name) {
		return name
	}
	return p.Name
}

// hostNow is what the numbers of a process are compared with.
type hostNow struct {
	booted   int64   // Unix seconds
	uptime   float64 // seconds
	memory   float64 // bytes
	pageSize float64
}

func readHost(root string) (hostNow, error) {
	h := hostNow{pageSize: float64(os.Getpagesize())}
	for _, file := range []struct {
		name, key string
		into      func(text string) error
	}{
		{"stat", "btime ", func(text string) (err error) { h.booted, err = strconv.ParseInt(text, 10, 64); return err }},
		{"uptime", "", func(text string) (err error) { h.uptime, err = strconv.ParseFloat(text, 64); return err }},
		{"meminfo", "MemTotal:", func(text string) error {
			kib, err := strconv.ParseFloat(text, 64)
			h.memory = kib * 1024
			return err
		}},
	} {
		text, err := os.ReadFile(filepath.Join(root, file.name))
		if err != nil {
			return h, err
		}
		value := ""
		for line := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(line, file.key); ok {
				value, _, _ = strings.Cut(strings.TrimSpace(rest), " ")
				break
			}
		}
		if err := file.into(value); err != nil {
			return h, fmt.Errorf("%s: %w", file.name, err)
		}
	}
	return h, nil
}

// parseStat returns the process of a file /proc/ID/stat. The name is in parentheses and may contain any byte.
func parseStat(stat []byte, h hostNow) (resource.Process, error) {
	var p resource.Process
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 1 || end < open {
		return p, errors.New("stat has no name")
	}
	// state ppid pgrp session tty tpgid … utime(11) stime … nice(16) threads itrealvalue starttime vsize rss
	rest := strings.Fields(string(stat[end+1:]))
	if len(rest) < 22 {
		return p, fmt.Errorf("stat has %d fields", len(rest)+2)
	}
	var n [22]int64
	for i := 1; i < len(n); i++ {
		var err error
		if n[i], err = strconv.ParseInt(rest[i], 10, 64); err != nil && i != vsizeField {
			return p, fmt.Errorf("stat: %w", err)
		}
	}
	pid, err := strconv.ParseInt(string(bytes.TrimSpace(stat[:open])), 10, 32)
	if err != nil {
		return p, fmt.Errorf("stat: %w", err)
	}
	ppid, group, session, foreground := n[1], n[2], n[3], n[5]
	used, nice, threads, started, rss := n[11]+n[12], n[16], n[17], n[19], n[21]
	p.Name, p.PID, p.PPID = string(stat[open+1:end]), int32(pid), int32(ppid)
	p.Status = rest[0]
	for _, mark := range []struct {
		applies bool
		letter  string
	}{{nice < 0, "<"}, {nice > 0, "N"}, {session == pid, "s"}, {threads > 1, "l"}, {group == foreground, "+"}} {
		if mark.applies {
			p.Status += mark.letter
		}
	}
	p.Background = group != foreground
	p.Running = rest[0] != "Z" && rest[0] != "X"
	p.Created = h.booted + started/clockTicks
	p.MemoryPercent = share(float64(rss)*h.pageSize, h.memory)
	p.CPUPercent = share(float64(used)/clockTicks, h.uptime-float64(started)/clockTicks)
	return p, nil
}

// vsizeField is a number that may be larger than an int64 can be.
const vsizeField = 20

// share returns part / whole, to a hundredth of a percent.
func share(part, whole float64) float64 {
	if whole <= 0 {
		return 0
	}
	return math.Round(part/whole*1e4) / 1e4
}
