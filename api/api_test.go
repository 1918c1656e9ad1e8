package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"
	"golang.org/x/crypto/bcrypt"

	"github.com/lapwing-monitoring/lapwing/audit"
	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/fleet"
	"github.com/lapwing-monitoring/lapwing/fold"
	"github.com/lapwing-monitoring/lapwing/intake"
	"github.com/lapwing-monitoring/lapwing/oncall"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/silence"
	"github.com/lapwing-monitoring/lapwing/state"
	"github.com/lapwing-monitoring/lapwing/view"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	admin    = "admin"
	password = "P@ssw0rd!"
)

// server is an API over real parts, with a client signed in as the administrator.
type server struct {
	*API
	t      testing.TB
	url    string
	http   *http.Client
	token  string
	users  *auth.Auth
	store  *config.Store
	fold   *state.State
	intake *faultyIntake
	now    atomic.Int64 // seconds added to the clock
}

// faultyIntake refuses everything while err is set.
type faultyIntake struct {
	Intake
	err atomic.Pointer[error]
}

func (i *faultyIntake) fail(err error) { i.err.Store(&err) }

func (i *faultyIntake) fault() error {
	if err := i.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (i *faultyIntake) Submit(ctx context.Context, ev *resource.Event) error {
	if err := i.fault(); err != nil {
		return err
	}
	return i.Intake.Submit(ctx, ev)
}

func (i *faultyIntake) PutEntityState(ctx context.Context, st *resource.EntityState) error {
	if err := i.fault(); err != nil {
		return err
	}
	return i.Intake.PutEntityState(ctx, st)
}

func (i *faultyIntake) DeleteEvent(ctx context.Context, namespace, entity, check string) error {
	if err := i.fault(); err != nil {
		return err
	}
	return i.Intake.DeleteEvent(ctx, namespace, entity, check)
}

func (i *faultyIntake) DeleteEntity(ctx context.Context, namespace, name string) error {
	if err := i.fault(); err != nil {
		return err
	}
	return i.Intake.DeleteEntity(ctx, namespace, name)
}

type part interface {
	Start(context.Context) error
	Stop() error
}

func start(t testing.TB, p part, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// newServer starts an initialised backend without agents. change, if not nil, adjusts the options.
func newServer(t testing.TB, change func(*Options)) *server {
	t.Helper()
	dir := t.TempDir()
	b, err := broker.New(broker.Options{Dir: dir})
	start(t, b, err)
	trail, err := audit.New(audit.Options{Broker: b})
	start(t, trail, err)
	store, err := config.New(config.Options{Broker: b, Written: trail.Written})
	start(t, store, err)
	log, err := eventlog.New(eventlog.Options{Broker: b, Dir: dir, Origin: "test", Partitions: 2,
		FlushInterval: time.Millisecond, MinFree: 1})
	start(t, log, err)
	db, err := pebble.Open("", &pebble.Options{FS: vfs.NewMem(), Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	events, err := state.New(state.Options{
		Log: log, DB: db, HistoryAge: state.DefaultOptions().HistoryAge,
		Silences: silence.NewMatcher(nil, nil).Present(store), EntityChanges: entityChanges(store),
		Entity: func(namespace, name string) (*resource.EntityConfig, bool) {
			return config.Get(store.Snapshot(), config.Entities, namespace, name)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := events.Stop(); err != nil {
			t.Error(err)
		}
	})
	reading, err := fold.New(fold.Options{Log: log, State: events})
	start(t, reading, err)
	in, err := intake.New(intake.Options{Config: store, Log: log, State: events})
	if err != nil {
		t.Fatal(err)
	}

	lists, err := view.New(view.Options{State: events, Delay: 5 * time.Millisecond})
	start(t, lists, err)
	entities, err := fleet.New(fleet.Options{Config: store, State: events, Delay: 5 * time.Millisecond})
	start(t, entities, err)

	s := &server{t: t, store: store, fold: events, intake: &faultyIntake{Intake: in}}
	s.users, err = auth.New(auth.Options{Config: store, Now: s.clock, HashCost: bcrypt.MinCost})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.users.Seed(t.Context(), auth.SeedOptions{Username: admin, Password: password}); err != nil {
		t.Fatal(err)
	}
	opts := Options{Config: store, State: events, Intake: s.intake, Auth: s.users, Version: "1.2.3", Now: s.clock, Audit: trail,
		Reports: events.Histories(), Views: lists, EntityViews: entities,
		Schedule: idle{}, Agents: idle{},
		LogLevel: func(context.Context, string, LogLevelAction) (resource.LogLevels, error) {
			return resource.LogLevels{Level: "info", Changed: []resource.LogLevel{}, Components: []string{}}, nil
		},
		Escalations: func(_, _, _ string, _ int) ([]resource.Escalation, bool, error) { return nil, false, nil },
		Links: oncall.NewLinks("https://lapwing.example", func(ctx context.Context) ([]byte, error) {
			return store.Secret(ctx, "acknowledge", 32)
		})}
	if change != nil {
		change(&opts)
	}
	if s.API, err = New(opts); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(s.API)
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	srv.Start()
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		srv.Close()
	})
	s.url, s.http = srv.URL, srv.Client()
	s.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	s.token = s.login(admin)
	return s
}

// entityChanges returns the function that calls a listener after changes of entities.
func entityChanges(store *config.Store) func(func(namespace, name string)) func() {
	return func(changed func(namespace, name string)) func() {
		return store.OnChange(func(c config.Change) {
			if c.Kind == config.Entities.String() {
				changed(c.Namespace, c.Name)
			}
		})
	}
}

// idle is a schedule without runs, and no agents.
type idle struct{}

func (idle) Upcoming(c *resource.CheckConfig, _ string, _ time.Time, _ int) resource.CheckRuns {
	return resource.CheckRuns{Namespace: c.Metadata.Namespace, Check: c.Metadata.Name, Runs: []int64{}}
}
func (idle) ClosedNow(*resource.CheckConfig, time.Time) string                  { return "" }
func (idle) ProxyNames(context.Context, *resource.CheckConfig) ([]string, bool) { return nil, true }
func (idle) AgentsOf(string, []string) []string                                 { return nil }
func (idle) IsConnected(resource.Name) bool                                     { return false }
func (idle) Counts(string) map[string]int                                       { return nil }

type quiet struct{}

func (quiet) Infof(string, ...any)         {}
func (quiet) Errorf(string, ...any)        {}
func (quiet) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }

func (s *server) clock() time.Time { return time.Now().Add(time.Duration(s.now.Load()) * time.Second) }

// user adds a user with the given groups and signs it in.
func (s *server) user(name string, groups ...string) string {
	s.t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := config.Put(s.t.Context(), s.store, config.Users,
		&resource.User{Username: name, PasswordHash: string(hash), Groups: groups}); err != nil {
		s.t.Fatal(err)
	}
	return s.login(name)
}

// login returns an access token.
func (s *server) login(user string) string {
	s.t.Helper()
	id, err := s.users.Password(s.t.Context(), user, password)
	if err != nil {
		s.t.Fatal(err)
	}
	tokens, err := s.users.Issue(s.t.Context(), id, s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	return tokens.Access
}

// grant binds a group to rules in a namespace, or in the cluster for "".
func (s *server) grant(group, namespace string, rules ...resource.Rule) {
	s.t.Helper()
	subjects := []resource.Subject{{Type: "Group", Name: group}}
	meta := resource.ObjectMeta{Name: group, Namespace: namespace}
	var err error
	if namespace == "" {
		err = errors.Join(
			config.Put(s.t.Context(), s.store, config.ClusterRoles, &resource.ClusterRole{Metadata: meta, Rules: rules}),
			config.Put(s.t.Context(), s.store, config.ClusterRoleBindings,
				&resource.ClusterRoleBinding{Metadata: meta,
					RoleRef: resource.RoleRef{Type: "ClusterRole", Name: group}, Subjects: subjects}))
	} else {
		err = errors.Join(
			config.Put(s.t.Context(), s.store, config.Roles, &resource.Role{Metadata: meta, Rules: rules}),
			config.Put(s.t.Context(), s.store, config.RoleBindings,
				&resource.RoleBinding{Metadata: meta, RoleRef: resource.RoleRef{Type: "Role", Name: group},
					Subjects: subjects}))
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// answer is the answer to a request.
type answer struct {
	t      testing.TB
	what   string
	status int
	header http.Header
	body   string
	closed bool // the server closes the connection
}

// do sends a request as the administrator. headers are pairs; an Authorization among them replaces the administrator's.
func (s *server) do(method, path, body string, headers ...string) *answer {
	s.t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, in)
	if err != nil {
		s.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
		if headers[i+1] == "" {
			req.Header.Del(headers[i])
		}
	}
	resp, err := s.http.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatalf("%s %s: read answer: %v", method, path, err)
	}
	return &answer{s.t, method + " " + path, resp.StatusCode, resp.Header, string(got), resp.Close}
}

func (a *answer) is(status int) *answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("%s: status %d, want %d; body %s", a.what, a.status, status, a.body)
	}
	return a
}

// refuses expects a status with a Sensu error.
func (a *answer) refuses(status, code int, message string) {
	a.t.Helper()
	a.is(status)
	var e struct {
		Code    int
		Message string
	}
	if err := json.Unmarshal([]byte(a.body), &e); err != nil || e.Code != code || e.Message != message {
		a.t.Errorf("%s: body %s, want code %d and message %q", a.what, a.body, code, message)
	}
}

func (a *answer) has(v any) {
	a.t.Helper()
	if err := json.Unmarshal([]byte(a.body), v); err != nil {
		a.t.Fatalf("%s: %v in body %s", a.what, err, a.body)
	}
}

// names returns the names of the objects in a list.
func (a *answer) names() string {
	a.t.Helper()
	var list []struct {
		Name     string
		Username string
		Metadata resource.ObjectMeta
		Entity   *struct{ Metadata resource.ObjectMeta }
		Check    *struct{ Metadata resource.ObjectMeta }
	}
	a.is(http.StatusOK).has(&list)
	var out []string
	for _, o := range list {
		switch {
		case o.Entity != nil:
			out = append(out, o.Entity.Metadata.Namespace+"/"+o.Entity.Metadata.Name+"/"+o.Check.Metadata.Name)
		case o.Metadata.Namespace != "":
			out = append(out, o.Metadata.Namespace+"/"+o.Metadata.Name)
		default:
			out = append(out, o.Name+o.Username+o.Metadata.Name)
		}
	}
	return strings.Join(out, " ")
}

const (
	checksPath = "/api/core/v2/namespaces/default/checks"
	eventsPath = "/api/core/v2/namespaces/default/events"
)

func checkBody(name, more string) string {
	return `{"metadata":{"name":"` + name + `","namespace":"default"},"command":"true","interval":10` + more + `}`
}

func TestRouting(t *testing.T) {
	web := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "page "+r.URL.Path) })
	s := newServer(t, func(o *Options) { o.Web = web })
	const unknown = `{"code":2,"message":"not found"}` + "\n"
	for _, tc := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/", 200, "page /"},
		{"GET", "/events/web1", 200, "page /events/web1"},
		{"POST", "/events/web1", 404, unknown},
		{"GET", "/api", 404, unknown},
		{"GET", "/api/", 404, unknown},
		{"GET", "/api/core/v2/nothing", 404, unknown},
		{"GET", "/api/core/v2/checks/", 404, unknown},
		{"GET", "/api/core/v2/namespaces//checks", 404, unknown},
		{"GET", "/api/core/v2/namespaces/x/../../checks", 404, unknown},
		{"GET", "/api/core/v2/namespaces/default/checks/a/b", 404, unknown},
		{"GET", "/api/core/v3/namespaces/default/entity-states", 404, unknown},
		{"GET", "//health", 404, unknown},
		{"OPTIONS", "/api/core/v2/checks", 405, ""},
		{"HEAD", "/api/core/v2/checks", 405, ""},
		{"POST", "/api/core/v2/checks", 405, ""},
		{"PATCH", "/api/core/v2/namespaces/default/events/a/b", 405, ""},
		{"POST", "/health", 405, ""},
		{"DELETE", "/auth", 405, ""},
		{"PATCH", "/api/core/v2/users", 405, ""},
	} {
		// Neither kind of answer needs credentials.
		got := s.do(tc.method, tc.path, "", "Authorization", "")
		if got.status != tc.status || got.body != tc.body {
			t.Errorf("%s %s: %d %q, want %d %q", tc.method, tc.path, got.status, got.body, tc.status, tc.body)
		}
	}
	if got := s.do("POST", "/api/core/v2/checks", "").header.Get("Allow"); got != "GET" {
		t.Errorf("Allow is %q", got)
	}
}

