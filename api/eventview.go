package api

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/fleet"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
	"github.com/lapwing-monitoring/lapwing/view"
)

const (
	// viewRows is how many rows a window has if the client does not say, and maxViewRows how many at most.
	viewRows, maxViewRows = 100, 500
	// viewEvery is the shortest time between two messages of a live window.
	viewEvery = 250 * time.Millisecond
	// viewOutput bounds the output of a row, in bytes.
	viewOutput = 300
)

// EventViews keeps the live lists of events.
type EventViews interface {
	Open(view.Query) (*view.Reader, error)
}

// eventCounts has the number of events of each class. An incident that is silenced or acknowledged counts as silenced only.
type eventCounts struct {
	Critical int `json:"critical"`
	Warning  int `json:"warning"`
	Unknown  int `json:"unknown"`
	Silenced int `json:"silenced"`
	OK       int `json:"ok"`
	Total    int `json:"total"`
}

func countsOf(c view.Counts) eventCounts {
	return eventCounts{c[view.Critical], c[view.Warning], c[view.Unknown], c[view.Silenced], c[view.OK], c.Total()}
}

// eventRow is an event as a list shows it.
type eventRow struct {
	Namespace string `json:"namespace"`
	Entity    string `json:"entity"`
	Check     string `json:"check"`
	Status    uint32 `json:"status"`
	State     string `json:"state"` // passing, failing or flapping
	// Since is when the check became OK or stopped being OK, in Unix seconds; 0 if that is longer ago than its history.
	Since       int64    `json:"since"`
	Occurrences int64    `json:"occurrences"`
	LastOK      int64    `json:"last_ok"`   // Unix seconds; 0 if never
	Timestamp   int64    `json:"timestamp"` // of the newest result, Unix seconds
	Interval    uint32   `json:"interval"`  // seconds; 0 without one
	Output      string   `json:"output"`    // its first line, shortened
	History     []uint32 `json:"history"`   // the statuses of the last results, the oldest first
	Silenced    []string `json:"silenced"`  // the silences that apply
	// AcknowledgedBy is the user who acknowledged the incident; "" if there is none, or if you may not list silences.
	AcknowledgedBy string `json:"acknowledged_by,omitempty"`
}

// eventGroup has the number of events in a group.
type eventGroup struct {
	Value  string      `json:"value"`
	Counts eventCounts `json:"counts"`
}

// eventWindow is a part of a list of events. In a stream, each message has what differs from the one before.
type eventWindow struct {
	Counts eventCounts `json:"counts"` // of all events of the list
	Offset int         `json:"offset"`
	// Order has the keys of the rows from the offset on: namespace/entity/check. In a stream it is there if it has changed.
	Order []string `json:"order,omitzero"`
	// Rows has the events of the window and of also; in a stream those that have changed, also if they have left the window.
	Rows []eventRow `json:"rows,omitempty"`
	// Gone has the keys of those events that the list no longer has, of also and of those that have left the window.
	Gone []string `json:"gone,omitempty"`
	// Groups and Group are there for a list with groups: how many there are, and those of the window, the worst first.
	Groups int          `json:"groups,omitempty"`
	Group  []eventGroup `json:"group,omitzero"`
	// Place is the place of the event in find in the order, from 0; -1 if the list does not have it.
	Place *int `json:"place,omitempty"`
}

func (a *API) serveEventView() {
	if a.opts.Views == nil {
		return
	}
	const path = "/api/lapwing/v1/namespaces/{namespace}/events/view"
	a.route(path, streamAccess, methods{http.MethodGet: a.viewEvents})
	a.route(path+"/stream", streamAccess, methods{http.MethodGet: a.streamView})
}

// viewRequest is what a request asks of a list.
type viewRequest struct {
	query view.Query
	rows  view.Range
	also  []state.Key
	find  *state.Key
	acks  bool // the user may see acknowledgements
	whole bool // the user may see all events of the namespace
}

