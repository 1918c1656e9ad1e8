package main

import (
	"bytes"
	"cmp"
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

	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
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

// logNotices logs those that were not told before, and returns all that have been told now: a program that reads its
// settings again does not repeat itself.
func logNotices(log *slog.Logger, notices []notice, told map[string]bool) map[string]bool {
	now := map[string]bool{}
	for _, n := range notices {
		key := fmt.Sprint(append([]any{n.message}, n.args...)...)
		if !told[key] && !now[key] {
			log.Warn(n.message, n.args...)
		}
		now[key] = true
	}
	return now
}

// settings fills flags that the command line leaves alone: from the environment (each of the prefixes, then the flag's
// name in upper case with "_" for "-"; an empty variable counts as not set, as it does for Sensu), then from the YAML
// file with the flags' names as keys. The file may be missing unless the command line names it. The error has all that
// is wrong.
func settings(flags *pflag.FlagSet, p program) ([]notice, error) {
	notices, err := p.fromEnvironment(flags)
	more, fileErr := p.fromFile(flags)
	return append(notices, more...), errors.Join(err, fileErr)
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
	values, err := parseFile(text)
	if err != nil {
		return nil, fmt.Errorf("read configuration file %s: %w", file, err)
	}
	var wrong []string
	var bad optionerr.List
	for _, v := range values {
		f := flags.Lookup(v.key)
		if f == nil {
			if advice, ok := p.sensu[v.key]; ok {
				notices = append(notices, notice{"setting of Sensu has no effect",
					[]any{"file", file, "line", v.line, "key", v.key, "advice", advice}})
			} else {
				wrong = append(wrong, fmt.Sprintf("line %d: unknown key %q%s", v.line, v.key, p.suggest(flags, v.key)))
			}
			continue
		}
		if f.Changed {
			continue
		}
		setSource(f, fmt.Sprintf("key %s of %s, line %d", v.key, file, v.line))
		if err := setNode(flags, f, &v.node); err != nil {
			bad.Add(v.key, "%w", err)
		}
	}
	if len(wrong) > 0 {
		err = fmt.Errorf("configuration file %s: %s", file, strings.Join(wrong, "; "))
	}
	return notices, withSources(errors.Join(err, bad.Err()), flags)
}

// fileValue is the value of a key in a configuration file.
type fileValue struct {
	key  string
	line int // of the key, or of the value if a merge (<<) brings the key
	node yaml.Node
}

// parseFile returns the keys of a YAML file and their values in the order of their lines.
func parseFile(text []byte) ([]fileValue, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil || len(doc.Content) == 0 { // an empty file has no content
		return nil, err
	}
	top := resolved(doc.Content[0])
	if top.Kind == yaml.ScalarNode && top.Tag == "!!null" {
		return nil, nil
	}
	if top.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: keys with values are wanted, such as \"log-level: info\"", top.Line)
	}
	nodes := map[string]yaml.Node{}
	if err := top.Decode(&nodes); err != nil { // refuses keys that stand there twice, and resolves merges
		return nil, err
	}
	lines := map[string]int{}
	for i := 0; i < len(top.Content); i += 2 {
		lines[top.Content[i].Value] = top.Content[i].Line
	}
	var values []fileValue
	for key, node := range nodes {
		values = append(values, fileValue{key, cmp.Or(lines[key], node.Line), node})
	}
	slices.SortFunc(values, func(a, b fileValue) int {
		return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.key, b.key))
	})
	return values, nil
}

func (p program) fromEnvironment(flags *pflag.FlagSet) (notices []notice, err error) {
	known := map[string]bool{}
	var bad optionerr.List
	flags.VisitAll(func(f *pflag.Flag) {
		for _, prefix := range p.prefixes {
			name := variable(prefix, f.Name)
			known[name] = true
			text := os.Getenv(name)
			if text == "" || f.Changed {
				continue
			}
			setSource(f, "environment variable "+name)
			if err := setVariable(flags, f, text); err != nil {
				bad.Add(f.Name, "%w", err)
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
	return notices, withSources(bad.Err(), flags)
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
		near := optionerr.Nearest(key, p.keys(flags))
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
	if near := optionerr.Nearest(key, p.keys(flags)); near != "" {
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

// setVariable gives a flag the value of an environment variable: lists are separated by blanks, and maps are JSON, as
// Sensu has it.
func setVariable(flags *pflag.FlagSet, f *pflag.Flag, text string) error {
	switch f.Value.Type() {
	case "stringSlice", "stringArray":
		return setList(f, strings.Fields(text))
	case "stringToString":
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber() // a number is what it looks like
		var values map[string]any
		if err := d.Decode(&values); err != nil {
			return fmt.Errorf("it is not a JSON object such as {\"name\": \"value\"}: %w", err)
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
	}
	return setText(flags, f, text)
}

// setText gives a flag a single value.
func setText(flags *pflag.FlagSet, f *pflag.Flag, text string) error {
	if err := flags.Set(f.Name, text); err != nil {
		f.Changed = true            // one error is enough: other places are not asked
		_ = f.Value.Set(f.DefValue) // a failure may leave 0, or a bound
		return plain(f, text, err)
	}
	return nil
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
				return fmt.Errorf("line %d: %w", item.Line, err)
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
				return fmt.Errorf("line %d: %s: %w", item.Line, key, err)
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
	return setText(flags, f, forFlag(f, word))
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

// forFlag writes a scalar as pflag reads it: YAML has more words for true and false, and may write a whole number as
// 1e6.
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
