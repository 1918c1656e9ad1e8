package resource

import (
	"errors"
	"fmt"
	"net/mail"
	"slices"
	"strings"
	"time"
)

// Contact is a person, or a team, whom escalations notify.
type Contact struct {
	// Metadata's annotations are added to the check's in what the contact's handlers get, except those of lapwing.io.
	Metadata ObjectMeta `json:"metadata"`
	FullName string     `json:"full_name,omitempty"` // for people
	// User is the contact's account. Acknowledgements by link are in its name.
	User  string `json:"user,omitempty"`
	Email string `json:"email,omitempty"` // address, for handlers of type email
	// Handlers notify the contact: each gets the event, with the contact in its templates.
	Handlers []string `json:"handlers"`
}

// Rota says which of its contacts is on call. Their turns follow one another without end.
type Rota struct {
	Metadata    ObjectMeta `json:"metadata"`
	Description string     `json:"description,omitempty"` // for people
	// TimeZone is where Start and the hours of Shift are, for example Europe/Berlin. Default UTC.
	TimeZone string `json:"time_zone,omitempty"`
	// Contacts are on call one after the other, in this order.
	Contacts []string `json:"contacts"`
	// Start is when the first turn of the first contact begins, as 2026-11-02T09:00.
	Start string `json:"start"`
	// Shift is the length of a turn in seconds, of whole hours. A day has 24 of them, also when clocks change: turns of days
	// begin at the same time of day.
	Shift int64 `json:"shift"`
	// Within names calendars: outside of them the rota has no one on call. Default: always.
	Within    []string       `json:"within,omitempty"`
	Overrides []RotaOverride `json:"overrides,omitempty"` // shifts that others take
}

// RotaOverride puts a contact on call at a time, in place of the turns. Of several at a time the last one counts.
type RotaOverride struct {
	Contact string `json:"contact"`
	Begin   int64  `json:"begin"` // Unix seconds; belongs to it
	End     int64  `json:"end"`   // Unix seconds; does not
	Reason  string `json:"reason,omitempty"`
}

// OnCall is who is on call in a rota.
type OnCall struct {
	Rota string `json:"rota"`
	// Problem says why the rota has no turns; "" if it has.
	Problem string `json:"problem,omitempty"`
	// From is the begin of the time that was asked for, Unix seconds. Shifts are the turns in that time, cut to it, by
	// begin: the first one begins at From if someone is on call then.
	From   int64         `json:"from"`
	Shifts []OnCallShift `json:"shifts"`
	// More says that there are further turns in that time.
	More bool `json:"more,omitempty"`
	// TimeZone is where the rota hands over.
	TimeZone string `json:"time_zone"`
}

// OnCallShift is a time in which a contact is on call. Begin belongs to it, End does not.
type OnCallShift struct {
	Contact  string `json:"contact"`
	Begin    int64  `json:"begin"` // Unix seconds
	End      int64  `json:"end"`   // Unix seconds
	Override bool   `json:"override,omitempty"`
	Reason   string `json:"reason,omitempty"`
	// Until is when the turn ends, Unix seconds. End is earlier if the time that was asked for ends before.
	Until int64 `json:"until"`
	// NoContact says that the contact does not exist: a step that names the rota reaches no one then.
	NoContact bool `json:"no_contact,omitempty"`
}

// EscalationType is the type of handlers that notify contacts step by step.
const EscalationType = "escalation"

// HandlerEscalation has the steps that an incident takes until it is acknowledged, silenced or resolved.
type HandlerEscalation struct {
	Steps []EscalationStep `json:"steps"`
	// Repeat is how many more times all steps are taken, RepeatAfter seconds (default 1800) behind the last one.
	Repeat      uint32 `json:"repeat,omitempty"`
	RepeatAfter int64  `json:"repeat_after,omitempty"`
	// Quiet has the times at which incidents of some severities take no steps. They take them afterwards.
	Quiet []EscalationQuiet `json:"quiet,omitempty"`
}

// EscalationStep notifies some contacts.
type EscalationStep struct {
	// After is how many seconds the step comes behind the one before it; the first one, behind the incident.
	After  int64              `json:"after,omitempty"`
	Notify []EscalationTarget `json:"notify"`
}

// EscalationTarget is who is notified. Exactly one field is set.
type EscalationTarget struct {
	Contact string `json:"contact,omitempty"`
	Rota    string `json:"rota,omitempty"`    // the contact who is on call
	Handler string `json:"handler,omitempty"` // without a contact: a channel, for example
	// Label is the name of a label of the check, or else of the entity: its value names contacts and rotas, with commas
	// between them.
	Label string `json:"label,omitempty"`
}

// EscalationQuiet is a time in which incidents of some severities disturb no one.
type EscalationQuiet struct {
	// Severities are warning, critical and unknown (each other status).
	Severities []string `json:"severities"`
	// Calendars: it is quiet while one of them is active.
	Calendars []string `json:"calendars"`
}

