package auth

import (
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// ErrUnavailable says that the provider that knows the user cannot be reached now.
var ErrUnavailable = errors.New("sign-in provider cannot be reached")

// Origin identifies the provider that vouches for an identity. The zero value means lapwing itself: the identity is a
// local user.
type Origin struct {
	Provider string // name of the resource.AuthProvider
	Type     string // its type
	UserID   string // the provider's name for the user: a distinguished name, or a subject
	// upstream holds the data for asking the provider again.
	upstream upstream
}

// Local reports whether the identity is of a local user.
func (o Origin) Local() bool { return o.Provider == "" }

// upstream travels in refresh tokens, sealed.
type upstream struct {
	Server  string   `json:"server,omitempty"`  // of OpenID Connect: the server where the user signed in
	Groups  []string `json:"groups,omitempty"`  // the last known ones
	Refresh string   `json:"refresh,omitempty"` // the OpenID Connect provider's refresh token
	// Unix seconds until which the last answer counts if the provider cannot be asked again
	Until int64 `json:"until,omitempty"`
}

const (
	// providerTimeout bounds the wait for one server in a sign-in or refresh.
	providerTimeout = 5 * time.Second
	// maxDirectorySignIns bounds the sign-ins that query directories at a time.
	maxDirectorySignIns = 16
	// systemPrefix begins the names of groups with a meaning to lapwing. Providers cannot put users into such a group.
	systemPrefix = "system:"
)

// providers signs in users whom lapwing itself does not know.
type providers struct {
	config  *config.Store
	rare    *rarelog.Log // for messages that depend on others' input
	now     func() time.Time
	http    *http.Client
	slots   chan struct{} // one for each sign-in that may query directories
	signIns *prometheus.CounterVec
	key     atomic.Pointer[cipherKey]

	mu    sync.Mutex             // guards the fields below
	oidc  map[string]*oidcClient // by the provider's name
	mute  map[string]mute        // by the provider's name
	spent map[string]time.Time   // redeemed codes, until they expire
}

type cipherKey struct{ cipher.AEAD }

func newProviders(opts Options) *providers {
	p := &providers{
		config: opts.Config,
		rare:   rarelog.New(opts.Logger.With("component", "auth")),
		now:    opts.Now,
		http:   opts.HTTPClient,
		slots:  make(chan struct{}, maxDirectorySignIns),
		signIns: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_auth_provider_sign_ins_total",
			Help: "Sign-ins and refreshes that asked an authentication provider, by its type and the result.",
		}, []string{"type", "result"}),
		oidc:  map[string]*oidcClient{},
		mute:  map[string]mute{},
		spent: map[string]time.Time{},
	}
	if p.http == nil {
		p.http = &http.Client{Timeout: providerTimeout}
	}
	for _, typ := range []string{resource.LDAPType, resource.ADType, resource.OIDCType} {
		for _, result := range []string{"right", "wrong", "unavailable"} {
			p.signIns.WithLabelValues(typ, result)
		}
	}
	if opts.Registerer != nil {
		opts.Registerer.MustRegister(p.signIns)
	}
	return p
}

func (p *providers) count(typ string, err error) {
	result := "right"
	switch {
	case errors.Is(err, ErrUnavailable):
		result = "unavailable"
	case err != nil:
		result = "wrong"
	}
	p.signIns.WithLabelValues(typ, result).Inc()
}

