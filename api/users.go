package api

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/clientaddr"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// users serves users. A password is written and never read; a user is disabled, never deleted.
type users struct {
	kind[resource.User]
}

func (a *API) serveUsers() {
	u := &users{kind[resource.User]{api: a, Kind: config.Users, view: userView}}
	collection, item := access{resource: "users", dryRun: true}, access{resource: "users", name: namePath}
	own := item
	own.self = true
	const one = core + "users/{name}"
	a.route(core+"users", collection, methods{http.MethodGet: u.list, http.MethodPost: u.create})
	a.route(one, access{open: true, dryRun: true}, methods{
		http.MethodGet:    a.authorized(own, u.get),
		http.MethodPut:    a.authorized(item, u.put),
		http.MethodDelete: a.authorized(item, u.disable),
	})
	a.route(one+"/password", own, methods{http.MethodPut: u.replacePassword})
	a.route(one+"/change_password", own, methods{http.MethodPut: u.changePassword})
	a.route(one+"/reset_password", item, methods{http.MethodPut: u.resetPassword})
	a.route(one+"/reinstate", item, methods{http.MethodPut: u.reinstate})
	a.route(one+"/groups", item, methods{http.MethodDelete: u.leaveAll})
	a.route(one+"/groups/{group}", item, methods{http.MethodPut: u.join, http.MethodDelete: u.leave})
}

// userView returns a user without its password.
func userView(u *resource.User) any {
	return resource.User{Username: u.Username, Groups: u.Groups, Disabled: u.Disabled, NoPassword: u.PasswordHash == resource.NobodysHash}
}

// readUser decodes and checks the user in the body of a POST or PUT, and replaces the password by its hash.
func (u *users) readUser(w *response, r *request) (*resource.User, error) {
	user := new(resource.User)
	if err := u.api.decode(w, r, user); err != nil {
		return nil, err
	}
	if name := r.PathValue("name"); r.Method == http.MethodPut && user.Username != name {
		return nil, invalid("the username (%s) does not match the username on the request (%s)", user.Username, name)
	}
	user.SignedOut = 0
	if user.NoPassword && user.Password == "" && user.PasswordHash == "" {
		user.PasswordHash = resource.NobodysHash
	}
	user.NoPassword = false
	u.warn(r.act, user)
	w.warnOf(r.act)
	if err := u.validate(user); err != nil {
		return nil, refused("", err)
	}
	return user, u.hash(r, user)
}

// hash replaces a user's password by its hash.
func (u *users) hash(r *request, user *resource.User) error {
	switch {
	case user.Password == "":
		return nil
	case user.PasswordHash != "":
		same, err := u.api.opts.Auth.Matches(r.Context(), user.PasswordHash, user.Password)
		if err != nil {
			return notNow(err)
		}
		if !same {
			// This is Sensu's text: clients compare it.
			return invalid("hashed password does not the match the cleartext password, only one of those should be provided")
		}
	default:
		var err error
		if user.PasswordHash, err = u.api.opts.Auth.HashPassword(r.Context(), user.Password); err != nil {
			return notNow(err)
		}
	}
	user.Password = ""
	return nil
}

func (u *users) create(w *response, r *request) error {
	user, err := u.readUser(w, r)
	if err != nil {
		return err
	}
	if err := config.Create(r.Context(), u.api.opts.Config, u.Kind, user); err != nil {
		return err
	}
	return w.empty(http.StatusCreated)
}

func (u *users) put(w *response, r *request) error {
	user, err := u.readUser(w, r)
	if err != nil {
		return err
	}
	err = upsert(r.Context(), u.api.opts.Config, u.Kind, "", user.Username, func(old *resource.User) (*resource.User, error) {
		if old == nil {
			return user, nil
		}
		next := *user
		if next.SignedOut = old.SignedOut; next.PasswordHash != old.PasswordHash {
			next.SignedOut = u.api.opts.Now().Unix()
		}
		return &next, nil
	})
	if err != nil {
		return err
	}
	return w.empty(http.StatusCreated)
}

// change updates the user of the path.
func (u *users) change(w *response, r *request, status int, change func(*resource.User)) error {
	_, err := config.Update(r.Context(), u.api.opts.Config, u.Kind, "", r.PathValue("name"),
		func(user *resource.User) (*resource.User, error) {
			change(user)
			return user, nil
		})
	if err != nil {
		return err
	}
	return w.empty(status)
}

