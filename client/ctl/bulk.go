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

All files are read before anything is sent. Unknown fields, wrong types, keys that are there twice and two definitions of one
name are mistakes: each is printed with its file and line, nothing is sent, and the exit code is 2. With --lenient, an
unknown field is only a warning. Of events it always is.`

func createFilesCommand() *cobra.Command {
	cmd := bulkCommand("create", "create or replace resources from files, directories, URLs or standard input",
		func(ctx context.Context, s *invocation, i int, o *object) (string, error) {
			body := o.sent()
			change, err := client.PutTold(ctx, s.client, client.Kind[map[string]any](o.kind.Kind), o.namespace, o.name, &body)
			if err != nil {
				return "", fmt.Errorf("error putting resource #%d with name %q and namespace %q (%s): %w", i, o.name,
					o.namespace, o.path(), bare(err))
			}
			return cmp.Or(change, "sent"), nil
		})
	cmd.Long = `Create or replace resources from files, directories, URLs or standard input.

` + filesHelp + `
The label ` + managedBy + `: sensuctl is added to each.

The first error of the server stops; what was sent before it stays.`
	cmd.Example = `  lapwing create -f checks.yaml
  lapwing create -r -f config/ --namespace staging
  lapwing create -f https://config.example/handlers.json
  lapwing check list --format yaml --api-url http://old.example:8080 | lapwing create -f -`
	return cmd
}

func deleteFilesCommand() *cobra.Command {
	cmd := bulkCommand("delete", "delete the resources in files, directories, URLs or standard input",
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
func bulkCommand(use, short string, each func(ctx context.Context, s *invocation, i int, o *object) (string, error)) *cobra.Command {
	var in inputFiles
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  fileArgs,
		RunE: run(func(ctx context.Context, s *invocation, _ []string) error {
			objects, err := readObjects(ctx, s, &in)
			if err != nil {
				return err
			}
			s.expect(objects)
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
}

func (in *inputFiles) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVarP(&in.targets, "file", "f", nil, "file, directory, URL, or - for standard input (the default); can be repeated")
	f.BoolVarP(&in.recursive, "recursive", "r", false, "also read files in subdirectories")
	f.BoolVar(&in.lenient, "lenient", false, "warn about unknown fields, and ignore them")
}

// mistakesError reports mistakes in files, which are already printed.
type mistakesError struct{ count, files int }

func (e *mistakesError) Error() string {
	return fmt.Sprintf("%s in %s; nothing was sent", plural(e.count, "mistake"), plural(e.files, "file"))
}

func plural(n int, word string) string {
	if n != 1 {
		word += "s"
	}
	return fmt.Sprint(n, " ", word)
}

// readObjects reads and parses all objects. It reports all mistakes in all files before it fails.
func readObjects(ctx context.Context, s *invocation, in *inputFiles) ([]*object, error) {
	s.many = true
	sources, err := readSources(ctx, s, in.targets, in.recursive)
	if err != nil {
		return nil, err
	}
	var objects []*object
	var wrong []mistake
	seen, place := map[string]string{}, map[string]int{} // of names, and of files in their order
	for i, src := range sources {
		place[src.name] = i
		documents, bad := splitDocuments(src.name, src.data)
		wrong = append(wrong, bad...)
		for i := range documents {
			d := &documents[i]
			p := parseObject(d, s.namespace, asManaged, in.lenient)
			s.warnAbout(p.warnings)
			wrong = append(wrong, p.wrong...)
			o := p.object
			if o == nil {
				continue
			}
			objects = append(objects, o)
			here := fmt.Sprintf("%s:%d", d.source, d.at.line)
			if there, twice := seen[o.path()]; twice && o.kind != eventKind {
				wrong = append(wrong, mistake{d.source, d.at.line, o.kind.Type + " " + o.name, "it is defined twice, also at " + there})
			}
			seen[o.path()] = here
		}
	}
	if len(wrong) > 0 {
		files := map[string]bool{}
		slices.SortStableFunc(wrong, func(a, b mistake) int {
			return cmp.Or(place[a.source]-place[b.source], a.line-b.line)
		})
		for _, m := range wrong {
			fmt.Fprintln(s.errOut, printable(m.String()))
			files[m.source] = true
		}
		return nil, &mistakesError{len(wrong), len(files)}
	}
	if len(objects) == 0 {
		return nil, errors.New("the input has no resources")
	}
	return objects, nil
}

// warnAbout prints warnings about files.
func (s *invocation) warnAbout(list []mistake) {
	for _, m := range list {
		fmt.Fprintln(s.errOut, "Warning:", printable(m.String()))
		s.told = append(s.told, m.String())
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
