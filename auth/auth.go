// Package auth knows users: it checks their passwords, hands out and reads their tokens, and decides what they may do.
//
// Users, roles and bindings are read from config's snapshot at every question, so a change of them counts at once. The
// API asks for people, sessions ask for agents, and both ask Authorize.
//
// # Passwords
//
// Stored hashes are slow on purpose, about 50 ms of CPU. Each (user, stored hash, password) is therefore compared once in
// the life of the process: its verdict is kept under a digest with a random key, so 40,000 agents that reconnect with
// one password cost one comparison. A changed hash is another digest, and its old verdicts are never asked for again. At
// most half of the CPUs compare at a time, and only a short queue waits for them; beyond it callers get ErrBusy.
//
// # Tokens
//
// Access and refresh tokens are JWTs, signed with keys that are derived from a secret of the whole cluster. Nothing is
// stored for a session: any backend takes any backend's tokens, also after a restart, and a login writes nothing. What has
// to be remembered is which refresh token of a session was traded last and which sessions have ended; that is kept in
// memory by the backend that saw it. The price: a logout, or a session that was ended because a traded token came again,
// is forgotten by a restart, and other backends do not know of it. Then that session's refresh tokens are good again
// until they expire, at most twelve hours after they were made. A disabled user is out everywhere and at once.
package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/crypto/bcrypt"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Errors of this package. None says whether a user exists.
var (
	// ErrCredentials says that there is no enabled user of that name with that password.
	ErrCredentials = errors.New("wrong user name or password")
	// ErrDenied says that the user is who it claims to be and may not do this.
	ErrDenied = errors.New("permission denied")
	// ErrBusy says that too many passwords are being checked; later it may work.
	ErrBusy = errors.New("too many sign-ins at once")
	// ErrToken says that a token is not one of ours, is of the wrong kind, has expired or belongs to nobody any more.
	ErrToken = errors.New("invalid token")
	// ErrSession says that the session of a genuine refresh token is over.
	ErrSession = errors.New("session is over")
	// ErrReused says that a refresh token had been traded before. The session is ended: one of its two users stole it.
	ErrReused = errors.New("refresh token was used before")
)

// Groups that users get from the way they come in.
const (
	// usersGroup is in every login's tokens.
	usersGroup = "system:users"
	// agentsGroup is what Sensu's agent listener adds; that it is not usersGroup is no mistake of ours.
	agentsGroup = "system:user"
)

// Options wires an Auth.
type Options struct {
	// Config has the users, roles and bindings. It must be running when the first token is asked for. Required.
	Config     *config.Store
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Now is the clock of the tokens. Default time.Now.
	Now func() time.Time
	// HashCost is bcrypt's, for passwords that are stored from now on. Default 10, as Sensu's clients use.
	HashCost int
}

// Auth answers who somebody is and what they may do. It has no goroutines of its own and is safe for concurrent use.
type Auth struct {
	opts      Options
	log       *slog.Logger
	metrics   metrics
	passwords *verifier
	sessions  sessions
	keys      atomic.Pointer[keys]
}

type metrics struct {
	checks   *prometheus.CounterVec
	compares prometheus.Counter
	issued   prometheus.Counter
	reused   prometheus.Counter
}

func newMetrics(r prometheus.Registerer) metrics {
	m := metrics{
		checks:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_auth_passwords_total", Help: "Passwords that were checked, by result."}, []string{"result"}),
		compares: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_auth_password_hashes_total", Help: "Slow hashes computed to check passwords; all other checks were answered from memory."}),
		issued:   prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_auth_tokens_issued_total", Help: "Pairs of tokens handed out."}),
		reused:   prometheus.NewCounter(prometheus.CounterOpts{Name: "lapwing_auth_refresh_reused_total", Help: "Sessions ended because a refresh token came a second time."}),
	}
	for _, result := range []string{"right", "wrong", "busy"} {
		m.checks.WithLabelValues(result)
	}
	if r != nil {
		r.MustRegister(m.checks, m.compares, m.issued, m.reused)
	}
	return m
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
	if opts.HashCost == 0 {
		opts.HashCost = bcrypt.DefaultCost
	}
	a := &Auth{opts: opts, log: opts.Logger.With("component", "auth"), metrics: newMetrics(opts.Registerer)}
	a.passwords = newVerifier(a.metrics.compares.Inc)
	return a, nil
}

// Identity is who asks: a user and the groups that count for this request.
type Identity struct {
	User   string
	Groups []string
}

// user is the user of that name, if it may sign in.
func (a *Auth) user(name string) (*resource.User, bool) {
	u, ok := config.Get(a.opts.Config.Snapshot(), config.Users, "", name)
	return u, ok && !u.Disabled
}

// Active says whether a user may still sign in. It is for those who keep an identity for long.
func (a *Auth) Active(id *Identity) bool {
	_, ok := a.user(id.User)
	return ok
}

// Password returns the user with that password and its groups. It fails with ErrCredentials, ErrBusy or ctx's error.
func (a *Auth) Password(ctx context.Context, user, password string) (*Identity, error) {
	if user == "" || password == "" {
		return nil, ErrCredentials
	}
	u, ok := a.user(user)
	hash := nobodysHash
	if ok {
		hash = u.PasswordHash
	}
	right, err := a.passwords.verify(ctx, user, hash, password)
	switch {
	case errors.Is(err, ErrBusy):
		a.metrics.checks.WithLabelValues("busy").Inc()
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("check password of %q: %w", user, err)
	case !ok || !right:
		a.metrics.checks.WithLabelValues("wrong").Inc()
		return nil, ErrCredentials
	}
	a.metrics.checks.WithLabelValues("right").Inc()
	return &Identity{User: u.Username, Groups: u.Groups}, nil
}

// Agent signs an agent in: its user's password must be right, and the user must be allowed to create the agent's events in
// the namespace. It fails as Password does, or with ErrDenied.
func (a *Auth) Agent(ctx context.Context, user, password, namespace, agent string) (*Identity, error) {
	id, err := a.Password(ctx, user, password)
	if err != nil {
		return nil, err
	}
	id.Groups = withGroup(id.Groups, agentsGroup)
	if !a.Authorize(id, Attributes{Verb: "create", Resource: "events", Name: agent, Namespace: namespace}) {
		return nil, ErrDenied
	}
	return id, nil
}

// withGroup never changes the given slice, which may be the snapshot's.
func withGroup(groups []string, group string) []string {
	if slices.Contains(groups, group) {
		return groups
	}
	return append(slices.Clip(groups), group)
}
