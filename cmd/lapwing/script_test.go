//go:build !agentonly

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestMain lets scripts run "lapwing", which is this test's own binary.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"lapwing": main})
}

// TestScripts runs testdata/scripts/*.txtar, each against a backend of its own at $API. $ADMIN is an API key with all
// rights, and $WEAK one with the right to drain the backend.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "scripts"), RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			b := testbackend.Start(env.T().(testing.TB), nil)
			env.Setenv("API", "http://"+b.APIAddr().String())
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("NO_PROXY", "*")
			env.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise each command takes a second under -race
			if err := grantKeys(env, b); err != nil {
				return err
			}
			for i := range 3 {
				ev := testbackend.Event(fmt.Sprintf("host-%d", i), "disk", uint32(i), 1000)
				ev.Entity.EntityClass = "proxy"
				if err := client.Put(env.T().(testing.TB).Context(), b.Client, client.Events, "default",
					client.EventName(ev.Entity.Metadata.Name, "disk"), ev); err != nil {
					return err
				}
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"cut": cutFile, "flip": flipByte, "mode": fileMode},
	})
}

// grantKeys makes the API keys of a script.
func grantKeys(env *testscript.Env, b *testbackend.Backend) error {
	ctx, meta := env.T().(testing.TB).Context(), resource.ObjectMeta{Name: "weak"}
	rule := resource.Rule{Verbs: []string{"*"}, Resources: []string{"cluster"}}
	role := &resource.ClusterRole{Metadata: meta, Rules: []resource.Rule{rule}}
	binding := &resource.ClusterRoleBinding{
		Metadata: meta, RoleRef: resource.RoleRef{Type: "ClusterRole", Name: "weak"},
		Subjects: []resource.Subject{{Type: "User", Name: "weak"}},
	}
	if err := client.Put(ctx, b.Client, client.ClusterRoles, "", "weak", role); err != nil {
		return err
	}
	if err := client.Put(ctx, b.Client, client.ClusterRoleBindings, "", "weak", binding); err != nil {
		return err
	}
	weak := &resource.User{Username: "weak", Password: "P@ssw0rd!"}
	if err := client.Put(ctx, b.Client, client.Users, "", "weak", weak); err != nil {
		return err
	}
	for name, user := range map[string]string{"ADMIN": testbackend.User, "WEAK": "weak"} {
		location, err := b.Client.GrantAPIKey(ctx, user)
		if err != nil {
			return err
		}
		env.Setenv(name, location[strings.LastIndexByte(location, '/')+1:])
	}
	return nil
}

// cut FILE N takes the last N bytes from a file.
func cutFile(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	path := ts.MkAbs(args[0])
	st, err := os.Stat(path)
	ts.Check(err)
	ts.Check(os.Truncate(path, st.Size()-int64(n)))
}

// flip FILE N changes a bit of byte N of a file.
func flipByte(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	path := ts.MkAbs(args[0])
	b, err := os.ReadFile(path)
	ts.Check(err)
	b[n] ^= 1
	ts.Check(os.WriteFile(path, b, 0o600))
}

// mode FILE MODE checks the permissions of a file.
func fileMode(ts *testscript.TestScript, _ bool, args []string) {
	st, err := os.Stat(ts.MkAbs(args[0]))
	ts.Check(err)
	if got := fmt.Sprintf("%#o", st.Mode().Perm()); got != args[1] {
		ts.Fatalf("%s has mode %s, want %s", args[0], got, args[1])
	}
}
