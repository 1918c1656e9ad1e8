//go:build !agentonly

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/client/ctl"
	"github.com/lapwing-monitoring/lapwing/client/migrate"
	"github.com/lapwing-monitoring/lapwing/internal/duration"
)

// exitIncomplete is the exit status of a copy that is not complete.
const exitIncomplete = 2

type migrateOptions struct {
	from      ctl.Other
	files     []string
	hashes    string
	output    string
	quiet     bool
	noVerify  bool
	migration migrate.Options
}

func migrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Copy another monitoring system into lapwing",
		Long: `Copy another monitoring system into lapwing.

Exit status: as of the command for the system.`,
		Example: "  lapwing migrate sensu --from http://sensu.example:8080 --dry-run",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(migrateSensuCommand())
	return cmd
}

func migrateSensuCommand() *cobra.Command {
	var o migrateOptions
	cmd := &cobra.Command{
		Use:   "sensu",
		Short: "Copy a Sensu Go 6 into lapwing",
		Long: `Copy a Sensu Go 6 into lapwing: namespaces, users and roles, API keys, all definitions, entities, silences with the time they
have left, and the state of every check with its history. The source is a running backend (--from), which is only read, or files
that "sensuctl dump" wrote (--file). lapwing is the one you are signed in to (lapwing configure, or --api-url and --api-key).

Both sides are compared first, and what differs is sent; so the command can be run again, after an interruption or to catch up, and
does nothing when there is nothing to do. With --dry-run lapwing checks what would be sent, and writes nothing. Nothing is removed
from lapwing, and a result that is newer there stays. After the copy both sides are compared once more.

Events are copied before handlers and pipelines, so that nothing is alerted a second time; events of a later run are sent without the
handlers that lapwing has by then. From its arrival on a keepalive, or an event with a ttl, is waited for: move the agents soon, or
leave events out (--skip events) and let lapwing hear of everything anew.

What cannot be carried is in the report, with what to do about it: passwords of users (the API does not tell them; give their bcrypt
hashes with --password-hashes, else the accounts get no password), secrets that Sensu redacts, resources that
lapwing does not have. lapwing has no secrets providers: definitions with secrets are copied, but these checks do not run, and
alerts of these handlers become dead letters. The report names each.

Exit status: 0 all that can be carried is in lapwing (or, with --dry-run, lapwing would take it), 1 the command could not be
carried out, 2 something was refused or is not equal after the copy: see the report.`,
		Example: `  lapwing migrate sensu --from http://sensu.example:8080 --from-username admin --from-password-file pw --dry-run
  lapwing migrate sensu --from https://sensu.example:8080      # signed in with sensuctl on this machine
  sensuctl dump all --all-namespaces | lapwing migrate sensu --file - --password-hashes hashes.txt
  lapwing migrate sensu --from http://sensu.example:8080 --skip events,silenced -o json > report.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, err := runMigrate(cmd, &o)
			switch {
			case err != nil:
				return err
			case !report.Complete():
				return exitStatus{exitIncomplete, nil}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.from.URL, "from", "", "URL of the Sensu backend's API (default that of sensuctl's profile)")
	f.StringSliceVarP(&o.files, "file", "f", nil,
		"file that sensuctl dump wrote, or - for standard input, instead of --from; can be repeated")
	f.StringVar(&o.from.Username, "from-username", "", "user at the source, a cluster administrator")
	f.String("from-password-file", "",
		"file with that user's password (default: LAPWING_FROM_PASSWORD in the environment)")
	f.StringVar(&o.from.APIKey, "from-api-key", "", "API key at the source, instead of a user (also LAPWING_FROM_API_KEY)")
	f.StringVar(&o.from.Profile, "from-config-dir", "",
		"directory of the sensuctl profile to sign in with (default $HOME/.config/sensu/sensuctl)")
	f.StringVar(&o.from.CAFile, "from-trusted-ca-file", "", "PEM file of certificate authorities to trust for the source")
	f.BoolVar(&o.from.Insecure, "from-insecure-skip-tls-verify", false,
		"do not verify the source's certificate (dangerous)")
	f.Var(duration.New(time.Minute, &o.from.Timeout), "from-timeout", "how long to wait for an answer of the source")
	f.BoolVar(&o.migration.DryRun, "dry-run", false, "compare and report; lapwing checks what would be sent and writes nothing")
	f.BoolVar(&o.migration.Keep, "keep", false, "leave what lapwing has as it is, also where it differs")
	f.BoolVar(&o.noVerify, "no-verify", false, "do not compare again after the copy")
	f.StringSliceVar(&o.migration.Namespaces, "namespaces", nil,
		"namespaces to copy (default all; what has no namespace is copied anyway)")
	f.StringSliceVar(&o.migration.Skip, "skip", nil, "kinds not to copy, such as events or users")
	f.StringVar(&o.hashes, "password-hashes", "",
		"file with a line USER:BCRYPT-HASH for each user, as htpasswd -B writes it")
	f.IntVar(&o.migration.Parallel, "parallel", migrate.Parallel, "requests under way at a time")
	f.StringVarP(&o.output, "output", "o", "text", "form of the report: text or json")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "do not say on the standard error what is being done")
	ctl.AddFlags(cmd)
	return cmd
}

// runMigrate copies and writes the report, also that of a copy that was cut short.
func runMigrate(cmd *cobra.Command, o *migrateOptions) (*migrate.Report, error) {
	if o.output != "text" && o.output != "json" {
		return nil, fmt.Errorf("--output: %q is neither text nor json", o.output)
	}
	to, err := ctl.Connect(cmd)
	if err != nil {
		return nil, err
	}
	defer to.Client.Close()
	ctx := cmd.Context()
	cluster, err := clusterID(ctx, to)
	if err != nil {
		return nil, fmt.Errorf("ask lapwing at %s: %w", to.URL, err)
	}
	m := &o.migration
	m.Target, m.TargetName, m.TargetUser, m.Verify = to.Client, "lapwing "+to.URL, to.User(ctx), !o.noVerify
	if m.PasswordHashes, err = readHashes(o.hashes); err != nil {
		return nil, err
	}
	var done func()
	if m.Source, done, err = o.source(cmd, to, cluster); err != nil {
		return nil, err
	}
	defer done()
	if !o.quiet {
		begin := time.Now()
		m.Progress = func(k migrate.KindReport) {
			if k.Source > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "%6.1fs  %s: %d\n", time.Since(begin).Seconds(), k.Plural, k.Source)
			}
		}
	}
	report, err := migrate.Run(ctx, *m)
	if len(report.Kinds) > 0 { // it began
		if writeErr := writeReport(cmd.OutOrStdout(), report, o.output); err == nil {
			err = writeErr
		}
	}
	return report, err
}

// source is what the flags name, and what is to be done with it in the end.
func (o *migrateOptions) source(cmd *cobra.Command, to *ctl.Connection,
	cluster string) (migrate.Source, func(), error) {
	none := func() {}
	if len(o.files) > 0 {
		if o.from.URL != "" {
			return nil, none, errors.New("--from and --file exclude one another")
		}
		source, err := readDumps(cmd.InOrStdin(), o.files, to.Namespace)
		return source, none, err
	}
	if err := o.readSecrets(cmd); err != nil {
		return nil, none, err
	}
	from, err := ctl.ConnectOther(o.from, "lapwing/"+version, cmd.ErrOrStderr())
	if err != nil {
		return nil, none, fmt.Errorf("sign in to the source: %w", err)
	}
	id, err := clusterID(cmd.Context(), from)
	switch {
	case err != nil:
		err = fmt.Errorf("ask Sensu at %s: %w", from.URL, err)
	case from.URL == to.URL || id != "" && id == cluster:
		// lapwing's settings may be those of sensuctl.
		err = fmt.Errorf("%s and %s are the same cluster\nSign in to lapwing with 'lapwing configure', or name it with --api-url", from.URL, to.URL)
	}
	if err != nil {
		from.Client.Close()
		return nil, none, err
	}
	return migrate.NewServer("Sensu "+from.URL, from.Client), from.Client.Close, nil
}

// clusterID is which cluster answers; "" if it does not say.
func clusterID(ctx context.Context, c *ctl.Connection) (string, error) {
	id, err := c.Client.ClusterID(ctx)
	if errors.Is(err, client.ErrNotFound) {
		return "", nil
	}
	return id, c.Explain(err)
}

func (o *migrateOptions) readSecrets(cmd *cobra.Command) error {
	if o.from.APIKey == "" {
		o.from.APIKey = os.Getenv("LAPWING_FROM_API_KEY")
	}
	if o.from.Username == "" {
		return nil
	}
	o.from.APIKey = "" // a name on the command line is meant
	name, _ := cmd.Flags().GetString("from-password-file")
	if name == "" {
		o.from.Password = os.Getenv("LAPWING_FROM_PASSWORD")
		if o.from.Password == "" {
			return errors.New("--from-username needs --from-password-file, or LAPWING_FROM_PASSWORD in the environment")
		}
		return nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("--from-password-file: %w", err)
	}
	o.from.Password = strings.TrimRight(string(text), "\r\n")
	return nil
}

func readDumps(stdin io.Reader, names []string, namespace string) (migrate.Source, error) {
	var in []migrate.File
	for _, name := range names {
		if name == "-" {
			in = append(in, migrate.File{Name: "standard input", Data: stdin})
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("read dump: %w", err)
		}
		defer f.Close()
		in = append(in, migrate.File{Name: name, Data: f})
	}
	return migrate.ReadFiles(in, namespace)
}

// readHashes reads lines of USER:HASH. Only bcrypt is of use: it is what both sides compare passwords with.
func readHashes(name string) (map[string]string, error) {
	if name == "" {
		return nil, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("--password-hashes: %w", err)
	}
	defer f.Close()
	out := map[string]string{}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		user, hash, ok := strings.Cut(line, ":")
		if !ok || user == "" || !slices.ContainsFunc([]string{"$2a$", "$2b$", "$2y$"},
			func(p string) bool { return strings.HasPrefix(hash, p) }) {
			return nil, fmt.Errorf("--password-hashes: line %d of %s is not USER:HASH with a bcrypt hash ($2a$…)", n, name)
		}
		out[user] = hash
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("--password-hashes: %w", err)
	}
	return out, nil
}

func writeReport(out io.Writer, r *migrate.Report, format string) error {
	if format == "text" {
		return migrate.WriteText(out, r)
	}
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(r)
}