// SignIn is PasswordFrom for people: if lapwing does not know the user with that password, directories are asked in the
// order of their names. It also fails with ErrUnavailable, when a directory that could decide cannot be reached.
func (a *Auth) SignIn(ctx context.Context, address, user, password string) (*Identity, error) {
	id, counted, err := a.password(ctx, address, user, password, false)
	if !errors.Is(err, ErrCredentials) || user == "" || password == "" || len(user) > maxUserName {
		return id, err
	}
	address = network(address)
	memory := a.memory(ctx)
	var unavailable error
	same := a.providers.sameDirectories()
	for def := range a.providers.directories() {
		id, err := a.providers.signIn(ctx, def, user, password, a.bindGate(ctx, memory, directoryOf(def, same), address))
		switch {
		case err == nil:
			a.guesses.forgive(a.opts.Now(), user, address, counted)
			a.rememberSignIn(memory, rememberedPlace, user, address)
			return id, nil
		case errors.Is(err, ErrUnavailable):
			unavailable = err
		case !errors.Is(err, ErrCredentials):
			return nil, err
		}
	}
	if _, known := a.user(user); unavailable != nil && !known {
		return nil, unavailable
	}
	return nil, ErrCredentials
}

// bindGate allows a directory to be asked about an entry's password, within the bounds of bindGuesses.
func (a *Auth) bindGate(ctx context.Context, memory *remembered, directory, address string) bindGate {
	return func(entry, password string) (func(error), error) {
		b := bindQuestion{directory: directory, entry: strings.ToLower(strings.TrimSpace(entry)), address: address, password: password}
		b.trusted = memory.has(rememberedEntry, directory, b.entry, address)
		counted, err := a.binds.begin(ctx, a.opts.Now(), b)
		if err != nil {
			return nil, err
		}
		return func(err error) {
			a.binds.end(a.opts.Now(), counted, b, err)
			if err == nil && !b.trusted {
				a.rememberSignIn(memory, rememberedEntry, directory, b.entry, address)
			}
		}, nil
	}
}

// directories yields the providers that take names and passwords.
func (p *providers) directories() iter.Seq[*resource.AuthProvider] {
	return func(yield func(*resource.AuthProvider) bool) {
		for def := range config.List(p.config.Snapshot(), config.AuthProviders, "") {
			if def.Directory != nil && !yield(def) {
				return
			}
		}
	}
}

// sameDirectories maps the host of each directory server to one name for all servers of its directory. The servers of a
// provider are one directory, and so are providers that share a server: a directory locks an account for all providers.
// Ports do not distinguish directories, since a server has one with TLS and one without.
func (p *providers) sameDirectories() map[string]string {
	names := map[string]string{}
	for changed := true; changed; {
		changed = false
		for def := range p.directories() {
			name := directoryOf(def, names)
			for i := range def.Directory.Servers {
				host := strings.ToLower(def.Directory.Servers[i].Host)
				if names[host] != name {
					names[host], changed = name, true
				}
			}
		}
	}
	return names
}

// directoryOf returns the name of a provider's directory: the first in order of its servers' names.
func directoryOf(def *resource.AuthProvider, names map[string]string) (name string) {
	for i := range def.Directory.Servers {
		host := strings.ToLower(def.Directory.Servers[i].Host)
		one := cmp.Or(names[host], host)
		if i == 0 || one < name {
			name = one
		}
	}
	return name
}

// known reports whether the user or provider behind an identity still exists.
func (a *Auth) known(user string, o Origin) bool {
	if o.Local() {
		_, ok := a.user(user)
		return ok
	}
	def, ok := config.Get(a.opts.Config.Snapshot(), config.AuthProviders, "", o.Provider)
	return ok && def.Type == o.Type
}

// renew asks again for the user of a sign-in and its present groups. It fails with ErrSignInOver when the user is gone,
// and with ErrUnavailable when the provider cannot be reached.
func (a *Auth) renew(ctx context.Context, c *claims) (*Identity, error) {
	o, err := a.origin(ctx, c)
	if err != nil {
		return nil, err
	}
	if o.Local() {
		u, ok := a.user(c.Subject)
		if !ok || c.IssuedAt.Unix() < u.SignedOut {
			return nil, ErrSignInOver
		}
		return &Identity{User: u.Username, Groups: u.Groups}, nil
	}
	def, ok := config.Get(a.opts.Config.Snapshot(), config.AuthProviders, "", o.Provider)
	if !ok || def.Type != o.Type {
		return nil, ErrSignInOver
	}
	id, err := a.providers.renew(ctx, def, c.Subject, o)
	if err == nil && id.User != c.Subject {
		err = ErrSignInOver // renamed: the tokens, and what was granted, belong to the old name
	}
	a.providers.count(def.Type, err)
	if err != nil {
		return nil, err
	}
	return id, nil
}

