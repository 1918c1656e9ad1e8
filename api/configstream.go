package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// maxRecent is how many changes of definitions are kept for clients that resume.
const maxRecent = 10_000

// serveConfigStream adds the live stream of changes of definitions. Its path is open: a user sees the changes of kinds
// that the user may list.
func (a *API) serveConfigStream() {
	a.route(ours+"namespaces/{namespace}/config/stream", access{open: true}, methods{http.MethodGet: a.streamConfig})
}

// recent has the newest changes of definitions.
type recent struct {
	mu      sync.Mutex // guards the fields below
	list    []config.Change
	floor   uint64        // changes up to this revision may be dropped
	changed chan struct{} // closed at the next change
}

func newRecent() *recent { return &recent{changed: make(chan struct{})} }

// add never blocks: config calls it on the goroutine that swaps its snapshots.
func (rc *recent) add(c config.Change) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	if len(rc.list) >= 2*maxRecent {
		rc.floor = rc.list[maxRecent-1].Revision
		rc.list = append(rc.list[:0], rc.list[maxRecent:]...)
	}
	rc.list = append(rc.list, c)
	close(rc.changed)
	rc.changed = make(chan struct{})
}

// after returns the changes since a revision, and a channel that is closed at the next change; false if some are
// dropped.
func (rc *recent) after(revision uint64) (changes []config.Change, more <-chan struct{}, ok bool) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	i := len(rc.list)
	for i > 0 && rc.list[i-1].Revision > revision {
		i--
	}
	return append(changes, rc.list[i:]...), rc.changed, revision >= rc.floor
}

// streamConfig sends "synced", then a "change" for each definition that is written or deleted, with its kind,
// namespace, name and revision; clients get the definition by its own path. A client that reconnects with its last id
// as Last-Event-ID gets the changes since then before "synced", or "reset" if they are no longer known. ?kind=, any
// number of times, selects kinds by their plural names.
func (a *API) streamConfig(w *response, r *request) error {
	namespace := r.PathValue("namespace")
	if namespace == allNamespaces {
		namespace = ""
	}
	f := &configFilter{api: a, user: r.user, namespace: namespace, kinds: map[string]bool{}}
	for _, kind := range r.URL.Query()["kind"] {
		f.kinds[kind] = true
	}
	if !f.any() {
		return errDenied
	}
	end, err := a.beginStream(r)
	if err != nil {
		return err
	}
	defer end()

	at, reset := a.opts.Config.Snapshot().Revision(), false
	if last := lastEventID(r); last != "" {
		since, err := strconv.ParseUint(last, 10, 64)
		if err == nil && since > at {
			at = a.awaitRevision(r.Context(), since)
		}
		_, _, known := a.recent.after(since)
		if reset = err != nil || !known || since > at; !reset {
			at = since
		}
	}
	s := newEventStream(a, w, r)
	if reset {
		s.message("reset", []byte("{}"))
	}
	synced := false
	beat := time.NewTicker(a.heartbeat)
	defer beat.Stop()
	for {
		changes, more, known := a.recent.after(at)
		if !known {
			a.metrics.overflows.Inc()
			s.message("overflow", []byte("{}"))
			return over(s.flush())
		}
		for _, c := range changes {
			at = c.Revision
			if err := s.definition(f, c); err != nil {
				return over(err)
			}
		}
		if !synced {
			synced = true
			s.id = strconv.FormatUint(at, 10)
			s.message("synced", []byte("{}"))
		}
		if err := s.flush(); err != nil {
			return over(err)
		}
		select {
		case <-more:
		case <-beat.C:
			if !a.signedIn(r) || !f.any() {
				return nil
			}
			s.buf.WriteString(": \nid: " + strconv.FormatUint(at, 10) + "\n\n")
		case <-s.gone:
			return nil
		case <-a.stopping:
			return nil
		}
	}
}

// awaitRevision waits until this backend has the definitions of a revision, but not for long, and returns the revision
// that it has. Another backend may have had it first.
func (a *API) awaitRevision(ctx context.Context, revision uint64) (at uint64) {
	ctx, cancel := a.waiting(ctx)
	defer cancel()
	for {
		_, more, _ := a.recent.after(revision)
		if at = a.opts.Config.Snapshot().Revision(); at >= revision {
			return at
		}
		select {
		case <-more:
		case <-ctx.Done():
			return a.opts.Config.Snapshot().Revision()
		}
	}
}

// over returns nil for the error of a regular end of a stream.
func over(err error) error {
	if errors.Is(err, errStreamOver) {
		return nil
	}
	return err
}

// definition sends a change of a definition, if the client may see it.
func (s *eventStream) definition(f *configFilter, c config.Change) error {
	if !f.shows(c) {
		return nil
	}
	data, err := encode(struct {
		Kind      string `json:"kind"`
		Namespace string `json:"namespace,omitempty"`
		Name      string `json:"name"`
		Deleted   bool   `json:"deleted"`
		Revision  uint64 `json:"revision"`
	}{c.Kind, c.Namespace, c.Name, c.Deleted, c.Revision})
	if err != nil {
		return err
	}
	s.id = strconv.FormatUint(c.Revision, 10)
	s.message("change", data)
	return s.flushFull()
}

// configFilter selects the changes that a client wants, and may see.
type configFilter struct {
	api       *API
	user      *auth.Identity
	namespace string // "" for all, and for kinds without namespaces
	kinds     map[string]bool
}

// shows checks the roles each time: they may have changed.
func (f *configFilter) shows(c config.Change) bool {
	if len(f.kinds) > 0 && !f.kinds[c.Kind] || f.namespace != "" && c.Namespace != f.namespace || internalKind(c.Kind) {
		return false
	}
	return f.api.opts.Auth.Authorize(f.user, auth.Attributes{Verb: "list", Resource: c.Kind, Namespace: f.namespace})
}

// internalKind reports whether a kind has no path in the API. No client sees its changes.
func internalKind(role string) bool {
	return slices.ContainsFunc(resource.Kinds, func(k *resource.Kind) bool { return k.Internal() && k.Role == role })
}

// any reports whether the client may see at least one kind.
func (f *configFilter) any() bool {
	for _, kind := range config.KindNames() {
		if f.shows(config.Change{Kind: kind, Namespace: f.namespace}) {
			return true
		}
	}
	return false
}
