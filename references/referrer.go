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
		if k.Internal() {
			continue
		}
		for obj := range config.ListAny(sn, k, namespace) {
			_, uses := resource.Uses(obj)
			before := len(found)
			for _, u := range uses {
				if !named(u.Kind.Role, u.Name) {
					continue
				}
				r := resource.Referrer{Type: k.Type, Resource: k.Role, Names: u.Kind.Role, Named: u.Name, What: u.Kind.Word()}
				if r.Namespace, r.Name = k.Key(obj); !slices.Contains(found[before:], r) {
					found = append(found, r)
				}
			}
		}
	}
	return found
}