func TestNamesAreDecodedOnce(t *testing.T) {
	s := newServer(t, nil)
	s.do("POST", checksPath, checkBody("a:b.c-d_e", "")).is(201)
	for _, path := range []string{"a:b.c-d_e", "a%3Ab.c-d_e", "%61%3ab%2Ec-d_e"} {
		s.do("GET", checksPath+"/"+path, "").is(200)
	}
	s.do("GET", checksPath+"/a%253Ab.c-d_e", "").is(404)
	s.do("PUT", checksPath+"/%2E%2E%2E", checkBody("...", "")).is(201)
	s.do("GET", checksPath+"/%2E%2E%2E", "").is(200)
	s.do("PUT", checksPath+"/%2E%2E", checkBody("..", "")).is(400)

	s.do("PUT", eventsPath+"/we%3Ab/di%3Ask", `{"check":{"status":1}}`).is(201)
	s.do("GET", eventsPath+"/we:b/di%3Ask", "").is(200)
	s.do("DELETE", eventsPath+"/we%3Ab/di:sk", "").is(204)
}

func TestAuthentication(t *testing.T) {
	s := newServer(t, nil)
	for _, tc := range []struct{ authorization, message string }{
		{"", "bad credentials"},
		{"Basic YWRtaW46UEBzc3cwcmQh", "bad credentials"},
		{"bearer " + s.token, "bad credentials"},
		{"Token " + s.token, "bad credentials"},
		{"Bearer ", "bad credentials"}, // net/http trims it
		{"Bearer x", "invalid credentials"},
		{"Bearer " + s.token + "x", "invalid credentials"},
		{"Key 01234567-89ab-cdef-0123-456789abcdef", "invalid credentials"},
	} {
		got := s.do("GET", "/api/core/v2/checks", "", "Authorization", tc.authorization)
		got.refuses(401, codeUnauthenticated, tc.message)
		if !strings.HasPrefix(got.body, `{"Code":`) {
			t.Errorf("%q: body %s", tc.authorization, got.body)
		}
	}
	s.now.Store(301)
	s.do("GET", "/api/core/v2/checks", "").refuses(401, codeUnauthenticated, "invalid credentials")
}

