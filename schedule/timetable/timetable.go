// Package timetable computes when a check is due: at an interval or by a cron expression, and not during a subdue.
// Package schedule and the agent call it.
//
// Ticks depend on the check and the wall clock alone, so backends and lapwing agents compute the same. They fall on
// whole seconds, so that everything due for one agent in one second is sent, or runs, together. The hash for the phases
// is up to the backend, see Hash. Timers and running the check are up to the callers.
package timetable

import (
	"crypto/fips140"
	"crypto/md5"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Timetable computes a check's ticks. All times are Unix nanoseconds. It is not safe for concurrent use.
type Timetable interface {
	// Next is the first tick after t; Never if there is none.
	Next(t int64) int64
	// Latest is the last tick not after now, and how many ticks there were between it and the given earlier one, that
	// one included.
	Latest(tick, now int64) (newest, skipped int64)
}

// Never is later than every tick.
const Never = math.MaxInt64

// New parses a check's interval or cron. If it ticks at even distances, as with an interval or @every, the phase is the
// hash's for the check's name.
func New(c *resource.CheckConfig, h Hash) (Timetable, error) {
	every, spec, err := read(c)
	switch {
	case err != nil:
		return nil, err
	case every > 0:
		return Interval(h.Phase(c.Metadata.Name, every), every), nil
	}
	return &cronTimes{spec: spec}, nil
}

// Cron reads a check's cron that does not tick at even distances; nil if it does: see Every.
func Cron(c *resource.CheckConfig) (Timetable, error) {
	every, spec, err := read(c)
	if err != nil || every > 0 {
		return nil, err
	}
	return &cronTimes{spec: spec}, nil
}

// Every is the distance between a check's ticks, in whole seconds; 0 if it varies or there are no ticks.
func Every(c *resource.CheckConfig) time.Duration {
	every, _, _ := read(c)
	return every
}

// read returns the distance between ticks, or the schedule of a cron.
func read(c *resource.CheckConfig) (every time.Duration, spec *cron.SpecSchedule, err error) {
	if c.Cron == "" {
		if c.Interval == 0 {
			return 0, nil, errors.New("neither interval nor cron")
		}
		return time.Duration(c.Interval) * time.Second, nil, nil
	}
	s, err := parseCron(c.Cron)
	if err != nil {
		return 0, nil, fmt.Errorf("parse cron %q: %w", c.Cron, err)
	}
	switch s := s.(type) {
	case cron.ConstantDelaySchedule: // @every
		return s.Delay, nil, nil
	case *cron.SpecSchedule:
		return 0, s, nil
	}
	return 0, nil, fmt.Errorf("parse cron %q: unknown schedule %T", c.Cron, s)
}

func parseCron(spec string) (cron.Schedule, error) {
	// The parser cuts at a space without checking that there is one.
	if (strings.HasPrefix(spec, "TZ=") || strings.HasPrefix(spec, "CRON_TZ=")) && !strings.Contains(spec, " ") {
		return nil, errors.New("only a time zone")
	}
	return cron.ParseStandard(spec)
}

// Interval ticks whenever the Unix time is congruent to phase, modulo every, which must be positive.
func Interval(phase, every time.Duration) Timetable {
	return interval{phase: int64(phase), every: int64(every)}
}

// Hash derives phases from names. All schedulers of a cluster must use the same one, or they would disagree about when
// a check is due.
type Hash uint8

// The hashes. They protect nothing: they only spread names evenly.
const (
	MD5    Hash = iota // Sensu's
	SHA256             // for hosts that run only what FIPS 140-3 approves of
)

// ParseHash parses the name of a hash: md5 (also for "") or sha256.
func ParseHash(name string) (Hash, error) {
	switch name {
	case "", "md5":
		return MD5, nil
	case "sha256":
		return SHA256, nil
	}
	return 0, fmt.Errorf("hash %q is none of md5, sha256", name)
}

// Phase is the offset of a check's ticks in its interval. It comes from the check's name, so checks are spread over the
// interval and each keeps its phase for ever. With MD5 it is Sensu's, cut to the whole second (for one name in ten,
// where Sensu's arithmetic wraps around, another).
func (h Hash) Phase(name string, every time.Duration) time.Duration {
	var head [8]byte
	if h == SHA256 {
		sum := sha256.Sum256([]byte(name))
		copy(head[:], sum[:])
	} else {
		// Under GODEBUG=fips140=only MD5 is refused for every use, and a host with phases of its own would be useless.
		fips140.WithoutEnforcement(func() {
			sum := md5.Sum([]byte(name))
			copy(head[:], sum[:])
		})
	}
	splay := time.Duration(binary.LittleEndian.Uint64(head[:]) % uint64(every))
	return splay.Truncate(time.Second)
}

type interval struct{ phase, every int64 }

func (i interval) Next(t int64) int64 {
	wait := (i.phase - t) % i.every
	if wait <= 0 {
		wait += i.every
	}
	return t + wait
}

func (i interval) Latest(tick, now int64) (newest, skipped int64) {
	skipped = (now - tick) / i.every
	return tick + skipped*i.every, skipped
}

// cronTimes ticks as a cron expression says, in its time zone or the backend's.
type cronTimes struct {
	spec *cron.SpecSchedule
}

func (c *cronTimes) Next(t int64) int64 {
	next := c.spec.Next(time.Unix(0, t))
	if next.IsZero() {
		return Never
	}
	return next.UnixNano()
}

func (c *cronTimes) Latest(tick, now int64) (newest, skipped int64) {
	// After a clock without battery was set there may be decades to count.
	const most = 10_000
	for skipped < most {
		next := c.Next(tick)
		if next > now {
			break
		}
		tick = next
		skipped++
	}
	return tick, skipped
}
