package ctl

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

const (
	formatTabular     = "tabular"
	formatJSON        = "json"
	formatWrappedJSON = "wrapped-json"
	formatYAML        = "yaml"
)

var formats = []string{formatTabular, formatJSON, formatWrappedJSON, formatYAML}

var formatList = strings.Join(formats, ", ")

// checkFormat refuses a format that neither all commands have nor this one has.
func checkFormat(format string, more ...string) error {
	all := slices.Concat(formats, more)
	if slices.Contains(all, format) {
		return nil
	}
	return fmt.Errorf("unknown format %q: it must be one of %s", format, strings.Join(all, ", "))
}

// formatFlag adds --format. resolve reads its value.
func formatFlag(cmd *cobra.Command) { formatFlagWith(cmd) }

// formatsOfCommand annotates --format with the formats that only this command has.
const formatsOfCommand = "formats of this command"

// formatFlagWith adds --format with more formats. A profile cannot have them.
func formatFlagWith(cmd *cobra.Command, more ...string) {
	all := slices.Concat(formats, more)
	cmd.Flags().String("format", "", "output format: "+strings.Join(all, ", ")+` (default "tabular")`)
	_ = cmd.Flags().SetAnnotation("format", formatsOfCommand, more) // the flag exists
	cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp))
	outputFlag(cmd, more)
}

// printList writes resources in the command's format.
func (s *invocation) printList(k *kind, list []json.RawMessage, allNamespaces bool) error {
	return s.paged(func() error { return s.writeList(k, list, allNamespaces) })
}

func (s *invocation) writeList(k *kind, list []json.RawMessage, allNamespaces bool) error {
	w := bufio.NewWriter(s.out)
	var err error
	joined := func() []byte {
		parts := make([][]byte, len(list))
		for i, raw := range list {
			parts[i] = raw
		}
		return slices.Concat([]byte("["), bytes.Join(parts, []byte(",")), []byte("]"))
	}
	switch s.format {
	case formatJSON:
		err = writeJSONBlock(w, joined())
	case formatWrappedJSON:
		for _, raw := range list {
			if err = writeWrappedJSON(w, k, raw, "  "); err != nil {
				break
			}
		}
	case formatYAML:
		for i, raw := range list {
			if i > 0 {
				fmt.Fprintln(w, "---")
			}
			if err = writeYAML(w, k, raw); err != nil {
				break
			}
		}
	case formatName:
		err = printNames(w, k, list)
	case formatJSONPath:
		err = s.printPath(w, joined())
	default:
		var t *table
		if t, err = s.newTable(k, list, allNamespaces); err == nil {
			s.print(w, t)
		}
	}
	if err != nil {
		return err
	}
	return w.Flush()
}

// newTable returns a table of resources. With several namespaces, the namespace is its last column.
func (s *invocation) newTable(k *kind, list []json.RawMessage, allNamespaces bool) (*table, error) {
	t := &table{columns: k.columns, color: s.color}
	if allNamespaces && !slices.ContainsFunc(k.columns, func(c column) bool { return c.title == "Namespace" }) {
		t.columns = append(slices.Clone(k.columns), column{title: "Namespace"})
	}
	for _, raw := range list {
		rows, err := k.rows(raw)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			t.rows = append(t.rows, row[:len(t.columns)])
		}
	}
	return t, nil
}

// printOne writes a resource in the command's format.
func (s *invocation) printOne(k *kind, raw json.RawMessage) error {
	switch s.format {
	case formatJSON:
		return writeJSONBlock(s.out, raw)
	case formatWrappedJSON:
		return writeWrappedJSON(s.out, k, raw, "  ")
	case formatYAML:
		return writeYAML(s.out, k, raw)
	case formatName:
		return printNames(s.out, k, []json.RawMessage{raw})
	case formatJSONPath:
		return s.printPath(s.out, raw)
	}
	block, err := k.info(raw)
	if err != nil {
		return err
	}
	return s.paged(func() error { return block.show(s) })
}