func TestTokenEndpoints(t *testing.T) {
	s := newServer(t, nil)
	const basic = "Basic YWRtaW46UEBzc3cwcmQh"
	var first, second auth.Tokens
	s.do("GET", "/auth", "", "Authorization", basic).is(200).has(&first)
	body := `{"refresh_token":"` + first.Refresh + `"}`
	for _, tc := range []struct {
		path, authorization, body string
		status                    int
		text                      string
	}{
		{"/auth/token", basic, body, 400, "invalid access token\n"},
		{"/auth/logout", basic, body, 400, "invalid access token\n"},
		{"/auth/token", "Bearer " + first.Access, "", 400, "EOF\n"},
		{"/auth/token", "Bearer " + first.Access, `{}`, 401, "Request unauthorized\n"},
		{"/auth/token", "Bearer x", body, 401, "Request unauthorized\n"},
		{"/auth/token", "", body, 401, "Request unauthorized\n"},
		{"/auth/logout", "", body, 401, "Request unauthorized\n"},
		{"/auth/token", "Bearer " + first.Access, `{"refresh_token":"` + first.Access + `"}`, 401, "Request unauthorized\n"},
	} {
		got := s.do("POST", tc.path, tc.body, "Authorization", tc.authorization).is(tc.status)
		if got.body != tc.text {
			t.Errorf("%s with %q: %q, want %q", tc.path, tc.authorization, got.body, tc.text)
		}
	}
	s.do("GET", "/api/core/v2/checks", "", "Authorization", "Bearer "+first.Refresh).is(401)
	s.now.Store(3600)
	s.do("POST", "/auth/token", body, "Authorization", "Bearer "+first.Access).is(200).has(&second)
	s.do("GET", "/api/core/v2/checks", "", "Authorization", "Bearer "+second.Access).is(200)
	for range 2 {
		s.do("POST", "/auth/logout", `{"refresh_token":"`+second.Refresh+`"}`, "Authorization", "Bearer "+second.Access).is(200)
	}
	if got := s.do("POST", "/auth/token", `{"refresh_token":"`+second.Refresh+`"}`, "Authorization",
		"Bearer "+second.Access); got.status != 401 || got.body != "Unauthorized\n" {
		t.Errorf("after logout: %d %q", got.status, got.body)
	}
}

