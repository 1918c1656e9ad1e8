package ctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/client-go/util/jsonpath"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
)

// What --output has that --format, which is sensuctl's, has not.
const (
	formatName     = "name"     // KIND/NAME, a line for each resource
	formatJSONPath = "jsonpath" // a template over the JSON

	outputTable  = "table" // --format tabular
	outputWide   = "wide"  // the same with all columns, and as long as its lines are
	pathTemplate = formatJSONPath + "="
)

var outputs = []string{outputTable, outputWide, formatJSON, formatWrappedJSON, formatYAML, formatName}

// allOutputs returns the formats of --output, those that only one command has before the template.
func allOutputs(more []string) []string { return slices.Concat(outputs, more, []string{pathTemplate}) }

// outputFlag adds --output, unless the command has a flag of that name or letter that means something else.
func outputFlag(cmd *cobra.Command, more []string) {
	f := cmd.Flags()
	if f.Lookup("output") != nil {
		return
	}
	letter := "o"
	if f.ShorthandLookup(letter) != nil {
		letter = ""
	}
	all := allOutputs(more)
	f.StringP("output", letter, "", "output format: "+strings.Join(all, ", ")+"TEMPLATE (instead of --format)")
	_ = f.SetAnnotation("output", outputOfCommand, append([]string{}, more...)) // the flag exists
	cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
}

// outputOfCommand annotates the flag that outputFlag has made, with the formats that only this command has.
const outputOfCommand = "output of this command"

// setOutput reads --output into the settings.
func (s *settings) setOutput(cmd *cobra.Command) error {
	f := cmd.Flags().Lookup("output")
	if f == nil || !f.Changed {
		return nil
	}
	more, ours := f.Annotations[outputOfCommand]
	if !ours {
		return nil
	}
	if format := cmd.Flags().Lookup("format"); format != nil && format.Changed {
		return fmt.Errorf("--output and --format exclude each other")
	}
	value := f.Value.String()
	if template, ok := strings.CutPrefix(value, pathTemplate); ok {
		if !strings.Contains(template, "{") {
			template = "{" + template + "}" // as kubectl's custom columns have it
		}
		s.path = jsonpath.New("output").AllowMissingKeys(true)
		if err := s.path.Parse(template); err != nil {
			return fmt.Errorf("--output jsonpath: %w", err)
		}
		s.format = formatJSONPath
		return nil
	}
	all := allOutputs(more)
	switch {
	case value == outputTable || value == formatTabular:
		s.format = formatTabular
	case value == outputWide:
		s.format, s.wide = formatTabular, true
	case slices.Contains(all, value) && value != pathTemplate:
		s.format = value
	default:
		err := fmt.Errorf("--output %q: it must be one of %sTEMPLATE", value, strings.Join(all, ", "))
		if near := optionerr.Nearest(value, all); near != "" {
			err = fmt.Errorf("%w: did you mean %q?", err, near)
		}
		return err
	}
	return nil
}

// printNames writes the names of resources: KIND/NAME.
func printNames(w io.Writer, k *kind, list []json.RawMessage) error {
	for _, raw := range list {
		if _, err := fmt.Fprintf(w, "%s/%s\n", k.Command, k.nameOf(raw)); err != nil {
			return err
		}
	}
	return nil
}

// nameOf returns what names one resource on the command line, with slashes between its parts.
func (k *kind) nameOf(raw json.RawMessage) string {
	if k.Type == client.Events.Type {
		return eventEntityName(raw) + "/" + eventCheckName(raw)
	}
	return resourceName(k)(raw)
}

// printPath writes what the template of --output jsonpath= finds in a JSON value. Lists are {"items": […]} there, as in
// kubectl.
func (s *settings) printPath(w io.Writer, raw json.RawMessage) error {
	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")) {
		raw = slices.Concat([]byte(`{"items":`), raw, []byte("}"))
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var value any
	if err := dec.Decode(&value); err != nil {
		return fmt.Errorf("decode JSON: %w", err)
	}
	var out bytes.Buffer
	if err := s.path.Execute(&out, value); err != nil {
		return fmt.Errorf("--output jsonpath: %w", err)
	}
	if text := out.Bytes(); len(text) > 0 && text[len(text)-1] != '\n' {
		out.WriteByte('\n')
	}
	_, err := out.WriteTo(w)
	return err
}

// terminalSize returns the columns and lines of a terminal; 0 if the stream is none. COLUMNS overrides the columns.
func terminalSize(stream io.Writer) (width, height int) {
	f, ok := rawStream(stream).(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0, 0
	}
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0, 0
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		width = n
	}
	return width, height
}

// paged runs f, and shows its output page by page if that is longer than the terminal.
func (s *invocation) paged(f func() error) error {
	if s.height == 0 || s.noPager {
		return f()
	}
	out, buf := s.out, new(bytes.Buffer)
	s.out = buf
	if out != rawStream(out) {
		s.out = &safeWriter{w: buf}
	}
	err := f()
	s.out, out = out, rawStream(out)
	if bytes.Count(buf.Bytes(), []byte("\n")) < s.height || !runPager(out, rawStream(s.errOut), buf.Bytes()) {
		if _, writing := out.Write(buf.Bytes()); err == nil {
			err = writing
		}
	}
	return err
}

// runPager shows a text with the user's pager. It returns false if there is none, or it cannot be started.
func runPager(out, errOut io.Writer, text []byte) bool {
	command, set := os.LookupEnv("LAPWING_PAGER")
	if !set {
		command, set = os.LookupEnv("PAGER")
	}
	if !set {
		if _, err := exec.LookPath("less"); err != nil {
			return false
		}
		command = "less"
	}
	if command = strings.TrimSpace(command); command == "" || command == "cat" {
		return false
	}
	words := strings.Fields(command)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), out, errOut
	cmd.Env = os.Environ()
	if os.Getenv("LESS") == "" {
		cmd.Env = append(cmd.Env, "LESS=FRX")
	}
	if err := cmd.Start(); err != nil {
		return false
	}
	_ = cmd.Wait() // a pager that was left before the end is no failure of the command
	return true
}
