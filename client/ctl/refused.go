package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// aim is what a refused request was about, as its path tells.
type aim struct {
	kind      *resource.Kind // nil if it is no kind of resource
	role      string         // the resource, as in roles; "" if the path does not tell
	namespace string         // "" for all of them, or none
	name      string         // "" for a collection
	verb      string         // as in roles
}

// aimOf reads the method and path of a refused request. If the server told which right lacks, that counts.
func aimOf(refused *client.Error) (to aim) {
	defer func() {
		if refused.Verb != "" && refused.Resource != "" {
			to.verb, to.role = refused.Verb, refused.Resource
		}
	}()
	path, query, _ := strings.Cut(refused.Path, "?")
	path = strings.TrimPrefix(path, "/api/lapwing/v1/dry-run")
	words := strings.Split(strings.Trim(path, "/"), "/")
	if len(words) < 4 || words[0] != "api" {
		return to
	}
	for i := range words {
		if plain, err := url.PathUnescape(words[i]); err == nil {
			words[i] = plain
		}
	}
	group, words := words[1]+"/"+words[2], words[3:]
	if words[0] == "namespaces" && len(words) > 2 {
		if to.namespace, words = words[1], words[2:]; to.namespace == "-" { // all namespaces
			to.namespace = ""
		}
	}
	for _, k := range resource.Kinds { // kinds would be an initialization cycle
		if k.Plural == words[0] && (k.Group == group || to.kind == nil) {
			to.kind, to.role = k, k.Role
		}
	}
	to.name = strings.Join(words[1:], "/")
	own := group == "lapwing/v1"
	list := to.name == ""
	switch {
	case own && words[len(words)-1] == "ack":
		to.role = "silenced"
		to.name = strings.TrimSuffix(to.name, "/ack")
	case own && (words[0] == "audit" || words[0] == "deadletters"):
		to.role = words[0]
	case own && slices.Contains([]string{"cluster", "drain", "log-level", "postgres"}, words[0]), words[0] == "cluster":
		to.role, to.name = "cluster", words[0]
		list = false // these are names of the resource cluster
	case own && words[0] == "subscriptions":
		to.role, list = client.Entities.Plural, true
	case own && words[0] == "queue":
		to.role = client.Checks.Plural
	case own && (words[0] == "reports" || words[0] == "orphans"):
		to.role, list = client.Events.Plural, true
	case group == "enterprise/prune":
		if q, err := url.ParseQuery(query); err == nil {
			to.namespace = q.Get("namespaces")
		}
	case own && words[0] == "waiting":
		to.role = "deadletters"
	case own && words[0] == "oncall":
		to.role = client.Rotas.Plural
	case own && (words[0] == "notifications" || words[0] == "escalations"):
		to.role = client.Events.Plural
	case own && len(words) > 1 && to.kind != nil && to.kind.Type == client.Events.Type:
		to.name = strings.Join(words[1:min(3, len(words))], "/") // what follows is about the event
	case len(words) > 1 && to.kind != nil && to.kind.Type != client.Events.Type:
		to.name = words[1] // what follows is about it
	}
	switch refused.Method {
	case http.MethodPost:
		to.verb = "create"
	case http.MethodPut, http.MethodPatch:
		to.verb = "update"
	case http.MethodDelete:
		to.verb = "delete"
	default:
		to.verb = "get"
		if list {
			to.verb = "list"
		}
	}
	return to
}

// clusterWide reports whether what a request was about belongs to no namespace.
func (to *aim) clusterWide() bool {
	for _, k := range resource.Kinds {
		if k.Role == to.role {
			return !k.Namespaced
		}
	}
	return to.role != "audit" && to.role != "deadletters"
}

// partly explains a refusal of a request that needs a right which the user has only for objects with some labels.
func (s *invocation) partly(ctx context.Context, err error) error {
	var refused *client.Error
	if !errors.Is(err, client.ErrDenied) || reasoned(err) || !errors.As(err, &refused) || errors.As(err, new(*hintError)) {
		return err
	}
	to := aimOf(refused)
	if to.role == "" {
		return err
	}
	limits := s.labelLimits(ctx, to.verb, to.role, to.namespace)
	if limits == nil {
		return err
	}
	return hint(err, "Your roles allow you to %s %s only where labels match %s, and this needs more.\n"+
		"See all your rights with 'lapwing auth can-i --list'.\nAsk an administrator for a role that allows it for all.",
		to.verb, to.role, strings.Join(limits, " or "))
}

