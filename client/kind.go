package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Kind adds Go type T to a row of resource.Kinds. A conversion gives the same kind with another T:
// Kind[json.RawMessage](Checks).
type Kind[T any] struct{ *resource.Kind }

// The kinds that callers use by name. Encoding redacts entities and events. To put one back without losing its secrets,
// use Kind[json.RawMessage].
var (
	Namespaces          = kindOf[resource.Namespace]()
	ClusterRoles        = kindOf[resource.ClusterRole]()
	ClusterRoleBindings = kindOf[resource.ClusterRoleBinding]()
	Users               = kindOf[resource.User]()
	APIKeys             = kindOf[resource.APIKey]()
	Tessen              = kindOf[resource.TessenConfig]()
	Assets              = kindOf[resource.Asset]()
	Checks              = kindOf[resource.CheckConfig]()
	Entities            = kindOf[resource.Entity]()
	Events              = kindOf[resource.Event]()
	Filters             = kindOf[resource.EventFilter]()
	Handlers            = kindOf[resource.Handler]()
	Hooks               = kindOf[resource.HookConfig]()
	Mutators            = kindOf[resource.Mutator]()
	Pipelines           = kindOf[resource.Pipeline]()
	FallbackPipelines   = kindOf[resource.FallbackPipeline]()
	Roles               = kindOf[resource.Role]()
	RoleBindings        = kindOf[resource.RoleBinding]()
	Silences            = kindOf[resource.Silenced]()
	Aggregates          = kindOf[resource.Aggregate]()
	Calendars           = kindOf[resource.Calendar]()
	Contacts            = kindOf[resource.Contact]()
	Rotas               = kindOf[resource.Rota]()
	MetricChecks        = kindOf[resource.MetricCheck]()
	EntityConfigs       = kindOf[resource.EntityConfig]()
	AuthProviders       = kindOf[resource.AuthProvider]()
	PostgresConfigs     = kindOf[resource.PostgresConfig]()
)

func kindOf[T any]() Kind[T] { return Kind[T]{resource.KindFor[T]()} }

// EventName returns the name of a check's event on an entity, for the functions of this package.
func EventName(entity, check string) string { return entity + "/" + check }

// Path returns the encoded path of the named resource, or of the collection if name is "". For a namespaced kind,
// namespace "" means the collection of all namespaces.
func (k Kind[T]) Path(namespace, name string) string {
	var b strings.Builder
	b.WriteString(k.Prefix())
	if k.Namespaced && namespace != "" {
		b.WriteString("namespaces/" + escape(namespace) + "/")
	}
	b.WriteString(k.Plural)
	if name == "" || k.Singleton {
		return b.String()
	}
	segments := []string{name}
	if k.Paired {
		segments = strings.SplitN(name, "/", 2)
	}
	for _, s := range segments {
		b.WriteString("/" + escape(s))
	}
	return b.String()
}

// escape encodes a path segment. A name of only dots is legal, and must not look like a step in a path.
func escape(segment string) string {
	if segment == "." || segment == ".." {
		return strings.ReplaceAll(segment, ".", "%2E")
	}
	return url.PathEscape(segment)
}

// check refuses names that would not address exactly one resource.
func (k Kind[T]) check(namespace, name string) error {
	switch {
	case k.Namespaced && namespace == "":
		return errors.New("the namespace is empty")
	case name == "" && !k.Singleton:
		return errors.New("the name is empty")
	case k.Paired:
		if entity, check, ok := strings.Cut(name, "/"); !ok || entity == "" || check == "" {
			return fmt.Errorf("the name %q is not of the form ENTITY/CHECK", name)
		}
	}
	return nil
}

// describe returns a resource, or a collection if name is "", for error texts.
func (k Kind[T]) describe(namespace, name string) string {
	s := k.Plural
	if name != "" {
		s += " " + strconv.Quote(name)
	}
	if k.Namespaced && namespace != "" {
		s += " in namespace " + strconv.Quote(namespace)
	}
	return s
}

// ListOptions limit a list.
type ListOptions struct {
	// ChunkSize is how many resources one request asks for. 0 means all at once.
	ChunkSize int

	FieldSelector string
	LabelSelector string

	// Entity lists only this entity's events. Only for Events.
	Entity string

	// More has further parameters, which only lapwing knows: with those of an ordered list of events, the list is one page.
	More url.Values

	// Check and Subscription list only silences of that check or subscription. Only for Silences, and not both.
	Check, Subscription string
}

