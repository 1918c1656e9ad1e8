//go:build !agentonly

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/lapwing-monitoring/lapwing/backend"
	"github.com/lapwing-monitoring/lapwing/backup"
	"github.com/lapwing-monitoring/lapwing/broker/blocks"
	"github.com/lapwing-monitoring/lapwing/client/ctl"
)

func backupCommand() *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use:   "backup FILE|DIRECTORY|-",
		Short: "Store a backup of a running backend in a file",
		Long: `Ask a running backend for a backup of itself, and store it in a file: definitions with all secrets, events and
their histories, unfinished deliveries, dead letters, traces and the audit log. The backend goes on working.

FILE is replaced when the new backup is complete, checked and on the disk; until then it stays as it is. In a directory
the file gets a name with the time, for example lapwing-20261123T061500Z.backup. With - the backup goes to standard
output.

The file has password hashes and keys: keep it secret. Only its owner can read it. The user needs all rights, as of the
role cluster-admin. Settings and certificates in other files of the backend's host are not in it.

Exit status: 0 the backup is complete, 1 there is no new backup.`,
		Example: `  lapwing backup /var/backups/lapwing/
  lapwing backup lapwing.backup --api-url http://127.0.0.1:8080 --api-key 63f6f2a8-…
  lapwing backup verify lapwing.backup
  lapwing restore lapwing.backup --state-dir /var/lib/lapwing/backend`,
		Args: backupPlace,
		RunE: func(cmd *cobra.Command, args []string) error {
			conn, err := ctl.Connect(cmd)
			if err != nil {
				return err
			}
			defer conn.Client.Close()
			line := newProgress(cmd.ErrOrStderr(), quiet)
			path, s, err := takeBackup(cmd.Context(), conn, args[0], cmd.OutOrStdout(), line)
			line.end()
			if err != nil || quiet || path == "-" {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %d bytes, sound\n", path, s.Size)
			return nil
		},
	}
	ctl.AddFlags(cmd)
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print nothing but errors")
	cmd.AddCommand(backupVerifyCommand())
	return cmd
}

// backupPlace accepts the name of a file, but no word that is meant as a command: the file would have all secrets.
func backupPlace(cmd *cobra.Command, args []string) error {
	if err := exactly("FILE")(cmd, args); err != nil {
		return err
	}
	instead := "a backup is a file: list the files of your directory"
	switch args[0] {
	case "list", "ls", "info", "show", "status", "delete", "rm", "help":
	case "restore":
		instead = "run lapwing restore FILE --state-dir DIRECTORY"
	case "create", "now", "start":
		instead = "run lapwing backup FILE"
	default:
		return nil
	}
	return fmt.Errorf("%s is no command of lapwing backup: %s; to store a backup in a file of this name, write ./%[1]s", args[0], instead)
}

// exactly accepts one argument.
func exactly(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s takes one argument, %s; run %[1]s --help", cmd.CommandPath(), name)
		}
		return nil
	}
}

// takeBackup stores a backup at a place that a user named, and returns the path of the file.
func takeBackup(ctx context.Context, conn *ctl.Connection, place string, stdout io.Writer, line *progress,
) (string, *backup.Summary, error) {
	path := place
	if st, err := os.Stat(place); err == nil && st.IsDir() {
		path = filepath.Join(place, "lapwing-"+time.Now().UTC().Format("20060102T150405Z")+".backup")
	} else if strings.HasSuffix(place, "/") {
		return "", nil, fmt.Errorf("there is no directory %s", place)
	}
	if path == "-" {
		s, err := receive(ctx, conn, stdout, line)
		return path, s, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".part-")
	if err != nil {
		return "", nil, fmt.Errorf("create file for the backup: %w", err)
	}
	s, err := receive(ctx, conn, f, line)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return "", nil, errors.Join(err, os.Remove(f.Name()))
	}
	return path, s, blocks.SyncDir(filepath.Dir(path))
}

// receive writes a backup as it comes, and checks it.
func receive(ctx context.Context, conn *ctl.Connection, w io.Writer, line *progress) (*backup.Summary, error) {
	answer, err := conn.Client.Backup(ctx)
	if err != nil {
		return nil, conn.Explain(err)
	}
	defer func() { _ = answer.Close() }()
	out := &firstError{w: w}
	s, err := backup.Read(io.TeeReader(answer, out), line.show)
	if out.err != nil {
		return nil, fmt.Errorf("store the backup: %w", out.err)
	}
	if damage := new(backup.DamageError); errors.As(err, &damage) {
		err = fmt.Errorf("%w; there is no new backup: try again", err)
	}
	return s, err
}

// firstError keeps the error of a writer, which differs from one of the reading.
type firstError struct {
	w   io.Writer
	err error
}

func (f *firstError) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if f.err == nil {
		f.err = err
	}
	return n, err
}

// noDirectory refuses the name of a directory in place of a backup, and names the newest backup in it.
func noDirectory(path string) error {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return nil // opening it reports what is wrong
	}
	files, err := filepath.Glob(filepath.Join(path, "*.backup"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("%s is a directory, and has no file that ends in .backup: name the file of a backup", path)
	}
	changed := func(name string) time.Time {
		if info, err := os.Stat(name); err == nil {
			return info.ModTime()
		}
		return time.Time{}
	}
	newest := slices.MaxFunc(files, func(a, b string) int { return cmp.Or(changed(a).Compare(changed(b)), strings.Compare(a, b)) })
	return fmt.Errorf("%s is a directory: name a file in it; the newest is %s", path, newest)
}

