// Package migrate copies a Sensu Go 6 into lapwing: its users' definitions, its silences, and the state of its events.
// "lapwing migrate sensu" calls it.
//
// The source is a running backend, read through its HTTP API and not changed, or files that "sensuctl dump" wrote. The
// target is written through its API. So roles, validation and the event log work as for any client.
//
// Run reads each kind on both sides, compares, and sends the differences. An interrupted run can simply be run again,
// and a run without differences sends nothing. Kinds are sent in the order of resource.Kinds: a kind comes before the
// kinds that name it, and events come before handlers and pipelines, so that no incident alerts a second time. The
// Report lists everything that cannot be copied or that the target refuses. Only an error that affects every resource
// (no connection, no rights) ends a run.
//
// Nothing is ever deleted from the target for being absent from the source.
package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/manifest"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Parallel is the number of concurrent requests when Options.Parallel is zero. An event's answer waits for the disk,
// together with others.
const Parallel = 16

// Source has the resources to copy. NewServer and ReadFiles make one.
type Source interface {
	// String names the source in reports.
	String() string
	// namespaces returns the names of all namespaces.
	namespaces(ctx context.Context) ([]string, error)
	// each calls f for the resources of a kind in a namespace ("" for kinds without namespaces). An error of f ends it.
	// It returns errNoKind if the source has no such kind.
	each(ctx context.Context, k *kind, namespace string, f func(*object) error) error
	// remarks adds the remarks about the source itself.
	remarks(*migration)
}

var errNoKind = errors.New("no such kind")

// Options say what Run copies, and where to. Source and Target are required.
type Options struct {
	Source Source
	// Target is signed in to lapwing as a user with the rights for everything that is copied.
	Target *client.Client
	// TargetName names the target in the report.
	TargetName string
	// TargetUser is the user of Target, which Run never changes. Empty is fine with an API key.
	TargetUser string

	// DryRun compares, and asks the target whether it would accept what differs. Nothing is written.
	DryRun bool
	// Keep leaves existing resources of the target unchanged, even if they differ.
	Keep bool
	// Verify compares again after everything is sent.
	Verify bool
	// Namespaces to copy. Default: all of the source. Kinds without a namespace are always copied.
	Namespaces []string
	// Skip names kinds that are not copied, by their plural, for example "events".
	Skip []string
	// PasswordHashes are bcrypt hashes by user: Sensu's API does not show them. Users without one get no password.
	PasswordHashes map[string]string

	// Parallel bounds concurrent requests. Default: Parallel.
	Parallel int
	// Progress, if set, is called when a kind is done.
	Progress func(KindReport)
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Wait waits before a request is sent again. Default: a timer.
	Wait func(context.Context, time.Duration) error
}

func (o *Options) check() error {
	if o.Source == nil || o.Target == nil {
		return errors.New("migrate: source and target are required")
	}
	if o.Parallel <= 0 {
		o.Parallel = Parallel
	}
	if o.Progress == nil {
		o.Progress = func(KindReport) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Wait == nil {
		o.Wait = wait
	}
	for _, name := range o.Skip {
		if !slices.ContainsFunc(steps, func(s step) bool { return s.kind.Plural == name }) {
			return fmt.Errorf("skip: there is no kind %q; they are %s", name, kindNames())
		}
	}
	return nil
}

// Run copies. The report is never nil; after an error, it says what was done before the error.
func Run(ctx context.Context, opts Options) (*Report, error) {
	report := &Report{}
	if err := opts.check(); err != nil {
		return report, err
	}
	report.Source, report.Target, report.DryRun, report.Started = opts.Source.String(), opts.TargetName, opts.DryRun, opts.Now()
	started := report.Started
	rec := newRecorder(report)
	m := newMigration(opts, rec, started)
	m.apply = !opts.DryRun
	err := m.pass(ctx)
	if err == nil && opts.Verify && m.apply {
		check := newMigration(opts, newRecorder(&Report{}), started)
		check.verify, check.Progress = rec, func(KindReport) {}
		if err = check.pass(ctx); err != nil {
			err = fmt.Errorf("compare after the copy: %w", err)
		} else {
			rec.verified(check.rec)
		}
	}
	if err == nil {
		m.remarkDeadlines()
		m.remarkHashes()
		m.remarkDoubts(ctx)
		opts.Source.remarks(m)
	}
	rec.finish()
	report.Finished = opts.Now()
	return report, err
}

// migration is one comparison of everything, with or without sending the differences.
type migration struct {
	Options
	rec   *recorder
	apply bool
	// started is when the run began, for events that do not say when they happened.
	started time.Time
	// verify gets the remaining differences in the comparison after the copy.
	verify *recorder

	names     []string        // namespaces to copy
	fresh     map[string]bool // namespaces that are made, or would be
	users     map[string]bool // users that are made, or would be
	handlers  map[string]bool // of the source, core/v2: namespace/name
	quiet     map[string]bool // handlers and pipelines of the target: plural/namespace/name
	deadlines deadlines
	copied    map[definition]bool // definitions that the target has from the source
	// sourceUsers are the names of the source's users.
	sourceUsers []string
	unmet       map[string]bool // what the target's lint finds, too: there are remarks about it
}

func newMigration(opts Options, rec *recorder, started time.Time) *migration {
	return &migration{Options: opts, rec: rec, started: started,
		fresh: map[string]bool{}, users: map[string]bool{}, handlers: map[string]bool{}, copied: map[definition]bool{}, unmet: map[string]bool{}}
}

func (m *migration) skips(plural string) bool { return slices.Contains(m.Skip, plural) }

// pass copies all kinds.
func (m *migration) pass(ctx context.Context) error {
	if err := m.findNamespaces(ctx); err != nil {
		return err
	}
	for _, s := range steps {
		if m.skips(s.kind.Plural) {
			continue
		}
		if err := m.step(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s.kind.Plural, err)
		}
	}
	return nil
}