// denied explains a refusal by the roles: which right lacks, and how to see one's rights.
func (s *settings) denied(refused *client.Error) string {
	to := aimOf(refused)
	at := *s
	at.namespace = cmp.Or(to.namespace, s.namespace)
	if to.role == "" {
		return "Your roles do not allow this.\nSee all your rights with 'lapwing auth can-i --list'.\nAsk an administrator for a role that does."
	}
	place := fmt.Sprintf("in namespace %q", at.namespace)
	check := []string{"auth", "can-i", to.verb, to.role}
	ask := "Ask an administrator for a role that does, or choose another --namespace."
	switch {
	case to.clusterWide():
		place = "in the cluster"
		ask = "Ask an administrator for a ClusterRoleBinding to a role that does."
	case to.namespace == "":
		place, check = "in all namespaces", append(check, "--all-namespaces")
		ask = "Ask an administrator for a ClusterRoleBinding to a role that does, or choose one namespace with --namespace."
	}
	return fmt.Sprintf("Your roles do not allow this %s: you lack the right to %s %s.\n"+
		"Check it with '%s'; see all your rights with 'lapwing auth can-i --list'.\n%s",
		place, to.verb, to.role, at.commandLine(check...), ask)
}

// mostNames bounds the names that are looked at for one that is similar.
const mostNames = 5000

// missing adds to an error that something is not there what is there: a namespace of a similar name, the same name in other
// namespaces, or a similar name. A user whose roles are limited by labels is told that it may be there all the same.
func (s *invocation) missing(ctx context.Context, err error) error {
	var refused *client.Error
	if !errors.As(err, &refused) || !absent(err) || ctx.Err() != nil {
		return err
	}
	to := aimOf(refused)
	err = withoutPath(err, refused, &to)
	if to.kind == nil {
		return err
	}
	if to.namespace != "" {
		if unknown := s.knownNamespace(ctx, to.namespace); unknown != nil {
			return unknown
		}
	}
	var texts []string
	if others := s.elsewhere(ctx, &to); others != nil {
		text := fmt.Sprintf("Namespace %s has one of this name: choose it with --namespace.", others[0])
		if len(others) > 1 {
			text = fmt.Sprintf("Namespaces such as %s have one of this name: choose one with --namespace.", strings.Join(others, " and "))
		}
		texts = append(texts, text)
	} else if near := s.similar(ctx, &to); near != "" {
		texts = append(texts, fmt.Sprintf("Did you mean %q?", near))
	}
	if to.role != "" && s.labelLimits(ctx, "list", to.role, to.namespace) != nil {
		texts = append(texts, "It may exist: "+byLabels+", and you see only what matches them.")
	}
	if texts == nil {
		return err
	}
	text := strings.Join(texts, " ")
	if h, ok := err.(*hintError); ok {
		return hint(h.err, "%s %s", text, h.hint)
	}
	return hint(err, "%s", text)
}

// withoutPath names the thing that is not there in place of the request.
func withoutPath(err error, refused *client.Error, to *aim) error {
	h, hinted := err.(*hintError)
	cause := err
	if hinted {
		cause = h.err
	}
	text, request := cause.Error(), refused.Method+" "+refused.Path+": "
	if !strings.Contains(text, request) {
		return err
	}
	text = strings.Replace(text, request, "", 1)
	if text == refused.Message && to.kind != nil && to.name != "" {
		text = "there is no " + (&kind{Kind: client.Kind[json.RawMessage]{Kind: to.kind}}).word() + " " + to.name
		if to.namespace != "" {
			text += " in namespace " + to.namespace
		}
	}
	if cause = reworded(cause, "%s", text); hinted {
		return &hintError{cause, h.hint}
	}
	return cause
}

