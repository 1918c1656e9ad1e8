package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
)

const filesHelp = `A file holds resources as "--format yaml" prints them: several YAML documents separated by lines of ---, or JSON
objects one after the other. Of a directory, files that end in .yaml, .yml or .json are read, with --recursive also those
in subdirectories; hidden files are skipped. A resource without a namespace gets the current one.

All files are read before anything is changed. Unknown fields, wrong types, keys that are there twice and two definitions of
one name are mistakes: each is printed with its file and line, nothing is changed, and the exit code is 2. create, apply and
diff also print the mistakes that a lapwing server finds. With --lenient, an unknown field is only a warning. Of events it
always is.`

func createFilesCommand() *cobra.Command {
	put := func(ctx context.Context, s *invocation, o *object) (change string, err error) {
		if o, err = s.withOverrides(ctx, o); err != nil {
			return "", err
		}
		body := o.sent()
		return client.PutTold(ctx, s.client, client.Kind[map[string]any](o.kind.Kind), o.namespace, o.name, &body)
	}
	cmd := bulkCommand("create", "create or replace resources from files, directories, URLs or standard input",
		func(ctx context.Context, s *invocation, in *inputFiles) ([]*object, error) {
			set, err := readFileSet(ctx, s, in)
			if err != nil {
				return nil, err
			}
			s.expect(set.named)
			for _, o := range set.all() {
				s.expected.unpublished(o, o.body)
			}
			set.try(ctx, s, func(ctx context.Context, o *object) error {
				_, err := put(ctx, s, o)
				return err
			})
			if err := set.tell(s.errOut); err != nil {
				s.tellHeld(s.errOut)
				s.tellExpected(s.errOut)
				return nil, err
			}
			return set.objects, nil
		},
		func(ctx context.Context, s *invocation, i int, o *object) (string, error) {
			change, err := put(ctx, s, o)
			if err != nil {
				return "", fmt.Errorf("error putting resource #%d with name %q and namespace %q (%s): %w", i, o.name,
					o.namespace, o.path(), bare(err))
			}
			return cmp.Or(change, "sent"), nil
		})
	cmd.Long = `Create or replace resources from files, directories, URLs or standard input.

` + filesHelp + `
The label ` + managedBy + `: sensuctl is added to each. A rota without overrides in its file keeps those that it has; with
'overrides: []' in the file it loses them.

If the server finds a mistake in one of them, or your roles do not allow to write one, nothing is written. Any other error
of the server stops; what was sent before it stays.`
	cmd.Example = `  lapwing create -f checks.yaml
  lapwing create -r -f config/ --namespace staging
  lapwing create -f https://config.example/handlers.json
  lapwing check list --format yaml --api-url http://old.example:8080 | lapwing create -f -`
	return cmd
}

func deleteFilesCommand() *cobra.Command {
	cmd := bulkCommand("delete", "delete the resources in files, directories, URLs or standard input",
		func(ctx context.Context, s *invocation, in *inputFiles) ([]*object, error) {
			objects, err := readObjects(ctx, s, in)
			if err == nil {
				s.warnOfReferrers(ctx, objects, nil)
				lost := s.lossOf(ctx, objects, waitingIn{})
				lost.warn(s)
			}
			return objects, err
		},
		func(ctx context.Context, s *invocation, i int, o *object) (string, error) {
			if err := client.Delete(ctx, s.client, o.kind.Kind, o.namespace, o.name); err != nil {
				return "", fmt.Errorf("error deleting resource %d (%s): %w", i, o.path(), bare(err))
			}
			return "deleted", nil
		})
	cmd.Long = `Delete the resources that files, directories, URLs or standard input name. Nothing is asked.

` + filesHelp + `

The first error stops, also that a resource is not there.`
	cmd.Example = `  lapwing delete -f checks.yaml
  lapwing check list --format yaml | lapwing delete`
	return cmd
}

