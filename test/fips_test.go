package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testcert"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestFIPS runs backend and agent with GODEBUG=fips140=only, which refuses everything that FIPS 140-3 does not approve
// of: each with an ordinary one of the other kind, and both together. It covers signing in, the agents' handshake, with
// TLS too, a check with an asset, an interval, and @every.
func TestFIPS(t *testing.T) {
	t.Parallel()
	const only = "GODEBUG=fips140=only"
	for _, tc := range []struct {
		name           string
		backend, agent []string
		tls            bool
		hash           string
	}{
		{name: "agent", agent: []string{only}},
		{name: "backend", backend: []string{only}},
		{name: "both, with TLS and no MD5", backend: []string{only}, agent: []string{only}, tls: true, hash: "sha256"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args, scheme, agentArgs := []string{}, "ws", []string{}
			if tc.tls {
				ca := testcert.New(t, "fips")
				pair := ca.Issue(t, []string{"127.0.0.1"}, nil)
				args = append(args, "--agent-auth-cert-file", pair.Cert, "--agent-auth-key-file", pair.Key)
				scheme, agentArgs = "wss", append(agentArgs, "--trusted-ca-file", ca.File)
			}
			if tc.hash != "" {
				args = append(args, "--phase-hash", tc.hash)
			}
			p := newProcess(t, args...)
			p.env = tc.backend
			p.start()
			c := p.client()
			origin := newAssetOrigin(t)
			if err := client.Put(t.Context(), c, client.Assets, "default", "plugin", origin.asset); err != nil {
				t.Fatal(err)
			}
			for name, check := range map[string]*resource.CheckConfig{
				"asset": {Command: "check-it", Interval: 1, RuntimeAssets: []string{"plugin"}},
				"every": {Command: "echo every", Cron: "@every 1s"},
				"asked": {Command: "echo asked", Interval: 1, RoundRobin: true},
			} {
				check.Metadata, check.Publish, check.Subscriptions = resource.ObjectMeta{Name: name, Namespace: "default"}, true, []string{"linux"}
				if err := client.Put(t.Context(), c, client.Checks, "default", name, check); err != nil {
					t.Fatal(err)
				}
			}

			path, err := binary()
			if err != nil {
				t.Fatal(err)
			}
			log, err := os.Create(filepath.Join(t.TempDir(), "agent.log"))
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(path, append([]string{"agent", "--name", "vault", "--subscriptions", "linux", "--backend-url", scheme + "://127.0.0.1:" + p.agent,
				"--cache-dir", t.TempDir(), "--config-file", os.DevNull, "--disable-api", "--disable-sockets", "--statsd-disable"}, agentArgs...)...)
			cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), tc.agent...), log, log
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = cmd.Process.Signal(syscall.SIGTERM)
				_ = cmd.Wait()
				log.Close()
				if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
					t.Logf("agent's log:\n%s", tailOf(text, 4000))
				}
			})
			for name, want := range map[string]string{"asset": "from an asset\n", "every": "every\n", "asked": "asked\n"} {
				eventually(t, 60*time.Second, "a result of "+name, func() bool {
					ev, err := client.Get(t.Context(), c, client.Events, "default", client.EventName("vault", name))
					if err != nil {
						return false
					}
					if ev.Check.Output != want || ev.Check.Status != 0 {
						t.Fatalf("%s: status %d, output %q", name, ev.Check.Status, ev.Check.Output)
					}
					return true
				})
			}
			if origin.fetches.Load() == 0 {
				t.Error("the asset was not fetched")
			}
		})
	}
}
