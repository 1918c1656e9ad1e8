package api

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/silence"
	"github.com/lapwing-monitoring/lapwing/state"
)

// silences serves silences. Expired ones are not shown, even before they are deleted.
type silences struct {
	kind[resource.Silenced]
}

func (a *API) serveSilenced() {
	s := &silences{kind[resource.Silenced]{
		api: a, Kind: config.Silences,
	}}
	all := access{resource: "silenced", labels: true, dryRun: true}
	item := access{resource: "silenced", name: namePath, labels: true, dryRun: true, dryDelete: true}
	checks := access{resource: "silenced", list: true, labels: true, name: func(r *request) string {
		return "checks/" + r.PathValue("check")
	}}
	subscriptions := access{resource: "silenced", list: true, labels: true, name: func(r *request) string {
		return "subscriptions/" + r.PathValue("subscription")
	}}
	ack := func(r *request) string { return ackName(pathKey(r)) }
	a.definitions[s.String()], a.silences = definition{like: new(resource.Silenced), erase: s.erase}, s
	a.route(core+"silenced", all, methods{http.MethodGet: s.list})
	a.route(core+"silenced/checks/{check}", checks, methods{http.MethodGet: s.ofCheck})
	a.route(s.collection(), all, methods{http.MethodGet: s.list, http.MethodPost: s.create})
	a.route(s.collection()+"/{name}", item, methods{http.MethodGet: s.get, http.MethodPut: s.put, http.MethodDelete: s.delete})
	a.route(s.collection()+"/checks/{check}", checks, methods{http.MethodGet: s.ofCheck})
	a.route(s.collection()+"/subscriptions/{subscription}", subscriptions, methods{http.MethodGet: s.ofSubscription})
	a.route(ours+"namespaces/{namespace}/silenced/preview", access{open: true, reads: true}, methods{http.MethodPost: s.preview})
	a.route(ours+"namespaces/{namespace}/silenced/purge", access{open: true, long: true}, methods{http.MethodPost: s.purge})
	a.route(ours+"namespaces/{namespace}/events/{entity}/{check}/ack", access{resource: "silenced", name: ack, labels: true},
		methods{http.MethodPost: s.acknowledge, http.MethodDelete: s.unacknowledge})
}

func (s *silences) list(w *response, r *request) error {
	return s.listed(w, r, func(*resource.Silenced) bool { return true })
}

// ofCheck lists the silences of one check, with any subscription.
func (s *silences) ofCheck(w *response, r *request) error {
	return s.listed(w, r, func(one *resource.Silenced) bool { return one.Check == r.PathValue("check") })
}

// ofSubscription lists the silences of one subscription, with any check.
func (s *silences) ofSubscription(w *response, r *request) error {
	return s.listed(w, r, func(one *resource.Silenced) bool { return one.Subscription == r.PathValue("subscription") })
}

func (s *silences) listed(w *response, r *request, want func(*resource.Silenced) bool) error {
	p, now := pageOf(r, (*resource.Silenced)(nil)), s.api.opts.Now()
	var wanted iter.Seq[*resource.Silenced] = func(yield func(*resource.Silenced) bool) {
		for one := range s.objects(r, p) {
			if !one.Expired(now) && want(one) && !yield(one) {
				return
			}
		}
	}
	return writeList(w, p, wanted, s.show, s.token)
}

func (s *silences) get(w *response, r *request) error {
	one, err := s.find(r.act)
	if err != nil || one.Expired(s.api.opts.Now()) {
		return errNoSilence
	}
	return w.tagged(r, s.show(one))
}

var errNoSilence = &apiError{status: http.StatusNotFound, code: codeNotFound, message: "silenced entry not found"}

// complete checks a silence for the path of an act, and sets its name and its times. A silence with selectors and no
// name gets the given one.
func (s *silences) complete(t *act, one *resource.Silenced, name string) error {
	m := &one.Metadata
	if m.Namespace == "" {
		m.Namespace = t.namespace
	}
	if m.Namespace != t.namespace {
		return namespaceMismatch(m.Namespace, t.namespace)
	}
	if t.name != "" && m.Name != "" && m.Name != t.name {
		return nameMismatch(m.Name, t.name)
	}
	if one.Selects() && m.Name == "" {
		m.Name = name
	}
	if err := s.validate(one); err != nil {
		return refused("", err)
	}
	m.Name = one.DerivedName()
	if t.name != "" && m.Name != t.name {
		return nameMismatch(m.Name, t.name)
	}
	m.CreatedBy, one.Creator = t.user.User, t.user.User
	var old *resource.Silenced
	if t.method == http.MethodPut {
		old, _ = config.Get(s.api.opts.Config.Snapshot(), s.Kind, t.namespace, m.Name)
	}
	if err := s.schedule(one, old); err != nil {
		return err
	}
	s.limit(t, one)
	if _, err := s.compile(one); err != nil {
		return err
	}
	if text := strings.Join(s.api.missingCalendars(t.user, t.namespace, "the silence does not act by it", one.Calendars...), "; "); text != "" {
		t.warning = strings.TrimPrefix(t.warning+"; "+text, "; ")
	}
	return s.api.needNamespace(t.namespace)
}

// limit restricts a silence to the labels of its user's role, and warns the user about it.
func (s *silences) limit(t *act, one *resource.Silenced) {
	at := auth.Attributes{Verb: "create", Resource: s.String(), Namespace: one.Metadata.Namespace, Name: one.Metadata.Name}
	permit := t.permit
	if permit.Denied() { // a preview, whose path is open
		permit = s.api.opts.Auth.Permit(t.user, at)
	}
	labels := permit.Labels()
	if permit.Whole() || labels == nil {
		return
	}
	one.LimitedTo = labels
	t.warning = "your role is limited by labels, so the silence acts only on events with " + strings.Join(labels, " or ")
}

