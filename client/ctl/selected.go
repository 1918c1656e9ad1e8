package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// selection says which objects an action is on, in place of their names.
type selection struct {
	fieldSelector, labelSelector string
	all, everywhere              bool
	dryRun, skipConfirm          bool
}

func (b *selection) flags(cmd *cobra.Command, k *kind) {
	f, about := cmd.Flags(), "with a selector or --all: only list what would be done"
	if strings.HasPrefix(cmd.Use, "delete ") {
		about = "only list what would be deleted"
	}
	f.StringVar(&b.fieldSelector, "field-selector", "", "all "+k.words()+" whose fields match, in place of a name")
	f.StringVar(&b.labelSelector, "label-selector", "", "all "+k.words()+" whose labels match, in place of a name")
	f.BoolVar(&b.all, "all", false, "all "+k.words()+" of the namespace")
	f.BoolVar(&b.everywhere, "all-namespaces", false, "with a selector or --all: in all namespaces")
	f.BoolVar(&b.dryRun, "dry-run", false, about)
	if f.Lookup("skip-confirm") == nil {
		skipConfirmFlag(cmd, &b.skipConfirm)
	}
}

// words returns the flags that say which objects are meant.
func (b *selection) words() (words []string) {
	for _, flag := range [][2]string{{"--field-selector", b.fieldSelector}, {"--label-selector", b.labelSelector}} {
		if flag[1] != "" {
			words = append(words, flag[0], flag[1])
		}
	}
	if b.all {
		words = append(words, "--all")
	}
	if b.everywhere {
		words = append(words, "--all-namespaces")
	}
	return words
}

func (b *selection) used() bool {
	return b.fieldSelector != "" || b.labelSelector != "" || b.all || b.everywhere || b.dryRun
}

// onlyDryRun reports whether --dry-run is all that is set: then a deletion may have a name.
func (b *selection) onlyDryRun() bool {
	return b.dryRun && b.fieldSelector == "" && b.labelSelector == "" && !b.all && !b.everywhere
}

// action is what a bulk request does to each object, in words for people.
type action struct {
	name         string                          // as in the API
	verb, done   string                          // resolve, Resolved
	alone        []string                        // flags that are only for one object
	instead      map[string]string               // what to do in place of such a flag
	example      string                          // more flags of the example
	fill         func(*client.BulkRequest) error // the rest of the request; nil for nothing
	onlySelected bool                            // there is no command for one name
	undo         string                          // the command that takes it back, with the same selectors; "" for none
}

// bySelector lets a command for one object also act on all that a selector selects.
func bySelector(cmd *cobra.Command, k *kind, do action) *cobra.Command {
	var b selection
	one, arguments := cmd.RunE, cmd.Args
	b.flags(cmd, k)
	cmd.Args = func(cmd *cobra.Command, words []string) error {
		switch {
		case do.onlySelected:
		case b.onlyDryRun() && len(words) > 0 && do.name != "delete":
			return hintUsage(cmd, errors.New("--dry-run needs --field-selector, --label-selector or --all in place of a name"))
		case b.used() && !(b.onlyDryRun() && len(words) > 0):
			return args()(cmd, words)
		}
		return arguments(cmd, words)
	}
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		if !do.onlySelected && (!b.used() || b.onlyDryRun() && len(words) > 0) {
			return one(cmd, words)
		}
		if b.fieldSelector == "" && b.labelSelector == "" && !b.all {
			return hintUsage(cmd, errors.New("set --field-selector, --label-selector or --all"))
		}
		for _, name := range do.alone {
			if !cmd.Flags().Changed(name) {
				continue
			}
			err := fmt.Errorf("--%s is only for one %s, not for a selector", name, k.word())
			if way := do.instead[name]; way != "" {
				return hint(err, "%s", way)
			}
			return hintUsage(cmd, err)
		}
		for _, name := range []string{"skip-confirm", "yes"} {
			b.skipConfirm = b.skipConfirm || cmd.Flags().Lookup(name).Value.String() == "true"
		}
		return run(func(ctx context.Context, s *invocation, _ []string) error {
			in := &client.BulkRequest{
				Resource: k.Plural, Action: do.name, FieldSelector: b.fieldSelector, LabelSelector: b.labelSelector, All: b.all,
			}
			if do.fill != nil {
				if err := do.fill(in); err != nil {
					return err
				}
			}
			return s.bulk(ctx, k, &b, do, in)
		})(cmd, words)
	}
	if !do.onlySelected {
		if cmd.Long == "" {
			cmd.Long = strings.ToUpper(cmd.Short[:1]) + cmd.Short[1:] + "."
		}
		cmd.Long += fmt.Sprintf("\n\nWith --field-selector, --label-selector or --all in place of a name, %s all %s that match, "+
			"after a question with\ntheir number.", do.verb, k.words())
	}
	example := k.prefix() + ".labels.region == eu"
	if k.Type == client.Events.Type {
		example = "event.check.name == disk"
	}
	name, _, _ := strings.Cut(cmd.Use, " ")
	if !do.onlySelected {
		cmd.Example += fmt.Sprintf("\n  lapwing %s %s --field-selector '%s'%s --dry-run", k.Command, name, example, do.example)
	}
	return cmd
}