func (m *migration) findNamespaces(ctx context.Context) error {
	all, err := m.Source.namespaces(ctx)
	if err != nil {
		return fmt.Errorf("list namespaces of %s: %w", m.Source, err)
	}
	m.names = all
	if len(m.Namespaces) > 0 {
		for _, name := range m.Namespaces {
			if !slices.Contains(all, name) {
				near := optionerr.Nearest(name, all)
				if near != "" {
					near = " (" + near + "?)"
				}
				return fmt.Errorf("the source has no namespace %q%s", name, near)
			}
		}
		m.names = m.Namespaces
	}
	return nil
}

// step copies one kind.
func (m *migration) step(ctx context.Context, s step) error {
	if s.prepare != nil {
		if err := s.prepare(ctx, m); err != nil {
			return err
		}
	}
	namespaces := []string{""}
	if s.kind.Namespaced {
		namespaces = m.names
	}
	r := m.rec.kind(s.kind)
	for _, namespace := range namespaces {
		if err := m.stepIn(ctx, s, r, namespace); err != nil {
			if namespace != "" {
				err = fmt.Errorf("namespace %s: %w", namespace, err)
			}
			return err
		}
	}
	if !s.more {
		m.Progress(m.rec.copyOf(r))
	}
	return nil
}

// stepIn copies one kind in one namespace.
func (m *migration) stepIn(ctx context.Context, s step, r *KindReport, namespace string) error {
	to, becomes := s, s.kind.becomes
	if becomes != nil {
		to.kind = becomes.to
	}
	there, err := m.target(ctx, to, namespace)
	missing := errors.Is(err, errNoKind)
	if err != nil && !missing {
		return fmt.Errorf("list what %s has: %w", m.TargetName, err)
	}
	w := newWorkers(ctx, m.Parallel)
	found := 0 // of the target's, found by other means
	err = m.Source.each(w.ctx, s.kind, namespace, func(o *object) error {
		if s.only != nil && !s.only(o) || s.kind == namespaceKind && !slices.Contains(m.names, o.name) {
			return nil
		}
		m.rec.count(r, func(k *KindReport) { k.Source++ })
		if reason, hint := m.leave(s.kind, o); reason != "" {
			m.left(r, o, reason, hint)
			delete(there, o.name)
			return nil
		}
		if missing {
			m.left(r, o, "lapwing has no resources of this kind", insteadOf(o.kind.Group, o.typ))
			return nil
		}
		switch {
		case becomes != nil:
			if reason, hint := becomes.apply(m, o); reason != "" {
				m.left(r, o, reason, hint)
				return nil
			}
		case s.kind == handlerKind:
			m.handlers[o.label()] = true
		case s.kind.adapt != nil:
			s.kind.adapt(m, o)
		}
		old := there[o.name]
		delete(there, o.name)
		if becomes != nil && old != nil && !becomes.same(old) {
			m.left(r, o, "lapwing has another "+becomes.to.Type+" of this name", "Rename one of them.")
			return nil
		}
		if s.kind.find != nil {
			var err error
			if old, err = s.kind.find(w.ctx, m, o); err != nil {
				return fmt.Errorf("look for %s: %w", o.label(), err)
			}
			if old != nil {
				found++
			}
		}
		return w.do(func(ctx context.Context) error { return m.one(ctx, to.kind, r, o, old) })
	})
	if stop := w.wait(); stop != nil {
		return stop // the workers' error also ended the list, with a less clear error
	}
	switch {
	case err == nil, errors.Is(err, errNoKind):
	case errors.Is(err, client.ErrDenied):
		m.rec.remark(Refused, s.kind.Type, "the source does not let this user list them",
			"Sign in to the source as a cluster administrator.", orAll(namespace))
		m.rec.count(r, func(k *KindReport) { k.Failed++ })
	default:
		return fmt.Errorf("list what %s has: %w", m.Source, err)
	}
	if becomes == nil {
		m.rec.count(r, func(k *KindReport) { k.Extra += len(there) - found })
	}
	return nil
}

