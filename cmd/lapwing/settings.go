package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// program is where one of our programs finds its settings beside the command line.
type program struct {
	// prefixes are those of its environment variables; Sensu's are among them.
	prefixes []string
	// shared is one of the prefixes that other programs use too. A variable with it is only reported if its name is close
	// to one of ours.
	shared string
	// file is the configuration file when the command line names none. It may be missing.
	file string
	// sensu has the keys of Sensu's program that ours does not have, with what to use instead.
	sensu map[string]string
}

// notice is something about the settings that an operator should read in the log.
type notice struct {
	message string
	args    []any
}

func logNotices(log *slog.Logger, notices []notice) {
	for _, n := range notices {
		log.Warn(n.message, n.args...)
	}
}

// settings fills flags that the command line leaves alone: from the environment (each of the prefixes, then the flag's name
// in upper case with "_" for "-"), then from the YAML file with the flags' names as keys. The file may be missing unless the
// command line names it. The error has all that is wrong.
func settings(flags *pflag.FlagSet, p program) ([]notice, error) {
	notices, err := p.fromEnvironment(flags)
	more, fileErr := p.fromFile(flags)
	return append(notices, more...), errors.Join(err, fileErr)
}

// readAgain reads the settings of a running program once more, from the same command line.
func readAgain(register func(*pflag.FlagSet), p program) (*pflag.FlagSet, []notice, error) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	register(flags)
	if err := flags.Parse(os.Args[1:]); err != nil {
		return nil, nil, fmt.Errorf("read the command line again: %w", err)
	}
	notices, err := settings(flags, p)
	return flags, notices, err
}

func (p program) fromFile(flags *pflag.FlagSet) (notices []notice, err error) {
	file, named := p.file, false
	if f := flags.Lookup("config-file"); f != nil && f.Changed {
		file, named = f.Value.String(), true
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read configuration file: %w", err)
	}
	values := map[string]yaml.Node{}
	if err := yaml.Unmarshal(text, &values); err != nil {
		return nil, fmt.Errorf("read configuration file %s: %w", file, err)
	}
	var wrong []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		node := values[key]
		f := flags.Lookup(key)
		if f == nil {
			if advice, ok := p.sensu[key]; ok {
				notices = append(notices, notice{"setting of Sensu has no effect", []any{"file", file, "key", key, "advice", advice}})
			} else {
				wrong = append(wrong, fmt.Sprintf("unknown key %q%s", key, p.suggest(flags, key)))
			}
			continue
		}
		if f.Changed {
			continue
		}
		if err := setNode(flags, f, &node); err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", key, err))
		}
	}
	if len(wrong) > 0 {
		return notices, fmt.Errorf("configuration file %s: %s", file, strings.Join(wrong, "; "))
	}
	return notices, nil
}

func (p program) fromEnvironment(flags *pflag.FlagSet) (notices []notice, err error) {
	known := map[string]bool{}
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		for _, prefix := range p.prefixes {
			name := variable(prefix, f.Name)
			known[name] = true
			text, ok := os.LookupEnv(name)
			if !ok || f.Changed {
				continue
			}
			if err := setVariable(flags, f, text); err != nil {
				errs = append(errs, fmt.Errorf("environment variable %s: %w", name, err))
			}
		}
	})
	environment := os.Environ()
	slices.Sort(environment)
	for _, entry := range environment {
		if name, _, _ := strings.Cut(entry, "="); !known[name] {
			notices = append(notices, p.unknownVariable(flags, name)...)
		}
	}
	return notices, errors.Join(errs...)
}

