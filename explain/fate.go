package explain

import "github.com/lapwing-monitoring/lapwing/trace"

// fate is what became of an incident by one route.
type fate struct {
	// alert tells it best: the delivery that waits, or failed, or else why nothing was sent.
	alert trace.Delivery
	// newest is of the newest event if that ended in another way; nil otherwise. For example, fatigue_check denies the
	// repeats of an incident whose alert failed.
	newest *trace.Delivery
}

// weight orders deliveries by what they tell of the fate of an alert.
func weight(d *trace.Delivery) int {
	switch d.Verdict {
	case trace.Waiting, trace.Grouped, trace.Held:
		return weightOpen
	case trace.Merged:
		return weightFolded
	case trace.Dead:
		return weightDead
	case trace.Silenced, trace.Inhibited:
		return weightQuiet
	case trace.Filtered:
		return weightFiltered
	case trace.NoHandler, trace.Delivered:
		return 0
	}
	return weightLost
}

const (
	weightFiltered = 1 + iota
	weightQuiet
	weightLost // dropped, or the workflow could not be run
	weightDead
	weightFolded
	weightOpen
)

// fates returns what became of an incident by each route, and each delivery that is held: later events do not end an
// escalation. The outcomes are newest first. A route that refused all events counts only if it refused the newest one, too:
// the filter that denied an older one may be gone. Of a delivery that became part of an escalation the escalation counts.
func fates(outcomes []trace.Outcome) (all []fate) {
	for _, r := range routesOf(outcomes) {
		for i := range r.held {
			all = append(all, fate{alert: r.held[i]})
		}
		f, ok := r.fate()
		switch {
		case !ok:
		case len(r.held) > 0 && !r.alerted && weight(&f.alert) <= weightQuiet:
			all[len(all)-1].newest = &f.alert
		default:
			all = append(all, f)
		}
	}
	return all
}

// routeFates has the deliveries of one route, newest first.
type routeFates struct {
	held, rest []trace.Delivery
	newest     bool // the first of rest is of the newest event, or has that as its repeat
	alerted    bool
}

// routesOf sorts deliveries by their routes.
func routesOf(outcomes []trace.Outcome) (routes []*routeFates) {
	key := func(d *trace.Delivery) string { return d.Pipeline + "\x00" + d.Workflow + "\x00" + d.Handler }
	known, continued := map[string]bool{}, map[string]bool{} // IDs behind their routes
	for _, o := range outcomes {
		for i := range o.Deliveries {
			known[key(&o.Deliveries[i])+"\x00"+o.Deliveries[i].ID] = true
		}
	}
	byKey := map[string]*routeFates{}
	for i, o := range outcomes {
		for _, d := range o.Deliveries {
			if ofStep(&d) {
				continue // told with its escalation
			}
			at := key(&d)
			newest := i == 0 || d.Last >= outcomes[0].Received || continued[at+"\x00"+d.ID]
			if into := at + "\x00" + d.Into; d.Into != "" && known[into] {
				continued[into] = continued[into] || newest
				continue
			}
			r := byKey[at]
			if r == nil {
				r = new(routeFates)
				byKey[at] = r
				routes = append(routes, r)
			}
			_, alerted := alertedAt(&d)
			r.alerted = r.alerted || alerted
			if d.Verdict == trace.Held {
				r.held = append(r.held, d)
				continue
			}
			r.newest = r.newest || newest && len(r.rest) == 0
			r.rest = append(r.rest, d)
		}
	}
	return routes
}

// fate chooses among the deliveries that are not held.
func (r *routeFates) fate() (f fate, ok bool) {
	if len(r.rest) == 0 {
		return f, false
	}
	first := &r.rest[0]
	if r.alerted {
		for i := range r.rest {
			d := &r.rest[i]
			if d.Verdict == trace.Delivered {
				break
			}
			if weight(d) >= weightDead {
				return fate{alert: *d}, true
			}
		}
		return fate{alert: *first}, r.newest
	}
	alert := first
	for i := range r.rest {
		d := &r.rest[i]
		w, most := weight(d), weight(alert)
		switch {
		case w > most:
			alert = d
		case w == most && w == weightOpen && (len(d.Attempts) > 0 || len(alert.Attempts) == 0): // what came later waits behind it
			alert = d
		case w == most && w == weightFiltered && !sameEnd(d, first): // the filter that denied the beginning
			alert = d
		}
	}
	if weight(alert) <= weightQuiet && !r.newest {
		return f, false
	}
	f.alert = *alert
	if r.newest && !sameEnd(first, alert) {
		f.newest = first
	}
	return f, true
}

// sameEnd reports whether two deliveries ended in the same way, by the same filter.
func sameEnd(a, b *trace.Delivery) bool {
	return a.Verdict == b.Verdict && denying(a) == denying(b)
}

// denying returns the name of the filter that denied a delivery.
func denying(d *trace.Delivery) string {
	for i := range d.Steps {
		if d.Steps[i].Kind == "filter" && d.Steps[i].Verdict == "deny" {
			return d.Steps[i].Name
		}
	}
	return ""
}