func orAll(namespace string) string {
	if namespace == "" {
		return "all"
	}
	return "namespace " + namespace
}

// target returns the target's resources for a step, by name.
func (m *migration) target(ctx context.Context, s step, namespace string) (map[string]*summary, error) {
	there := map[string]*summary{}
	err := listAll(ctx, m.Target, s.kind, namespace, func(o *object) error {
		if s.only == nil || s.only(o) {
			there[o.name] = s.kind.summarize(o)
		}
		return nil
	})
	return there, err
}

// leave returns the reason why a resource is not copied.
func (m *migration) leave(k *kind, o *object) (reason, hint string) {
	if k.leave == nil {
		return "", ""
	}
	return k.leave(m, o)
}

func (m *migration) left(r *KindReport, o *object, reason, hint string) {
	m.rec.count(r, func(k *KindReport) { k.Left++ })
	m.rec.settle(o)
	m.rec.remark(Left, o.typ, reason, hint, o.label())
}

// one makes one resource of the target equal to the source's.
func (m *migration) one(ctx context.Context, k *kind, r *KindReport, o *object, old *summary) error {
	if k.secrets {
		for _, field := range o.dropRedacted(old) {
			m.rec.remark(Lost, k.Type, "the source shows only "+redactedWord+" instead of a secret",
				"Set them by hand, with lapwing edit.", o.label()+" "+field)
		}
	}
	m.remarkUnsupported(k, o)
	if k.always != nil {
		k.always(m, o, old)
	}
	fields := k.differences(o, old)
	switch {
	case old != nil && len(fields) == 0, !m.apply && m.comesWithNamespace(o):
		m.rec.count(r, func(k *KindReport) { k.Unchanged++ })
		m.has(k, o)
		return nil
	case m.verify != nil:
		return m.remarkRest(ctx, k, o, old, fields)
	case old != nil && m.Keep:
		m.left(r, o, "it exists in lapwing, differs, and is kept", "")
		return nil
	}
	if k.hold != nil {
		if reason, hint := k.hold(m, o, old); reason != "" {
			m.left(r, o, reason, hint)
			return nil
		}
	}
	if k.foresee != nil {
		k.foresee(m, o, old)
	}
	left, hint, err := m.send(ctx, k, o, old, !m.apply)
	var refused *client.Error
	switch {
	case errors.As(err, &refused) && refused.Status != http.StatusUnauthorized:
		m.rec.count(r, func(k *KindReport) { k.Failed++ })
		m.rec.settle(o)
		m.remarkRefused(ctx, k, o, old, refused)
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", o.label(), err)
	case left != "":
		m.left(r, o, left, hint)
		return nil
	}
	m.has(k, o)
	action := Create
	if old != nil {
		action = Update
	}
	if k == namespaceKind {
		m.rec.count(r, func(*KindReport) { m.fresh[o.name] = true })
	}
	if k == userKind {
		m.rec.count(r, func(*KindReport) { m.users[o.name] = true })
	}
	m.rec.count(r, func(k *KindReport) {
		if action == Create {
			k.Created++
		} else {
			k.Updated++
		}
	})
	if !k.silent {
		m.rec.change(Change{Type: k.Type, Namespace: o.namespace, Name: o.shownName(), Action: action, Fields: k.shown(fields)})
	}
	return nil
}

// remarkUnsupported adds a remark for each thing that a definition asks for and lapwing does not do.
func (m *migration) remarkUnsupported(k *kind, o *object) {
	if k != checkKind && k != handlerKind && k != mutatorKind {
		return
	}
	text, err := json.Marshal(o.body)
	obj := k.New()
	if err != nil || json.Unmarshal(text, obj) != nil {
		return // the target refuses it
	}
	for _, u := range resource.UnsupportedIn(obj) {
		m.rec.mu.Lock()
		m.unmet[u.String()] = true
		m.rec.mu.Unlock()
		m.rec.remark(Lost, k.Type, u.Text, upper(u.Instead)+".", o.label())
	}
}

