package resource

import (
	"fmt"
	"math"
)

// This file has the bounds of names and numbers that definitions and events must keep. Sensu has none of them. They lie
// beyond everything that works in practice, and low enough that the sums and products made of these numbers, in milliseconds
// or nanoseconds, do not overflow, and that a name can be the key of a definition.

const (
	// MaxName is the longest name of anything, in bytes.
	MaxName = 255
	// maxSubscription is the longest subscription: that of an entity.
	maxSubscription = len("entity:") + MaxName
)

const year = 365 * 24 * 3600 // seconds

// bound is the smallest and the largest value of a number.
type bound struct{ min, max int64 }

// The table of bounds.
var (
	boundInterval = bound{0, 10 * year} // interval, timeout, backoff and the like, in seconds
	boundPercent  = bound{0, 100}
	boundTTL      = bound{-10 * year, 10 * year} // seconds; negative ones mean none
	boundExpire   = bound{-100 * year, 100 * year}
	// boundTime is for moments, in Unix seconds: from Go's zero time to the year 9999. Some programs that send events give
	// milliseconds, so the year 9999 in milliseconds is allowed too: a result must not be lost for its unit.
	boundTime   = bound{-62135596800, 253402300799_000}
	boundStamp  = bound{-62135596800, math.MaxInt64} // of an event: one in the future is mended or refused elsewhere
	boundCount  = bound{-1, 1 << 53}                 // occurrences; exact in every JSON reader
	boundOutput = bound{0, 1 << 40}                  // max_output_size, in bytes
)

// number is a field with its value.
type number struct {
	field string
	value int64
	bound bound
}

// checkNumbers returns the reason why one of the numbers is not acceptable, if there is one.
func checkNumbers(numbers ...number) error {
	for i := range numbers {
		if n := &numbers[i]; n.value < n.bound.min || n.value > n.bound.max {
			return outOfBounds(n.field, n.value, n.bound)
		}
	}
	return nil
}

func outOfBounds(field string, value any, b bound) error {
	return fmt.Errorf("%s %v is out of bounds, it must be between %d and %d", field, value, b.min, b.max)
}

// checkDuration is for durations in seconds with a fraction. JSON has no NaN, so an event with one could not be shown.
func checkDuration(field string, seconds float64) error {
	if !(seconds >= float64(boundTTL.min) && seconds <= float64(boundTTL.max)) {
		return outOfBounds(field, seconds, boundTTL)
	}
	return nil
}

// checkLength refuses a name that is too long. It does not repeat the name.
func checkLength(length, limit int) error {
	if length > limit {
		return fmt.Errorf("must not be longer than %d bytes, it has %d", limit, length)
	}
	return nil
}

// shownName bounds a name in a message.
const shownName = 100

// Short is a name as messages show it: one that is too long is cut.
func Short[T text](name T) string {
	if len(name) <= shownName {
		return string(name)
	}
	return fmt.Sprintf("%s… (%d bytes)", string(name[:shownName]), len(name))
}
