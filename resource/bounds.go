package resource

import (
	"fmt"
	"math"
	"strings"
)

// This file has the bounds of names and numbers in definitions and events. Sensu has none. They are beyond every value
// that works in practice. They are low enough that sums and products in milliseconds or nanoseconds do not overflow,
// and that a name can be the key of a definition.

const (
	// MaxName is the longest name of any resource, in bytes.
	MaxName = 255
	// maxSubscription is the longest subscription: an entity's own.
	maxSubscription = len("entity:") + MaxName
)

const year = 365 * 24 * 3600 // seconds

// bound is the smallest and the largest value of a number.
type bound struct{ min, max int64 }

var (
	boundInterval = bound{0, 10 * year} // interval, timeout, backoff and the like, in seconds
	boundPercent  = bound{0, 100}
	boundTTL      = bound{-10 * year, 10 * year} // seconds; negative means none
	boundExpire   = bound{-100 * year, 100 * year}
	// boundTime is for times in Unix seconds, from Go's zero time to the year 9999. Some programs send milliseconds, so
	// the year 9999 in milliseconds is allowed too: a result must not be lost because of its unit.
	boundTime   = bound{-62135596800, 253402300799_000}
	boundStamp  = bound{-62135596800, math.MaxInt64} // of an event; the intake corrects or refuses times in the future
	boundCount  = bound{-1, 1 << 53}                 // occurrences; exact in every JSON reader
	boundOutput = bound{0, 1 << 40}                  // max_output_size, in bytes
)

// number is a field with its value.
type number struct {
	field string
	value int64
	bound bound
}

// checkNumbers returns an error for the first number that is out of bounds, or nil.
func checkNumbers(numbers ...number) error {
	for i := range numbers {
		if n := &numbers[i]; n.value < n.bound.min || n.value > n.bound.max {
			field := n.field[strings.LastIndexByte(n.field, ' ')+1:]
			return InField(field, outOfBounds(n.field, n.value, n.bound))
		}
	}
	return nil
}

func outOfBounds(field string, value any, b bound) error {
	return fmt.Errorf("%s %v is out of bounds, it must be between %d and %d", field, value, b.min, b.max)
}

// checkDuration checks a duration in seconds with a fraction. JSON has no NaN, so an event with NaN could not be shown.
func checkDuration(field string, seconds float64) error {
	if !(seconds >= float64(boundTTL.min) && seconds <= float64(boundTTL.max)) {
		return outOfBounds(field, seconds, boundTTL)
	}
	return nil
}

// checkLength refuses a name that is too long. The error does not repeat the name.
func checkLength(length, limit int) error {
	if length > limit {
		return fmt.Errorf("must not be longer than %d bytes, it has %d", limit, length)
	}
	return nil
}

// shownName is how many bytes of a name a message shows.
const shownName = 100

// Short returns a name for messages, cut if it is too long.
func Short[T text](name T) string {
	if len(name) <= shownName {
		return string(name)
	}
	return fmt.Sprintf("%s… (%d bytes)", string(name[:shownName]), len(name))
}
