package migrate

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/crypto/bcrypt"

	"github.com/lapwing-monitoring/lapwing/client"
)

var userKind = of(client.Users.Kind, func(k *kind) {
	k.normal = func(tree map[string]any) {
		groups := texts(tree, "groups")
		slices.Sort(groups)
		delete(tree, "groups")
		if len(groups) > 0 {
			sorted := []any{}
			for _, g := range slices.Compact(groups) {
				sorted = append(sorted, g)
			}
			tree["groups"] = sorted
		}
		delete(tree, "password")
		delete(tree, "password_hash")
	}
	k.hold = func(m *migration, o *object, old *summary) (reason, hint string) {
		if old != nil && o.name == m.TargetUser {
			return "it is the user of this run", "Change it as another user."
		}
		return "", ""
	}
	k.foresee = func(m *migration, o *object, old *summary) {
		if old != nil {
			return
		}
		switch hash := m.passwordHash(o); {
		case hash == "":
			m.rec.remark(Lost, o.kind.Type, "the source does not show passwords; these users cannot sign in yet",
				"Set each with lapwing user reset-password NAME, or give --password-hashes.", o.label())
		case !isHash(hash):
			m.rec.remark(Doubtful, o.kind.Type, "the password_hash is no bcrypt hash; these users cannot sign in",
				"Set each with lapwing user reset-password NAME, or give --password-hashes.", o.label())
		}
	}
	k.write = writeUser
})

// writeUser makes a user, whose password the source does not show, or sets a user's groups.
func writeUser(ctx context.Context, m *migration, o *object, old *summary) (reason, hint string, err error) {
	if old != nil {
		return "", "", changeUser(ctx, m, o, old)
	}
	body := map[string]any{"username": o.name, "groups": texts(o.body, "groups"), "disabled": o.body["disabled"] == true}
	if hash := m.passwordHash(o); hash != "" {
		body["password_hash"] = hash
	} else {
		// A user's API key works only while the user is enabled. So the user stays enabled, with a random password.
		body["password"] = rand.Text()
	}
	return "", "", m.Target.Do(ctx, http.MethodPost, o.kind.Path("", ""), body, nil)
}

// passwordHash returns the hash of a user's password, if given.
func (m *migration) passwordHash(o *object) string {
	if hash, ok := m.PasswordHashes[o.name]; ok {
		return hash
	}
	return text(o.body, "password_hash") // in files written by hand
}

// isHash reports whether lapwing can compare a password with a hash. It also reads argon2id, for the dump of a lapwing.
func isHash(hash string) bool {
	_, err := bcrypt.Cost([]byte(hash))
	return err == nil || strings.HasPrefix(hash, "$argon2id$")
}

func changeUser(ctx context.Context, m *migration, o *object, old *summary) error {
	user := o.path()
	have, want := texts(old.tree, "groups"), texts(o.body, "groups")
	for _, g := range want {
		if !slices.Contains(have, g) {
			if err := m.Target.Do(ctx, http.MethodPut, user+"/groups/"+url.PathEscape(g), nil, nil); err != nil {
				return err
			}
		}
	}
	for _, g := range have {
		if !slices.Contains(want, g) {
			if err := m.Target.Do(ctx, http.MethodDelete, user+"/groups/"+url.PathEscape(g), nil, nil); err != nil {
				return err
			}
		}
	}
	switch is, was := o.body["disabled"] == true, old.tree["disabled"] == true; {
	case is && !was:
		return m.Target.Do(ctx, http.MethodDelete, user, nil, nil)
	case was && !is:
		return m.Target.Do(ctx, http.MethodPut, user+"/reinstate", nil, nil)
	}
	return nil
}

// isRefusal reports whether a server answered with a status.
func isRefusal(err error, status int) bool {
	var refused *client.Error
	return errors.As(err, &refused) && refused.Status == status
}
