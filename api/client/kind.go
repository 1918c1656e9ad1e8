package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// APIVersion is the version of all kinds here, as wrapped resources name it.
const APIVersion = "core/v2"

// Kind says where resources of Go type T are found. The same kind with another T, such as json.RawMessage, is
// made by conversion: Kind[json.RawMessage](Checks).
type Kind[T any] struct {
	Type       string // as in wrapped resources, such as "CheckConfig"
	Plural     string // as in paths, such as "checks"
	Namespaced bool

	paired bool // names are two segments, see EventName
}

// The kinds that have a type in package resource and a route. Entities and events are redacted when they are
// encoded, so to put one back that holds secrets use Kind[json.RawMessage].
var (
	Namespaces = Kind[resource.Namespace]{Type: "Namespace", Plural: "namespaces"}
	Checks     = Kind[resource.CheckConfig]{Type: "CheckConfig", Plural: "checks", Namespaced: true}
	Entities   = Kind[resource.Entity]{Type: "Entity", Plural: "entities", Namespaced: true}
	Events     = Kind[resource.Event]{Type: "Event", Plural: "events", Namespaced: true, paired: true}
	Handlers   = Kind[resource.Handler]{Type: "Handler", Plural: "handlers", Namespaced: true}
)

// EventName is the name under which functions of this package know the event of an entity's check.
func EventName(entity, check string) string { return entity + "/" + check }

// Path returns the encoded path of the named resource, or with no name that of the collection. For namespaced
// kinds, a collection in namespace "" is that of all namespaces.
func (k Kind[T]) Path(namespace, name string) string {
	var b strings.Builder
	b.WriteString("/api/core/v2/")
	if k.Namespaced && namespace != "" {
		b.WriteString("namespaces/" + escape(namespace) + "/")
	}
	b.WriteString(k.Plural)
	if name == "" {
		return b.String()
	}
	segments := []string{name}
	if k.paired {
		segments = strings.SplitN(name, "/", 2)
	}
	for _, s := range segments {
		b.WriteString("/" + escape(s))
	}
	return b.String()
}

// escape encodes a path segment. Names of only dots are legal, and must not look like steps in a path.
func escape(segment string) string {
	if segment == "." || segment == ".." {
		return strings.ReplaceAll(segment, ".", "%2E")
	}
	return url.PathEscape(segment)
}

// check refuses names that would address something else than one resource.
func (k Kind[T]) check(namespace, name string) error {
	switch {
	case k.Namespaced && namespace == "":
		return errors.New("the namespace is empty")
	case name == "":
		return errors.New("the name is empty")
	case k.paired:
		if entity, check, ok := strings.Cut(name, "/"); !ok || entity == "" || check == "" {
			return fmt.Errorf("the name %q is not of the form ENTITY/CHECK", name)
		}
	}
	return nil
}

// describe names a resource, or with no name a collection, in errors.
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

// ListOptions narrow a list.
type ListOptions struct {
	// ChunkSize is how many resources are asked for in one request. 0 asks for all of them at once.
	ChunkSize int

	FieldSelector string
	LabelSelector string

	// Entity lists only this entity's events. For Events alone.
	Entity string
}

// All iterates over the resources of a kind, in the order of namespace and name, fetching as it goes. Namespace ""
// means all of them. It ends after the first error.
func All[T any](ctx context.Context, c *Client, k Kind[T], namespace string, opts ListOptions) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		path := k.Path(namespace, "")
		if opts.Entity != "" {
			path += "/" + escape(opts.Entity)
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
			if next == query.Get("continue") {
				yield(nil, fmt.Errorf("list %s: the server answers page %q with the same page again", k.describe(namespace, ""), next))
				return
			}
			query.Set("continue", next)
		}
	}
}

// List returns what All iterates over.
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
	item := new(T)
	if err := one(ctx, c, k, http.MethodGet, namespace, name, nil, item); err != nil {
		return nil, fmt.Errorf("get %s: %w", k.describe(namespace, name), err)
	}
	return item, nil
}

// Post creates a resource; it is an error (ErrExists) if there is one of that name.
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
	if err := one(ctx, c, k, http.MethodPut, namespace, name, item, nil); err != nil {
		return fmt.Errorf("put %s: %w", k.describe(namespace, name), err)
	}
	return nil
}

// Delete removes the named resource.
func Delete[T any](ctx context.Context, c *Client, k Kind[T], namespace, name string) error {
	if err := one(ctx, c, k, http.MethodDelete, namespace, name, nil, nil); err != nil {
		return fmt.Errorf("delete %s: %w", k.describe(namespace, name), err)
	}
	return nil
}

// one sends a request about the named resource.
func one[T any](ctx context.Context, c *Client, k Kind[T], method, namespace, name string, in, out any) error {
	if err := k.check(namespace, name); err != nil {
		return err
	}
	_, err := c.do(ctx, request{method: method, path: k.Path(namespace, name), in: in, out: out})
	return err
}
