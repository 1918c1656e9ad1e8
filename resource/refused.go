package resource

import (
	"fmt"
	"time"
)

// TooLargeError refuses something that is larger than can be stored at once.
type TooLargeError struct {
	What        string // for example "event" or "definition checks/disk"
	Size, Limit int    // bytes
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s has %d bytes, more than the %d bytes that can be stored", e.What, e.Size, e.Limit)
}

// QuotaError refuses something because its agent or namespace has used up a quota.
type QuotaError struct {
	Quota string // the name of the flag without its dashes
	Who   string // for example "agent web-1" or "namespace default"
	Limit int64
	After time.Duration // when to try again; 0 if only a deletion makes room
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("quota of %s is used up: --%s is %d", e.Who, e.Quota, e.Limit)
}
