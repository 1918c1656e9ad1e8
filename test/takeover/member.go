//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
)

const (
	members        = 3
	adminKey       = "6b1c9a52-3f0e-4c7d-9d55-0d8f5c1a7e21"
	agentUser      = "agent"
	agentPassword  = "P@ssw0rd!" // of the first start
	requestTimeout = 15 * time.Second
	patience       = 5 * time.Minute // for a state that must come
)

// member is one backend: a process that can be killed and started again.
type member struct {
	name, dir, binary     string
	api, agents, clustery string // addresses
	peers                 []string
	partitions            int
	log                   *os.File
	client                *client.Client
	cmd                   *exec.Cmd
}

// newMembers makes the backends of a cluster on free ports. None of them runs yet.
func newMembers(s *settings) (all []*member, err error) {
	ports, err := freePorts(3 * members)
	if err != nil {
		return nil, err
	}
	var peers []string
	for i := range members {
		peers = append(peers, ports[3*i+2])
	}
	for i := range members {
		m := &member{
			name: string(rune('a' + i)), binary: s.binary, api: ports[3*i], agents: ports[3*i+1], clustery: ports[3*i+2],
			peers: peers, partitions: s.partitions,
		}
		m.dir = filepath.Join(s.dir, m.name)
		if err := os.Mkdir(m.dir, 0o755); err != nil {
			return nil, err
		}
		if m.log, err = os.Create(filepath.Join(m.dir, "log")); err != nil {
			return nil, err
		}
		m.client, err = client.New(client.Options{URL: "http://" + m.api, APIKey: adminKey, Timeout: requestTimeout})
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// freePorts returns loopback addresses that are free now.
func freePorts(n int) (all []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // when all are known: they must differ
		all = append(all, l.Addr().String())
	}
	return all, nil
}

func (m *member) agentURL() string { return "ws://" + m.agents }
func (m *member) stateDir() string { return filepath.Join(m.dir, "state") }

func (m *member) start() error {
	host, port, err := net.SplitHostPort(m.agents)
	if err != nil {
		return err
	}
	m.cmd = exec.Command(m.binary, "backend", "--config-file", os.DevNull, "--state-dir", m.stateDir(),
		"--api-listen-address", m.api, "--agent-host", host, "--agent-port", port, "--name", m.name,
		"--cluster-listen-address", m.clustery, "--peers", strings.Join(m.peers, ","),
		"--event-log-partitions", fmt.Sprint(m.partitions))
	m.cmd.Stdout, m.cmd.Stderr = m.log, m.log
	m.cmd.Env = append(os.Environ(), "LAPWING_BACKEND_CLUSTER_ADMIN_USERNAME=admin",
		"LAPWING_BACKEND_CLUSTER_ADMIN_PASSWORD=takeover", "LAPWING_BACKEND_CLUSTER_ADMIN_API_KEY="+adminKey)
	if err := m.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", m.name, err)
	}
	return nil
}

func (m *member) signal(s syscall.Signal) error {
	if err := m.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("send %s to %s: %w", s, m.name, err)
	}
	return nil
}

// end waits for the end of the process.
func (m *member) end() {
	_ = m.cmd.Wait() // it says how the process was ended
	m.cmd = nil
}

// kill ends the process, if there is one.
func (m *member) kill() {
	if m.cmd != nil {
		_ = m.cmd.Process.Kill()
		m.end()
	}
}

// ready waits until the backend is ready.
func (m *member) ready(ctx context.Context) error {
	return await(ctx, m.name+" to be ready", func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.api+"/ready", nil)
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
	})
}

// status asks the member about the cluster.
func (m *member) status(ctx context.Context) (status client.ClusterStatus, err error) {
	raw, err := m.client.ClusterStatus(ctx)
	if err != nil {
		return status, err
	}
	return status, json.Unmarshal(raw, &status)
}

// await repeats f until it returns nil.
func await(ctx context.Context, what string, f func() error) error {
	for deadline := time.Now().Add(patience); ; {
		err := f()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(deadline):
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// pause waits, but not longer than ctx.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
