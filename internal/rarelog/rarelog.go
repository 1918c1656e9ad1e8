// Package rarelog keeps one cause from flooding the log. All parts whose messages depend on input from outside use it.
//
// A Log writes the first line of a cause and a subject (an agent, a user, an address) at once. It counts further lines
// of the same cause and subject, and writes at the end of the period how many were left out. It starts no goroutine and needs no
// Stop.
package rarelog

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// DefaultPeriod is the time per line of a cause and subject.
const DefaultPeriod = time.Minute

// maxKeys bounds the remembered pairs. Above it the lines of all new subjects of a cause are counted together, so that
// a sender of invented names can neither flood the log nor fill the memory.
const maxKeys = 4096

// Log writes to a slog.Logger, at most one line a period for each cause and subject.
type Log struct {
	log    *slog.Logger
	period time.Duration

	mu   sync.Mutex // guards keys
	keys map[key]*count
}

// maxText bounds a subject, and the text of an attribute, in bytes.
const maxText = 256

// Short cuts a text for a log line to 256 bytes and adds the length of a longer one.
func Short(text string) string { return cut(text, maxText) }

func cut(text string, length int) string {
	if len(text) <= length {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(text[:length], ""), len(text))
}

// short cuts the texts among attributes. Errors contain names, so they get more room.
func short(attrs []any) []any {
	cutAttrs := slices.Clone(attrs)
	for i, a := range cutAttrs {
		switch v := a.(type) {
		case string:
			cutAttrs[i] = Short(v)
		case error:
			if text := v.Error(); len(text) > 2*maxText {
				cutAttrs[i] = cut(text, 2*maxText)
			}
		}
	}
	return cutAttrs
}

type key struct{ message, subject string }

// count is the number of lines left out since the last one of a key was written, and the newest of them.
type count struct {
	leftOut int
	level   slog.Level
	attrs   []any
}

// New returns a Log with DefaultPeriod.
func New(log *slog.Logger) *Log { return NewPeriod(log, DefaultPeriod) }

// NewPeriod returns a Log with a period of its own.
func NewPeriod(log *slog.Logger, period time.Duration) *Log {
	return &Log{log: log, period: period, keys: map[key]*count{}}
}

// Warn logs a warning unless one of the same message and subject was logged in the current period. message is the cause,
// a constant string. The caller passes the subject again among attrs if the line should show it.
func (l *Log) Warn(message, subject string, attrs ...any) {
	l.line(slog.LevelWarn, message, subject, attrs)
}

// Error is Warn with the level error.
func (l *Log) Error(message, subject string, attrs ...any) {
	l.line(slog.LevelError, message, subject, attrs)
}

// Info is Warn with the level info.
func (l *Log) Info(message, subject string, attrs ...any) {
	l.line(slog.LevelInfo, message, subject, attrs)
}

// Over says that a cause has ended: how often it was left out is not logged any more.
func (l *Log) Over(message, subject string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.keys[key{message, Short(subject)}]; c != nil {
		c.leftOut = 0
	}
}

func (l *Log) line(level slog.Level, message, subject string, attrs []any) {
	attrs = short(attrs)
	l.mu.Lock()
	defer l.mu.Unlock()
	k := key{message, Short(subject)}
	c := l.keys[k]
	if c == nil && len(l.keys) >= maxKeys {
		k.subject = ""
		c = l.keys[k]
	}
	if c != nil {
		c.leftOut, c.level, c.attrs = c.leftOut+1, level, attrs
		return
	}
	l.keys[k] = &count{}
	time.AfterFunc(l.period, func() { l.periodEnded(k) })
	l.log.Log(context.Background(), level, message, attrs...)
}

// periodEnded logs how many lines were left out, and forgets the key if there were none.
func (l *Log) periodEnded(k key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.keys[k]
	if c.leftOut == 0 {
		delete(l.keys, k)
		return
	}
	l.log.Log(context.Background(), c.level, k.message, append(c.attrs[:len(c.attrs):len(c.attrs)], "left_out", c.leftOut)...)
	*c = count{}
	time.AfterFunc(l.period, func() { l.periodEnded(k) })
}
