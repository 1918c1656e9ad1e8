package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	sweepInterval = 10 * time.Minute
	// sweepMost bounds the sessions that one request deletes.
	sweepMost = 200
	// storeTimeout is how long a session waits for the store before it is kept in memory only.
	storeTimeout = 3 * time.Second
)

// sessions remembers those with a traded refresh token, and those that have ended, in the configuration: there all backends
// see them, and they survive a restart. A session that is not there is good if its tokens are. While the store takes nothing
// they are kept in memory, so that people who are signed in stay so when they have to find out what is wrong.
type sessions struct {
	store *config.Store

	mu    sync.Mutex // guards the fields below
	local map[string]*resource.Session
	sweep time.Time
}

// trade is what a traded refresh token makes of a session.
func trade(old *resource.Session, token, next string, until time.Time) (*resource.Session, error) {
	now := *old
	now.Until = until.Unix()
	switch old.Current {
	case "":
		return old, ErrSession
	case token:
		now.Current = next
		return &now, nil
	}
	now.Current = ""
	return &now, ErrReused
}

// spent says that a refresh token is known to be traded, or its session to have ended.
func (s *sessions) spent(c *claims) bool {
	s.mu.Lock()
	one, known := s.local[c.SessionID]
	s.mu.Unlock()
	if !known {
		one, known = config.Get(s.store.Snapshot(), config.Sessions, "", c.SessionID)
	}
	return known && one.Current != c.ID
}

// rotate replaces a session's refresh token. A token that is not the current one ends the session.
func (s *sessions) rotate(ctx context.Context, now, until time.Time, c *claims, next string) error {
	s.clean(ctx, now)
	fresh := &resource.Session{ID: c.SessionID, User: c.Subject, Current: next, Until: until.Unix()}
	s.mu.Lock()
	old, known := s.local[c.SessionID]
	s.mu.Unlock()
	if known { // from a time without a store; what was remembered then counts
		traded, verdict := trade(old, c.ID, next, until)
		return cmp.Or(verdict, s.put(ctx, traded))
	}
	storeCtx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for {
		var verdict error
		change := func(old *resource.Session) (traded *resource.Session, err error) {
			traded, verdict = trade(old, c.ID, next, until)
			if errors.Is(verdict, ErrSession) {
				return nil, verdict
			}
			return traded, nil
		}
		_, err := config.Update(storeCtx, s.store, config.Sessions, "", c.SessionID, change)
		if errors.Is(err, config.ErrNotFound) {
			err = config.Create(storeCtx, s.store, config.Sessions, fresh)
			if errors.Is(err, config.ErrExists) {
				continue
			}
		}
		switch {
		case verdict != nil:
			return verdict
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("store session: %w", err)
		}
		s.remember(fresh)
		return nil
	}
}

// end makes a session's refresh tokens worthless.
func (s *sessions) end(ctx context.Context, now, until time.Time, c *claims) error {
	s.clean(ctx, now)
	return s.put(ctx, &resource.Session{ID: c.SessionID, User: c.Subject, Until: until.Unix()})
}

// put writes a session, to memory if the store does not take it.
func (s *sessions) put(ctx context.Context, one *resource.Session) error {
	storeCtx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err := config.Put(storeCtx, s.store, config.Sessions, one)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		delete(s.local, one.ID)
	case ctx.Err() != nil:
		return fmt.Errorf("store session: %w", err)
	default:
		s.keep(one)
	}
	return nil
}

func (s *sessions) remember(one *resource.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep(one)
}

// keep is remember for who holds mu.
func (s *sessions) keep(one *resource.Session) {
	if s.local == nil {
		s.local = map[string]*resource.Session{}
	}
	s.local[one.ID] = one
}

// clean deletes sessions whose last token has expired, some now and then.
func (s *sessions) clean(ctx context.Context, now time.Time) {
	s.mu.Lock()
	due := now.After(s.sweep)
	if due {
		s.sweep = now.Add(sweepInterval)
		for id, one := range s.local {
			if one.Until < now.Unix() {
				delete(s.local, id)
			}
		}
	}
	s.mu.Unlock()
	if !due {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	left := sweepMost
	for one := range config.List(s.store.Snapshot(), config.Sessions, "") {
		if one.Until >= now.Unix() {
			continue
		}
		// Another backend may have deleted it; and what fails is tried again at the next time.
		_ = config.DeleteIf(ctx, s.store, config.Sessions, "", one.ID, func(s *resource.Session) bool { return s.Until < now.Unix() })
		if left--; left == 0 || ctx.Err() != nil {
			return
		}
	}
}
