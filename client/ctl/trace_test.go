package ctl_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/client/ctl"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
)

// operator is a user with a client of a real backend.
type operator struct {
	t      *testing.T
	client *client.Client
	url    string
	dir    string
	key    string
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	b := testbackend.Start(t, nil)
	location, err := b.Client.GrantAPIKey(t.Context(), testbackend.User)
	if err != nil {
		t.Fatal(err)
	}
	return &operator{t: t, client: b.Client, url: "http://" + b.APIAddr().String(), dir: t.TempDir(), key: path.Base(location)}
}

// run runs a command and returns what it prints.
func (o *operator) run(args ...string) (string, error) {
	o.t.Helper()
	root := newRoot()
	root.SilenceErrors = true
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetIn(strings.NewReader(""))
	root.SetArgs(append(args, "--api-url", o.url, "--api-key", o.key, "--config-dir", o.dir))
	err := root.ExecuteContext(o.t.Context())
	if err != nil {
		ctl.Report(&out, err)
	}
	return out.String(), err
}

// put makes an object of a kind by its plural name.
func (o *operator) put(plural, name, body string) {
	o.t.Helper()
	where := "/api/core/v2/namespaces/default/" + plural + "/" + name
	if err := o.client.Do(o.t.Context(), http.MethodPut, where, json.RawMessage(body), nil); err != nil {
		o.t.Fatal(err)
	}
}

// event sends a result of a check. more is additional JSON of the check.
func (o *operator) event(entity, check string, status int, more string) {
	o.t.Helper()
	if more != "" {
		more = "," + more
	}
	o.put("events", entity+"/"+check, fmt.Sprintf(`{"entity":{"metadata":{"name":%q}},"check":{"metadata":{"name":%q},"interval":10,"status":%d,"output":"it is %d"%s}}`, entity, check, status, status, more))
}

// asks runs a command until it prints want. Other goroutines of the backend produce the answer.
func (o *operator) asks(t *testing.T, want string, args ...string) string {
	t.Helper()
	re := regexp.MustCompile(want)
	deadline := time.Now().Add(time.Minute)
	for {
		got, err := o.run(args...)
		if err == nil && re.MatchString(got) {
			return got
		}
		if time.Now().After(deadline) {
			t.Fatalf("lapwing %s: %v\n%s\nnever matched %s", strings.Join(args, " "), err, got, want)
		}
		time.Sleep(20 * time.Millisecond) // pause while polling for a state that must come
	}
}

