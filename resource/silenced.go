package resource

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// Silenced keeps handlers that want it so (filter not_silenced) from events: those of a check, of what has a subscription,
// or of a check where there is a subscription. Its name follows from the two, see Silenced.DerivedName. One with selectors is
// of the events that they select, and has a name of its own.
type Silenced struct {
	Metadata        ObjectMeta `json:"metadata"`
	Expire          int64      `json:"expire"` // seconds from Begin to ExpireAt, if it was given that way
	ExpireOnResolve bool       `json:"expire_on_resolve"`
	Creator         string     `json:"creator,omitempty"`
	Check           string     `json:"check,omitempty"` // "" or "*" is any
	Reason          string     `json:"reason,omitempty"`
	Subscription    string     `json:"subscription,omitempty"` // "" or "*" is any
	Begin           int64      `json:"begin"`                  // Unix seconds
	ExpireAt        int64      `json:"expire_at"`              // Unix seconds; 0 is never

	// What follows Sensu does not have. Package silence compiles the selectors and windows.
	LabelSelector string `json:"label_selector,omitempty"`
	FieldSelector string `json:"field_selector,omitempty"`
	// LimitedTo, if not empty, are label selectors: the silence acts on an event only if the event's labels fit one of them. A silence
	// made by a user whose role is limited by labels has the role's selectors.
	LimitedTo []string `json:"limited_to,omitempty"`
	// Windows, if there are any, are the only times between Begin and ExpireAt in which it counts.
	Windows []SilenceWindow `json:"windows,omitempty"`
	// PassResolve lets resolutions through.
	PassResolve bool `json:"pass_resolve,omitempty"`
	// Remind is how many seconds before the end an event tells RemindHandlers of it; 0 is not at all.
	Remind         int64    `json:"remind,omitempty"`
	RemindHandlers []string `json:"remind_handlers,omitempty"` // default DefaultRemindHandler
	// Acknowledgement says that somebody is at work on the one event that it silences.
	Acknowledgement bool `json:"acknowledgement,omitempty"`
}

// SilenceWindow is a time that comes again and again: it begins when Cron or RRule say, of which there is one.
type SilenceWindow struct {
	Cron     string `json:"cron,omitempty"`      // five fields, or @daily and the like
	RRule    string `json:"rrule,omitempty"`     // RFC 5545, counted from the silence's Begin
	TimeZone string `json:"time_zone,omitempty"` // such as Europe/Berlin; default UTC
	Duration int64  `json:"duration"`            // seconds
}

// DefaultRemindHandler is the handler that reminders go to which name none.
const DefaultRemindHandler = "silence-reminder"

const (
	maxWindows   = 50
	maxLimitedTo = 50
	maxDuration  = 31 * 24 * 3600
	maxRuleText  = 1 << 10
)

// Selects says that s is of the events that its selectors select.
func (s *Silenced) Selects() bool { return s.LabelSelector != "" || s.FieldSelector != "" }

// anything stands in silences for any subscription or check.
const anything = "*"

// DerivedName is the name that s must have: its subscription and check, with "*" for any. One with selectors keeps its own.
func (s *Silenced) DerivedName() string {
	if s.Selects() {
		return s.Metadata.Name
	}
	return SilencedName(s.Subscription, s.Check)
}

// SilencedName is the name of the silence of a subscription, of a check, or of both; "" or "*" is any.
func SilencedName(subscription, check string) string {
	if subscription == "" {
		subscription = anything
	}
	if check == "" {
		check = anything
	}
	return subscription + ":" + check
}

// Schedule settles when s begins and ends: at once if it says nothing of a beginning, and Expire seconds after that if it says
// nothing of an end. If s takes the place of old, which may be nil, the end that old had says nothing of that of s when the
// beginning or the length is another one.
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

// Expired says that s has ended.
func (s *Silenced) Expired(now time.Time) bool { return s.ExpireAt != 0 && s.ExpireAt <= now.Unix() }

// Validate returns the reason why s is not acceptable, if it is not.
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
			//lint:ignore ST1005 Sensu's text
			return fmt.Errorf("Subscription %w", err)
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

// validateSelecting is Validate for one with selectors. Its name has no colon, so that it is never that of another.
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

// validateOwn looks at what Sensu does not have.
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