func (a *API) viewRequestOf(r *request) (*viewRequest, error) {
	p := pageOf(r, (*resource.Event)(nil))
	if p.err != nil {
		return nil, p.err
	}
	q := r.URL.Query()
	namespace := streamAccess.attributes(r).Namespace
	text, err := selectorText(r)
	if err != nil {
		return nil, err
	}
	v := &viewRequest{
		query: view.Query{Namespace: namespace, Selector: p.selector, Text: text, Owner: r.user.User},
		acks:  a.mayList(r.user, config.Silences.String(), namespace),
		whole: r.permit.Whole(),
	}
	if v.query.Order, err = view.ParseOrder(cmp.Or(q.Get("sort"), "severity")); err != nil {
		return nil, invalid("sort: %v", err)
	}
	if v.query.Group, err = view.ParseGroup(q.Get("groupBy")); err != nil {
		return nil, invalid("groupBy: %v", err)
	}
	if v.rows, err = rangeIn(q); err != nil {
		return nil, err
	}
	for _, text := range q["also"] {
		at, ok := keyOfText(text)
		if !ok {
			return nil, invalid("also must be namespace/entity/check, not %q", resource.Short(text))
		}
		if v.also = append(v.also, at); len(v.also) > maxViewRows {
			return nil, invalid("also may name %d events at most", maxViewRows)
		}
	}
	if text := q.Get("find"); text != "" {
		at, ok := keyOfText(text)
		if !ok {
			return nil, invalid("find must be namespace/entity/check, not %q", resource.Short(text))
		}
		v.find = &at
	}
	return v, nil
}

// selectorText tells apart the selectors of requests, with what the user's role adds.
func selectorText(r *request) (string, error) {
	q := r.URL.Query()
	text, err := json.Marshal([][]string{q["labelSelector"], q["fieldSelector"], r.permit.Labels()})
	if err != nil {
		return "", fmt.Errorf("encode selectors: %w", err)
	}
	return string(text), nil
}

// rangeIn reads which rows a request asks for.
func rangeIn(q url.Values) (rows view.Range, err error) {
	if rows.Offset, err = countIn(q.Get("offset"), 0, 1<<31-1); err != nil {
		return rows, invalid("offset %v", err)
	}
	if rows.Limit, err = countIn(q.Get("limit"), viewRows, maxViewRows); err != nil {
		return rows, invalid("limit %v", err)
	}
	return rows, nil
}

// countIn reads a number of things; "" is without.
func countIn(text string, without, most int) (int, error) {
	if text == "" {
		return without, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > most {
		return 0, fmt.Errorf("must be a number from 0 to %d, not %q", most, resource.Short(text))
	}
	return n, nil
}

func keyOfText(text string) (state.Key, bool) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 || slices.Contains(parts, "") {
		return state.Key{}, false
	}
	return state.Key{Namespace: parts[0], Entity: parts[1], Check: parts[2]}, true
}

func keyText(k state.Key) string { return k.Namespace + "/" + k.Entity + "/" + k.Check }

// openView returns a reader of the list that a request asks for. The caller must close it.
func (a *API) openView(v *viewRequest) (*view.Reader, error) {
	reader, err := a.opts.Views.Open(v.query)
	if err != nil {
		return nil, viewError(err)
	}
	return reader, nil
}

// viewError is the answer for an error of a list.
func viewError(err error) error {
	if errors.Is(err, view.ErrTooMany) || errors.Is(err, view.ErrStopped) || errors.Is(err, fleet.ErrTooMany) || errors.Is(err, fleet.ErrStopped) {
		return &apiError{status: http.StatusServiceUnavailable, code: codeInternal, message: err.Error()}
	}
	return err
}

// viewEvents answers with a window of a list.
func (a *API) viewEvents(w *response, r *request) error {
	v, err := a.viewRequestOf(r)
	if err != nil {
		return err
	}
	reader, err := a.openView(v)
	if err != nil {
		return err
	}
	defer reader.Close()
	if err := reader.Ready(r.Context()); err != nil {
		return viewError(err)
	}
	shown := newShownWindow(a, v)
	out, err := shown.next(reader)
	if err != nil {
		return err
	}
	return w.object(out)
}

// streamView sends a window of a list, and what changes in it, as server-sent events. Messages are "window", with what
// differs, and at the end "failed", with a message, if the list cannot go on. A comment every 5 s shows that the backend lives.
func (a *API) streamView(w *response, r *request) error {
	v, err := a.viewRequestOf(r)
	if err != nil {
		return err
	}
	reader, err := a.openView(v)
	if err != nil {
		return err
	}
	defer reader.Close()
	shown := newShownWindow(a, v)
	return a.streamWindows(w, r, streamAccess, liveWindow{
		changed: reader.Changed, err: reader.Err, every: viewEvery,
		may: func() bool { return v.acks == a.mayList(r.user, config.Silences.String(), v.query.Namespace) },
		next: func() (any, error) {
			if !reader.Made() {
				return nil, nil
			}
			if out, err := shown.next(reader); out != nil || err != nil {
				return out, err
			}
			return nil, nil
		},
	})
}

