package resource

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// Silenced keeps events from handlers that use the filter not_silenced. It silences the events of a check, of a
// subscription, or of a check with a subscription. Its name is derived from the two, see Silenced.DerivedName. One with
// selectors silences the events that match them, and has a name of its own.
type Silenced struct {
	Metadata        ObjectMeta `json:"metadata"`
	Expire          int64      `json:"expire"`                 // seconds from Begin to ExpireAt, if set by duration
	ExpireOnResolve bool       `json:"expire_on_resolve"`      // whether it ends when the check passes
	Creator         string     `json:"creator,omitempty"`      // user who made it
	Check           string     `json:"check,omitempty"`        // "" or "*" means any
	Reason          string     `json:"reason,omitempty"`       // why, for people
	Subscription    string     `json:"subscription,omitempty"` // "" or "*" means any
	Begin           int64      `json:"begin"`                  // Unix seconds
	ExpireAt        int64      `json:"expire_at"`              // Unix seconds; 0 means never

	// The fields below are lapwing's own. Package silence compiles the selectors and windows.

	LabelSelector string `json:"label_selector,omitempty"` // only events whose labels match
	FieldSelector string `json:"field_selector,omitempty"` // only events that match, as event.check.name == disk
	// LimitedTo, if not empty, has label selectors. The silence applies to an event only if the event's labels match
	// one of them. The server sets it for a user whose role is limited by labels.
	LimitedTo []string `json:"limited_to,omitempty"`
	// Windows, if set, are the only times between Begin and ExpireAt at which the silence applies.
	Windows []SilenceWindow `json:"windows,omitempty"`
	// Calendars, if set, names calendars: the silence also applies while one of them is active, and otherwise only in Windows.
	Calendars []string `json:"calendars,omitempty"`
	// PassResolve lets resolutions through.
	PassResolve bool `json:"pass_resolve,omitempty"`
	// Remind is how many seconds before the end RemindHandlers get an event about it. 0 means not at all.
	Remind         int64    `json:"remind,omitempty"`
	RemindHandlers []string `json:"remind_handlers,omitempty"` // default DefaultRemindHandler
	// Acknowledgement says that a user is at work on the one event that it silences.
	Acknowledgement bool `json:"acknowledgement,omitempty"`
}

// SilenceWindow is a time that recurs. Either Cron or RRule says when it begins.
type SilenceWindow struct {
	Cron     string `json:"cron,omitempty"`      // five fields, or @daily and the like
	RRule    string `json:"rrule,omitempty"`     // RFC 5545, starting at the silence's Begin
	TimeZone string `json:"time_zone,omitempty"` // for example Europe/Berlin; default UTC
	Duration int64  `json:"duration"`            // seconds
}

// DefaultRemindHandler gets the reminders of silences without RemindHandlers.
const DefaultRemindHandler = "silence-reminder"

const (
	maxWindows   = 50
	maxLimitedTo = 50
	maxDuration  = 31 * 24 * 3600
	maxRuleText  = 1 << 10
)

// Selects reports whether s has selectors.
func (s *Silenced) Selects() bool { return s.LabelSelector != "" || s.FieldSelector != "" }

// anything means any subscription or check.
const anything = "*"

// DerivedName returns the name that s must have: its subscription and check, with "*" for any. One with selectors keeps
// its own.
func (s *Silenced) DerivedName() string {
	if s.Selects() {
		return s.Metadata.Name
	}
	return SilencedName(s.Subscription, s.Check)
}

// SilencedName returns the name of the silence of a subscription, a check, or both; "" or "*" means any.
func SilencedName(subscription, check string) string {
	if subscription == "" {
		subscription = anything
	}
	if check == "" {
		check = anything
	}
	return subscription + ":" + check
}

