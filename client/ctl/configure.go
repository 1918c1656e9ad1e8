package ctl

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/lapwing-monitoring/lapwing/client"
)

func configureCommand() *cobra.Command {
	var nonInteractive bool
	cmd := &cobra.Command{
		Use:   "configure",
		Short: "sign in and save the URL and the tokens",
		Long: `Sign in to a backend and save its URL, tokens, namespace and output format.

Two files, cluster and profile, are written to ` + defaultDirHelp + `; only their owner can read them. If they do
not exist, other commands read sensuctl's files in $HOME/.config/sensu/sensuctl. Every flag can also be set in the
environment: as LAPWING_URL, LAPWING_USERNAME and so on, or with SENSU_ instead of LAPWING_.`,
		Example: `  lapwing configure
  lapwing configure -n --url http://127.0.0.1:8080 --username admin --password 'P@ssw0rd!'
  LAPWING_PASSWORD=… lapwing configure -n --url https://lapwing.example:8080 --username admin --format yaml
  lapwing configure -n --url http://127.0.0.1:8080 --api-key 7f63b5bc-41f4-4b3e-b59b-5431afd7e6a2`,
		Args: args(),
	}
	f := cmd.Flags()
	f.BoolVarP(&nonInteractive, "non-interactive", "n", false, "ask no questions; use flags and environment only")
	f.String("url", "", "URL of the API; of several backends with commas between")
	f.String("username", "", "user to sign in as")
	f.String("password", "", "password of the user")
	f.String("format", "", `output format to prefer: `+formatList+` (default "tabular")`)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		set, err := resolve(cmd)
		if err != nil {
			return err
		}
		username, _ := lookup(cmd, "username")
		password, _ := lookup(cmd, "password")
		if v, _ := lookup(cmd, "url"); v != "" {
			set.url = v
		}
		// The API key in the files must not be used instead of the name and password given now.
		set.apiKey, _ = lookup(cmd, "api-key")
		if !nonInteractive {
			ask := &questions{in: cmd.InOrStdin(), lines: bufio.NewReader(cmd.InOrStdin()), out: cmd.ErrOrStderr()}
			if err := ask.settings(set, &username, &password); err != nil {
				return err
			}
		}
		if err := checkFormat(set.format); err != nil {
			return err
		}
		if set.apiKey == "" && (username == "" || password == "") {
			return errors.New("a username and a password, or an API key, are needed: set --username and --password, or --api-key")
		}
		return configure(cmd, set, username, password)
	}
	return cmd
}

// configure signs in and saves the settings.
func configure(cmd *cobra.Command, set *settings, username, password string) error {
	opts, err := set.options(userAgent(cmd))
	if err == errNoURL {
		return hint(err, "Name the API with --url.")
	}
	if err != nil {
		return err
	}
	opts.APIKey, opts.Username, opts.Password = set.apiKey, username, password
	c, err := client.New(opts)
	if err != nil {
		return err
	}
	defer c.Close()
	tokens, err := signIn(cmd.Context(), c, set)
	if err != nil {
		return err
	}
	return saveSettings(cmd, set, username, tokens, opts.Timeout)
}

// saveSettings writes the settings and tokens to the profile, and says so. username is "" if only the token tells it.
func saveSettings(cmd *cobra.Command, set *settings, username string, tokens client.Tokens, timeout time.Duration) (err error) {
	dir, _ := lookup(cmd, "config-dir")
	if dir == "" {
		if dir, err = configDir(); err != nil {
			return err
		}
	}
	saved := &files{
		dir: dir,
		cluster: cluster{
			APIURL: set.url, TrustedCAFile: set.caFile, Insecure: set.insecure, CertFile: set.certFile, KeyFile: set.keyFile,
			Tokens: tokens, APIKey: set.apiKey, Timeout: timeout,
		},
		profile: profile{Format: set.format, Namespace: set.namespace},
	}
	if err := saved.save(); err != nil {
		return err
	}
	as := "with an API key"
	if set.apiKey == "" {
		as = "as user " + cmp.Or(subjectOf(tokens), username)
	}
	fmt.Fprintln(cmd.OutOrStdout(), printable(fmt.Sprintf("Signed in to %s %s, namespace %s; saved in %s", set.url, as,
		cmp.Or(set.namespace, "default"), dir)))
	return nil
}

// signIn returns tokens, or none if there is an API key that the server accepts.
func signIn(ctx context.Context, c *client.Client, set *settings) (client.Tokens, error) {
	if set.apiKey != "" {
		// Any request shows whether the server knows the key, even if the request is denied.
		for _, err := range client.All(ctx, c, client.Namespaces, "", client.ListOptions{ChunkSize: 1}) {
			if err != nil && !errors.Is(err, client.ErrDenied) {
				return client.Tokens{}, explain(fmt.Errorf("unable to authenticate with error: %w", err), set)
			}
			break
		}
		return client.Tokens{}, nil
	}
	tokens, err := c.Login(ctx)
	var refused *client.Error
	if errors.As(err, &refused) && errors.Is(err, client.ErrUnauthenticated) {
		return tokens, hint(fmt.Errorf("unable to authenticate with error: %w", refused), "Check username and password.")
	}
	if err != nil {
		return tokens, explain(fmt.Errorf("unable to authenticate with error: %w", err), set)
	}
	return tokens, nil
}

// questions asks the user for values.
type questions struct {
	in    io.Reader
	lines *bufio.Reader // of in
	out   io.Writer
}

func (q *questions) settings(set *settings, username, password *string) error {
	if set.url == "" {
		set.url = "http://127.0.0.1:8080"
	}
	if err := q.ask("API URL", &set.url); err != nil {
		return err
	}
	if set.apiKey == "" {
		if err := q.ask("Username", username); err != nil {
			return err
		}
		if err := q.secret("Password", password); err != nil {
			return err
		}
	}
	if err := q.ask("Namespace", &set.namespace); err != nil {
		return err
	}
	return q.ask("Output format ("+formatList+")", &set.format)
}

// ask asks for value, which is the default answer, and replaces it.
func (q *questions) ask(question string, value *string) error {
	if *value != "" {
		question += " [" + *value + "]"
	}
	fmt.Fprint(q.out, question+": ")
	line, err := q.lines.ReadString('\n')
	if err != nil && line == "" {
		return noAnswer(err)
	}
	if line = strings.TrimSpace(line); line != "" {
		*value = line
	}
	return nil
}

// secret is like ask, but shows neither the default nor the answer.
func (q *questions) secret(question string, value *string) error {
	f, ok := q.in.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		hidden := ""
		if err := q.ask(question, &hidden); err != nil {
			return err
		}
		if hidden != "" {
			*value = hidden
		}
		return nil
	}
	fmt.Fprint(q.out, question+": ")
	typed, err := term.ReadPassword(int(f.Fd()))
	fmt.Fprintln(q.out)
	if err != nil {
		return noAnswer(err)
	}
	if len(typed) > 0 {
		*value = string(typed)
	}
	return nil
}

func noAnswer(err error) error {
	return hint(fmt.Errorf("read answer: %w", err), "Answer at a terminal, or use --non-interactive with flags.")
}
