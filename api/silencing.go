package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/silence"
	"github.com/lapwing-monitoring/lapwing/state"
)

const (
	// previewListed bounds the events in a preview, previewSpans the times, and previewSpansUntil those until a given time.
	previewListed     = 100
	previewSpans      = 5
	previewSpansUntil = 200
)

// silencePreview is the effect that a silence would have.
type silencePreview struct {
	Events   int            `json:"events"`   // number of events it silences now
	Failing  int            `json:"failing"`  // number of failing ones
	Entities int            `json:"entities"` // number of their entities
	Holds    bool           `json:"holds"`    // it applies at this moment
	Spans    []previewSpan  `json:"spans"`    // the next times at which it applies
	Listed   []previewEvent `json:"listed"`   // the first of the events; failing events come first
}

// previewSpan is in Unix seconds; an end of 0 is none.
type previewSpan struct {
	Begins int64 `json:"begins"`
	Ends   int64 `json:"ends"`
}

// previewEvent is one of the events that a silence would silence.
type previewEvent struct {
	Entity   string   `json:"entity"`
	Check    string   `json:"check"`
	Status   uint32   `json:"status"`
	Silenced []string `json:"silenced"` // names of the silences that silence it already
}

var incidents, _ = selector.Parse("", "event.is_incident == true") // a constant, and valid

// preview answers with the events and times of a silence that does not exist yet, as far as the user may see them.
func (s *silences) preview(w *response, r *request) error {
	one := new(resource.Silenced)
	if err := s.api.decode(w, r, one); err != nil {
		return err
	}
	err := s.complete(r.act, one, "preview")
	w.warn(r.warning)
	if err != nil {
		return err
	}
	rule, err := s.compile(one)
	if err != nil {
		return err
	}
	namespace, now := one.Metadata.Namespace, s.api.opts.Now()
	spans, err := spansAsked(r, rule, now)
	if err != nil {
		return err
	}
	permit := s.api.opts.Auth.Permit(r.user, auth.Attributes{Verb: "list", Resource: "events", Namespace: namespace})
	if permit.Denied() {
		return lacks("list", "events")
	}
	covers := func(e *resource.Silenceable) bool { return rule.Covers(e, now) }
	query := state.Query{Namespace: namespace, Selector: permit.Selector(), Where: covers}
	query.Entity, _ = silence.EntityOf(one)
	all, err := s.api.opts.State.Select(r.Context(), query)
	if err != nil {
		return err
	}
	query.Selector = selector.All(permit.Selector(), incidents)
	failing, err := s.api.opts.State.Select(r.Context(), query)
	if err != nil {
		return err
	}
	out := silencePreview{Events: all.Len(), Failing: failing.Len(), Holds: rule.Holds(now), Spans: spans,
		Listed: []previewEvent{}}
	last := ""
	for key := range all.Keys() { // they are in order
		if key.Entity != last {
			out.Entities++
			last = key.Entity
		}
	}
	if out.Events == 0 {
		query.Selector, query.Where, query.Entity = permit.Selector(), nil, ""
		events, err := s.api.opts.State.Select(r.Context(), query)
		if err != nil {
			return err
		}
		texts := s.unknownNames(r.user, one, events)
		if r.warning != "" {
			texts = append([]string{r.warning}, texts...)
		}
		w.warn(strings.Join(texts, "; "))
	}
	for _, found := range []struct {
		page *state.Page
		fail bool
	}{{failing, true}, {all, false}} {
		if err := out.list(found.page, found.fail); err != nil {
			return err
		}
	}
	return w.object(&out)
}

// spansAsked returns the next times of a silence, or those from since to until of the request. One that goes on at since
// begins then.
func spansAsked(r *request, rule *silence.Rule, now time.Time) ([]previewSpan, error) {
	q := r.URL.Query()
	from, err := instant(q.Get("since"), now)
	if err != nil {
		return nil, err
	}
	if from.IsZero() {
		from = now
	}
	until, err := instant(q.Get("until"), now)
	if err != nil {
		return nil, err
	}
	most := previewSpans
	if !until.IsZero() {
		most = previewSpansUntil
	}
	spans := []previewSpan{}
	for _, span := range rule.Spans(from, most) {
		if !until.IsZero() && !span.Begins.Before(until) {
			break
		}
		told := previewSpan{Begins: span.Begins.Unix()}
		if !span.Ends.IsZero() {
			told.Ends = span.Ends.Unix()
		}
		spans = append(spans, told)
	}
	return spans, nil
}

