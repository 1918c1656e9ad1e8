package ctl

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/jsonpath"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/duration"
)

var errNoURL = errors.New("no API URL is defined")

// settings come from flags, environment, files and defaults, in this order of precedence.
type settings struct {
	files *files

	url       string
	apiKey    string
	namespace string
	format    string
	timeout   time.Duration
	caFile    string
	insecure  bool
	certFile  string
	keyFile   string

	colors string             // one of colorChoices
	wide   bool               // tables have all columns, and lines of any length
	path   *jsonpath.JSONPath // the template of formatJSONPath

	many     bool      // the command sends many requests, so warnings of the server are printed with the request's path
	expected *expected // nil if the command does not write files
	quiet    bool      // warnings are held: the same requests follow, unless a mistake stops before them
	held     []string
	printed  []string // warnings about files that are already printed
	unseen   []string // warnings that names were not looked at, which are already printed
}

// When output has colors.
const (
	colorsAuto   = "auto" // in terminals
	colorsAlways = "always"
	colorsNever  = "never"
)

var colorChoices = []string{colorsAuto, colorsAlways, colorsNever}

// shadows is an annotation of a command's own flag that hides the global one of the same name.
const shadows = "shadows-global"

// OwnFlag says that a command's flag is not the client's setting of that name.
func OwnFlag(cmd *cobra.Command, flag string) {
	_ = cmd.Flags().SetAnnotation(flag, shadows, []string{"true"}) // the flag exists
}

// lookup returns the value of a flag, LAPWING_<FLAG> or SENSU_<FLAG>. Its name is for errors.
func lookup(cmd *cobra.Command, flag string) (value, name string) {
	if f := cmd.Flags().Lookup(flag); f != nil && f.Changed && f.Annotations[shadows] == nil {
		return f.Value.String(), "--" + flag
	}
	variable := strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
	for _, prefix := range []string{"LAPWING_", "SENSU_"} {
		if v := os.Getenv(prefix + variable); v != "" {
			return v, prefix + variable
		}
	}
	return "", ""
}

// resolve returns the settings of a command.
func resolve(cmd *cobra.Command) (*settings, error) {
	dir, _ := lookup(cmd, "config-dir")
	files, err := openFiles(dir)
	if err != nil {
		return nil, err
	}
	s := &settings{
		files:     files,
		url:       files.cluster.APIURL,
		apiKey:    files.cluster.APIKey,
		namespace: files.profile.Namespace,
		format:    files.profile.Format,
		timeout:   files.cluster.Timeout,
		caFile:    files.cluster.TrustedCAFile,
		insecure:  files.cluster.Insecure,
		certFile:  files.cluster.CertFile,
		keyFile:   files.cluster.KeyFile,
		colors:    colorsAuto,
	}
	// sensuctl stores any word as a format, and uses tabular for an unknown one.
	if checkFormat(s.format) != nil {
		s.format = formatTabular
	}
	if v, name := lookup(cmd, "format"); v != "" {
		var more []string
		if f := cmd.Flags().Lookup("format"); f != nil && f.Changed {
			more = f.Annotations[formatsOfCommand]
		}
		if err := checkFormat(v, more...); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		s.format = v
	}
	if err := s.setOutput(cmd); err != nil {
		return nil, err
	}
	for flag, field := range map[string]*string{
		"api-url": &s.url, "api-key": &s.apiKey, "namespace": &s.namespace, "trusted-ca-file": &s.caFile,
		"cert-file": &s.certFile, "key-file": &s.keyFile,
	} {
		if v, _ := lookup(cmd, flag); v != "" {
			*field = v
		}
	}
	if v, name := lookup(cmd, "color"); v != "" {
		if s.colors = v; !slices.Contains(colorChoices, v) {
			return nil, fmt.Errorf("%s %q: it must be one of %s", name, v, strings.Join(colorChoices, ", "))
		}
	}
	if v, name := lookup(cmd, "timeout"); v != "" {
		if s.timeout, err = duration.Parse(v); err != nil {
			return nil, fmt.Errorf("%s: %q is not a duration such as 15s", name, v)
		}
	}
	if v, name := lookup(cmd, "insecure-skip-tls-verify"); v != "" {
		if s.insecure, err = strconv.ParseBool(v); err != nil {
			return nil, fmt.Errorf("%s: %q is neither true nor false", name, v)
		}
	}
	if s.timeout <= 0 {
		s.timeout = client.DefaultTimeout
	}
	if s.namespace == "" {
		s.namespace = "default"
	}
	return s, nil
}

