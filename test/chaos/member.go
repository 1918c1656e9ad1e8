//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	apiPort     = "8080"
	agentPort   = "8081"
	clusterPort = "8082"

	adminUser     = "admin"
	adminPassword = "P@ssw0rd!"
	adminKey      = "6b1c9a52-3f0e-4c7d-9d55-0d8f5c1a7e21"
	agentPassword = "P@ssw0rd!" // of the user agent, of the first start

	minFreeDisk = 32 << 20
	startLimit  = 2 * time.Minute
)

// member is one backend: a process that can be killed and started again, with its network and its disk.
type member struct {
	index  int
	name   string
	dir    string
	disk   *disk
	binary string
	args   []string // flags of the cluster
	skewed bool     // the schedule has wrong clocks
	log    *os.File
	failed func(text string) // is called if the process ends by itself

	mu      sync.Mutex // guards the fields below
	process *process   // nil while the member is down
	fell    bool       // the process has ended because its disk was full
	skew    time.Duration
}

// process is one life of a member.
type process struct {
	cmd      *exec.Cmd
	clock    *clock // nil if the schedule has no wrong clocks
	expected bool   // the harness ends it; guarded by member.mu
	ended    chan struct{}
}

// memberOptions are what members have in common.
type memberOptions struct {
	dir    string // of the run
	binary string
	skewed bool
	failed func(text string)
}

// newMember makes a member's directory and disk. start runs it.
func newMember(opts *memberOptions, index int, clusterArgs []string) (*member, error) {
	m := &member{
		index: index, name: memberName(index), dir: filepath.Join(opts.dir, memberName(index)), binary: opts.binary,
		args: clusterArgs, skewed: opts.skewed, failed: opts.failed,
	}
	if err := os.Mkdir(m.dir, 0o755); err != nil {
		return nil, err
	}
	var err error
	if m.log, err = os.Create(filepath.Join(m.dir, "log")); err != nil {
		return nil, err
	}
	m.disk, err = newDisk(m.dir)
	return m, err
}

// clusterArgs are the flags that make the members one system. One member alone has none.
func clusterArgs(index, members int, certs *certificates) []string {
	if members == 1 {
		return nil
	}
	var peers []string
	for i := range members {
		peers = append(peers, memberAddr(i)+":"+clusterPort)
	}
	return []string{
		"--name", memberName(index), "--cluster-listen-address", memberAddr(index) + ":" + clusterPort,
		"--peers", strings.Join(peers, ","), "--cluster-cert-file", certs.members[index].Cert,
		"--cluster-key-file", certs.members[index].Key, "--cluster-trusted-ca-file", certs.caFile,
	}
}

func (m *member) apiURL() string   { return "http://" + memberAddr(m.index) + ":" + apiPort }
func (m *member) agentURL() string { return "ws://" + memberAddr(m.index) + ":" + agentPort }

// start runs the backend and returns at once.
func (m *member) start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process != nil {
		return nil
	}
	cmd := exec.Command(m.binary, append([]string{
		"backend", "--config-file", os.DevNull, "--state-dir", filepath.Join(m.disk.dir, "state"),
		"--api-listen-address", memberAddr(m.index) + ":" + apiPort, "--agent-host", memberAddr(m.index),
		"--agent-port", agentPort, "--min-free-disk", fmt.Sprint(minFreeDisk),
	}, m.args...)...)
	cmd.Stdout, cmd.Stderr = m.log, m.log
	cmd.Env = append(os.Environ(), "LAPWING_BACKEND_CLUSTER_ADMIN_USERNAME="+adminUser,
		"LAPWING_BACKEND_CLUSTER_ADMIN_PASSWORD="+adminPassword, "LAPWING_BACKEND_CLUSTER_ADMIN_API_KEY="+adminKey)
	begin, err := m.log.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("start %s: %w", m.name, err)
	}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	begun := make(chan error)
	go func() { begun <- m.begin(p) }()
	if err := <-begun; err != nil {
		return fmt.Errorf("start %s: %w", m.name, err)
	}
	m.process = p
	go func() {
		err := cmd.Wait()
		full := m.disk.full.Load()
		m.mu.Lock()
		m.process, m.fell = nil, !p.expected && (full || m.saysFull(begin))
		excused, again := p.expected || m.fell, m.fell && !full
		m.mu.Unlock()
		close(p.ended)
		if again { // it found the disk full, and ended when there was room again
			err = errors.Join(err, m.startAgain())
			excused = excused && m.running()
		}
		if !excused {
			m.failed(fmt.Sprintf("%s ended by itself: %v", m.name, err))
		}
	}()
	return nil
}

// saysFull reports whether the log says, from a place on, that the disk was full.
func (m *member) saysFull(begin int64) bool {
	text, err := os.ReadFile(m.log.Name())
	return err == nil && strings.Contains(string(text[min(begin, int64(len(text))):]), syscall.ENOSPC.Error())
}

func (m *member) running() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.process != nil
}

// startAgain starts a process that has ended because its disk was full, as systemd does.
func (m *member) startAgain() error {
	m.mu.Lock()
	fell := m.fell
	m.fell = false
	m.mu.Unlock()
	if !fell {
		return nil
	}
	return m.start()
}

// begin starts a process in the member's network, and gives it its clock before it runs. Its caller gives it a
// goroutine, because the thread stays in the network and the kernel wants the tracer to be one thread.
func (m *member) begin(p *process) error {
	runtime.LockOSThread() // for ever: the thread ends with the goroutine
	network, err := os.Open("/run/netns/" + m.name)
	if err != nil {
		return err
	}
	defer func() { _ = network.Close() }()
	if err := unix.Setns(int(network.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network: %w", err)
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: m.skewed}
	if err := p.cmd.Start(); err != nil || !m.skewed {
		return err
	}
	pid := p.cmd.Process.Pid
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil {
		return fmt.Errorf("wait for exec: %w", err)
	}
	if p.clock, err = newClock(pid); err == nil {
		err = p.clock.set(m.skew)
	}
	return errors.Join(err, syscall.PtraceDetach(pid))
}

// end sends a signal that ends the process, and waits for the end.
func (m *member) end(signal syscall.Signal) {
	m.mu.Lock()
	p := m.process
	if p == nil {
		m.mu.Unlock()
		return
	}
	p.expected = true
	m.mu.Unlock()
	_ = p.cmd.Process.Signal(signal)
	<-p.ended
}

// stop stops the process, and returns when no thread of it runs any more.
func (m *member) stop() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		return nil
	}
	if err := m.process.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return unix.Waitid(unix.P_PID, m.process.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
}

// goOn ends stop.
func (m *member) goOn() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		return nil
	}
	return m.process.cmd.Process.Signal(syscall.SIGCONT)
}

// setClock makes the member's clock wrong, also after its next start.
func (m *member) setClock(by time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.skew = by
	if m.process == nil {
		return nil
	}
	return m.process.clock.set(by)
}

// waitReady returns when the member is ready, or after a time with the reason why it is not.
func (m *member) waitReady(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		reason := m.ready(ctx)
		if reason == nil {
			return nil
		}
		if !pause(ctx.Done(), 100*time.Millisecond) {
			return fmt.Errorf("%s is not ready after %s: %w", m.name, limit, reason)
		}
	}
}

func (m *member) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.apiURL()+"/ready", nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}