// list adds the failing events of a page, or the others.
func (p *silencePreview) list(page *state.Page, failing bool) error {
	if len(p.Listed) >= previewListed {
		return nil
	}
	read := 0
	for ev, err := range page.Events() {
		if err != nil {
			return err
		}
		if read++; ev.IsIncident() == failing {
			p.Listed = append(p.Listed, previewEvent{
				Entity: ev.Entity.Metadata.Name, Check: ev.Check.Metadata.Name, Status: ev.Check.Status,
				Silenced: append([]string{}, ev.Check.Silenced...),
			})
		}
		if len(p.Listed) >= previewListed || read >= 2*previewListed {
			break
		}
	}
	return nil
}

// acknowledgement says that its user works on an event.
type acknowledgement struct {
	Comment string            `json:"comment"`
	Expire  int64             `json:"expire"` // seconds until it ends, resolved or not; 0 means never
	Labels  map[string]string `json:"labels"` // of the silence
}

// ackName returns the name of the silence that acknowledges an event.
func ackName(key state.Key) string {
	return resource.SilencedName(resource.EntitySubscription(key.Entity), key.Check)
}

func (s *silences) acknowledge(w *response, r *request) error {
	var said acknowledgement
	if err := s.api.decodeAction(w, r, &said); err != nil {
		return err
	}
	err := s.ack(r.Context(), r.act, pathKey(r), &said)
	return w.written(r, http.StatusCreated, err)
}

// ack silences a failing event until it resolves. It replaces an existing acknowledgement.
func (s *silences) ack(ctx context.Context, t *act, key state.Key, said *acknowledgement) error {
	if said.Comment == "" {
		return invalid("comment must not be empty")
	}
	if said.Expire < 0 {
		return invalid("expire must not be negative")
	}
	if err := s.failing(t.user, key); err != nil {
		return err
	}
	one, err := s.newAck(t.user.User, key, said)
	if err != nil {
		return err
	}
	s.limit(t, one)
	if !s.mine(t, one) {
		return s.outOfReach(t, one)
	}
	failing := func() error { return s.failing(t.user, key) }
	return s.keepAck(ctx, one, failing, func(old *resource.Silenced) error {
		if !s.mine(t, old) {
			return taken(t)
		}
		return nil
	})
}

// newAck makes the silence of an acknowledgement.
func (s *silences) newAck(user string, key state.Key, said *acknowledgement) (*resource.Silenced, error) {
	one := &resource.Silenced{
		Metadata:     resource.ObjectMeta{Namespace: key.Namespace, Name: ackName(key), Labels: said.Labels, CreatedBy: user},
		Subscription: resource.EntitySubscription(key.Entity), Check: key.Check,
		Reason: said.Comment, Creator: user, Expire: cmp.Or(said.Expire, -1),
		ExpireOnResolve: true, PassResolve: true, Acknowledgement: true,
	}
	return one, s.schedule(one, nil)
}

// keepAck writes an acknowledgement, and takes it back if the event does not fail any more: a result may have resolved it
// before the acknowledgement existed. mine returns why the user may not replace another acknowledgement, or nil.
func (s *silences) keepAck(
	ctx context.Context, one *resource.Silenced, failing func() error, mine func(old *resource.Silenced) error,
) error {
	if err := s.putAck(ctx, one, mine); err != nil {
		return err
	}
	err := failing()
	if err == nil {
		return nil
	}
	same := func(there *resource.Silenced) bool { return there.Acknowledgement && there.Begin == one.Begin }
	gone := config.DeleteIf(ctx, s.api.opts.Config, s.Kind, one.Metadata.Namespace, one.Metadata.Name, same)
	if gone != nil && !errors.Is(gone, config.ErrNotFound) {
		return gone
	}
	return err
}

