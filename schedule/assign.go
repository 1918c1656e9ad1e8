package schedule

import (
	"os"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/schedule/timetable"
)

// assign returns what agents with a schedule of their own must learn about a changed check; false if nothing.
func (s *Scheduler) assign(k resource.Name) (Assignment, bool) {
	if s.opts.Assign == nil {
		return Assignment{}, false
	}
	a := Assignment{Namespace: k.Namespace, Check: k.Name}
	if j := s.jobs[k]; j != nil {
		if c, ok := s.assignable(j.config); ok {
			s.assigned[k] = struct{}{}
			a.Request = j.parts.request(c, 0)
			if a.Every = timetable.Every(c); a.Every > 0 {
				a.Phase = s.opts.PhaseHash.Phase(c.Metadata.Name, a.Every)
			}
			a.Request.Pauses = s.pauses(j)
			return a, true
		}
	}
	_, was := s.assigned[k]
	delete(s.assigned, k)
	return a, was
}

const (
	// pausesAhead is how far ahead agents know when the calendars of a check let it not run, and pausesEvery how often they
	// learn more. An agent without a backend for longer than that runs the check.
	pausesAhead, pausesEvery = 14 * 24 * time.Hour, 24 * time.Hour
	// maxPauses bounds the pauses of one check.
	maxPauses = 400
)

// pauses returns the next times at which a check does not run because of its calendars. They begin a moment ago, since the
// runs of agents may be late.
func (s *Scheduler) pauses(j *job) (pauses []resource.CheckPause) {
	now := time.Unix(0, s.last)
	for _, w := range j.gate.Closed(now.Add(-time.Hour), now.Add(pausesAhead), maxPauses) {
		pauses = append(pauses, resource.CheckPause{Begin: w.Begin.Unix(), End: w.End.Unix()})
	}
	return pauses
}

// assignable returns a check in the form in which an agent may run it by itself; false if it may not. Round robin needs
// to know the other agents, and proxy requests the matching entities. A cron means the backend's time zone, which an
// agent needs by name.
func (s *Scheduler) assignable(c *resource.CheckConfig) (*resource.CheckConfig, bool) {
	switch {
	case c.RoundRobin, c.ProxyRequests != nil:
		return nil, false
	case c.Cron == "" || namesZone(c.Cron):
		return c, true
	case s.zone == "":
		return nil, false
	}
	zoned := *c
	zoned.Cron = "TZ=" + s.zone + " " + c.Cron
	return &zoned, true
}

// namesZone reports whether a cron means the same in every time zone.
func namesZone(cron string) bool {
	return strings.HasPrefix(cron, "TZ=") || strings.HasPrefix(cron, "CRON_TZ=") || strings.HasPrefix(cron, "@every")
}

// zoneName is the name of this process's time zone; "" if only this host has it.
func zoneName() string {
	name := time.Local.String()
	if name == "Local" { // it was read from the system's file, which has no name
		target, err := os.Readlink("/etc/localtime")
		if err != nil {
			return ""
		}
		_, name, _ = strings.Cut(target, "/zoneinfo/")
	}
	if name == "" || name == "Local" {
		return ""
	}
	if _, err := time.LoadLocation(name); err != nil {
		return ""
	}
	return name
}
