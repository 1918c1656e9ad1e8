package remote

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http/httpguts"

	"github.com/lapwing-monitoring/lapwing/internal/filewatch"
	"github.com/lapwing-monitoring/lapwing/internal/plainfile"
	"github.com/lapwing-monitoring/lapwing/internal/tlsfiles"
)

// maxSecret bounds a file with a password, a token or the value of a header. No server takes more in its headers.
const maxSecret = 16 << 10

// maxHeaders bounds the headers of each kind.
const maxHeaders = 50

// ownHeaders are set by the Sender or by the HTTP client.
var ownHeaders = map[string]bool{
	"Connection": true, "Content-Encoding": true, "Content-Length": true, "Content-Type": true, "Expect": true, "Te": true,
	"Trailer": true, "Transfer-Encoding": true, "Upgrade": true, "User-Agent": true,
	"X-Prometheus-Remote-Write-Version": true,
}

// access is what a request needs besides its body. It comes from the options and from files, and does not change:
// changed files make a new one, with new connections.
type access struct {
	header http.Header
	host   string // instead of the URL's; "" for that
	client *http.Client

	secrets []string // of the headers, the longest first
}

// hide replaces the secrets in a text of the receiver, which may repeat what it was sent.
func (a *access) hide(text string) string {
	for _, secret := range a.secrets {
		text = strings.ReplaceAll(text, secret, "…")
	}
	return text
}

// checkAccess checks the options of access without their files.
func (o *Options) checkAccess() error {
	u, err := parseURL(o.URL)
	if err != nil {
		return err
	}
	switch {
	case o.BearerTokenFile != "" && o.Username+o.PasswordFile != "":
		return errors.New("there are a bearer token and a user: use one of them")
	case (o.Username == "") != (o.PasswordFile == ""):
		return errors.New("a user and a file with its password must come together")
	case strings.ContainsAny(o.Username, ":\r\n"):
		return errors.New("a user may have neither a colon nor a line break")
	case u.Scheme != "https" && o.CAFile+o.CertFile+o.KeyFile != "":
		return errors.New("files of certificates are for https, and the URL begins with http")
	}
	seen := map[string]bool{}
	if o.BearerTokenFile+o.Username != "" {
		seen["Authorization"] = true
	}
	for _, headers := range []map[string]string{o.Headers, o.HeaderFiles} {
		if len(headers) > maxHeaders {
			return fmt.Errorf("%d headers: the limit is %d", len(headers), maxHeaders)
		}
		for name := range headers {
			canonical := http.CanonicalHeaderKey(name)
			switch {
			case !httpguts.ValidHeaderFieldName(name):
				return fmt.Errorf("header %.100q: this is no name of a header", name)
			case ownHeaders[canonical]:
				return fmt.Errorf("header %s is set by remote write itself", canonical)
			case seen[canonical]:
				return fmt.Errorf("header %s is there twice", canonical)
			}
			seen[canonical] = true
		}
	}
	for name, value := range o.Headers {
		if !httpguts.ValidHeaderFieldValue(value) || len(value) > maxSecret {
			return fmt.Errorf("header %s: its value is too long or has a control character", name)
		}
		if http.CanonicalHeaderKey(name) == "Authorization" {
			return errors.New("header Authorization: put its value into a file, and name that in HeaderFiles")
		}
	}
	return nil
}

// ErrUserInURL says that a URL begins like https://user:password@host.
var ErrUserInURL = errors.New("the URL has a user or a password: give the user, and a file with the password")

// parseURL checks the URL of a receiver. Its errors do not contain the URL, which may have a password.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("the URL cannot be read")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("the URL is not like https://mimir.example.com/api/v1/push")
	}
	if u.User != nil {
		return nil, ErrUserInURL
	}
	return u, nil
}

const accessFiles = "credentials of remote write"

