package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/duration"
)

// configCommand has the commands about the client's own files.
func configCommand() *cobra.Command {
	return groupOf("config", "show and change the client's settings", "view",
		configViewCommand(),
		setConfigCommand("format", "FORMAT", "output format to prefer", "yaml", func(f *files, word string) error {
			f.profile.Format = word
			return checkFormat(word)
		}),
		setConfigCommand("namespace", "NAMESPACE", "namespace to act in", "staging", func(f *files, word string) error {
			f.profile.Namespace = word
			return nil
		}),
		setConfigCommand("timeout", "DURATION", "time to wait for an answer", "30s", func(f *files, word string) error {
			d, err := duration.Parse(word)
			if err != nil || d <= 0 {
				return fmt.Errorf("%q is not a duration such as 15s", word)
			}
			f.cluster.Timeout = d
			return nil
		}),
	)
}

func configViewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "view",
		Short:   "show the present settings",
		Example: "  lapwing config view\n  lapwing config view --format json",
		Args:    args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, err := resolve(cmd)
			if err != nil {
				return err
			}
			s := newInvocation(cmd, set)
			view := configView{
				APIURL: set.url, Namespace: set.namespace, Format: set.preferred(), Timeout: set.timeout.String(),
				Username: s.user(), Directory: set.files.dir,
			}
			if at := set.files.cluster.ExpiresAt; at != 0 {
				view.JWTExpires = number(at)
			}
			raw, err := jsonOf(view)
			if err != nil {
				return err
			}
			return s.printPlain(raw, view.layout)
		},
	}
	formatFlag(cmd)
	return cmd
}

// configView is the output of "config view".
type configView struct {
	APIURL     string `json:"api-url"`
	Format     string `json:"format"`
	JWTExpires string `json:"jwt_expires_at"`
	Namespace  string `json:"namespace"`
	Timeout    string `json:"timeout"`
	Username   string `json:"username"`
	Directory  string `json:"directory"`
}

func (v configView) layout(json.RawMessage) (shown, error) {
	return &infoBlock{title: "Active Configuration", lines: []infoLine{
		{"API URL", v.APIURL},
		{"Namespace", v.Namespace},
		{"Format", v.Format},
		{"Timeout", v.Timeout},
		{"Username", v.Username},
		{"JWT Expiration Timestamp", v.JWTExpires},
		{"Directory", v.Directory},
	}}, nil
}

// preferred returns the format that commands use without a flag.
func (s *settings) preferred() string {
	for _, variable := range []string{"LAPWING_FORMAT", "SENSU_FORMAT"} {
		if v := os.Getenv(variable); v != "" {
			return v
		}
	}
	return cmp.Or(s.files.profile.Format, formatTabular)
}

func setConfigCommand(name, arg, short, example string, change func(*files, string) error) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "set-" + name + " " + arg,
		Short:   "set the " + short,
		Example: "  lapwing config set-" + name + " " + example,
		Args:    args(arg),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, _ := lookup(cmd, "config-dir")
			f, err := openFiles(dir)
			if err != nil {
				return err
			}
			if err := change(f, args[0]); err != nil {
				return err
			}
			if err := f.save(); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "OK")
			return nil
		},
	}
	if name == "format" {
		cmd.ValidArgs = formats
	}
	return cmd
}

// user returns the user in the access token, or "" with an API key. The token is not verified: the server does that.
func (s *invocation) user() string {
	if s.apiKey != "" {
		return ""
	}
	tokens := s.files.cluster.Tokens
	if s.client != nil && s.client.Tokens().AccessToken != "" {
		tokens = s.client.Tokens()
	}
	return subjectOf(tokens)
}

// subjectOf returns the user in an access token, which is not verified, or "".
func subjectOf(tokens client.Tokens) string {
	var claims jwt.RegisteredClaims
	if _, _, err := jwt.NewParser().ParseUnverified(tokens.AccessToken, &claims); err != nil {
		return ""
	}
	return claims.Subject
}

func logoutCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "logout",
		Short:   "sign out and delete the saved tokens",
		Example: "  lapwing logout",
		Args:    args(),
		RunE: run(func(ctx context.Context, s *invocation, _ []string) error {
			err := s.client.Logout(ctx)
			var refused *client.Error
			// A sign-in that the server no longer knows has ended, too.
			if err != nil && !(errors.As(err, &refused) && refused.Status < 500) {
				return err
			}
			if err := s.files.saveTokens(client.Tokens{}); err != nil {
				return err
			}
			fmt.Fprintln(s.out, "You have been logged out")
			return nil
		}),
	}
}

