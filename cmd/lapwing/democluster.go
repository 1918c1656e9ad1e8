//go:build !agentonly

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/telemetry"
)

const (
	// demoPortStep is the distance between the ports of two backends of a demo.
	demoPortStep = 10
	// demoRestart is how long a killed backend of a demo stays away.
	demoRestart = 20 * time.Second
	// demoReady is how long the backends may take until they answer.
	demoReady = 2 * time.Minute
	// demoStop is how long they may take to stop.
	demoStop = time.Minute
)

// demoMember is one backend of a demo's cluster.
type demoMember struct {
	name, dir             string
	api, agents, cluster  string // addresses
	peers                 []string
	logLevel, log, binary string
}

// demoMembers returns the backends of a demo. Their ports follow from the ports of the first one.
func demoMembers(o demoOptions, dir string) ([]demoMember, error) {
	if o.backends > 5 {
		return nil, fmt.Errorf("--backends %d: 5 at most", o.backends)
	}
	host, text, err := net.SplitHostPort(o.api)
	if err != nil {
		return nil, fmt.Errorf("--api-listen-address: %w", err)
	}
	port, err := strconv.Atoi(text)
	if err != nil || port == 0 || o.agentPort == 0 || o.agentPort == port+2 {
		return nil, errors.New("several backends need fixed ports: --api-listen-address HOST:PORT and --agent-port, " +
			"two above which the members of the cluster find each other")
	}
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	at := func(port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
	var peers []string
	for i := range o.backends {
		peers = append(peers, at(port+2+i*demoPortStep))
	}
	var members []demoMember
	for i := range o.backends {
		name := fmt.Sprintf("backend-%d", i+1)
		members = append(members, demoMember{
			name: name, dir: filepath.Join(dir, name), log: filepath.Join(dir, name+".log"), binary: binary,
			api: at(port + i*demoPortStep), agents: at(o.agentPort + i*demoPortStep), cluster: peers[i], peers: peers,
			logLevel: o.logLevel,
		})
	}
	return members, nil
}

func (m *demoMember) command(ctx context.Context) *exec.Cmd {
	agentHost, agentPort, _ := net.SplitHostPort(m.agents)
	cmd := exec.CommandContext(ctx, m.binary, "backend",
		"--config-file", os.DevNull, "--state-dir", m.dir, "--name", m.name, "--api-listen-address", m.api,
		"--agent-host", agentHost, "--agent-port", agentPort, "--cluster-listen-address", m.cluster,
		"--peers", strings.Join(m.peers, ","), "--cluster-admin-username", demoUser,
		"--cluster-admin-password", demoPassword, "--log-level", m.logLevel)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = demoStop
	return cmd
}

// run runs the backend until ctx ends, and starts it again when it ends before. started gets the number of each
// process.
func (m *demoMember) run(ctx context.Context, out io.Writer, started func(pid int)) error {
	log, err := os.OpenFile(m.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("log of %s: %w", m.name, err)
	}
	defer func() { _ = log.Close() }()
	for {
		cmd := m.command(ctx)
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("start %s: %w", m.name, err)
		}
		started(cmd.Process.Pid)
		err := cmd.Wait()
		if ctx.Err() != nil {
			return nil
		}
		fmt.Fprintf(out, "%s ended (%v; %s). It is started again in %s.\n", m.name, err, m.log, demoRestart)
		select {
		case <-time.After(demoRestart):
		case <-ctx.Done():
			return nil
		}
	}
}

// runDemoCluster runs backends as processes of their own, and an agent.
func runDemoCluster(ctx context.Context, o demoOptions, out io.Writer) (err error) {
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return fmt.Errorf("demo directory: %w", err)
	}
	members, err := demoMembers(o, dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("demo directory: %w", err)
	}
	log, err := telemetry.Logger(os.Stderr, o.logLevel, "text")
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	defer done.Wait()
	defer stop()
	var mu sync.Mutex // guards pids
	pids := map[string]int{}
	for i := range members {
		m := &members[i]
		done.Go(func() {
			err := m.run(running, out, func(pid int) {
				mu.Lock()
				defer mu.Unlock()
				pids[m.name] = pid
			})
			if err != nil {
				fmt.Fprintln(out, err)
			}
		})
	}
	if err := waitForDemo(ctx, members); err != nil {
		return err
	}
	if err := createSamples(ctx, "http://"+members[0].api, dir); err != nil {
		return err
	}
	var apis, agents []string
	for _, m := range members {
		apis, agents = append(apis, "http://"+m.api), append(agents, "ws://"+m.agents)
	}
	a, err := startDemoAgent(ctx, log, agents...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Stop()) }()

	fmt.Fprintf(out, "\nlapwing is running: a cluster of %d backends, an agent named demo-agent, and three sample checks.\n\n",
		len(members))
	mu.Lock()
	for _, m := range members {
		fmt.Fprintf(out, "  %s  process %d  http://%s  log %s\n", m.name, pids[m.name], m.api, m.log)
	}
	victim := pids[members[1].name]
	mu.Unlock()
	self := filepath.Join(filepath.Dir(os.Args[0]), "lapwing")
	fmt.Fprintf(out, `
  user       %[2]s
  password   %[3]s

Try, in another terminal:

  %[4]s configure -n --url %[1]s --username %[2]s --password %[3]s
  %[4]s cluster status
  %[4]s event list --watch
  kill -9 %[5]d        the others do its work; it comes back after %[6]s
  tail -f %[7]s/incidents.jsonl

Ctrl-C ends all of this.
`, strings.Join(apis, ","), demoUser, demoPassword, self, victim, demoRestart, dir)
	<-ctx.Done()
	fmt.Fprintln(out, "stopping")
	return nil
}

// waitForDemo returns when all backends are ready.
func waitForDemo(ctx context.Context, members []demoMember) error {
	ctx, cancel := context.WithTimeout(ctx, demoReady)
	defer cancel()
	for _, m := range members {
		for !demoAnswers(ctx, m.api) {
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				return fmt.Errorf("%s does not answer; its log is %s", m.name, m.log)
			}
		}
	}
	return nil
}

func demoAnswers(ctx context.Context, api string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+api+"/ready", nil)
	if err != nil {
		return false
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}