// mostNamespaces bounds the other namespaces that are looked at, and mostNamespacesTime how long that takes.
const mostNamespaces, mostNamespacesTime = 20, 3 * time.Second

// elsewhere returns the other namespaces that have what is missing, two at most.
func (s *invocation) elsewhere(ctx context.Context, to *aim) (found []string) {
	if to.name == "" || to.namespace == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, mostNamespacesTime)
	defer cancel()
	k, looked := client.Kind[json.RawMessage]{Kind: to.kind}, 0
	for one, err := range client.All(ctx, s.client, client.Namespaces, "", client.ListOptions{ChunkSize: mostNamespaces}) {
		if err != nil || looked == mostNamespaces || len(found) == 2 {
			break
		}
		if one.Name == to.namespace {
			continue
		}
		looked++
		if _, err := client.Get(ctx, s.client, k, one.Name, to.name); err == nil {
			found = append(found, one.Name)
		}
	}
	return found
}

// similar returns an existing name that is near to the one that is not there, or "".
func (s *invocation) similar(ctx context.Context, to *aim) string {
	if to.name == "" {
		return ""
	}
	k := client.Kind[json.RawMessage]{Kind: to.kind}
	if to.kind.Type == client.Events.Type {
		return s.similarEvent(ctx, k, to)
	}
	near, _ := s.nearest(ctx, k, to.namespace, to.name, resourceName(&kind{Kind: k}), client.ListOptions{})
	return near
}

// similarEvent returns ENTITY/CHECK of a similar event: of the same entity, or of one with a similar name. If that entity
// has no check with a similar name, its name alone is returned.
func (s *invocation) similarEvent(ctx context.Context, k client.Kind[json.RawMessage], to *aim) string {
	entity, check, _ := strings.Cut(to.name, "/")
	near, events := s.nearest(ctx, k, to.namespace, check, eventCheckName, client.ListOptions{Entity: entity})
	switch {
	case near != "":
		return entity + "/" + near
	case len(events) > 0:
		return ""
	}
	entities := client.Kind[json.RawMessage](client.Entities)
	nameOf := resourceName(&kind{Kind: entities})
	if entity, _ = s.nearest(ctx, entities, to.namespace, entity, nameOf, client.ListOptions{}); entity == "" {
		return ""
	}
	near, events = s.nearest(ctx, k, to.namespace, check, eventCheckName, client.ListOptions{Entity: entity})
	if slices.Contains(events, check) {
		near = check
	}
	return strings.TrimSuffix(entity+"/"+near, "/")
}

// nearest returns the name that is nearest to the wanted one, and all names; near is "" if the wanted one is there.
func (s *invocation) nearest(
	ctx context.Context, k client.Kind[json.RawMessage], namespace, wanted string, nameOf func(json.RawMessage) string,
	opts client.ListOptions,
) (near string, names []string) {
	opts.ChunkSize = defaultChunkSize
	for raw, err := range client.All(ctx, s.client, k, namespace, opts) {
		if err != nil {
			return "", nil
		}
		names = append(names, nameOf(*raw))
		if len(names) == mostNames {
			break
		}
	}
	if slices.Contains(names, wanted) { // made in between, or another thing is missing
		return "", names
	}
	return optionerr.Nearest(wanted, names), names
}

// rewordedError says in other words that something is not there. The server's answer stays its cause, so the nearest name
// is looked for.
type rewordedError struct {
	text  string
	cause error
}

// absent reports whether something is not there. A server that does not know the path itself sends no code.
func absent(err error) bool {
	var refused *client.Error
	return errors.As(err, &refused) && refused.Status == http.StatusNotFound && refused.Code != 0
}

// missingNamed names what is not there, in place of the path.
func missingNamed(k *kind, name string, err error) error {
	if absent(err) {
		err = reworded(err, "there is no %s %s", k.word(), name)
	}
	return hintMissing(k, err)
}

func reworded(cause error, format string, args ...any) error {
	return &rewordedError{fmt.Sprintf(format, args...), cause}
}

func (e *rewordedError) Error() string { return e.text }
func (e *rewordedError) Unwrap() error { return e.cause }