func envCommand() *cobra.Command {
	var shell string
	cmd := &cobra.Command{
		Use:   "env",
		Short: "print the settings as shell commands, for other programs",
		Long: `Print the settings as shell commands, for other programs. The tokens are renewed first. A refresh token works only once:
programs that share tokens can end each other's sign-in. For scripts an API key is better.`,
		Example: "  lapwing env\n  lapwing env --shell powershell",
		Args:    args(),
		RunE: run(func(ctx context.Context, s *invocation, _ []string) error {
			sh, ok := shells[shell]
			if !ok {
				return fmt.Errorf("--shell: %q is none of bash, cmd and powershell", shell)
			}
			variables, err := s.variables(ctx)
			if err != nil {
				return err
			}
			for _, v := range variables {
				fmt.Fprintf(s.out, sh.assign+"\n", v[0], sh.quote(v[1]))
			}
			fmt.Fprintln(s.out, sh.usage)
			return nil
		}),
	}
	cmd.Flags().StringVar(&shell, "shell", defaultShell, "shell to print for: bash, cmd or powershell")
	cmd.RegisterFlagCompletionFunc("shell", cobra.FixedCompletions([]string{"bash", "cmd", "powershell"},
		cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// variables returns the settings as environment variables, names and values, for other programs. It renews the tokens.
func (s *invocation) variables(ctx context.Context) ([][2]string, error) {
	tokens := s.files.cluster.Tokens
	if s.apiKey == "" {
		var err error
		if tokens, err = s.client.Renew(ctx); err != nil {
			return nil, err
		}
	}
	expires := ""
	if tokens.ExpiresAt != 0 {
		expires = number(tokens.ExpiresAt)
	}
	return [][2]string{
		{"SENSU_API_URL", s.url}, {"SENSU_NAMESPACE", s.namespace}, {"SENSU_FORMAT", s.format}, {"SENSU_API_KEY", s.apiKey},
		{"SENSU_ACCESS_TOKEN", tokens.AccessToken}, {"SENSU_ACCESS_TOKEN_EXPIRES_AT", expires},
		{"SENSU_REFRESH_TOKEN", tokens.RefreshToken}, {"SENSU_TRUSTED_CA_FILE", s.caFile},
		{"SENSU_INSECURE_SKIP_TLS_VERIFY", yesNo(s.insecure)}, {"SENSU_TIMEOUT", s.timeout.String()},
	}, nil
}

// shellSyntax is how a shell sets variables.
type shellSyntax struct {
	assign string
	quote  func(string) string
	usage  string
}

var shells = map[string]shellSyntax{
	"bash": {`export %s=%s`, func(s string) string {
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(s) + `"`
	}, "# Use it with: eval $(lapwing env)"},
	"cmd": {`SET %s=%s`, func(s string) string { return s },
		`REM Use it with: @FOR /f "tokens=*" %i IN ('lapwing env --shell cmd') DO @%i`},
	"powershell": {`$Env:%s = %s`, func(s string) string {
		return `"` + strings.NewReplacer("`", "``", `"`, "`\"", "$", "`$").Replace(s) + `"`
	},
		"# Use it with: & lapwing env --shell powershell | Invoke-Expression"},
}

func versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "show the versions of this program and of the server, if one is configured",
		Long: `Show the versions of this program and of the server, if one is configured. If the server does not answer within five seconds
(--timeout), standard error says why in a line; the exit code is 0 all the same.`,
		Example: "  lapwing version",
		Args:    args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintf(cmd.OutOrStdout(), "lapwing version %s\n", cmd.Root().Version)
			server, err := serverVersion(cmd)
			switch {
			case err == errNoURL:
			case err != nil:
				fmt.Fprintln(cmd.ErrOrStderr(), "server  version unknown:", printable(firstLine(err)))
			default:
				fmt.Fprintln(cmd.OutOrStdout(), "server  version", printable(server))
			}
			return nil
		},
	}
	return cmd
}

// versionTimeout bounds the wait for a server's version unless --timeout is given.
const versionTimeout = 5 * time.Second

// serverVersion returns the version of the configured server, and its URL. It is errNoURL if there is none.
func serverVersion(cmd *cobra.Command) (string, error) {
	set, err := resolve(cmd)
	if err != nil {
		return "", err
	}
	if given, _ := lookup(cmd, "timeout"); given == "" {
		set.timeout = min(set.timeout, versionTimeout)
	}
	opts, err := set.options(userAgent(cmd))
	if err != nil {
		return "", err
	}
	c, err := client.New(opts)
	if err != nil {
		return "", err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), set.timeout) // for all of several URLs
	defer cancel()
	v, err := c.Version(ctx)
	if err != nil {
		return "", err
	}
	return v.SensuBackend + " at " + set.url, nil
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
