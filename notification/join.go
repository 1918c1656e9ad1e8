package notification

import "math"

// Join merges the pages of several members, each newest first, into one of at most limit notifications, newest first.
// It returns the Before of each member's following page, under the keys of pages; 0 if a member has no more.
//
// A page that ended early says nothing about what is older than it reached. So the list ends there, too, and each call
// gets a little further.
func Join(limit int, pages map[string]Page) (list []Notification, next map[string]uint64) {
	reached := int64(math.MinInt64)
	for _, p := range pages {
		if p.Next > 0 {
			reached = max(reached, p.Reached)
		}
	}
	list, next = []Notification{}, map[string]uint64{}
	taken := map[string]int{}
	for limit == 0 || len(list) < limit {
		newest := ""
		var best *Notification
		for member, p := range pages {
			if i := taken[member]; i < len(p.Notifications) {
				n := &p.Notifications[i]
				if best == nil || n.End() > best.End() || n.End() == best.End() && member > newest {
					newest, best = member, n
				}
			}
		}
		if best == nil || best.End() < reached {
			break
		}
		list = append(list, *best)
		taken[newest]++
	}
	for member, p := range pages {
		next[member] = p.Next
		if i := taken[member]; i < len(p.Notifications) {
			next[member] = p.Notifications[i].Number + 1
		}
	}
	return list, next
}