func backupVerifyCommand() *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use:   "verify FILE",
		Short: "Read a backup, check all of it, and say what it has",
		Long: `Read a backup, check all of it, and say what it has. No backend is needed. With - the backup is read from
standard input.

Exit status: 0 the backup is sound, 2 it is damaged or cut off, 1 any other failure.`,
		Example: `  lapwing backup verify lapwing.backup
  gpg --decrypt lapwing.backup.gpg | lapwing backup verify -`,
		Args: exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := cmd.InOrStdin()
			if err := noDirectory(args[0]); err != nil {
				return err
			}
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return fmt.Errorf("open backup: %w", err)
				}
				defer func() { _ = f.Close() }()
				in = f
			}
			line := newProgress(cmd.ErrOrStderr(), quiet)
			s, err := backup.Read(in, line.show)
			line.end()
			if errors.As(err, new(*backup.DamageError)) || errors.As(err, new(*backup.FailedError)) {
				return exitStatus{2, fmt.Errorf("%s: %w", args[0], err)}
			}
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if quiet {
				return nil
			}
			return printBackup(cmd.OutOrStdout(), args[0]+" is sound", s)
		},
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print nothing but errors")
	return cmd
}

func restoreCommand() *cobra.Command {
	var dir string
	var quiet bool
	cmd := &cobra.Command{
		Use:   "restore FILE --state-dir DIRECTORY",
		Short: "Make a state directory from a backup",
		Long: `Make a state directory from a backup, for the next start of a backend. The directory must be new or empty. No
backend may use it. The whole backup is checked before anything is written.

Run it as the user of the backend, so that the files belong to that user. All that was written after the backup is lost:
definitions, results, acknowledgements, entries of the audit log. Deliveries that were finished after it are made again,
with the same IDs.

Exit status: 0 restored, 1 any other failure.`,
		Example: `  sudo -u lapwing lapwing restore lapwing.backup --state-dir /var/lib/lapwing/backend`,
		Args:    exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts := backend.DefaultOptions()
			opts.StateDir = dir
			opts.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
			line := newProgress(cmd.ErrOrStderr(), quiet)
			s, err := backend.Restore(cmd.Context(), opts, args[0], line.show)
			line.end()
			if err != nil || quiet {
				return err
			}
			if err := printBackup(cmd.OutOrStdout(), dir+" is restored", s); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "what waited for handlers is tried again when the backend starts")
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "state-dir", "", "directory to make; required")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print nothing but errors")
	_ = cmd.MarkFlagRequired("state-dir") // fails for an unknown flag alone
	return cmd
}

func printBackup(out io.Writer, first string, s *backup.Summary) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, first)
	fmt.Fprintf(w, "made\t%s (%s ago)\n", s.Time.Format(time.RFC3339), age(time.Since(s.Time)))
	fmt.Fprintf(w, "backend\t%s of host %s, lapwing %s\n", s.Backend, cmp.Or(s.Host, "unknown"), s.Lapwing)
	fmt.Fprintf(w, "size\t%d bytes, %d of data\n", s.Size, s.Bytes)
	fmt.Fprintf(w, "entities\t%d\n", s.Entities)
	fmt.Fprintf(w, "events\t%d\n", s.Events)
	for i, r := range s.Log {
		text := fmt.Sprintf("up to message %d, all in the state", r.Last)
		if r.Last >= r.First {
			text = fmt.Sprintf("up to message %d, from %d on in the backup", r.Last, r.First)
		}
		fmt.Fprintf(w, "event log partition %d\t%s\n", i, text)
	}
	fmt.Fprintf(w, "audit entries\t%d\n", s.Audit)
	total := 0
	for _, n := range s.Definitions {
		total += n
	}
	fmt.Fprintf(w, "definitions\t%d\n", total)
	for _, kind := range slices.Sorted(maps.Keys(s.Definitions)) {
		fmt.Fprintf(w, "  %s\t%d\n", kind, s.Definitions[kind])
	}
	return w.Flush()
}

// age is a time for people, who count days and not hours.
func age(d time.Duration) string {
	const day = 24 * time.Hour
	if d > 2*day {
		return fmt.Sprintf("%d days", d/day)
	}
	return d.Round(time.Second).String()
}

// progress shows on a terminal how far a backup or a restore is.
type progress struct {
	out   io.Writer // nil for none
	shown time.Time
	width int
}

func newProgress(out io.Writer, quiet bool) *progress {
	if f, ok := out.(*os.File); ok && !quiet && term.IsTerminal(int(f.Fd())) {
		return &progress{out: out}
	}
	return &progress{}
}

func (p *progress) show(what string, bytes int64) {
	const pause = 200 * time.Millisecond
	if p.out == nil || time.Since(p.shown) < pause {
		return
	}
	p.shown = time.Now()
	line := fmt.Sprintf("%.1f MB, %s", float64(bytes)/1e6, what)
	fmt.Fprintf(p.out, "\r%-*s", p.width, line)
	p.width = max(p.width, len(line))
}

// end removes the line.
func (p *progress) end() {
	if p.out != nil && p.width > 0 {
		fmt.Fprintf(p.out, "\r%*s\r", p.width, "")
	}
}
