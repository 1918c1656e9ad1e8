package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/api/openapi"
	"github.com/lapwing-monitoring/lapwing/audit"
	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/explain"
	"github.com/lapwing-monitoring/lapwing/inhibit"
	"github.com/lapwing-monitoring/lapwing/notification"
	"github.com/lapwing-monitoring/lapwing/postgres"
	"github.com/lapwing-monitoring/lapwing/queue"
	"github.com/lapwing-monitoring/lapwing/report"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/trace"
)

var update = flag.Bool("update", false, "write openapi/openapi.json anew")

// object is JSON.
type object = map[string]any

var entityMapQuery = []string{"labelSelector", "fieldSelector", "agent", "worst", "backend", "groupBy"}

var entityViewQuery = []string{"labelSelector", "fieldSelector", "agent", "worst", "backend", "sort", "groupBy", "facets", "offset", "limit", "find"}

var viewQuery = []string{"labelSelector", "fieldSelector", "sort", "groupBy", "offset", "limit", "also", "find"}

// kinds are the types of the resources, by their plural names.
var kinds = map[string]any{
	"aggregates":          resource.Aggregate{},
	"metricchecks":        resource.MetricCheck{},
	"calendars":           resource.Calendar{},
	"contacts":            resource.Contact{},
	"rotas":               resource.Rota{},
	"apikeys":             resource.APIKey{},
	"assets":              resource.Asset{},
	"authproviders":       resource.AuthProvider{},
	"provider":            resource.PostgresConfig{},
	"checks":              resource.CheckConfig{},
	"clusterrolebindings": resource.ClusterRoleBinding{},
	"clusterroles":        resource.ClusterRole{},
	"entities":            resource.Entity{},
	"entity-configs":      wrappedEntityConfig{},
	"events":              resource.Event{},
	"filters":             resource.EventFilter{},
	"handlers":            resource.Handler{},
	"hooks":               resource.HookConfig{},
	"mutators":            resource.Mutator{},
	"namespaces":          resource.Namespace{},
	"pipelines":           resource.Pipeline{},
	"fallbackPipeline":    resource.FallbackPipeline{},
	"rolebindings":        resource.RoleBinding{},
	"roles":               resource.Role{},
	"silenced":            resource.Silenced{},
	"users":               resource.User{},
}

const exampleMeta = `"metadata":{"name":"example","namespace":"default","labels":{"region":"eu"}}`

// examples are valid bodies for objects called example.
var examples = map[string]string{
	"checks": `{` + exampleMeta + `,"command":"true","interval":10,"publish":true,"subscriptions":["example"],"handlers":["example"],"check_hooks":[{"1":["example"]}],
		"subdue":null,"proxy_requests":{"entity_attributes":["true"],"splay":false},"env_vars":["A=b"]}`,
	"handlers": `{` + exampleMeta + `,"type":"tcp","socket":{"host":"127.0.0.1","port":9}}`,
	"entities": `{` + exampleMeta + `,"entity_class":"proxy","system":{"hostname":"h","network":{"interfaces":[{"name":"eth0","addresses":["10.0.0.1"]}]}}}`,
	"events": `{"entity":{` + exampleMeta + `},"check":{` + exampleMeta +
		`,"interval":10,"status":1,"output":"o","handlers":["example"],"check_hooks":[{"1":["example"]}]}}`,
	"silenced": `{"metadata":{"namespace":"default","name":"linux:example"},"subscription":"linux","check":"example","expire":-1}`,
	"filters":  `{` + exampleMeta + `,"action":"allow","expressions":["event.check.status == 1"],"when":{"days":{"monday":[{"begin":"1:00 PM","end":"2:00 PM"}]}}}`,
	"mutators": `{` + exampleMeta + `,"command":"cat","timeout":1}`,
	"hooks":    `{` + exampleMeta + `,"command":"ps","timeout":1}`,
	"calendars": `{` + exampleMeta + `,"description":"nights","time_zone":"Europe/Berlin","windows":[{"rrule":"FREQ=DAILY","begin":"22:00","end":"06:00"}],
		"except":[{"dates":["12-31 New Year's Eve"]}]}`,
	"contacts": `{` + exampleMeta + `,"full_name":"Alice Example","email":"alice@example.org","handlers":["example"],"user":"admin"}`,
	"rotas": `{` + exampleMeta + `,"time_zone":"Europe/Berlin","contacts":["example"],"start":"2026-11-02T09:00","shift":604800,"within":["example"],
		"overrides":[{"contact":"example","begin":1798100000,"end":1798200000,"reason":"ill"}]}`,
	"metricchecks": `{` + exampleMeta + `,"source":"graphite","expr":"servers.*.cpu.total.idle","interval":60,"window":300,"reduce":"average","warning":{"below":20},"critical":{"above":1e9,"below":10},
		"for":120,"keep_firing_for":60,"absent_status":1,"absent_for":3600,"entity_node":1,"result":{"check":"cpu","labels":{"team":"ops"},"handlers":["example"]}}`,
	"aggregates": `{` + exampleMeta + `,"field_selector":"event.check.name == example","group_by":"entity.labels.region","critical":{"percent":30,"count":5},"min_members":2,"few_status":0,"interval":60,
		"result":{"entity":"shop","labels":{"service":"shop"},"handlers":["example"],"pipelines":[{"name":"example","type":"Pipeline","api_version":"core/v2"}]}}`,
	"assets": `{` + exampleMeta + `,"builds":[{"url":"https://example.com/a","sha512":"` +
		strings.Repeat("0", 128) + `","filters":["entity.system.os == 'linux'"]}]}`,
	"fallbackPipeline":    `{` + exampleMeta + `,"pipelines":[{"name":"example","type":"Pipeline","api_version":"core/v2"}]}`,
	"pipelines":           `{` + exampleMeta + `,"workflows":[{"name":"w","handler":{"name":"example","type":"Handler","api_version":"core/v2"}}]}`,
	"roles":               `{` + exampleMeta + `,"rules":[{"verbs":["get"],"resources":["checks"],"resource_names":["a"],"label_selector":"region == eu"}]}`,
	"rolebindings":        `{` + exampleMeta + `,"role_ref":{"type":"Role","name":"example"},"subjects":[{"type":"Group","name":"example"}]}`,
	"clusterroles":        `{"metadata":{"name":"example"},"rules":[{"verbs":["get"],"resources":["checks"],"resource_names":["a"]}]}`,
	"clusterrolebindings": `{"metadata":{"name":"example"},"role_ref":{"type":"ClusterRole","name":"example"},"subjects":[{"type":"User","name":"example"}]}`,
	"provider": `{"type":"PostgresConfig","api_version":"store/v1","metadata":{"name":"example"},"spec":{"dsn":"postgres://lapwing:secret@db/lapwing","pool_size":10,
		"max_conn_lifetime":"5m","events_retention":"90d","changes_retention":"365d","notifications_retention":"720h"}}`,
	"namespaces": `{"name":"example"}`,
	"users":      `{"username":"example","password":"long enough","groups":["example"]}`,
}

