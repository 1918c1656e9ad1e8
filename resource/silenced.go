package resource

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Silenced keeps handlers that want it so (filter not_silenced) from events: those of a check, of what has a subscription,
// or of a check where there is a subscription. Its name follows from the two, see Silenced.DerivedName.
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
}

// anything stands in silences for any subscription or check.
const anything = "*"

// DerivedName is the name that s must have: its subscription and check, with "*" for any.
func (s *Silenced) DerivedName() string {
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

func anyOf(s string) bool { return s == "" || s == anything }