// prefix begins the names of a kind's fields in selectors.
func (k *kind) prefix() string {
	if k.Type == client.Silences.Type {
		return "silenced"
	}
	return k.Command
}

// bulk counts what is selected, asks, and does it.
func (s *invocation) bulk(ctx context.Context, k *kind, b *selection, do action, in *client.BulkRequest) error {
	namespace, place := s.namespace, fmt.Sprintf("in namespace %q", s.namespace)
	if b.everywhere {
		namespace, place = "", "in all namespaces"
	}
	try := *in
	try.DryRun = true
	would, err := s.client.Bulk(ctx, namespace, &try, nil)
	if err != nil {
		return err
	}
	if would.Matched == 0 {
		return s.nothing(ctx, k, namespace, true)
	}
	var lost loss
	if do.name == "delete" {
		var gone []*object
		for _, o := range would.Objects {
			if o.Result == "would" {
				gone = append(gone, &object{kind: k, namespace: o.Namespace, name: o.Name})
			}
		}
		s.warnOfReferrers(ctx, gone, nil)
		if lost = (loss{entities: would.Done, connected: would.Connected}); k.Type == client.Handlers.Type {
			lost = s.lossOf(ctx, gone, waitingIn{})
		} else if len(gone) > 0 {
			lost.entity = gone[0].name
		}
		lost.warn(s)
	}
	if b.dryRun {
		for _, o := range would.Objects {
			if o.Result == "would" {
				fmt.Fprintf(s.out, "Would %s %s\n", do.verb, objectName(&o, b.everywhere))
			}
		}
		if more := would.Matched - len(would.Objects); more > 0 {
			fmt.Fprintf(s.out, "and %d more\n", more)
		}
		return s.notDone(do, would, b.everywhere)
	}
	if would.Done == 0 {
		return s.notDone(do, would, b.everywhere)
	}
	if !b.skipConfirm {
		if err := s.confirm(fmt.Sprintf("%s %s %s?", sentence(do.verb), k.counted(would.Done), place)); err != nil {
			return err
		}
	}
	before := map[string]map[string]resource.SubscriptionCount{}
	if do.name == "delete" && k.Type == client.Entities.Type && lost.connected == 0 { // connected agents come back
		for _, o := range would.Objects {
			if _, asked := before[o.Namespace]; !asked && len(before) < mostHostless {
				before[o.Namespace] = s.subscribed(ctx, o.Namespace)
			}
		}
	}
	shown := false
	did, err := s.client.Bulk(ctx, namespace, in, func(r *client.BulkReport) {
		if isTerminal(s.errOut) {
			fmt.Fprintf(rawStream(s.errOut), "\r%s %d of %d", do.done, r.Done, would.Done)
			shown = true
		}
	})
	if shown {
		fmt.Fprintln(s.errOut)
	}
	if err != nil {
		return err
	}
	line := do.done + " " + k.counted(did.Done)
	if s.format == formatTabular {
		line += " " + place
		if do.undo != "" && did.Done > 0 {
			line += "; " + s.undo(append([]string{k.Command, do.undo}, b.words()...)...)
		}
		for _, part := range lost.taken(false) {
			line += "; " + part
		}
	}
	fmt.Fprintln(s.out, line)
	for _, in := range slices.Sorted(maps.Keys(before)) {
		s.tellHostless(ctx, in, before[in])
	}
	return s.notDone(do, did, b.everywhere)
}

