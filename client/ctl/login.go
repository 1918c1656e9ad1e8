package ctl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
)

// signInTime is how long a sign-in in a browser may take. The server's limit is the same.
const signInTime = 10 * time.Minute

func loginCommand() *cobra.Command {
	return groupOf("login", "sign in with a browser", "oidc", oidcLoginCommand())
}

func oidcLoginCommand() *cobra.Command {
	var (
		provider  string
		port      int
		noBrowser bool
	)
	cmd := &cobra.Command{
		Use:   "oidc",
		Short: "sign in on the pages of an OpenID Connect provider",
		Long: `Sign in on the pages of an OpenID Connect provider, in a browser on this machine, and save URL and tokens.

The browser returns to a port of this machine. If the browser runs on another machine, forward the port, for example with
ssh -L 8000:127.0.0.1:8000, and open the printed URL there.`,
		Example: `  lapwing login oidc --url https://lapwing.example:8080
  lapwing login oidc --provider okta --no-browser`,
		Args: args(),
	}
	f := cmd.Flags()
	f.String("url", "", "URL of the API (default the saved one)")
	f.StringVar(&provider, "provider", "", "name of the provider (required if there are several)")
	f.IntVar(&port, "port", 8000, "port of this machine to which the browser returns; 0 for any free port")
	f.BoolVar(&noBrowser, "no-browser", false, "only print the URL; do not start a browser")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		set, err := resolve(cmd)
		if err != nil {
			return err
		}
		if v, _ := lookup(cmd, "url"); v != "" {
			set.url = v
		}
		opts, err := set.options(userAgent(cmd))
		if err == errNoURL {
			return hint(err, "Name the API with --url.")
		}
		if err != nil {
			return err
		}
		c, err := client.New(opts)
		if err != nil {
			return err
		}
		defer c.Close()
		tokens, err := browserSignIn(cmd, c, provider, port, noBrowser)
		if err != nil {
			return explain(err, set)
		}
		set.apiKey = "" // otherwise it would be used instead of the tokens
		return saveSettings(cmd, set, "", tokens, opts.Timeout)
	}
	return cmd
}

// browserSignIn opens a sign-in in a browser and waits for the browser's request to the callback.
func browserSignIn(cmd *cobra.Command, c *client.Client, provider string, port int, noBrowser bool) (client.Tokens, error) {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return client.Tokens{}, hint(fmt.Errorf("wait for the browser: %w", err), "Choose another port with --port.")
	}
	flow := c.SignInWithBrowser(provider, "http://"+l.Addr().String()+"/callback")
	came := make(chan url.Values, 1)
	srv := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/callback" || !flow.Answers(r.URL.Query()) {
			http.NotFound(w, r)
			return
		}
		select {
		case came <- r.URL.Query():
			fmt.Fprintln(w, "You can close this page and go back to the terminal.")
		default:
			http.Error(w, "This sign-in has come back before.", http.StatusConflict)
		}
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l)
	}()
	defer func() {
		// The browser gets its answer. Do not wait for a connection that it keeps open.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), time.Second)
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			_ = srv.Close()
		}
		<-done
	}()
	fmt.Fprintln(cmd.ErrOrStderr(), "Sign in with your browser at:\n\n"+flow.URL()+"\n")
	if !noBrowser {
		openBrowser(flow.URL())
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), signInTime)
	defer cancel()
	select {
	case q := <-came:
		return flow.Finish(ctx, q)
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return client.Tokens{}, fmt.Errorf("no sign-in within %s", signInTime)
		}
		return client.Tokens{}, ctx.Err()
	}
}

// openBrowser starts the user's browser if it can; the URL is printed anyway.
func openBrowser(target string) {
	program := []string{"xdg-open"}
	switch runtime.GOOS {
	case "darwin":
		program = []string{"open"}
	case "windows":
		program = []string{"rundll32", "url.dll,FileProtocolHandler"}
	}
	cmd := exec.Command(program[0], append(program[1:], target)...)
	if cmd.Start() == nil {
		go func() { _ = cmd.Wait() }()
	}
}
