//go:build !agentonly

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/lapwing-monitoring/lapwing/agent"
	"github.com/lapwing-monitoring/lapwing/backend"
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/telemetry"
)

//go:embed demo/samples.yaml
var demoSamples string

const (
	demoUser     = "admin"
	demoPassword = "lapwing-demo"
)

type demoOptions struct {
	dir       string
	api       string
	agentPort int
	logLevel  string
	backends  int
}

func demoCommand() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a backend and an agent here, with sample checks",
		Long: `Run a backend and an agent in this process, reachable from this machine only, with three sample checks
(one healthy, one that fails in the second half of every minute, one with metrics) and a handler that writes each
incident to a file. Ctrl-C ends all of it; the directory stays.

With --backends 3 the backends are processes of their own and form a cluster on this machine. A backend that is killed
is started again after 20 seconds: until then the others do its work.`,
		Example: `  lapwing demo
  lapwing demo --backends 3
  lapwing demo --dir /tmp/lapwing --api-listen-address 127.0.0.1:9080 --agent-port 9081`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.backends > 1 {
				return runDemoCluster(cmd.Context(), o, cmd.OutOrStdout())
			}
			return runDemo(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&o.dir, "dir", "data", "directory of the demo")
	cmd.Flags().StringVar(&o.api, "api-listen-address", "127.0.0.1:8080", "address of the HTTP API and the web page")
	cmd.Flags().IntVar(&o.agentPort, "agent-port", 8081, "port for agents; 0 for any free port")
	cmd.Flags().IntVar(&o.backends, "backends", 1,
		"number of backends; with several, the ports of each are 10 above those of the one before")
	cmd.Flags().StringVar(&o.logLevel, "log-level", "warn", "trace, debug, info, warn, error or fatal")
	return cmd
}

func runDemo(ctx context.Context, o demoOptions, out io.Writer) (err error) {
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return fmt.Errorf("demo directory: %w", err)
	}
	log, err := telemetry.Logger(os.Stderr, o.logLevel, "text")
	if err != nil {
		return err
	}
	opts := backend.DefaultOptions()
	opts.StateDir, opts.APIListenAddress = filepath.Join(dir, "backend"), o.api
	opts.AgentHost, opts.AgentPort = "127.0.0.1", o.agentPort
	opts.Admin.Username, opts.Admin.Password = demoUser, demoPassword
	opts.Logger, opts.Version = log, version
	b, err := backend.New(opts)
	if err != nil {
		return err
	}
	if err := b.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Stop(context.WithoutCancel(ctx))) }()
	url := "http://" + b.APIAddr().String()
	if err := createSamples(ctx, url, dir); err != nil {
		return err
	}
	a, err := startDemoAgent(ctx, log, "ws://"+b.AgentAddr().String())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Stop()) }()

	self := filepath.Join(filepath.Dir(os.Args[0]), "lapwing")
	fmt.Fprintf(out, `
lapwing is running: a backend, an agent named demo-agent, and three sample checks.

  web page   %[1]s
  user       %[2]s
  password   %[3]s

Try, in another terminal:

  %[4]s configure -n --url %[1]s --username %[2]s --password %[3]s
  %[4]s event list --watch
  tail -f %[5]s/incidents.jsonl

The check "every-minute" fails from second 30 of every minute and recovers at its end: its handler writes an event to that
file each time. Ctrl-C ends all of this.
`, url, demoUser, demoPassword, self, dir)
	select {
	case <-b.Done():
		return b.Err()
	case <-ctx.Done():
		fmt.Fprintln(out, "stopping")
		return nil
	}
}

func startDemoAgent(ctx context.Context, log *slog.Logger, urls ...string) (*agent.Agent, error) {
	o := agent.DefaultOptions()
	o.Name, o.Subscriptions, o.BackendURLs = "demo-agent", []string{"demo"}, urls
	o.Logger, o.Version = log, version
	a, err := agent.New(o)
	if err != nil {
		return nil, err
	}
	return a, a.Start(ctx)
}

// createSamples writes the sample checks and handlers through the API, as a user would.
func createSamples(ctx context.Context, url, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c, err := client.New(client.Options{URL: url, Username: demoUser, Password: demoPassword})
	if err != nil {
		return err
	}
	defer c.Close()
	for text := range strings.SplitSeq(strings.ReplaceAll(demoSamples, "{{dir}}", dir), "\n---\n") {
		var wrapped struct {
			Type     string              `json:"type"`
			Metadata resource.ObjectMeta `json:"metadata"`
			Spec     any                 `json:"spec"`
		}
		if err := yaml.Unmarshal([]byte(text), &wrapped); err != nil {
			return fmt.Errorf("read samples: %w", err)
		}
		spec, err := yaml.Marshal(wrapped.Spec)
		if err != nil {
			return fmt.Errorf("read samples: %w", err)
		}
		meta := wrapped.Metadata
		switch wrapped.Type {
		case client.Checks.Type:
			item := resource.CheckConfig{Metadata: meta}
			if err = yaml.Unmarshal(spec, &item); err == nil {
				err = client.Put(ctx, c, client.Checks, meta.Namespace, meta.Name, &item)
			}
		case client.Handlers.Type:
			item := resource.Handler{Metadata: meta}
			if err = yaml.Unmarshal(spec, &item); err == nil {
				err = client.Put(ctx, c, client.Handlers, meta.Namespace, meta.Name, &item)
			}
		default:
			err = fmt.Errorf("unknown type %q", wrapped.Type)
		}
		if err != nil {
			return fmt.Errorf("create sample %s: %w", meta.Name, err)
		}
	}
	return nil
}
