package ctl

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// createCommand returns "create NAME" for a kind with fields.
func createCommand(k *kind) *cobra.Command {
	var fields *fieldFlags
	var labels map[string]string
	interactive := false
	cmd := &cobra.Command{
		Use:     "create NAME",
		Short:   "create one " + k.word(),
		Example: k.createExamples,
		Args:    nameArg(&interactive),
	}
	cmd.RunE = run(func(ctx context.Context, s *invocation, args []string) error {
		name := ""
		if len(args) > 0 {
			name = args[0]
		}
		body := map[string]any{}
		if err := fields.applyInitial(body); err != nil {
			return err
		}
		if _, err := fields.apply(body); err != nil {
			return err
		}
		if interactive {
			q := s.questions()
			if err := q.ask("Name", &name); err != nil {
				return err
			}
			if err := fields.ask(q, body); err != nil {
				return err
			}
		} else if err := fields.missing(); err != nil {
			return hintUsage(cmd, err)
		}
		if err := setLabels(body, labels); err != nil {
			return err
		}
		return s.create(ctx, k, name, body)
	})
	fields = addFieldFlags(cmd.Flags(), k.fields, true)
	if k.NameField == "" {
		labelsFlag(cmd, &labels)
	}
	if len(k.fields) > 0 {
		cmd.Flags().BoolVar(&interactive, "interactive", false, "ask for each field")
	}
	return cmd
}

// labelsFlag adds the flag for labels.
func labelsFlag(cmd *cobra.Command, labels *map[string]string) {
	cmd.Flags().StringToStringVar(labels, "labels", nil, "labels, for example team=red,region=eu")
}

// setLabels writes labels into a resource.
func setLabels(body map[string]any, labels map[string]string) error {
	if len(labels) == 0 {
		return nil
	}
	meta, err := subMap(body, "metadata")
	if err != nil {
		return err
	}
	meta["labels"] = labels
	return nil
}

// nameArg accepts one argument, or with interactive also none.
func nameArg(interactive *bool) cobra.PositionalArgs {
	return func(cmd *cobra.Command, words []string) error {
		if *interactive && len(words) == 0 {
			return nil
		}
		return args("NAME")(cmd, words)
	}
}

// questions asks on the command's input and output.
func (s *invocation) questions() *questions {
	return &questions{in: s.in, lines: bufio.NewReader(s.in), out: s.errOut}
}

// create posts a resource.
func (s *invocation) create(ctx context.Context, k *kind, name string, body map[string]any) error {
	if k.NameField != "" {
		body[k.NameField] = name
	} else {
		meta, err := subMap(body, "metadata")
		if err != nil {
			return err
		}
		if name != "" {
			meta["name"] = name
		}
		if k.Namespaced {
			meta["namespace"] = s.namespace
		}
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode %s: %w", k.word(), err)
	}
	message := json.RawMessage(raw)
	err = client.Post(ctx, s.client, k.Kind, s.namespace, &message)
	if errors.Is(err, client.ErrExists) && k.Type == client.Silences.Type {
		err = s.hiddenSilence(ctx, err, body)
	}
	if errors.Is(err, client.ErrExists) && !errors.As(err, new(*hintError)) {
		return hint(err, "Replace it with 'lapwing create -f', or delete it first.")
	}
	err = lacksLabels(err)
	if err != nil && k.Type == client.Handlers.Type && body["type"] == resource.EscalationType {
		return hint(err, "%s.", sentence(stepsOfFile))
	}
	if err != nil {
		return err
	}
	if k.Type == client.Silences.Type {
		s.didSilence(ctx, "Created", k, body, true)
		return nil
	}
	s.did("Created", k, name, s.undoCreate(k, name))
	h := new(resource.Handler)
	h.Type, _ = body["type"].(string)
	h.Filters, _ = body["filters"].([]string)
	if k.Type == client.Handlers.Type && h.WantsFilter() && s.format == formatTabular {
		fmt.Fprintf(s.errOut, "It has no filters, so it gets each result of checks that name it, also OK ones. For incidents alone: %s\n",
			printable(s.commandLine("handler", "update", name, "--filters", "is_incident")))
	}
	return nil
}

// undoCreate names the command that deletes what was created, if the kind has one.
func (s *invocation) undoCreate(k *kind, name string) string {
	if k.can&canDelete == 0 {
		return ""
	}
	return s.undo(k.Command, "delete", name)
}