// operation is a method of a path, as the document describes it.
type operation struct {
	summary string
	query   []string // names of parameters, which are described below
	body    any      // the request's body: a value of its type, or nil
	status  int      // of success
	answer  any      // the answer: a value of its type, nil for none, or text if it is not JSON
	label   string   // content type of the answer if it is JSON under another name
	page    bool     // the answer is a list with pages
}

// text is an answer that is not JSON; the value is its content type.
type text string

// anyObject is a body or an answer that is some object.
type anyObject struct{}

// described has the operations that do not follow from their kind alone.
var described = map[string]operation{
	"GET /auth":         {summary: "Trade a user name and password (Basic) for tokens", status: 200, answer: auth.Tokens{}},
	"GET /auth/test":    {summary: "Test a user name and password (Basic)", status: 200},
	"POST /auth/token":  {summary: "Trade a refresh token for new tokens", body: refreshToken{}, status: 200, answer: auth.Tokens{}},
	"POST /auth/logout": {summary: "End a session", body: refreshToken{}, status: 200},
	"GET /health": {summary: "The state of the cluster", query: []string{"timeout"}, status: 200,
		answer: healthAnswer{}, label: textType},
	"GET /ready":   {summary: "Whether the backend serves requests", status: 200, answer: text(textType)},
	"GET /version": {summary: "Versions of the backend and its API", status: 200, answer: versionAnswer{}, label: textType},
	"GET /metrics": {summary: "The backend's metrics, for Prometheus", status: 200, answer: text("text/plain")},

	"PUT " + core + "namespaces/{namespace}/checks/{name}/hooks/{type}":                {summary: "Add hooks for a type of result to a check", body: resource.HookList{}, status: 201},
	"DELETE " + core + "namespaces/{namespace}/checks/{name}/hooks/{type}/hook/{hook}": {summary: "Take a hook from a check", status: 204},
	"POST " + core + "namespaces/{namespace}/checks/{name}/execute":                    {summary: "Run a check once, now", body: executeRequest{}, status: 202, answer: executeAnswer{}, label: textType},
	"GET " + core + "cluster/id": {summary: "The id of the cluster", status: 200, answer: "", label: textType},
	"GET " + core + "cluster/members": {summary: "The backends of the cluster", status: 200,
		answer: clusterMembers{}, label: textType},
	"POST " + core + "cluster/members":        {summary: "Refused: there is no etcd", status: 400, answer: text(textType)},
	"PUT " + core + "cluster/members/{id}":    {summary: "Refused: there is no etcd", status: 400, answer: text(textType)},
	"DELETE " + core + "cluster/members/{id}": {summary: "Refused: there is no etcd", status: 400, answer: text(textType)},
	"GET " + core + "tessen": {summary: "Whether reports to Sensu are switched off; there are none",
		status: 200, answer: resource.TessenConfig{}},
	"PUT " + core + "tessen": {summary: "Switch reports off or on; there are none",
		body: resource.TessenConfig{}, status: 200, answer: resource.TessenConfig{}},

	"GET " + core + "namespaces/{namespace}/events/{entity}": {summary: "List the events of an entity",
		status: 200, answer: []resource.Event{}, page: true},
	"POST " + core + "namespaces/{namespace}/events/{entity}/{check}": {summary: "Create or update an event",
		body: resource.Event{}, status: 201},

	"PUT " + core + "namespaces/{namespace}/entities/{name}": {summary: "Create or replace an entity",
		body: resource.Entity{}, status: 200, answer: resource.Entity{}},
	"POST " + core + "namespaces/{namespace}/entities": {summary: "Create an entity", body: resource.Entity{},
		status: 200, answer: resource.Entity{}},
	"PATCH " + core + "namespaces/{namespace}/entities/{name}": {summary: "Change the definition of an entity (RFC 7386)", body: anyObject{}, status: 200, answer: resource.EntityConfig{}},

	"GET " + ours + "namespaces/{namespace}/events/stream": {
		summary: "Current events, then each change, as server-sent events",
		query:   []string{"last_event_id", "labelSelector", "fieldSelector"}, status: 200, answer: text(streamType)},
	"POST " + ours + "session":   {summary: "Sign the page in: tokens are kept in cookies", body: sessionStart{}, status: 200, answer: pageSession{}},
	"GET " + ours + "session":    {summary: "Who is signed in to the page", status: 200, answer: pageSession{}},
	"PUT " + ours + "session":    {summary: "Renew the sign-in of the page", status: 200, answer: pageSession{}},
	"DELETE " + ours + "session": {summary: "Sign the page out", status: 204},
	"GET " + ours + "namespaces/{namespace}/events/view": {
		summary: "A window of a list of events, which the server orders, counts and groups", query: viewQuery, status: 200, answer: eventWindow{}},
	"GET " + ours + "namespaces/{namespace}/events/view/stream": {
		summary: "A window of a list of events, then what changes in it, as server-sent events", query: viewQuery, status: 200,
		answer: text(streamType)},
	"GET " + ours + "namespaces/{namespace}/entities/view": {
		summary: "A window of a list of entities, which the server orders, counts and groups", query: entityViewQuery, status: 200, answer: entityWindow{}},
	"GET " + ours + "namespaces/{namespace}/entities/view/stream": {
		summary: "A window of a list of entities, then what changes in it, as server-sent events", query: entityViewQuery, status: 200,
		answer: text(streamType)},
	"GET " + ours + "namespaces/{namespace}/entities/map": {
		summary: "All entities of a list with their worst events, in columns", query: entityMapQuery, status: 200, answer: entityMap{}},
	"GET " + ours + "namespaces/{namespace}/config/stream": {
		summary: "Each change of a definition, as server-sent events", query: []string{"kind", "last_event_id"},
		status: 200, answer: text(streamType)},
	"GET " + ours + "namespaces/{namespace}/aggregates/{name}/evaluation": {
		summary: "What an aggregate finds now, of each group", status: 200, answer: []resource.AggregateEvaluation{}},
	"GET " + ours + "namespaces/{namespace}/metricchecks/{name}/preview": {
		summary: "What a metric check would have done between two times", query: []string{"since", "until"}, status: 200,
		answer: resource.MetricPreview{}},
	"GET " + ours + "namespaces/{namespace}/calendars/{name}/preview": {
		summary: "When a calendar is active", query: []string{"since", "until"}, status: 200, answer: resource.CalendarPreview{}},
	"GET " + ours + "namespaces/{namespace}/rotas/{name}/oncall": {
		summary: "Who is on call in a rota", query: []string{"since", "until"}, status: 200, answer: resource.OnCall{}},
	"GET " + ours + "namespaces/{namespace}/oncall": {
		summary: "Who is on call in all rotas; - is all namespaces", query: []string{"since", "until"}, status: 200, answer: []resource.OnCall{}},
	"GET " + ours + "namespaces/{namespace}/escalations": {
		summary: "The escalations that are going on; - is all namespaces", query: []string{"entity", "check"}, status: 200, answer: resource.EscalationList{}},
	"GET " + ours + "namespaces/{namespace}/checks/{name}/next": {
		summary: "When a check runs next", query: []string{"count", "since", "entity"}, status: 200, answer: resource.CheckRuns{}},
	"GET " + ours + "namespaces/{namespace}/checks/{name}/targets": {
		summary: "Which agents would run a check now, and whether that of one entity would", query: []string{"entity"}, status: 200,
		answer: resource.CheckTargets{}},
	"GET " + ours + "namespaces/{namespace}/subscriptions": {
		summary: "The subscriptions of a namespace", status: 200, answer: []resource.SubscriptionCount{}},
	"GET " + ours + "namespaces/{namespace}/subscriptions/{name}": {
		summary: "A subscription, with the names of what has it", status: 200, answer: resource.Subscription{}},
	"GET " + ours + "namespaces/{namespace}/lint": {
		summary: "What is doubtful about the stored definitions; - is all namespaces", status: 200, answer: []resource.LintFinding{}},
	"GET " + ours + "namespaces/{namespace}/referrers": {
		summary: "Which definitions name some others, each as handlers/slack; - is all namespaces; of more than 1,000 some, with the " +
			"number of those left out", query: []string{"to"}, status: 200, answer: resource.Referrers{}},
	"GET " + ours + "log-level": {
		summary: "What a backend logs", query: []string{"member"}, status: 200, answer: resource.LogLevels{}},
	"POST " + ours + "log-level": {
		summary: "Change what a backend logs, for some time", query: []string{"member"}, body: resource.LogLevelRequest{}, status: 200,
		answer: resource.LogLevels{}},
	"DELETE " + ours + "log-level": {
		summary: "End all changes of what a backend logs", query: []string{"member"}, status: 200, answer: resource.LogLevels{}},
	"GET " + ours + "acknowledge/{token}": {
		summary: "The page of a link that acknowledges an incident; the token is the right", status: 200, answer: text("text/html; charset=utf-8")},
	"POST " + ours + "acknowledge/{token}": {
		summary: "Acknowledge the incident of a link; a form may have a comment", status: 200, answer: text("text/html; charset=utf-8")},
	"POST " + ours + "namespaces/{namespace}/metricchecks/preview": {
		summary: "What a draft of a metric check would have done between two times; nothing is stored", query: []string{"since", "until"},
		body: resource.MetricCheck{}, status: 200, answer: resource.MetricPreview{}},
	"GET " + ours + "namespaces/{namespace}/events/{entity}/{check}/series": {
		summary: "The stored series of a check's metrics", status: 200, answer: []EventSeries{}},
	"GET " + ours + "graphite/{path...}":    {summary: "Graphite's API: render, metrics/find, tags and others", status: 200, answer: text("application/json")},
	"POST " + ours + "graphite/{path...}":   {summary: "Graphite's API with parameters in a form", body: anyObject{}, status: 200, answer: text("application/json")},
	"GET " + ours + "prometheus/{path...}":  {summary: "Prometheus' API: api/v1/query, query_range, labels, series and others", status: 200, answer: text("application/json")},
	"POST " + ours + "prometheus/{path...}": {summary: "Prometheus' API with parameters in a form, and remote write", body: anyObject{}, status: 200, answer: text("application/json")},
	"GET " + ours + "namespaces/{namespace}/events/{entity}/{check}/dependencies": {
		summary: "What an event depends on, and whether that keeps it from handlers", status: 200, answer: inhibit.Report{}},
	"GET " + ours + "namespaces/{namespace}/events/{entity}/{check}/history": {
		summary: "Changes of state of a check over days, newest first",
		query:   []string{"since", "until", "limit", "continue"}, status: 200, answer: []stateChange{}},
	"GET " + ours + "namespaces/{namespace}/reports/availability": reportOn("The time of checks in each state, and their uptime"),
	"GET " + ours + "namespaces/{namespace}/reports/response":     reportOn("Incidents, and the time to acknowledge and to resolve them"),
	"GET " + ours + "namespaces/{namespace}/reports/noisiest":     reportOn("Which checks changed their status most often"),
	"GET " + ours + "namespaces/{namespace}/reports/incidents":    reportOn("Each incident, the longest first"),
	"GET " + ours + "namespaces/{namespace}/reports/flapping":     reportOn("Which checks were flapping, and for how long"),
	"GET " + ours + "namespaces/{namespace}/checks/lateness": {
		summary: "When checks last ran, and which are late", status: 200, answer: []resource.CheckLateness{}, page: true},
	"GET " + ours + "namespaces/{namespace}/checks/{name}/lateness": {
		summary: "When a check last ran, and whether it is late", status: 200, answer: resource.CheckLateness{}},
	"GET " + ours + "namespaces/{namespace}/events/lateness": {
		summary: "Events whose checks should have had another result since", status: 200, answer: []resource.EventLateness{}, page: true},
	"GET " + ours + "namespaces/{namespace}/events/{entity}/{check}/lateness": {
		summary: "Whether a check should have had another result since its event", status: 200, answer: resource.EventLateness{}},
	"GET " + ours + "namespaces/{namespace}/events/{entity}/{check}/trace": {
		summary: "What became of the newest events of a check: workflows, filters, attempts",
		query:   []string{"limit", "until"}, status: 200, answer: []trace.Outcome{}},
	"GET " + ours + "namespaces/{namespace}/events/{entity}/{check}/explain": {
		summary: "Whether people were told that a check fails, and why or why not",
		query:   []string{"at", "outcomes"}, status: 200, answer: explain.Explanation{}},
	"GET " + ours + "namespaces/{namespace}/events/untold": {
		summary: "Of how many open incidents no one was told, and of which", status: 200, answer: untoldAnswer{}},
	"POST " + ours + "namespaces/{namespace}/events/explain": {
		summary: "Whether people were told of each of up to 100 events, in brief; those that you may not see are left out",
		body:    toExplain{}, status: 200, answer: []explained{}},
	"GET " + ours + "namespaces/{namespace}/notifications": {
		summary: "List the attempts of handlers to notify, newest first, or export them as CSV or JSON lines",
		query:   []string{"since", "until", "entity", "check", "handler", "recipient", "result", "fieldSelector", "format", "limit", "continue"},
		status:  200, answer: []notification.Notification{}},
	"POST " + ours + "namespaces/{namespace}/pipelines/simulate": {
		summary: "What would become of an event, perhaps with drafts of definitions; nothing is sent",
		body:    simulation{}, status: 200, answer: simulated{}},
	"POST " + ours + "namespaces/{namespace}/pipeline/replay": {
		summary: "Take stored events through a pipeline once more, and perhaps send what comes out; the answer is JSON lines",
		body:    replayRequest{}, status: 200, answer: replayLine{}, label: replayType},
	"GET " + ours + "postgres": {
		summary: "How the copy of events in PostgreSQL stands, as each backend writes it", status: 200, answer: []PostgresStatus{}},
	"GET " + ours + "namespaces/{namespace}/queue": {
		summary: "List the groups of round-robin checks", status: 200, answer: []queue.GroupStatus{}},
	"GET " + ours + "namespaces/{namespace}/queue/{name}": {
		summary: "The groups of a round-robin check, with their open turns", status: 200, answer: []queue.GroupDetail{}},
	"GET " + ours + "namespaces/{namespace}/deadletters": {
		summary: "List what handlers never took", query: []string{"handler", "fieldSelector", "limit", "continue"}, status: 200,
		answer: []delivery.DeadLetter{}},
	"GET " + ours + "namespaces/{namespace}/waiting": {
		summary: "What waits for handlers, by class; of one handler with its first parked deliveries",
		query:   []string{"handler", "limit"}, status: 200, answer: []delivery.Waiting{}},
	"POST " + ours + "namespaces/{namespace}/waiting/retry": {
		summary: "Make the deliveries of a handler due that wait for their next attempt", body: toRetry{}, status: 200,
		answer: retried{}},
	"DELETE " + ours + "namespaces/{namespace}/deadletters": {
		summary: "Forget the dead letters of a handler, or all", query: []string{"handler", "all", "id"}, status: 200,
		answer: deadLetterCount{}},
	"POST " + ours + "namespaces/{namespace}/deadletters/redrive": {
		summary: "Queue dead letters for their handlers once more", body: chosen{}, status: 200, answer: delivery.Redriven{}},
	"GET " + ours + "namespaces/{namespace}/deadletters/{id}": {summary: "Get a dead letter with its event",
		status: 200, answer: delivery.DeadLetter{}},
	"DELETE " + ours + "namespaces/{namespace}/deadletters/{id}": {summary: "Forget a dead letter", status: 204},
	"GET " + ours + "namespaces/{namespace}/orphans": {
		summary: "List events whose entity or check is not defined any more",
		query:   []string{"missing", "older_than"}, status: 200, answer: []resource.Orphan{}},
	"DELETE " + ours + "namespaces/{namespace}/orphans": {
		summary: "Remove events whose entity or check is not defined any more",
		query:   []string{"missing", "older_than", "events"}, status: 200, answer: orphanReport{}},
	"DELETE " + core + "namespaces/{namespace}/entities/{name}": {summary: "Delete an entity, its events, and perhaps its silences", query: []string{"events", "silences"}, status: 204},
	"DELETE " + core + "namespaces/{namespace}/checks/{name}":   {summary: "Delete a check, and perhaps its events and silences", query: []string{"events", "silences"}, status: 204},
	"DELETE " + core + "namespaces/{name}":                      {summary: "Delete a namespace that is empty, or all of it", query: []string{"cascade"}, status: 204},
	"GET " + ours + "audit": {
		summary: "Who changed what, newest first", status: 200, answer: []audit.Entry{},
		query: []string{"user", "action", "resource", "namespace", "name", "since", "until", "fieldSelector", "limit", "continue"}},
	"GET " + ours + "namespaces/{namespace}/audit": {
		summary: "Who changed what in a namespace, newest first", status: 200, answer: []audit.Entry{},
		query: []string{"user", "action", "resource", "name", "since", "until", "fieldSelector", "limit", "continue"}},
	"GET " + ours + "live": {
		summary: "Many live streams over one websocket: see docs/api.md", status: 101, answer: text("application/json")},
	"GET " + ours + "auth/can-i": {
		summary: "Whether a user may do something, and by which binding",
		query:   []string{"verb", "resource", "name", "namespace", "as", "group"}, status: 200, answer: canIAnswer{}},
	"GET " + ours + "auth/rights": {
		summary: "All that a user may do in a namespace, and by which bindings",
		query:   []string{"namespace", "as", "group"}, status: 200, answer: rightsAnswer{}},
	"POST " + ours + "namespaces/{namespace}/bulk": {
		summary: "Delete, label, resolve, silence or acknowledge all that a selector selects", body: bulkRequest{},
		status: 200, answer: bulkReport{}},
	"POST " + ours + "namespaces/{namespace}/silenced/preview": {
		summary: "What a silence would silence now, and when; nothing is stored", query: []string{"since", "until"}, body: resource.Silenced{},
		status: 200, answer: silencePreview{}},
	"POST " + ours + "namespaces/{namespace}/silenced/purge": {
		summary: "Delete silences of entities that are gone", body: purgeRequest{}, status: 200, answer: purgeReport{}},
	"POST " + ours + "namespaces/{namespace}/events/{entity}/{check}/ack": {
		summary: "Acknowledge what fails: silence it until it resolves", body: acknowledgement{}, status: 201},
	"DELETE " + ours + "namespaces/{namespace}/events/{entity}/{check}/ack": {summary: "Take an acknowledgement back", status: 204},
	"POST /api/enterprise/prune/v1alpha": {
		summary: "Delete what a set of files does not hold any more", body: []anyObject{}, status: 201, answer: []reference{},
		query: []string{"types", "namespaces", "users", "allUsers", "clusterWide", "dryRun", "labelSelector"}},
	"GET " + ours + "cluster": {summary: "How the members of the cluster stand, and what is wrong", status: 200, answer: ClusterStatus{}},
	"DELETE " + ours + "cluster/members/{name}": {
		summary: "Remove a member that is gone for good; a member joins when it is started", status: 204},
	"GET " + ours + "drain": {summary: "Whether a backend sends its agents to other backends", query: []string{"member"}, status: 200,
		answer: resource.Drain{}},
	"POST " + ours + "drain": {
		summary: "Send a backend's agents to other backends, and take none", query: []string{"member"}, body: drainRequest{}, status: 200,
		answer: resource.Drain{}},
	"DELETE " + ours + "drain": {summary: "Take agents again", query: []string{"member"}, status: 204},
	"POST " + ours + "backup": {
		summary: "A backup of this backend, as the command lapwing backup stores it; for users with all rights",
		status:  200, answer: text(backupType)},
	"GET " + ours + "openapi.json":   {summary: "This document", status: 200, answer: anyObject{}},
	"GET " + ours + "auth/providers": {summary: "Ways to sign in", status: 200, answer: []signInOption{}},

	"GET " + oidcPath + "authorize": {summary: "Begin a sign-in at an OIDC provider",
		query: []string{"provider", "callback", "state", "challenge"}, status: 302},
	"GET " + oidcPath + "callback": {summary: "Where the OIDC provider sends the browser back to",
		query: []string{"state", "code"}, status: 302},
	"POST " + oidcPath + "token": {summary: "Trade the code of a sign-in for tokens",
		body: signInCode{}, status: 200, answer: auth.Tokens{}},
	"PUT " + datastores + "provider/{name}":          {summary: "Create or replace a definition of PostgreSQL", body: resource.PostgresConfig{}, status: 200},
	"PUT " + authentication + "authproviders/{name}": {summary: "Create or replace a provider of sign-ins", body: anyObject{}, status: 200},

	"POST " + core + "users": {summary: "Create a user",
		body: resource.User{}, status: 201},
	"PUT " + core + "users/{name}":    {summary: "Create or replace a user", body: resource.User{}, status: 201},
	"DELETE " + core + "users/{name}": {summary: "Disable a user", status: 204},
	"PUT " + core + "users/{name}/password": {summary: "Change the own password; the new one is a hash",
		body: anyObject{}, status: 201},
	"PUT " + core + "users/{name}/change_password": {summary: "Change the own password", body: anyObject{}, status: 201},
	"PUT " + core + "users/{name}/reset_password": {summary: "Set a user's password",
		body: anyObject{}, status: 201},
	"PUT " + core + "users/{name}/reinstate":                                       {summary: "Enable a user", status: 201},
	"DELETE " + core + "users/{name}/groups":                                       {summary: "Take a user out of all groups", status: 204},
	"PUT " + core + "users/{name}/groups/{group}":                                  {summary: "Add a user to a group", status: 201},
	"DELETE " + core + "users/{name}/groups/{group}":                               {summary: "Take a user out of a group", status: 204},
	"GET " + core + "silenced/checks/{check}":                                      {summary: "List the silences of a check in all namespaces", status: 200, answer: []resource.Silenced{}, page: true},
	"GET " + core + "namespaces/{namespace}/silenced/checks/{check}":               {summary: "List the silences of a check", status: 200, answer: []resource.Silenced{}, page: true},
	"GET " + core + "namespaces/{namespace}/silenced/subscriptions/{subscription}": {summary: "List the silences of a subscription", status: 200, answer: []resource.Silenced{}, page: true},
}

