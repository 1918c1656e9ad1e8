package api

import "time"

// Limits are the options that may change while the API serves.
type Limits struct {
	Request                    int64         // like Options.RequestLimit
	DefaultSilence, MaxSilence time.Duration // like those of Options
}

// SetLimits replaces the limits for later requests. Zero means the default, as in Options.
func (a *API) SetLimits(l Limits) {
	if l.Request == 0 {
		l.Request = defaultRequestLimit
	}
	a.limits.Store(&l)
}