// Escalation is an incident that an escalation is at.
type Escalation struct {
	Namespace string `json:"namespace"`
	Entity    string `json:"entity"`
	Check     string `json:"check"`
	Handler   string `json:"handler"`
	// Began is when the incident came to the handler, and Next when its next step is due, Unix milliseconds; 0 for none.
	Began int64 `json:"began"`
	Next  int64 `json:"next,omitempty"`
	// Steps is how many steps were taken, of all rounds.
	Steps int `json:"steps"`
	// Held says why no step is due although steps are left: an acknowledgement, a silence, or that the handler is deleted.
	Held string `json:"held,omitempty"`
	// Quiet is the calendar because of which a step that is due is not taken, and QuietUntil when that ends, Unix
	// milliseconds; 0 if it does not in the next years.
	Quiet      string `json:"quiet,omitempty"`
	QuietUntil int64  `json:"quiet_until,omitempty"`
	// NextNotifies is whom the next step would notify as of now, as "alice by mail (rota primary)". NextProblem says why it
	// would notify no one.
	NextNotifies []string `json:"next_notifies,omitempty"`
	NextProblem  string   `json:"next_problem,omitempty"`
	// Notified are the contacts, or handlers without one, that got the incident. Sending are those to whom it is under way,
	// and Failed the others: no delivery to them got through.
	Notified []string `json:"notified"`
	Sending  []string `json:"sending,omitempty"`
	Failed   []string `json:"failed,omitempty"`
	// Tries are the deliveries to those in Sending that have failed and are tried again.
	Tries []EscalationTry `json:"tries,omitempty"`
}

// ReachesNoOne reports whether an escalation is through with its steps and has reached no one.
func (e *Escalation) ReachesNoOne() bool {
	return e.Held == "" && e.Next == 0 && len(e.Notified)+len(e.Sending) == 0
}

// EscalationTry is a delivery of an escalation of which all attempts so far have failed.
type EscalationTry struct {
	// Contact is missing if the step names the handler and no contact.
	Contact  string `json:"contact,omitempty"`
	Handler  string `json:"handler"`
	Attempts int    `json:"attempts"`
	// Error says why the last attempt failed. In a cluster only the backend that made the attempt knows it, until its restart.
	Error string `json:"error,omitempty"`
	// Next is when the next attempt is due, Unix milliseconds.
	Next int64 `json:"next"`
}

// EscalationList has the escalations of a namespace that are going on.
type EscalationList struct {
	Escalations []Escalation `json:"escalations"`
	// More says that there are more of them than the answer has.
	More bool `json:"more,omitempty"`
}

// Bounds of contacts, rotas and escalations.
const (
	maxContactHandlers  = 20
	maxRotaContacts     = 100
	maxRotaOverrides    = 1000
	maxEscalationSteps  = 20
	maxEscalationNotify = 20
	maxEscalationRepeat = 10_000
	maxEscalationWait   = 31 * 24 * 3600
	maxOnCallText       = 1 << 10
	// RotaTime is the form of Rota.Start.
	RotaTime = "2006-01-02T15:04"
)

// Validate returns the reason why c is not acceptable, or nil.
func (c *Contact) Validate() error {
	if err := checkName(c.Metadata.Name); err != nil {
		return fmt.Errorf("contact name %w", err)
	}
	if c.Metadata.Namespace == "" {
		return errNoNamespace
	}
	if len(c.FullName) > maxOnCallText {
		return fmt.Errorf("full_name has more than %d bytes", maxOnCallText)
	}
	if c.User != "" {
		if err := checkName(c.User); err != nil {
			return fmt.Errorf("user %w", err)
		}
	}
	if c.Email != "" {
		if a, err := mail.ParseAddress(c.Email); err != nil || a.Address != c.Email {
			return fmt.Errorf("email %q is not an address such as alice@example.org", c.Email)
		}
	}
	if len(c.Handlers) == 0 {
		return errors.New("handlers must name at least one handler, or nothing would reach the contact")
	}
	return checkNameList("handlers", c.Handlers, maxContactHandlers)
}

