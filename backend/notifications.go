package backend

import (
	"context"

	"github.com/lapwing-monitoring/lapwing/notification"
)

// finished is the place of a member that has no more notifications: no number is less.
const finished = 1

// notificationQuestion asks members for notifications. Places has where each member's page ends, by its id; nil for the
// first page.
type notificationQuestion struct {
	Query  notification.Query `json:"query"`
	Places map[string]uint64  `json:"places"`
}

// notificationsHere answers with a page of this member's notifications. A member without a place was not there when the
// list began, and has none.
func (v *clusterView) notificationsHere(ctx context.Context, q *notificationQuestion) (notification.Page, error) {
	query := q.Query
	if q.Places != nil {
		if query.Before = q.Places[v.members.Self()]; query.Before <= finished {
			return notification.Page{}, nil
		}
	}
	page, err := v.parts.sent.List(ctx, query)
	for i := range page.Notifications {
		page.Notifications[i].Member = v.name
	}
	return page, err
}

// Notifications implements api.Notifications. Each member keeps the notifications that it has sent.
func (v *clusterView) Notifications(ctx context.Context, q notification.Query, places map[string]uint64) (
	list []notification.Notification, next map[string]uint64, missing []string, err error,
) {
	question := &notificationQuestion{q, places}
	own, err := v.notificationsHere(ctx, question)
	if err != nil {
		return nil, nil, nil, err
	}
	all, err := askAll[notification.Page](ctx, v.members, questionNotifications, question)
	if err != nil {
		return nil, nil, nil, err
	}
	pages := map[string]notification.Page{v.members.Self(): own}
	next = map[string]uint64{}
	for _, one := range all {
		switch {
		case one.err != nil:
			missing = append(missing, one.whyNot())
			if place, ok := places[one.id]; ok {
				next[one.id] = place // it may answer the next time
			}
		case places != nil && places[one.id] == 0:
			missing = append(missing, one.name+" was not there when the list began")
		default:
			pages[one.id] = *one.answer
		}
	}
	list, after := notification.Join(q.Limit, pages)
	more := false
	for member, before := range after {
		more = more || before > 0
		next[member] = max(before, finished)
	}
	if !more {
		return list, nil, missing, nil
	}
	return list, next, missing, nil
}
