package ctl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
)

const filesHelp = `A file holds resources as "--format yaml" prints them: several YAML documents separated by lines of ---, or JSON
objects one after the other. For a directory, the files in it are read, with --recursive also those in subdirectories;
hidden files are skipped. A resource without a namespace gets the current one.`

func createFilesCommand() *cobra.Command {
	cmd := bulkCommand("create", "create or replace resources from files, directories, URLs or standard input",
		func(ctx context.Context, s *invocation, i int, o *object) error {
			body := o.sent()
			if err := client.Put(ctx, s.client, client.Kind[map[string]any](o.kind.Kind), o.namespace, o.name, &body); err != nil {
				return fmt.Errorf("error putting resource #%d with name %q and namespace %q (%s): %w", i, o.name,
					o.namespace, o.path(), bare(err))
			}
			return nil
		})
	cmd.Long = `Create or replace resources from files, directories, URLs or standard input.

` + filesHelp + `
The label ` + managedBy + `: sensuctl is added to each.

All files are read before anything is sent. The first error of the server stops; what was sent before it stays.`
	cmd.Example = `  lapwing create -f checks.yaml
  lapwing create -r -f config/ --namespace staging
  lapwing create -f https://config.example/handlers.json
  lapwing check list --format yaml --api-url http://old.example:8080 | lapwing create -f -`
	return cmd
}

func deleteFilesCommand() *cobra.Command {
	cmd := bulkCommand("delete", "delete the resources in files, directories, URLs or standard input",
		func(ctx context.Context, s *invocation, i int, o *object) error {
			if err := client.Delete(ctx, s.client, o.kind.Kind, o.namespace, o.name); err != nil {
				return fmt.Errorf("error deleting resource %d (%s): %w", i, o.path(), bare(err))
			}
			return nil
		})
	cmd.Long = `Delete the resources that files, directories, URLs or standard input name. Nothing is asked.

` + filesHelp + `

The first error stops, also that a resource is not there.`
	cmd.Example = `  lapwing delete -f checks.yaml
  lapwing check list --format yaml | lapwing delete`
	return cmd
}

// bulkCommand returns a command that calls each for every object in files, in order.
func bulkCommand(use, short string, each func(ctx context.Context, s *invocation, i int, o *object) error) *cobra.Command {
	var (
		targets   []string
		recursive bool
	)
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  args(),
		RunE: run(func(ctx context.Context, s *invocation, _ []string) error {
			objects, err := readObjects(ctx, s, targets, recursive)
			if err != nil {
				return err
			}
			for i, o := range objects {
				if err := each(ctx, s, i, o); err != nil {
					return err
				}
			}
			return nil
		}),
	}
	fileFlags(cmd, &targets, &recursive)
	return cmd
}

// fileFlags adds the flags of commands that read resources from files.
func fileFlags(cmd *cobra.Command, targets *[]string, recursive *bool) {
	cmd.Flags().StringSliceVarP(targets, "file", "f", nil, "file, directory, URL, or - for standard input (the default); can be repeated")
	cmd.Flags().BoolVarP(recursive, "recursive", "r", false, "also read files in subdirectories")
}

// readObjects reads and parses all objects. It reports every object that it cannot parse before it fails.
func readObjects(ctx context.Context, s *invocation, targets []string, recursive bool) ([]*object, error) {
	s.many = true
	sources, err := readSources(ctx, s, targets, recursive)
	if err != nil {
		return nil, err
	}
	var objects []*object
	var failed error
	for _, src := range sources {
		documents, err := splitDocuments(src.data)
		if err != nil {
			return nil, fmt.Errorf("in %s: error parsing resources: %w", src.name, err)
		}
		bad := false
		for i, document := range documents {
			o, warnings, err := parseObject(document, s.namespace, asManaged)
			for _, w := range warnings {
				fmt.Fprintf(s.errOut, "resource %d: warning: %s\n", i, w)
			}
			s.told = append(s.told, warnings...)
			if err != nil {
				fmt.Fprintf(s.errOut, "resource %d: %v\n", i, err)
				bad = true
				continue
			}
			objects = append(objects, o)
		}
		if bad && failed == nil {
			failed = fmt.Errorf("in %s: some resources couldn't be parsed", src.name)
		}
	}
	if failed != nil {
		return nil, hint(failed, "Nothing was sent. Correct them and try again.")
	}
	if len(objects) == 0 {
		return nil, errors.New("the input has no resources")
	}
	return objects, nil
}

// bare returns the cause of a client function's error, without the request: the caller names it better.
func bare(err error) error {
	if cause := errors.Unwrap(err); cause != nil {
		return cause
	}
	return err
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
