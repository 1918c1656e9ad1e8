package api

import "time"

// Limits are the options that may change while the API is served.
type Limits struct {
	Request                    int64         // as Options.RequestLimit
	DefaultSilence, MaxSilence time.Duration // as in Options
}

// SetLimits replaces the limits for requests from now on. Zero is the default, as in Options.
func (a *API) SetLimits(l Limits) {
	if l.Request == 0 {
		l.Request = defaultRequestLimit
	}
	a.limits.Store(&l)
}
