// Package auth knows users: it checks their passwords, issues and reads their tokens, and decides what they may do. The
// API calls it for people, the agents' listener for agents, and both call Authorize or Permit.
//
// Users, roles and bindings are read from config's snapshot for every decision, so changes apply at once. HTTP, cookies
// and redirects are up to package api.
//
// # Passwords
//
// Stored hashes are slow on purpose, about 50 ms of CPU. Each (user, stored hash, password) is therefore compared once
// in the life of the process. The verdict is kept under a digest with a random key, so 40,000 agents that reconnect
// with one password cost one comparison. A changed hash has another digest, so its old verdicts are never used again.
// At most half of the CPUs compare at a time, and only a short queue waits for them; beyond it callers get ErrBusy.
// Users at addresses where they were right before go first, the others take turns by address (see turns). These
// addresses and the right passwords of agents survive a restart (see remembered).
//
// # Tokens
//
// Access and refresh tokens are JWTs, signed with keys derived from a secret of the whole cluster. Any backend accepts
// any backend's tokens, also after a restart, and signing in writes nothing. Config stores of a sign-in only its last
// traded refresh token, or that it has ended. A traded token that comes again ends the sign-in. Access tokens are valid
// until they expire, but a disabled user is locked out everywhere at once.
//
// # API keys
//
// A key is a random UUID, of which only the hash is stored. It acts for its user with the user's present groups.
//
// # Guessing
//
// Each wrong password that had to be compared counts: for the user at an address, for the address, and for the user at
// all addresses. After some of them the client must wait, longer each time: see guesses. Wrong passwords of a
// directory's users are counted for the entry before the directory is asked, and stay below the number that locks the
// account: see bindGuesses.
package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/crypto/bcrypt"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Errors of this package. None reveals whether a user exists.
var (
	// ErrCredentials says that no enabled user has that name and password.
	ErrCredentials = errors.New("wrong user name or password")
	// ErrDenied says that the user is authenticated but not allowed to do this.
	ErrDenied = errors.New("permission denied")
	// ErrBusy says that too many passwords are being checked; the client may try again later.
	ErrBusy = errors.New("too many sign-ins at once")
	// ErrToken says that a token is not one of ours, is of the wrong kind, has expired, or belongs to a user that is
	// gone.
	ErrToken = errors.New("invalid token")
	// ErrSignInOver says that the sign-in of a genuine refresh token is over.
	ErrSignInOver = errors.New("sign-in is over")
	// ErrReused says that a refresh token had been traded before. The sign-in is ended: one of the token's two users
	// stole it.
	ErrReused = errors.New("refresh token was used before")
)

// Groups that depend on how a user signs in.
const (
	// usersGroup is in the tokens of every sign-in.
	usersGroup = "system:users"
	// agentsGroup is the group that Sensu's agent listener adds. It differs from usersGroup on purpose.
	agentsGroup = "system:user"
)

// Options configures an Auth. If the comment of a field does not say what 0 means, 0 is replaced by the value of
// DefaultOptions.
type Options struct {
	// Config holds the users, roles and bindings. It must be running when the first token is needed. Required.
	Config     *config.Store
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Now is the clock for tokens. Default time.Now.
	Now func() time.Time
	// Hash is the algorithm for new passwords: Bcrypt or Argon2id.
	Hash string
	// HashCost is the cost of bcrypt.
	HashCost int
	// Signer signs access tokens. Default: keys from the cluster's secret.
	Signer *Signer
	// AccessLifetime is how long an access token is valid.
	AccessLifetime time.Duration
	// RefreshLifetime is how long an unused sign-in lasts.
	RefreshLifetime time.Duration
	// HTTPClient is for OpenID Connect providers. The default gives up after 5 s.
	HTTPClient *http.Client
	// GroupsAge is how long the groups from a directory or OpenID Connect provider count for the definitions of a user
	// who no longer signs in.
	GroupsAge time.Duration
	// Remember is a file for what must survive a restart: see remembered. Default: no file.
	Remember string
	// DirectoryGuesses is how many wrong passwords for one entry a directory may get in half an hour. It should be
	// below the number at which the directory locks the account.
	DirectoryGuesses int
}

// Auth authenticates and authorizes users. It has no goroutines of its own and is safe for concurrent use.
type Auth struct {
	opts      Options
	log       *slog.Logger
	rare      *rarelog.Log // for messages that depend on clients' input
	metrics   metrics
	passwords *verifier
	providers *providers
	guesses   guesses
	binds     bindGuesses
	signIns   signIns
	standings standings
	limits    limits
	keys      atomic.Pointer[keys]

	defaultAgent defaultAgent
	remembered   atomic.Pointer[remembered]
	remembering  sync.Mutex // guards rememberNext, and is held while the file is read
	rememberNext time.Time  // the next attempt is not before this time
}

