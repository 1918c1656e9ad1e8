package intake

import (
	"errors"
	"fmt"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// ErrMustWait is returned for an event of a prompt Source that cannot be taken without waiting. The source passes the
// event again when it may wait.
var ErrMustWait = errors.New("must wait")

// NoRoomError is the ErrMustWait of an event for which a partition of the log has no room.
type NoRoomError struct{ Partition int }

func (e NoRoomError) Error() string {
	return fmt.Sprintf("partition %d of the log has no room", e.Partition)
}

// Is reports whether target is ErrMustWait.
func (e NoRoomError) Is(target error) bool { return target == ErrMustWait }

// rejection is why an event was not taken and never will be. The reason is a metric's label.
type rejection struct {
	reason string
	err    error
}

func (r *rejection) Error() string { return shortError(r.err) }
func (r *rejection) Unwrap() error { return r.err }

// Rejected says that the event will never be taken as it is; package api asks.
func (r *rejection) Rejected() bool { return true }

func reject(reason, format string, args ...any) error {
	return &rejection{reason, fmt.Errorf(format, args...)}
}

// Undecodable returns the rejection of an event or keepalive that cannot be decoded.
func Undecodable(what string, err error) error {
	return reject("undecodable", "decode %s: %w", what, err)
}

// Rejection returns why an event will never be taken, for its sender; "" if the event may be taken later.
func Rejection(err error) string {
	if r := rejectionOf(err); r != nil {
		return r.Error()
	}
	return ""
}

// rejectionOf returns why an event will never be taken; nil if it may be taken later.
func rejectionOf(err error) *rejection {
	var r *rejection
	var large *resource.TooLargeError
	var quota *resource.QuotaError
	switch {
	case errors.As(err, &r):
		return r
	case errors.As(err, &large):
		return &rejection{"too_large", err}
	case errors.As(err, &quota):
		return &rejection{"quota", err}
	}
	return nil
}

// maxErrorText bounds the text of an error about an event, in bytes: it may quote the event.
const maxErrorText = 500

func shortError(err error) string {
	text := err.Error()
	if len(text) > maxErrorText {
		text = text[:maxErrorText] + "…"
	}
	return text
}

// NotTaken counts an event of a session that was not taken. It returns the cause in a word, and the error short enough
// for logs.
func (i *Intake) NotTaken(err error) (cause, text string) {
	cause = i.count(err)
	if quota := (*resource.QuotaError)(nil); errors.As(err, &quota) {
		cause = quota.Quota
	}
	return cause, shortError(err)
}

// count counts an event that was not taken, and returns the reason.
func (i *Intake) count(err error) (reason string) {
	reason = "log"
	if r := rejectionOf(err); r != nil {
		reason = r.reason
	}
	i.metrics.rejected.WithLabelValues(reason).Inc()
	return reason
}
