package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// redacted is the API's placeholder for a secret.
const redacted = "REDACTED"

// Results of an apply for one resource.
const (
	actionCreate    = "create"
	actionUpdate    = "update"
	actionUnchanged = "unchanged"
	actionDelete    = "delete"
	actionFailed    = "failed"
)

// applied is what apply did to a resource, or would do in a dry run.
type applied struct {
	Type       string   `json:"type"`
	APIVersion string   `json:"api_version"`
	Namespace  string   `json:"namespace,omitempty"`
	Name       string   `json:"name"`
	Action     string   `json:"action"`
	Changes    []change `json:"changes,omitempty"`
	Error      string   `json:"error,omitempty"`

	at      string         // file and line of the resource; "" if it is in none
	settled bool           // nothing is to be written
	after   map[string]any // the resource as apply leaves it; nil if it could not be merged
}

// report is the JSON report of an apply.
type report struct {
	DryRun  bool           `json:"dry_run"`
	Summary map[string]int `json:"summary"`
	Results []*applied     `json:"results"`
}

// applier writes the resources of files to the server.
type applier struct {
	*invocation
	dryRun  bool
	objects []*object       // those of the files
	keep    map[string]bool // their paths
	makes   map[string]bool // the namespaces in the files
	untried bool            // the server has no dry run
	results []*applied
}

func applyCommand() *cobra.Command {
	var (
		in              inputFiles
		dryRun          bool
		prune, showDiff bool
		output          string
	)
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "make resources equal to files, changing only the differences",
		Long: `Make resources equal to files, directories, URLs or standard input. Only differences are sent.

` + filesHelp + `
The label ` + managedBy + `: sensuctl is added to each.

Three versions are compared: what is on the server, what the files say now, and what apply wrote the last time, which is
kept in the annotation ` + resource.LastAppliedAnnotation + `. A field that the files name gets their value; one that they named the last
time and no longer do is removed; all others stay as they are. Lists are taken as a whole. If another client changes a
resource at the same moment, it is compared again.

With --prune, resources that an earlier apply made and that are in the files no longer are deleted: those of the types and
namespaces that the files have. A warning says what still names them. With a directory but without --prune, they are only
named on standard error. Resources of a type that no file has any longer are named too, and not deleted: other files may
have made them. 'lapwing prune' can do it.

The API shows neither passwords nor redacted labels, so apply cannot compare them. It sends a user's password when it
creates the user or changes something else of it, and redacted labels of entities each time. It does not take events,
API keys, providers of sign-ins and PostgresConfigs.

With -o json the result is one object: dry_run, a summary with a count for each action, and results with type,
api_version, namespace, name, action (create, update, unchanged, delete, failed), changes (path, from, to) and error.

If the server finds a mistake in one resource, or your roles do not allow to write one, nothing is written. A resource that
fails for another reason does not stop the others; the exit code is then 1.`,
		Example: `  lapwing apply -r -f config/ --dry-run
  lapwing apply -r -f config/ --prune
  lapwing apply -f checks.yaml -o json | jq .summary`,
		Args: fileArgs,
	}
	cmd.RunE = run(func(ctx context.Context, s *invocation, _ []string) error {
		if output != "" && output != formatJSON {
			return fmt.Errorf("--output: %q is not json", output)
		}
		a := &applier{invocation: s, dryRun: dryRun}
		if err := a.run(ctx, &in, prune); err != nil {
			return err
		}
		err := a.report(output == formatJSON, showDiff || dryRun)
		a.leftovers(ctx, &in, prune)
		return err
	})
	f := cmd.Flags()
	in.flags(cmd)
	f.BoolVar(&dryRun, "dry-run", false, "show what apply would do, and change nothing")
	f.BoolVar(&prune, "prune", false, "delete resources that an earlier apply made and that are no longer in the files")
	f.BoolVar(&showDiff, "diff", false, "show each changed field (always on with --dry-run)")
	f.StringVarP(&output, "output", "o", "", "output format for programs: json")
	cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{formatJSON}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func diffCommand() *cobra.Command {
	var (
		in     inputFiles
		prune  bool
		output string
	)
	cmd := &cobra.Command{
		Use:   "diff",
		Short: "show what apply would change",
		Long: `Show what 'lapwing apply' would change. Nothing is changed. The exit code is 2 if there is a difference.

With a directory, resources that an earlier apply made and that are in the files no longer are named on standard error.
Without --prune they are no difference: apply leaves them.

` + filesHelp,
		Example: `  lapwing diff -r -f config/
  lapwing diff -f checks.yaml -o json`,
		Args: fileArgs,
	}
	cmd.RunE = run(func(ctx context.Context, s *invocation, _ []string) error {
		if output != "" && output != formatJSON {
			return fmt.Errorf("--output: %q is not json", output)
		}
		a := &applier{invocation: s, dryRun: true}
		if err := a.run(ctx, &in, prune); err != nil {
			return err
		}
		defer a.leftovers(ctx, &in, prune)
		a.results = slices.DeleteFunc(a.results, func(r *applied) bool { return r.Action == actionUnchanged })
		if output == "" && len(a.results) == 0 {
			return nil
		}
		if err := a.report(output == formatJSON, true); err != nil {
			return err
		}
		if len(a.results) > 0 {
			return errNo
		}
		return nil
	})
	in.flags(cmd)
	cmd.Flags().BoolVar(&prune, "prune", false, "also show what 'apply --prune' would delete")
	cmd.Flags().StringVarP(&output, "output", "o", "", "output format for programs: json")
	return cmd
}

