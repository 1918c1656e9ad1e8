package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// LogLevels are the levels of a backend's log. *telemetry.Levels implements it.
type LogLevels interface {
	Show() resource.LogLevels
	// Set changes the level of a component, or of all for "", for some time.
	Set(component, level string, lasts time.Duration) error
	// Reset ends all changes.
	Reset()
}

// LogLevelAction is what to do with the levels of a member.
type LogLevelAction struct {
	Set   *resource.LogLevelRequest `json:"set,omitempty"`
	Reset bool                      `json:"reset,omitempty"`
}

const (
	// usualLogLevel is how long a change of the level lasts if the request does not say, and longestLogLevel the bound.
	usualLogLevel, longestLogLevel = 15 * time.Minute, 24 * time.Hour
)

// ActOnLogLevels does an action with the levels of a backend, and returns what they are then. A *LogLevelError says what is
// wrong with the action.
func ActOnLogLevels(l LogLevels, do LogLevelAction) (resource.LogLevels, error) {
	switch {
	case do.Reset:
		l.Reset()
	case do.Set != nil:
		const longest = int64(longestLogLevel / time.Second)
		seconds := cmp.Or(int64(do.Set.Seconds), int64(usualLogLevel/time.Second))
		if seconds < 1 || seconds > longest {
			return resource.LogLevels{}, &LogLevelError{fmt.Sprintf("seconds must be from 1 to %d", longest)}
		}
		lasts := time.Duration(seconds) * time.Second
		if err := l.Set(do.Set.Component, do.Set.Level, lasts); err != nil {
			return resource.LogLevels{}, &LogLevelError{err.Error()}
		}
	}
	return l.Show(), nil
}

// LogLevelError says what is wrong with a request for a level.
type LogLevelError struct{ Text string }

// Error implements error.
func (e *LogLevelError) Error() string { return e.Text }

// serveLogLevel adds the path of the levels of this backend, or of the one that ?member= names.
func (a *API) serveLogLevel() {
	if a.opts.LogLevel == nil {
		return
	}
	a.route(ours+"log-level", access{resource: "cluster", name: func(*request) string { return "log-level" }}, methods{
		http.MethodGet: a.logLevel, http.MethodPost: a.setLogLevel, http.MethodDelete: a.resetLogLevel,
	})
}

func (a *API) logLevel(w *response, r *request) error {
	return a.answerLogLevel(r.Context(), w, r, LogLevelAction{})
}

func (a *API) setLogLevel(w *response, r *request) error {
	var asked resource.LogLevelRequest
	if err := a.decodeAction(w, r, &asked); err != nil {
		return err
	}
	return a.answerLogLevel(r.Context(), w, r, LogLevelAction{Set: &asked})
}

func (a *API) resetLogLevel(w *response, r *request) error {
	return a.answerLogLevel(r.Context(), w, r, LogLevelAction{Reset: true})
}

func (a *API) answerLogLevel(ctx context.Context, w *response, r *request, do LogLevelAction) error {
	levels, err := a.opts.LogLevel(ctx, r.URL.Query().Get("member"), do)
	if err != nil {
		if wrong := new(LogLevelError); errors.As(err, &wrong) {
			return invalid("%s", wrong.Text)
		}
		return err
	}
	name := "log-level"
	if member := r.URL.Query().Get("member"); member != "" {
		name += "/" + member
	}
	switch {
	case do.Set != nil:
		a.log.Info("the log level was changed", "user", r.user.User, "level", strings.ToLower(do.Set.Level), "of", do.Set.Component)
		a.audited(r.Context(), r.act, "create", "cluster", "", name)
	case do.Reset:
		a.audited(r.Context(), r.act, "delete", "cluster", "", name)
	}
	return w.object(&levels)
}
