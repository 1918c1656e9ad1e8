//go:build linux

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestClock runs this test once more as a process with a wrong clock, and changes it while the process runs.
func TestClock(t *testing.T) {
	if os.Getenv("LAPWING_CHAOS_CLOCK") != "" {
		tellTime()
		return
	}
	if !skewable {
		t.Skip("clocks can be made wrong on amd64 only")
	}
	if err := canPlay(); err != nil {
		t.Skip(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", "-test.run", "^TestClock$")
	cmd.Env = append(os.Environ(), "LAPWING_CHAOS_CLOCK=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &status, 0, nil); err != nil {
		t.Fatal(err)
	}
	c, err := newClock(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.PtraceDetach(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewScanner(out)
	var elapsed time.Duration
	for _, by := range []time.Duration{0, time.Hour, -time.Hour, 0} {
		if err := c.set(by); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintln(in); err != nil || !answers.Scan() {
			t.Fatal("the process says nothing", err, answers.Err())
		}
		words := strings.Fields(answers.Text())
		unix, _ := strconv.ParseInt(words[0], 10, 64)
		monotonic, _ := strconv.ParseInt(words[1], 10, 64)
		if off := time.Until(time.Unix(unix, 0).Add(-by)).Abs(); off > 30*time.Second {
			t.Errorf("set by %s: the clock is off by %s from that", by, off)
		}
		if since := time.Duration(monotonic); since < elapsed || since > elapsed+time.Minute {
			t.Errorf("set by %s: monotonic time goes from %s to %s", by, elapsed, since)
		} else {
			elapsed = since
		}
	}
}

// tellTime answers each line with the time, in Unix seconds, and the nanoseconds since the start.
func tellTime() {
	begin := time.Now()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		now := time.Now()
		fmt.Println(now.Unix(), int64(now.Sub(begin)))
	}
}
