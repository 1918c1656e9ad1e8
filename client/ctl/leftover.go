package ctl

import (
	"context"
	"fmt"
	"slices"

	"github.com/lapwing-monitoring/lapwing/client"
)

// spot is where resources of one kind are: a namespace, or none.
type spot struct {
	kind      *kind
	namespace string
}

// spotsOf returns the kinds and namespaces that objects have.
func spotsOf(objects []*object) (spots []spot) {
	for _, o := range objects {
		if p := (spot{o.kind, o.namespace}); o.hasMetadata() && !slices.Contains(spots, p) {
			spots = append(spots, p)
		}
	}
	return spots
}

// gone returns the resources that an earlier apply made and that are not to be kept.
func (a *applier) gone(ctx context.Context, p spot, opts client.ListOptions) (gone []*object, err error) {
	opts.ChunkSize = defaultChunkSize
	for raw, err := range client.All(ctx, a.client, p.kind.Kind, p.namespace, opts) {
		if err != nil {
			return nil, err
		}
		body, err := decodeMap(*raw)
		if err != nil {
			return nil, err
		}
		o := &object{kind: p.kind, namespace: p.namespace, body: body}
		o.name = o.findName()
		if annotationOf(body) != nil && o.name != "" && !a.keep[o.path()] {
			gone = append(gone, o)
		}
	}
	return gone, nil
}

// leftovers names, on standard error, what an earlier apply made and no file has now. After a prune they are those of
// kinds that no file has: prune leaves them, as it cannot know whether they are from these files. Without a directory
// or --prune, the files are likely a part of something, and nothing is said.
func (a *applier) leftovers(ctx context.Context, in *inputFiles, pruned bool) {
	directory := func(target string) bool {
		path, ok := localPath(target)
		return ok && isDirectory(path)
	}
	if !pruned && !slices.ContainsFunc(in.targets, directory) {
		return
	}
	inFiles := spotsOf(a.objects)
	var namespaces []string
	for _, p := range inFiles {
		if !slices.Contains(namespaces, p.namespace) {
			namespaces = append(namespaces, p.namespace)
		}
	}
	opts := client.ListOptions{LabelSelector: managedBy + " == sensuctl"} // all that apply makes, and little else
	for _, k := range dumped() {
		if k == eventKind || k == apiKeyKind || k == postgresKind || !k.HasMeta() {
			continue
		}
		for _, namespace := range namespaces {
			p := spot{k, namespace}
			known := slices.Contains(inFiles, p)
			if k.Namespaced != (namespace != "") || known && pruned {
				continue
			}
			gone, err := a.gone(ctx, p, opts)
			switch {
			case err != nil && refusal(err):
				continue // the user may not list it, or the server does not have it
			case err != nil:
				fmt.Fprintf(a.errOut, "Warning: cannot see what earlier files had: %v\n", err)
				return
			case len(gone) > 0:
				for _, line := range a.leftover(p, gone, known, in) {
					fmt.Fprintln(a.errOut, printable(line))
				}
			}
		}
	}
}

// leftover says in lines which resources are left, and how to delete them.
func (a *applier) leftover(p spot, gone []*object, known bool, in *inputFiles) []string {
	const most = 10
	var names []string
	for _, o := range gone[:min(len(gone), most)] {
		names = append(names, o.name)
	}
	if n := len(gone) - most; n > 0 {
		names = append(names, fmt.Sprintf("and %d more", n))
	}
	text, are := p.kind.counted(len(gone)), "were applied before and are"
	if len(gone) == 1 {
		are = "was applied before and is"
	}
	if p.namespace != "" && p.namespace != a.namespace {
		text += " of namespace " + p.namespace
	}
	text += fmt.Sprintf(" %s in no file now: %s", are, commaSpace(names))
	them := "them"
	if len(gone) == 1 {
		them = "it"
	}
	if known {
		return []string{text + "; `lapwing apply --prune` with the same files would delete " + them}
	}
	at := *a.settings
	if p.namespace != "" {
		at.namespace = p.namespace
	}
	words := []string{"prune", p.kind.Plural}
	if in.recursive {
		words = append(words, "-r")
	}
	for _, target := range in.targets {
		words = append(words, "-f", target)
	}
	if p.namespace == "" {
		words = append(words, "--cluster-wide")
	}
	// Other files may have made them, so apply --prune deletes nothing of a kind that these files do not have.
	return []string{text, fmt.Sprintf("  No file has a %s, so apply --prune leaves %s. See: %s", p.kind.word(), them,
		at.commandLine(append(words, "--dry-run")...))}
}
