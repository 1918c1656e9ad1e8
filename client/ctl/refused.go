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

// aimOf reads the method and path of a refused request.
func aimOf(refused *client.Error) (to aim) {
	path, _, _ := strings.Cut(refused.Path, "?")
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
		to.namespace, words = words[1], words[2:]
	}
	for _, k := range resource.Kinds { // kinds would be an initialization cycle
		if k.Plural == words[0] && (k.Group == group || to.kind == nil) {
			to.kind, to.role = k, k.Role
		}
	}
	to.name = strings.Join(words[1:], "/")
	own := group == "lapwing/v1"
	switch {
	case own && words[len(words)-1] == "ack":
		to.role = "silenced"
		to.name = strings.TrimSuffix(to.name, "/ack")
	case own && (words[0] == "audit" || words[0] == "deadletters"):
		to.role = words[0]
	case own && words[0] == "notifications":
		to.role = client.Events.Plural
	case own && len(words) > 1 && to.kind != nil && to.kind.Type == client.Events.Type:
		to.name = strings.Join(words[1:min(3, len(words))], "/") // what follows is about the event
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
		if to.name == "" {
			to.verb = "list"
		}
	}
	return to
}

// denied explains a refusal by the roles: which right lacks, and how to see one's rights.
func (s *settings) denied(refused *client.Error) string {
	to := aimOf(refused)
	at := *s
	at.namespace = cmp.Or(to.namespace, s.namespace)
	place := fmt.Sprintf("in namespace %q", at.namespace)
	check := []string{"auth", "can-i", to.verb, to.role}
	if to.role != "" && to.namespace == "" {
		place, check = "in the cluster", append(check, "--all-namespaces")
	}
	ask := "Ask an administrator for a role that does, or choose another --namespace."
	if to.role == "" {
		return fmt.Sprintf("Your roles do not allow this %s.\nSee all your rights with 'lapwing auth can-i --list'.\n%s", place, ask)
	}
	return fmt.Sprintf("Your roles do not allow this %s: you lack the right to %s %s.\n"+
		"Check it with '%s'; see all your rights with 'lapwing auth can-i --list'.\n%s",
		place, to.verb, to.role, at.commandLine(check...), ask)
}

// mostNames bounds the names that are looked at for one that is similar.
const mostNames = 5000

// missing adds to an error that something is not there what is there: another namespace, or a similar name.
func (s *invocation) missing(ctx context.Context, err error) error {
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Status != http.StatusNotFound || refused.Code == 0 || ctx.Err() != nil {
		return err
	}
	to := aimOf(refused)
	if to.kind == nil {
		return err
	}
	if to.namespace != "" {
		if unknown := s.knownNamespace(ctx, to.namespace); unknown != nil {
			return unknown
		}
	}
	near := s.similar(ctx, &to)
	if near == "" {
		return err
	}
	text := fmt.Sprintf("Did you mean %q?", near)
	if h, ok := err.(*hintError); ok {
		return hint(h.err, "%s %s", text, h.hint)
	}
	return hint(err, "%s", text)
}

// similar returns an existing name that is near to the one that is not there, or "".
func (s *invocation) similar(ctx context.Context, to *aim) string {
	if to.name == "" {
		return ""
	}
	k := client.Kind[json.RawMessage]{Kind: to.kind}
	wanted, nameOf, opts := to.name, resourceName(&kind{Kind: k}), client.ListOptions{ChunkSize: defaultChunkSize}
	before := ""
	if to.kind.Type == client.Events.Type {
		entity, check, _ := strings.Cut(to.name, "/")
		wanted, nameOf, before, opts.Entity = check, eventCheckName, entity+"/", entity
	}
	var names []string
	for raw, err := range client.All(ctx, s.client, k, to.namespace, opts) {
		if err != nil {
			return ""
		}
		names = append(names, nameOf(*raw))
		if len(names) == mostNames {
			break
		}
	}
	if slices.Contains(names, wanted) { // made in between, or another thing is missing
		return ""
	}
	if near := optionerr.Nearest(wanted, names); near != "" {
		return before + near
	}
	return ""
}