func TestStart(t *testing.T) {
	reason := errors.New("replaying the log")
	var ready atomic.Bool
	s := newServer(t, func(o *Options) {
		o.Ready = func() error {
			if ready.Load() {
				return nil
			}
			return reason
		}
	})
	for _, path := range []string{"/health", "/version", "/metrics"} {
		s.do("GET", path, "").is(200)
	}
	for _, path := range []string{"/ready", "/auth", "/api/core/v2/checks"} {
		got := s.do("GET", path, "").is(503)
		if got.body != "API unavailable during startup.\nreplaying the log\n" || got.header.Get("Retry-After") == "" {
			t.Errorf("%s: %q, Retry-After %q", path, got.body, got.header.Get("Retry-After"))
		}
	}
	s.do("GET", "/api/core/v2/checks", "", "Authorization", "").is(401)
	var h struct {
		ClusterHealth []struct {
			Err     string
			Healthy bool
		}
	}
	s.do("GET", "/health", "").has(&h)
	if len(h.ClusterHealth) != 1 || h.ClusterHealth[0].Healthy || h.ClusterHealth[0].Err != reason.Error() {
		t.Errorf("health while starting: %+v", h)
	}
	ready.Store(true)
	s.do("GET", "/ready", "").is(200)
	s.do("GET", "/api/core/v2/checks", "").is(200)
	// Later trouble shows in /ready, and everything else works.
	ready.Store(false)
	if got := s.do("GET", "/ready", "").is(503); got.body != "replaying the log\n" {
		t.Errorf("ready: %q", got.body)
	}
	s.do("GET", "/api/core/v2/checks", "").is(200)
}