// watchAccess reads the files of the options, and again when they change.
func (o *Options) watchAccess() (*filewatch.Content[*access], error) {
	paths := []string{o.PasswordFile, o.BearerTokenFile, o.CAFile, o.CertFile, o.KeyFile}
	for _, file := range o.HeaderFiles {
		paths = append(paths, file)
	}
	var last *access
	content, err := filewatch.NewContent(filewatch.ContentOptions[*access]{
		What: accessFiles, Paths: paths, Every: o.FilesEvery, Logger: o.Log.With("remote", o.Name),
		Load: func() (*access, []filewatch.Warning, error) {
			a, err := o.readAccess()
			return a, nil, err
		},
		Reloads: prometheus.CounterOpts{
			Name: "lapwing_metric_remote_reloads_total", ConstLabels: prometheus.Labels{"remote": o.Name},
			Help: "Reads of changed files with credentials of remote write, by result; after an error the old ones stay.",
		},
		Registerer: o.Registerer,
		Changed: func(next *access) {
			last.client.CloseIdleConnections()
			last = next
		},
	})
	if err == nil {
		last = content.Current()
	}
	return content, err
}

func (o *Options) readAccess() (*access, error) {
	a := &access{header: http.Header{}}
	set := func(name, value string) {
		if http.CanonicalHeaderKey(name) == "Host" {
			a.host = value
			return
		}
		a.header.Set(name, value)
	}
	hidden := func(secrets ...string) { a.secrets = append(a.secrets, secrets...) }
	for name, value := range o.Headers {
		set(name, value)
	}
	for name, file := range o.HeaderFiles {
		value, err := readSecret(file)
		if err != nil {
			return nil, fmt.Errorf("header %s: %w", name, err)
		}
		set(name, value)
		hidden(value)
		if _, credentials, ok := strings.Cut(value, " "); ok && http.CanonicalHeaderKey(name) == "Authorization" {
			hidden(strings.TrimSpace(credentials))
		}
	}
	if o.PasswordFile != "" {
		password, err := readSecret(o.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf("password: %w", err)
		}
		basic := base64.StdEncoding.EncodeToString([]byte(o.Username + ":" + password))
		set("Authorization", "Basic "+basic)
		hidden(password, basic)
	}
	if o.BearerTokenFile != "" {
		token, err := readSecret(o.BearerTokenFile)
		if err != nil {
			return nil, fmt.Errorf("bearer token: %w", err)
		}
		set("Authorization", "Bearer "+token)
		hidden(token)
	}
	slices.SortFunc(a.secrets, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	set("Content-Encoding", "snappy")
	set("Content-Type", "application/x-protobuf")
	set("User-Agent", "lapwing")
	set("X-Prometheus-Remote-Write-Version", "0.1.0")
	var err error
	a.client, err = o.newClient()
	return a, err
}

// readSecret reads a file without the white space around its text. An empty one is an error: it is being written.
func readSecret(file string) (string, error) {
	text, err := plainfile.Read(file, maxSecret)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", fmt.Errorf("%s is empty", file)
	}
	if !httpguts.ValidHeaderFieldValue(secret) {
		return "", fmt.Errorf("%s has a line break or another control character within its text", file)
	}
	return secret, nil
}

func (o *Options) newClient() (*http.Client, error) {
	files, err := tlsfiles.New(tlsfiles.Options{Cert: o.CertFile, Key: o.KeyFile, CA: o.CAFile})
	if err != nil {
		return nil, err
	}
	transport := o.transport
	if transport == nil {
		transport = &http.Transport{
			Proxy:           http.ProxyFromEnvironment,
			TLSClientConfig: files.Client(), TLSHandshakeTimeout: 10 * time.Second,
			ForceAttemptHTTP2: true,
			// The drainer of the overflow sends too.
			MaxIdleConnsPerHost: o.Shards + 1, IdleConnTimeout: 90 * time.Second,
		}
	}
	return &http.Client{Transport: transport, Timeout: o.Timeout,
		// A redirect would turn the POST into a GET, or send the password elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}
