//go:build !agentonly

package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// programs are the two whose settings are flags, keys of a file and variables.
var programs = []struct {
	name  string
	fresh func() options
	zeros []string
	// free are words and lists in which any text makes sense before it is used.
	free []string
}{
	{"backend", func() options { return &backendSettings{} }, backendZeros, []string{
		"audit-log-file", "cache-dir", "cluster-admin-password", "cluster-admin-username", "event-log-file", "platform-metrics-log-file", "state-dir", "trusted-ca-file",
	}},
	{"agent", func() options { return &agentFlags{logTo: io.Discard} }, agentZeros, []string{
		"annotations", "api-allowed-hosts", "cache-dir", "deregistration-handler", "keepalive-handlers",
		"keepalive-pipelines",
		"namespace", "password", "redact", "statsd-event-handlers", "subscriptions", "trusted-ca-file", "user",
	}},
}

// nothing is a program without settings beside the command line.
var nothing = program{file: os.DevNull}

// TestEachFlagRefusesBadValues gives each flag a negative, a huge, an empty and a senseless value, and 0. If a flag
// takes 0, its help explains it; all else is an error that names the flag.
func TestEachFlagRefusesBadValues(t *testing.T) {
	for _, p := range programs {
		all := pflag.NewFlagSet("", pflag.ContinueOnError)
		p.fresh().register(all)
		count := 0
		all.VisitAll(func(f *pflag.Flag) {
			if f.Name == "config-file" { // is read at once
				return
			}
			count++
			bad := map[string]bool{"": true, "no sense": true} // by value, whether it is refused
			switch kind := f.Value.Type(); kind {
			case "int", "int64", "uint32", "uint64", "float64":
				bad["-5"] = true
				bad["99999999999999999999999"], bad["1e999"] = true, true
				bad["0"] = !slices.Contains(p.zeros, f.Name)
				bad["NaN"] = true
			case "duration":
				bad["-5s"] = true
				bad["9999999999h"], bad["2562000h"], bad["5"] = true, true, true
				bad["0s"] = !slices.Contains(p.zeros, f.Name)
			case "bool", "stringToString":
			case "string":
				bad[""] = f.DefValue != ""
				bad["no sense"] = !slices.Contains(p.free, f.Name)
			case "stringSlice":
				bad[""] = f.DefValue != "[]" && !strings.Contains(f.Usage, "if it is empty")
				bad["no sense"] = !slices.Contains(p.free, f.Name)
			default:
				t.Errorf("--%s has the unknown type %s", f.Name, kind)
			}
			for value, refused := range bad {
				o := p.fresh()
				_, _, err := readArgs([]string{"--" + f.Name + "=" + value}, o, nothing)
				switch {
				case !refused && err != nil:
					t.Errorf("%s --%s=%q: %v", p.name, f.Name, value, err)
				case refused && err == nil:
					t.Errorf("%s --%s=%q is taken", p.name, f.Name, value)
				case refused && !strings.Contains(err.Error(), "--"+f.Name):
					t.Errorf("%s --%s=%q: %v\nwhich does not name the flag", p.name, f.Name, value, err)
				case refused && strings.Contains(err.Error(), "strconv"), refused && strings.Contains(err.Error(), " time: "):
					t.Errorf("%s --%s=%q: %v\nwhich are Go's words", p.name, f.Name, value, err)
				}
			}
		})
		if count < 50 {
			t.Errorf("%s: only %d flags", p.name, count)
		}
	}
}

// TestDays: each flag that takes a time understands days and weeks.
func TestDays(t *testing.T) {
	for _, p := range programs {
		all := pflag.NewFlagSet("", pflag.ContinueOnError)
		p.fresh().register(all)
		count := 0
		all.VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() != "duration" {
				return
			}
			count++
			if err := f.Value.Set("1w1d12h"); err != nil || f.Value.String() != "204h0m0s" {
				t.Errorf("%s --%s=1w1d12h: %s, %v", p.name, f.Name, f.Value, err)
			}
		})
		if count == 0 {
			t.Errorf("%s: no flag takes a time", p.name)
		}
	}
}

var aboutZero = regexp.MustCompile(`\b0 for `)

func TestHelpExplainsZero(t *testing.T) {
	for _, p := range programs {
		all := pflag.NewFlagSet("", pflag.ContinueOnError)
		p.fresh().register(all)
		for _, name := range p.zeros {
			if f := all.Lookup(name); f == nil {
				t.Errorf("there is no flag --%s", name)
			} else if !aboutZero.MatchString(f.Usage) {
				t.Errorf("--%s does not say what 0 does: %s", name, f.Usage)
			}
		}
		all.VisitAll(func(f *pflag.Flag) {
			if aboutZero.MatchString(f.Usage) && !slices.Contains(p.zeros, f.Name) {
				t.Errorf("--%s says what 0 does, and refuses it", f.Name)
			}
		})
	}
}

