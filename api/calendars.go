package api

import (
	"cmp"
	"net/http"
	"time"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/calendar"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// calendars serves calendars. They are lapwing's own, and so are their paths.
type calendars struct {
	kind[resource.Calendar]
}

func (a *API) serveCalendars() {
	c := &calendars{kind[resource.Calendar]{
		api: a, Kind: config.Calendars, base: ours, accept: a.acceptCalendar, warning: a.calendarWarning, reason: resourceInvalid,
	}}
	c.serve()
	a.route(c.collection()+"/{name}/preview", access{resource: c.String(), name: namePath, labels: true},
		methods{http.MethodGet: c.preview})
}

// acceptCalendar checks the windows of a calendar, and that it does not include itself.
func (a *API) acceptCalendar(def *resource.Calendar) error {
	draft, err := a.opts.Calendars.Draft(a.opts.Config.Snapshot(), def)
	if err == nil && draft.Circular {
		return invalid("%s", draft.Problem)
	}
	return err
}

// calendarWarning warns the author of a calendar that it counts as missing. It reads no calendar that breaks a bound.
func (a *API) calendarWarning(t *act, def *resource.Calendar) string {
	if def.Validate() != nil || !a.mayList(t.user, config.Calendars.String(), t.namespace) {
		return ""
	}
	draft, err := a.opts.Calendars.Draft(a.opts.Config.Snapshot(), def)
	if err != nil {
		return ""
	}
	return draft.Problem
}

// missingCalendars says which of some calendars count as missing, and what that means, one in each text. Users who may not
// list calendars learn nothing.
func (a *API) missingCalendars(user *auth.Identity, namespace, means string, names ...string) (problems []string) {
	if len(names) == 0 || !a.mayList(user, config.Calendars.String(), namespace) {
		return nil
	}
	for _, name := range names[:min(len(names), maxMissingNames)] {
		if p := a.opts.Calendars.Find(a.opts.Config.Snapshot(), namespace, name).Problem; p != "" {
			problems = append(problems, p+": "+means)
		}
	}
	return problems
}

// calendarPreviewed is how far ahead a preview looks if the request does not say, and maxCalendarPreview how many windows
// it has. mostPreviewed bounds the range.
const (
	calendarPreviewed  = 30 * 24 * time.Hour
	maxCalendarPreview = 1000
	mostPreviewed      = calendar.Horizon
)

// preview answers with the times of a calendar in a range.
func (c *calendars) preview(w *response, r *request) error {
	def, err := c.find(r.act)
	if err != nil {
		return err
	}
	now, q := c.api.opts.Now(), r.URL.Query()
	from, err := instant(q.Get("since"), now)
	if err != nil {
		return err
	}
	if from.IsZero() {
		from = now
	}
	to, err := instant(q.Get("until"), now)
	if err != nil {
		return err
	}
	if to.IsZero() {
		to = from.Add(calendarPreviewed)
	}
	if !from.Before(to) || to.Sub(from) > mostPreviewed {
		return invalid("since must be before until, by five years at most")
	}
	found := c.api.opts.Calendars.Find(c.api.opts.Config.Snapshot(), def.Metadata.Namespace, def.Metadata.Name)
	out := resource.CalendarPreview{
		Active: found.Active(from), From: from.Unix(), To: to.Unix(), Problem: found.Problem, Windows: []resource.CalendarActiveTime{},
		TimeZone: cmp.Or(def.TimeZone, "UTC"),
	}
	if next := found.Next(from); !next.IsZero() {
		out.Next = next.Unix()
	}
	windows, more := found.Windows(from, to, maxCalendarPreview)
	for _, one := range windows {
		out.Windows = append(out.Windows, resource.CalendarActiveTime{Begin: one.Begin.Unix(), End: one.End.Unix(), Name: one.Name})
	}
	for _, one := range found.Excepted(from, to, maxCalendarPreview) {
		out.Excepted = append(out.Excepted, resource.CalendarActiveTime{Begin: one.Begin.Unix(), End: one.End.Unix(), Name: one.Name})
	}
	out.More = more
	return w.object(&out)
}
