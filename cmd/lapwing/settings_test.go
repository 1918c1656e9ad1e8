package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

type values struct {
	name    string
	port    int
	wait    time.Duration
	list    []string
	labels  map[string]string
	enabled bool
}

func flags() (*pflag.FlagSet, *values) {
	f, v := pflag.NewFlagSet("test", pflag.ContinueOnError), new(values)
	f.StringP("config-file", "c", "/nonexistent/lapwing.yml", "")
	f.StringVar(&v.name, "name", "default", "")
	f.IntVar(&v.port, "agent-port", 1, "")
	f.DurationVar(&v.wait, "wait", time.Second, "")
	f.StringSliceVar(&v.list, "subscriptions", nil, "")
	f.StringToStringVar(&v.labels, "labels", nil, "")
	f.BoolVar(&v.enabled, "enabled", false, "")
	return f, v
}

func TestSettingsPrecedence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.yml")
	text := "name: file\nagent-port: 8081\nwait: 5s\nsubscriptions: [a, b]\nlabels: {rack: 7, site: x}\nenabled: true\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LAPWING_T_WAIT", "7s")
	t.Setenv("SENSU_T_WAIT", "9s")
	t.Setenv("SENSU_T_SUBSCRIPTIONS", "c d")
	f, v := flags()
	if err := f.Parse([]string{"-c", file, "--name", "flag"}); err != nil {
		t.Fatal(err)
	}
	if _, err := settings(f, program{prefixes: []string{"LAPWING_T_", "SENSU_T_"}, file: "/nonexistent"}); err != nil {
		t.Fatal(err)
	}
	if v.name != "flag" || v.port != 8081 || v.wait != 7*time.Second || !slices.Equal(v.list, []string{"c", "d"}) ||
		v.labels["rack"] != "7" || v.labels["site"] != "x" || !v.enabled {
		t.Errorf("%+v", v)
	}
}

func TestSettingsErrorsNameTheThing(t *testing.T) {
	for _, tc := range []struct{ file, want string }{
		{"name: x\nnonsense: 1", `: line 2: unknown key "nonsense"`},
		{"# ports\nagent-port: many", `, line 2): "many" is not a whole number`},
		{"name: [a]", "line 1): one value is wanted, not a list"},
		{"subscriptions:\n- a\n- [b]", "line 1): line 3: one value is wanted"},
		{"labels:\n  a: 1\n  b: {}", "line 1): line 3: b: one value is wanted"},
		{"labels:\n  a: 1\n  a: 2", "line 3: mapping key \"a\" already defined at line 2"},
		{"name: x\nwait: 1s\nname: y", "line 3: mapping key \"name\" already defined at line 1"},
		{"- name: x", "line 1: keys with values are wanted"},
		{"name: x\na: b: c", "read configuration file"},
	} {
		file := filepath.Join(t.TempDir(), "x.yml")
		if err := os.WriteFile(file, []byte(tc.file), 0o600); err != nil {
			t.Fatal(err)
		}
		f, _ := flags()
		if err := f.Parse([]string{"--config-file", file}); err != nil {
			t.Fatal(err)
		}
		if _, err := settings(f, program{}); err == nil || !strings.Contains(err.Error(), tc.want) ||
			!strings.Contains(err.Error(), file) {
			t.Errorf("%q: %v, want an error with %q and the file's name", tc.file, err, tc.want)
		}
	}
	f, _ := flags()
	if _, err := settings(f, program{file: "/nonexistent/lapwing.yml"}); err != nil {
		t.Errorf("a default file that is missing: %v", err)
	}
	_ = f.Parse([]string{"-c", "/nonexistent/lapwing.yml"})
	if _, err := settings(f, program{}); err == nil {
		t.Error("a file that was asked for is missing, and nothing is said")
	}
	t.Setenv("LAPWING_T_AGENT_PORT", "x")
	f, _ = flags()
	if _, err := settings(f, program{prefixes: []string{"LAPWING_T_"}}); err == nil ||
		!strings.Contains(err.Error(), "LAPWING_T_AGENT_PORT") {
		t.Errorf("bad environment: %v", err)
	}
}

