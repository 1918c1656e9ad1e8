// Package client calls lapwing's HTTP API, which is Sensu Go 6's with additions. The command line, the doctor, the load
// generator and tests use it.
//
// Resources are read and written by functions that take a Kind:
//
//	check, err := client.Get(ctx, c, client.Checks, "default", "cpu")
//
// A Client signs in when it has a name and a password, and renews its tokens before they expire. It is safe for
// concurrent use. Answers of status 400 and above are returned as *Error. It does not save tokens (Options.OnTokens
// does). It does not retry requests, except once with new tokens, and at another backend if several are named.
//
// The types of other requests and answers are in types.gen.go, generated from the API's OpenAPI document.
package client

//go:generate go run ../internal/apigen

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// DefaultTimeout limits a request when Options.Timeout is zero.
const DefaultTimeout = 15 * time.Second

// maxIdle is how many idle connections are kept. With the usual 2, a client with several concurrent requests would open
// and close connections all the time.
const maxIdle = 16

// silenceLimit is how long a live stream may be silent. The server sends a comment every 5 s.
const silenceLimit = 15 * time.Second

// ErrNoCredentials is returned when a request needs credentials and Options had none.
var ErrNoCredentials = errors.New("no credentials: neither API key nor tokens nor username and password are set")

// Options say where the API is and which credentials to use. An API key is used before tokens, and tokens before
// username and password. Username and password are used again when tokens can no longer be renewed.
type Options struct {
	// URL of the API, for example https://lapwing.example:8080. A path is kept as a prefix. Several backends of a
	// cluster may be named, with commas between: requests go to the first one that answers, and stay with it while it
	// does.
	URL string

	Username, Password string
	Tokens             Tokens
	APIKey             string

	// OnTokens, if set, is called with every new pair of tokens. The caller must save them: the old refresh token no
	// longer works.
	OnTokens func(Tokens)

	// BeforeRefresh, if set, is called before tokens are renewed. It returns the newest saved tokens, which are used
	// instead if they differ, and a function that is called after OnTokens. It lets processes that share saved tokens
	// take turns: the server ends a sign-in whose refresh token is sent twice.
	BeforeRefresh func() (newest Tokens, done func())

	// OnWarning, if set, is called with each text of an answer's Warning header and the path of the request. The
	// request was done, but the user should know the text.
	OnWarning func(path, text string)

	// TLSConfig is for https URLs. Default: the system's roots. Unused when HTTPClient is set.
	TLSConfig *tls.Config

	// Timeout limits each request, and for a stream the time to its first byte. Default: DefaultTimeout.
	Timeout time.Duration

	// UserAgent names the program. Default: "lapwing".
	UserAgent string

	// HTTPClient sends the requests. Default: a client that uses the proxy environment. It should have no Timeout,
	// which would also end live streams.
	HTTPClient *http.Client
}

// Client is a connection to one API.
type Client struct {
	opts    Options
	bases   bases
	http    *http.Client
	silence time.Duration // see silenceLimit

	// renewing holds a value while tokens are renewed, so that concurrent requests renew once.
	renewing chan struct{}

	mu     sync.Mutex // guards tokens
	tokens Tokens
}

// New returns a client. It sends nothing yet.
func New(opts Options) (*Client, error) {
	urls, err := parseURLs(opts.URL)
	if err != nil {
		return nil, err
	}
	if opts.Timeout <= 0 {
		opts.Timeout = DefaultTimeout
	}
	if opts.UserAgent == "" {
		opts.UserAgent = "lapwing"
	}
	c := &Client{
		opts:     opts,
		bases:    bases{urls: urls},
		http:     opts.HTTPClient,
		silence:  silenceLimit,
		renewing: make(chan struct{}, 1),
		tokens:   opts.Tokens,
	}
	if c.http == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.TLSClientConfig = opts.TLSConfig
		transport.MaxIdleConnsPerHost = maxIdle
		c.http = &http.Client{Transport: transport}
	}
	return c, nil
}

// Close closes idle connections. The client can still be used.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// request is one call of the API.
type request struct {
	method string
	path   string // encoded
	query  url.Values
	header http.Header // in addition to the usual headers
	in     any         // encoded as the JSON body, unless nil
	out    any         // decoded from the JSON answer, unless nil; a *[]byte gets its bytes
	public bool        // needs no credentials
}

type dryRunKey struct{}

// dryRunPath is before the path of a request that is only tried.
const dryRunPath = "/api/lapwing/v1/dry-run"

// WithDryRun returns a context whose writes the server checks and does not do. Other servers than lapwing do not know the
// path of such a request: their error is ErrNotFound without a code of Sensu's.
func WithDryRun(ctx context.Context) context.Context {
	return context.WithValue(ctx, dryRunKey{}, true)
}

// NoDryRun reports whether the error of a dry run says that the server has none.
func NoDryRun(err error) bool {
	var refused *Error
	return errors.Is(err, ErrNotFound) && errors.As(err, &refused) && refused.Code == 0
}

// NoDryRunOf reports whether the error of a dry run says that there is none of this request.
func NoDryRunOf(err error) bool {
	var refused *Error
	return errors.As(err, &refused) && strings.HasPrefix(refused.Message, "there is no dry run of this request")
}

