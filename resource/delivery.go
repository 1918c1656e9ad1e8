package resource

import (
	"errors"
	"fmt"
	"math"
)

const (
	// maxDelay bounds, in seconds, every wait in a handler's definition.
	maxDelay       = 30 * 24 * 3600
	maxConcurrency = 1024
	maxGroupFields = 16
)

// WantsFilter reports whether the handler lacks filters, so that it notifies of each result of a check, also of OK ones. A set
// leaves that to its handlers, an escalation takes incidents alone, and a handler that stores points needs every result.
func (h *Handler) WantsFilter() bool {
	return len(h.Filters) == 0 && h.Type != "set" && h.Type != EscalationType && !h.StoresPoints()
}

// StoresPoints reports whether the handler writes metric points to a store. Such a handler notifies no one.
func (h *Handler) StoresPoints() bool { return h.Type == "graphite" || h.Type == "influx" }

// validateDelivery checks when and how often the handler is tried, and what goes out together.
func (h *Handler) validateDelivery() error {
	if h.Concurrency > maxConcurrency {
		return InField("concurrency", fmt.Errorf("concurrency must be at most %d", maxConcurrency))
	}
	if r := h.RateLimit; r != nil && (!(r.PerSecond > 0) || math.IsInf(r.PerSecond, 0)) {
		return InField("rate_limit", errors.New("rate_limit needs a positive per_second"))
	}
	for _, d := range h.delays() {
		if d.seconds > maxDelay {
			return fmt.Errorf("%s must be at most %d seconds", d.name, maxDelay)
		}
	}
	if h.Group != nil {
		if len(h.Group.By) > maxGroupFields {
			return InField("group.by", fmt.Errorf("group can be by at most %d fields", maxGroupFields))
		}
		for _, field := range h.Group.By {
			if field == "" {
				return InField("group.by", errors.New("group has an empty field"))
			}
		}
	}
	return nil
}

type delay struct {
	name    string
	seconds uint32
}

func (h *Handler) delays() (list []delay) {
	if r := h.Retry; r != nil {
		list = append(list, delay{"backoff", r.Backoff}, delay{"max_backoff", r.MaxBackoff}, delay{"max_age", r.MaxAge})
	}
	if g := h.Group; g != nil {
		list = append(list, delay{"wait of group", g.Wait}, delay{"interval of group", g.Interval})
	}
	if r := h.Resolve; r != nil {
		list = append(list, delay{"delay of resolve", r.Delay})
	}
	return list
}