func TestHealthOfACluster(t *testing.T) {
	s := newServer(t, func(o *Options) {
		o.Health = func(context.Context) Health {
			return Health{ClusterID: 1<<63 + 1, MemberID: 1<<64 - 1, Term: 7,
				Members: []Member{{ID: 1<<64 - 1, Name: "a"}, {ID: 10, Name: "b", Err: "no answer"}}}
		}
	})
	const want = `{"Alarms":null,"ClusterHealth":[` +
		`{"MemberID":18446744073709551615,"MemberIDHex":"ffffffffffffffff","Name":"a","Err":"","Healthy":true},` +
		`{"MemberID":10,"MemberIDHex":"a","Name":"b","Err":"no answer","Healthy":false}],` +
		`"Header":{"cluster_id":9223372036854775809,"member_id":18446744073709551615,"raft_term":7}}`
	if got := s.do("GET", "/health", "").is(200); got.body != want {
		t.Errorf("health is\n%s, want\n%s", got.body, want)
	}
}

func TestBodies(t *testing.T) {
	s := newServer(t, func(o *Options) { o.RequestLimit = 1000 })
	form := func(body, typ string) *answer { return s.do("POST", checksPath, body, "Content-Type", typ) }
	form(checkBody("a", ""), "application/x-www-form-urlencoded").is(201)
	form(checkBody("b", ""), "").is(201)
	form(checkBody("c", "")+checkBody("d", ""), "text/whatever").is(201) // the first value counts
	form(`{"Metadata":{"NAME":"e"},"COMMAND":"x","Interval":1,"unknown":[]}`, "application/json").is(201)
	if got := s.do("GET", checksPath, "").names(); got != "default/a default/b default/c default/e" {
		t.Errorf("checks %s", got)
	}
	form("", "application/json").refuses(400, codeInvalid, "EOF")
	form("{", "application/json").refuses(400, codeInvalid, "unexpected EOF")
	form("null", "application/json").refuses(400, codeInvalid, "resource is invalid: check name must not be empty")
	form(`{"interval":-1}`, "application/json").is(400)
	form(`{"metadata":{"labels":{"a":1}}}`, "application/json").is(400)
	got := form(checkBody("big", `,"output_metric_format":"`+strings.Repeat("x", 1000)+`"`), "application/json")
	got.refuses(400, codeInvalid, "http: request body too large")
	if !got.closed {
		t.Error("the connection stays open after a body that is too large")
	}
	s.do("PATCH", checksPath+"/a", `{"command":"`+strings.Repeat("x", 1000)+`"}`, "Content-Type",
		mergePatchType).refuses(400, codeInvalid, "http: request body too large")
}

