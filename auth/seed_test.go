package auth

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/testconfig"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// names lists the objects of a kind as namespace/name.
func names[T any](a *Auth, k config.Kind[T]) (all []string) {
	for obj := range config.List(a.opts.Config.Snapshot(), k, "") {
		ns, name := k.Key(obj)
		all = append(all, strings.TrimPrefix(ns+"/"+name, "/"))
	}
	return all
}

func TestSeed(t *testing.T) {
	a := newAuth(t, testconfig.Store(t), new(clock))
	opts := SeedOptions{Username: "root", Password: "correct horse"}
	if err := a.Seed(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		kind      string
		got, want []string
	}{
		{"namespaces", names(a, config.Namespaces), []string{"default", "sensu-system"}},
		{"users", names(a, config.Users), []string{"agent", "root"}},
		{"cluster roles", names(a, config.ClusterRoles), []string{"admin", "cluster-admin", "edit", "system:agent", "system:user", "view"}},
		{"cluster role bindings", names(a, config.ClusterRoleBindings), []string{"cluster-admin", "system:agent", "system:user"}},
		{"roles", names(a, config.Roles), []string{"default/system:pipeline", "sensu-system/system:pipeline"}},
		{"role bindings", names(a, config.RoleBindings), []string{"default/system:pipeline", "sensu-system/system:pipeline"}},
	} {
		if !slices.Equal(tc.got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.kind, tc.got, tc.want)
		}
	}
	for u := range config.List(a.opts.Config.Snapshot(), config.Users, "") {
		if u.Password != "" || !strings.HasPrefix(u.PasswordHash, "$2a$") {
			t.Errorf("user %s is stored with password %q and hash %q", u.Username, u.Password, u.PasswordHash)
		}
	}
	if _, err := a.Password(t.Context(), "root", "correct horse"); err != nil {
		t.Error(err)
	}
	if err := a.Seed(t.Context(), SeedOptions{Username: "other", Password: "correct horse"}); !errors.Is(err, ErrInitialized) {
		t.Errorf("second seed: %v, want ErrInitialized", err)
	}
}

// TestDefaultAgentPassword asks before and after the password is changed, and without the user.
func TestDefaultAgentPassword(t *testing.T) {
	a := newAuth(t, testconfig.Store(t), new(clock))
	if a.DefaultAgentPassword() {
		t.Error("there is no agent yet")
	}
	if err := a.Seed(t.Context(), SeedOptions{Username: "root", Password: "correct horse"}); err != nil {
		t.Fatal(err)
	}
	set := func(password string, disabled bool) {
		t.Helper()
		hash, err := a.hashPassword(password)
		if err != nil {
			t.Fatal(err)
		}
		if err := config.Put(t.Context(), a.opts.Config, config.Users, &resource.User{Username: "agent", PasswordHash: hash, Disabled: disabled}); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		change func()
		want   bool
	}{
		{func() {}, true},
		{func() { set("another one", false) }, false},
		{func() { set(agentPassword, false) }, true},
		{func() { set(agentPassword, true) }, false},
	} {
		step.change()
		for range 2 { // the second answer is cached
			if got := a.DefaultAgentPassword(); got != step.want {
				t.Errorf("%v, want %v", got, step.want)
			}
		}
	}
}

func TestBuiltinObjectsAreValid(t *testing.T) {
	var errs []error
	for _, r := range builtinRoles() {
		errs = append(errs, r.Validate())
	}
	for _, b := range builtinBindings() {
		errs = append(errs, b.Validate())
	}
	role, binding := PipelineAccess("dev", "admin")
	if err := errors.Join(append(errs, role.Validate(), binding.Validate())...); err != nil {
		t.Error(err)
	}
}

func TestSeedRefuses(t *testing.T) {
	a := newAuth(t, testconfig.Store(t), new(clock))
	for want, opts := range map[string]SeedOptions{
		"password length must be at least 8 characters": {Username: "root", Password: "short"},
		"username must not be empty":                    {Password: "correct horse"},
		"the name \"agent\" is the agents'":             {Username: "agent", Password: "correct horse"},
		"a password or its hash is required":            {Username: "root"},
		"an api key must be a UUID":                     {Username: "root", Password: "correct horse", APIKey: "short"},
		"is the public name of an api key":              {Username: "root", Password: "correct horse", APIKey: APIKeyName(testKey)},
	} {
		if err := a.Seed(t.Context(), opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", opts, err, want)
		}
	}
	if n := config.Len(a.opts.Config.Snapshot(), config.Users) + config.Len(a.opts.Config.Snapshot(), config.Namespaces); n != 0 {
		t.Errorf("%d objects were written", n)
	}
}

func TestSeedCompletesOneThatWasCutShort(t *testing.T) {
	a := newAuth(t, testconfig.Store(t), new(clock))
	put(t, a, config.Namespaces, &resource.Namespace{Name: "default"})
	putUser(t, a, AgentUser, "changed already", nil)
	if err := a.Seed(t.Context(), SeedOptions{Username: "admin", Password: agentPassword}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Password(t.Context(), AgentUser, "changed already"); err != nil {
		t.Errorf("seed replaced what was there: %v", err)
	}
	if got := names(a, config.Roles); len(got) != 2 {
		t.Errorf("roles %v", got)
	}
}

func TestOneOfSeveralSeedsWins(t *testing.T) {
	s := testconfig.Store(t)
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		a := newAuth(t, s, new(clock))
		wg.Go(func() { errs[i] = a.Seed(t.Context(), SeedOptions{Username: "admin", Password: agentPassword}) })
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, ErrInitialized):
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d seeds succeeded, want 1", won)
	}
}
