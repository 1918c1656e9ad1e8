//go:build !agentonly

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/metric"
	"github.com/lapwing-monitoring/lapwing/metric/whisper"
	"github.com/lapwing-monitoring/lapwing/telemetry"
)

// whisperOptions are what import-whisper and export-whisper have in common.
type whisperOptions struct {
	store   metric.OfflineOptions
	config  string
	output  string
	quiet   bool
	workers int
}

func (o *whisperOptions) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&o.config, "config-file", "c", carbonProgram.file,
		"configuration file of lapwing carbon, for --state-dir and the two --storage files")
	f.StringVarP(&o.store.Dir, "state-dir", "d", "/var/lib/lapwing/carbon",
		"directory of the server: that of lapwing carbon, or of a backend; its server must be stopped")
	f.StringVar(&o.store.SchemasFile, "storage-schemas-file", "",
		"carbon's storage-schemas.conf; the same as the server has")
	f.StringVar(&o.store.AggregationFile, "storage-aggregation-file", "",
		"carbon's storage-aggregation.conf; the same as the server has")
	f.IntVar(&o.workers, "workers", 0, "files under way at a time; 0 for the number of CPUs")
	f.StringVarP(&o.output, "output", "o", "text", "form of the report: text or json")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "do not show on the standard error what is being done")
}

// open opens the store that the flags name, or else the settings of lapwing carbon.
func (o *whisperOptions) open(cmd *cobra.Command) (*metric.Offline, error) {
	if o.output != "text" && o.output != "json" {
		return nil, fmt.Errorf("--output: %q is neither text nor json", o.output)
	}
	server := carbonCommand().Flags()
	if f := cmd.Flags().Lookup("config-file"); f.Changed {
		if err := server.Set("config-file", o.config); err != nil {
			return nil, err
		}
	}
	if _, err := settings(server, carbonProgram); err != nil {
		return nil, err
	}
	for _, name := range []string{"state-dir", "storage-schemas-file", "storage-aggregation-file"} {
		if own := cmd.Flags().Lookup(name); !own.Changed {
			if err := own.Value.Set(server.Lookup(name).Value.String()); err != nil {
				return nil, err
			}
		}
	}
	limitMemory(0)
	var at slog.LevelVar
	at.Set(slog.LevelError) // the TSDB warns of each overlap of blocks, and imports make many
	var err error
	if o.store.Logger, err = telemetry.LoggerAt(cmd.ErrOrStderr(), &at, "text"); err != nil {
		return nil, err
	}
	return metric.OpenOffline(o.store)
}

