package resource

import (
	"strings"
	"testing"
)

// TestKinds looks for rows of the table that contradict one another or are incomplete.
func TestKinds(t *testing.T) {
	taken := map[string]string{}
	once := func(k *Kind, what string) {
		if other := taken[what]; other != "" {
			t.Errorf("%s and %s have the same %s", other, k.FullName(), what)
		}
		taken[what] = k.FullName()
	}
	place := func(k *Kind, order string, n int) {
		if n > 0 {
			once(k, order+" "+strings.Repeat("I", n))
		}
	}
	for _, k := range Kinds {
		once(k, "name "+k.FullName())
		once(k, "plural "+k.Plural)
		once(k, "Go type "+k.goType.String())
		if k.Command != "" {
			once(k, "command "+k.Command)
		}
		place(k, "place in Prune", k.Prune)
		place(k, "place in Clear", k.Clear)
		place(k, "place in Migrate", k.Migrate)
		if k.Prune > 0 && !k.HasMeta() {
			t.Errorf("%s has a place in Prune and no labels to prune by", k.FullName())
		}
		if k.Clear > 0 && !k.Namespaced {
			t.Errorf("%s has a place in Clear and no namespace", k.FullName())
		}
		if k.Migrate == 0 && k.Unmigrated == "" || k.Migrate > 0 && k.Unmigrated != "" {
			t.Errorf("%s needs a place in Migrate, or a reason in Unmigrated", k.FullName())
		}
		if _, ok := k.New().(interface{ Validate() error }); !ok && !k.Internal() && k.Type != "TessenConfig" {
			t.Errorf("%s cannot validate itself", k.FullName()) // any TessenConfig is valid
		}
		if found, ok := FindKind(k.Group, k.Type); !ok || found != k {
			t.Errorf("FindKind(%s, %s) finds %v", k.Group, k.Type, found)
		}
	}
}

func TestKindOfAnObject(t *testing.T) {
	k := KindFor[CheckConfig]()
	check := k.New().(*CheckConfig)
	k.Meta(check).Namespace, check.Metadata.Name = "default", "disk"
	if namespace, name := k.Key(check); namespace != "default" || name != "disk" {
		t.Errorf("the key of a check is %s, %s", namespace, name)
	}
	users := KindFor[User]()
	if namespace, name := users.Key(&User{Username: "ada"}); namespace != "" || name != "ada" || users.HasMeta() {
		t.Errorf("the key of a user is %s, %s", namespace, name)
	}
}