// TestBadSettingsAreToldTogether has mistakes in all three places.
func TestBadSettingsAreToldTogether(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.yml")
	text := "agent-queue: -1\nevent-log-partitions: 99\nallowed-handler-types: [pip]\nnonsense: 1\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LAPWING_T_HANDLER_QUEUE", "many")
	t.Setenv("LAPWING_T_TRACE_AGE", "-5s")
	t.Setenv("LAPWING_T_TRACE_BYTES", "") // not set
	var s backendSettings
	args := []string{"--agent-message-timeout", "-5s", "--agent-port=70000", "--handler-workers", "99999999999999999999",
		"--log-format", "jso"}
	_, _, err := readArgs(args, &s, program{prefixes: []string{"LAPWING_T_"}, file: file})
	if err == nil {
		t.Fatal("all of it was taken")
	}
	for _, want := range []string{
		"--agent-message-timeout: -5s is negative: it must be from 1ms to 24h",
		"--agent-port: 70000 is not a port",
		"--handler-workers: 99999999999999999999 is too large",
		`--log-format: "jso" is not known: it must be text or json; the nearest is "json"`,
		"--agent-queue (key agent-queue of " + file + ", line 1): -1 is negative: it must be from 1 to 1000000",
		"--event-log-partitions (key event-log-partitions of " + file + ", line 2): 99 is out of range: it must be from 1 to 64",
		"--allowed-handler-types (key allowed-handler-types of " + file + `, line 3): "pip" is not known: it must be pipe, tcp, udp, set,`,
		`the nearest is "pipe"`,
		`unknown key "nonsense"`,
		`--handler-queue (environment variable LAPWING_T_HANDLER_QUEUE): "many" is not a whole number`,
		"--trace-age (environment variable LAPWING_T_TRACE_AGE): -5s is negative",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("it lacks %s", want)
		}
	}
	if n := strings.Count(err.Error(), "\n") + 1; n != 10 {
		t.Errorf("%d lines:\n%v", n, err)
	}
}

// TestCommandLineTellsAll has cobra stop at the first value, and an unknown flag.
func TestCommandLineTellsAll(t *testing.T) {
	args := os.Args
	defer func() { os.Args = args }()
	os.Args = []string{"lapwing", "backend", "--agent-port=x", "--handler-queue=y", "--allowed-handler-types", "pip",
		"--config-file", os.DevNull}
	explain := explainFlags(func() options { return &backendSettings{} }, func() program { return nothing })
	err := explain(&cobra.Command{}, errors.New("the first"))
	for _, want := range []string{"--agent-port: ", "--handler-queue: ", "--allowed-handler-types: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %s", err, want)
		}
	}
	cmd := backendCommand()
	os.Args = []string{"lapwing", "backend", "--agent-prot=1", "--state-dir", "--nonsense", "--what", "-z", "-dx", "-c",
		"-y", "--handler-queue=y",
		"--config-file", os.DevNull, "--", "--words"}
	err = explain(cmd, cmd.ParseFlags(os.Args[2:]))
	want := strings.Join([]string{
		"unknown flag: --agent-prot (the nearest known flag is --agent-port)", "unknown flag: --what",
		`unknown shorthand flag: "z" in -z`,
		`--handler-queue: "y" is not a whole number`,
	}, "\n")
	if err == nil || err.Error() != want {
		t.Errorf("unknown flags:\n%v\nwant:\n%s", err, want)
	}
	for _, number := range []string{"-5", "-0.5", "-.5", "-5m"} {
		cmd := backendCommand()
		os.Args = []string{"lapwing", "backend", "--nonsense", number, "--config-file", os.DevNull}
		if err := explain(cmd, cmd.ParseFlags(os.Args[2:])); err == nil || err.Error() != "unknown flag: --nonsense" {
			t.Errorf("an unknown flag with %s: %v", number, err)
		}
	}
	os.Args = []string{"lapwing", "backend", "--nonsense=1", "-5", "-5", "--config-file", os.DevNull}
	if err, want := explain(cmd, cmd.ParseFlags(os.Args[2:])), 2; strings.Count(fmt.Sprint(err), "in -5") != want {
		t.Errorf("a number that is no value is told %v, want %d times", err, want)
	}
	os.Args = []string{"lapwing", "backend"}
	if err := explain(cmd, errors.New("the first")); err == nil || err.Error() != "the first" {
		t.Errorf("nothing else is wrong: %v", err)
	}
}

// TestAllowListIsToldWithTheOthers: a file that is no allow list is one bad option among others.
func TestAllowListIsToldWithTheOthers(t *testing.T) {
	list := filepath.Join(t.TempDir(), "list.yml")
	if err := os.WriteFile(list, []byte("- exec: [ls]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{list, list + ".missing"} {
		_, _, err := readArgs([]string{"--allow-list", file, "--buffer-events=-1"}, &agentFlags{logTo: io.Discard}, nothing)
		for _, want := range []string{"--allow-list: read allow list", "--buffer-events: -1 is negative"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v\nlacks %s", err, want)
			}
		}
	}
}

func TestNoticesAreToldOnce(t *testing.T) {
	var b strings.Builder
	log := slog.New(slog.NewTextHandler(&b, nil))
	first := []notice{{"one", []any{"key", 1}}, {"one", []any{"key", 1}}, {"two", nil}}
	told := logNotices(log, first, nil)
	told = logNotices(log, append(first, notice{"three", nil}), told)
	told = logNotices(log, first[2:], told)
	logNotices(log, first[:1], told) // it was gone in between
	if n := strings.Count(b.String(), "msg=one"); n != 2 {
		t.Errorf("%d times one:\n%s", n, &b)
	}
	if strings.Count(b.String(), "msg=two") != 1 || strings.Count(b.String(), "msg=three") != 1 {
		t.Errorf("told:\n%s", &b)
	}
}

// TestSizesWithUnits: a number of bytes takes no unit, and the error for one with a unit has the number.
func TestSizesWithUnits(t *testing.T) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.Int64("limit", 0, "")
	for text, want := range map[string]string{
		"3GiB": `"3GiB" is not a whole number; as bytes it is 3221225472`,
		"512M": `"512M" is not a whole number; as bytes it is 536870912`,
		"64KB": `"64KB" is not a whole number; as bytes it is 65536`,
		"3TiB": `"3TiB" is not a whole number`,
		"GiB":  `"GiB" is not a whole number`,
	} {
		f := flags.Lookup("limit")
		if err := plain(f, text, f.Value.Set(text)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