func TestPanicsAreAnswered(t *testing.T) {
	s := newServer(t, nil)
	s.route("/panic", access{public: true}, methods{"GET": func(*response, *request) error { panic("oops") }})
	s.route("/late", access{public: true}, methods{"GET": func(w *response, _ *request) error {
		_, _ = w.Write([]byte("begun"))
		_ = http.NewResponseController(w).Flush()
		panic("oops")
	}})
	s.do("GET", "/panic", "").refuses(500, codeInternal, "internal error occurred")
	if resp, err := s.http.Get(s.url + "/late"); err == nil {
		if _, err = io.ReadAll(resp.Body); err == nil {
			t.Error("an answer that was cut short looks whole")
		}
		resp.Body.Close()
	}
	s.do("GET", "/health", "").is(200)
	if got := value(t, s.metrics.panics); got != 2 {
		t.Errorf("%v panics were counted, want 2", got)
	}
}

// value returns the value of a counter or gauge.
func value(t testing.TB, m prometheus.Metric) float64 {
	t.Helper()
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.GetCounter().GetValue() + out.GetGauge().GetValue()
}

func TestMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	s := newServer(t, func(o *Options) { o.Registerer, o.Gatherer = r, r })
	s.do("GET", checksPath, "")
	s.do("GET", checksPath+"/missing", "")
	s.do("BREW", checksPath, "")
	body := s.do("GET", "/metrics", "").is(200).body
	for _, line := range []string{
		`lapwing_api_requests_total{code="200",method="GET"} 1`,
		`lapwing_api_requests_total{code="404",method="GET"} 1`,
		`lapwing_api_requests_total{code="405",method="other"} 1`,
		"lapwing_api_request_duration_seconds_count 3",
	} {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("no %q in\n%s", line, body)
		}
	}
}

func TestAccessLogIsForDebugging(t *testing.T) {
	for _, tc := range []struct {
		level slog.Level
		want  bool
	}{{slog.LevelDebug, true}, {slog.LevelInfo, false}} {
		var out syncBuffer
		s := newServer(t, func(o *Options) {
			o.Logger = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: tc.level}))
		})
		s.do("GET", checksPath, "").is(200)
		s.do("GET", checksPath+"/x", "").is(404)
		_ = s.Stop()
		if got := strings.Contains(out.String(), "path="+checksPath+" status=200"); got != tc.want {
			t.Errorf("level %v: logged %v, want %v: %s", tc.level, got, tc.want, out.String())
		}
	}
}

type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("an API without parts was made")
	}
}