// options returns client options without credentials.
func (s *settings) options(userAgent string) (client.Options, error) {
	if s.url == "" {
		return client.Options{}, errNoURL
	}
	config := &tls.Config{InsecureSkipVerify: s.insecure}
	if s.caFile != "" {
		pem, err := os.ReadFile(s.caFile)
		if err != nil {
			return client.Options{}, fmt.Errorf("read trusted CA file: %w", err)
		}
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			config.RootCAs = x509.NewCertPool()
		}
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return client.Options{}, fmt.Errorf("trusted CA file %s holds no PEM certificates", s.caFile)
		}
	}
	if s.certFile != "" || s.keyFile != "" {
		pair, err := tls.LoadX509KeyPair(s.certFile, s.keyFile)
		if err != nil {
			return client.Options{}, fmt.Errorf("load client certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return client.Options{URL: s.url, TLSConfig: config, Timeout: s.timeout, UserAgent: userAgent}, nil
}

// connect returns a client with the settings' credentials that saves the tokens it renews.
func (s *settings) connect(userAgent string, warnings io.Writer) (*client.Client, error) {
	opts, err := s.options(userAgent)
	if err == errNoURL {
		return nil, hint(err, "Run 'lapwing configure', or use --api-url.")
	}
	if err != nil {
		return nil, err
	}
	opts.APIKey = s.apiKey
	opts.Tokens = s.files.cluster.Tokens
	opts.BeforeRefresh = s.files.lockTokens
	opts.OnTokens = func(t client.Tokens) {
		if err := s.files.saveTokens(t); err != nil {
			fmt.Fprintf(warnings, "warning: %v; the next command may need 'lapwing configure' first\n", err)
		}
	}
	opts.OnWarning = func(path, text string) { s.warn(warnings, path, text) }
	return client.New(opts)
}

// fileObject returns the object of the files that a request is about, or nil.
func (s *settings) fileObject(path string) *object {
	if s.expected == nil {
		return nil
	}
	return s.expected.objects[path]
}

// warn prints a warning of the server's about a request, unless the same text was already printed for a file.
func (s *settings) warn(w io.Writer, path, text string) {
	if strings.Contains(text, " was not looked at, since you may not list all ") { // that holds for all objects of a command
		if !slices.Contains(s.unseen, text) {
			s.unseen = append(s.unseen, text)
			fmt.Fprintln(w, "Warning:", printable(text))
		}
		return
	}
	if s.expected != nil {
		if text = s.expected.later(path, text); text == "" {
			return
		}
	}
	if slices.ContainsFunc(s.printed, func(printed string) bool { return strings.HasSuffix(printed, ": "+text) }) {
		return
	}
	switch o := s.fileObject(path); {
	case o != nil:
		text = o.placed(o.from.Line()) + ": " + text
	case s.many:
		text = path + ": " + text
	}
	if s.quiet {
		s.held = append(s.held, text)
		return
	}
	fmt.Fprintln(w, "Warning:", printable(text))
}

// tellHeld prints the held warnings, each once.
func (s *settings) tellHeld(w io.Writer) {
	for i, text := range s.held {
		if !slices.Contains(s.held[:i], text) {
			fmt.Fprintln(w, "Warning:", printable(text))
		}
	}
	s.held = nil
}
