package config

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Kind adds Go type T to a row of resource.Kinds. The kinds below are the only ones.
type Kind[T any] struct {
	id  int
	row *resource.Kind
}

// String returns the kind's name in the bucket, in roles and in the audit log, for example "checks".
func (k Kind[T]) String() string { return k.row.Role }

// Cluster reports whether objects of this kind belong to no namespace.
func (k Kind[T]) Cluster() bool { return !k.row.Namespaced }

// Key returns the namespace and name of an object of this kind.
func (k Kind[T]) Key(obj *T) (namespace, name string) { return k.row.Key(obj) }

// Meta returns the metadata of an object of this kind, or nil for kinds without metadata.
func (k Kind[T]) Meta(obj *T) *resource.ObjectMeta { return k.row.Meta(obj) }

// The kinds of definitions.
var (
	Namespaces          = kindOf[resource.Namespace]()
	Users               = kindOf[resource.User]()
	ClusterRoles        = kindOf[resource.ClusterRole]()
	ClusterRoleBindings = kindOf[resource.ClusterRoleBinding]()
	Roles               = kindOf[resource.Role]()
	RoleBindings        = kindOf[resource.RoleBinding]()
	Checks              = kindOf[resource.CheckConfig]()
	Handlers            = kindOf[resource.Handler]()
	Filters             = kindOf[resource.EventFilter]()
	Mutators            = kindOf[resource.Mutator]()
	Hooks               = kindOf[resource.HookConfig]()
	Assets              = kindOf[resource.Asset]()
	Pipelines           = kindOf[resource.Pipeline]()
	Aggregates          = kindOf[resource.Aggregate]()
	Calendars           = kindOf[resource.Calendar]()
	Contacts            = kindOf[resource.Contact]()
	Rotas               = kindOf[resource.Rota]()
	MetricChecks        = kindOf[resource.MetricCheck]()
	FallbackPipelines   = kindOf[resource.FallbackPipeline]()
	Tessen              = kindOf[resource.TessenConfig]() // one object, resource.TessenName
	Entities            = kindOf[resource.EntityConfig]()
	Silences            = kindOf[resource.Silenced]()
	APIKeys             = kindOf[resource.APIKey]()
	AuthProviders       = kindOf[resource.AuthProvider]()
	PostgresConfigs     = kindOf[resource.PostgresConfig]()
	// Package auth writes these two; users do not.
	Sessions  = kindOf[resource.Session]()
	Standings = kindOf[resource.Standing]()
)

// kindInfo has what the watcher needs of a kind, without its Go type.
type kindInfo struct {
	name   string
	decode func([]byte) (any, error)
}

// kinds is filled while the variables above are initialised, and only read after that.
var kinds []kindInfo

func kindOf[T any]() Kind[T] {
	k := Kind[T]{id: len(kinds), row: resource.KindFor[T]()}
	kinds = append(kinds, kindInfo{name: k.String(), decode: func(b []byte) (any, error) {
		obj := new(T)
		if err := json.Unmarshal(b, obj); err != nil {
			return nil, err
		}
		return obj, nil
	}})
	return k
}

// KindNames returns the names of all kinds of definitions.
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

// bucketKey returns an object's key in the bucket: kind.namespace.name. The bucket allows few characters, and the dot
// separates. So every byte except letters, digits, "-" and "_" is written as =XX. A kind without namespaces has "="
// there.
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