type metrics struct {
	checks   *prometheus.CounterVec
	compares prometheus.Counter
	issued   prometheus.Counter
	reused   prometheus.Counter
}

func newMetrics(r prometheus.Registerer) metrics {
	m := metrics{
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_auth_passwords_total", Help: "Passwords that were checked, by result.",
		}, []string{"result"}),
		compares: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_auth_password_hashes_total",
			Help: "Slow hashes computed to check passwords; all other checks were answered from memory.",
		}),
		issued: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_auth_tokens_issued_total", Help: "Pairs of tokens handed out."}),
		reused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapwing_auth_refresh_reused_total", Help: "Sessions ended because a refresh token came a second time.",
		}),
	}
	for _, result := range []string{"right", "wrong", "busy", "guessing"} {
		m.checks.WithLabelValues(result)
	}
	if r != nil {
		r.MustRegister(m.checks, m.compares, m.issued, m.reused)
	}
	return m
}

// DefaultOptions returns the default settings. Sensu's clients use the same cost of hashes.
func DefaultOptions() Options {
	return Options{
		Hash: Bcrypt, HashCost: bcrypt.DefaultCost, AccessLifetime: 5 * time.Minute, RefreshLifetime: 12 * time.Hour,
		GroupsAge: 30 * 24 * time.Hour, DirectoryGuesses: 8,
	}
}

// New checks the options.
func New(opts Options) (*Auth, error) {
	if opts.Config == nil {
		return nil, errors.New("auth: no config")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	defaults := DefaultOptions()
	switch opts.Hash = cmp.Or(opts.Hash, defaults.Hash); opts.Hash {
	case Bcrypt, Argon2id:
	default:
		return nil, fmt.Errorf("auth: password hash %q is not known: want %s or %s", opts.Hash, Bcrypt, Argon2id)
	}
	opts.HashCost = cmp.Or(opts.HashCost, defaults.HashCost)
	opts.AccessLifetime = cmp.Or(opts.AccessLifetime, defaults.AccessLifetime)
	opts.RefreshLifetime = cmp.Or(opts.RefreshLifetime, defaults.RefreshLifetime)
	opts.GroupsAge = cmp.Or(opts.GroupsAge, defaults.GroupsAge)
	opts.DirectoryGuesses = cmp.Or(opts.DirectoryGuesses, defaults.DirectoryGuesses)
	if opts.AccessLifetime < time.Second || opts.RefreshLifetime < opts.AccessLifetime {
		return nil, fmt.Errorf(
			"auth: access tokens of %v and refresh tokens of %v: the former must last a second and the latter no less",
			opts.AccessLifetime, opts.RefreshLifetime)
	}
	if opts.GroupsAge < time.Hour {
		return nil, fmt.Errorf("auth: groups of users of a provider count for %v: must be 1h or longer", opts.GroupsAge)
	}
	if opts.DirectoryGuesses < 1 || opts.DirectoryGuesses > maxBindGuesses {
		return nil, fmt.Errorf("auth: %d wrong passwords of a directory's user: must be 1 to %d", opts.DirectoryGuesses, maxBindGuesses)
	}
	a := &Auth{opts: opts, log: opts.Logger.With("component", "auth"), metrics: newMetrics(opts.Registerer)}
	a.rare = rarelog.New(a.log)
	a.guesses.key = randomKey()
	a.binds = bindGuesses{key: randomKey(), limit: opts.DirectoryGuesses}
	a.limits.log = a.log
	a.signIns.store = opts.Config
	a.passwords = newVerifier(a.metrics.compares.Inc)
	a.providers = newProviders(opts)
	if opts.Registerer != nil {
		opts.Registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "lapwing_auth_default_agent_password", Help: "1 while agents can sign in with the password that Sensu documents.",
		}, func() float64 {
			if a.DefaultAgentPassword() {
				return 1
			}
			return 0
		}))
	}
	return a, nil
}

// Identity is a user and the groups that count for this request.
type Identity struct {
	User   string
	Groups []string
	Origin Origin
	// APIKey is the public name of the key that was used; "" if none was.
	APIKey string
	// session is the sign-in of an access token, and expires when that token does; "" without one.
	session string
	expires time.Time
}

