//go:build !agentonly

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/lapwing-monitoring/lapwing/backend"
)

const packaging = "../../packaging"

// commentedKey is an option that is commented out, or goes on with one.
var commentedKey = regexp.MustCompile(`(?m)^#( *[a-z-]+:.*|  .*)$`)

// TestExampleConfigurations has the programs read the files that come with them, as they are and with all that is
// commented out.
func TestExampleConfigurations(t *testing.T) {
	for name, register := range map[string]func(*pflag.FlagSet){
		"agent.yml":   new(agentFlags).register,
		"backend.yml": func(p *pflag.FlagSet) { backendFlags(p, new(backend.Options)) },
		"carbon.yml":  new(carbonSettings).register,
	} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(packaging, name))
			if err != nil {
				t.Fatal(err)
			}
			all := commentedKey.ReplaceAll(text, []byte("$1"))
			if string(all) == string(text) {
				t.Error("nothing was commented out")
			}
			for _, text := range [][]byte{text, all} {
				file := filepath.Join(t.TempDir(), name)
				if err := os.WriteFile(file, text, 0o600); err != nil {
					t.Fatal(err)
				}
				p := pflag.NewFlagSet(name, pflag.ContinueOnError)
				register(p)
				if _, err := settings(p, program{file: file}); err != nil {
					t.Errorf("%v in\n%s", err, text)
				}
			}
		})
	}
}

// TestConfigurationsOfSensu has both programs read a file with all that a Sensu knows: each key means something here,
// or is told with what to do instead.
func TestConfigurationsOfSensu(t *testing.T) {
	for name, tc := range map[string]struct {
		register func(*pflag.FlagSet)
		program  program
	}{
		"sensu-agent.yml":   {new(agentFlags).register, program{sensu: sensuAgentKeys}},
		"sensu-backend.yml": {func(p *pflag.FlagSet) { backendFlags(p, new(backend.Options)) }, program{sensu: sensuBackendKeys}},
	} {
		t.Run(name, func(t *testing.T) {
			p := pflag.NewFlagSet(name, pflag.ContinueOnError)
			tc.register(p)
			tc.program.file = filepath.Join("testdata", name)
			notices, err := settings(p, tc.program)
			if err != nil {
				t.Error(err)
			}
			told := 0
			for key := range tc.program.sensu {
				if p.Lookup(key) != nil {
					t.Errorf("%s is a flag of ours and cannot be one that has no effect", key)
				}
			}
			text, _ := os.ReadFile(tc.program.file)
			for line := range strings.Lines(string(text)) {
				key, _, ok := strings.Cut(line, ":")
				if _, known := tc.program.sensu[key]; ok && known {
					told++
				}
			}
			if told == 0 || len(notices) != told {
				t.Errorf("%d notices for %d keys without effect:\n%s", len(notices), told, said(notices))
			}
		})
	}
}

// TestUnits compares the units for systemd with what they start.
func TestUnits(t *testing.T) {
	for unit, tc := range map[string]struct {
		command        string
		option, system string // a directory, and the part of the system that it is below
		setting        string
	}{
		"lapwing-agent.service":   {"agent", "cache-dir", "/var/cache", "CacheDirectory"},
		"lapwing-backend.service": {"backend", "state-dir", "/var/lib", "StateDirectory"},
		"lapwing-carbon.service":  {"carbon", "state-dir", "/var/lib", "StateDirectory"},
	} {
		text, err := os.ReadFile(filepath.Join(packaging, "systemd", unit))
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]string{}
		for line := range strings.Lines(string(text)) {
			if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
				values[key] = value
			}
		}
		start := strings.Fields(values["ExecStart"])
		p := pflag.NewFlagSet(unit, pflag.ContinueOnError)
		file, reload := defaultAgentFile, "/bin/kill -HUP $MAINPID"
		switch tc.command {
		case "agent":
			new(agentFlags).register(p)
		case "backend":
			backendFlags(p, new(backend.Options))
			file = defaultBackendFile
		case "carbon":
			new(carbonSettings).register(p)
			file, reload = defaultCarbonFile, "" // SIGHUP would end it; it reads changed files of rules by itself
		}
		if want := reload; values["ExecReload"] != want {
			t.Errorf("%s reloads with %q, want %q", unit, values["ExecReload"], want)
		}
		want := []string{"/usr/bin/lapwing", tc.command, "--config-file", file}
		if strings.Join(start, " ") != strings.Join(want, " ") {
			t.Errorf("%s starts %q, want %q", unit, start, want)
		}
		if got, want := tc.system+"/"+values[tc.setting], p.Lookup(tc.option).DefValue; got != want {
			t.Errorf("%s makes %s, but the default of --%s is %s", unit, got, tc.option, want)
		}
	}
}

// TestExampleOfCarbon compares the values in carbon.yml that are called defaults with the defaults.
func TestExampleOfCarbon(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(packaging, "carbon.yml"))
	if err != nil {
		t.Fatal(err)
	}
	p := pflag.NewFlagSet("carbon.yml", pflag.ContinueOnError)
	new(carbonSettings).register(p)
	_, defaults, _ := strings.Cut(string(text), "# Defaults.\n")
	seen := 0
	for line := range strings.Lines(defaults) {
		key, value, ok := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, "#")), ": ")
		f := p.Lookup(key)
		if !ok || f == nil {
			continue
		}
		seen++
		if want := f.DefValue; strings.Trim(value, `"`) != want {
			t.Errorf("carbon.yml calls %s the default of %s, it is %s", value, key, want)
		}
	}
	if seen == 0 {
		t.Error("carbon.yml has no defaults")
	}
}

// TestAgentFlagsAreDocumented wants each of the agent's flags in its page.
func TestAgentFlagsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/agent.md")
	if err != nil {
		t.Fatal(err)
	}
	p := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	new(agentFlags).register(p)
	p.VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(string(page), "`--"+f.Name+"`") {
			t.Errorf("docs/agent.md does not mention --%s", f.Name)
		}
	})
}