// run applies all objects of the files, and then prunes. First it tries all of them: if the server finds a mistake in one,
// or the roles do not allow one, nothing is written.
func (a *applier) run(ctx context.Context, in *inputFiles, prune bool) error {
	in.whole = prune
	set, err := readFileSet(ctx, a.invocation, in)
	if err != nil {
		return err
	}
	a.expect(set.named)
	defer a.tellExpected(a.errOut)
	a.objects, a.keep = set.objects, map[string]bool{}
	a.makes = map[string]bool{}
	for _, o := range set.all() {
		if !o.applicable() && len(set.wrong) == 0 {
			return hint(fmt.Errorf("%s %s: apply cannot write this type", o.kind.Type, o.name), "Use 'lapwing create' for it.")
		}
		a.keep[o.path()] = true
		if o.kind == namespaceKind {
			a.makes[o.name] = true
		}
	}
	if err := a.trial(ctx, set, !a.dryRun); err != nil {
		return err
	}
	for i, r := range a.results {
		if a.dryRun || r.settled {
			continue
		}
		if err := a.applyOne(ctx, a.objects[i], r); err != nil {
			return err
		}
	}
	if err := a.judge(ctx); err != nil {
		return err
	}
	if prune {
		return a.prune(ctx)
	}
	return nil
}

// judge asks the server once more for its warnings about resources that stayed as they are, after the others are written: what
// they name may be mended. If nothing was written, the warnings of the trial hold.
func (a *applier) judge(ctx context.Context) error {
	wrote := func(r *applied) bool { return !r.settled }
	switch {
	case a.dryRun:
		return nil
	case !slices.ContainsFunc(a.results, wrote):
		a.tellHeld(a.errOut)
		return nil
	}
	for i, r := range a.results {
		if !r.settled {
			continue
		}
		o, again := a.objects[i], *r
		a.expected.forget(o.path())
		if err := a.apply(ctx, o, &again, true); err != nil && !refusal(err) {
			return err
		}
	}
	return nil
}

// applicable reports whether apply can write the object. The record would show the secrets of sign-in providers, and the
// dsn of PostgreSQL.
func (o *object) applicable() bool {
	return o.kind != eventKind && o.kind != apiKeyKind && o.kind != postgresKind && o.kind.Group != resource.AuthAPIVersion
}

// trial makes a result for each object as a dry run does, and returns an error with the mistakes of all, also of those that
// are known to have one. If quiet, it keeps back the server's warnings about what is to be written, and tells them only if there are
// mistakes: without mistakes the writes and judge follow, and their answers have the same warnings.
func (a *applier) trial(ctx context.Context, set *fileSet, quiet bool) error {
	a.quiet = quiet
	defer func() { a.quiet = false }()
	for i, o := range set.all() {
		r := &applied{Type: o.kind.Type, APIVersion: o.kind.Group, Namespace: o.namespace, Name: o.name, at: o.at}
		if i < len(set.objects) {
			a.results = append(a.results, r)
		}
		if !o.applicable() {
			continue
		}
		a.expected.sends(o)
		err := a.apply(ctx, o, r, true)
		if set.refused(o, err) {
			continue
		}
		if err = a.failed(ctx, r, err); err != nil {
			if len(set.wrong) > 0 {
				break // they are known without the server
			}
			return err
		}
	}
	err := set.tell(a.errOut)
	if err != nil {
		a.tellHeld(a.errOut)
	}
	return err
}

