package migrate

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/crypto/bcrypt"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/resource"
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
	// A user without a password gets one, if there is a hash for it. Nothing takes a password away.
	k.adapt = func(m *migration, o *object) {
		m.sourceUsers = append(m.sourceUsers, o.name)
		delete(o.body, "no_password")
		if hash, ok := m.PasswordHashes[o.name]; ok {
			o.body["password_hash"] = hash
		}
	}
	k.ignore = func(o *object, field string) bool {
		return field == "no_password" && !isHash(text(o.body, "password_hash"))
	}
	k.always = func(m *migration, o *object, old *summary) {
		const hint = "Set each with lapwing user reset-password NAME, or run this again with --password-hashes FILE."
		hash := text(o.body, "password_hash")
		switch {
		case old != nil && old.tree["no_password"] != true:
			if hash != "" {
				m.rec.remark(Noted, o.kind.Type, "their password hash was not used: they have a password in lapwing, and it stays",
					"To replace it, use lapwing user reset-password NAME.", o.label())
			}
		case hash == "":
			m.rec.remark(Lost, o.kind.Type, "the source does not show passwords; these users cannot sign in yet", hint, o.label())
		case !isHash(hash):
			m.rec.remark(Doubtful, o.kind.Type, "the password_hash is no bcrypt hash; these users cannot sign in", hint, o.label())
		}
	}
	k.write = writeUser
})

// remarkHashes names the users of Options.PasswordHashes that the source does not have.
func (m *migration) remarkHashes() {
	if m.skips(userKind.Plural) {
		return
	}
	for name := range m.PasswordHashes {
		if slices.Contains(m.sourceUsers, name) {
			continue
		}
		if near := optionerr.Nearest(name, m.sourceUsers); near != "" {
			name += " (" + near + "?)"
		}
		m.rec.remark(Doubtful, userKind.Type, "--password-hashes names users that the source does not have",
			"Correct the file of the hashes and run this again.", name)
	}
}

// writeUser makes a user, whose password the source does not show, or changes one.
func writeUser(ctx context.Context, m *migration, o *object, old *summary) (reason, hint string, err error) {
	if old != nil {
		return "", "", changeUser(ctx, m, o, old)
	}
	body := map[string]any{"username": o.name, "groups": texts(o.body, "groups"), "disabled": o.body["disabled"] == true}
	// A user's API key works only while the user is enabled. So a user without a password stays enabled.
	body["password_hash"] = resource.NobodysHash
	if hash := text(o.body, "password_hash"); isHash(hash) {
		body["password_hash"] = hash
	}
	return "", "", m.Target.Do(ctx, http.MethodPost, o.kind.Path("", ""), body, nil)
}

// isHash reports whether lapwing can compare a password with a hash. It also reads argon2id, for the dump of a lapwing.
func isHash(hash string) bool {
	_, err := bcrypt.Cost([]byte(hash))
	return err == nil || strings.HasPrefix(hash, "$argon2id$")
}

// changeUser sets a user's groups and whether the user is disabled, and gives a user without a password the hash.
func changeUser(ctx context.Context, m *migration, o *object, old *summary) error {
	user := o.path()
	if hash := text(o.body, "password_hash"); old.tree["no_password"] == true && isHash(hash) {
		body := map[string]any{"username": o.name, "password_hash": hash}
		if err := m.Target.Do(ctx, http.MethodPut, user+"/reset_password", body, nil); err != nil {
			return err
		}
	}
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