type warningsKey struct{}

// WithWarnings returns a context whose requests tell the warnings of their answers to f, and not to Options.OnWarning.
func WithWarnings(ctx context.Context, f func(text string)) context.Context {
	return context.WithValue(ctx, warningsKey{}, f)
}

// do sends a request and decodes its answer. It returns the answer's header.
func (c *Client) do(ctx context.Context, r request) (http.Header, error) {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	sent := r
	if r.method != http.MethodGet && ctx.Value(dryRunKey{}) != nil {
		sent.path = dryRunPath + r.path
	}
	resp, err := c.send(ctx, sent)
	if err != nil {
		return nil, because(ctx, err)
	}
	defer resp.Body.Close()
	switch out := r.out.(type) {
	case nil:
		// Read to the end: otherwise the connection could not be reused.
		_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	case *[]byte:
		*out, err = io.ReadAll(resp.Body)
	default:
		err = json.NewDecoder(resp.Body).Decode(out)
	}
	if err != nil {
		return nil, because(ctx, fmt.Errorf("read answer: %w", err))
	}
	c.tellWarnings(ctx, r, resp)
	if next := resp.Header.Get("Sensu-Continue"); next != "" && next == r.page() {
		return nil, fmt.Errorf("the server answers page %q with the same page again", next) // for ever, perhaps
	}
	return resp.Header, nil
}

// page returns the continue token of a request.
func (r *request) page() string {
	if token := r.query.Get("continue"); token != "" {
		return token
	}
	_, text, _ := strings.Cut(r.path, "?")
	query, err := url.ParseQuery(text)
	if err != nil {
		return ""
	}
	return query.Get("continue")
}

func (c *Client) tellWarnings(ctx context.Context, r request, resp *http.Response) {
	if f, ok := ctx.Value(warningsKey{}).(func(string)); ok {
		for _, text := range Warnings(resp.Header) {
			f(text)
		}
		return
	}
	if c.opts.OnWarning != nil {
		for _, text := range Warnings(resp.Header) {
			c.opts.OnWarning(strings.TrimPrefix(r.path, dryRunPath), text)
		}
	}
}

// send sends a request with credentials and returns a successful answer; the caller closes its body. If the server
// refuses the credentials, it renews them once: the server's clock may differ from ours.
func (c *Client) send(ctx context.Context, r request) (*http.Response, error) {
	var cred credential
	if !r.public {
		var err error
		if cred, err = c.credential(ctx); err != nil {
			return nil, err
		}
	}
	for attempt := 0; ; attempt++ {
		resp, err := c.roundTrip(ctx, r, cred.header)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode < 400 {
			return resp, nil
		}
		c.tellWarnings(ctx, r, resp) // also of what is refused
		apiErr := readError(resp)
		if resp.StatusCode != http.StatusUnauthorized || !cred.renewable || attempt > 0 {
			return nil, apiErr
		}
		if cred, err = c.renew(ctx, cred); err != nil {
			return nil, fmt.Errorf("%w (%w)", apiErr, err)
		}
	}
}

// roundTripTo sends a request once, unchanged, to one of the URLs.
func (c *Client) roundTripTo(ctx context.Context, base string, r request, authorization string) (*http.Response, error) {
	var body []byte
	if r.in != nil {
		var err error
		if body, err = json.Marshal(r.in); err != nil {
			return nil, fmt.Errorf("encode body: %w", err)
		}
	}
	target := base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	ctx, answered, cancel := c.share(ctx, r, base)
	req, err := http.NewRequestWithContext(ctx, r.method, target, bytes.NewReader(body))
	if err != nil {
		cancel()
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", c.opts.UserAgent)
	for name, values := range r.header {
		req.Header[name] = values
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		defer cancel()
		return nil, because(ctx, err)
	}
	answered()
	resp.Body = &sharedBody{resp.Body, cancel}
	return resp, nil
}

func (c *Client) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	timeout := c.opts.Timeout
	if ctx.Value(patientKey{}) != nil {
		timeout = max(timeout, longWork)
	}
	return context.WithTimeoutCause(ctx, timeout, &timeoutError{c.bases.base(), timeout})
}

type patientKey struct{}

// longWork is how long a backend works at most on requests about everything of some kind.
const longWork = 5 * time.Minute

// patiently returns a context whose requests may take that long.
func patiently(ctx context.Context) context.Context {
	return context.WithValue(ctx, patientKey{}, true)
}

// timeoutError is the cause when a request ends by its timeout.
type timeoutError struct {
	url   string
	after time.Duration
}

func (e *timeoutError) Error() string {
	return fmt.Sprintf("no answer from %s within %v", e.url, e.after)
}

// Timeout implements net.Error.
func (e *timeoutError) Timeout() bool { return true }

func (e *timeoutError) Unwrap() error { return context.DeadlineExceeded }

// because replaces an error that only says that ctx ended with the cause of that end.
func because(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if cause == nil || cause == ctx.Err() || errors.As(err, new(*Error)) {
		return err
	}
	return cause
}
