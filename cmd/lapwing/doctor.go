//go:build !agentonly

package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/lapwing-monitoring/lapwing/client/ctl"
	"github.com/lapwing-monitoring/lapwing/client/doctor"
	"github.com/lapwing-monitoring/lapwing/internal/duration"
)

// exitUnknown is the doctor's exit status when it could not look, as monitoring plugins have it.
const exitUnknown = 3

type doctorOptions struct {
	apiURL, metricsURL string
	apiKey             string
	interval           time.Duration
	format             string
	count              int
	caFile             string
	insecure           bool
	postgresDSN        string

	authorization string      // header for the requests
	tls           *tls.Config // default: as caFile and insecure say
	notes         io.Writer   // where it says what it waits for; nil for nowhere
}

// complete takes from the client's profile what the flags leave open. A --metrics-url is another server: it gets no
// credentials but those given for it.
func (o *doctorOptions) complete(cmd *cobra.Command) error {
	if f, ok := cmd.ErrOrStderr().(*os.File); ok && o.format == "text" && term.IsTerminal(int(f.Fd())) {
		o.notes = f
	}
	if o.metricsURL != "" || o.postgresDSN != "" {
		if key := o.key(); key != "" {
			o.authorization = "Key " + key
		}
		return nil
	}
	target, err := ctl.Reach(cmd)
	if err != nil {
		return err
	}
	o.apiURL, o.tls, o.authorization = target.URL, target.TLS, target.Authorization
	return nil
}

func doctorCommand() *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what limits a backend now",
		Long: `Read a backend's metrics twice, some seconds apart, and say in words what limits it now: the disk, the event log, the
state, a handler, agents, CPU or memory; with the figures, and what to do about it. Of a cluster's member it also says what has
been wrong with the members for a while. Of several URLs with commas between it takes the first.

It reports points of metrics that are lost, refused or wait, too, and bounds of series, memory and disk that are near. To examine
"lapwing carbon", give it a --metrics-listen-address and its URL here as --metrics-url.

With --postgres-dsn it examines the PostgreSQL server that a backend writes to, once, instead of a backend: its settings and
statistics, with the SQL to change what should change. It changes nothing itself. A user with the role pg_monitor sees all; an
ordinary one is enough for the rest. Leave the password to PGPASSWORD or ~/.pgpass: other users can read a process's arguments.

What the flags leave open comes from the environment (LAPWING_API_URL, SENSU_API_URL, …) and from the profile that "lapwing
configure" wrote: the URL, the certificate authorities and the credentials. The metrics need no credentials unless the backend
runs with --metrics-auth; then the user must have the right to get the resource metrics.

Exit status: 0 nothing to report, 1 warnings, 2 something is critical, 3 nothing could be read. So it can be the command
of a check.`,
		Example: `  lapwing doctor
  lapwing doctor --api-url https://backend.example.org:8080 --trusted-ca-file ca.pem
  lapwing doctor -n 0 --interval 10s
  lapwing doctor --metrics-url http://127.0.0.1:9108/metrics      # of lapwing carbon
  lapwing doctor --postgres-dsn postgres://lapwing@db.example.org/lapwing`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			examine := runDoctor
			if o.postgresDSN != "" {
				examine = runPostgresDoctor
				for _, name := range []string{
					"api-url", "metrics-url", "api-key", "interval", "count", "trusted-ca-file", "insecure-skip-tls-verify",
				} {
					if cmd.Flags().Changed(name) {
						return exitStatus{exitUnknown, fmt.Errorf("--postgres-dsn and --%s exclude one another", name)}
					}
				}
			}
			if err := o.complete(cmd); err != nil {
				return exitStatus{exitUnknown, err}
			}
			severity, err := examine(cmd.Context(), o, cmd.OutOrStdout())
			switch {
			case err != nil:
				return exitStatus{exitUnknown, err}
			case severity != doctor.Fine:
				return exitStatus{int(severity), nil}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.apiURL, "api-url", "", "URL of the backend's API (default the profile's, or http://127.0.0.1:8080)")
	f.StringVar(&o.metricsURL, "metrics-url", "", "URL of its metrics, if they are not at /metrics there")
	f.StringVar(&o.apiKey, "api-key", "", "API key for the metrics, if they are not public (default the profile's credentials)")
	f.Var(duration.New(doctor.Interval, &o.interval), "interval", "time between two looks")
	f.StringVar(&o.format, "format", "text", "text or json")
	ctl.OwnFlag(cmd, "format") // the client knows no text
	f.IntVarP(&o.count, "count", "n", 1, "reports to make; 0 goes on until Ctrl-C")
	f.StringVar(&o.caFile, "trusted-ca-file", "", "PEM file of certificate authorities to trust")
	f.BoolVar(&o.insecure, "insecure-skip-tls-verify", false, "do not verify the server's certificate (dangerous)")
	f.String("config-dir", "", "directory of the client's files")
	f.StringVar(&o.postgresDSN, "postgres-dsn", "", "examine this PostgreSQL server instead (URL or keywords and values)")
	return cmd
}