// orderedEvents are the parameters of lists of events that Sensu does not have.
var orderedEvents = []string{"changed_since", "order", "acknowledged"}

// parameters are described here once.
var parameters = map[string]object{
	"limit":    {"description": "How many to list at most; all if it is absent or not positive", "schema": object{"type": "integer"}},
	"continue": {"description": "Where to go on: the Sensu-Continue of the page before", "schema": object{"type": "string"}},
	"labelSelector": {"description": "Which to list, by their labels", "schema": object{"type": "string"},
		"example": "region == 'eu' || tier != 'dev'"},
	"fieldSelector": {"description": "Which to list, by their fields", "schema": object{"type": "string"}},
	"since": {"description": "From when on: RFC 3339, Unix seconds, or how long ago",
		"schema": object{"type": "string"}, "example": "24h"},
	"until": {"description": "Until when, in the same forms", "schema": object{"type": "string"}, "example": "1h"},
	"at": {"description": "Leave out the events that came later than this moment, in the same forms",
		"schema": object{"type": "string"}, "example": "1h"},
	"outcomes": {"description": "Add the events that the answer is about, with what became of them", "schema": object{"type": "boolean"}},
	"user":     {"description": "Only changes by this user", "schema": object{"type": "string"}},
	"action": {"description": "Only this kind of change",
		"schema": object{"type": "string", "enum": []string{"create", "update", "delete", "execute"}}},
	"resource":  {"description": "Plural name of a kind of resource", "schema": object{"type": "string"}, "example": "checks"},
	"namespace": {"description": "Namespace", "schema": object{"type": "string"}, "example": "default"},
	"name":      {"description": "Name of the object", "schema": object{"type": "string"}},
	"verb":      {"description": "What to do", "schema": object{"type": "string", "enum": verbs}, "required": true},
	"as":        {"description": "The user who would do it; default oneself", "schema": object{"type": "string"}},
	"group": {"description": "A group that the user would be in, in place of the user's own; may be given several " +
		"times", "schema": object{"type": "string"}},
	"types": {"description": "Types of resources, with commas between", "schema": object{"type": "string"},
		"example": "CheckConfig"},
	"namespaces":  {"description": "Namespaces, with commas between", "schema": object{"type": "string"}, "example": "default"},
	"users":       {"description": "Only what these users made; default oneself", "schema": object{"type": "string"}},
	"allUsers":    {"description": "The objects of all users", "schema": object{"type": "boolean"}},
	"clusterWide": {"description": "Also what belongs to no namespace", "schema": object{"type": "boolean"}},
	"dryRun":      {"description": "Only tell what would be deleted", "schema": object{"type": "boolean"}},
	"kind": {"description": "Plural name of a kind to hear of; may be given several times; default all",
		"schema": object{"type": "string"}},
	"last_event_id": {"description": "Where to go on, for those who cannot send the header Last-Event-ID",
		"schema": object{"type": "string"}},
	"member":    {"description": "Name or id of a backend; default the one that is asked", "schema": object{"type": "string"}},
	"handler":   {"description": "Name of a handler", "schema": object{"type": "string"}},
	"count":     {"description": "How many; default 5, 100 at most", "schema": object{"type": "integer", "minimum": 1}},
	"entity":    {"description": "Name of an entity", "schema": object{"type": "string"}},
	"check":     {"description": "Name of a check", "schema": object{"type": "string"}},
	"recipient": {"description": "A part of a recipient's name, in upper or lower case", "schema": object{"type": "string"}},
	"result":    {"description": "ok, failed, timeout or error", "schema": object{"type": "string"}},
	"all":       {"description": "All of them; required if nothing else selects some", "schema": object{"type": "boolean"}},
	"id":        {"description": "Id of one of them; may be given several times", "schema": object{"type": "string"}},
	"events": {"description": "The events stay, are deleted, or are deleted after the failing ones are resolved",
		"schema": object{"type": "string", "enum": []string{eventsKeep, eventsDelete, eventsResolve}}},
	"silences": {"description": "What becomes of the silences; default keep",
		"schema": object{"type": "string", "enum": []string{"keep", "delete"}}},
	"cascade": {"description": "Delete all that is in it too", "schema": object{"type": "boolean"}},
	"missing": {"description": "Only those missing this; default either",
		"schema": object{"type": "string", "enum": []string{resource.OrphanOfEntity, resource.OrphanOfCheck}}},
	"older_than": {"description": "Only orphans that have not changed for so many seconds; default 60",
		"schema": object{"type": "integer", "minimum": 0}},
	"month": {"description": "A month in place of since and until, such as 2026-10, last or this", "schema": object{"type": "string"}, "example": "2026-10"},
	"zone": {"description": "Time zone of the month and of the page; default UTC", "schema": object{"type": "string"},
		"example": "Europe/Berlin"},
	"by": {"description": "What a row is of: pair (a check of an entity), entity, check, or label: and the name of a label; default pair",
		"schema": object{"type": "string"}, "example": "entity"},
	"skip_silenced": {"description": "Leave silenced time out of the uptime", "schema": object{"type": "boolean"}},
	"format": {"description": "Format of the answer: json (the default), csv, and html of a report or jsonl of a list",
		"schema": object{"type": "string"}},
	"timeout":  {"description": "Seconds", "schema": object{"type": "integer"}},
	"provider": {"description": "Name of the provider", "schema": object{"type": "string"}},
	"callback": {"description": "Where the client waits", "schema": object{"type": "string"}},
	"changed_since": {"description": "Only events whose state changed since then: RFC 3339, Unix seconds, or how long ago. " +
		"The answer is one page", "schema": object{"type": "string"}, "example": "1h"},
	"order": {"description": "name (the default), or changed: the newest change of state first. With it, the answer is one page",
		"schema": object{"type": "string", "enum": []string{"name", "changed"}}},
	"sort": {"description": "Events: severity (the default: incidents first, the worst and then the newest of them), since (the newest change " +
		"between OK and not OK first), entity or check. Entities: state (the default: the worst events first), name, last_seen (seen last first) " +
		"or version (of the agent). With a - before it, the other way round", "schema": object{"type": "string"}, "example": "-since"},
	"groupBy": {"description": "Count by this instead. Events: entity, check, namespace or label:KEY. Entities: namespace, class, os, platform, " +
		"version, subscription, backend or label:KEY", "schema": object{"type": "string"}, "example": "label:region"},
	"agent": {"description": "Only entities with an agent in one of these states, separated by commas: connected, late, gone, or proxy for none",
		"schema": object{"type": "string"}, "example": "late,gone"},
	"worst": {"description": "Only entities whose worst event is of one of these classes, separated by commas: critical, warning, unknown, " +
		"silenced, ok, or none without events", "schema": object{"type": "string"}, "example": "critical"},
	"backend": {"description": "Only entities whose agent is connected to this member", "schema": object{"type": "string"}, "example": "b1"},
	"facets": {"description": "Keys whose 50 most frequent values are wanted, with counts: those of groupBy, separated by commas, 10 at most",
		"schema": object{"type": "string"}, "example": "os,version"},
	"offset": {"description": "Place of the first row, or group, from 0", "schema": object{"type": "integer"}},
	"also": {"description": "Event whose changes are wanted although it may be outside of the window: namespace/entity/check; repeatable",
		"schema": object{"type": "string"}, "example": "default/web1/disk"},
	"find": {"description": "Name of the row whose place in the order is wanted. An event is namespace/entity/check, an entity is namespace/name",
		"schema": object{"type": "string"}, "example": "default/web1/disk"},
	"acknowledged": {"description": "Only events that a user has acknowledged, or only the others. The answer is one page",
		"schema": object{"type": "boolean"}},
	"challenge": {"description": "SHA-256 of a random verifier, in base64url without padding", "schema": object{"type": "string"}},
	"state":     {"description": "Given back as it came", "schema": object{"type": "string"}},
	"code":      {"description": "As given by the provider", "schema": object{"type": "string"}},
	"to":        {"description": "A resource and a name that may be named; repeatable", "schema": object{"type": "string"}, "example": "handlers/slack"},
}

