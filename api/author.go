package api

import (
	"reflect"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// withAuthor returns the finish function of kinds whose definitions read events. It sets the author to the user who
// wrote the definition's effective fields. A change of only the metadata keeps the author, as long as that user exists.
func withAuthor[T any](a *API, author func(*T) **resource.Author, meta func(*T) *resource.ObjectMeta) func(t *act,
	obj, old *T) (*T, error) {
	return func(t *act, obj, old *T) (*T, error) {
		out := *obj
		*author(&out) = t.user.Author()
		if old == nil || *author(old) == nil {
			return &out, nil
		}
		same := *old
		*meta(&same), *author(&same) = *meta(&out), *author(&out)
		if _, ok := a.opts.Auth.Standing(*author(old)); ok && reflect.DeepEqual(&out, &same) {
			*author(&out) = *author(old)
		}
		return &out, nil
	}
}
