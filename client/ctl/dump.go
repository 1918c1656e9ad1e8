package ctl

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
)

// dumpChunk is how many resources a dump requests at a time.
const dumpChunk = 500

func dumpCommand() *cobra.Command {
	var (
		all        bool
		file, omit string
		opts       client.ListOptions
	)
	cmd := &cobra.Command{
		Use:   "dump TYPE,...",
		Short: "write resources as files for create, apply and delete",
		Long: `Write all resources of some types, as files for create, apply and delete.

` + typesHelp + `

Types that the server does not have, or has only with a licence, are left out. Types that you may not list are left out
too, and named on standard error, as are types of which your roles show you only some resources, by their labels; then the
exit code is 1, and the rest is written. Passwords of users, and redacted labels
and annotations of entities, are not in the dump: the API does not show them.`,
		Example: `  lapwing dump checks,handlers --file definitions.yaml
  lapwing dump all --all-namespaces --omit events,entities
  lapwing dump core/v2.CheckConfig --label-selector 'team == web' --format wrapped-json`,
		Args: args("TYPE,..."),
	}
	cmd.RunE = run(func(ctx context.Context, s *invocation, args []string) (err error) {
		list, err := kindsNamed(args[0])
		if err != nil {
			return err
		}
		if omit != "" {
			omitted, err := kindsNamed(omit)
			if err != nil {
				return err
			}
			list = slices.DeleteFunc(list, func(k *kind) bool { return slices.Contains(omitted, k) })
		}
		namespace := s.namespace
		if all {
			namespace = ""
		}
		out := s.out
		if file != "" {
			f, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
			if err != nil {
				return fmt.Errorf("create dump: %w", err)
			}
			defer func() {
				if closeErr := f.Close(); err == nil && closeErr != nil {
					err = fmt.Errorf("write dump: %w", closeErr)
				}
			}()
			out = f
		}
		opts.ChunkSize = dumpChunk
		return s.dump(ctx, out, list, namespace, opts)
	})
	f := cmd.Flags()
	f.BoolVar(&all, "all-namespaces", false, "dump the resources of all namespaces")
	f.StringVarP(&file, "file", "f", "", "file to write to (default standard output); only its owner can read it")
	f.StringVarP(&omit, "omit", "o", "", "types to leave out, comma separated")
	f.StringVar(&opts.FieldSelector, "field-selector", "", "only resources whose fields match, for example 'handler.type == pipe'")
	f.StringVar(&opts.LabelSelector, "label-selector", "", "only resources whose labels match, for example 'region == eu'")
	f.String("format", "", `output format: yaml or wrapped-json (default "yaml")`)
	cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{formatYAML, formatWrappedJSON},
		cobra.ShellCompDirectiveNoFileComp))
	cmd.ValidArgs = append(typeNames(), "all")
	return cmd
}

// dump writes the resources of some kinds page by page, because they may not fit in memory. It skips kinds that the
// server does not have. Kinds that the server refuses are named, as are those of which the user may see only some resources,
// and the dump fails at its end.
func (s *invocation) dump(ctx context.Context, out io.Writer, list []*kind, namespace string, opts client.ListOptions) error {
	w := bufio.NewWriter(out)
	first := true
	refused, limited := 0, 0
	for _, k := range list {
		err := s.eachResource(ctx, k, namespace, opts, func(raw json.RawMessage) error {
			if s.format == formatWrappedJSON {
				return writeWrappedJSON(w, k, raw, "  ")
			}
			if !first {
				w.WriteString("---\n")
			}
			first = false
			return writeYAML(w, k, raw)
		})
		switch {
		case errors.Is(err, client.ErrDenied):
			refused++
			fmt.Fprintf(s.errOut, "%s: left out: %v\n", k.Plural, bare(err))
		case err != nil && !errors.Is(err, client.ErrNotFound) && !paymentRequired(err):
			return err
		case err == nil:
			if limits := s.labelLimits(ctx, "list", k.Role, namespace); limits != nil {
				limited++
				fmt.Fprintf(s.errOut, "%s: only where labels match %s\n", k.Plural, printable(strings.Join(limits, ", or ")))
			}
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write dump: %w", err)
	}
	const ask = "Ask an administrator for a role that may list them, or leave them out with --omit."
	switch {
	case limited > 0 && refused > 0:
		return hint(fmt.Errorf("the dump is incomplete: of %d types, %d refused and %d limited by labels", len(list), refused, limited), ask)
	case limited > 0:
		return hint(fmt.Errorf("the dump is incomplete: %d of %d types are limited by labels", limited, len(list)), ask)
	case refused > 0:
		return hint(fmt.Errorf("the dump is incomplete: %d of %d types were refused", refused, len(list)), ask)
	}
	return nil
}

// eachResource calls f with each resource of a kind, including kinds with a single one.
func (s *invocation) eachResource(ctx context.Context, k *kind, namespace string, opts client.ListOptions,
	f func(json.RawMessage) error) error {
	if k.Singleton {
		raw, err := client.Get(ctx, s.client, k.Kind, "", "")
		if err != nil {
			return err
		}
		return f(*raw)
	}
	for raw, err := range client.All(ctx, s.client, k.Kind, namespace, opts) {
		if err != nil {
			return err
		}
		if k.Wrapped { // other kinds may have the same path
			w, err := wrap(k, *raw)
			if err != nil {
				return err
			}
			if w.Type != k.Type {
				continue
			}
		}
		if err := f(*raw); err != nil {
			return err
		}
	}
	return nil
}

// paymentRequired reports whether the server serves that type only with a licence, as Sensu does for some. Without a
// licence it has none.
func paymentRequired(err error) bool {
	var refused *client.Error
	return errors.As(err, &refused) && refused.Status == http.StatusPaymentRequired
}
