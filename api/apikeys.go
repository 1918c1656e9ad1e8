package api

import (
	"errors"
	"net/http"
	"path"
	"strings"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/oncall"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// apiKeys serves API keys. A key is shown once, in the Location of the answer to its creation. After that it is listed
// under a public name. In a path the key itself can be used instead of that name, as Sensu's clients do.
type apiKeys struct {
	kind[resource.APIKey]
}

const apiKeyPath = core + "apikeys/"

func (a *API) serveAPIKeys() {
	k := &apiKeys{kind[resource.APIKey]{
		api: a, Kind: config.APIKeys,
	}}
	k.view = func(key *resource.APIKey) any { return shownKey(key, key.Metadata.Name) }
	name := func(r *request) string { return auth.APIKeyName(r.PathValue("name")) }
	a.route(core+"apikeys", access{resource: "apikeys"}, methods{http.MethodGet: k.list, http.MethodPost: k.create})
	a.route(apiKeyPath+"{name}", access{resource: "apikeys", name: name, dryRun: true}, methods{
		http.MethodGet: k.get, http.MethodPut: k.put, http.MethodPatch: k.patch, http.MethodDelete: k.delete,
	})
}

// shownKey returns a key for a client that asked for it by name.
func shownKey(key *resource.APIKey, name string) *resource.APIKey {
	shown := *key
	shown.Hash, shown.Metadata.Name = "", name
	return &shown
}

// shownPath returns a path for logs, with a key replaced by its public name, and without the token of a link.
func shownPath(p string) string {
	if strings.HasPrefix(p, oncall.LinkPath) {
		return oncall.LinkPath + "…"
	}
	if dir, name := path.Split(p); dir == apiKeyPath {
		return dir + auth.APIKeyName(name)
	}
	return resource.Short(p)
}

// named replaces the key in the path by its public name, and returns the original.
func named(r *request) (asked string) {
	asked = r.PathValue("name")
	r.name = auth.APIKeyName(asked)
	r.SetPathValue("name", r.name)
	return asked
}

var errNoUser = errors.New("user does not exist")

// wanted decodes the key in the body of a request that makes one.
func (k *apiKeys) wanted(w *response, r *request) (*resource.APIKey, error) {
	key := new(resource.APIKey)
	if err := k.api.decode(w, r, key); err != nil {
		return nil, err
	}
	if err := k.validate(key); err != nil {
		return nil, invalid("%v", err)
	}
	if !k.mayActAs(r, key.Username) {
		return nil, lacks("update", "users")
	}
	if _, ok := config.Get(k.api.opts.Config.Snapshot(), config.Users, "", key.Username); !ok {
		return nil, errNoUser
	}
	return key, nil
}

// mayActAs reports whether the sender of a request may have a key of a user. The user itself may, and users who may
// change the user: they could also set another password.
func (k *apiKeys) mayActAs(r *request, user string) bool {
	if user == r.user.User && r.user.Origin.Local() {
		return true
	}
	return k.api.opts.Auth.Authorize(r.user, auth.Attributes{Verb: "update", Resource: "users", Name: user})
}

// dress copies the client's metadata to a new key.
func dress(stored, wanted *resource.APIKey, r *request) {
	stored.Metadata.Labels, stored.Metadata.Annotations = wanted.Metadata.Labels, wanted.Metadata.Annotations
	stored.Metadata.CreatedBy = r.user.User
}

func (k *apiKeys) create(w *response, r *request) error {
	wanted, err := k.wanted(w, r)
	if errors.Is(err, errNoUser) {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil
	}
	if err != nil {
		return err
	}
	key, stored := k.api.opts.Auth.NewAPIKey(wanted.Username)
	dress(stored, wanted, r)
	if err := config.Create(r.Context(), k.api.opts.Config, k.Kind, stored); err != nil {
		return err
	}
	w.Header().Set("Location", apiKeyPath+key)
	w.WriteHeader(http.StatusCreated)
	return nil
}

func (k *apiKeys) get(w *response, r *request) error {
	asked := named(r)
	key, err := k.find(r.act)
	if err != nil {
		return err
	}
	return w.tagged(r, shownKey(key, asked))
}

// put stores a key that was made elsewhere, for example in a Sensu cluster, or changes labels and annotations of an
// existing one. Sensu has no such request.
func (k *apiKeys) put(w *response, r *request) error {
	asked := named(r)
	wanted, err := k.wanted(w, r)
	if errors.Is(err, errNoUser) {
		err = resource.InField("username", errNoUser)
		_, stored := config.Get(k.api.opts.Config.Snapshot(), config.APIKeys, "", r.PathValue("name"))
		if _, importErr := k.api.opts.Auth.ImportAPIKey(asked, ""); importErr != nil && !stored {
			err = resource.JoinMistakes(err, importErr) // the user may be made before the key
		}
		return refused("", err)
	}
	if err != nil {
		return err
	}
	if name := wanted.Metadata.Name; name != "" && name != asked {
		return nameMismatch(name, asked)
	}
	err = upsert(r.Context(), k.api.opts.Config, k.Kind, "", r.PathValue("name"), func(old *resource.APIKey) (*resource.APIKey, error) {
		if old != nil {
			if old.Username != wanted.Username {
				return nil, errKeyUser
			}
			dress(old, wanted, r)
			return old, nil
		}
		stored, err := k.api.opts.Auth.ImportAPIKey(asked, wanted.Username)
		if err != nil {
			return nil, invalid("%v", err)
		}
		if wanted.CreatedAt > 0 {
			stored.CreatedAt = wanted.CreatedAt
		}
		dress(stored, wanted, r)
		return stored, nil
	})
	if err != nil {
		return err
	}
	return w.empty(http.StatusCreated)
}

var errKeyUser = invalid("an api key cannot be given to another user")

// patch changes labels and annotations; the rest of a key cannot change.
func (k *apiKeys) patch(w *response, r *request) error {
	asked := named(r)
	patch, err := k.api.patch(w, r)
	if err != nil {
		return err
	}
	key, err := config.Update(r.Context(), k.api.opts.Config, k.Kind, "", r.PathValue("name"),
		func(old *resource.APIKey) (*resource.APIKey, error) {
			// A client may have the tag of the key under either name.
			var tags []string
			for _, name := range []string{asked, old.Metadata.Name} {
				shown, err := encode(shownKey(old, name))
				if err != nil {
					return nil, err
				}
				tags = append(tags, entityTag(shown))
			}
			if err := checkPreconditions(r.Header, tags...); err != nil {
				return nil, err
			}
			key, err := merged(old, patch)
			if err != nil {
				return nil, err
			}
			if name := key.Metadata.Name; auth.APIKeyName(name) != old.Metadata.Name {
				return nil, invalid("the name of the resource (%s) does not match the name in the URI (%s)", name, asked)
			}
			if key.Username != old.Username {
				return nil, errKeyUser
			}
			labels, annotations := key.Metadata.Labels, key.Metadata.Annotations
			*key = *old
			key.Metadata.Labels, key.Metadata.Annotations = labels, annotations
			return key, nil
		})
	if err != nil {
		return err
	}
	return w.tagged(r, shownKey(key, asked))
}

func (k *apiKeys) delete(w *response, r *request) error {
	named(r)
	return k.kind.delete(w, r)
}
