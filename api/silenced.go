package api

import (
	"errors"
	"iter"
	"net/http"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// silences serves what keeps handlers from events. Those that have expired are not there any more, also while nobody has
// deleted them.
type silences struct {
	kind[resource.Silenced]
}

func (a *API) serveSilenced() {
	s := &silences{kind[resource.Silenced]{
		api: a, Kind: config.Silences,
		meta:     func(s *resource.Silenced) *resource.ObjectMeta { return &s.Metadata },
		validate: (*resource.Silenced).Validate,
	}}
	all, item := access{resource: "silenced", labels: true}, access{resource: "silenced", name: namePath, labels: true}
	checks := access{resource: "silenced", list: true, labels: true, name: func(r *request) string { return "checks/" + r.PathValue("check") }}
	subscriptions := access{resource: "silenced", list: true, labels: true, name: func(r *request) string { return "subscriptions/" + r.PathValue("subscription") }}
	a.route(core+"silenced", all, methods{http.MethodGet: s.list})
	a.route(core+"silenced/checks/{check}", checks, methods{http.MethodGet: s.ofCheck})
	a.route(s.collection(), all, methods{http.MethodGet: s.list, http.MethodPost: s.create})
	a.route(s.collection()+"/{name}", item, methods{http.MethodGet: s.get, http.MethodPut: s.put, http.MethodDelete: s.delete})
	a.route(s.collection()+"/checks/{check}", checks, methods{http.MethodGet: s.ofCheck})
	a.route(s.collection()+"/subscriptions/{subscription}", subscriptions, methods{http.MethodGet: s.ofSubscription})
}

func (s *silences) list(w *response, r *request) error {
	return s.listed(w, r, func(*resource.Silenced) bool { return true })
}

// ofCheck lists the silences of one check, whatever their subscription.
func (s *silences) ofCheck(w *response, r *request) error {
	return s.listed(w, r, func(one *resource.Silenced) bool { return one.Check == r.PathValue("check") })
}

// ofSubscription lists the silences of one subscription, whatever their check.
func (s *silences) ofSubscription(w *response, r *request) error {
	return s.listed(w, r, func(one *resource.Silenced) bool { return one.Subscription == r.PathValue("subscription") })
}

func (s *silences) listed(w *response, r *request, want func(*resource.Silenced) bool) error {
	p, now := pageOf(r), s.api.opts.Now()
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
	one, err := s.find(r)
	if err != nil || one.Expired(s.api.opts.Now()) {
		return errNoSilence
	}
	return w.tagged(r, s.show(one))
}

var errNoSilence = &apiError{status: http.StatusNotFound, code: codeNotFound, message: "silenced entry not found"}

// readSilence decodes and checks the silence in the body of a POST or PUT, and settles its name and its time.
func (s *silences) readSilence(w *response, r *request) (*resource.Silenced, error) {
	one := new(resource.Silenced)
	if err := s.api.decode(w, r, one); err != nil {
		return nil, err
	}
	m, namespace := &one.Metadata, r.PathValue("namespace")
	if m.Namespace == "" {
		m.Namespace = namespace
	}
	if m.Namespace != namespace {
		return nil, namespaceMismatch(m.Namespace, namespace)
	}
	if name := r.PathValue("name"); name != "" && m.Name != "" && m.Name != name {
		return nil, nameMismatch(m.Name, name)
	}
	if err := s.validate(one); err != nil {
		return nil, invalid("%v", err)
	}
	m.Name = one.DerivedName()
	if name := r.PathValue("name"); name != "" && m.Name != name {
		return nil, nameMismatch(m.Name, name)
	}
	m.CreatedBy, one.Creator = r.user.User, r.user.User
	var old *resource.Silenced
	if r.Method == http.MethodPut {
		old, _ = config.Get(s.api.opts.Config.Snapshot(), s.Kind, namespace, m.Name)
	}
	if err := s.schedule(one, old); err != nil {
		return nil, err
	}
	return one, s.api.needNamespace(namespace)
}

// schedule settles when a silence begins and ends, within what the backend allows. old is what it takes the place of, or nil.
func (s *silences) schedule(one, old *resource.Silenced) error {
	now := s.api.opts.Now()
	if err := one.Schedule(now, old); err != nil {
		return invalid("%v", err)
	}
	most := s.api.opts.MaxSilence
	if one.ExpireAt == 0 {
		// One without an end gets the default's, and where there is only a maximum, that.
		end := s.api.opts.DefaultSilence
		if end == 0 {
			end = most
		}
		if end > 0 {
			one.ExpireAt = one.Begin + int64(end/time.Second)
		}
		return nil
	}
	if most > 0 && one.ExpireAt > now.Add(most).Unix() {
		return invalid("Threshold reached: silenced crossed maximum duration allowed")
	}
	return nil
}

func (s *silences) create(w *response, r *request) error {
	one, err := s.readSilence(w, r)
	if err != nil {
		return err
	}
	if !s.mine(r, one) {
		return errDenied
	}
	err = config.Create(r.Context(), s.api.opts.Config, s.Kind, one)
	if errors.Is(err, config.ErrExists) {
		_, err = config.Update(r.Context(), s.api.opts.Config, s.Kind, one.Metadata.Namespace, one.Metadata.Name, func(old *resource.Silenced) (*resource.Silenced, error) {
			if !old.Expired(s.api.opts.Now()) {
				return nil, config.ErrExists
			}
			return one, nil
		})
	}
	if err != nil {
		return err
	}
	return w.empty(http.StatusCreated)
}

func (s *silences) put(w *response, r *request) error {
	one, err := s.readSilence(w, r)
	if err != nil {
		return err
	}
	if err := s.write(r, one); err != nil {
		return err
	}
	return w.empty(http.StatusCreated)
}

func (s *silences) delete(w *response, r *request) error {
	err := config.DeleteIf(r.Context(), s.api.opts.Config, s.Kind, r.PathValue("namespace"), r.PathValue("name"), func(one *resource.Silenced) bool {
		return !one.Expired(s.api.opts.Now()) && s.mine(r, one)
	})
	if err != nil {
		return err
	}
	return w.empty(http.StatusNoContent)
}