// read has the program's settings come from a file with this text.
func read(t *testing.T, p program, text string) (*values, []notice, error) {
	t.Helper()
	p.file = filepath.Join(t.TempDir(), "x.yml")
	if err := os.WriteFile(p.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, v := flags()
	if err := f.Parse(nil); err != nil {
		t.Fatal(err)
	}
	notices, err := settings(f, p)
	return v, notices, err
}

func TestSettingsKeepTheTextOfScalars(t *testing.T) {
	v, _, err := read(t, program{}, `
name: 12345678
agent-port: 8.081e3
subscriptions: [12345678, 1.10, 007, 2024-01-02, yes, 0x1F, ~]
enabled: yes
labels:
  asset_id: 12345678
  big: 123456789012345678901234567890
  version: 1.10
  float: 6.02e23
  zero: 007
  date: 2024-01-02
  time: 2024-01-02T03:04:05Z
  bool: yes
  true: true
  null_one: ~
  42: int key
  comma: a,b=c
  quote: '"q"'
`)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"12345678", "1.10", "007", "2024-01-02", "yes", "0x1F"}; !slices.Equal(v.list, want) {
		t.Errorf("subscriptions %q, want %q", v.list, want)
	}
	want := map[string]string{
		"asset_id": "12345678", "big": "123456789012345678901234567890", "version": "1.10", "float": "6.02e23", "zero": "007",
		"date": "2024-01-02", "time": "2024-01-02T03:04:05Z", "bool": "yes", "true": "true", "42": "int key",
		"comma": "a,b=c", "quote": `"q"`,
	}
	if !maps.Equal(v.labels, want) {
		t.Errorf("labels %q, want %q", v.labels, want)
	}
	if v.name != "12345678" || v.port != 8081 || !v.enabled {
		t.Errorf("%+v", v)
	}

	v, _, err = read(t, program{}, "labels: {only: '\"q\"'}")
	if err != nil || v.labels["only"] != `"q"` {
		t.Errorf("a single label: %q, %v", v.labels, err)
	}

	t.Setenv("LAPWING_T_LABELS", `{"asset_id": 12345678, "big": 12345678901234567890, "f": 1.10, "b": true, "s": "a,b=\"c\""}`)
	v, _, err = read(t, program{prefixes: []string{"LAPWING_T_"}}, "")
	want = map[string]string{"asset_id": "12345678", "big": "12345678901234567890", "f": "1.10", "b": "true",
		"s": `a,b="c"`}
	if err != nil || !maps.Equal(v.labels, want) {
		t.Errorf("labels of the environment %q, want %q (%v)", v.labels, want, err)
	}
}

func TestSettingsResolveAliasesAndMerges(t *testing.T) {
	v, _, err := read(t, program{}, `
labels: &l
  team: db
  id: 7.0
subscriptions: &s [a, b]
`)
	if err != nil || v.labels["id"] != "7.0" || !slices.Equal(v.list, []string{"a", "b"}) {
		t.Errorf("%+v, %v", v, err)
	}
	// A merge brings its keys also at the top; those that stand there win.
	v, _, err = read(t, program{sensu: map[string]string{"x-common": "nothing"}}, `
x-common: &c
  name: merged
  agent-port: 7
<<: *c
name: mine
`)
	if err != nil || v.name != "mine" || v.port != 7 {
		t.Errorf("merged at the top: %+v, %v", v, err)
	}
	if v, _, err = read(t, program{}, "# nothing\n---\n"); err != nil || v.name != "default" {
		t.Errorf("an empty file: %+v, %v", v, err)
	}
	v, _, err = read(t, program{sensu: map[string]string{"x-common": "nothing"}}, `
x-common: &c {team: db, id: 7.0}
labels: {<<: *c, site: x}
`)
	if err != nil || v.labels["team"] != "db" || v.labels["id"] != "7.0" || v.labels["site"] != "x" {
		t.Errorf("merged: %+v, %v", v, err)
	}
}

// said is all that notices say, a line each.
func said(notices []notice) string {
	var lines []string
	for _, n := range notices {
		lines = append(lines, n.message+" "+strings.TrimSpace(fmt.Sprintln(n.args...)))
	}
	return strings.Join(lines, "\n")
}