// report writes a report: as JSON, or as text does.
func (o *whisperOptions) report(out io.Writer, report any, text func(*tabwriter.Writer)) error {
	if o.output == "json" {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(report)
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	text(w)
	return w.Flush()
}

// line shows a line of text instead of the last one.
func (p *progress) line(text string) {
	if p.out == nil {
		return
	}
	fmt.Fprintf(p.out, "\r%-*s", p.width, text)
	p.width = max(p.width, len(text))
}

// whisperLine says in a line how far an import or an export is.
func whisperLine(p whisper.Progress) string {
	line := fmt.Sprintf("%d", p.Files)
	if p.TotalFiles > 0 {
		line += fmt.Sprintf(" of %d", p.TotalFiles)
	}
	line += fmt.Sprintf(" files, %.1f MB, %.1f million points, %.0f points/s", float64(p.Bytes)/1e6, float64(p.Points)/1e6,
		p.PointsPerSecond)
	if p.Errors > 0 {
		line += fmt.Sprintf(", %d errors", p.Errors)
	}
	if p.Left > 0 {
		line += ", " + p.Left.Round(time.Second).String() + " left"
	}
	return line
}

func importWhisperCommand() *cobra.Command {
	var o whisperOptions
	w := whisper.ImportOptions{}
	var match, journal, names string
	var noVerify bool
	cmd := &cobra.Command{
		Use:   "import-whisper DIR",
		Short: "Import a tree of Graphite's whisper files",
		Long: `Import a tree of Graphite's whisper files into the store of a server that is stopped. DIR is what carbon calls
LOCAL_DATA_DIR, for example /var/lib/graphite/whisper. It is only read; carbon may go on writing to it.

Each file's archives go into the archives that the storage schemas give to its series, so the schemas should be those of
carbon. Where they differ, values are converted as whisper-resize.py does: the report says where. Values that are older than
their archive's retention are left out, as whisper leaves them out. A value that is in the store already is replaced.

All values are read back and compared. The import notes in a journal which files are finished. So it can be interrupted, and
run again: it goes on where it ended. Files that have changed since are imported again, which makes a second run short: import
while carbon runs, stop carbon, import again.

Files of tagged series are named by a hash. To import them, give a list of the series' names, as Graphite answers at
/tags/findSeries?expr=name=~.

Files that cannot be read, and go-carbon's compressed files, are listed in the report.

Exit status: 0 all files are imported, 1 the import could not be carried out or was interrupted, 2 some files could not be
imported: see the report.`,
		Example: `  lapwing carbon import-whisper /var/lib/graphite/whisper --state-dir /var/lib/lapwing/carbon \
    --storage-schemas-file /etc/carbon/storage-schemas.conf --storage-aggregation-file /etc/carbon/storage-aggregation.conf
  lapwing carbon import-whisper /var/lib/graphite/whisper --match '^servers\.'
  curl 'http://graphite/tags/findSeries?expr=name=~.' > names.json
  lapwing carbon import-whisper /var/lib/graphite/whisper --tagged-names-file names.json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			w.Dir, w.Verify, w.Workers = args[0], !noVerify, o.workers
			if match != "" {
				if w.Match, err = regexp.Compile(match); err != nil {
					return fmt.Errorf("--match: %w", err)
				}
			}
			if w.TaggedNames, err = readTaggedNames(names); err != nil {
				return err
			}
			o.store.Create = true
			store, err := o.open(cmd)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, store.Close()) }()
			if w.StateFile = journal; journal == "" {
				w.StateFile = filepath.Join(store.Dir(), "whisper-import.journal")
			}
			line := newProgress(cmd.ErrOrStderr(), o.quiet)
			w.Progress = func(p whisper.Progress) { line.line(whisperLine(p)) }
			ctx := cmd.Context()
			report, err := store.Import(ctx, w)
			line.end()
			err = errors.Join(err, o.report(cmd.OutOrStdout(), report, func(w *tabwriter.Writer) {
				writeImport(w, &report, !noVerify)
			}))
			return whisperResult(ctx, err, report.FailedCount+report.SkippedCount > 0)
		},
	}
	o.register(cmd)
	f := cmd.Flags()
	f.StringVar(&match, "match", "", "regular expression: only series whose name it matches")
	f.StringVar(&names, "tagged-names-file", "",
		"file with the names of tagged series: a name a line, or a JSON array of names")
	f.StringVar(&journal, "journal", "",
		"file that notes which files are finished (default whisper-import.journal in the directory of the metrics)")
	f.BoolVar(&noVerify, "no-verify", false, "do not read back and compare what was imported")
	f.BoolVar(&w.Read.GoCarbon, "go-carbon", false,
		"the files are go-carbon's: aggregation type 6 is first, and not avg_zero (only the report shows it)")
	return cmd
}

func exportWhisperCommand() *cobra.Command {
	var o whisperOptions
	w := whisper.ExportOptions{}
	var tags []string
	cmd := &cobra.Command{
		Use:   "export-whisper DIR [PATTERN]...",
		Short: "Export series as Graphite's whisper files",
		Long: `Export series from the store of a server that is stopped, as whisper files with all their retentions. DIR becomes what
carbon calls LOCAL_DATA_DIR. PATTERN is as in Graphite's find, for example servers.*.cpu.*; without a PATTERN and without
--tag all series are exported.

Files that are there already stay, so that an export can be interrupted and run again; --overwrite replaces them.

Exit status: 0 all is exported, 1 the export could not be carried out or was interrupted, 2 some series could not be exported:
see the report.`,
		Example: `  lapwing carbon export-whisper /var/lib/graphite/whisper --state-dir /var/lib/lapwing/carbon
  lapwing carbon export-whisper /tmp/whisper 'servers.web*.cpu.*' --tag name=disk.used --tag dc=dc1`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			w.Dir, w.Workers = args[0], o.workers
			store, err := o.open(cmd)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, store.Close()) }()
			line := newProgress(cmd.ErrOrStderr(), o.quiet)
			w.Progress = func(p whisper.Progress) { line.line(whisperLine(p)) }
			ctx := cmd.Context()
			report, err := store.Export(ctx, args[1:], tags, w)
			line.end()
			err = errors.Join(err, o.report(cmd.OutOrStdout(), report, func(w *tabwriter.Writer) { writeExport(w, &report) }))
			return whisperResult(ctx, err, report.FailedCount > 0)
		},
	}
	o.register(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&tags, "tag", nil,
		"expression such as dc=dc1 or host=~web: export tagged series that satisfy all of them")
	f.BoolVar(&w.PlainTagged, "plain-tagged-names", false,
		"name the files of tagged series by their names and not by a hash, as carbon does with TAG_HASH_FILENAMES = False")
	f.BoolVar(&w.Overwrite, "overwrite", false, "replace files that are there")
	return cmd
}

// whisperResult is the result of a command: an error, or a status that says that something is missing.
func whisperResult(ctx context.Context, err error, incomplete bool) error {
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("it was interrupted: run the same command again to go on (%w)", err)
	case err != nil:
		return err
	case incomplete:
		return exitStatus{exitIncomplete, nil}
	}
	return nil
}

// readTaggedNames reads --tagged-names-file.
func readTaggedNames(path string) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--tagged-names-file: %w", err)
	}
	defer func() { _ = f.Close() }()
	names, err := whisper.ReadTaggedNames(f)
	if err != nil {
		return nil, fmt.Errorf("--tagged-names-file %s: %w", path, err)
	}
	return names, nil
}

// shownErrors is how many files a report as text lists of a kind. JSON has more.
const shownErrors = 50

func writeImport(w *tabwriter.Writer, r *whisper.Report, verified bool) {
	fmt.Fprintf(w, "files\t%d\n", r.Files)
	fmt.Fprintf(w, "imported\t%d\n", r.Imported)
	row := func(name string, n int64, what string) {
		if n > 0 {
			fmt.Fprintf(w, "%s\t%d\t%s\n", name, n, what)
		}
	}
	row("finished before", int64(r.Done), "according to the journal")
	row("not matched", int64(r.Unmatched), "by --match")
	row("empty", int64(r.Empty), "without points within their retention")
	row("skipped", int64(r.SkippedCount), "see below")
	row("failed", int64(r.FailedCount), "see below")
	fmt.Fprintf(w, "points\t%d\t%.1f s\n", r.Points, r.Elapsed.Seconds())
	if verified {
		fmt.Fprintf(w, "read back and equal\t%d\n", r.Verified)
	}
	row("points too old", r.TooOld, "older than their archive's retention: whisper does not return them either")
	row("points of the future", r.Future, "left out")
	row("points that are NaN", r.NaN, "left out")
	row("slots out of place", r.Unreachable, "with a time that whisper does not find: the files may be damaged")
	if len(r.Differences) > 0 {
		fmt.Fprintf(w, "\nThe storage schemas differ from files (values were converted):\n")
		for _, d := range r.Differences {
			fmt.Fprintf(w, "  %s\t%d files\t%s\tnow %s\n", d.Setting, d.Files, d.File, d.Store)
		}
	}
	list := func(title string, count int, errs []whisper.FileError) {
		if count == 0 {
			return
		}
		fmt.Fprintf(w, "\n%s:\n", title)
		for _, e := range errs[:min(len(errs), shownErrors)] {
			fmt.Fprintf(w, "  %s: %s\n", e.Path, e.Reason)
		}
		if count > shownErrors {
			fmt.Fprintf(w, "  and %d more: see --output json\n", count-shownErrors)
		}
	}
	list("Skipped", r.SkippedCount, r.Skipped)
	list("Failed", r.FailedCount, r.Failed)
}

func writeExport(w *tabwriter.Writer, r *whisper.ExportReport) {
	fmt.Fprintf(w, "series\t%d\n", r.Series)
	fmt.Fprintf(w, "files written\t%d\t%.1f MB\n", r.Written, float64(r.Bytes)/1e6)
	if r.Kept > 0 {
		fmt.Fprintf(w, "files kept\t%d\tthey were there (--overwrite replaces them)\n", r.Kept)
	}
	if r.Empty > 0 {
		fmt.Fprintf(w, "empty\t%d\twithout points within their retention\n", r.Empty)
	}
	fmt.Fprintf(w, "points\t%d\t%.1f s\n", r.Points, r.Elapsed.Seconds())
	if r.FailedCount == 0 {
		return
	}
	fmt.Fprintf(w, "\nFailed:\n")
	for _, e := range r.Failed[:min(len(r.Failed), shownErrors)] {
		fmt.Fprintf(w, "  %s: %s\n", e.Name, e.Reason)
	}
	if r.FailedCount > shownErrors {
		fmt.Fprintf(w, "  and %d more: see --output json\n", r.FailedCount-shownErrors)
	}
}
