// Package ctl is the command-line client: the commands that show and change what a backend has. cmd/lapwing adds them
// to its root command with Add, and its other commands connect to an API with Connect.
//
// Commands use only the HTTP API. So they work with lapwing and, except for lapwing's additions, with Sensu Go 6. A
// command that sensuctl has too takes the same arguments and writes the same output and files. Rights and validation
// are the server's part, requests and tokens are package client's.
//
// Each row of resource.Kinds has a value of type kind, which says how commands and "create -f" show and make its
// resources; kind.go lists them.
package ctl

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/duration"
	"github.com/lapwing-monitoring/lapwing/internal/flaggroup"
)

const groupID = "client"

const exitCodes = `Exit codes: 0 success, 1 error, 2 the files have mistakes, or diff, can-i, cluster status, postgres status, lint or
check targets found something, 3 a question was not answered with yes, 64 missing or unknown subcommand.`

// Add adds the client's commands to root. Errors that they return carry an exit code, see ExitCode.
func Add(root *cobra.Command) {
	commands := []*cobra.Command{
		configureCommand(), loginCommand(), configCommand(), logoutCommand(), envCommand(), versionCommand(),
		createFilesCommand(), deleteFilesCommand(), applyCommand(), diffCommand(), pruneCommand(), dumpCommand(), lintCommand(),
		editCommand(), describeTypeCommand(),
		clusterCommand(), authCommand(), topCommand(), queueCommand(), metricCommand(), reportCommand(), postgresCommand(),
		adminCommand(), commandCommand(), onCallCommand(), escalationCommand(), subscriptionCommand(), deadLetterCommand(), notificationCommand(), orphanCommand(), auditCommand(),
	}
	for _, k := range kinds {
		if k.can != 0 {
			cmd := manageCommand(k)
			if k == pipelineKind { // here, as in kind.go it would be an initialization cycle
				cmd.AddCommand(simulateCommand(), replayCommand())
			}
			commands = append(commands, cmd)
		}
	}
	root.AddGroup(&cobra.Group{ID: groupID, Title: "Client commands:"})
	for _, cmd := range commands {
		cmd.GroupID = groupID
		cmd.PersistentFlags().AddFlagSet(globalFlags())
		cmd.RegisterFlagCompletionFunc("color", cobra.FixedCompletions(colorChoices, cobra.ShellCompDirectiveNoFileComp))
		cmd.SetFlagErrorFunc(flagError)
		finish(cmd, nil)
	}
	root.AddCommand(commands...)
	flaggroup.Install(root)
}

// finish sets up a command and all below it.
func finish(cmd *cobra.Command, k *kind) {
	if k == nil {
		k = kindByCommand(cmd.Name())
	}
	completeFlags(cmd, k)
	cmd.SilenceUsage = true // errors name the next step; the usage would hide it
	if cmd.Long == "" {
		cmd.Long = strings.ToUpper(cmd.Short[:1]) + cmd.Short[1:] + "."
	}
	cmd.Long += "\n\n" + exitCodes
	if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, sub := range cmd.Commands() {
		finish(sub, k)
	}
}

// globalFlags returns the flags of every command. Their defaults come from the environment and files, see settings.
func globalFlags() *pflag.FlagSet {
	f := pflag.NewFlagSet("global", pflag.ContinueOnError)
	f.String("api-url", "", "URL of the API, for example http://127.0.0.1:8080; of several backends with commas between")
	f.String("api-key", "", "API key to use instead of a user's tokens")
	f.String("namespace", "", `namespace of the command (default "default")`)
	f.Var(duration.New(client.DefaultTimeout, new(time.Duration)), "timeout", "time to wait for each answer")
	f.String("config-dir", "", `directory of the client's files (default "`+defaultDirHelp+`")`)
	f.String("trusted-ca-file", "", "certificate authorities to trust (PEM file)")
	f.Bool("insecure-skip-tls-verify", false, "do not verify the server's certificate (dangerous)")
	f.String("cert-file", "", "client certificate for servers that require one (PEM file)")
	f.String("key-file", "", "private key for --cert-file (PEM file)")
	flaggroup.Set(f, "Connection")
	f.String("color", "", `colors: auto (in terminals, unless NO_COLOR is set), always or never (default "auto")`)
	f.Bool("no-pager", false, "do not show long output page by page")
	return f
}

// invocation is one run of a command: its settings, its client and its streams.
type invocation struct {
	*settings
	client *client.Client
	in     io.Reader
	out    io.Writer
	errOut io.Writer
	color  bool
	// width and height are those of the terminal that out is; 0 for none.
	width, height int
	noPager       bool
}

// run returns a cobra function for f, which needs the API.
func run(f func(ctx context.Context, s *invocation, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		set, err := resolve(cmd)
		if err != nil {
			return err
		}
		s := newInvocation(cmd, set)
		if s.client, err = set.connect(userAgent(cmd), s.errOut); err != nil {
			return err
		}
		defer s.client.Close()
		return explain(s.partly(cmd.Context(), s.missing(cmd.Context(), f(cmd.Context(), s, args))), set)
	}
}

func newInvocation(cmd *cobra.Command, set *settings) *invocation {
	s := &invocation{settings: set, in: cmd.InOrStdin(), out: cmd.OutOrStdout(), errOut: &safeWriter{w: cmd.ErrOrStderr()}}
	if set.format == formatTabular {
		s.out = &safeWriter{w: s.out}
	}
	s.width, s.height = terminalSize(s.out)
	if f := cmd.Flags().Lookup("no-pager"); f != nil {
		s.noPager = f.Value.String() == "true"
	}
	s.color = set.colors == colorsAlways ||
		set.colors == colorsAuto && isTerminal(s.out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return s
}

func userAgent(cmd *cobra.Command) string {
	return strings.TrimSuffix("lapwing/"+cmd.Root().Version, "/")
}

func isTerminal(stream any) bool {
	if o, ok := stream.(*safeWriter); ok {
		stream = o.w
	}
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// args accepts exactly the named arguments, for example NAME.
func args(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		want := "no arguments"
		if len(names) > 0 {
			want = strings.Join(names, " ")
		}
		return hintUsage(cmd, fmt.Errorf("invalid argument(s) received: %q takes %s, not %d argument(s)",
			cmd.CommandPath(), want, len(args)))
	}
}
