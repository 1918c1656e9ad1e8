package api

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/internal/spreadsheet"
	"github.com/lapwing-monitoring/lapwing/notification"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/state"
)

// Notifications has the notification history of all backends.
type Notifications interface {
	// Notifications returns a page of the selected notifications, newest first, and where the next page begins at each
	// backend; next is nil behind the last page. missing has the backends whose notifications are missing, each with
	// the reason in words. q.Before is not used.
	Notifications(ctx context.Context, q notification.Query, places map[string]uint64) (
		list []notification.Notification, next map[string]uint64, missing []string, err error)
}

const (
	notificationPage    = 100
	notificationPageMax = 1000
)

// notificationResults are the results of attempts, as package send has them.
var notificationResults = []string{"ok", "failed", "timeout", "error"}

func (a *API) serveNotifications() {
	a.route(ours+"namespaces/{namespace}/notifications", access{resource: "events", labels: true},
		methods{http.MethodGet: a.listNotifications})
}

// listNotifications lists notifications, newest first, selected by ?since=, until=, entity=, check=, handler=,
// recipient=, result= and fieldSelector=. With ?format=csv or jsonl and without a limit it lists all of them. With a
// selector, a page may have less than its limit, even nothing.
func (a *API) listNotifications(w *response, r *request) error {
	q := r.URL.Query()
	query := notification.Query{
		Namespace: inNamespace(r), Entity: q.Get("entity"), Check: q.Get("check"), Handler: q.Get("handler"),
		Recipient: q.Get("recipient"), Result: q.Get("result"), Limit: notificationPage,
	}
	if query.Result != "" && !slices.Contains(notificationResults, query.Result) {
		return invalid("result must be %s, not %q", strings.Join(notificationResults, ", "), query.Result)
	}
	var err error
	if query.Since, err = instant(q.Get("since"), a.opts.Now()); err != nil {
		return err
	}
	if query.Until, err = instant(q.Get("until"), a.opts.Now()); err != nil {
		return err
	}
	format := q.Get("format")
	if !slices.Contains([]string{"", "json", "csv", "jsonl"}, format) {
		return invalid("format %q: it must be json, csv or jsonl", format)
	}
	asked, err := fieldsAsked(r, notification.Notification{})
	if err != nil {
		return err
	}
	now, p := a.opts.Now(), pageOf(r, nil)
	whole := p.limit == 0 && (format == "csv" || format == "jsonl")
	if whole {
		query.Limit = notificationPageMax
	} else if p.limit > 0 {
		query.Limit = min(p.limit, notificationPageMax)
	}
	places, err := parsePlaces(p.after)
	if err != nil {
		return err
	}
	reach := a.newNotificationReach(r)
	list, next, missing, err := a.notifications(r.Context(), query, places)
	if err != nil {
		return err
	}
	if len(list) == 0 && next == nil && query.Namespace != "" { // a deleted one may have some
		if err := a.needNamespace(query.Namespace); err != nil {
			return err
		}
	}
	for _, member := range missing {
		w.advise("notifications are missing: " + member)
	}
	token := ""
	if next != nil && !whole {
		token = formatPlaces(next)
	}
	out := newNotificationWriter(w, format, token)
	for {
		for i := range list {
			n := reach.limit(&list[i])
			if n != nil && query.Selects(n) && asked.MatchAt(selector.Resource(n), now) { // still, without the events of others
				if err := out.add(n); err != nil {
					return err
				}
			}
		}
		if next == nil || !whole {
			return out.finish()
		}
		known := missing
		if list, next, missing, err = a.notifications(r.Context(), query, next); err != nil {
			return err
		}
		if len(missing) > len(known) {
			return fmt.Errorf("export notifications: %s", strings.Join(missing, ", "))
		}
	}
}

func (a *API) notifications(ctx context.Context, q notification.Query, places map[string]uint64) (
	[]notification.Notification, map[string]uint64, []string, error,
) {
	if a.opts.Notifications == nil {
		return nil, nil, nil, nil
	}
	return a.opts.Notifications.Notifications(ctx, q, places)
}

// formatPlaces writes where the next page begins at each backend: ID:NUMBER, separated by commas.
func formatPlaces(places map[string]uint64) string {
	var b strings.Builder
	for i, member := range slices.Sorted(maps.Keys(places)) {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%s:%d", member, places[member])
	}
	return b.String()
}