// All iterates over the resources of a kind, ordered by namespace and name, and fetches them as it goes. Namespace ""
// means all of them. It ends after the first error.
func All[T any](ctx context.Context, c *Client, k Kind[T], namespace string, opts ListOptions) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		path := k.Path(namespace, "")
		if opts.Entity != "" {
			path += "/" + escape(opts.Entity)
		}
		if opts.Check != "" {
			path += "/checks/" + escape(opts.Check)
		}
		if opts.Subscription != "" {
			path += "/subscriptions/" + escape(opts.Subscription)
		}
		query := url.Values{}
		if opts.ChunkSize > 0 {
			query.Set("limit", strconv.Itoa(opts.ChunkSize))
		}
		if opts.FieldSelector != "" {
			query.Set("fieldSelector", opts.FieldSelector)
		}
		if opts.LabelSelector != "" {
			query.Set("labelSelector", opts.LabelSelector)
		}
		maps.Copy(query, opts.More)
		for {
			var page []T
			header, err := c.do(ctx, request{method: http.MethodGet, path: path, query: query, out: &page})
			if err != nil {
				yield(nil, fmt.Errorf("list %s: %w", k.describe(namespace, ""), err))
				return
			}
			for i := range page {
				if !yield(&page[i], nil) {
					return
				}
			}
			next := header.Get("Sensu-Continue")
			if next == "" {
				return
			}
			query.Set("continue", next)
		}
	}
}

// List returns the resources of All.
func List[T any](ctx context.Context, c *Client, k Kind[T], namespace string, opts ListOptions) ([]T, error) {
	list := []T{}
	for item, err := range All(ctx, c, k, namespace, opts) {
		if err != nil {
			return nil, err
		}
		list = append(list, *item)
	}
	return list, nil
}

// Get returns the named resource.
func Get[T any](ctx context.Context, c *Client, k Kind[T], namespace, name string) (*T, error) {
	item, _, err := GetTagged(ctx, c, k, namespace, name)
	return item, err
}

// GetTagged is Get, but also returns the entity tag. PutIf uses it to detect changes.
func GetTagged[T any](ctx context.Context, c *Client, k Kind[T], namespace, name string) (*T, string, error) {
	item := new(T)
	header, err := one(ctx, c, k, request{method: http.MethodGet, out: item}, namespace, name)
	if err != nil {
		return nil, "", fmt.Errorf("get %s: %w", k.describe(namespace, name), err)
	}
	return item, header.Get("Etag"), nil
}

// Post creates a resource. It fails with ErrExists if there is one of that name.
func Post[T any](ctx context.Context, c *Client, k Kind[T], namespace string, item *T) error {
	if k.Namespaced && namespace == "" {
		return fmt.Errorf("create %s: the namespace is empty", k.Plural)
	}
	_, err := c.do(ctx, request{method: http.MethodPost, path: k.Path(namespace, ""), in: item})
	if err != nil {
		return fmt.Errorf("create %s: %w", k.describe(namespace, ""), err)
	}
	return nil
}

// Put creates or replaces the named resource.
func Put[T any](ctx context.Context, c *Client, k Kind[T], namespace, name string, item *T) error {
	return PutIf(ctx, c, k, namespace, name, "", item)
}

// PutTold is Put, and returns what it changed: created, updated or unchanged, "" if the server does not tell.
func PutTold[T any](ctx context.Context, c *Client, k Kind[T], namespace, name string, item *T) (change string, err error) {
	header, err := one(ctx, c, k, request{method: http.MethodPut, in: item}, namespace, name)
	if err != nil {
		return "", fmt.Errorf("put %s: %w", k.describe(namespace, name), err)
	}
	return header.Get("Lapwing-Change"), nil
}

// PutIf is Put, but fails with ErrPrecondition if the resource no longer has the entity tag. An empty tag matches any.
// Sensu Go ignores tags here.
func PutIf[T any](ctx context.Context, c *Client, k Kind[T], namespace, name, tag string, item *T) error {
	r := request{method: http.MethodPut, in: item}
	if tag != "" {
		r.header = http.Header{"If-Match": {tag}}
	}
	if _, err := one(ctx, c, k, r, namespace, name); err != nil {
		return fmt.Errorf("put %s: %w", k.describe(namespace, name), err)
	}
	return nil
}

// Patch changes the named resource with a JSON merge patch (RFC 7386). Users, events and silences cannot be patched.
func Patch[T any](ctx context.Context, c *Client, k Kind[T], namespace, name string, patch any) error {
	r := request{
		method: http.MethodPatch,
		in:     patch,
		header: http.Header{"Content-Type": {"application/merge-patch+json"}},
	}
	if _, err := one(ctx, c, k, r, namespace, name); err != nil {
		return fmt.Errorf("patch %s: %w", k.describe(namespace, name), err)
	}
	return nil
}

// Delete removes the named resource.
func Delete[T any](ctx context.Context, c *Client, k Kind[T], namespace, name string) error {
	return DeleteWith(ctx, c, k, namespace, name, nil)
}

// DeleteWith is Delete with query parameters, which say what else to delete.
func DeleteWith[T any](ctx context.Context, c *Client, k Kind[T], namespace, name string, query url.Values) error {
	if _, err := one(ctx, c, k, request{method: http.MethodDelete, query: query}, namespace, name); err != nil {
		return fmt.Errorf("delete %s: %w", k.describe(namespace, name), err)
	}
	return nil
}

// one sends a request about the named resource.
func one[T any](ctx context.Context, c *Client, k Kind[T], r request, namespace, name string) (http.Header, error) {
	if err := k.check(namespace, name); err != nil {
		return nil, err
	}
	r.path = k.Path(namespace, name)
	return c.do(ctx, r)
}