// writeJSONBlock writes JSON in the API's order, and an empty line, as sensuctl does.
func writeJSONBlock(w io.Writer, raw []byte) error {
	var buf bytes.Buffer
	if err := json.Indent(&buf, unescapeHTML(raw), "", "  "); err != nil {
		return fmt.Errorf("indent JSON: %w", err)
	}
	buf.WriteString("\n\n")
	_, err := buf.WriteTo(w)
	return err
}

// unescapeHTML replaces the escapes that Go servers write for HTML characters in JSON: commands are full of & and >.
func unescapeHTML(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' || i+1 == len(raw) {
			out = append(out, raw[i])
			continue
		}
		escape := string(raw[i:min(i+6, len(raw))])
		switch strings.ToLower(escape) {
		case `\u0026`:
			out = append(out, '&')
			i += 5
		case `\u003c`:
			out = append(out, '<')
			i += 5
		case `\u003e`:
			out = append(out, '>')
			i += 5
		default:
			out = append(out, raw[i], raw[i+1])
			i++
		}
	}
	return out
}

// wrapped is a resource as files have it.
type wrapped struct {
	Type       string          `json:"type"`
	APIVersion string          `json:"api_version"`
	Metadata   json.RawMessage `json:"metadata"`
	Spec       map[string]any  `json:"spec"`
}

// wrap moves the metadata out of a resource. Kinds without metadata get one with their name.
func wrap(k *kind, raw json.RawMessage) (*wrapped, error) {
	out := &wrapped{Type: k.Type, APIVersion: k.Group}
	var err error
	if k.Wrapped {
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.UseNumber()
		if err := dec.Decode(out); err != nil {
			return nil, fmt.Errorf("decode %s: %w", k.Type, err)
		}
		return out, nil
	}
	if out.Spec, err = decodeMap(raw); err != nil {
		return nil, err
	}
	var inner struct{ Metadata json.RawMessage }
	if err := json.Unmarshal(raw, &inner); err != nil {
		return nil, fmt.Errorf("decode %s: %w", k.Command, err)
	}
	delete(out.Spec, "metadata")
	out.Metadata = inner.Metadata
	if k.Singleton {
		out.Metadata = json.RawMessage("{}")
	}
	if k.NameField != "" {
		if out.Metadata, err = json.Marshal(map[string]any{"name": out.Spec[k.NameField]}); err != nil {
			return nil, fmt.Errorf("encode %s: %w", k.Command, err)
		}
	}
	return out, nil
}

// writeWrappedJSON writes a wrapped resource; without indent, on one line.
func writeWrappedJSON(w io.Writer, k *kind, raw json.RawMessage, indent string) error {
	out, err := wrap(k, raw)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	return enc.Encode(out)
}

// writeYAML writes a wrapped resource as a YAML document: the first two keys, then the others sorted by name.
func writeYAML(w io.Writer, k *kind, raw json.RawMessage) error {
	out, err := wrap(k, raw)
	if err != nil {
		return err
	}
	data, err := json.Marshal(map[string]any{"metadata": out.Metadata, "spec": out.Spec})
	if err != nil {
		return fmt.Errorf("encode %s: %w", k.Command, err)
	}
	body, err := yamlOf(data)
	if err != nil {
		return fmt.Errorf("encode %s as YAML: %w", k.Command, err)
	}
	_, err = fmt.Fprintf(w, "type: %s\napi_version: %s\n%s", out.Type, out.APIVersion, body)
	return err
}

// yamlOf returns JSON as YAML. JSON may have characters as they are that YAML takes for line breaks or refuses.
func yamlOf(data []byte) ([]byte, error) {
	var out []byte
	for _, r := range string(data) {
		switch {
		case r >= 0x7f && r < 0xa0, r == 0x2028, r == 0x2029, r == 0xfeff, r == 0xfffe, r == 0xffff:
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = utf8.AppendRune(out, r)
		}
	}
	return yaml.JSONToYAML(out)
}

// jsonOf encodes a value of this package. It cannot fail for the server's data.
func jsonOf(v any) (json.RawMessage, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return raw, nil
}

// decodeMap decodes a JSON object and keeps its numbers exact.
func decodeMap(raw []byte) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var m map[string]any
	if err := dec.Decode(&m); err != nil {
		return nil, fmt.Errorf("decode JSON object: %w", err)
	}
	return m, nil
}