// runPostgresDoctor makes a report about PostgreSQL and returns how bad it is.
func runPostgresDoctor(ctx context.Context, o doctorOptions, out io.Writer) (doctor.Severity, error) {
	if err := o.checkFormat(); err != nil {
		return 0, err
	}
	facts, err := doctor.FetchPostgres(ctx, o.postgresDSN)
	if err != nil {
		return 0, err
	}
	report := doctor.ExaminePostgres(facts)
	if o.format == "text" {
		return report.Severity, doctor.WritePostgresText(out, report)
	}
	return report.Severity, writeJSON(out, report)
}

// runDoctor makes the reports and returns how bad the last one is.
func runDoctor(ctx context.Context, o doctorOptions, out io.Writer) (doctor.Severity, error) {
	metrics, err := o.url()
	if err != nil {
		return 0, err
	}
	if err := o.checkFormat(); err != nil {
		return 0, err
	}
	switch {
	case o.interval <= 0:
		return 0, fmt.Errorf("--interval: %s is not a time to wait", o.interval)
	case o.count < 0:
		return 0, fmt.Errorf("-n: %d is not a number of reports", o.count)
	}
	client, err := o.client()
	if err != nil {
		return 0, err
	}
	defer client.CloseIdleConnections()
	before, err := doctor.Fetch(ctx, client, metrics, o.authorization)
	if err != nil {
		return 0, err
	}
	if o.notes != nil {
		fmt.Fprintf(o.notes, "Read %s; comparing with a second look in %s …\n", metrics, o.interval)
	}
	severity := doctor.Fine
	for n := 1; ; n++ {
		select {
		case <-time.After(o.interval):
		case <-ctx.Done():
			if n > 1 {
				return severity, nil
			}
			return 0, errors.New("interrupted before there was something to compare")
		}
		after, err := doctor.Fetch(ctx, client, metrics, o.authorization)
		if err != nil {
			return 0, err
		}
		report := doctor.Examine(before, after)
		severity = report.Severity
		switch {
		case o.format == "text" && n > 1:
			fmt.Fprintln(out)
		case o.format == "text":
			fmt.Fprintf(out, "this program: lapwing %s; the backend:\n", version)
		}
		if err := o.write(out, report); err != nil {
			return 0, err
		}
		if n == o.count {
			return severity, nil
		}
		before = after
	}
}

func (o doctorOptions) write(out io.Writer, report *doctor.Report) error {
	if o.format == "text" {
		return doctor.WriteText(out, report)
	}
	return writeJSON(out, report)
}

func (o doctorOptions) checkFormat() error {
	if o.format != "text" && o.format != "json" {
		return fmt.Errorf("--format: %q is neither text nor json", o.format)
	}
	return nil
}

func writeJSON(out io.Writer, report any) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(report)
}

// url is where the metrics are.
func (o doctorOptions) url() (string, error) {
	if o.metricsURL != "" && o.apiURL != "" {
		return "", errors.New("--api-url and --metrics-url exclude one another")
	}
	if o.metricsURL != "" {
		if u, err := url.Parse(o.metricsURL); err != nil || u.Host == "" {
			return "", fmt.Errorf("--metrics-url: %q is not a URL such as http://127.0.0.1:9108/metrics", o.metricsURL)
		}
		return o.metricsURL, nil
	}
	api := cmp.Or(o.apiURL, "http://127.0.0.1:8080")
	api, _, _ = strings.Cut(api, ",") // one backend is examined
	u, err := url.Parse(api)
	if err != nil || u.Host == "" {
		return "", fmt.Errorf("--api-url: %q is not a URL such as http://127.0.0.1:8080", api)
	}
	return u.JoinPath("metrics").String(), nil
}

// key is the API key; "" for none.
func (o doctorOptions) key() string {
	return cmp.Or(o.apiKey, os.Getenv("LAPWING_API_KEY"), os.Getenv("SENSU_API_KEY"))
}

func (o doctorOptions) client() (*http.Client, error) {
	config := cmp.Or(o.tls, &tls.Config{InsecureSkipVerify: o.insecure})
	if o.tls == nil && o.caFile != "" {
		pem, err := os.ReadFile(o.caFile)
		if err != nil {
			return nil, fmt.Errorf("read trusted CA file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("trusted CA file %s holds no PEM certificates", o.caFile)
		}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = config
	return &http.Client{Transport: transport, Timeout: 15 * time.Second}, nil
}
