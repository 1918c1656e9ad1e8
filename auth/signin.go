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
	// sweepMost bounds the sign-ins that one request deletes.
	sweepMost = 200
	// storeTimeout bounds the wait for the store before a sign-in is kept in memory only.
	storeTimeout = 3 * time.Second
)

// signIns remembers the sign-ins with a traded refresh token, and those that have ended. They are in config, so all
// backends see them and they survive a restart. A sign-in without an entry is valid if its tokens are. While the store
// takes no writes, entries are kept in memory, so that people stay signed in while they look for the fault.
type signIns struct {
	store *config.Store

	mu    sync.Mutex // guards the fields below
	local map[string]*resource.Session
	sweep time.Time
}

// trade returns a sign-in after its refresh token was traded.
func trade(old *resource.Session, token, next string, until time.Time) (*resource.Session, error) {
	now := *old
	now.Until = until.Unix()
	switch old.Current {
	case "":
		return old, ErrSignInOver
	case token:
		now.Current = next
		return &now, nil
	}
	now.Current = ""
	return &now, ErrReused
}

// spent reports whether a refresh token was traded before, or its sign-in has ended.
func (s *signIns) spent(c *claims) bool {
	s.mu.Lock()
	one, known := s.local[c.SessionID]
	s.mu.Unlock()
	if !known {
		one, known = config.Get(s.store.Snapshot(), config.Sessions, "", c.SessionID)
	}
	return known && one.Current != c.ID
}

// over reports whether a sign-in has ended.
func (s *signIns) over(id string) bool {
	s.mu.Lock()
	one, known := s.local[id]
	s.mu.Unlock()
	if !known {
		one, known = config.Get(s.store.Snapshot(), config.Sessions, "", id)
	}
	return known && one.Current == ""
}

// rotate replaces a sign-in's refresh token. A token that is not the current one ends the sign-in.
func (s *signIns) rotate(ctx context.Context, now, until time.Time, c *claims, next string) error {
	s.clean(ctx, now)
	fresh := &resource.Session{ID: c.SessionID, User: c.Subject, Current: next, Until: until.Unix()}
	s.mu.Lock()
	old, known := s.local[c.SessionID]
	s.mu.Unlock()
	if known { // remembered while the store took no writes: that entry counts
		traded, verdict := trade(old, c.ID, next, until)
		return cmp.Or(verdict, s.put(ctx, traded))
	}
	storeCtx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for {
		var verdict error
		change := func(old *resource.Session) (traded *resource.Session, err error) {
			traded, verdict = trade(old, c.ID, next, until)
			if errors.Is(verdict, ErrSignInOver) {
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
			return fmt.Errorf("store sign-in: %w", err)
		}
		s.remember(fresh)
		return nil
	}
}

// end invalidates a sign-in's refresh tokens.
func (s *signIns) end(ctx context.Context, now, until time.Time, c *claims) error {
	s.clean(ctx, now)
	return s.put(ctx, &resource.Session{ID: c.SessionID, User: c.Subject, Until: until.Unix()})
}

// put writes a sign-in, to memory if the store does not take it.
func (s *signIns) put(ctx context.Context, one *resource.Session) error {
	storeCtx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err := config.Put(storeCtx, s.store, config.Sessions, one)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		delete(s.local, one.ID)
	case ctx.Err() != nil:
		return fmt.Errorf("store sign-in: %w", err)
	default:
		s.keep(one)
	}
	return nil
}

func (s *signIns) remember(one *resource.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep(one)
}

// keep is remember for a caller that holds mu.
func (s *signIns) keep(one *resource.Session) {
	if s.local == nil {
		s.local = map[string]*resource.Session{}
	}
	s.local[one.ID] = one
}

// clean deletes some sign-ins whose last token has expired.
func (s *signIns) clean(ctx context.Context, now time.Time) {
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
		// Another backend may have deleted it. A failure is tried again the next time.
		_ = config.DeleteIf(ctx, s.store, config.Sessions, "", one.ID, func(s *resource.Session) bool { return s.Until < now.Unix() })
		if left--; left == 0 || ctx.Err() != nil {
			return
		}
	}
}
