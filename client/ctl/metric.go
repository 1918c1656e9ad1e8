package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
)

// metricCommand has the commands about stored metrics.
func metricCommand() *cobra.Command {
	cmd := groupOf("metric", "find and draw stored metrics", "find 'servers.*'", findMetricCommand(), renderMetricCommand(), topMetricCommand())
	cmd.Long = `Find and draw the metrics that the backend stores, by Graphite's patterns and functions. The backend stores metrics if it
has a carbon listener, or stores the metrics of events: see docs/graphite.md.`
	return cmd
}

func findMetricCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "find PATTERN",
		Short: "list the nodes that match a pattern",
		Long: `List the nodes of the path that match a pattern: * is any text without a dot, ? one character, [abc] one of several, and
{a,b} alternatives. A dot at the end marks a node that has others below. If nothing matches, standard error says so and
the exit status is 0.`,
		Example: "  lapwing metric find 'servers.*'\n  lapwing metric find 'servers.web{1,2}.cpu.*.idle' --format json",
		Args:    args("PATTERN"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			found, err := s.client.FindMetrics(ctx, args[0])
			if err != nil {
				return err
			}
			raw, err := jsonOf(found)
			if err != nil {
				return err
			}
			return s.printPlain(raw, func(json.RawMessage) (shown, error) { return foundNodes(found), nil })
		}),
	}
	formatFlag(cmd)
	return cmd
}

type foundNodes []client.FoundMetric

func (f foundNodes) show(s *invocation) error {
	if len(f) == 0 {
		fmt.Fprintln(s.errOut, "nothing matches the pattern")
	}
	for _, n := range f {
		path := n.Path
		if !n.IsLeaf {
			path += "."
		}
		fmt.Fprintln(s.out, path)
	}
	return nil
}

// renderFlags are the flags of commands that evaluate targets.
type renderFlags struct {
	client.RenderRequest
	output              string
	width, height, last int
}

func (f *renderFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.From, "from", "-1h", "beginning of the range, as Graphite has it: -1h, noon yesterday, 1764000000")
	cmd.Flags().StringVar(&f.Until, "until", "now", "end of the range")
}

func renderMetricCommand() *cobra.Command {
	var o renderFlags
	var title string
	cmd := &cobra.Command{
		Use:   "render TARGET...",
		Short: "evaluate Graphite targets, as lines in the terminal or as an image",
		Long: `Evaluate Graphite targets: patterns, with functions around them. Each series is a line with its last, least, mean and
largest value, and its course (of more than 5,000 values, means are compared). With --output the answer is written to a file in the format of its ending: .png, .svg, .csv,
.json, .raw, .pickle or .msgpack.`,
		Example: `  lapwing metric render 'aliasByNode(servers.*.loadavg.01, 1)'
  lapwing metric render 'sumSeries(servers.*.network.eth0.rx_byte)' --from -1d --output traffic.png --title 'Traffic'`,
		Args: argsOrMore("TARGET"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			o.Targets = args
			if o.output != "" {
				return o.write(ctx, s, title)
			}
			o.MaxDataPoints = shownPoints
			series, err := s.client.Render(ctx, &o.RenderRequest)
			if err != nil {
				return err
			}
			raw, err := jsonOf(series)
			if err != nil {
				return err
			}
			return s.printPlain(raw, func(json.RawMessage) (shown, error) { return seriesShown(series), nil })
		}),
	}
	o.add(cmd)
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "file for the answer, in the format of its ending")
	cmd.Flags().StringVar(&title, "title", "", "title of an image")
	cmd.Flags().IntVar(&o.width, "width", 1000, "width of an image in pixels")
	cmd.Flags().IntVar(&o.height, "height", 400, "height of an image in pixels")
	formatFlag(cmd)
	return cmd
}

// formatsByEnding are the formats of files.
var formatsByEnding = []string{"png", "svg", "csv", "json", "raw", "pickle", "msgpack"}

// write writes the answer to a file.
func (f *renderFlags) write(ctx context.Context, s *invocation, title string) error {
	format := strings.TrimPrefix(filepath.Ext(f.output), ".")
	if !slices.Contains(formatsByEnding, format) {
		return fmt.Errorf("--output %s: the ending must be one of .%s", f.output, strings.Join(formatsByEnding, ", ."))
	}
	if format == "png" || format == "svg" {
		f.More = url.Values{"width": {strconv.Itoa(f.width)}, "height": {strconv.Itoa(f.height)}}
		if title != "" {
			f.More.Set("title", title)
		}
	}
	answer, err := s.client.RenderAs(ctx, &f.RenderRequest, format)
	if err != nil {
		return err
	}
	if err := os.WriteFile(f.output, answer, 0o644); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	_, err = fmt.Fprintf(s.out, "Wrote %s (%d bytes)\n", f.output, len(answer))
	return err
}

