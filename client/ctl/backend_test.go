package ctl_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// TestBackendScripts runs testdata/backend/*.txtar, each against a backend of its own at $API, as its administrator.
// $SAMPLES is a directory with a file that has a resource of every kind.
func TestBackendScripts(t *testing.T) {
	samples, err := filepath.Abs("../../test/sensuctl/samples")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/backend",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			b := testbackend.Start(env.T().(testing.TB), func(o *testbackend.Options) {
				o.Lateness.Every = 100 * time.Millisecond
				if filepath.Base(env.WorkDir) == "script-failing" {
					o.HandlerFailingAfter = time.Second
				}
			})
			env.Setenv("API", "http://"+b.APIAddr().String())
			env.Setenv("SAMPLES", samples)
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("TZ", "UTC")
			env.Setenv("NO_PROXY", "*")
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			env.Values["backend"], env.Values["tb"] = b, env.T()
			return os.Mkdir(filepath.Join(env.WorkDir, "home"), 0o700)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"signin": func(ts *testscript.TestScript, _ bool, _ []string) {
				ts.Check(ts.Exec("lapwing", "configure", "-n", "--url", ts.Getenv("API"), "--username",
					testbackend.User, "--password", testbackend.Password))
			},
			"exits": exits,
			// agent NAME connects an agent, which is registered and stays connected until the script ends.
			"agent": func(ts *testscript.TestScript, _ bool, args []string) {
				b := ts.Value("backend").(*testbackend.Backend)
				conn, _, err := b.TryDialAgent(args[0], nil)
				ts.Check(err)
				ts.Defer(func() { _ = conn.Close(wire.CloseGoingAway, "bye") })
				ts.Check(conn.Write(testbackend.Keepalive(ts.Value("tb").(testing.TB), args[0], wire.Protobuf)))
			},
		},
	})
}
