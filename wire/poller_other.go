//go:build !linux

package wire

import (
	"errors"
	"net"
	"time"
)

// Poller is for Linux alone.
type Poller struct{}

// NewPoller fails with errors.ErrUnsupported.
func NewPoller(time.Duration, Lanes) (*Poller, error) { return nil, errors.ErrUnsupported }

// Adopt returns c.
func (p *Poller) Adopt(c net.Conn) (net.Conn, error) { return c, nil }

// Behind is 0.
func (p *Poller) Behind(time.Time) time.Duration { return 0 }

// Holding is 0.
func (p *Poller) Holding() int { return 0 }

// Close does nothing.
func (p *Poller) Close() {}
