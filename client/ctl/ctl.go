// Package ctl is the command-line client: the commands with which people see and change what a backend knows. They
// use only the HTTP API, so that they work against lapwing and, but for live views, against Sensu Go 6; where
// Sensu's own sensuctl has a command of the same name, arguments, output and files are the same.
//
// Add puts the commands under the root command of cmd/lapwing. Each row of resource.Kinds has a value of type kind, which
// says how commands and "create -f" show and make its resources; kind.go lists them.
package ctl

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/lapwing-monitoring/lapwing/client"
)

const groupID = "client"

const exitCodes = `Exit codes: 0 success (also when a question was answered with no), 1 error, 2 the answer of diff or can-i is no,
64 missing or unknown subcommand.`

// Add adds the client's commands to root. Errors that they return carry an exit code, see ExitCode.
func Add(root *cobra.Command) {
	commands := []*cobra.Command{
		configureCommand(), loginCommand(), configCommand(), logoutCommand(), envCommand(), versionCommand(),
		createFilesCommand(), deleteFilesCommand(), applyCommand(), diffCommand(), pruneCommand(), dumpCommand(), editCommand(), describeTypeCommand(),
		clusterCommand(), authCommand(), topCommand(), deadLetterCommand(), orphanCommand(),
	}
	for _, k := range kinds {
		if k.can != 0 {
			cmd := manageCommand(k)
			if k == pipelineKind { // reads files of all kinds, so that the kind itself cannot name it
				cmd.AddCommand(simulateCommand())
			}
			commands = append(commands, cmd)
		}
	}
	root.AddGroup(&cobra.Group{ID: groupID, Title: "Client commands:"})
	for _, cmd := range commands {
		cmd.GroupID = groupID
		cmd.PersistentFlags().AddFlagSet(globalFlags())
		cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return hintUsage(cmd, err) })
		finish(cmd)
	}
	root.AddCommand(commands...)
}

// finish gives a command and those below it what all of them have.
func finish(cmd *cobra.Command) {
	cmd.SilenceUsage = true // errors name the next step; the usage would push them off the screen
	if cmd.Long == "" {
		cmd.Long = strings.ToUpper(cmd.Short[:1]) + cmd.Short[1:] + "."
	}
	cmd.Long += "\n\n" + exitCodes
	if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, sub := range cmd.Commands() {
		finish(sub)
	}
}

// globalFlags are the flags of every command. Their defaults come from environment and files, see settings.
func globalFlags() *pflag.FlagSet {
	f := pflag.NewFlagSet("global", pflag.ContinueOnError)
	f.String("api-url", "", "URL of the API, such as http://127.0.0.1:8080")
	f.String("api-key", "", "API key to use instead of a user's tokens")
	f.String("namespace", "", `namespace to act in (default "default")`)
	f.Duration("timeout", client.DefaultTimeout, "how long to wait for an answer")
	f.String("config-dir", "", `directory of the client's files (default "`+defaultDirHelp+`")`)
	f.String("trusted-ca-file", "", "PEM file of certificate authorities to trust")
	f.Bool("insecure-skip-tls-verify", false, "do not verify the server's certificate (dangerous)")
	f.String("cert-file", "", "PEM file of a certificate to show to a server that wants one")
	f.String("key-file", "", "PEM file of its key")
	return f
}

// session is what a running command works with.
type session struct {
	*settings
	client *client.Client
	in     io.Reader
	out    io.Writer
	errOut io.Writer
	color  bool
}

// run makes a cobra command of a function that needs the API.
func run(f func(ctx context.Context, s *session, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		set, err := resolve(cmd)
		if err != nil {
			return err
		}
		s := newSession(cmd, set)
		if s.client, err = set.connect(userAgent(cmd), s.errOut); err != nil {
			return err
		}
		defer s.client.Close()
		return explain(f(cmd.Context(), s, args), set)
	}
}

// newSession is a session that has no client yet.
func newSession(cmd *cobra.Command, set *settings) *session {
	s := &session{settings: set, in: cmd.InOrStdin(), out: cmd.OutOrStdout(), errOut: cmd.ErrOrStderr()}
	s.color = isTerminal(s.out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return s
}

func userAgent(cmd *cobra.Command) string {
	return strings.TrimSuffix("lapwing/"+cmd.Root().Version, "/")
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// args accepts exactly the arguments that are named, such as NAME.
func args(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		want := "no arguments"
		if len(names) > 0 {
			want = strings.Join(names, " ")
		}
		return hintUsage(cmd, fmt.Errorf("invalid argument(s) received: %q takes %s, not %d argument(s)", cmd.CommandPath(), want, len(args)))
	}
}
