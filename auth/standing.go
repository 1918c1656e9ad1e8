package auth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	// relearnings divides GroupsAge: unchanged groups are written once in such a part.
	relearnings = 30
	// learnPause is how long no groups are written after a failed write.
	learnPause = time.Minute
)

// standings notes when the groups of providers' users can be written again.
type standings struct {
	mu   sync.Mutex // guards next
	next time.Time
}

// Author is the form in which definitions store the user of an identity.
func (id *Identity) Author() *resource.Author {
	return &resource.Author{User: id.User, Provider: id.Origin.Provider, ProviderType: id.Origin.Type}
}

func originOf(by *resource.Author) Origin {
	return Origin{Provider: by.Provider, Type: by.ProviderType}
}

// Standing returns the identity that the author of a definition has now without being signed in; false if the user is
// gone. A provider's user has the groups from the last sign-in, for Options.GroupsAge.
func (a *Auth) Standing(by *resource.Author) (*Identity, bool) {
	o := originOf(by)
	if o.Local() {
		return a.Login(by.User)
	}
	if !a.known(by.User, o) {
		return nil, false
	}
	known, _ := a.learned(by.User, o)
	return &Identity{User: by.User, Groups: withGroup(known, usersGroup), Origin: o}, true
}

// GroupsKnown reports whether the groups of an author are known: those of a local user always, those of a provider's
// user for Options.GroupsAge after a sign-in.
func (a *Auth) GroupsKnown(by *resource.Author) bool {
	o := originOf(by)
	if o.Local() {
		return true
	}
	_, ok := a.learned(by.User, o)
	return ok
}

// GroupsAge is Options.GroupsAge or its default.
func (a *Auth) GroupsAge() time.Duration { return a.opts.GroupsAge }

// learned returns a provider's groups of a user if they are not too old.
func (a *Auth) learned(user string, o Origin) (groups []string, ok bool) {
	s, ok := config.Get(a.opts.Config.Snapshot(), config.Standings, "", standingID(user, o))
	if !ok || a.stale(s) {
		return nil, false
	}
	return s.Groups, true
}

func (a *Auth) stale(s *resource.Standing) bool {
	return a.opts.Now().Sub(time.Unix(s.Seen, 0)) >= a.opts.GroupsAge
}

func standingID(user string, o Origin) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{o.Provider, o.Type, user}, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// learn keeps a provider's groups of a user who signs in or refreshes. It writes when they have changed, and otherwise
// about once a day. Users can sign in even if the store takes no writes.
func (a *Auth) learn(ctx context.Context, id *Identity) {
	now := a.opts.Now()
	fresh := &resource.Standing{
		ID: standingID(id.User, id.Origin), User: id.User, Provider: id.Origin.Provider, ProviderType: id.Origin.Type,
		Groups: id.Groups, Seen: now.Unix(),
	}
	old, ok := config.Get(a.opts.Config.Snapshot(), config.Standings, "", fresh.ID)
	if ok && slices.Equal(old.Groups, fresh.Groups) && now.Sub(time.Unix(old.Seen, 0)) < a.opts.GroupsAge/relearnings {
		return
	}
	if !a.standings.due(now) {
		return
	}
	// A client that disconnects during the write must not look like a store that fails.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if err := config.Put(ctx, a.opts.Config, config.Standings, fresh); err != nil {
		a.standings.pause(now)
		a.rare.Warn("groups of a provider's user were not stored: definitions of the user keep the earlier groups", id.Origin.Provider,
			"provider", id.Origin.Provider, "user", id.User, "err", err)
		return
	}
	a.forgetStale(ctx)
}

func (s *standings) due(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !now.Before(s.next)
}

func (s *standings) pause(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = now.Add(learnPause)
}

// forgetStale deletes groups that are too old, some at a time.
func (a *Auth) forgetStale(ctx context.Context) {
	var old []string
	for s := range config.List(a.opts.Config.Snapshot(), config.Standings, "") {
		if a.stale(s) && len(old) < sweepMost {
			old = append(old, s.ID)
		}
	}
	for _, id := range old {
		_ = config.DeleteIf(ctx, a.opts.Config, config.Standings, "", id, a.stale) // the next sign-in tries again
	}
}