// putAck writes an acknowledgement, unless another silence has its name.
func (s *silences) putAck(ctx context.Context, one *resource.Silenced, mine func(old *resource.Silenced) error) error {
	err := config.Create(ctx, s.api.opts.Config, s.Kind, one)
	if !errors.Is(err, config.ErrExists) {
		return err
	}
	name := one.Metadata.Name
	replace := func(old *resource.Silenced) (*resource.Silenced, error) {
		if old.Expired(s.api.opts.Now()) {
			return one, nil
		}
		if err := mine(old); err != nil {
			return nil, err
		}
		if !old.Acknowledgement {
			return nil, &apiError{status: http.StatusConflict, code: codeExists,
				message: fmt.Sprintf("it is silenced already, by %s", name)}
		}
		return one, nil
	}
	_, err = config.Update(ctx, s.api.opts.Config, s.Kind, one.Metadata.Namespace, name, replace)
	return err
}

// failing refuses an event that does not fail or that the user may not see.
func (s *silences) failing(user *auth.Identity, key state.Key) error {
	name := key.Entity + "/" + key.Check
	permit := s.api.opts.Auth.Permit(user, auth.Attributes{Verb: "get", Resource: "events", Namespace: key.Namespace, Name: name})
	if permit.Denied() {
		return lacks("get", "events")
	}
	ev, err := s.api.opts.State.Event(key.Namespace, key.Entity, key.Check)
	if err != nil {
		return err
	}
	if !permit.Selector().Match(selector.Event(ev)) {
		return errNotFound
	}
	if !ev.IsIncident() {
		return &apiError{status: http.StatusConflict, code: codePrecondition,
			message: fmt.Sprintf("%s does not fail: there is nothing to acknowledge", name)}
	}
	return nil
}

func (s *silences) unacknowledge(w *response, r *request) error {
	if err := s.unack(r.Context(), r.act, pathKey(r)); err != nil {
		return err
	}
	return w.empty(http.StatusNoContent)
}

func (s *silences) unack(ctx context.Context, t *act, key state.Key) error {
	return config.DeleteIf(ctx, s.api.opts.Config, s.Kind, key.Namespace, ackName(key), func(one *resource.Silenced) bool {
		return one.Acknowledgement && !one.Expired(s.api.opts.Now()) && s.mine(t, one)
	})
}

// purgeRequest asks for the deletion of the silences of entities that are gone.
type purgeRequest struct {
	DryRun bool `json:"dry_run"` // only list them
}

// purgeReport lists silences that were deleted, or would be, and counts silences that the user may not delete.
type purgeReport struct {
	Silences []purgedSilence `json:"silences"`
	Denied   int             `json:"denied"`
}

// purgedSilence is the name of a silence that was deleted, or would be.
type purgedSilence struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// purge deletes the silences of entities that are gone.
func (s *silences) purge(w *response, r *request) error {
	var req purgeRequest
	if err := s.api.decodeAction(w, r, &req); err != nil {
		return err
	}
	namespace := r.PathValue("namespace")
	if namespace == allNamespaces {
		namespace = ""
	}
	if s.api.opts.Auth.Permit(r.user, auth.Attributes{Verb: "list", Resource: "silenced", Namespace: namespace}).Denied() {
		return lacks("list", "silenced")
	}
	out := purgeReport{Silences: []purgedSilence{}}
	for one := range silence.Orphans(s.api.opts.Config.Snapshot(), namespace) {
		m := &one.Metadata
		permit := s.api.opts.Auth.Permit(r.user, auth.Attributes{Verb: "delete", Resource: "silenced",
			Namespace: m.Namespace, Name: m.Name})
		if permit.Denied() || !permit.Selector().Match(fieldsOf(one, s.show)) {
			out.Denied++
			continue
		}
		if !req.DryRun {
			err := config.Delete(r.Context(), s.api.opts.Config, s.Kind, m.Namespace, m.Name)
			if errors.Is(err, config.ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
		}
		out.Silences = append(out.Silences, purgedSilence{m.Namespace, m.Name})
	}
	return w.object(&out)
}
