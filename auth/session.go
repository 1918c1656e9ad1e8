package auth

import (
	"sync"
	"time"
)

const sweepInterval = 10 * time.Minute

// sessions remembers what this backend has seen of sessions since it started: those with a traded refresh token, and those
// that have ended. A session that is not here is good if its tokens are.
type sessions struct {
	mu    sync.Mutex // guards the fields below
	byID  map[string]session
	sweep time.Time
}

type session struct {
	current string    // id of the refresh token that can be traded next; "" when the session has ended
	until   time.Time // when its last refresh token has expired for sure
}

// rotate replaces a session's refresh token. A token that is not the current one ends the session.
func (s *sessions) rotate(now time.Time, id, token, next string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.byID[id]
	switch {
	case ok && known.current == "":
		return ErrSession
	case ok && known.current != token:
		s.put(now, id, "")
		return ErrReused
	}
	s.put(now, id, next)
	return nil
}

func (s *sessions) end(now time.Time, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(now, id, "")
}

func (s *sessions) put(now time.Time, id, current string) {
	if s.byID == nil {
		s.byID = map[string]session{}
	}
	if now.After(s.sweep) {
		for id, old := range s.byID {
			if now.After(old.until) {
				delete(s.byID, id)
			}
		}
		s.sweep = now.Add(sweepInterval)
	}
	s.byID[id] = session{current: current, until: now.Add(refreshLife)}
}