func (p *providers) renew(ctx context.Context, def *resource.AuthProvider, user string, o Origin) (*Identity, error) {
	if def.OIDC != nil {
		return p.renewOIDC(ctx, def, user, o)
	}
	return p.renewDirectory(ctx, def, user, o)
}

// withPrefix is lapwing's name for a provider's user or group.
func withPrefix(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + ":" + name
}

// groups are lapwing's names for a provider's groups: only allowed ones, if any are configured.
func groups(names []string, prefix string, allowed []string) []string {
	var out []string
	for _, name := range names {
		full := withPrefix(prefix, name)
		if name == "" || strings.HasPrefix(full, systemPrefix) {
			continue
		}
		if len(allowed) > 0 && !slices.Contains(allowed, name) && !slices.Contains(allowed, full) {
			continue
		}
		out = append(out, full)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// aead returns the cipher for sealing, the same on all backends.
func (p *providers) aead(ctx context.Context) (cipher.AEAD, error) {
	if k := p.key.Load(); k != nil {
		return k, nil
	}
	secret, err := p.config.Secret(ctx, "signin", 32)
	if err != nil {
		return nil, fmt.Errorf("get key of sign-ins: %w", err)
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, fmt.Errorf("use key of sign-ins: %w", err)
	}
	gcm, err := cipher.NewGCMWithRandomNonce(block) // FIPS 140-3 approves of it; the nonce precedes the ciphertext
	if err != nil {
		return nil, fmt.Errorf("use key of sign-ins: %w", err)
	}
	p.key.Store(&cipherKey{gcm})
	return gcm, nil
}

// seal encrypts and authenticates v. Only open with the same purpose can read it.
func (p *providers) seal(ctx context.Context, purpose string, v any) (string, error) {
	gcm, err := p.aead(ctx)
	if err != nil {
		return "", err
	}
	plain, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("seal %s: %w", purpose, err)
	}
	return base64.RawURLEncoding.EncodeToString(gcm.Seal(nil, nil, plain, []byte(purpose))), nil
}

// open decrypts a sealed value; ErrToken if it is not valid.
func (p *providers) open(ctx context.Context, purpose, sealed string, v any) error {
	gcm, err := p.aead(ctx)
	if err != nil {
		return err
	}
	text, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return ErrToken
	}
	plain, err := gcm.Open(nil, nil, text, []byte(purpose))
	if err != nil || json.Unmarshal(plain, v) != nil {
		return ErrToken
	}
	return nil
}

const upstreamPurpose = "upstream"

// sealUpstream returns the part of an identity's origin for its refresh token; "" for local users.
func (a *Auth) sealUpstream(ctx context.Context, id *Identity) (string, error) {
	if id.Origin.Local() {
		return "", nil
	}
	up := id.Origin.upstream
	up.Groups = id.Groups
	return a.providers.seal(ctx, upstreamPurpose, up)
}

// origin is the Origin in a refresh token.
func (a *Auth) origin(ctx context.Context, c *claims) (Origin, error) {
	o := c.Provider.origin()
	if o.Local() {
		return o, nil
	}
	return o, a.providers.open(ctx, upstreamPurpose, c.Upstream, &o.upstream)
}

// localProvider is the provider in tokens of local users.
const localProvider = "basic"

func (p provider) origin() Origin {
	if p.ID == "" || p.ID == localProvider && p.Type == "" {
		return Origin{}
	}
	return Origin{Provider: p.ID, Type: p.Type, UserID: p.UserID}
}

func (o Origin) provider(user string) provider {
	if o.Local() {
		return provider{ID: localProvider, UserID: user}
	}
	return provider{ID: o.Provider, Type: o.Type, UserID: o.UserID}
}