// bulkCommand returns a command that calls each for every object in files, in order, and prints how often each returned
// which word.
func bulkCommand(use, short string, read func(context.Context, *invocation, *inputFiles) ([]*object, error),
	each func(ctx context.Context, s *invocation, i int, o *object) (string, error)) *cobra.Command {
	var in inputFiles
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  fileArgs,
		RunE: run(func(ctx context.Context, s *invocation, _ []string) error {
			objects, err := read(ctx, s, &in)
			if err != nil {
				return err
			}
			defer s.tellExpected(s.errOut)
			var did tally
			for i, o := range objects {
				word, err := each(ctx, s, i, o)
				if err != nil {
					if len(did.words) > 0 {
						fmt.Fprintf(s.errOut, "Before the error: %s; the rest was not sent.\n", &did)
					}
					return err
				}
				did.add(word)
			}
			s.didMany(&did)
			return nil
		}),
	}
	in.flags(cmd)
	return cmd
}

// inputFiles says which files a command reads resources from, and how.
type inputFiles struct {
	targets            []string
	recursive, lenient bool
	whole              bool // what the files do not have will be deleted, so no file may be left out
}

func (in *inputFiles) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVarP(&in.targets, "file", "f", nil, "file, directory, URL, or - for standard input (the default); can be repeated")
	f.BoolVarP(&in.recursive, "recursive", "r", false, "also read files in subdirectories")
	f.BoolVar(&in.lenient, "lenient", false, "warn about unknown fields, and ignore them")
}

// mistakesError reports mistakes in files, which are already printed.
type mistakesError struct{ count, files, denied int }

func (e *mistakesError) Error() string {
	text := plural(e.count, "mistake") + " in " + plural(e.files, "file")
	if e.denied > 0 {
		text += ", and your roles do not allow " + plural(e.denied, "resource")
	}
	return text + "; nothing was changed"
}

// readObjects reads and parses all objects. It reports all mistakes in all files before it fails.
func readObjects(ctx context.Context, s *invocation, in *inputFiles) ([]*object, error) {
	set, err := readFileSet(ctx, s, in)
	if err != nil {
		return nil, err
	}
	return set.objects, set.tell(s.errOut)
}

// readFileSet reads and parses all objects, and collects all mistakes in all files.
func readFileSet(ctx context.Context, s *invocation, in *inputFiles) (*fileSet, error) {
	s.many = true
	sources, err := readSources(ctx, s, in.targets, in.recursive)
	if err != nil {
		return nil, err
	}
	if err := s.unread(in); err != nil {
		return nil, err
	}
	set := &fileSet{place: map[string]int{}}
	seen := map[string]string{} // names, with their places
	for i, src := range sources {
		set.place[src.name] = i
		documents, bad := splitDocuments(src.name, src.data)
		set.wrong = append(set.wrong, bad...)
		for i := range documents {
			d := documents[i]
			p := parseObject(d, s.namespace, asManaged, in.lenient)
			s.warnAbout(p.warnings)
			set.wrong = append(set.wrong, p.wrong...)
			set.types |= p.types
			if p.draft != nil {
				set.drafts = append(set.drafts, p.draft)
			}
			if p.object != nil {
				set.objects = append(set.objects, p.object)
			}
			o := p.named
			if o == nil {
				continue
			}
			set.named = append(set.named, o)
			here := fmt.Sprintf("%s:%d", d.Source, d.Line())
			if there, twice := seen[o.path()]; twice && o.kind != eventKind {
				set.wrong = append(set.wrong, mistake{d.Source, d.Line(), o.kind.Type + " " + o.name, "it is defined twice, also at " + there})
			}
			seen[o.path()] = here
		}
	}
	if len(set.objects)+len(set.wrong) == 0 {
		return nil, errors.New("the input has no resources")
	}
	return set, nil
}

// warnAbout prints warnings about files.
func (s *invocation) warnAbout(list []mistake) {
	for _, m := range list {
		fmt.Fprintln(s.errOut, "Warning:", printable(m.String()))
		s.printed = append(s.printed, m.String())
	}
}

// bare returns the cause of a client function's error, without the request: the caller names it better.
func bare(err error) error {
	if cause := errors.Unwrap(err); cause != nil {
		return cause
	}
	return err
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
