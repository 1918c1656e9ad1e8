package main

import (
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
	if err := settings(f, []string{"LAPWING_T_", "SENSU_T_"}, "/nonexistent"); err != nil {
		t.Fatal(err)
	}
	if v.name != "flag" || v.port != 8081 || v.wait != 7*time.Second || !slices.Equal(v.list, []string{"c", "d"}) || v.labels["rack"] != "7" || v.labels["site"] != "x" || !v.enabled {
		t.Errorf("%+v", v)
	}
}

func TestSettingsErrorsNameTheThing(t *testing.T) {
	for _, tc := range []struct{ file, want string }{
		{"nonsense: 1", `unknown key "nonsense"`},
		{"agent-port: many", "agent-port"},
		{"name: [a]", "name"},
		{"a: b: c", "read configuration file"},
	} {
		file := filepath.Join(t.TempDir(), "x.yml")
		if err := os.WriteFile(file, []byte(tc.file), 0o600); err != nil {
			t.Fatal(err)
		}
		f, _ := flags()
		if err := f.Parse([]string{"--config-file", file}); err != nil {
			t.Fatal(err)
		}
		if err := settings(f, nil, ""); err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%q: %v, want an error with %q and the file's name", tc.file, err, tc.want)
		}
	}
	f, _ := flags()
	if err := settings(f, nil, "/nonexistent/lapwing.yml"); err != nil {
		t.Errorf("a default file that is missing: %v", err)
	}
	_ = f.Parse([]string{"-c", "/nonexistent/lapwing.yml"})
	if err := settings(f, nil, ""); err == nil {
		t.Error("a file that was asked for is missing, and nothing is said")
	}
	t.Setenv("LAPWING_T_AGENT_PORT", "x")
	f, _ = flags()
	if err := settings(f, []string{"LAPWING_T_"}, ""); err == nil || !strings.Contains(err.Error(), "LAPWING_T_AGENT_PORT") {
		t.Errorf("bad environment: %v", err)
	}
}
