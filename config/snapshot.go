package config

import (
	"iter"
	"slices"
	"strings"

	iradix "github.com/hashicorp/go-immutable-radix/v2"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Snapshot has all definitions at one moment. It never changes, and callers must not change the objects it returns.
type Snapshot struct {
	revision uint64
	digest   uint64
	trees    []*iradix.Tree[any] // by kind id; keys are namespace, NUL, name
}

// Empty returns a snapshot without definitions.
func Empty() *Snapshot {
	sn := &Snapshot{trees: make([]*iradix.Tree[any], len(kinds))}
	for i := range sn.trees {
		sn.trees[i] = iradix.New[any]()
	}
	return sn
}

// With returns a copy of a snapshot with obj in it. Tests use it when there is no store.
func With[T any](sn *Snapshot, k Kind[T], obj *T) *Snapshot {
	namespace, name := k.Key(obj)
	next := &Snapshot{revision: sn.revision + 1, trees: slices.Clone(sn.trees)}
	next.trees[k.id], _, _ = next.trees[k.id].Insert(treeKey(namespace, name), obj)
	return next
}

// Revision returns the snapshot's revision, which grows with every change.
func (sn *Snapshot) Revision() uint64 { return sn.revision }

// Digest is a sum over the keys and revisions of everything in the bucket. Backends with the same revision have the same
// digest, unless the copy of one of them lacks something.
func (sn *Snapshot) Digest() uint64 { return sn.digest }

func treeKey(namespace, name string) []byte {
	k := make([]byte, 0, len(namespace)+1+len(name))
	k = append(k, namespace...)
	k = append(k, 0)
	return append(k, name...)
}

// Get returns one object. The namespace of a cluster-wide kind is "".
func Get[T any](sn *Snapshot, k Kind[T], namespace, name string) (*T, bool) {
	return Lookup(sn, k, treeKey(namespace, name))
}

// Lookup is Get without allocations for the key: key is the namespace, a NUL and the name.
func Lookup[T any](sn *Snapshot, k Kind[T], key []byte) (*T, bool) {
	v, ok := sn.trees[k.id].Get(key)
	if !ok {
		return nil, false
	}
	return v.(*T), true
}

// List yields the objects of a namespace, or of all for "", ordered by namespace and name.
func List[T any](sn *Snapshot, k Kind[T], namespace string) iter.Seq[*T] {
	return ListAfter(sn, k, namespace, "", "")
}

// ListAfter is List from after the given object on, which need not exist. With afterName "" it begins at the start.
func ListAfter[T any](sn *Snapshot, k Kind[T], namespace, afterNamespace, afterName string) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		sn.each(k.id, namespace, afterNamespace, afterName, func(obj any) bool { return yield(obj.(*T)) })
	}
}

// Version returns a value that is equal for two snapshots only if they have the same objects of a kind.
func Version[T any](sn *Snapshot, k Kind[T]) any { return sn.trees[k.id] }

// ListAny is List for a row of resource.Kinds. It yields nothing for kinds that are not stored here.
func ListAny(sn *Snapshot, k *resource.Kind, namespace string) iter.Seq[any] {
	return func(yield func(any) bool) {
		if id := kindByName(k.Role); id >= 0 {
			sn.each(id, namespace, "", "", yield)
		}
	}
}

// HasAny reports whether an object exists, for a row of resource.Kinds.
func HasAny(sn *Snapshot, k *resource.Kind, namespace, name string) bool {
	_, ok := GetAny(sn, k, namespace, name)
	return ok
}

// GetAny is Get for a row of resource.Kinds.
func GetAny(sn *Snapshot, k *resource.Kind, namespace, name string) (any, bool) {
	id := kindByName(k.Role)
	if id < 0 {
		return nil, false
	}
	return sn.trees[id].Get(treeKey(namespace, name))
}

func (sn *Snapshot) each(id int, namespace, afterNamespace, afterName string, yield func(obj any) bool) {
	it := sn.trees[id].Root().Iterator()
	prefix := ""
	if namespace != "" {
		prefix = namespace + "\x00"
	}
	after := ""
	if afterName != "" {
		after = afterNamespace + "\x00" + afterName
		it.SeekLowerBound([]byte(after))
	} else if prefix != "" {
		it.SeekLowerBound([]byte(prefix))
	}
	for key, v, ok := it.Next(); ok; key, v, ok = it.Next() {
		if !strings.HasPrefix(string(key), prefix) {
			if string(key) > prefix {
				return
			}
			continue
		}
		if after != "" && string(key) <= after {
			continue
		}
		if !yield(v) {
			return
		}
	}
}

// Postgres returns the definition of PostgreSQL that the backend uses: the first by name, and false if there is none.
func Postgres(sn *Snapshot) (*resource.PostgresConfig, bool) {
	for p := range List(sn, PostgresConfigs, "") {
		return p, true
	}
	return nil, false
}

// Same reports whether two snapshots share their objects of a kind. If false, the objects may still be equal.
func Same[T any](a, b *Snapshot, k Kind[T]) bool { return a.trees[k.id] == b.trees[k.id] }

// Len returns the number of objects of a kind in all namespaces.
func Len[T any](sn *Snapshot, k Kind[T]) int { return sn.trees[k.id].Len() }
