package proc

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// firstLook and lastLook are the pauses between two reads of a command's memory: short at first, for commands that
	// end soon, then longer.
	firstLook = time.Millisecond
	lastLook  = 250 * time.Millisecond
	// maxLookedAt bounds the processes of one read.
	maxLookedAt = 1000
)

// memoryWatch finds the largest process of a command by sampling the running ones.
//
// The kernel's own figure (ru_maxrss of wait4) is never below the memory of the process that started the command: until
// the child executes the shell it shares that memory, and the kernel counts it for the child. So that figure is right
// only if it is above our own peak. Below, the peaks of the command's processes (VmHWM) are read while they run. A
// process that lives for less than the pause between two reads can be missed.
type memoryWatch struct {
	pid  int
	peak int64 // bytes; owned by the goroutine until done is closed
	stop chan struct{}
	done chan struct{}
}

func watchMemory(pid int) *memoryWatch {
	w := &memoryWatch{pid: pid, stop: make(chan struct{}), done: make(chan struct{})}
	w.look(pid, new(int)) // the command runs and was not waited for yet
	go w.run()
	return w
}

func (w *memoryWatch) run() {
	defer close(w.done)
	pause := firstLook
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-timer.C:
		}
		w.look(w.pid, new(int))
		pause = min(2*pause, lastLook)
		timer.Reset(pause)
	}
}

// look reads the peak of a process and of its children.
func (w *memoryWatch) look(pid int, seen *int) {
	if *seen++; *seen > maxLookedAt {
		return
	}
	dir := "/proc/" + strconv.Itoa(pid)
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return
	}
	w.peak = max(w.peak, peakOf(status))
	children, err := os.ReadFile(dir + "/task/" + strconv.Itoa(pid) + "/children")
	if err != nil {
		return // the kernel does not provide it, or the process has ended
	}
	for _, child := range strings.Fields(string(children)) {
		if n, err := strconv.Atoi(child); err == nil {
			w.look(n, seen)
		}
	}
}

// peakOf reads VmHWM, in bytes, from the text of /proc/PID/status; 0 if the process has ended.
func peakOf(status []byte) int64 {
	_, rest, ok := bytes.Cut(status, []byte("\nVmHWM:"))
	if !ok {
		return 0
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	kilobytes, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(string(line)), " kB"), 10, 64)
	return kilobytes << 10
}

// end returns the observed peak.
func (w *memoryWatch) end() int64 {
	close(w.stop)
	<-w.done
	return w.peak
}

// ownPeak returns the peak memory of this process, in bytes.
func ownPeak() int64 {
	var ru syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &ru) != nil {
		return 0
	}
	return int64(ru.Maxrss) * rssUnit
}
