package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
)

func editCommand() *cobra.Command {
	var blank bool
	cmd := &cobra.Command{
		Use:   "edit TYPE NAME",
		Short: "change one resource in your editor",
		Long: `Change one resource in your editor. The variables VISUAL and EDITOR name the editor. The saved text replaces the resource;
without a change, nothing is sent. An event has two names: its entity's and its check's.

If another client changes the resource at the same time, nothing is sent, and your text is kept in a file.`,
		Example: "  lapwing edit check cpu\n  lapwing edit event srv1 check-cpu\n  lapwing edit handler --blank",
		Args: func(cmd *cobra.Command, words []string) error {
			switch {
			case blank && len(words) == 1, len(words) == 2, len(words) == 3:
				return nil
			case len(words) == 1:
				if k, ok := kindByName(words[0]); ok && k.Singleton {
					return nil
				}
			}
			return args("TYPE", "NAME")(cmd, words)
		},
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			k, ok := kindByName(args[0])
			if !ok {
				return unknownType(args[0], "edit changes what is stored. To apply a file: lapwing apply -f %s")
			}
			if blank {
				return s.editBlank(ctx, k)
			}
			if want := len(k.args); len(args)-1 != want {
				return fmt.Errorf("one %s is named by %d word(s), not %d", k.Type, want, len(args)-1)
			}
			return s.edit(ctx, k, strings.Join(args[1:], "/"))
		}),
	}
	cmd.Flags().BoolVarP(&blank, "blank", "b", false, "edit a new, empty resource of the type")
	formatFlag(cmd)
	cmd.ValidArgs = typeNames()
	return cmd
}

// edit lets the user change one resource.
func (s *invocation) edit(ctx context.Context, k *kind, name string) error {
	raw, tag, err := client.GetTagged(ctx, s.client, k.Kind, s.namespace, name)
	if err != nil {
		return hintMissing(k, err)
	}
	text, err := s.editable(k, *raw)
	if err != nil {
		return err
	}
	edited, path, err := s.openEditor(ctx, k, text)
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			os.Remove(path)
		}
	}()
	if bytes.Equal(edited, text) {
		return nil
	}
	kept := func(err error) error {
		return hint(err, "Your text is in %s.", path)
	}
	var o *object
	if o, err = s.parseEdited(k, edited); err != nil {
		return kept(err)
	}
	if k.Namespaced && o.namespace != s.namespace || o.name != name {
		err = fmt.Errorf("the name or namespace was changed: %s is not %s", o.path(), k.Path(s.namespace, name))
		return kept(err)
	}
	before, err := decodeMap(*raw)
	if err != nil {
		return err
	}
	body := o.sent()
	if err = s.replace(ctx, k, s.namespace, name, tag, before, body); err != nil {
		if errors.Is(err, client.ErrPrecondition) {
			err = fmt.Errorf("another client changed it in the meantime: %w", err)
		}
		return kept(err)
	}
	fmt.Fprintln(s.out, "Updated", o.path())
	return nil
}

// editBlank lets the user write a new resource.
func (s *invocation) editBlank(ctx context.Context, k *kind) error {
	raw, err := json.Marshal(reflect.New(k.goType).Interface())
	if err != nil {
		return fmt.Errorf("encode %s: %w", k.Type, err)
	}
	if !k.Singleton && k.NameField == "" {
		body, err := decodeMap(raw)
		if err != nil {
			return err
		}
		meta := map[string]any{"name": ""}
		if k.Namespaced {
			meta["namespace"] = s.namespace
		}
		body["metadata"] = meta
		if raw, err = json.Marshal(body); err != nil {
			return fmt.Errorf("encode %s: %w", k.Type, err)
		}
	}
	text, err := s.editable(k, raw)
	if err != nil {
		return err
	}
	edited, path, err := s.openEditor(ctx, k, text)
	if err != nil {
		return err
	}
	if bytes.Equal(edited, text) {
		os.Remove(path)
		return nil
	}
	o, err := s.parseEdited(k, edited)
	if err == nil {
		body := o.sent()
		err = client.Put(ctx, s.client, client.Kind[map[string]any](k.Kind), o.namespace, o.name, &body)
	}
	if err != nil {
		return hint(err, "Your text is in %s.", path)
	}
	os.Remove(path)
	fmt.Fprintln(s.out, "Updated", o.path())
	return nil
}

// editable returns a resource as the editor shows it.
func (s *invocation) editable(k *kind, raw json.RawMessage) ([]byte, error) {
	var text bytes.Buffer
	var err error
	if s.format == formatJSON || s.format == formatWrappedJSON {
		err = writeWrappedJSON(&text, k, raw, "  ")
	} else {
		err = writeYAML(&text, k, raw)
	}
	return text.Bytes(), err
}

// openEditor runs the editor on a text and returns the saved text and the file, which the caller removes. If the editor
// fails, the change is cancelled and the file is kept.
func (s *invocation) openEditor(ctx context.Context, k *kind, text []byte) (edited []byte, path string, err error) {
	dir, err := os.MkdirTemp("", "lapwing-edit-")
	if err != nil {
		return nil, "", fmt.Errorf("make file to edit: %w", err)
	}
	suffix := ".yaml"
	if s.format == formatJSON || s.format == formatWrappedJSON {
		suffix = ".json"
	}
	path = filepath.Join(dir, strings.ToLower(k.Type)+suffix)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return nil, "", fmt.Errorf("make file to edit: %w", err)
	}
	editor := os.Getenv("VISUAL")
	if editor == "" {
		editor = os.Getenv("EDITOR")
	}
	if editor == "" {
		editor = defaultEditor
	}
	words := strings.Fields(editor)
	cmd := exec.CommandContext(ctx, words[0], append(words[1:], path)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.in, rawStream(s.out), rawStream(s.errOut)
	if err := cmd.Run(); err != nil {
		return nil, "", hint(fmt.Errorf("run editor %s: %w", editor, err), "Set EDITOR. The file is %s.", path)
	}
	edited, err = os.ReadFile(path)
	if err != nil {
		return nil, "", fmt.Errorf("read edited file: %w", err)
	}
	return edited, path, nil
}

// parseEdited returns the one resource in the saved text.
func (s *invocation) parseEdited(k *kind, text []byte) (*object, error) {
	documents, wrong := splitDocuments("text", text)
	if len(wrong) == 0 && len(documents) != 1 {
		return nil, fmt.Errorf("there are %d resources in the file, not one", len(documents))
	}
	var o *object
	if len(wrong) == 0 {
		p := parseObject(documents[0], s.namespace, asWritten, false)
		s.warnAbout(p.warnings)
		o, wrong = p.object, p.wrong
	}
	if err := asError(wrong); err != nil {
		return nil, err
	}
	if o.kind != k {
		return nil, fmt.Errorf("the type was changed to %s", o.kind.Type)
	}
	return o, nil
}