// liveWindow is a window that a stream sends whenever it has changed.
type liveWindow struct {
	changed func() <-chan struct{} // closed when the list changes after the call, or ends
	err     func() error           // why the list has ended
	next    func() (any, error)    // what the client does not have yet; nil if that is nothing
	every   time.Duration          // the shortest time between two messages
	may     func() bool            // the user has the rights of the start beside those of the path
}

// streamWindows sends a window until the client or the list is gone.
func (a *API) streamWindows(w *response, r *request, may access, live liveWindow) error {
	end, err := a.beginStream(r)
	if err != nil {
		return err
	}
	defer end()
	s := newEventStream(a, w, r)
	if err := s.flush(); err != nil {
		return over(err)
	}
	return over(a.followWindow(r, may.attributes(r), live, s))
}

// followWindow sends the changes of a window until the client or the list is gone.
func (a *API) followWindow(r *request, attributes auth.Attributes, live liveWindow, s *eventStream) error {
	beat := time.NewTicker(a.heartbeat)
	defer beat.Stop()
	pause := time.NewTimer(0) // until the next message may be sent
	defer pause.Stop()
	var changed <-chan struct{} // nil while paused
	for {
		select {
		case <-pause.C:
			changed = live.changed()
			if err := s.window(live); err != nil {
				return err
			}
		case <-changed:
			changed = nil
			pause.Reset(live.every)
		case <-beat.C:
			if !a.stillMay(r, attributes) || !live.may() {
				return errStreamOver // the client opens it again, and gets what it may see then
			}
			s.buf.WriteString(": \n\n")
			if err := s.flush(); err != nil {
				return err
			}
		case <-s.gone:
			return errStreamOver
		case <-a.stopping:
			return errStreamOver
		}
	}
}

// window sends what has changed in a window.
func (s *eventStream) window(live liveWindow) error {
	if err := live.err(); err != nil {
		data, encodeErr := encode(map[string]string{"message": err.Error()})
		if encodeErr != nil {
			return encodeErr
		}
		s.message("failed", data)
		return errors.Join(s.flush(), errStreamOver)
	}
	out, err := live.next()
	if err != nil || out == nil {
		return err
	}
	data, err := encode(out)
	if err != nil {
		return err
	}
	s.message("window", data)
	return s.flush()
}

// shownWindow knows what a client has of a window. A client may hold the rows where they are while the list changes, so it
// gets further changes of the rows that have left the window lately, too.
type shownWindow struct {
	api      *API
	request  *viewRequest
	begun    bool
	counts   view.Counts
	order    []state.Key
	left     []state.Key          // rows that have left the window, the newest last
	versions map[state.Key]uint64 // of the rows
	gone     map[state.Key]bool   // those of also that the list does not have
	groups   []view.GroupCounts
	place    int
}

func newShownWindow(a *API, v *viewRequest) *shownWindow {
	return &shownWindow{api: a, request: v, versions: map[state.Key]uint64{}, gone: map[state.Key]bool{}, place: -2}
}

// next returns what the client does not have yet; nil if that is nothing.
func (s *shownWindow) next(reader *view.Reader) (*eventWindow, error) {
	v := s.request
	out := &eventWindow{Offset: v.rows.Offset}
	changed := !s.begun
	if v.query.Group.Grouped() {
		w := reader.Groups(v.rows)
		out.Counts, out.Groups = countsOf(w.Counts), w.Groups
		if changed = changed || w.Counts != s.counts || !slices.Equal(w.Group, s.groups); changed {
			out.Group = []eventGroup{}
			for _, g := range w.Group {
				out.Group = append(out.Group, eventGroup{g.Value, countsOf(g.Counts)})
			}
		}
		s.counts, s.groups = w.Counts, w.Group
	} else {
		w := reader.Window(v.rows, slices.Concat(v.also, s.left, s.order))
		out.Counts = countsOf(w.Counts)
		changed = changed || w.Counts != s.counts
		s.counts = w.Counts
		if err := s.rows(out, &w); err != nil {
			return nil, err
		}
		changed = changed || out.Order != nil || len(out.Rows)+len(out.Gone) > 0
	}
	if v.find != nil {
		place, ok := reader.Place(*v.find)
		if !ok {
			place = -1
		}
		if place != s.place {
			s.place, out.Place, changed = place, &place, true
		}
	}
	s.begun = true
	if !changed {
		return nil, nil
	}
	return out, nil
}

