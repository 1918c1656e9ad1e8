package ctl

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/client"
)

// Connection is an API for a command of another package, with the settings of a command of this package.
type Connection struct {
	Client *client.Client
	URL    string
	// Namespace is the namespace of the command.
	Namespace string

	set *settings
}

// AddFlags adds the flags that Connect reads to a command.
func AddFlags(cmd *cobra.Command) {
	cmd.Flags().AddFlagSet(globalFlags())
	cmd.SetFlagErrorFunc(flagError)
}

// Connect returns a connection for a command's flags, the environment and the client's files.
func Connect(cmd *cobra.Command) (*Connection, error) {
	set, err := resolve(cmd)
	if err != nil {
		return nil, err
	}
	set.many = true
	set.expect(nil) // names that name nothing are for lapwing lint: definitions may come in any order, and there may be thousands
	c, err := set.connect(userAgent(cmd), cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	return &Connection{Client: c, URL: set.url, Namespace: set.namespace, set: set}, nil
}

// Target is an API for a command that makes its own requests.
type Target struct {
	URL string // "" if none is configured; of several backends with commas between
	TLS *tls.Config
	// Authorization is the header for requests; "" for none.
	Authorization string
}

// Reach returns the API for a command's flags, the environment and the client's files. Credentials that cannot be renewed
// are left out with a warning: what the command asks for may be public.
func Reach(cmd *cobra.Command) (*Target, error) {
	set, err := resolve(cmd)
	if err != nil {
		return nil, err
	}
	url := set.url
	if url == "" {
		set.url = "http://127.0.0.1" // the rest is wanted all the same
	}
	opts, err := set.options(userAgent(cmd))
	if err != nil {
		return nil, err
	}
	t := &Target{URL: url, TLS: opts.TLSConfig}
	c, err := set.connect(userAgent(cmd), cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	t.Authorization, err = c.Authorization(cmd.Context())
	if err != nil && !errors.Is(err, client.ErrNoCredentials) {
		fmt.Fprintf(cmd.ErrOrStderr(), "Warning: going on without credentials: %s\n", firstLine(err))
	}
	return t, nil
}

// Explain adds the next step to an error of the client.
func (c *Connection) Explain(err error) error { return explain(err, c.set) }

// User returns the signed-in user, or "" if unknown.
func (c *Connection) User(ctx context.Context) string {
	if c.set.apiKey != "" {
		key, err := client.Get(ctx, c.Client, client.APIKeys, "", c.set.apiKey)
		if err != nil {
			return ""
		}
		return key.Username
	}
	parts := strings.Split(c.Client.Tokens().AccessToken, ".")
	if len(parts) != 3 {
		return ""
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var who struct {
		Subject string `json:"sub"`
	}
	if json.Unmarshal(claims, &who) != nil {
		return ""
	}
	return who.Subject
}

// Other describes an API other than the one in the client's settings, and how to sign in to it.
type Other struct {
	URL                string // default the profile's
	APIKey             string
	Username, Password string
	// Profile is a directory with files like sensuctl's. It is read when neither an API key nor a user name is set.
	// Default: sensuctl's.
	Profile  string
	CAFile   string
	Insecure bool
	Timeout  time.Duration
}

// ConnectOther returns a connection to another API. Renewed tokens of a profile are saved there.
func ConnectOther(o Other, agent string, warnings io.Writer) (*Connection, error) {
	set := &settings{
		many: true, files: &files{}, url: o.URL, apiKey: o.APIKey, namespace: "default",
		timeout: o.Timeout, caFile: o.CAFile, insecure: o.Insecure,
	}
	if o.APIKey == "" && o.Username == "" {
		if err := set.useProfile(o); err != nil {
			return nil, err
		}
	}
	c, err := set.connectAs(o, agent, warnings)
	if err != nil {
		return nil, err
	}
	return &Connection{Client: c, URL: set.url, Namespace: set.namespace, set: set}, nil
}

func (s *settings) connectAs(o Other, agent string, warnings io.Writer) (*client.Client, error) {
	if s.files.dir != "" {
		return s.connect(agent, warnings)
	}
	opts, err := s.options(agent)
	if err != nil {
		return nil, err
	}
	opts.APIKey, opts.Username, opts.Password = o.APIKey, o.Username, o.Password
	return client.New(opts)
}

// useProfile takes the missing settings from sensuctl's files, if they are for the same API.
func (s *settings) useProfile(o Other) error {
	dir := o.Profile
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return err
		}
		dir = filepath.Join(home, ".config", "sensu", "sensuctl")
	}
	f, err := readFiles(dir)
	if err != nil {
		return err
	}
	c := f.cluster
	switch {
	case c.APIURL == "" || c.AccessToken == "" && c.APIKey == "":
		return hint(errors.New("no credentials for the source"),
			"Give a user's name and password, or an API key, or sign in with sensuctl configure.")
	case s.url != "" && strings.TrimRight(s.url, "/") != strings.TrimRight(c.APIURL, "/"):
		return hint(errors.New("no credentials for "+s.url),
			"Those in %s are for %s. Give a user's name and password, or an API key.", dir, c.APIURL)
	}
	s.files, s.url, s.apiKey = f, c.APIURL, c.APIKey
	s.insecure = s.insecure || c.Insecure
	if s.caFile == "" {
		s.caFile = c.TrustedCAFile
	}
	return nil
}