func upper(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// send writes a resource, or in a dry run asks the target whether it would accept it.
func (m *migration) send(ctx context.Context, k *kind, o *object, old *summary, dry bool) (left, hint string, err error) {
	write := put
	if k.write != nil {
		write = k.write
	}
	if k.warned {
		ctx = client.WithWarnings(ctx, func(text string) {
			m.rec.mu.Lock()
			m.unmet[text] = true
			m.rec.mu.Unlock()
			m.rec.remark(Doubtful, k.Type, text, "Correct it in the source and run this again.", o.placed(""))
		})
	}
	if !dry {
		err = m.again(ctx, func() (err error) { left, hint, err = write(ctx, m, o, old); return err })
		return left, hint, err
	}
	ctx = client.WithDryRun(ctx)
	err = m.again(ctx, func() (err error) { left, hint, err = write(ctx, m, o, old); return err })
	switch {
	case client.NoDryRun(err) && m.apply:
		return "", "", nil
	case client.NoDryRun(err):
		m.rec.remark(Noted, k.Type, "this lapwing has no dry runs: only the copy shows what it refuses", "")
		return "", "", nil
	case client.NoDryRunOf(err), m.comes(k, o, err):
		return "", "", nil
	}
	return left, hint, err
}

// comes reports whether the target refuses a resource in a dry run only because it lacks what the run makes before it. If
// there are other mistakes, only they stay in the error.
func (m *migration) comes(k *kind, o *object, err error) bool {
	m.rec.mu.Lock() // others of the run note what they make
	defer m.rec.mu.Unlock()
	var refused *client.Error
	switch {
	case !errors.As(err, &refused):
		return false
	case refused.Status == http.StatusNotFound:
		return m.fresh[o.namespace]
	case k == apiKeyKind && m.users[text(o.body, "username")]:
		found := len(refused.Mistakes)
		refused.Mistakes = slices.DeleteFunc(refused.Mistakes, func(one client.FieldMistake) bool { return one.Field == "username" })
		return found > 0 && len(refused.Mistakes) == 0
	}
	return false
}

// remarkRefused says why the target refuses a resource. The answer to a write has only the first mistake, and that to a dry
// run has all.
func (m *migration) remarkRefused(ctx context.Context, k *kind, o *object, old *summary, refused *client.Error) {
	if m.apply && refused.Status == http.StatusBadRequest {
		var all *client.Error
		quiet := client.WithWarnings(ctx, func(string) {}) // the write has told them
		if _, _, err := m.send(quiet, k, o, old, true); errors.As(err, &all) && all.Status == refused.Status {
			refused = all
		}
	}
	if refused.Status == http.StatusBadRequest && m.remarkTypes(k, o) {
		return // the message is the decoder's, about the first of them
	}
	for _, one := range refused.Mistakes {
		m.rec.remark(Refused, k.Type, one.Message, "", o.placed(one.Field))
	}
	if len(refused.Mistakes) == 0 {
		m.rec.remark(Refused, k.Type, refused.Message, hintOf(refused), o.placed(""))
	}
}

// remarkTypes adds a remark for each value of another type than its field, and reports whether there are any.
func (m *migration) remarkTypes(k *kind, o *object) (found bool) {
	if k.Wrapped {
		return false // of the commercial edition: their fields are not known
	}
	w := &manifest.Walk{Unknown: func([]any, string, []string) {}, Wrong: func(steps []any, text string) {
		found = true
		at := o.label()
		if o.from != nil {
			if len(steps) == 0 || steps[0] != "metadata" {
				steps = append([]any{"spec"}, steps...)
			}
			at = fmt.Sprintf("%s:%d: %s", o.from.Source, o.from.At().Find(steps).Line, at)
		}
		m.rec.remark(Refused, k.Type, text, "", at)
	}}
	w.Value(reflect.TypeOf(k.New()), any(o.body), "", nil)
	return found
}

// comesWithNamespace reports whether the target makes a resource itself when its namespace is made.
func (m *migration) comesWithNamespace(o *object) bool {
	return m.fresh[o.namespace] && o.name == "system:pipeline" && (o.kind.Plural == "roles" || o.kind.Plural == "rolebindings")
}

// remarkRest adds a remark for each field that is not equal after the copy.
func (m *migration) remarkRest(ctx context.Context, k *kind, o *object, old *summary, fields []FieldDiff) error {
	if m.verify.isSettled(o) {
		return nil
	}
	if old == nil {
		m.verify.remark(Differs, k.Type, "lapwing does not have it after the copy", "", o.label())
		return nil
	}
	executed := integer(sub(o.body, "check"), "executed")
	switch {
	case k == eventKind && executed < old.executed:
		return nil // lapwing changes it, as it should
	case k == eventKind && executed > old.executed:
		m.verify.remark(Noted, k.Type, "a newer result came during the run", "Run this again to copy the newer results.", o.label())
		return nil
	case k.silent:
		var err error
		if fields, err = m.differencesNow(ctx, k, o); err != nil {
			return err
		}
	}
	for _, d := range fields {
		m.verify.remark(Differs, k.Type, d.Field+" is another in lapwing", "", o.label())
	}
	return nil
}

// differencesNow returns the fields in which a resource of a silent kind differs. A summary has only a hash of them.
func (m *migration) differencesNow(ctx context.Context, k *kind, o *object) (fields []FieldDiff, err error) {
	var body json.RawMessage
	err = m.Target.Do(ctx, http.MethodGet, o.path(), nil, &body)
	if isRefusal(err, http.StatusNotFound) {
		return nil, nil // it was deleted since
	}
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", o.label(), err)
	}
	there, err := k.parse(body)
	if err != nil {
		return nil, err
	}
	diff("", k.tree(o), k.tree(there), func(d FieldDiff) {
		d.Field, _, _ = strings.Cut(d.Field, "[") // a list counts once
		if !slices.ContainsFunc(fields, func(one FieldDiff) bool { return one.Field == d.Field }) {
			fields = append(fields, d)
		}
	})
	return fields, nil
}