// applyOne applies an object. It returns only errors that stop all.
func (a *applier) applyOne(ctx context.Context, o *object, r *applied) error {
	r.Error = ""
	return a.failed(ctx, r, a.apply(ctx, o, r, false))
}

// failed notes an error in a result, or returns it if it stops all.
func (a *applier) failed(ctx context.Context, r *applied, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil || errors.Is(err, client.ErrNoCredentials) || errors.Is(err, client.ErrUnauthenticated) || !refusal(err) {
		return err
	}
	r.Action, r.Error = actionFailed, err.Error()
	return nil
}

// refusal reports whether the server answered. Then apply continues with the next resource.
func refusal(err error) bool { return errors.As(err, new(*client.Error)) }

// apply makes one resource equal to its object, or asks the server in a dry run whether it could.
func (a *applier) apply(ctx context.Context, o *object, r *applied, dryRun bool) error {
	for attempt := 1; ; attempt++ {
		live, tag, err := a.live(ctx, o)
		if err != nil {
			return err
		}
		after, err := o.merge(live)
		if err != nil {
			return err
		}
		r.after = after
		if live == nil {
			r.Action, r.Changes = actionCreate, changesBetween(map[string]any{}, o.visible(after))
		} else {
			before, err := normal(o.kind, live)
			if err != nil {
				return err
			}
			now, err := normal(o.kind, after)
			if err != nil {
				return err
			}
			r.Changes = changesBetween(o.visible(before), o.visible(now))
			r.Action = actionUpdate
			if len(r.Changes) == 0 {
				r.Action = actionUnchanged
				if reflect.DeepEqual(plain(annotationOf(live)), plain(annotationOf(after))) && !o.secret(live) {
					r.settled = true
					return a.warnAgain(ctx, o, live, tag, after)
				}
			}
		}
		a.expected.unpublished(o, after)
		if dryRun {
			err = a.try(ctx, o, live, tag, after)
		} else {
			err = a.write(ctx, o, live, tag, after)
		}
		if errors.Is(err, client.ErrPrecondition) && attempt < attempts {
			continue
		}
		return err
	}
}

// warnAgain asks the server for its warnings about a resource that stays as it is: what it names may be missing still, or
// again. A refusal does not matter, since nothing is written.
func (a *applier) warnAgain(ctx context.Context, o *object, live map[string]any, tag string, same map[string]any) error {
	err := a.try(ctx, o, live, tag, same)
	if refusal(err) {
		return nil
	}
	return err
}

// live returns the resource as it is on the server, or nil.
func (a *applier) live(ctx context.Context, o *object) (map[string]any, string, error) {
	raw, tag, err := client.GetTagged(ctx, a.client, o.kind.Kind, o.namespace, o.name)
	if errors.Is(err, client.ErrNotFound) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	live, err := decodeMap(*raw)
	if err != nil {
		return nil, "", err
	}
	if o.kind.Wrapped {
		live = unwrapped(live)
	}
	return live, tag, nil
}

// write sends the merged resource.
func (a *applier) write(ctx context.Context, o *object, live map[string]any, tag string, after map[string]any) error {
	if live != nil && o.kind.redacted() {
		return a.replace(ctx, o.kind, o.namespace, o.name, tag, live, after)
	}
	sent := (&object{kind: o.kind, body: after}).sent()
	return client.PutIf(ctx, a.client, client.Kind[map[string]any](o.kind.Kind), o.namespace, o.name, tag, &sent)
}

// try asks the server whether it would take the merged resource.
func (a *applier) try(ctx context.Context, o *object, live map[string]any, tag string, after map[string]any) error {
	if a.untried {
		return nil
	}
	err := a.write(client.WithDryRun(ctx), o, live, tag, after)
	if !errors.Is(err, client.ErrNotFound) {
		return err
	}
	if client.NoDryRun(err) {
		a.untried = true
		return nil
	}
	if a.makes[o.namespace] { // its namespace does not exist yet
		return nil
	}
	return err
}

