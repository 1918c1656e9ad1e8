package fields

import (
	"errors"
	"fmt"
)

// NewerError is the error of data in a format that only newer releases know. A reader that skips such data, or reads it
// as an older format, loses it. So the reader stops.
type NewerError struct {
	What       string // the number and what it belongs to: "version of a roster"
	Got, Known uint64
}

// Error names both numbers, and what to do.
func (e *NewerError) Error() string {
	return fmt.Sprintf("the %s is %d, and this release knows up to %d: run the release that wrote it, or a newer one",
		e.What, e.Got, e.Known)
}

// UnreadableError is the error of data that is damaged. Another reader cannot read it either, so it may be passed over.
type UnreadableError struct{ Err error }

// Unreadable makes an UnreadableError of an error that is no NewerError; nil stays nil.
func Unreadable(err error) error {
	if newer := (*NewerError)(nil); err == nil || errors.As(err, &newer) {
		return err
	}
	return &UnreadableError{err}
}

func (e *UnreadableError) Error() string { return e.Err.Error() }

// Unwrap returns why it cannot be read.
func (e *UnreadableError) Unwrap() error { return e.Err }

// CheckVersion returns an error if got is none of the versions 1 to known: a NewerError if it is above.
func CheckVersion(what string, got, known byte) error {
	switch {
	case got > known:
		return &NewerError{"version of " + what, uint64(got), uint64(known)}
	case got == 0:
		return fmt.Errorf("%s has no version", what)
	}
	return nil
}