// TestWhyNot asks a real backend why a check did not alert, for each possible reason.
func TestWhyNot(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	handler := func(name, more string) {
		t.Helper()
		o.put("handlers", name, `{"metadata":{"name":"`+name+`"},"type":"pipe",`+more+`}`)
	}
	filter := func(name, expression string) {
		t.Helper()
		o.put("filters", name, fmt.Sprintf(`{"metadata":{"name":%q},"action":"allow","expressions":[%q]}`, name, expression))
	}
	handler("good", `"command":"cat > /dev/null"`)
	handler("incidents", `"command":"cat > /dev/null","filters":["is_incident","not_silenced"]`)
	handler("third", `"command":"cat > /dev/null","filters":["is_incident","thrice"]`)
	handler("ops", `"command":"cat > /dev/null","filters":["ops"]`)
	handler("broken", `"command":"cat > /dev/null; echo 550 no such user >&2; exit 3"`)
	handler("busy", `"command":"cat > /dev/null; echo come again; exit 75"`)
	handler("racks", `"command":"cat > /dev/null","group":{"by":["check.name"],"wait":1}`)
	handler("late", `"command":"cat > /dev/null","group":{"by":["check.name"],"wait":600}`)
	handler("lost", `"command":"cat > /dev/null","filters":["nowhere"]`)
	filter("thrice", "event.check.occurrences == 3")
	filter("ops", "event.check.labels.team == 'ops'")
	o.put("silenced", "entity:web1:quiet", `{"metadata":{"name":"entity:web1:quiet","namespace":"default"},"subscription":"entity:web1","check":"quiet","reason":"known"}`)

	for _, tc := range []struct {
		name, check, more string
		want              string
	}{
		{"delivered", "fine", `"handlers":["good"]`, `web1/fine fails \(status 2, once in a row\)\. It did alert: good at `},
		{"filtered", "filtered", `"handlers":["ops"]`,
			`It did not alert: ops: filter ops denied it: event\.check\.labels\.team == 'ops', and event\.check\.labels\.team was `},
		{"occurrences not reached", "early", `"handlers":["third"]`,
			`It did not alert: third: filter thrice denied it: event\.check\.occurrences == 3, and event\.check\.occurrences was 1\.`},
		{"silenced", "quiet", `"handlers":["incidents"]`, `It did not alert: incidents: it is silenced by entity:web1:quiet of admin: known \(without end\)\.`},
		{"no handler", "mistyped", `"handlers":["mial"]`, `It did not alert: no handler took it: no handler was defined of those that the event names: mial`},
		{"one of two handlers", "half", `"handlers":["good","mial"]`,
			`It did alert: good at .*\. Handler mial, which it names, is not defined\.`},
		{"none named", "unnamed", ``, `It did not alert: no handler took it: the event names no handler`},
		{"handler failed", "failed", `"handlers":["broken"]`,
			`It did not alert: broken: the handler failed in 1 attempt: .*550 no such user.*lapwing deadletter redrive --handler broken --newest --failing-only`},
		{"will be tried again", "busy", `"handlers":["busy"]`,
			`It has not alerted yet: busy: the last attempt failed: .*, the next is at `},
		{"grouped", "late", `"handlers":["late"]`, `It has not alerted yet: late: it waits for its group to go out: .*late`},
		{"missing filter", "lost", `"handlers":["lost"]`,
			`It did not alert: lost: the workflow could not be run: there is no filter "nowhere"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o.event("web1", tc.check, 2, tc.more)
			o.asks(t, tc.want, "event", "trace", "web1", tc.check)
		})
	}
	t.Run("hostile filter", func(t *testing.T) {
		filter("endless", "(function(){ while (true) {} })()")
		filter("wrong", "nobody.has.defined == this")
		handler("hostile", `"command":"cat > /dev/null","filters":["endless","wrong"]`)
		o.event("web1", "hostile", 2, `"handlers":["hostile"]`)
		o.asks(t, `(?s)It did alert: hostile at .*error filter endless: .*\n +it takes too long\n.*error filter wrong: .*\n +.*nobody is not defined`, "event", "trace", "web1", "hostile")
	})
	t.Run("set aside", func(t *testing.T) {
		// This expression makes the backend kill its worker: it matches repeatedly in one step, which cannot be
		// interrupted.
		filter("deadly", `Array(1000).fill(1).map(RegExp.prototype.test.bind(/^(a+)+\1$/, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab")).length`)
		handler("deadly", `"command":"cat > /dev/null","filters":["deadly"]`)
		// After each death the filter pauses for some seconds, so send events until it has killed three workers.
		deadline := time.Now().Add(3 * time.Minute)
		for n := 0; ; n++ {
			check := fmt.Sprint("deadly", n)
			o.event("web1", check, 2, `"handlers":["deadly"]`)
			got := o.asks(t, `error filter deadly`, "event", "trace", "web1", check)
			if regexp.MustCompile(`(?s)error filter deadly: .*set aside`).MatchString(got) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("never set aside: %s", got)
			}
			time.Sleep(200 * time.Millisecond) // a filter pauses after a death; events in between do no harm
		}
	})
	t.Run("inhibited", func(t *testing.T) {
		o.put("checks", "ping", `{"metadata":{"name":"ping"},"command":"true","interval":10,"subscriptions":["x"]}`)
		o.put("checks", "site", `{"metadata":{"name":"site"},"command":"true","interval":10,"subscriptions":["x"],"depends_on":["router/ping"]}`)
		o.event("router", "ping", 2, "")
		o.event("web1", "site", 2, `"handlers":["incidents"]`)
		o.asks(t, `It did not alert: incidents: it is inhibited: it depends on router/ping`, "event", "trace", "web1", "site")
	})
	t.Run("folded", func(t *testing.T) {
		for i := range 5 {
			o.event(fmt.Sprint("rack", i), "power", 2, `"handlers":["racks"]`)
		}
		o.asks(t, `alert on its own: racks: it went out at .* with others in one alert: one of 5 in group`, "event",
			"trace", "rack3", "power")
	})
	t.Run("alerted later", func(t *testing.T) {
		o.event("web1", "early", 2, `"handlers":["third"]`)
		o.event("web1", "early", 2, `"handlers":["third"]`)
		got := o.asks(t, `fails \(status 2, 3 times in a row\)\. It did alert: third at `, "event", "trace", "web1",
			"early", "--limit", "0")
		if n := strings.Count(got, "FILTERED"); n != 2 {
			t.Errorf("%d denials are shown, want 2:\n%s", n, got)
		}
	})
	t.Run("resolved", func(t *testing.T) {
		o.event("web1", "fine", 0, `"handlers":["good"]`)
		o.asks(t, `web1/fine passes \(status 0\), so there is nothing to alert about\. Its resolution at .*: good: delivered\. The incident before it did alert: good at `, "event", "trace", "web1", "fine")
	})
	t.Run("deleted", func(t *testing.T) {
		if out, err := o.run("event", "delete", "web1", "filtered", "--skip-confirm"); err != nil {
			t.Fatal(out)
		}
		o.asks(t, `There is no event web1/filtered now\. Its last incident did not alert: ops: filter ops denied it`,
			"event", "trace", "web1", "filtered")
	})
	t.Run("unknown", func(t *testing.T) {
		if out, err := o.run("event", "trace", "web1", "nothing"); err == nil ||
			!strings.Contains(out, "there is no event web1/nothing, and no trace of one") {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("in JSON", func(t *testing.T) {
		out, err := o.run("event", "trace", "web1", "failed", "--format", "json")
		var got struct {
			Answer   string
			Outcomes []client.Outcome
		}
		if err != nil || json.Unmarshal([]byte(out), &got) != nil {
			t.Fatalf("%v: %s", err, out)
		}
		d := got.Outcomes[0].Deliveries[0]
		if d.Verdict != client.VerdictDead || len(d.Attempts) != 1 || d.Attempts[0].Status != 3 ||
			!strings.Contains(d.Attempts[0].Output, "550 no such user") {
			t.Errorf("delivery %+v", d)
		}
	})
	t.Run("page", func(t *testing.T) {
		out, err := o.run("event", "trace", "web1", "failed")
		for _, want := range []string{`(?m)^  handler broken: DEAD`,
			`(?m)^    attempt 1 at \d\d:\d\d:\d\d: failed \(status 3\) after \d+ ms$`,
			`(?m)^            \| 550 no such user$`} {
			if err != nil || !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("%v: %q is not in\n%s", err, want, out)
			}
		}
	})
	t.Run("simulate", func(t *testing.T) {
		draft := filepath.Join(o.dir, "draft.yaml")
		text := `{"type":"EventFilter","api_version":"core/v2","metadata":{"name":"thrice"},"spec":{"action":"allow","expressions":["event.check.occurrences == 1"]}}
{"type":"Pipeline","api_version":"core/v2","metadata":{"name":"draft"},"spec":{"workflows":[
 {"name":"one","filters":[{"name":"thrice","type":"EventFilter","api_version":"core/v2"}],"handler":{"name":"good","type":"Handler","api_version":"core/v2"}}]}}`
		if err := os.WriteFile(draft, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o.event("web2", "early", 2, `"handlers":["third"]`)
		o.asks(t, `^No handler would get it: third: filter thrice denied it: event\.check\.occurrences == 3, and `+
			`event\.check\.occurrences was 1\. Nothing was sent\.`,
			"pipeline", "simulate", "--event", "web2/early")
		o.asks(t, `(?s)^It would be sent to third, good\. Nothing was sent\..*pipeline draft, workflow one, handler good: WOULD BE SENT`,
			"pipeline", "simulate", "--event", "web2/early", "-f", draft)
		file := filepath.Join(o.dir, "event.json")
		if err := os.WriteFile(file, []byte(`{"entity":{"metadata":{"name":"paper"}},"check":{"metadata":{"name":"early"},"interval":10,"status":2,"occurrences":3,"handlers":["third"],"history":[{"status":2}]}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		o.asks(t, `^It would be sent to third\.`, "pipeline", "simulate", "--event", file)
		for what, want := range map[string]string{"web9/early": `Did you mean "web1/early"?`,
			"nothing": "neither ENTITY/CHECK nor a file", o.dir: "directory"} {
			if out, err := o.run("pipeline", "simulate", "--event", what); err == nil || !strings.Contains(out, want) {
				t.Errorf("--event %s: %v: %s, want %s", what, err, out, want)
			}
		}
	})
	t.Run("dead letters", func(t *testing.T) {
		out := o.asks(t, `(?m)broken +web1 +failed +CRITICAL +\S.* 1\s*$`, "deadletter", "list")
		id := ""
		for _, line := range strings.Split(out, "\n") {
			if strings.Contains(line, " web1 ") {
				id = strings.Fields(line)[0]
			}
		}
		o.asks(t, `(?s)Handler: +broken.*Attempts: +1.*Output: +550 no such user`, "deadletter", "info", id)
		if out, err := o.run("deadletter", "info", "nothing"); err == nil || !strings.Contains(out, "lapwing deadletter list") {
			t.Errorf("%v: %s", err, out)
		}
		// It fails repeatedly; then its handler is corrected.
		o.asks(t, `Queued 1 dead letter; see: lapwing handler waiting`, "deadletter", "redrive", "--skip-confirm", id)
		o.asks(t, `the handler failed in 2 attempts`, "event", "trace", "web1", "failed")
		handler("broken", `"command":"cat > /dev/null"`)
		o.asks(t, `Queued 1 dead letter for handler broken`, "deadletter", "redrive", "--skip-confirm", "--handler", "broken")
		o.asks(t, `It did alert: broken at `, "event", "trace", "web1", "failed")
		handler("broken", `"command":"cat > /dev/null; exit 3"`)
		o.event("web1", "failed", 2, `"handlers":["broken"]`)
		o.asks(t, `broken +web1 +failed `, "deadletter", "list", "--handler", "broken")
		if out, err := o.run("deadletter", "delete", "--all"); ctl.ExitCode(err) != 3 {
			t.Errorf("without an answer: %v: %s", err, out)
		}
		o.asks(t, `Deleted 1 dead letter`, "deadletter", "delete", "--all", "--skip-confirm")
		if out, err := o.run("deadletter", "delete"); err == nil || !strings.Contains(out, "one of --handler and --all") {
			t.Errorf("%v: %s", err, out)
		}
	})
}