// describe returns the operation of a method of a route; false if it follows from nothing and is not described.
func describe(rt *route, method string) (operation, bool) {
	if op, ok := described[method+" "+rt.pattern]; ok {
		if op.page {
			op.query = append(op.query, "limit", "continue", "labelSelector", "fieldSelector")
			if strings.HasSuffix(rt.pattern, "/events/{entity}") {
				op.query = append(op.query, orderedEvents...)
			}
		}
		return op, true
	}
	parts := strings.Split(rt.pattern, "/")
	last := parts[len(parts)-1]
	plural, item := last, strings.HasPrefix(last, "{")
	for item && strings.HasPrefix(plural, "{") {
		parts = parts[:len(parts)-1]
		plural = parts[len(parts)-1]
	}
	value, ok := kinds[plural]
	if !ok {
		return operation{}, false
	}
	list := reflect.MakeSlice(reflect.SliceOf(reflect.TypeOf(value)), 0, 0).Interface()
	switch {
	case method == http.MethodGet && !item && plural == "events":
		return operation{summary: "List events", status: 200, answer: list,
			query: append([]string{"limit", "continue", "labelSelector", "fieldSelector"}, orderedEvents...)}, true
	case method == http.MethodGet && !item:
		return operation{summary: "List " + plural, status: 200, answer: list,
			query: []string{"limit", "continue", "labelSelector", "fieldSelector"}}, true
	case method == http.MethodGet:
		return operation{summary: "Get one of the " + plural, status: 200, answer: value}, true
	case method == http.MethodPost && !item:
		return operation{summary: "Create one of the " + plural, body: value, status: 201}, true
	case method == http.MethodPut:
		return operation{summary: "Create or replace one of the " + plural, body: value, status: 201}, true
	case method == http.MethodPatch:
		return operation{summary: "Change one of the " + plural + " (RFC 7386)", body: anyObject{}, status: 200, answer: value}, true
	case method == http.MethodDelete:
		return operation{summary: "Delete one of the " + plural, status: 204}, true
	}
	return operation{}, false
}

