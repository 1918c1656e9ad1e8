package references

import (
	"slices"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Referrers returns what of a namespace, and of what belongs to none, names a definition that named selects by its
// resource and name; of all namespaces for "".
func Referrers(sn *config.Snapshot, namespace string, named func(resource, name string) bool) (found []resource.Referrer) {
	for _, k := range resource.Kinds {
		if unlisted(k) {
			continue
		}
		for obj := range config.ListAny(sn, k, namespace) {
			_, uses := usesOf(obj)
			before := len(found)
			for _, u := range uses {
				if !named(u.Kind.Role, u.Name) {
					continue
				}
				r := resource.Referrer{Type: k.Type, Resource: k.Role, Names: u.Kind.Role, Named: u.Name, What: u.Kind.Word()}
				if r.Namespace, r.Name = keyOf(k, obj); !slices.Contains(found[before:], r) {
					found = append(found, r)
				}
			}
		}
	}
	return found
}

// unlisted reports whether definitions of a kind are left out: users do not see internal ones, and call an EntityConfig an
// Entity.
func unlisted(k *resource.Kind) bool { return k.Internal() || k.Type == "EntityConfig" }

// keyOf returns the namespace and name of a stored definition of a kind. Of an Entity, the EntityConfig is stored.
func keyOf(k *resource.Kind, obj any) (namespace, name string) {
	if e, ok := obj.(*resource.EntityConfig); ok {
		return e.Metadata.Namespace, e.Metadata.Name
	}
	return k.Key(obj)
}