// user returns the user with that name if it may sign in.
func (a *Auth) user(name string) (*resource.User, bool) {
	u, ok := config.Get(a.opts.Config.Snapshot(), config.Users, "", name)
	return u, ok && !u.Disabled
}

// Active reports whether a user may still sign in, with the key if one was used. It is for callers that keep an
// identity for long.
func (a *Auth) Active(id *Identity) bool {
	if id.APIKey != "" {
		if _, ok := config.Get(a.opts.Config.Snapshot(), config.APIKeys, "", id.APIKey); !ok {
			return false
		}
	}
	return a.known(id.User, id.Origin)
}

// SignedOut reports whether the sign-in of an identity's access token has ended.
func (a *Auth) SignedOut(id *Identity) bool { return id.session != "" && a.signIns.over(id.session) }

// Lapsed reports whether the access token of an identity expired so long ago that its client has another one by now, with the
// present groups of the user.
func (a *Auth) Lapsed(id *Identity) bool {
	return id.session != "" && a.opts.Now().After(id.expires.Add(lapse))
}

// lapse is how long a client has to use a new access token in place of an old one.
const lapse = time.Minute

// Password returns the user with that password and its groups. It fails with ErrCredentials, ErrBusy, a GuessingError or
// ctx's error.
func (a *Auth) Password(ctx context.Context, user, password string) (*Identity, error) {
	return a.PasswordFrom(ctx, "", user, password)
}

// PasswordFrom is Password for a client at an address, for example a host's. Clients that guess there are slowed down.
func (a *Auth) PasswordFrom(ctx context.Context, address, user, password string) (*Identity, error) {
	id, _, err := a.password(ctx, address, user, password, false)
	return id, err
}

// password is PasswordFrom. It remembers an agent's right password for the next start of the process. counted says that
// this call counted a wrong guess.
func (a *Auth) password(ctx context.Context, address, user, password string, agent bool) (id *Identity, counted bool, err error) {
	if user == "" || password == "" {
		return nil, false, ErrCredentials
	}
	if len(user) > maxUserName {
		a.metrics.checks.WithLabelValues("wrong").Inc()
		return nil, false, ErrCredentials
	}
	u, ok := a.user(user)
	hash := resource.NobodysHash
	if ok {
		hash = u.PasswordHash
	}
	ok = ok && hash != resource.NobodysHash
	address = network(address)
	memory := a.memory(ctx)
	q := question{user: user, hash: hash, password: password, address: address}
	q.trusted = memory.has(rememberedPlace, user, address)
	q.remembered = func() bool { return agent && ok && memory.has(rememberedPassword, user, hash, password) }
	q.admit = func() error { return a.guesses.admit(a.opts.Now(), user, address, q.trusted) }
	q.judged = func(right *bool) { counted = a.guesses.judged(a.opts.Now(), user, address, right) }
	right, err := a.passwords.verify(ctx, q)
	var guessing *GuessingError
	switch {
	case errors.Is(err, ErrBusy):
		a.metrics.checks.WithLabelValues("busy").Inc()
		return nil, counted, err
	case errors.As(err, &guessing):
		a.metrics.checks.WithLabelValues("guessing").Inc()
		return nil, counted, err
	case err != nil:
		return nil, counted, fmt.Errorf("check password of %q: %w", user, err)
	case !ok || !right:
		a.metrics.checks.WithLabelValues("wrong").Inc()
		return nil, counted, ErrCredentials
	}
	a.metrics.checks.WithLabelValues("right").Inc()
	if !q.trusted {
		a.rememberSignIn(memory, rememberedPlace, user, address)
	}
	if agent {
		a.rememberSignIn(memory, rememberedPassword, user, hash, password)
	}
	return &Identity{User: u.Username, Groups: u.Groups}, counted, nil
}

// Agent signs in an agent at an address: its user's password must be right, and the user must be allowed to create the
// agent's events in the namespace. It fails as Password does, or with ErrDenied.
func (a *Auth) Agent(ctx context.Context, address, user, password, namespace, agent string) (*Identity, error) {
	id, _, err := a.password(ctx, address, user, password, true)
	if err != nil {
		return nil, err
	}
	id.Groups = withGroup(id.Groups, agentsGroup)
	if !a.Authorize(id, Attributes{Verb: "create", Resource: "events", Name: agent, Namespace: namespace}) {
		return nil, ErrDenied
	}
	return id, nil
}

// withGroup does not change the given slice, which may be the snapshot's.
func withGroup(groups []string, group string) []string {
	if slices.Contains(groups, group) {
		return groups
	}
	return append(slices.Clip(groups), group)
}
