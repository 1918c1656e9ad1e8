package broker

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// This file is for a broker without a server in this process: a NATS cluster that is run beside lapwing. All backends
// that name the same servers and the same prefix are one system. Elections, copies that stand still, disks and restarts
// are left to those who run NATS; what the other files do about them is for the server in this process.

// External says how to reach NATS servers that are run beside lapwing.
type External struct {
	// URLs are those of the servers: nats://HOST:PORT, or tls://HOST:PORT. A URL may have a user and a password.
	// Required.
	URLs []string
	// CredentialsFile is a file of NATS (.creds), or has lines with "user: NAME" and "password: SECRET". It is read for
	// each connection.
	CredentialsFile string
	// TLS verifies the servers, and may have a certificate for them. nil leaves it to the URLs and the servers.
	TLS *tls.Config
	// Prefix begins the names of all streams and subjects, so that several systems can share the servers. Default
	// DefaultPrefix.
	Prefix string
	// Replicas is how many copies each stream has. 0 is as many as there are servers, and 3 at most.
	Replicas int
}

// DefaultPrefix is the default of External.Prefix.
const DefaultPrefix = "lapwing"

// mostReplicas is how many copies a stream has as a rule, and mostExternalReplicas how many NATS can make.
const (
	mostReplicas         = 3
	mostExternalReplicas = 5
)

// CheckURLs returns why the URLs cannot work. Its errors contain no part of one: it may have a password.
func (e *External) CheckURLs() error {
	if len(e.URLs) == 0 {
		return errors.New("no URL")
	}
	for i, text := range e.URLs {
		u, err := parseURL(text)
		if err != nil {
			return fmt.Errorf("URL %d of %d is not like nats://HOST:PORT or tls://HOST:PORT", i+1, len(e.URLs))
		}
		if u.User != nil && e.CredentialsFile != "" {
			return errors.New("a URL has a user, and there is a file of credentials too: leave one of them out")
		}
	}
	return nil
}

// CheckPrefix returns why the prefix cannot be part of the names of streams and subjects.
func (e *External) CheckPrefix() error {
	if strings.Trim(e.Prefix, prefixLetters) != "" {
		return fmt.Errorf("%q has other characters than letters, digits, - and _", e.Prefix)
	}
	return nil
}

// CheckReplicas returns why streams cannot have so many copies.
func (e *External) CheckReplicas() error {
	if e.Replicas < 0 || e.Replicas > mostExternalReplicas {
		return fmt.Errorf("%d is out of range: it must be from 1 to %d", e.Replicas, mostExternalReplicas)
	}
	return nil
}

const prefixLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	rest := strings.Trim(u.Path, "/") + u.RawQuery + u.Fragment + u.Opaque
	if u.Scheme != "nats" && u.Scheme != "tls" || u.Hostname() == "" || rest != "" {
		return nil, errors.New("no URL of a NATS server")
	}
	return u, nil
}

// Where names the servers without their users and passwords.
func (e *External) Where() string {
	var hosts []string
	for _, text := range e.URLs {
		if u, err := parseURL(text); err == nil {
			hosts = append(hosts, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "4222")))
		}
	}
	return strings.Join(hosts, ", ")
}

// hide takes the passwords of the URLs out of an error's text.
func (e *External) hide(err error) error {
	text := err.Error()
	for _, raw := range e.URLs {
		u, parseErr := parseURL(raw)
		if parseErr != nil || u.User == nil {
			continue
		}
		secret, set := u.User.Password()
		if !set {
			secret = u.User.Username() // a token
		}
		for _, form := range [...]string{secret, url.QueryEscape(secret), url.PathEscape(secret)} {
			if form != "" {
				text = strings.ReplaceAll(text, form, "xxxxx")
			}
		}
	}
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}

// credentials returns how the connection signs in.
func (e *External) credentials() (nats.Option, error) {
	if e.CredentialsFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(e.CredentialsFile)
	if err != nil {
		return nil, fmt.Errorf("read the credentials for NATS: %w", err)
	}
	if strings.Contains(string(text), "BEGIN NATS USER JWT") {
		return nats.UserCredentials(e.CredentialsFile), nil
	}
	user, password := userAndPassword(string(text))
	if user == "" || password == "" {
		return nil, fmt.Errorf("read the credentials for NATS: %s is no .creds file, and has no lines "+
			"\"user: NAME\" and \"password: SECRET\"", e.CredentialsFile)
	}
	return nats.UserInfoHandler(func() (string, string) {
		if text, err := os.ReadFile(e.CredentialsFile); err == nil {
			if u, p := userAndPassword(string(text)); u != "" && p != "" {
				return u, p
			}
		}
		return user, password
	}), nil
}

