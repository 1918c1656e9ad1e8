package ctl

import (
	"encoding/json"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Sign-in providers have three types at one path. A list has all types; files name the type.
var (
	ldapKind = newProviderKind[resource.Directory](resource.LDAPType)
	adKind   = newProviderKind[resource.Directory](resource.ADType)
	oidcKind = newProviderKind[resource.OIDC](resource.OIDCType)
)

// postgresKind has no commands of its own: files and the commands for all kinds are enough for one definition.
var postgresKind = newWrappedKind[resource.PostgresSpec](client.PostgresConfigs.Kind, "postgres")

// newProviderKind returns the kind of providers whose spec is of Go type T.
func newProviderKind[T any](typ string) *kind {
	row := *client.AuthProviders.Kind
	row.Type = typ
	return newWrappedKind[T](&row, "openldap")
}

// newWrappedKind returns a kind whose resources are always wrapped, with a spec of Go type T.
func newWrappedKind[T any](row *resource.Kind, example string) *kind {
	k := newKind(client.Kind[T]{Kind: row}, display[T]{
		example: example,
		columns: []cellOf[T]{{column: column{title: "Name"}}, {column: column{title: "Type"}}},
	})
	k.rows = func(raw json.RawMessage) ([][]string, error) {
		w, err := wrap(k, raw)
		if err != nil {
			return nil, err
		}
		return [][]string{{providerName(w), w.Type}}, nil
	}
	k.info = func(raw json.RawMessage) (shown, error) {
		w, err := wrap(k, raw)
		if err != nil {
			return nil, err
		}
		block := &infoBlock{title: providerName(w), lines: []infoLine{{"Name", providerName(w)}, {"Type", w.Type}}}
		for _, key := range sortedKeys(w.Spec) {
			block.lines = append(block.lines, infoLine{key, shortJSON(w.Spec[key])})
		}
		return block, nil
	}
	return k
}

func providerName(w *wrapped) string {
	var meta resource.ObjectMeta
	if json.Unmarshal(w.Metadata, &meta) != nil {
		return ""
	}
	return meta.Name
}