// again repeats a request while the target is too busy.
func (m *migration) again(ctx context.Context, f func() error) error {
	delay := time.Second
	for {
		err := f()
		var refused *client.Error
		if err == nil || !errors.As(err, &refused) || delay > 16*time.Second ||
			refused.Status != http.StatusServiceUnavailable && refused.Status != http.StatusTooManyRequests {
			return err
		}
		if err := m.Wait(ctx, delay); err != nil {
			return err
		}
		delay *= 2
	}
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func hintOf(e *client.Error) string {
	switch {
	case errors.Is(e, client.ErrDenied):
		return "Sign in to lapwing as a cluster administrator."
	case e.Status == http.StatusRequestEntityTooLarge:
		return "Start the backend with a larger --api-request-limit, and run this again."
	}
	return ""
}

// workers runs functions, a bounded number at a time, until the first error.
type workers struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	slots  chan struct{}
	wg     sync.WaitGroup
	once   sync.Once
	err    error
}

func newWorkers(ctx context.Context, n int) *workers {
	w := &workers{slots: make(chan struct{}, n)}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	return w
}

func (w *workers) do(f func(context.Context) error) error {
	select {
	case w.slots <- struct{}{}:
	case <-w.ctx.Done():
		return context.Cause(w.ctx)
	}
	w.wg.Go(func() {
		defer func() { <-w.slots }()
		if err := f(w.ctx); err != nil {
			w.once.Do(func() {
				w.err = err
				w.cancel(err)
			})
		}
	})
	return nil
}

func (w *workers) wait() error {
	w.wg.Wait()
	w.cancel(nil)
	return w.err
}

// listAll calls f for each resource of a kind on a server.
func listAll(ctx context.Context, c *client.Client, k *kind, namespace string, f func(*object) error) error {
	if k.Singleton {
		var body json.RawMessage
		if err := c.Do(ctx, http.MethodGet, k.Path("", ""), nil, &body); err != nil {
			return unknownKind(err)
		}
		o, err := k.parse(body)
		if err != nil {
			return err
		}
		return f(o)
	}
	for raw, err := range client.All(ctx, c, k.Kind, namespace, client.ListOptions{ChunkSize: k.chunk()}) {
		if err != nil {
			return unknownKind(err)
		}
		o, err := k.parse(*raw)
		if err != nil {
			return err
		}
		if err := f(o); err != nil {
			return err
		}
	}
	return nil
}

// unknownKind returns errNoKind if the server has no such route, or serves it only with a licence.
func unknownKind(err error) error {
	var refused *client.Error
	if errors.As(err, &refused) && (refused.Status == http.StatusNotFound || refused.Status == http.StatusPaymentRequired) {
		return errNoKind
	}
	return err
}