func userAndPassword(text string) (user, password string) {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); strings.TrimSpace(key) {
		case "user":
			user = value
		case "password":
			password = value
		}
	}
	return user, password
}

const (
	// dialPause is the time between two attempts to connect to NATS for the first time, and to connect again.
	dialPause = 500 * time.Millisecond
	// dialTimeout bounds the attempt to connect to one server.
	dialTimeout = 5 * time.Second
	// natsPing is the time between two pings of the connection. Two that are not answered end it.
	natsPing = 2 * time.Second
)

// startExternal connects to NATS. While no server answers it waits, for as long as ctx allows.
func (b *Broker) startExternal(ctx context.Context) error {
	opts, err := b.connectionOptions()
	if err != nil {
		return fmt.Errorf("start broker: %w", err)
	}
	if err := b.dial(ctx, opts); err != nil {
		return fmt.Errorf("start broker: %w", err)
	}
	if err := b.checkExternal(ctx); err != nil {
		return errors.Join(fmt.Errorf("start broker: %w", err), b.Stop())
	}
	return nil
}

func (b *Broker) connectionOptions() ([]nats.Option, error) {
	e := b.opts.External
	credentials, err := e.credentials()
	if err != nil {
		return nil, err
	}
	opts := []nats.Option{
		nats.Name("lapwing " + b.opts.Name), nats.CustomInboxPrefix(b.Subject("_INBOX")),
		nats.Timeout(dialTimeout), nats.PingInterval(natsPing), nats.MaxPingsOutstanding(2),
		nats.MaxReconnects(-1), nats.ReconnectWait(dialPause), nats.ReconnectJitter(dialPause, dialPause),
		// Without a connection a message is refused at once: old heartbeats must not arrive later.
		nats.ReconnectBufSize(-1),
		nats.IgnoreAuthErrorAbort(), // credentials may be replaced on the servers first
		nats.ClosedHandler(b.connectionClosed), nats.ErrorHandler(b.externalError),
		nats.DisconnectErrHandler(b.disconnected), nats.ReconnectHandler(func(conn *nats.Conn) {
			b.log.Info("connected to NATS again", "server", conn.ConnectedServerName())
		}),
	}
	if credentials != nil {
		opts = append(opts, credentials)
	}
	if e.TLS != nil {
		opts = append(opts, nats.Secure(e.TLS))
	}
	return opts, nil
}

// dial connects for the first time.
func (b *Broker) dial(ctx context.Context, opts []nats.Option) error {
	e, what, tried := b.opts.External, "", time.Time{}
	return b.await(ctx, func() (string, error) {
		if what != "" && time.Since(tried) < dialPause {
			return what, nil
		}
		conn, err := nats.Connect(strings.Join(e.URLs, ","), opts...)
		tried = time.Now()
		switch {
		case err != nil && refusedForGood(err):
			return "", fmt.Errorf("connect to NATS at %s: %w", e.Where(), e.hide(err))
		case err != nil:
			what = fmt.Sprintf("NATS at %s: %s", e.Where(), e.hide(err))
			return what, nil
		}
		return "", b.use(conn)
	})
}

// use makes a connection the broker's.
func (b *Broker) use(conn *nats.Conn) error {
	js, err := jetstream.New(conn)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err != nil:
	case b.stopping:
		err = errStopped
	case b.conn != nil:
		err = errors.New("it was started before")
	default:
		b.conn, b.js = conn, js
		return nil
	}
	conn.Close()
	return err
}

// refusedForGood reports whether a connection failed for a reason that does not go away by itself.
func refusedForGood(err error) bool {
	for _, known := range [...]error{
		nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
		nats.ErrSecureConnRequired, nats.ErrSecureConnWanted, nats.ErrNkeysNotSupported,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	if errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(tls.RecordHeaderError)) {
		return true
	}
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error" // an alert of TLS: it wants another certificate
}