// Validate returns the reason why r is not acceptable, or nil.
func (r *Rota) Validate() error {
	if err := checkName(r.Metadata.Name); err != nil {
		return fmt.Errorf("rota name %w", err)
	}
	if r.Metadata.Namespace == "" {
		return errNoNamespace
	}
	if len(r.Description) > maxOnCallText {
		return fmt.Errorf("description has more than %d bytes", maxOnCallText)
	}
	if r.TimeZone != "" {
		if _, err := time.LoadLocation(r.TimeZone); err != nil || r.TimeZone == "Local" {
			return fmt.Errorf("there is no time zone %q: write one such as Europe/Berlin", r.TimeZone)
		}
	}
	if len(r.Contacts) == 0 {
		return errors.New("contacts must name at least one contact")
	}
	if err := checkNameList("contacts", r.Contacts, maxRotaContacts); err != nil {
		return err
	}
	if _, err := time.Parse(RotaTime, r.Start); err != nil {
		return fmt.Errorf("start %q is not a time such as 2026-11-02T09:00", r.Start)
	}
	if r.Shift < 3600 || r.Shift > 366*24*3600 || r.Shift%3600 != 0 {
		return errors.New("shift must be a number of seconds that is whole hours, from 1 hour to 366 days: a week is 604800")
	}
	if err := checkCalendarNames("within", r.Within); err != nil {
		return err
	}
	if len(r.Overrides) > maxRotaOverrides {
		return fmt.Errorf("overrides has %d entries, it must have %d at most", len(r.Overrides), maxRotaOverrides)
	}
	for i, o := range r.Overrides {
		if err := checkName(o.Contact); err != nil {
			return fmt.Errorf("overrides %d: contact %w", i+1, err)
		}
		if o.Begin < 0 || o.End <= o.Begin {
			return fmt.Errorf("overrides %d: end must be after begin", i+1)
		}
		if len(o.Reason) > maxOnCallText {
			return fmt.Errorf("overrides %d: reason has more than %d bytes", i+1, maxOnCallText)
		}
	}
	return nil
}

// validateEscalation is Validate for handlers of type escalation.
func (h *Handler) validateEscalation() error {
	e := h.Escalation
	switch {
	case e == nil || len(e.Steps) == 0:
		return errors.New("escalation handlers need steps")
	case len(e.Steps) > maxEscalationSteps:
		return fmt.Errorf("escalation has %d steps, it must have %d at most", len(e.Steps), maxEscalationSteps)
	case e.Repeat > maxEscalationRepeat:
		return fmt.Errorf("escalation repeat must be %d at most", maxEscalationRepeat)
	case e.RepeatAfter < 0 || e.RepeatAfter > maxEscalationWait:
		return fmt.Errorf("escalation repeat_after must be between 0 and %d seconds", maxEscalationWait)
	case h.Group != nil || h.RateLimit != nil:
		return errors.New("escalation handlers have no group and no rate_limit: set them in the handlers of the contacts")
	case h.Resolve != nil:
		return errors.New("escalation handlers have no resolve: a resolution goes to all who were notified")
	case h.Mutator != "":
		return errors.New("escalation handlers have no mutator: set it in the handlers of the contacts")
	}
	for i := range e.Steps {
		if err := e.Steps[i].validate(); err != nil {
			return fmt.Errorf("escalation step %d: %w", i+1, err)
		}
	}
	for i, q := range e.Quiet {
		if len(q.Severities) == 0 || len(q.Calendars) == 0 {
			return fmt.Errorf("escalation quiet %d: severities and calendars must be set", i+1)
		}
		for _, s := range q.Severities {
			if !slices.Contains(escalationSeverities, s) {
				return fmt.Errorf("escalation quiet %d: severity %q is none of %s", i+1, s, strings.Join(escalationSeverities, ", "))
			}
		}
		if err := checkCalendarNames("calendars", q.Calendars); err != nil {
			return fmt.Errorf("escalation quiet %d: %w", i+1, err)
		}
	}
	return nil
}

var escalationSeverities = []string{"warning", "critical", "unknown"}

// SeverityOf returns the severity of a failing status, as EscalationQuiet names it.
func SeverityOf(status uint32) string {
	if status == 1 || status == 2 {
		return escalationSeverities[status-1]
	}
	return "unknown"
}

func (s *EscalationStep) validate() error {
	switch {
	case s.After < 0 || s.After > maxEscalationWait:
		return fmt.Errorf("after must be between 0 and %d seconds", maxEscalationWait)
	case len(s.Notify) == 0:
		return errors.New("notify must name at least one contact, rota, handler or label")
	case len(s.Notify) > maxEscalationNotify:
		return fmt.Errorf("notify has %d entries, it must have %d at most", len(s.Notify), maxEscalationNotify)
	}
	for i, t := range s.Notify {
		given := 0
		for _, name := range []string{t.Contact, t.Rota, t.Handler} {
			if name == "" {
				continue
			}
			given++
			if err := checkName(name); err != nil {
				return fmt.Errorf("notify %d: name %w", i+1, err)
			}
		}
		if t.Label != "" {
			given++
		}
		if given != 1 || len(t.Label) > maxOnCallText {
			return fmt.Errorf("notify %d: exactly one of contact, rota, handler and label must be set", i+1)
		}
	}
	return nil
}

func checkNameList(field string, names []string, most int) error {
	if len(names) > most {
		return fmt.Errorf("%s has %d entries, it must have %d at most", field, len(names), most)
	}
	for _, name := range names {
		if err := checkName(name); err != nil {
			return fmt.Errorf("%s: name %w", field, err)
		}
	}
	return nil
}
