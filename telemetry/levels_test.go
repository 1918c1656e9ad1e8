package telemetry

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestLevels: a change holds for its component or for all, ends by itself, and the configured level counts again.
func TestLevels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var base slog.LevelVar
		var out bytes.Buffer
		levels := NewLevels(&base)
		log, err := LoggerOf(&out, levels, "text")
		if err != nil {
			t.Fatal(err)
		}
		handler, fold := log.With("component", "handler"), log.With("component", "fold")
		says := func(what, want string) {
			t.Helper()
			out.Reset()
			handler.Debug("h")
			fold.Debug("f")
			fold.With("partition", 1).Info("i")
			log.WithGroup("g").With("component", "handler").Debug("g")
			var got []string
			for line := range strings.Lines(out.String()) {
				_, msg, _ := strings.Cut(line, "msg=")
				got = append(got, msg[:1])
			}
			if strings.Join(got, "") != want {
				t.Errorf("%s: logged %q, want %q:\n%s", what, got, want, out.String())
			}
		}
		says("at first", "i")
		if err := levels.Set("handler", "debug", 10*time.Minute); err != nil {
			t.Fatal(err)
		}
		says("one component", "hi")
		if err := levels.Set("", "error", time.Minute); err != nil {
			t.Fatal(err)
		}
		says("and the others less", "h")
		if got := levels.Show(); got.Level != "info" || len(got.Changed) != 2 || got.Changed[1].Component != "handler" || strings.Join(got.Components, " ") != "fold handler" {
			t.Errorf("shown are %+v", got)
		}
		time.Sleep(2 * time.Minute) // the bubble's time
		says("the others are back", "hi")
		if err := levels.Set("handler", "debug", time.Hour); err != nil { // replaces, and lasts longer
			t.Fatal(err)
		}
		time.Sleep(30 * time.Minute)
		says("longer", "hi")
		time.Sleep(31 * time.Minute)
		says("over", "i")
		base.Set(slog.LevelDebug)
		says("another configured level", "hfig")
		if err := levels.Set("", "warn", time.Hour); err != nil {
			t.Fatal(err)
		}
		levels.Reset()
		says("reset", "hfig")
		for component, level := range map[string]string{"handlr": "debug", "": "loud"} {
			if err := levels.Set(component, level, time.Hour); err == nil {
				t.Errorf("level %s of %q was taken", level, component)
			} else if component != "" && !strings.Contains(err.Error(), "(handler?)") {
				t.Errorf("the error is %v", err)
			}
		}
	})
}