func (u *users) disable(w *response, r *request) error {
	return u.change(w, r, http.StatusNoContent, func(user *resource.User) { user.Disabled = true })
}

func (u *users) reinstate(w *response, r *request) error {
	return u.change(w, r, http.StatusCreated, func(user *resource.User) { user.Disabled = false })
}

func (u *users) join(w *response, r *request) error {
	group := r.PathValue("group")
	return u.change(w, r, http.StatusCreated, func(user *resource.User) {
		if !slices.Contains(user.Groups, group) {
			user.Groups = append(user.Groups, group)
		}
		u.warn(r.act, &resource.User{Username: user.Username, Groups: []string{group}, Disabled: user.Disabled})
		w.warnOf(r.act)
	})
}

func (u *users) leave(w *response, r *request) error {
	group := r.PathValue("group")
	return u.change(w, r, http.StatusNoContent, func(user *resource.User) {
		user.Groups = slices.DeleteFunc(user.Groups, func(g string) bool { return g == group })
	})
}

func (u *users) leaveAll(w *response, r *request) error {
	return u.change(w, r, http.StatusNoContent, func(user *resource.User) { user.Groups = nil })
}

// passwords is the body of requests that set a password.
type passwords struct {
	Password string `json:"password"`      // the present password
	New      string `json:"password_new"`  // the new password, for change_password
	Hash     string `json:"password_hash"` // of the new password, for the others
}

// replacePassword changes a password in the way of Sensu's client, which hashes it itself.
func (u *users) replacePassword(w *response, r *request) error {
	return u.setPassword(w, r, true, func(p *passwords) resource.User { return resource.User{PasswordHash: p.Hash} })
}

func (u *users) changePassword(w *response, r *request) error {
	return u.setPassword(w, r, true, func(p *passwords) resource.User { return resource.User{Password: p.New} })
}

// resetPassword is for administrators. It ends the user's sign-ins, because the old password may be stolen.
func (u *users) resetPassword(w *response, r *request) error {
	return u.setPassword(w, r, false, func(p *passwords) resource.User { return resource.User{PasswordHash: p.Hash} })
}

// setPassword sets the password of the user of the path to what fresh makes of the body. Users who set their own must
// send the present one.
func (u *users) setPassword(w *response, r *request, knows bool, fresh func(*passwords) resource.User) error {
	var body passwords
	if err := u.api.decode(w, r, &body); err != nil {
		return err
	}
	old, err := u.find(r.act)
	if err != nil {
		return err
	}
	if knows {
		if _, err := u.api.opts.Auth.PasswordFrom(r.Context(), clientaddr.Host(r.RemoteAddr), old.Username, body.Password); err != nil {
			return wrongPassword(err, old.Username)
		}
	}
	user := fresh(&body)
	user.Username = old.Username
	if err := u.validate(&user); err != nil {
		return invalid("%v", err)
	}
	if err := u.hash(r, &user); err != nil {
		return err
	}
	return u.change(w, r, http.StatusCreated, func(now *resource.User) {
		if now.PasswordHash = user.PasswordHash; !knows {
			now.SignedOut = u.api.opts.Now().Unix()
		}
	})
}

// wrongPassword refuses a change by a client that does not know the present password.
func wrongPassword(err error, user string) error {
	if errors.Is(err, auth.ErrCredentials) {
		return invalid("%swrong password for user %s", resourceInvalid, user)
	}
	return notNow(err)
}

// notNow returns the answer for errors that prevented a check of the password.
func notNow(err error) error {
	var guessing *auth.GuessingError
	switch {
	case errors.As(err, &guessing):
		return &apiError{status: http.StatusTooManyRequests, code: codeUnauthenticated, message: err.Error(), after: guessing.Wait}
	case errors.Is(err, auth.ErrBusy):
		return &apiError{status: http.StatusServiceUnavailable, code: codeInternal, message: err.Error()}
	}
	return err
}

// upsert writes the result of define for the present object, which is nil if there is none.
func upsert[T any](ctx context.Context, s *config.Store, k config.Kind[T], namespace, name string, define func(old *T) (*T, error)) error {
	for {
		_, err := config.Update(ctx, s, k, namespace, name, define)
		if !errors.Is(err, config.ErrNotFound) {
			return err
		}
		obj, err := define(nil)
		if err != nil {
			return err
		}
		if err = config.Create(ctx, s, k, obj); !errors.Is(err, config.ErrExists) {
			return err
		}
	}
}