//lint:ignore ST1005 it is Sensu's text
var errTooLong = errors.New("Threshold reached: silenced crossed maximum duration allowed")

func wrongField(field string, err error) error { return refused("", resource.InField(field, err)) }

// schedule sets when a silence begins and ends, within the backend's limits. old is the silence that it replaces, or
// nil.
func (s *silences) schedule(one, old *resource.Silenced) error {
	now := s.api.opts.Now()
	if err := one.Schedule(now, old); err != nil {
		return wrongField("expire", err)
	}
	limits := s.api.limits.Load()
	most := limits.MaxSilence
	// How long a calendar is active may change, so a silence with calendars needs an end like any other.
	if len(one.Windows) > 0 && len(one.Calendars) == 0 {
		if one.Begin < now.AddDate(-10, 0, 0).Unix() { // rules start there
			return wrongField("begin", errors.New("a silence with windows cannot have begun more than ten years ago"))
		}
		for i := range one.Windows { // the limit is for a window, not for the time over which windows recur
			if w := &one.Windows[i]; most > 0 && w.Duration > int64(most/time.Second) {
				return wrongField(fmt.Sprintf("windows[%d].duration", i), errTooLong)
			}
		}
		return nil
	}
	if one.ExpireAt == 0 {
		// A silence without an end gets the default's, or else the maximum.
		end := limits.DefaultSilence
		if end == 0 {
			end = most
		}
		if end > 0 {
			one.ExpireAt = one.Begin + int64(end/time.Second)
		}
		return nil
	}
	if most > 0 && one.ExpireAt > now.Add(most).Unix() {
		if one.Expire > 0 {
			return wrongField("expire", errTooLong)
		}
		return wrongField("expire_at", errTooLong)
	}
	return nil
}

// compile compiles the fields that Sensu does not have, and returns what is wrong in them.
func (s *silences) compile(one *resource.Silenced) (*silence.Rule, error) {
	rule, err := silence.Compile(one, s.api.opts.Calendars.In(s.api.opts.Config.Snapshot(), one.Metadata.Namespace))
	if err == nil {
		err = rule.CheckValues()
	}
	if err != nil {
		return nil, refused("", err)
	}
	if one.Remind == 0 {
		return rule, nil
	}
	lasts := one.ExpireAt - one.Begin
	if one.ExpireAt == 0 && len(one.Windows)+len(one.Calendars) == 0 {
		return nil, wrongField("remind", errors.New("remind needs a silence that ends by itself"))
	}
	for i := range one.Windows {
		lasts = one.Windows[i].Duration
		if one.Remind >= lasts {
			break
		}
	}
	if one.Remind >= lasts && len(one.Calendars) == 0 {
		return nil, wrongField("remind", errors.New("remind must be less than the time that the silence or its window lasts"))
	}
	return rule, nil
}

func (s *silences) create(w *response, r *request) error {
	one := new(resource.Silenced)
	if err := s.api.decode(w, r, one); err != nil {
		return err
	}
	err := s.add(r.Context(), r.act, one)
	return w.written(r, http.StatusCreated, err)
}

// add checks and writes a new silence, or replaces an expired one.
func (s *silences) add(ctx context.Context, t *act, one *resource.Silenced) error {
	if err := s.complete(t, one, ""); err != nil {
		return err
	}
	if !s.mine(t, one) {
		return s.outOfReach(t, one)
	}
	err := config.Create(ctx, s.api.opts.Config, s.Kind, one)
	if !errors.Is(err, config.ErrExists) {
		return err
	}
	replace := func(old *resource.Silenced) (*resource.Silenced, error) {
		if !old.Expired(s.api.opts.Now()) {
			return nil, config.ErrExists
		}
		return one, nil
	}
	_, err = config.Update(ctx, s.api.opts.Config, s.Kind, one.Metadata.Namespace, one.Metadata.Name, replace)
	return err
}

func (s *silences) put(w *response, r *request) error {
	one := new(resource.Silenced)
	if err := s.api.decode(w, r, one); err != nil {
		return err
	}
	err := s.replace(r.Context(), r.act, one)
	return w.written(r, http.StatusCreated, err)
}

// replace checks and writes a silence, whether it exists or not.
func (s *silences) replace(ctx context.Context, t *act, one *resource.Silenced) error {
	if err := s.complete(t, one, t.name); err != nil {
		return err
	}
	return s.write(ctx, t, one)
}

func (s *silences) delete(w *response, r *request) error {
	if err := s.erase(r.Context(), r.act, nil); err != nil {
		return err
	}
	return w.empty(http.StatusNoContent)
}

// erase deletes the silence of an act. It ignores preconditions.
func (s *silences) erase(ctx context.Context, t *act, _ url.Values) error {
	return config.DeleteIf(ctx, s.api.opts.Config, s.Kind, t.namespace, t.name, func(one *resource.Silenced) bool {
		return !one.Expired(s.api.opts.Now()) && s.mine(t, one)
	})
}

// silencing returns the deed that silences an event.
func (s *silences) silencing(key state.Key, one *resource.Silenced) *deed {
	one.Metadata.Namespace = key.Namespace
	one.Subscription, one.Check = resource.EntitySubscription(key.Entity), key.Check
	return &deed{
		method: http.MethodPost, path: core + "namespaces/" + key.Namespace + "/silenced",
		resource: s.String(), namespace: key.Namespace,
		do: func(ctx context.Context, t *act) error { return s.add(ctx, t, one) },
	}
}