// merge returns the resource to write: the live one, without the fields of the last apply, and with the object's
// fields.
func (o *object) merge(live map[string]any) (map[string]any, error) {
	desired := maps.Clone(o.body)
	if o.hasMetadata() {
		record, err := o.record()
		if err != nil {
			return nil, err
		}
		meta := maps.Clone(o.sub("metadata"))
		annotations, _ := meta["annotations"].(map[string]any)
		annotations = maps.Clone(annotations)
		if annotations == nil {
			annotations = map[string]any{}
		}
		annotations[resource.LastAppliedAnnotation] = record
		meta["annotations"] = annotations
		desired["metadata"] = meta
	}
	if live == nil {
		return desired, nil
	}
	if own := resource.EntitySubscription(o.name); o.kind.redacted() {
		// The server adds this subscription to every entity.
		list, given := desired["subscriptions"].([]any)
		there, _ := live["subscriptions"].([]any)
		if given && slices.Contains(there, any(own)) && !slices.Contains(list, any(own)) {
			desired["subscriptions"] = append(slices.Clone(list), own)
		}
	}
	var last map[string]any
	if text, ok := annotationOf(live).(string); ok {
		// A broken record counts as none: nothing is removed.
		last, _ = decodeMap([]byte(text))
	}
	return threeWay(last, live, desired), nil
}

// record returns the value of the annotation: the object as in the files, without the values that the API hides in
// entities.
func (o *object) record() (string, error) {
	body := maps.Clone(o.body)
	if o.kind.redacted() {
		meta := maps.Clone(o.sub("metadata"))
		for _, field := range []string{"labels", "annotations"} {
			if values, ok := meta[field].(map[string]any); ok {
				values = maps.Clone(values)
				for key := range values {
					if o.redacts(key) {
						values[key] = redacted
					}
				}
				meta[field] = values
			}
		}
		body["metadata"] = meta
	}
	data, err := json.Marshal(body)
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", o.kind.Type, err)
	}
	return string(data), nil
}

// redacts reports whether the API hides the label or annotation with that key.
func (o *object) redacts(key string) bool {
	data, err := json.Marshal(map[string]any{"redact": o.body["redact"]})
	if err != nil {
		return true
	}
	e, err := decode[entity](data)
	return err != nil || e.Redacts(key)
}

// secret reports whether the files set a label or annotation that the server hides.
func (o *object) secret(live map[string]any) bool {
	for _, field := range []string{"labels", "annotations"} {
		ours, _ := o.sub("metadata")[field].(map[string]any)
		theirs, _ := getPath(live, "metadata."+field).(map[string]any)
		for key, value := range ours {
			if theirs[key] == redacted && value != redacted {
				return true
			}
		}
	}
	return false
}

func (o *object) hasMetadata() bool { return o.kind.HasMeta() }

// visible returns a resource without the fields that a diff should not show.
func (o *object) visible(body map[string]any) map[string]any {
	body = maps.Clone(body)
	delete(body, "password")
	delete(body, "password_hash")
	delete(body, "author") // of an aggregate or a metric check, set by the server
	meta, ok := body["metadata"].(map[string]any)
	if !ok {
		return body
	}
	meta = maps.Clone(meta)
	delete(meta, "created_by")
	if annotations, ok := meta["annotations"].(map[string]any); ok {
		annotations = maps.Clone(annotations)
		delete(annotations, resource.LastAppliedAnnotation)
		meta["annotations"] = annotations
		if len(annotations) == 0 {
			delete(meta, "annotations")
		}
	}
	body["metadata"] = meta
	return body
}

func annotationOf(body map[string]any) any {
	annotations, _ := getPath(body, "metadata.annotations").(map[string]any)
	return annotations[resource.LastAppliedAnnotation]
}

// threeWay returns live with the fields of desired, and without fields that were in last and are not in desired.
func threeWay(last, live, desired map[string]any) map[string]any {
	out := maps.Clone(live)
	for key, old := range last {
		if _, still := desired[key]; still {
			continue
		}
		// Of an object remove only our part: others may have added to it.
		oldMap, oldIs := old.(map[string]any)
		liveMap, liveIs := live[key].(map[string]any)
		if oldIs && liveIs {
			if rest := threeWay(oldMap, liveMap, map[string]any{}); len(rest) > 0 {
				out[key] = rest
				continue
			}
		}
		delete(out, key)
	}
	for key, want := range desired {
		wantMap, wantIs := want.(map[string]any)
		liveMap, liveIs := live[key].(map[string]any)
		if wantIs && liveIs {
			lastMap, _ := last[key].(map[string]any)
			out[key] = threeWay(lastMap, liveMap, wantMap)
			continue
		}
		out[key] = want
	}
	return out
}