func parsePlaces(token string) (map[string]uint64, error) {
	if token == "" {
		return nil, nil
	}
	places := map[string]uint64{}
	for part := range strings.SplitSeq(token, ",") {
		member, number, _ := strings.Cut(part, ":")
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil || member == "" || n == 0 {
			return nil, invalid("continue: not a token of this list")
		}
		places[member] = n
	}
	return places, nil
}

// notificationReach limits notifications to what a request's user may see.
type notificationReach struct {
	a     *API
	r     *request
	known map[state.Key]bool
}

func (a *API) newNotificationReach(r *request) *notificationReach {
	return &notificationReach{a, r, map[state.Key]bool{}}
}

// limit returns the part of a notification that the user may see, nil if there is none. Like a history, a notification
// outlives its event, and a role that is limited by labels reaches it only through the event. Of merged events it sees
// its own, and nothing that the receiver said about them all.
func (p *notificationReach) limit(n *notification.Notification) *notification.Notification {
	if p.r.permit.Selector() == nil {
		return n
	}
	if len(n.Merged) == 0 {
		if !p.sees(n.Namespace, n.Entity, n.Check) {
			return nil
		}
		return n
	}
	out := *n
	out.Merged = slices.DeleteFunc(slices.Clone(n.Merged), func(m notification.Merged) bool {
		return !p.sees(n.Namespace, m.Entity, m.Check)
	})
	if len(out.Merged) == 0 {
		return nil
	}
	if len(out.Merged) < n.Events {
		one := &out.Merged[0]
		out.ID, out.EventID, out.Entity, out.Check, out.Status = one.ID, delivery.EventIDOf(one.ID), one.Entity, one.Check, one.Status
		out.Events, out.Output, out.Error = len(out.Merged), "", ""
	}
	return &out
}

func (p *notificationReach) sees(namespace, entity, check string) bool {
	key := state.Key{Namespace: namespace, Entity: entity, Check: check}
	sees, ok := p.known[key]
	if !ok {
		ev, err := p.a.opts.State.Event(namespace, entity, check)
		sees = err == nil && p.r.permit.Selector().Match(selector.Event(ev))
		p.known[key] = sees
	}
	return sees
}

// notificationWriter writes notifications in one of the formats.
type notificationWriter struct {
	*array
	csv   *csv.Writer
	lines *json.Encoder
}

var notificationColumns = []string{
	"time", "namespace", "entity", "check", "status", "incident", "resolution", "handler", "type", "recipients", "result",
	"attempt", "final", "milliseconds", "events", "error", "output", "pipeline", "workflow", "delivery", "event", "member",
	"number",
}

func newNotificationWriter(w *response, format, next string) *notificationWriter {
	out := &notificationWriter{array: newArray(w, next)}
	switch format {
	case "csv":
		w.Header().Set("Content-Type", "text/csv; charset=utf-8")
		out.csv = csv.NewWriter(&out.buf)
		_ = out.csv.Write(notificationColumns) // to memory
	case "jsonl":
		w.Header().Set("Content-Type", "application/jsonl")
		out.lines = json.NewEncoder(&out.buf)
	}
	return out
}

func (l *notificationWriter) add(n *notification.Notification) error {
	switch {
	case l.csv != nil:
		if err := l.csv.Write(spreadsheet.Row(notificationRow(n))); err != nil {
			return fmt.Errorf("encode notification: %w", err)
		}
		l.csv.Flush()
	case l.lines != nil:
		if err := l.lines.Encode(resource.Plain(n)); err != nil {
			return fmt.Errorf("encode notification: %w", err)
		}
	default:
		return l.array.add(n)
	}
	if l.buf.Len() < sendAt {
		return nil
	}
	return l.send()
}

func (l *notificationWriter) finish() error {
	if l.csv == nil && l.lines == nil {
		return l.array.finish()
	}
	if l.csv != nil {
		l.csv.Flush()
	}
	return l.send()
}

func notificationRow(n *notification.Notification) []string {
	return []string{
		time.UnixMilli(n.At).UTC().Format("2006-01-02T15:04:05.000Z07:00"), n.Namespace, n.Entity, n.Check, fmt.Sprint(n.Status),
		strconv.FormatBool(n.Incident), strconv.FormatBool(n.Resolution), n.Handler, n.Type, strings.Join(n.Recipients, " "),
		n.Result, fmt.Sprint(n.Attempt), strconv.FormatBool(n.Final), fmt.Sprint(n.Millis), fmt.Sprint(n.Events), n.Error,
		n.Output, n.Pipeline, n.Workflow, n.ID, n.EventID, n.Member, fmt.Sprint(n.Number),
	}
}