// checkExternal returns why the servers cannot be used. It waits for JetStream, which may have just been started.
func (b *Broker) checkExternal(ctx context.Context) error {
	e := b.opts.External
	if got := b.conn.MaxPayload(); got < int64(b.opts.MaxMessage) {
		return fmt.Errorf("use NATS at %s: its messages have %d bytes at most, and %d are needed: "+
			"set max_payload on all servers", e.Where(), got, b.opts.MaxMessage)
	}
	if _, err := b.conn.TLSConnectionState(); err != nil && !b.onThisHost() {
		b.log.Warn("the connection to NATS is not encrypted: use tls:// in --nats-url", "servers", e.Where())
	}
	begin := time.Now()
	return b.await(ctx, func() (string, error) {
		askCtx, cancel := context.WithTimeout(ctx, apiTimeout)
		defer cancel()
		_, err := b.js.AccountInfo(askCtx)
		off := errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount)
		switch denied := b.denied.Load(); {
		case err == nil:
			return "", nil
		case denied != nil:
			return "", fmt.Errorf("use JetStream of NATS at %s: %w", e.Where(), *denied)
		case off && time.Since(begin) > jetStreamWait:
			return "", fmt.Errorf("use JetStream of NATS at %s: %w: "+
				"switch it on in the servers' configuration, and for the account", e.Where(), err)
		}
		return fmt.Sprintf("JetStream of NATS at %s: %s", e.Where(), err), nil
	})
}

// jetStreamWait is how long servers that have just started may say that they have no JetStream.
const jetStreamWait = 5 * time.Second

// onThisHost reports whether the connected server is on this host.
func (b *Broker) onThisHost() bool {
	host, _, err := net.SplitHostPort(b.conn.ConnectedAddr())
	return err == nil && loopback(host)
}

func (b *Broker) disconnected(_ *nats.Conn, err error) {
	if b.life.Err() != nil {
		return
	}
	if err == nil {
		err = errors.New("the server closed it")
	}
	b.log.Warn("the connection to NATS is lost, trying to connect again", "servers", b.opts.External.Where(),
		"err", b.opts.External.hide(err))
}

// externalError gets what a server refuses without an answer, above all subjects that the account may not use.
func (b *Broker) externalError(_ *nats.Conn, _ *nats.Subscription, err error) {
	denied := errors.Is(err, nats.ErrPermissionViolation)
	if err = b.opts.External.hide(err); denied {
		b.denied.Store(&err)
	}
	b.rare.Error("NATS refuses something", err.Error(), "err", err)
}

// openExternal opens a stream of NATS, and makes it if it is missing. Several backends may do that at the same time.
// The stream keeps the placement and the compression that it has, and its number of copies, unless that is too small or
// Replicas asks for another one. cfg has lapwing's names.
func (b *Broker) openExternal(ctx context.Context, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	cfg.Name = b.stored(cfg.Name)
	subjects := make([]string, 0, len(cfg.Subjects))
	for _, s := range cfg.Subjects {
		subjects = append(subjects, b.Subject(s))
	}
	cfg.Subjects = subjects
	what := "stream " + cfg.Name + " of NATS"
	m := &making{broker: b, cfg: cfg, begin: time.Now()}
	var stream jetstream.Stream
	err := b.await(ctx, func() (string, error) {
		tryCtx, cancel := context.WithTimeout(ctx, apiTimeout)
		defer cancel()
		found, err := b.js.Stream(tryCtx, cfg.Name)
		switch denied := b.denied.Load(); {
		case denied != nil:
			return "", *denied
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return m.make(tryCtx, what)
		case err != nil:
			return fmt.Sprintf("%s: %s", what, err), nil
		case !m.changed:
			if what, err := m.change(tryCtx, what, found.CachedInfo()); what != "" || err != nil {
				return what, err
			}
			m.changed = true
		}
		if info := found.CachedInfo(); info.Cluster != nil && info.Cluster.Leader == "" {
			return what + " to have a leader", nil
		}
		stream = found
		return "", nil
	})
	if err != nil {
		return nil, fmt.Errorf("open stream %s: %w", cfg.Name, err)
	}
	return stream, nil
}

// making is the making or changing of a stream of NATS.
type making struct {
	broker  *Broker
	cfg     jetstream.StreamConfig
	begin   time.Time
	less    int // copies that are done without, because there are too few servers
	changed bool
}