func TestSettingsOfSensuAreTold(t *testing.T) {
	p := program{prefixes: []string{"LAPWING_T_", "SENSU_"}, shared: "SENSU_", sensu: map[string]string{
		"discover-processes": "advice one", "etcd-name": "advice two", "never-used": "x",
	}}
	v, notices, err := read(t, p, "name: n\ndiscover-processes: true\netcd-name: default\n")
	if err != nil || v.name != "n" {
		t.Fatalf("keys of Sensu's: %v", err)
	}
	text := said(notices)
	if len(notices) != 2 || !strings.Contains(text, "line 2 key discover-processes advice advice one") ||
		!strings.Contains(text, "etcd-name advice advice two") {
		t.Errorf("it says:\n%s", text)
	}

	// Unknown ones are refused together, each with its neighbour.
	_, notices, err = read(t, p, "agnt-port: 1\nsubscription: [a]\nnonsense: 1\nwait: long\netcd-name: x\n")
	if err == nil || len(notices) != 1 {
		t.Fatalf("unknown keys: %v, %s", err, said(notices))
	}
	for _, want := range []string{
		`line 1: unknown key "agnt-port" (the nearest known key is "agent-port")`,
		`line 2: unknown key "subscription" (the nearest known key is "subscriptions")`,
		`line 3: unknown key "nonsense"`, "--wait (key wait of ", ", line 4): ",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %s", err, want)
		}
	}
}

func TestUnknownVariablesAreTold(t *testing.T) {
	p := program{prefixes: []string{"LAPWING_T_", "SENSU_"}, shared: "SENSU_",
		sensu: map[string]string{"discover-processes": "advice"}}
	for name, value := range map[string]string{
		"LAPWING_T_AGENT_PROT":     "1",      // a typo
		"LAPWING_T_WHATEVER":       "1",      // ours, but no flag
		"SENSU_DISCOVER_PROCESSES": "true",   // Sensu's
		"SENSU_SUBSCRIPTION":       "secret", // a typo
		"SENSU_API_URL":            "x",      // sensuctl's: not reported
		"SENSU_T_X_Y_Z":            "x",      // not reported
		"LAPWING_T_NAME":           "n",
	} {
		t.Setenv(name, value)
	}
	v, notices, err := read(t, p, "")
	if err != nil || v.name != "n" {
		t.Fatalf("%+v, %v", v, err)
	}
	text := said(notices)
	for _, want := range []string{
		"LAPWING_T_AGENT_PROT nearest LAPWING_T_AGENT_PORT",
		"unknown environment variable has no effect variable LAPWING_T_WHATEVER",
		"setting of Sensu has no effect variable SENSU_DISCOVER_PROCESSES advice advice",
		"SENSU_SUBSCRIPTION nearest SENSU_SUBSCRIPTIONS",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if len(notices) != 4 || strings.Contains(text, "secret") {
		t.Errorf("it says:\n%s", text)
	}
}

func TestAgentOptionsNameTheirFlags(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		var a agentFlags
		p := pflag.NewFlagSet("agent", pflag.ContinueOnError)
		a.register(p)
		if err := p.Parse(args); err != nil {
			t.Fatal(err)
		}
		a.logTo = io.Discard
		_, err := a.options()
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
	f("")
	f("--api-port: 70000", "--api-port=70000")
	f("--backend-url: ", "--backend-url=http://127.0.0.1:8081")
	f("--backend-url: ", "--backend-url=127.0.0.1:8081")
	f("--buffer-bytes: -1", "--buffer-bytes=-1")
	f("--cert-file: ", "--cert-file=x")
	f("--check-limits: ", "--check-limits=cpu")
	f("--keepalive-critical-timeout: 30", "--keepalive-critical-timeout=30")
	f("--keepalive-warning-timeout: 4", "--keepalive-warning-timeout=4")
	f("--log-format: ", "--log-format=xml")
	f("--log-level: ", "--log-level=loud")
	f("--name: ", "--name=a b")
	f("--retry-multiplier: 0.5", "--retry-multiplier=0.5")
	f("--api-port: -1 is not a port: it must be from 0, for any free port, to 65535\n--name: ", "--api-port=-1", "--name=a b") // all at once
}
