package ctl

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/client/lacking"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
)

// ExitCode returns the exit status for the error of a command.
func ExitCode(err error) int {
	var plugin *pluginExit
	switch {
	case errors.As(err, &plugin):
		return plugin.status
	case err == nil:
		return 0
	case errors.As(err, new(*subcommandError)), unknownWord.MatchString(err.Error()):
		return 64
	case errors.Is(err, errNo), errors.As(err, new(*mistakesError)):
		return 2
	case errors.Is(err, errDeclined):
		return exitDeclined
	}
	return 1
}

// Report prints the error of a command, if it has a text, and returns the exit status.
func Report(w io.Writer, err error) int {
	switch {
	case err == nil, errors.Is(err, errNo), errors.As(err, new(*pluginExit)):
	case errors.Is(err, errDeclined):
		fmt.Fprintln(w, err) // it is no failure
	default:
		text := err.Error()
		if m := unknownWord.FindStringSubmatch(text); m != nil {
			if instead := lacking.InsteadOfCommand(m[1]); instead != "" {
				// Without the words that look like it: they have nothing to do with it.
				text = m[0] + ": sensuctl has it, lapwing does not\nUse instead: " + strings.ReplaceAll(instead, "`", "")
			} else if elsewhere[m[1]] != "" {
				text = strings.TrimRight(text, "\n") + "\nTry: " + elsewhere[m[1]]
			}
		}
		fmt.Fprintln(w, "Error:", printableText(text)) // a server, or a name that was typed, may have any characters
	}
	return ExitCode(err)
}

// unknownWord matches cobra's error of a first word that is no command.
var unknownWord = regexp.MustCompile(`^unknown command "([^"]+)" for "lapwing"`)

// elsewhere has the commands for words that one tries first.
var elsewhere = map[string]string{
	"can-i": "lapwing auth can-i", "health": "lapwing cluster status, or on a backend's host lapwing doctor",
	"status": "lapwing cluster status, or lapwing event list for the events", "waiting": "lapwing handler waiting",
	"rights": "lapwing auth can-i --list", "log-level": "lapwing admin log-level", "ack": "lapwing event ack ENTITY CHECK",
	"trace": "lapwing event trace ENTITY CHECK", "history": "lapwing event history ENTITY CHECK",
}

// errNo is not a failure: the command printed the answer, and the answer was no.
var errNo = errors.New("")

// subcommandError reports that a command like "check" was called without a subcommand.
type subcommandError struct{ text string }

func (e *subcommandError) Error() string { return e.text }

// hintError adds the next step, on a line of its own.
type hintError struct {
	err  error
	hint string
}

func (e *hintError) Error() string { return e.err.Error() + "\n" + e.hint }
func (e *hintError) Unwrap() error { return e.err }

func hint(err error, format string, args ...any) error {
	return &hintError{err, fmt.Sprintf(format, args...)}
}

func hintUsage(cmd *cobra.Command, err error) error {
	return hint(err, "Run '%s --help' for usage.", cmd.CommandPath())
}

// flagError adds the nearest flag to the error of an unknown one.
func flagError(cmd *cobra.Command, err error) error {
	name, unknown := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !unknown {
		return hintUsage(cmd, err)
	}
	if name == "entity" && (cmd.Name() == "create" || cmd.Name() == "preview") && cmd.HasParent() && cmd.Parent().Name() == "silenced" {
		return hint(err, "An entity is a subscription of its own: --subscription entity:NAME. For one event: lapwing event silence ENTITY CHECK")
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	if near := optionerr.Nearest(name, known); near != "" {
		err = fmt.Errorf("%w: did you mean --%s?", err, near)
	} else if near := flagsWithWord(cmd, name); len(near) > 0 {
		err = fmt.Errorf("%w: did you mean --%s?", err, strings.Join(near, " or --"))
	}
	return hintUsage(cmd, err)
}

// flagsWithWord returns the command's own flags of which a name is one of the words, for example webhook-url for url.
func flagsWithWord(cmd *cobra.Command, name string) (near []string) {
	const most = 3
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if len(near) < most && !f.Hidden && slices.Contains(strings.Split(f.Name, "-"), name) {
			near = append(near, f.Name)
		}
	})
	return near
}

// reasoned reports whether the server gave a reason for its refusal.
func reasoned(err error) bool {
	var refused *client.Error
	return errors.As(err, &refused) && refused.Message != "unauthorized to perform action"
}

// explain adds the next step to errors for which it is the same in all commands.
func explain(err error, set *settings) error {
	if err == nil || errors.As(err, new(*hintError)) {
		return err
	}
	var refused *client.Error
	var dial *net.OpError
	var dns *net.DNSError
	switch {
	case errors.Is(err, client.ErrNoCredentials):
		return hint(errors.New("unable to locate credentials"), "Sign in with 'lapwing configure', or use --api-key.")
	case errors.Is(err, client.ErrUnauthenticated):
		if set.apiKey != "" {
			return hint(err, "Check the API key.")
		}
		return hint(err, "Sign in again with 'lapwing configure', or in a browser with 'lapwing login'.")
	case errors.Is(err, client.ErrDenied) && !reasoned(err) && errors.As(err, &refused):
		return hint(err, "%s", set.denied(refused))
	case errors.Is(err, client.ErrDenied):
		return hint(err, "See your rights and their limits with 'lapwing auth can-i --list'.")
	case errors.Is(err, client.ErrPrecondition):
		return hint(err, "Another client changed it at the same moment: look at it, and run the command again.")
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return hint(err, "Name the file with the server's certificate authority with --trusted-ca-file.")
	case errors.As(err, new(x509.HostnameError)):
		return hint(err, "The certificate is for another name: use one of its names in --api-url.")
	case errors.As(err, new(x509.CertificateInvalidError)):
		return hint(err, "The server needs another certificate, or the clock of this host or the server is wrong.")
	case strings.Contains(err.Error(), "tls: certificate required"), strings.Contains(err.Error(), "tls: bad certificate"):
		return hint(err, "The server asks for a client certificate: name it with --cert-file and --key-file.")
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return hint(err, "The server speaks plain HTTP: use --api-url http://…")
	case strings.Contains(err.Error(), "Client sent an HTTP request to an HTTPS server"):
		return hint(err, "The server speaks HTTPS: use --api-url https://…")
	case errors.Is(err, context.DeadlineExceeded):
		return hint(err, "Wait longer with --timeout, or check --api-url.")
	case errors.As(err, &dns), errors.As(err, &dial) && dial.Op == "dial":
		return hint(err, "Is a backend listening there? Choose another with --api-url or 'lapwing configure'.")
	case errors.As(err, &refused):
		return wayOut(err, refused.Status)
	}
	return err
}

// wayOut adds the next step to refusals that are not about what was asked.
func wayOut(err error, status int) error {
	switch status {
	case http.StatusMethodNotAllowed:
		return hint(err, "The server does not have this: it may be of an older version, or Sensu's.")
	case http.StatusTooManyRequests:
		return hint(err, "Try again later, or make room: a limit or a quota of the namespace is used up.")
	case http.StatusInternalServerError:
		return hint(err, "The backend's log has more.")
	case http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusBadGateway:
		return hint(err, "Try again, or another backend with --api-url. 'lapwing cluster status' shows how the members stand.")
	}
	return err
}