// variable is the name of an environment variable of a flag.
func variable(prefix, flag string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// unknownVariable says what to know of an environment variable that sets no flag.
func (p program) unknownVariable(flags *pflag.FlagSet, name string) []notice {
	for _, prefix := range p.prefixes {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok || rest == "" {
			continue
		}
		key := strings.ToLower(strings.ReplaceAll(rest, "_", "-"))
		if advice, ok := p.sensu[key]; ok {
			return []notice{{"setting of Sensu has no effect", []any{"variable", name, "advice", advice}}}
		}
		near := nearest(key, p.keys(flags))
		if prefix == p.shared && near == "" {
			return nil
		}
		args := []any{"variable", name}
		if near != "" {
			args = append(args, "nearest", variable(prefix, near))
		}
		return []notice{{"unknown environment variable has no effect", args}}
	}
	return nil
}

// suggest ends a message about an unknown key with the known one that is nearest.
func (p program) suggest(flags *pflag.FlagSet, key string) string {
	if near := nearest(key, p.keys(flags)); near != "" {
		return fmt.Sprintf(" (the nearest known key is %q)", near)
	}
	return ""
}

// keys are all that a file may have.
func (p program) keys(flags *pflag.FlagSet) []string {
	keys := slices.Collect(maps.Keys(p.sensu))
	flags.VisitAll(func(f *pflag.Flag) { keys = append(keys, f.Name) })
	slices.Sort(keys)
	return keys
}

// nearest is the known name with the fewest edits to the given one, "" if none comes close.
func nearest(name string, known []string) string {
	name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
	best, fewest := "", 1+len(name)/4
	for _, k := range known {
		if d := edits(name, k); d <= fewest && (best == "" || d < fewest) {
			best, fewest = k, d
		}
	}
	return best
}

// edits counts the insertions, removals and replacements of bytes that make b of a.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// setVariable gives a flag the value of an environment variable: lists are separated by blanks, and maps are JSON, as Sensu
// has it.
func setVariable(flags *pflag.FlagSet, f *pflag.Flag, text string) error {
	switch f.Value.Type() {
	case "stringSlice", "stringArray":
		return setList(f, strings.Fields(text))
	case "stringToString":
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber() // a number is what it looks like
		var values map[string]any
		if err := d.Decode(&values); err != nil {
			return err
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return errors.New("there is something after the JSON object")
		}
		words := map[string]string{}
		for key, v := range values {
			if v != nil {
				words[key] = fmt.Sprint(v)
			}
		}
		return setMap(flags, f, words)
	default:
		return flags.Set(f.Name, text)
	}
}

// setNode gives a flag a value of a YAML file. Scalars keep their text: 12345678 stays that, and so does 1.10.
func setNode(flags *pflag.FlagSet, f *pflag.Flag, node *yaml.Node) error {
	node = resolved(node)
	switch node.Kind {
	case yaml.SequenceNode:
		var words []string
		for _, item := range node.Content {
			word, ok, err := scalar(item)
			if err != nil {
				return err
			}
			if ok {
				words = append(words, word)
			}
		}
		return setList(f, words)
	case yaml.MappingNode:
		var items map[string]yaml.Node
		if err := node.Decode(&items); err != nil {
			return err
		}
		words := map[string]string{}
		for key, item := range items {
			word, ok, err := scalar(&item)
			if err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			if ok {
				words[key] = word
			}
		}
		return setMap(flags, f, words)
	}
	word, ok, err := scalar(node)
	if !ok || err != nil {
		return err
	}
	return flags.Set(f.Name, forFlag(f, word))
}

// resolved follows an alias to what it stands for.
func resolved(node *yaml.Node) *yaml.Node {
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	return node
}

// scalar is the text of a single value, ok unless it is null.
func scalar(node *yaml.Node) (text string, ok bool, err error) {
	node = resolved(node)
	switch {
	case node.Kind != yaml.ScalarNode:
		return "", false, errors.New("one value is wanted, not a list or a map")
	case node.Tag == "!!null":
		return "", false, nil
	}
	return node.Value, true, nil
}

// forFlag writes a scalar as pflag reads it: YAML has more words for true and false, and may write a whole number as 1e6.
func forFlag(f *pflag.Flag, text string) string {
	switch kind := f.Value.Type(); {
	case kind == "bool":
		switch strings.ToLower(text) {
		case "yes", "on", "y":
			return "true"
		case "no", "off", "n":
			return "false"
		}
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
		if n, err := strconv.ParseFloat(text, 64); err == nil && n == float64(int64(n)) && strings.ContainsAny(text, ".eE") {
			return strconv.FormatInt(int64(n), 10)
		}
	}
	return text
}

func setList(f *pflag.Flag, words []string) error {
	list, ok := f.Value.(pflag.SliceValue)
	if !ok {
		return errors.New("one value is wanted, not a list")
	}
	f.Changed = true
	return list.Replace(words)
}

func setMap(flags *pflag.FlagSet, f *pflag.Flag, values map[string]string) error {
	if f.Value.Type() != "stringToString" {
		return errors.New("one value is wanted, not a map")
	}
	if len(values) == 0 {
		return nil
	}
	var text bytes.Buffer
	for _, key := range slices.Sorted(maps.Keys(values)) {
		pair := `"` + strings.ReplaceAll(key+"="+values[key], `"`, `""`) + `",`
		text.WriteString(pair + pair) // twice, because pflag takes a single pair for plain text and not for CSV
	}
	return flags.Set(f.Name, strings.TrimSuffix(text.String(), ","))
}