// updateCommand changes the fields whose flags are set. Without flags it asks for each field.
func updateCommand(k *kind) *cobra.Command {
	var fields *fieldFlags
	first := k.fields[0]
	cmd := &cobra.Command{
		Use:   "update NAME",
		Short: "change one " + k.word(),
		Long: fmt.Sprintf(`Change one %s: flags set new values; without flags, the command asks for each field.
All other fields stay unchanged.`, k.word()),
		Example: fmt.Sprintf("  lapwing %[1]s update %[2]s\n  lapwing %[1]s update %[2]s --%[3]s '%[4]s'", k.Command,
			k.example, first.flag, exampleValue(first)),
		Args: args("NAME"),
		RunE: run(func(ctx context.Context, s *invocation, args []string) error {
			return s.modify(ctx, k, args[0], func(body map[string]any) error {
				any, err := fields.apply(body)
				if err != nil || any {
					return err
				}
				return fields.ask(s.questions(), body)
			}, "Updated")
		}),
	}
	fields = addFieldFlags(cmd.Flags(), k.fields, false)
	completeNames(cmd, k)
	return cmd
}

func exampleValue(f flagField) string {
	switch {
	case f.initial != "":
		return f.initial
	case f.kind == numberField:
		return "30"
	}
	return "one"
}

// attempts is how often a change is tried while others change the same resource.
const attempts = 5

// modify gets a resource, changes it, puts it back and prints a word. If another client wrote it in between, modify
// starts again with the new version, so that no change is lost. It prints more behind the word; change may set that.
func (s *invocation) modify(ctx context.Context, k *kind, name string, change func(map[string]any) error,
	done string, more ...*string,
) error {
	for attempt := 1; ; attempt++ {
		raw, tag, err := client.GetTagged(ctx, s.client, k.Kind, s.namespace, name)
		if err != nil {
			return hintMissing(k, err)
		}
		before, err := decodeMap(*raw)
		if err != nil {
			return err
		}
		after, err := decodeMap(*raw)
		if err != nil {
			return err
		}
		if err := change(after); err != nil {
			return fmt.Errorf("change %s %s: %w", k.word(), name, err)
		}
		err = s.replace(ctx, k, s.namespace, name, tag, before, after)
		if errors.Is(err, client.ErrPrecondition) && attempt < attempts {
			continue
		}
		if err != nil {
			return err
		}
		if k.Type == client.Silences.Type {
			s.didSilence(ctx, done, k, after, false)
			return nil
		}
		words := make([]string, len(more))
		for i, text := range more {
			words[i] = *text
		}
		s.did(done, k, name, words...)
		return nil
	}
}

// replace writes a changed resource, unless it no longer has the tag. For an entity it sends only the difference:
// values that the API redacted must not be written back.
func (s *invocation) replace(ctx context.Context, k *kind, namespace, name, tag string, before, after map[string]any) error {
	if k.redacted() {
		patch := mergePatch(unwrapped(before), unwrapped(after))
		return client.Patch(ctx, s.client, client.Entities, namespace, name, patch)
	}
	data, err := json.Marshal(after)
	if err != nil {
		return fmt.Errorf("encode %s: %w", k.word(), err)
	}
	raw := json.RawMessage(data)
	return client.PutIf(ctx, s.client, k.Kind, namespace, name, tag, &raw)
}

// redacted reports whether the API hides labels and annotations of the kind. Both parts of an entity are patched as
// one.
func (k *kind) redacted() bool {
	return k.Type == client.Entities.Type || k.Type == client.EntityConfigs.Type
}

// unwrapped returns a resource in its core/v2 form.
func unwrapped(body map[string]any) map[string]any {
	spec, ok := body["spec"].(map[string]any)
	if !ok {
		return body
	}
	spec = maps.Clone(spec)
	spec["metadata"] = body["metadata"]
	return spec
}

// mergePatch returns the JSON merge patch that turns before into after.
func mergePatch(before, after map[string]any) map[string]any {
	patch := map[string]any{}
	for key := range before {
		if _, stays := after[key]; !stays {
			patch[key] = nil
		}
	}
	for key, now := range after {
		old, was := before[key]
		if was && reflect.DeepEqual(plain(old), plain(now)) {
			continue
		}
		oldMap, oldIs := old.(map[string]any)
		nowMap, nowIs := now.(map[string]any)
		if oldIs && nowIs {
			patch[key] = mergePatch(oldMap, nowMap)
			continue
		}
		patch[key] = now
	}
	return patch
}

// plain returns v decoded from its JSON, so that equal JSON is equal in Go.
func plain(v any) any {
	switch v := v.(type) {
	case []string:
		out := make([]any, len(v))
		for i := range v {
			out[i] = v[i]
		}
		return out
	case json.Number:
		return plainNumber(strings.TrimSuffix(v.String(), ".0"))
	case int:
		return plainNumber(fmt.Sprint(v))
	case int64:
		return plainNumber(fmt.Sprint(v))
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = plain(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for key := range v {
			out[key] = plain(v[key])
		}
		return out
	}
	return v
}

type plainNumber string