// rows adds the order if it has changed, the rows that have changed, and the keys that are gone.
func (s *shownWindow) rows(out *eventWindow, w *view.Window) error {
	order := make([]state.Key, 0, len(w.Rows))
	known := make(map[state.Key]uint64, len(w.Rows)+len(w.Also))
	for i, row := range slices.Concat(w.Rows, w.Also) {
		if i < len(w.Rows) {
			order = append(order, row.Key)
		}
		if _, double := known[row.Key]; double {
			continue
		}
		known[row.Key] = row.Version
		if s.versions[row.Key] != row.Version {
			if err := s.add(out, row.Key); err != nil {
				return err
			}
		}
	}
	if !s.begun || !slices.Equal(order, s.order) {
		out.Order = make([]string, len(order))
		for i, at := range order {
			out.Order[i] = keyText(at)
		}
	}
	if err := s.leave(out, order, known); err != nil {
		return err
	}
	s.order, s.versions = order, known
	return nil
}

// leave notes which rows have left the window, and adds the keys of those that the list no longer has, with their rows as they
// are now.
func (s *shownWindow) leave(out *eventWindow, order []state.Key, known map[state.Key]uint64) error {
	inside := make(map[state.Key]bool, len(order))
	for _, at := range order {
		inside[at] = true
	}
	var left []state.Key
	for _, at := range slices.Concat(s.left, s.order) {
		if inside[at] || slices.Contains(s.request.also, at) {
			continue
		}
		if _, there := known[at]; there {
			left = append(left, at)
			continue
		}
		out.Gone = append(out.Gone, keyText(at))
		if !s.request.whole { // it may have left what the user may see
			continue
		}
		if err := s.add(out, at); err != nil {
			return err
		}
	}
	s.left = left[max(0, len(left)-maxViewRows):]
	for _, at := range s.request.also {
		_, there := known[at]
		if !there && !s.gone[at] {
			out.Gone = append(out.Gone, keyText(at))
		}
		s.gone[at] = !there
	}
	return nil
}

// add adds an event's row, unless the event was deleted.
func (s *shownWindow) add(out *eventWindow, at state.Key) error {
	row, err := s.row(at)
	if errors.Is(err, state.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	out.Rows = append(out.Rows, *row)
	return nil
}

// row reads an event for a list.
func (s *shownWindow) row(at state.Key) (*eventRow, error) {
	ev, err := s.api.opts.State.Event(at.Namespace, at.Entity, at.Check)
	if err != nil {
		return nil, err
	}
	c := ev.Check
	if c == nil {
		return nil, state.ErrNotFound
	}
	row := &eventRow{
		Namespace: at.Namespace, Entity: at.Entity, Check: at.Check, Status: c.Status, State: c.State,
		Since: state.SinceOf(c), Occurrences: c.Occurrences, LastOK: c.LastOK, Timestamp: ev.Timestamp, Interval: c.Interval,
		Output: firstLine(c.Output), History: make([]uint32, 0, len(c.History)), Silenced: c.Silenced,
	}
	if row.Silenced == nil {
		row.Silenced = []string{}
	}
	for _, h := range c.History {
		row.History = append(row.History, h.Status)
	}
	if s.request.acks && c.Status != 0 {
		one, ok := config.Get(s.api.opts.Config.Snapshot(), config.Silences, at.Namespace, ackName(at))
		if ok && one.Acknowledgement && !one.Expired(s.api.opts.Now()) {
			row.AcknowledgedBy = one.Creator
		}
	}
	return row, nil
}

// firstLine returns the first line of an output that is not empty, shortened.
func firstLine(output string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(output), "\n")
	return shortened(strings.TrimSpace(line), viewOutput)
}

// shortened returns a text, cut after so many bytes.
func shortened(text string, most int) string {
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
