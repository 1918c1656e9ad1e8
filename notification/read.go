package notification

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Query selects notifications. Empty fields select all.
type Query struct {
	Namespace string `json:"namespace,omitempty"`
	// Since and Until bound when an attempt was over.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Entity and Check select notifications of an event, also of one that was merged with others.
	Entity  string `json:"entity,omitempty"`
	Check   string `json:"check,omitempty"`
	Handler string `json:"handler,omitempty"`
	// Recipient is a part of a recipient, in any case.
	Recipient string `json:"recipient,omitempty"`
	Result    string `json:"result,omitempty"`
	// Limit is how many notifications a page has at most, 0 for all that fit; Before is the Next of the page before.
	Limit  int    `json:"limit,omitempty"`
	Before uint64 `json:"before,omitempty"`
}

// Page is a page of a list, newest first.
type Page struct {
	Notifications []Notification `json:"notifications"`
	// Next is the Before of the following page, 0 if there is none. A page before the last one may have fewer than
	// Limit notifications, even none.
	Next uint64 `json:"next,omitempty"`
	// Reached is when the oldest of the notifications that were looked at was over, Unix milliseconds.
	Reached int64 `json:"reached,omitempty"`
}

const (
	// maxScanned and maxPageBytes bound the work for a page, and its size. A member's answer must fit into the bus.
	maxScanned   = 50_000
	maxPageBytes = 3 << 20
	// jitter is how much later a notification may be recorded than one that was over later.
	jitter = time.Minute
)

// List returns the newest selected notifications before those of earlier pages.
func (s *Store) List(ctx context.Context, q Query) (page Page, err error) {
	from, to, err := s.span(&q)
	if err != nil {
		return Page{}, err
	}
	it, err := s.opts.DB.NewIter(&pebble.IterOptions{LowerBound: recordKey(from), UpperBound: recordKey(to)})
	if err != nil {
		return Page{}, fmt.Errorf("list notifications: %w", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	page.Notifications = []Notification{}
	scanned, bytes := 0, 0
	for ok := it.Last(); ok; ok = it.Prev() {
		full := q.Limit > 0 && len(page.Notifications) == q.Limit
		if full || scanned == maxScanned || bytes >= maxPageBytes {
			page.Next = numberOf(it.Key()) + 1
			break
		}
		if scanned++; scanned%1000 == 0 && ctx.Err() != nil {
			return Page{}, ctx.Err()
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return Page{}, fmt.Errorf("list notifications: %w", err)
		}
		n, ok := s.decode(it.Key(), value)
		if !ok {
			continue
		}
		page.Reached = min(cmp.Or(page.Reached, n.End()), n.End())
		if !q.Since.IsZero() && n.End() < q.Since.Add(-jitter).UnixMilli() {
			break
		}
		if q.Selects(&n) {
			page.Notifications = append(page.Notifications, n)
			bytes += len(value)
		}
	}
	if err := it.Error(); err != nil {
		return Page{}, fmt.Errorf("list notifications: %w", err)
	}
	return page, nil
}

// span returns the numbers that a query is about, from the first one to the one behind the last. It writes the queue
// first.
func (s *Store) span(q *Query) (from, to uint64, err error) {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	if err := s.flush(); err != nil {
		return 0, 0, err
	}
	from, to = s.generations[0].first, s.present().last+1
	if q.Before > 0 {
		to = min(to, q.Before)
	}
	for _, g := range s.generations {
		if !q.Since.IsZero() && g.newest < q.Since.Add(-jitter).UnixMilli() {
			from = g.last + 1
		}
		if !q.Until.IsZero() && g.began > q.Until.Add(jitter).UnixMilli() {
			to = min(to, g.first)
		}
	}
	return min(from, to), to, nil
}

// Selects reports whether a query selects a notification, whatever page it is on.
func (q *Query) Selects(n *Notification) bool {
	end := n.End()
	return (q.Namespace == "" || n.Namespace == q.Namespace) &&
		(q.Since.IsZero() || end >= q.Since.UnixMilli()) && (q.Until.IsZero() || end <= q.Until.UnixMilli()) &&
		(q.Handler == "" || n.Handler == q.Handler) && (q.Result == "" || n.Result == q.Result) &&
		(q.of(n.Entity, n.Check) || slices.ContainsFunc(n.Merged, func(m Merged) bool { return q.of(m.Entity, m.Check) })) &&
		(q.Recipient == "" || slices.ContainsFunc(n.Recipients, func(r string) bool {
			return strings.Contains(strings.ToLower(r), strings.ToLower(q.Recipient))
		}))
}

func (q *Query) of(entity, check string) bool {
	return (q.Entity == "" || entity == q.Entity) && (q.Check == "" || check == q.Check)
}

// After returns up to limit notifications that follow a number, the oldest first. It returns only those that no crash
// can lose, so a number that a follower has seen is never given to another notification.
func (s *Store) After(number uint64, limit int) (list []Notification, err error) {
	if number >= s.Newest() {
		return nil, nil
	}
	it, err := s.opts.DB.NewIter(&pebble.IterOptions{LowerBound: recordKey(number + 1), UpperBound: recordKey(s.Newest() + 1)})
	if err != nil {
		return nil, fmt.Errorf("read notifications after %d: %w", number, err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok && len(list) < limit; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return nil, fmt.Errorf("read notifications after %d: %w", number, err)
		}
		if n, ok := s.decode(it.Key(), value); ok {
			list = append(list, n)
		}
	}
	return list, it.Error()
}

// Newest returns the number of the newest notification that no crash can lose, 0 if there has been none.
func (s *Store) Newest() uint64 {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	return s.durable
}

// Oldest returns the number of the oldest notification that is kept, or of the next one if there is none.
func (s *Store) Oldest() uint64 {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	return s.generations[0].first
}

// decode returns false for a notification that cannot be read.
func (s *Store) decode(key, value []byte) (Notification, bool) {
	var n Notification
	if err := json.Unmarshal(value, &n); err != nil {
		s.log.Error("notification cannot be read", "number", numberOf(key), "err", err)
		return n, false
	}
	return n, true
}
