package telemetry

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// Levels beside slog's own, so that every level name of a Sensu configuration has a meaning. Only the reason for the
// end of the process is logged at LevelFatal or LevelPanic, so these two as a minimum make the log almost silent.
const (
	LevelTrace = slog.LevelDebug - 4
	LevelFatal = slog.LevelError + 4
	LevelPanic = slog.LevelError + 8
)

// levels are in rising order.
var levels = []struct {
	name  string
	level slog.Level
}{
	{"trace", LevelTrace},
	{"debug", slog.LevelDebug},
	{"info", slog.LevelInfo},
	{"warn", slog.LevelWarn},
	{"error", slog.LevelError},
	{"fatal", LevelFatal},
	{"panic", LevelPanic},
}

// ParseLevel reads a level name; "warning" is "warn".
func ParseLevel(name string) (slog.Level, error) {
	wanted := strings.ToLower(name)
	if wanted == "warning" {
		wanted = "warn"
	}
	names := make([]string, len(levels))
	for i, l := range levels {
		if l.name == wanted {
			return l.level, nil
		}
		names[i] = l.name
	}
	return 0, fmt.Errorf("unknown log level %q: want one of %s", name, strings.Join(names, ", "))
}

// LevelName is the name for this level in log lines: the highest one not above it.
func LevelName(level slog.Level) string {
	name := levels[0].name
	for _, l := range levels {
		if l.level <= level {
			name = l.name
		}
	}
	return name
}

// Logger writes lines of at least the given level to w, in the format "json" or "text".
func Logger(w io.Writer, level, format string) (*slog.Logger, error) {
	minimum, err := ParseLevel(level)
	if err != nil {
		return nil, err
	}
	return LoggerAt(w, minimum, format)
}

// LoggerAt is Logger for a level that may change while lines are written.
func LoggerAt(w io.Writer, minimum slog.Leveler, format string) (*slog.Logger, error) {
	opts := &slog.HandlerOptions{Level: minimum, ReplaceAttr: replaceAttr}
	switch format {
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	}
	return nil, fmt.Errorf("unknown log format %q: want json or text", format)
}

// maxText bounds the text of an attribute, in bytes: a line of the log stays readable even if a client sent a long
// text.
const maxText = 16 << 10

// replaceAttr names levels as the configuration does, "trace" where slog would write "DEBUG-4", and cuts long texts.
func replaceAttr(groups []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case slog.Level: // a caller's own attribute may have the same key
		if len(groups) == 0 && a.Key == slog.LevelKey {
			a.Value = slog.StringValue(LevelName(v))
		}
	case string:
		if len(v) > maxText {
			a.Value = slog.StringValue(cut(v))
		}
	case error:
		if text := v.Error(); len(text) > maxText {
			a.Value = slog.StringValue(cut(text))
		}
	}
	return a
}

func cut(text string) string {
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(text[:maxText], ""), len(text))
}