func reportOn(summary string) operation {
	return operation{summary: summary, status: 200, answer: report.Report{},
		query: []string{"since", "until", "month", "zone", "by", "skip_silenced", "format", "limit", "labelSelector", "fieldSelector"}}
}

// document makes the OpenAPI document of the routes.
func document(t *testing.T, routes []route) object {
	t.Helper()
	types := newSchemas()
	for _, rt := range routes {
		for method := range rt.methods {
			if op, ok := describe(&rt, method); ok && op.body != nil {
				types.takes(reflect.TypeOf(op.body))
			}
		}
	}
	paths := object{}
	for _, rt := range routes {
		item := object{}
		for method := range rt.methods {
			op, ok := describe(&rt, method)
			if !ok {
				t.Errorf("%s %s is not described: add it to described", method, rt.pattern)
				continue
			}
			item[strings.ToLower(method)] = op.json(types, &rt, method)
		}
		if len(item) > 0 {
			paths[documentPath(rt.pattern)] = item
		}
	}
	types.components["Error"] = object{"type": "object", "properties": object{
		"message": object{"type": "string"}, "code": object{"type": "integer"},
		"mistakes": object{"type": "array", "description": "The broken rules of a definition, in answers to dry runs; of more than 100, the last entry says that there are more",
			"items": object{"type": "object", "properties": object{"field": object{"type": "string"}, "message": object{"type": "string"}}}},
		"Message": object{"type": "string"}, "Code": object{"type": "integer"},
		"Verb":     object{"type": "string", "description": "With Resource, the right that lacks, where the request's path does not tell it"},
		"Resource": object{"type": "string"},
	}}
	return object{
		"openapi": "3.1.0",
		"info": object{
			"title": "lapwing", "version": "1",
			"description": "Paths below /api/core and /api/enterprise are those of Sensu Go 6; those below /api/lapwing are lapwing's own.",
			"license":     object{"name": "Apache 2.0", "identifier": "Apache-2.0"},
		},
		"servers":  []object{{"url": "/"}},
		"security": []object{{"token": []string{}}, {"key": []string{}}},
		"paths":    paths,
		"components": object{
			"schemas": types.components,
			"securitySchemes": object{
				"token": object{"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "An access token of /auth"},
				"key": object{"type": "apiKey", "in": "header", "name": "Authorization",
					"description": "Key, a space, and an API key"},
				"password": object{"type": "http", "scheme": "basic"},
			},
		},
	}
}

// documentPath returns a route's pattern as OpenAPI writes it, which knows no parameter for several segments.
func documentPath(pattern string) string { return strings.ReplaceAll(pattern, "...}", "}") }

func (op *operation) contentType() string { return cmp.Or(op.label, jsonType) }

func (op *operation) json(types *schemas, rt *route, method string) object {
	out := object{
		"operationId": operationID(method, rt.pattern),
		"summary":     op.summary,
		"tags":        []string{tag(rt)},
	}
	if rt.public {
		out["security"] = []object{{}}
		if strings.HasPrefix(rt.pattern, "/auth") && method == http.MethodGet {
			out["security"] = []object{{"password": []string{}}}
		}
	}
	var params []object
	for _, p := range pathParameter.FindAllString(rt.pattern, -1) {
		name := strings.Trim(p, "{.}")
		param := object{"name": name, "in": "path", "required": true, "schema": object{"type": "string", "minLength": 1}}
		switch name {
		case "namespace":
			param["example"] = "default"
		case "name", "entity", "check":
			if param["example"] = "example"; strings.HasSuffix(rt.pattern, "silenced/{name}") {
				param["example"] = "linux:example"
			}
		}
		params = append(params, param)
	}
	for _, name := range op.query {
		param := maps.Clone(parameters[name])
		if param == nil {
			panic("parameter " + name + " is not described")
		}
		param["name"], param["in"] = name, "query"
		if name == "resource" && strings.HasSuffix(rt.pattern, "can-i") {
			param["required"] = true
		}
		params = append(params, param)
	}
	if params != nil {
		out["parameters"] = params
	}
	if op.body != nil {
		contentType := jsonType
		if method == http.MethodPatch {
			contentType = mergePatchType
		}
		content := object{"schema": types.of(reflect.TypeOf(op.body))}
		for plural, value := range kinds {
			if body, ok := examples[plural]; ok && reflect.TypeOf(value) == reflect.TypeOf(op.body) {
				content["example"] = json.RawMessage(body)
			}
		}
		if method == http.MethodPatch {
			content["example"] = object{"metadata": object{"annotations": object{"note": "changed"}}}
		}
		out["requestBody"] = object{"required": true, "content": object{contentType: content}}
	}
	success := object{"description": http.StatusText(op.status)}
	switch answer := op.answer.(type) {
	case nil:
	case text:
		success["content"] = object{string(answer): object{"schema": object{"type": "string"}}}
	default:
		success["content"] = object{op.contentType(): object{"schema": types.of(reflect.TypeOf(answer))}}
	}
	if slices.Contains(op.query, "continue") {
		success["headers"] = object{"Sensu-Continue": object{"description": "Where the next page begins; absent on the last", "schema": object{"type": "string"}}}
	}
	out["responses"] = object{
		strconv.Itoa(op.status): success,
		"default": object{"description": "Why not",
			"content": object{"*/*": object{"schema": object{"$ref": "#/components/schemas/Error"}}}},
	}
	return out
}

func operationID(method, pattern string) string {
	id := strings.ToLower(method)
	for _, part := range strings.FieldsFunc(pattern, func(r rune) bool { return strings.ContainsRune("/{}-_.", r) }) {
		if part != "api" {
			id += strings.ToUpper(part[:1]) + part[1:]
		}
	}
	return id
}

func tag(rt *route) string {
	if rt.resource != "" {
		return rt.resource
	}
	return "backend"
}

// TestOpenAPI compares the document with the routes.
func TestOpenAPI(t *testing.T) {
	s := newServer(t, nil)
	doc, err := json.MarshalIndent(document(t, s.routes), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	doc = append(doc, '\n')
	if *update {
		if err := os.WriteFile("openapi/openapi.json", doc, 0o644); err != nil {
			t.Fatal(err)
		}
	} else if !bytes.Equal(doc, openapi.Document) {
		t.Error("openapi/openapi.json does not describe the routes and types: run make generate")
	}
	for what := range described {
		method, pattern, _ := strings.Cut(what, " ")
		if !slices.ContainsFunc(s.routes, func(rt route) bool { return rt.pattern == pattern && rt.methods[method] != nil }) {
			t.Errorf("%s is described and not there", what)
		}
	}
	a := s.do(http.MethodGet, ours+"openapi.json", "")
	if a.status != http.StatusOK || !json.Valid([]byte(a.body)) {
		t.Errorf("served document: %d", a.status)
	}
}

// putExamples makes all objects of examples.
func (s *server) putExamples() {
	s.t.Helper()
	for plural, body := range examples {
		path := core + "namespaces/default/" + plural + "/example"
		switch plural {
		case "aggregates", "calendars", "contacts", "metricchecks", "rotas":
			path = strings.Replace(path, core, ours, 1)
		case "events":
			path += "/example"
		case "silenced":
			path = strings.Replace(path, "/example", "/linux:example", 1)
		case "namespaces", "users", "clusterroles", "clusterrolebindings":
			path = core + plural + "/example"
		case "provider":
			path = datastores + plural + "/example"
		}
		if a := s.do(http.MethodPut, path, body); a.status >= 300 {
			s.t.Errorf("PUT %s: %d %s", path, a.status, a.body)
		}
	}
}

// oneSeries is a StoredMetrics.
type oneSeries struct{ StoredMetrics }

func (oneSeries) SeriesOf(context.Context, string, string, string) ([]EventSeries, error) {
	return []EventSeries{{Name: "a", Tags: map[string]string{"b": "c"}}}, nil
}

// oneGroup is a Queue.
type oneGroup struct{}

func (oneGroup) Groups(context.Context, string) ([]queue.GroupStatus, []string) {
	return []queue.GroupStatus{{Namespace: "default", Check: "example"}}, nil
}

func (oneGroup) GroupsOf(context.Context, string, string) ([]queue.GroupDetail, []string) {
	return []queue.GroupDetail{{
		GroupStatus: queue.GroupStatus{Namespace: "default", Check: "example"}, Turns: []queue.OpenTurn{{Tick: 1}},
		Fairness: queue.Fairness{Bins: []queue.FairnessBin{{Agents: 1}}}, Twice: []queue.DuplicateTurn{{First: "a", Second: "b"}},
	}}, nil
}

// TestAnswersFitTheDocument makes one object of every kind and compares the answer of every GET with the document.
func TestAnswersFitTheDocument(t *testing.T) {
	s := newServer(t, func(o *Options) {
		o.Evaluate = func(context.Context, *resource.Aggregate, *selector.Selector) ([]resource.AggregateEvaluation, error) {
			return []resource.AggregateEvaluation{{AggregateCount: resource.AggregateCount{Group: "eu"}}}, nil
		}
		o.Dependencies = func(context.Context, *resource.Event) (*inhibit.Report, error) {
			return &inhibit.Report{Inhibited: true, By: []string{"a/b"},
				Dependencies: []inhibit.Relationship{{Through: []string{"a/"}, Circular: true}}, Cut: true}, nil
		}
		o.Trace = &pastEvents{events: map[string][]trace.Outcome{"default/example/example": {{
			Event: "0-1-0", Deliveries: []trace.Delivery{{Verdict: trace.Dead,
				Steps: []trace.Step{{Saw: []trace.Value{{Name: "a"}}}}, Attempts: []trace.Attempt{{At: 1}}}},
		}}}}
		o.Notifications = &sentBefore{list: []notification.Notification{{
			Number: 1, Header: delivery.Header{ID: "0-1-0/mail"}, Recipients: []string{"ops@example.com"},
			Merged: []notification.Merged{{ID: "0-1-0/mail"}},
		}}}
		o.Queue = oneGroup{}
		o.Waiting = func(context.Context, string, string, int) ([]delivery.Waiting, []string, error) {
			return []delivery.Waiting{{
				Oldest: 1, Next: 2, LastError: "a", LastFailed: 3,
				Deliveries: []delivery.Parked{{Group: "b", Received: 4, Error: "c", Member: "d"}},
			}}, nil, nil
		}
		o.Postgres = func(context.Context) []PostgresStatus {
			return []PostgresStatus{{Member: "a", Unknown: "b", Gone: true, Status: postgres.Status{
				Configured: true, Server: "c", Error: "d", Since: time.Now(), Positions: []uint64{1},
			}}}
		}
		o.Metrics = oneSeries{}
		o.PreviewMetricCheck = func(context.Context, *resource.MetricCheck, int64, int64) (*resource.MetricPreview, error) {
			value := 1.5
			return &resource.MetricPreview{Findings: []resource.MetricFinding{{
				Series: []resource.MetricFindingSeries{{Name: "a", Value: &value}}, Changes: []resource.MetricStatusChange{{At: 1}},
			}}}, nil
		}
		o.DeadLetters = &letters{list: []delivery.DeadLetter{{ID: "example", Namespace: "default",
			Event: &resource.Event{ID: resource.NewEventID(), Entity: &resource.Entity{}, Check: &resource.Check{}}}}}
	})
	var doc object
	if err := json.Unmarshal(openapi.Document, &doc); err != nil {
		t.Fatal(err)
	}
	s.putExamples()
	fitted := 0
	for _, rt := range s.routes {
		op, ok := describe(&rt, http.MethodGet)
		needsMore := rt.public && op.label == "" // needs credentials or a provider
		if _, isText := op.answer.(text); !ok || isText || rt.methods[http.MethodGet] == nil || needsMore {
			continue
		}
		path := strings.ReplaceAll(rt.pattern, "{namespace}", "default")
		path = strings.ReplaceAll(path, "{subscription}", "linux")
		if strings.HasSuffix(path, "silenced/{name}") {
			path = strings.ReplaceAll(path, "{name}", "linux:example")
		}
		path = pathParameter.ReplaceAllString(path, "example")
		if strings.HasSuffix(path, "can-i") {
			path += "?verb=get&resource=checks&namespace=default&group=cluster-admins"
		}
		a := s.do(http.MethodGet, path, "")
		var answer any
		if err := json.Unmarshal([]byte(a.body), &answer); err != nil {
			t.Errorf("GET %s: %d, and %v", path, a.status, err)
			continue
		}
		schema, ok := dig(doc, "paths", documentPath(rt.pattern), "get", "responses", strconv.Itoa(a.status), "content", op.contentType(), "schema")
		if !ok {
			if a.status != http.StatusNotFound || !strings.Contains(path, "/apikeys/") && !strings.Contains(path, "/authproviders/") {
				t.Errorf("GET %s: %d %s is not in the document", path, a.status, a.body)
			}
			continue
		}
		if l, ok := answer.([]any); !ok || len(l) > 0 {
			fitted++
		}
		for _, problem := range unfit(doc, schema, answer, "") {
			t.Errorf("GET %s: %s", path, problem)
		}
	}
	if fitted < 20 {
		t.Errorf("only %d answers had something in them", fitted)
	}
}

func dig(v any, keys ...string) (object, bool) {
	for _, key := range keys {
		o, ok := v.(object)
		if !ok {
			return nil, false
		}
		v = o[key]
	}
	o, ok := v.(object)
	return o, ok
}

// unfit returns where a value does not fit a schema, or has fields that are not in it.
func unfit(doc object, schema any, v any, at string) (problems []string) {
	s, ok := schema.(object)
	if !ok || len(s) == 0 {
		return nil
	}
	if ref, ok := s["$ref"].(string); ok {
		component, ok := dig(doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
		if !ok {
			return []string{fmt.Sprintf("%s: the document has no %s", at, ref)}
		}
		return unfit(doc, component, v, at)
	}
	if any, ok := s["anyOf"].([]any); ok {
		for _, one := range any {
			if problems = unfit(doc, one, v, at); problems == nil {
				return nil
			}
		}
		return problems
	}
	var types []string
	switch t := s["type"].(type) {
	case string:
		types = []string{t}
	case []any:
		for _, one := range t {
			types = append(types, fmt.Sprint(one))
		}
	}
	is := map[bool]string{true: "integer", false: "number"}
	var typ string
	switch v := v.(type) {
	case nil:
		typ = "null"
	case string:
		typ = "string"
		if values, ok := s["enum"].([]any); ok && !slices.Contains(values, any(v)) {
			problems = append(problems, fmt.Sprintf("%s is %q, not one of %v", at, v, values))
		}
	case bool:
		typ = "boolean"
	case float64:
		typ = is[v == float64(int64(v)) && !slices.Contains(types, "number")]
		if low, ok := s["minimum"].(float64); ok && v < low {
			problems = append(problems, fmt.Sprintf("%s: %v is less than %v", at, v, low))
		}
	case []any:
		typ = "array"
		for i, e := range v {
			problems = append(problems, unfit(doc, s["items"], e, fmt.Sprintf("%s/%d", at, i))...)
		}
	case object:
		typ = "object"
		properties, _ := s["properties"].(object)
		required, _ := s["required"].([]any)
		for _, key := range required {
			if _, ok := v[fmt.Sprint(key)]; !ok {
				problems = append(problems, fmt.Sprintf("%s/%s is required and not there", at, key))
			}
		}
		for key, e := range v {
			switch sub, known := properties[key]; {
			case known:
				problems = append(problems, unfit(doc, sub, e, at+"/"+key)...)
			case s["additionalProperties"] != nil:
				problems = append(problems, unfit(doc, s["additionalProperties"], e, at+"/"+key)...)
			case properties != nil:
				problems = append(problems, fmt.Sprintf("%s/%s is not in the document", at, key))
			}
		}
	}
	if types != nil && !slices.Contains(types, typ) {
		problems = append(problems, fmt.Sprintf("%s is %s, not %v", at, typ, types))
	}
	return problems
}

// TestUnfit checks the comparison with values that must not fit.
func TestUnfit(t *testing.T) {
	var doc object
	if err := json.Unmarshal([]byte(`{"c":{"type":"object","properties":{"n":{"type":"integer","minimum":0},"s":{"type":["string","null"]},"l":{"type":"array","items":{"$ref":"#/c"}},"m":{"type":"object","additionalProperties":{"type":"boolean"}},"p":{"anyOf":[{"$ref":"#/c"},{"type":"null"}]},"e":{"type":"string","enum":["a","b"]},"r":{"type":"object","required":["k"]}}}}`), &doc); err != nil {
		t.Fatal(err)
	}
	for value, problems := range map[string]int{
		`{}`: 0, `{"n":1,"s":"x","l":[{"n":2}],"m":{"a":true},"p":{"n":3}}`: 0, `{"s":null,"p":null}`: 0,
		`[]`: 1, `{"n":"1"}`: 1, `{"n":1.5}`: 1, `{"n":-1}`: 1, `{"x":1}`: 1, `{"l":[{"n":"a"},{"y":1}]}`: 2,
		`{"m":{"a":1}}`: 1, `{"p":5}`: 1, `{"p":{"z":1}}`: 1,
		`{"e":"b","r":{"k":null}}`: 0, `{"e":"c","r":{}}`: 2,
	} {
		var v any
		if err := json.Unmarshal([]byte(value), &v); err != nil {
			t.Fatal(err)
		}
		if got := unfit(doc, object{"$ref": "#/c"}, v, ""); len(got) != problems {
			t.Errorf("%s has problems %q, want %d", value, got, problems)
		}
	}
}
