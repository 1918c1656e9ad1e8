package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
)

// NotificationOptions selects notifications. Empty fields select all.
type NotificationOptions struct {
	Entity, Check, Handler string
	// Recipient is a part of a recipient's name.
	Recipient string
	// Result is ok, failed, timeout or error.
	Result string
	// Since and Until are times in RFC 3339, in Unix seconds, or how long ago.
	Since, Until string
	// FieldSelector selects by fields such as notification.handler. Only lapwing knows it.
	FieldSelector string
}

// maxNotificationPage is the largest page that the server sends.
const maxNotificationPage = 1000

// Notifications lists up to limit notifications of a namespace, "" for all, newest first. A limit of 0 is no limit.
func (c *Client) Notifications(
	ctx context.Context, namespace string, opts NotificationOptions, limit int,
) iter.Seq2[*Notification, error] {
	return func(yield func(*Notification, error) bool) {
		if namespace == "" {
			namespace = "-"
		}
		q := url.Values{}
		for name, value := range map[string]string{
			"entity": opts.Entity, "check": opts.Check, "handler": opts.Handler, "recipient": opts.Recipient, "result": opts.Result,
			"since": opts.Since, "until": opts.Until, "fieldSelector": opts.FieldSelector,
		} {
			if value != "" {
				q.Set(name, value)
			}
		}
		for left := limit; limit == 0 || left > 0; {
			size := maxNotificationPage
			if limit > 0 && opts.FieldSelector == "" { // with a selector, a page has what is left of that many
				size = min(size, left)
			}
			q.Set("limit", strconv.Itoa(size))
			var page []Notification
			path := ours + escape(namespace) + "/notifications?" + q.Encode()
			header, err := c.do(ctx, request{method: http.MethodGet, path: path, out: &page})
			if err != nil {
				yield(nil, fmt.Errorf("list notifications: %w", err))
				return
			}
			if limit > 0 {
				page = page[:min(len(page), left)]
			}
			for i := range page {
				if !yield(&page[i], nil) {
					return
				}
			}
			left -= len(page)
			next := header.Get("Sensu-Continue")
			if next == "" {
				return
			}
			q.Set("continue", next)
		}
	}
}