func topMetricCommand() *cobra.Command {
	var o renderFlags
	var by string
	cmd := &cobra.Command{
		Use:   "top TARGET",
		Short: "show the series with the largest values",
		Long:  `Show the series of a target with the largest values, the largest first.`,
		Example: `  lapwing metric top 'servers.*.cpu.total.user'
  lapwing metric top 'perSecond(servers.*.disk.*.reads)' --by max -n 20 --from -6h`,
		Args: args("TARGET"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			if !slices.Contains([]string{"current", "average", "max"}, by) {
				return fmt.Errorf("--by must be current, average or max, not %q", by)
			}
			if o.last < 1 {
				return errors.New("--number must be at least 1")
			}
			o.Targets = []string{fmt.Sprintf("highest(%s,%d,'%s')", args[0], o.last, by)}
			o.MaxDataPoints = shownPoints
			series, err := s.client.Render(ctx, &o.RenderRequest)
			if err != nil {
				return err
			}
			raw, err := jsonOf(series)
			if err != nil {
				return err
			}
			return s.printPlain(raw, func(json.RawMessage) (shown, error) { return seriesShown(series), nil })
		}),
	}
	o.add(cmd)
	cmd.Flags().StringVar(&by, "by", "current", "order by the last value (current), the mean (average) or the largest (max)")
	cmd.Flags().IntVarP(&o.last, "number", "n", 10, "number of series")
	formatFlag(cmd)
	return cmd
}

// sparkWidth is the number of columns of a series' course. shownPoints is how many values of a series are asked for: of
// longer ranges, the least and the largest value are those of means.
const (
	sparkWidth  = 40
	shownPoints = 5000
)

// seriesShown is the answer to targets, as a table. Of no series it also says so.
type seriesShown []client.RenderedSeries

func (r seriesShown) show(s *invocation) error {
	if len(r) == 0 {
		fmt.Fprintln(s.errOut, "no series matches, or none has values in the range: try 'lapwing metric find' or another --from")
	}
	return seriesTable(r).show(s)
}

func seriesTable(series []client.RenderedSeries) *table {
	t := &table{columns: []column{
		{title: "Series"}, {title: "Last", right: true}, {title: "Min", right: true}, {title: "Mean", right: true}, {title: "Max", right: true},
		{title: "Course"},
	}}
	for i := range series {
		sum := summaryOf(series[i].Datapoints)
		t.rows = append(t.rows, []string{series[i].Target, sum.text(sum.last), sum.text(sum.least), sum.text(sum.mean),
			sum.text(sum.most), spark(series[i].Datapoints, sum)})
	}
	return t
}

// summary is what a table shows of a series.
type summary struct {
	known                   int
	last, least, mean, most float64
}

func summaryOf(points [][2]*float64) (s summary) {
	total := 0.0
	for _, p := range points {
		if p[0] == nil {
			continue
		}
		v := *p[0]
		if s.known == 0 {
			s.least, s.most = v, v
		}
		s.least, s.most, s.last = min(s.least, v), max(s.most, v), v
		total += v
		s.known++
	}
	s.mean = total / float64(max(s.known, 1))
	return s
}

func (s summary) text(v float64) string {
	if s.known == 0 {
		return "-"
	}
	return short(v)
}

// short writes a value with four digits and a prefix of the SI.
func short(v float64) string {
	abs := math.Abs(v)
	for _, p := range []struct {
		from float64
		unit string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e4, "k"}} {
		if abs >= p.from {
			scale := cmp.Or(map[string]float64{"k": 1e3}[p.unit], p.from)
			return strconv.FormatFloat(v/scale, 'g', 4, 64) + p.unit
		}
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// bars are the heights of a course.
var bars = []rune("▁▂▃▄▅▆▇█")

// spark draws the course of a series, a gap where there is no value.
func spark(points [][2]*float64, s summary) string {
	if s.known == 0 {
		return ""
	}
	columns := min(sparkWidth, len(points))
	out := make([]rune, 0, columns)
	for c := range columns {
		sum, known := 0.0, 0
		for _, p := range points[c*len(points)/columns : (c+1)*len(points)/columns] {
			if p[0] != nil {
				sum += *p[0]
				known++
			}
		}
		switch {
		case known == 0:
			out = append(out, ' ')
		case s.most == s.least:
			out = append(out, bars[0])
		default:
			out = append(out, bars[int((sum/float64(known)-s.least)/(s.most-s.least)*float64(len(bars)-1)+0.5)])
		}
	}
	return strings.TrimRight(string(out), " ")
}

// argsOrMore refuses a command line without an argument.
func argsOrMore(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return nil
		}
		return hintUsage(cmd, fmt.Errorf("invalid argument(s) received: %q takes one or more of %s", cmd.CommandPath(), name))
	}
}
