//go:build !linux

package wire

import (
	"errors"
	"net"
	"time"
)

// Poller is for Linux alone.
type Poller[Owner any] struct{}

// NewPoller fails with errors.ErrUnsupported.
func NewPoller[Owner any](time.Duration, Lanes) (*Poller[Owner], error) {
	return nil, errors.ErrUnsupported
}

// Adopt returns c.
func (p *Poller[Owner]) Adopt(c net.Conn, _ Owner) (net.Conn, error) { return c, nil }

// Next has no connections.
func (p *Poller[Owner]) Next() (owner Owner, turn Turn) { return owner, TurnEnd }

// Return is false.
func (p *Poller[Owner]) Return(Then, int) bool { return false }

// Behind is 0.
func (p *Poller[Owner]) Behind(time.Time) time.Duration { return 0 }

// Holding is 0.
func (p *Poller[Owner]) Holding() int { return 0 }

// Close does nothing.
func (p *Poller[Owner]) Close() {}

// polled is a socket that a Poller watches. There are none.
type polled struct{}

func polledOf(net.Conn) *polled { return nil }

func (s *polled) park() bool                        { return false }
func (s *polled) beginRead() (uintptr, bool, error) { return 0, false, net.ErrClosed }
func (s *polled) endRead(bool)                      {}
func (s *polled) more()                             {}
func (s *polled) unread() bool                      { return false }
func (s *polled) silent() time.Duration             { return 0 }
func (s *polled) peer() Peer                        { return PeerThere }
func (s *polled) peek([]byte) []byte                { return nil }