// copies returns how many copies the stream should have.
func (m *making) copies() int {
	switch wanted := m.broker.opts.External.Replicas; {
	case wanted != 0:
		return wanted
	case m.broker.conn.ConnectedClusterName() == "":
		return 1 // a single server
	}
	return mostReplicas - m.less
}

// make makes the stream. It returns what is to be waited for.
func (m *making) make(ctx context.Context, what string) (string, error) {
	m.cfg.Replicas = m.copies()
	_, err := m.broker.js.CreateStream(ctx, m.cfg)
	switch {
	case err == nil || errors.Is(err, jetstream.ErrStreamNameAlreadyInUse):
		m.changed = true
		return what + " to be made", nil
	case tooFewServers(err):
		if time.Since(m.begin) < fullSetWait {
			return fmt.Sprintf("servers of NATS for %d copies of %s", m.cfg.Replicas, what), nil
		}
		if m.broker.opts.External.Replicas != 0 || m.cfg.Replicas == 1 {
			return "", fmt.Errorf("NATS has too few servers for %d copies: start more of them, or set --nats-replicas: %w",
				m.cfg.Replicas, err)
		}
		m.less++
		m.broker.log.Warn("a stream is made with fewer copies: NATS has too few servers",
			"stream", m.cfg.Name, "copies", m.copies())
		return what + " to be made", nil
	case refusedByNATS(err):
		return "", err
	}
	return fmt.Sprintf("%s to be made: %s", what, err), nil
}

// change gives the stream its present configuration. It returns what is to be waited for.
func (m *making) change(ctx context.Context, what string, info *jetstream.StreamInfo) (string, error) {
	has := &info.Config
	m.cfg.Replicas = has.Replicas
	if wanted := m.copies(); m.broker.opts.External.Replicas != 0 || wanted > has.Replicas {
		m.cfg.Replicas = wanted
	}
	m.cfg.Metadata = merged(m.cfg.Metadata, has.Metadata)
	m.cfg.Placement, m.cfg.Compression = has.Placement, has.Compression
	_, err := m.broker.js.UpdateStream(ctx, m.cfg)
	switch {
	case err == nil:
		return "", nil
	case tooFewServers(err) && m.broker.opts.External.Replicas == 0:
		m.less++ // as many as there are
		return what + " to be changed", nil
	case tooFewServers(err):
		return "", fmt.Errorf("NATS has too few servers for %d copies: start more of them, or set --nats-replicas: %w",
			m.cfg.Replicas, err)
	case refusedByNATS(err):
		return "", err
	}
	return fmt.Sprintf("%s to be changed: %s", what, err), nil
}

// tooFewServers reports whether a stream cannot have as many copies as it should.
func tooFewServers(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == codeNoPeers || api.ErrorCode == codeNoReplicas)
}

// refusedByNATS reports whether an error is an answer that will not change by itself.
func refusedByNATS(err error) bool {
	var api *jetstream.APIError
	return refused(err) || errors.As(err, &api) && api.Code < 500
}

// Explain returns what an error of a write means.
func (b *Broker) Explain(err error) error {
	if down := b.Err(); down != nil && errors.Is(err, nats.ErrReconnectBufExceeded) {
		return down // the client library says that the room for what waits is exceeded: there is none
	}
	return err
}

// externalErr returns why NATS cannot be used, or nil.
func (b *Broker) externalErr() error {
	switch {
	case b.conn == nil || b.stopping:
		return errors.New("broker is not running")
	case !b.conn.IsConnected():
		return fmt.Errorf("no connection to NATS at %s", b.opts.External.Where())
	}
	return nil
}

// Subject returns what the broker calls a subject of lapwing's. Callers need it for what they do with a stream itself;
// the methods of Broker and Bus take lapwing's names.
func (b *Broker) Subject(subject string) string {
	if b.opts.External == nil {
		return subject
	}
	return b.opts.External.Prefix + "." + subject
}

// plain returns what lapwing calls a subject of the broker's.
func (b *Broker) plain(subject string) string {
	if b.opts.External == nil {
		return subject
	}
	return strings.TrimPrefix(subject, b.opts.External.Prefix+".")
}

// stored returns what the broker calls a stream of lapwing's.
func (b *Broker) stored(stream string) string {
	if b.opts.External == nil {
		return stream
	}
	return b.opts.External.Prefix + "_" + stream
}
