package config

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Kind describes one kind of definition: its plural name (the segment of its URL), whether it lives in a namespace, and
// where an object's namespace and name stand. The kinds below are the only ones.
type Kind[T any] struct {
	id      int
	name    string
	cluster bool
	key     func(*T) (namespace, name string)
}

// String is the kind's plural name, such as "checks".
func (k Kind[T]) String() string { return k.name }

// Cluster says that objects of this kind belong to no namespace.
func (k Kind[T]) Cluster() bool { return k.cluster }

// Key is the namespace and name of an object of this kind.
func (k Kind[T]) Key(obj *T) (namespace, name string) { return k.key(obj) }

// The kinds of definitions.
var (
	Namespaces          = cluster("namespaces", func(n *resource.Namespace) string { return n.Name })
	Users               = cluster("users", func(u *resource.User) string { return u.Username })
	ClusterRoles        = cluster("clusterroles", func(r *resource.ClusterRole) string { return r.Metadata.Name })
	ClusterRoleBindings = cluster("clusterrolebindings", func(r *resource.ClusterRoleBinding) string { return r.Metadata.Name })
	Roles               = namespaced("roles", func(r *resource.Role) *resource.ObjectMeta { return &r.Metadata })
	RoleBindings        = namespaced("rolebindings", func(r *resource.RoleBinding) *resource.ObjectMeta { return &r.Metadata })
	Checks              = namespaced("checks", func(c *resource.CheckConfig) *resource.ObjectMeta { return &c.Metadata })
	Handlers            = namespaced("handlers", func(h *resource.Handler) *resource.ObjectMeta { return &h.Metadata })
	Filters             = namespaced("filters", func(f *resource.EventFilter) *resource.ObjectMeta { return &f.Metadata })
	Mutators            = namespaced("mutators", func(m *resource.Mutator) *resource.ObjectMeta { return &m.Metadata })
	Hooks               = namespaced("hooks", func(h *resource.HookConfig) *resource.ObjectMeta { return &h.Metadata })
	Assets              = namespaced("assets", func(a *resource.Asset) *resource.ObjectMeta { return &a.Metadata })
	Pipelines           = namespaced("pipelines", func(p *resource.Pipeline) *resource.ObjectMeta { return &p.Metadata })
	Aggregates          = namespaced("aggregates", func(a *resource.Aggregate) *resource.ObjectMeta { return &a.Metadata })
	FallbackPipelines   = namespaced("fallbackPipeline", func(p *resource.FallbackPipeline) *resource.ObjectMeta { return &p.Metadata })
	// Tessen has one object.
	Tessen        = cluster("tessen", func(*resource.TessenConfig) string { return TessenName })
	Entities      = namespaced("entities", func(e *resource.EntityConfig) *resource.ObjectMeta { return &e.Metadata })
	Silences      = namespaced("silenced", func(s *resource.Silenced) *resource.ObjectMeta { return &s.Metadata })
	APIKeys       = cluster("apikeys", func(k *resource.APIKey) string { return k.Metadata.Name })
	AuthProviders = cluster("authproviders", func(p *resource.AuthProvider) string { return p.Metadata.Name })
	// Sessions are kept for auth; nobody defines them.
	Sessions = cluster("sessions", func(s *resource.Session) string { return s.ID })
	// Standings are kept for auth as well.
	Standings = cluster("standings", func(s *resource.Standing) string { return s.ID })
)

// TessenName is the name of the only object of the kind Tessen.
const TessenName = "config"

// kindInfo is what the watcher needs of a kind without its type.
type kindInfo struct {
	name   string
	decode func([]byte) (any, error)
}

// kinds is filled while the variables above are initialised, and only read afterwards.
var kinds []kindInfo

func register[T any](name string, clusterWide bool, key func(*T) (string, string)) Kind[T] {
	k := Kind[T]{id: len(kinds), name: name, cluster: clusterWide, key: key}
	kinds = append(kinds, kindInfo{name: name, decode: func(b []byte) (any, error) {
		obj := new(T)
		if err := json.Unmarshal(b, obj); err != nil {
			return nil, err
		}
		return obj, nil
	}})
	return k
}

func cluster[T any](name string, key func(*T) string) Kind[T] {
	return register(name, true, func(obj *T) (string, string) { return "", key(obj) })
}

func namespaced[T any](name string, meta func(*T) *resource.ObjectMeta) Kind[T] {
	return register(name, false, func(obj *T) (string, string) {
		m := meta(obj)
		return m.Namespace, m.Name
	})
}

// KindNames are the plural names of all kinds.
func KindNames() []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.name
	}
	return names
}

func kindByName(name string) int {
	for i, k := range kinds {
		if k.name == name {
			return i
		}
	}
	return -1
}

// bucketKey is an object's key in the bucket: kind.namespace.name. The bucket allows few characters, and a dot
// separates, so all but letters, digits, "-" and "_" are written as =XX. A kind without namespaces has "=" there.
func bucketKey(kind, namespace, name string) string {
	if namespace == "" {
		return kind + ".=." + escape(name)
	}
	return kind + "." + escape(namespace) + "." + escape(name)
}

func parseBucketKey(key string) (kind, namespace, name string, err error) {
	parts := strings.Split(key, ".")
	if len(parts) != 3 {
		return "", "", "", fmt.Errorf("config key %q has %d parts, want 3", key, len(parts))
	}
	if parts[1] != "=" {
		if namespace, err = unescape(parts[1]); err != nil {
			return "", "", "", fmt.Errorf("config key %q: %w", key, err)
		}
	}
	if name, err = unescape(parts[2]); err != nil {
		return "", "", "", fmt.Errorf("config key %q: %w", key, err)
	}
	return parts[0], namespace, name, nil
}

const hexDigits = "0123456789ABCDEF"

func escape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('=')
		b.WriteByte(hexDigits[c>>4])
		b.WriteByte(hexDigits[c&15])
	}
	return b.String()
}

func unescape(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '=' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", fmt.Errorf("cut escape in %q", s)
		}
		hi, lo := strings.IndexByte(hexDigits, s[i+1]), strings.IndexByte(hexDigits, s[i+2])
		if hi < 0 || lo < 0 {
			return "", fmt.Errorf("bad escape in %q", s)
		}
		b.WriteByte(byte(hi<<4 | lo))
		i += 2
	}
	return b.String(), nil
}
