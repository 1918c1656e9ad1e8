package resource

import (
	"fmt"
	"time"
)

// TooLargeError says that something is refused because it is larger than what can be stored at once.
type TooLargeError struct {
	What        string // such as "event" or "definition checks/disk"
	Size, Limit int    // bytes
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s has %d bytes, more than the %d bytes that can be stored", e.What, e.Size, e.Limit)
}

// QuotaError says that something is refused because a quota of its agent or namespace is used up.
type QuotaError struct {
	Quota string // the name of the flag without its dashes
	Who   string // such as "agent web-1" or "namespace default"
	Limit int64
	After time.Duration // when to try again; 0 if room comes only when something is deleted
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("quota of %s is used up: --%s is %d", e.Who, e.Quota, e.Limit)
}