// notDone names the objects on which the action failed, or would fail.
func (s *invocation) notDone(do action, r *client.BulkReport, everywhere bool) error {
	for _, o := range r.Objects {
		if o.Result != "would" {
			fmt.Fprintf(s.errOut, "%s: %s\n", objectName(&o, everywhere), printable(o.Error))
		}
	}
	if n := r.Denied + r.Failed; n > 0 {
		return fmt.Errorf("%s: %d of %d refused by your roles, %d failed", do.verb, r.Denied, r.Matched, r.Failed)
	}
	return nil
}

func objectName(o *client.BulkObject, everywhere bool) string {
	if everywhere {
		return printable(o.Namespace + "/" + o.Name)
	}
	return printable(o.Name)
}

// counted returns a number with the kind's word: 1 event, 3 events.
func (k *kind) counted(n int) string {
	if n == 1 {
		return "1 " + k.word()
	}
	return fmt.Sprint(n, " ", k.words())
}

func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// labelled reports whether the labels of many of a kind's resources can be set at once.
func (k *kind) labelled() bool {
	return k.Namespaced && k.Group == resource.CoreV2 && !k.Singleton && k.Type != client.Events.Type && k.Type != client.Silences.Type
}

func labelCommand(k *kind) *cobra.Command {
	labels := map[string]*string{}
	cmd := &cobra.Command{
		Use:   "label KEY=VALUE… KEY-…",
		Short: "set or remove labels of all " + k.words() + " that a selector selects",
		Long: "Set labels (KEY=VALUE) or remove them (KEY-), of all " + k.words() + " that a selector selects, after a question with their\n" +
			"number.",
		Example: fmt.Sprintf("  lapwing %s label team=web old- --field-selector '%s.name == %s'", k.Command, k.prefix(), k.example),
		Args: func(cmd *cobra.Command, words []string) error {
			if len(words) == 0 {
				return hintUsage(cmd, errors.New("name labels to set (KEY=VALUE) or to remove (KEY-)"))
			}
			for _, word := range words {
				key, value, set := strings.Cut(word, "=")
				if set && key != "" {
					labels[key] = &value
					continue
				}
				if key, remove := strings.CutSuffix(word, "-"); remove && key != "" && !set {
					labels[key] = nil
					continue
				}
				return hintUsage(cmd, fmt.Errorf("%q is neither KEY=VALUE nor KEY-", word))
			}
			return nil
		},
	}
	return bySelector(cmd, k, action{
		name: "label", verb: "label", done: "Labelled", onlySelected: true,
		fill: func(in *client.BulkRequest) error {
			in.Labels = maps.Clone(labels)
			return nil
		},
	})
}

// nothing says that a list is empty: because its namespace does not exist, which is an error, or because nothing matches.
func (s *invocation) nothing(ctx context.Context, k *kind, namespace string, selected bool) error {
	if k.Namespaced {
		if err := s.knownNamespace(ctx, namespace); err != nil {
			return err
		}
	}
	text := "no " + k.words() + " match"
	switch {
	case selected:
	case s.isTable():
		text = noneThere(k, namespace)
	default:
		text = ""
	}
	if text = cmp.Or(s.maybeHidden(ctx, k.words(), k.Role, namespace, selected), text); text != "" {
		fmt.Fprintln(s.errOut, text)
	}
	return nil
}

// isTable reports whether the output is a table.
func (s *invocation) isTable() bool {
	return s.format == formatTabular || s.format == formatCSV || s.format == formatHTML
}

// tellLimited says that a list that is not empty may lack something, to a user who may see only some objects of a kind.
func (s *invocation) tellLimited(ctx context.Context, k *kind, namespace string) {
	if s.labelLimits(ctx, "list", k.Role, namespace) != nil {
		fmt.Fprintf(s.errOut, "more %s may be there: %s\n", k.words(), byLabels)
	}
}

