package api

import (
	"cmp"
	"time"
)

// Limits are the options that may change while the API serves.
type Limits struct {
	Request                    int64         // like Options.RequestLimit
	DefaultSilence, MaxSilence time.Duration // like those of Options
}

// SetLimits replaces the limits for requests from now on. 0 means what it means in Options.
func (a *API) SetLimits(l Limits) {
	l.Request = cmp.Or(l.Request, DefaultOptions().RequestLimit)
	a.limits.Store(&l)
}