// Schedule sets when s begins and ends: the default is to begin now, and to end Expire seconds later. s may replace
// old, which may be nil. If s has another begin or duration than old, an end equal to old's is computed anew.
func (s *Silenced) Schedule(now time.Time, old *Silenced) error {
	if s.Begin == 0 {
		s.Begin = now.Unix()
	}
	if old != nil && s.ExpireAt == old.ExpireAt && (s.Begin != old.Begin || s.Expire != old.Expire) {
		s.ExpireAt = 0
	}
	if s.Expire > 0 && s.ExpireAt == 0 {
		if s.Begin > math.MaxInt64-s.Expire {
			return fmt.Errorf("expire %d is too large", s.Expire)
		}
		s.ExpireAt = s.Begin + s.Expire
	}
	return nil
}

// Expired reports whether s has ended.
func (s *Silenced) Expired(now time.Time) bool { return s.ExpireAt != 0 && s.ExpireAt <= now.Unix() }

// Validate returns the reason why s is not acceptable, or nil.
func (s *Silenced) Validate() error {
	if err := s.validateOwn(); err != nil {
		return err
	}
	if s.Selects() {
		return s.validateSelecting()
	}
	if anyOf(s.Subscription) && anyOf(s.Check) {
		return errors.New("must provide check or subscription")
	}
	if !anyOf(s.Subscription) {
		if err := checkSubscriptionName(s.Subscription); err != nil {
			return fmt.Errorf("Subscription %w", err) // Sensu's text
		}
	}
	if !anyOf(s.Check) {
		if err := checkName(s.Check); err != nil {
			return fmt.Errorf("Check %w", err)
		}
	}
	if s.Metadata.Namespace == "" {
		return errNoNamespace
	}
	return nil
}

// validateSelecting is Validate for a silence with selectors. Its name has no colon, so it never equals a derived name.
func (s *Silenced) validateSelecting() error {
	if s.Subscription != "" || s.Check != "" {
		return errors.New("selectors stand in the place of check and subscription")
	}
	if err := checkName(s.Metadata.Name); err != nil {
		return fmt.Errorf("silence name %w", err)
	}
	if strings.Contains(s.Metadata.Name, ":") {
		return errors.New("the name of a silence with selectors cannot contain a colon")
	}
	if s.Metadata.Namespace == "" {
		return errNoNamespace
	}
	return nil
}

// validateOwn checks the fields that Sensu does not have.
func (s *Silenced) validateOwn() error {
	if s.Remind < 0 {
		return errors.New("remind must not be negative")
	}
	err := checkNumbers(
		number{"expire", s.Expire, boundExpire}, number{"begin", s.Begin, boundTime},
		number{"expire_at", s.ExpireAt, boundTime}, number{"remind", s.Remind, boundExpire},
	)
	if err != nil {
		return err
	}
	for _, name := range s.RemindHandlers {
		if err := checkName(name); err != nil {
			return fmt.Errorf("remind handler name %w", err)
		}
	}
	if s.Acknowledgement && (!strings.HasPrefix(s.Subscription, EntitySubscription("")) || anyOf(s.Check)) {
		return errors.New("an acknowledgement is of one check of one entity")
	}
	if len(s.LimitedTo) > maxLimitedTo {
		return fmt.Errorf("limited_to has %d label selectors, more than %d", len(s.LimitedTo), maxLimitedTo)
	}
	if err := checkCalendarNames("calendars", s.Calendars); err != nil {
		return err
	}
	if len(s.Windows) > maxWindows {
		return fmt.Errorf("there are more than %d windows", maxWindows)
	}
	for i := range s.Windows {
		w := &s.Windows[i]
		if (w.Cron == "") == (w.RRule == "") {
			return errors.New("a window must have a cron or an rrule, and not both")
		}
		if len(w.Cron)+len(w.RRule) > maxRuleText {
			return errors.New("the rule of a window is too long")
		}
		if w.Duration < 1 || w.Duration > maxDuration {
			return fmt.Errorf("the duration of a window must be between 1 second and %d seconds", maxDuration)
		}
	}
	return nil
}

func anyOf(s string) bool { return s == "" || s == anything }