// normal returns a resource in the API's shape, so that "cron: ”" is no change to a check without cron.
func normal(k *kind, body map[string]any) (map[string]any, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", k.Type, err)
	}
	if k.Wrapped {
		return decodeMap(data)
	}
	item := reflect.New(k.goType).Interface()
	if err := json.Unmarshal(data, item); err != nil {
		return nil, fmt.Errorf("decode %s: %w", k.Type, err)
	}
	if data, err = json.Marshal(item); err != nil {
		return nil, fmt.Errorf("encode %s: %w", k.Type, err)
	}
	return decodeMap(data)
}

// prune deletes resources that an earlier apply made and that are no longer in the files, in the types and namespaces
// of the files. Resources that others refer to come last. So a namespace is empty when its turn comes.
func (a *applier) prune(ctx context.Context) error {
	spots := spotsOf(a.objects)
	slices.SortStableFunc(spots, func(a, b spot) int { return slices.Index(kinds, b.kind) - slices.Index(kinds, a.kind) })
	var gone []*object
	for _, p := range spots {
		list, err := a.gone(ctx, p, client.ListOptions{})
		if err != nil {
			return err
		}
		gone = append(gone, list...)
	}
	var unwritten []*object // the server does not have yet what a dry run would write
	for i, r := range a.results {
		if o := a.objects[i]; a.dryRun && r.after != nil && r.Action != actionFailed {
			unwritten = append(unwritten, &object{kind: o.kind, namespace: o.namespace, name: o.name, body: r.after})
		}
	}
	a.warnOfReferrers(ctx, gone, unwritten)
	var left stranded
	for _, o := range gone {
		r := &applied{Type: o.kind.Type, APIVersion: o.kind.Group, Namespace: o.namespace, Name: o.name, Action: actionDelete}
		a.results = append(a.results, r)
		undo := left.add(ctx, a.invocation, o)
		if a.dryRun {
			continue
		}
		err := client.Delete(ctx, a.client, o.kind.Kind, o.namespace, o.name)
		if err != nil && !errors.Is(err, client.ErrNotFound) {
			if !refusal(err) {
				return err
			}
			r.Action, r.Error = actionFailed, err.Error()
			undo()
		}
	}
	left.tell(a.invocation, a.dryRun)
	return nil
}

// report prints what was done, and returns an error if a resource failed.
func (a *applier) report(asJSON, changes bool) error {
	counts := map[string]int{}
	for _, r := range a.results {
		counts[r.Action]++
	}
	if asJSON {
		if a.results == nil {
			a.results = []*applied{}
		}
		raw, err := jsonOf(report{a.dryRun, counts, a.results})
		if err != nil {
			return err
		}
		if err := writeJSONBlock(a.out, raw); err != nil {
			return err
		}
	} else {
		a.print(changes, counts)
	}
	if n := counts[actionFailed]; n > 0 {
		return fmt.Errorf("%d of %d resources could not be applied", n, len(a.results))
	}
	return nil
}

// print writes a line for each resource, with its changes below, and the counts.
func (a *applier) print(changes bool, counts map[string]int) {
	marks := map[string][2]string{
		actionCreate: {"+", green}, actionUpdate: {"~", yellow}, actionDelete: {"-", red}, actionUnchanged: {"=", ""},
		actionFailed: {"!", red},
	}
	for _, r := range a.results {
		name := r.Name
		if r.Namespace != "" {
			name = r.Namespace + "/" + name
		}
		mark := marks[r.Action]
		fmt.Fprintln(a.out, paint(a.color, mark[1], fmt.Sprintf("%s %s %s %s", mark[0], r.Action, r.Type, printable(name))))
		if r.Error != "" {
			at := ""
			if r.at != "" {
				at = r.at + ": "
			}
			fmt.Fprintln(a.out, "    "+printable(at+r.Error))
		}
		if changes && r.Action == actionUpdate {
			for _, c := range r.Changes {
				c.write(a.out, a.color)
			}
		}
	}
	past := map[string]string{actionCreate: "created", actionUpdate: "updated", actionDelete: "deleted"}
	var summary []string
	for _, action := range []string{actionCreate, actionUpdate, actionUnchanged, actionDelete, actionFailed} {
		n, word := counts[action], action
		if !a.dryRun {
			word = cmp.Or(past[action], action)
		}
		if n > 0 {
			summary = append(summary, fmt.Sprintf("%s %d", word, n))
		}
	}
	text := commaSpace(summary)
	if a.dryRun {
		text += " (dry run: nothing was written)"
	}
	fmt.Fprintln(a.out, text)
	if a.untried && a.dryRun {
		fmt.Fprintln(a.errOut, "The server has no dry run, so its own rules are not checked.")
	}
}