// tellUnknownLabels says which labels of a selector nothing in the namespace has. A silence with the selector would hit
// nothing, and its preview says so.
func (s *invocation) tellUnknownLabels(ctx context.Context, k *kind, namespace, labelSelector string) {
	switch k.Type {
	case client.Events.Type, client.Entities.Type, client.Checks.Type:
	default:
		return
	}
	if labelSelector == "" || namespace == "" {
		return
	}
	silence := map[string]any{"metadata": map[string]any{"name": "labels", "namespace": namespace}, "label_selector": labelSelector}
	ctx = client.WithWarnings(ctx, func(text string) {
		if strings.Contains(text, " has a label ") {
			fmt.Fprintln(s.errOut, printable(text))
		}
	})
	at := *s
	at.namespace = namespace
	_ = s.client.Do(ctx, http.MethodPost, at.ownPath("silenced", "preview"), silence, nil) // without the right, the rest was told
}

// labelLimits returns the label selectors of which an object must match one, if the user may do something only to some objects
// of a resource; none for a user who may do it to all or to none. The namespace is "" for all at once.
func (s *invocation) labelLimits(ctx context.Context, verb, role, namespace string) []string {
	var answer client.CanIAnswer
	q := url.Values{"verb": {verb}, "resource": {role}, "namespace": {namespace}}
	if err := s.client.Do(ctx, http.MethodGet, "/api/lapwing/v1/auth/can-i?"+q.Encode(), nil, &answer); err != nil {
		return nil
	}
	return answer.LabelSelectors
}

// byLabels ends what is said to users who may see only some objects, by their labels.
const byLabels = "your roles are limited by labels"

// maybeHidden returns what an empty list says to a user who may see only some objects of a kind, by their labels; "" for other
// users. The namespace is "" for all.
func (s *invocation) maybeHidden(ctx context.Context, what, role, namespace string, selected bool) string {
	if s.labelLimits(ctx, "list", role, namespace) == nil {
		return ""
	}
	text := "no " + what + " that you may see"
	if selected {
		text += " match"
	}
	switch {
	case (&aim{role: role}).clusterWide():
	case namespace == "":
		text += " in any namespace"
	default:
		text += " in namespace " + namespace
	}
	return text + ": " + byLabels
}

// noneThere says that there is nothing, and how to go on.
func noneThere(k *kind, namespace string) string {
	text := "no " + k.words()
	switch {
	case k.Namespaced && namespace == "":
		text += " in any namespace"
	case k.Namespaced:
		text += fmt.Sprintf(" in namespace %s; see also: lapwing %s list --all-namespaces", namespace, k.Command)
	}
	switch {
	case k.can&canCreate != 0, k.Type == client.Silences.Type:
		text += fmt.Sprintf("; create one: lapwing %s create --help", k.Command)
	case k.Type != client.Events.Type:
		text += "; create one from a file: lapwing create -f FILE"
	}
	return text
}

// knownNamespace returns an error if a namespace does not exist and the user may know that. A list of a missing namespace
// is empty, as in Sensu, and looks like good news.
func (s *invocation) knownNamespace(ctx context.Context, namespace string) error {
	if namespace == "" {
		return nil
	}
	if _, err := client.Get(ctx, s.client, client.Namespaces, "", namespace); !errors.Is(err, client.ErrNotFound) {
		return nil // it is there, or the user may not know
	}
	var names []string
	for one, err := range client.All(ctx, s.client, client.Namespaces, "", client.ListOptions{ChunkSize: defaultChunkSize}) {
		if err != nil {
			return nil
		}
		names = append(names, one.Name)
	}
	if slices.Contains(names, namespace) {
		return nil // made in between
	}
	err := fmt.Errorf("namespace %q not found", namespace)
	if near := optionerr.Nearest(namespace, names); near != "" {
		return fmt.Errorf("%w: did you mean %q?", err, near)
	}
	return hint(err, "See 'lapwing namespace list' for the existing ones.")
}
