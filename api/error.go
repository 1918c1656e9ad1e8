package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// Sensu's error codes.
const (
	codeInternal        = 0
	codeInvalid         = 1
	codeNotFound        = 2
	codeExists          = 3
	codeDenied          = 4
	codeUnauthenticated = 5
	codePrecondition    = 7
	codeDeadline        = 8
)

// apiError is a refusal. The client gets only its text.
type apiError struct {
	status  int
	code    int
	message string
	outer   bool          // raised before the handler, where Sensu writes the keys with capitals
	after   time.Duration // when to try again; 0 = not said
	rules   error         // what Validate said of a definition; answers to dry runs list its mistakes

	// verb and resource are the right that lacks, as in roles, where the request's path does not tell it.
	verb, resource string
}

func (e *apiError) Error() string { return e.message }

// Is reports that the refusals of lacks are errDenied, too.
func (e *apiError) Is(target error) bool { return target == errDenied && e.resource != "" }

var (
	errBadCredentials     = &apiError{status: http.StatusUnauthorized, code: codeUnauthenticated, message: "bad credentials", outer: true}
	errInvalidCredentials = &apiError{status: http.StatusUnauthorized, code: codeUnauthenticated,
		message: "invalid credentials", outer: true}
	errDenied = &apiError{status: http.StatusForbidden, code: codeDenied,
		message: "unauthorized to perform action", outer: true}
	errWall       = &apiError{status: http.StatusForbidden, code: codeDenied, message: "a page that a wall's link has signed in may only read"}
	errForBackend = &apiError{status: http.StatusForbidden, code: codeDenied, message: "event of entity " + resource.BackendEntity +
		": only the backend reports for it, and users who may update events in all namespaces"}
	errNotFound     = &apiError{status: http.StatusNotFound, code: codeNotFound, message: "not found"}
	errExists       = &apiError{status: http.StatusConflict, code: codeExists, message: "resource already exists"}
	errPrecondition = &apiError{status: http.StatusPreconditionFailed, code: codePrecondition,
		message: "precondition failed: the resource is not the one expected"}
	// errCutOff refuses a write through a backend without a lease.
	errCutOff = &apiError{status: http.StatusServiceUnavailable, code: codeInternal, message: "this backend is cut off from the " +
		"majority of the cluster's members, or cannot write to the event log; nothing was changed: try again, or through another backend"}
	// errBehind refuses a write that the definitions of this backend forbid, if they may be old.
	errBehind = &apiError{status: http.StatusServiceUnavailable, code: codeInternal,
		message: "the definitions of this backend may be old, and they forbid the write: try again, or through another backend"}
	errDeadline  = &apiError{status: http.StatusGatewayTimeout, code: codeDeadline, message: "deadline exceeded"}
	errUncertain = &apiError{status: http.StatusGatewayTimeout, code: codeDeadline,
		message: "the write was not confirmed in time: it may have taken effect, or may do so later; read before you write again"}
)

func invalid(format string, args ...any) error {
	return &apiError{status: http.StatusBadRequest, code: codeInvalid, message: fmt.Sprintf(format, args...)}
}

// refused refuses a definition that breaks rules. The prefix is before the text of the first.
func refused(prefix string, err error) error {
	e := &apiError{status: http.StatusBadRequest, code: codeInvalid, message: prefix + err.Error(), rules: err}
	if errors.As(err, new(*apiError)) {
		e.rules = nil // it depends on other definitions
	}
	return e
}

func forbidden(format string, args ...any) error {
	return &apiError{status: http.StatusForbidden, code: codeDenied, message: fmt.Sprintf(format, args...)}
}

// lacks is errDenied that tells which right the user lacks, for a request that needs several, and for the page.
func lacks(verb, resource string) error {
	e := *errDenied
	e.verb, e.resource = verb, resource
	return &e
}

// unavailable returns the refusal when the event log does not accept a write: the client should try again.
func unavailable(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || refusal(err) != nil {
		return err
	}
	return &apiError{status: http.StatusServiceUnavailable, code: codeInternal, message: err.Error()}
}

// quotaRetry is when to try again if only a deletion makes room.
const quotaRetry = time.Minute

// refusal returns the answer to something that cannot be stored: it is too large, or a quota is used up; nil if err is
// neither.
func refusal(err error) *apiError {
	var large *resource.TooLargeError
	var quota *resource.QuotaError
	switch {
	case errors.As(err, &large):
		return &apiError{status: http.StatusRequestEntityTooLarge, code: codeInvalid, message: large.Error()}
	case errors.As(err, &quota):
		after := quotaRetry
		if quota.After > 0 {
			after = max(time.Second, quota.After.Round(time.Second))
		}
		return &apiError{status: http.StatusTooManyRequests, code: codeDenied, message: quota.Error(), after: after}
	}
	return nil
}

// refusalBody is the body of a refusal. Sensu's has only message and code.
type refusalBody struct {
	Message  string         `json:"message"`
	Code     int            `json:"code"`
	Mistakes []fieldMistake `json:"mistakes,omitempty"`
}

// fieldMistake is a broken rule in the answer to a dry run.
type fieldMistake struct {
	Field   string `json:"field,omitempty"` // its path in the spec, or from metadata on
	Message string `json:"message"`
}

// startingError says that the backend is not ready yet.
type startingError struct{ reason error }

func (e *startingError) Error() string { return e.reason.Error() }

// fail answers a request with an error.
func (a *API) fail(w *response, r *request, err error) {
	if w.status != 0 {
		// A part of the answer is sent. Cut the connection, so that the client cannot mistake the part for the whole.
		if r.Context().Err() == nil {
			a.rare.Error("answer was cut short", r.Pattern, "method", r.Method, "path", shownPath(r.URL.Path), "err", err)
		}
		panic(http.ErrAbortHandler)
	}
	var starting *startingError
	if errors.As(err, &starting) {
		unavailableAtStart(w, starting)
		return
	}
	e, known := classify(err)
	if !known && r.Context().Err() == nil { // otherwise the client has disconnected
		a.rare.Error("request failed", r.Pattern, "method", r.Method, "path", shownPath(r.URL.Path), "err", err)
	}
	switch {
	case e.after > 0:
		w.Header().Set("Retry-After", strconv.Itoa(int(e.after/time.Second)))
	case e.status == http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "5")
	}
	if e.outer {
		body, _ := json.Marshal(struct {
			Code     int
			Message  string
			Verb     string `json:",omitempty"`
			Resource string `json:",omitempty"`
		}{e.code, e.message, e.verb, e.resource})
		w.text(e.status, string(body))
		return
	}
	answer := refusalBody{Message: e.message, Code: e.code}
	if config.IsDryRun(r.Context()) {
		for _, m := range resource.Mistakes(e.rules) {
			answer.Mistakes = append(answer.Mistakes, fieldMistake{m.Field, m.Text()})
		}
	}
	body, _ := json.Marshal(answer)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.text(e.status, string(body))
}

// classify returns the status of an error. An unknown error is a mistake of ours, or the disk's.
func classify(err error) (e *apiError, known bool) {
	switch refused := cmp.Or(refusal(err), memberError(err)); {
	case errors.As(err, &e):
		return e, true
	case refused != nil:
		return refused, true
	case errors.Is(err, config.ErrNotFound), errors.Is(err, state.ErrNotFound):
		return errNotFound, true
	case errors.Is(err, config.ErrExists):
		return errExists, true
	case errors.Is(err, config.ErrUncertain):
		return errUncertain, true
	case errors.Is(err, context.DeadlineExceeded):
		return errDeadline, true
	}
	return &apiError{status: http.StatusInternalServerError, code: codeInternal, message: err.Error()}, false
}

// writeUnknown answers a path that does not exist.
func writeUnknown(w http.ResponseWriter) {
	w.Header().Set("Content-Type", textType)
	w.WriteHeader(http.StatusNotFound)
	_, _ = w.Write([]byte(`{"code":2,"message":"not found"}` + "\n"))
}

// stack returns the stack of a panic, as an attribute that is not shortened like clients' texts.
func stack() slog.Value { return slog.StringValue(string(debug.Stack())) }

// recovered turns a panic into an answer. It passes http.ErrAbortHandler on, which cuts an answer short.
func (a *API) recovered(w *response, r *http.Request, v any) {
	if v == http.ErrAbortHandler {
		a.metrics.requests.WithLabelValues("aborted", methodLabel(r.Method)).Inc()
		panic(v)
	}
	a.metrics.panics.Inc()
	a.rare.Error("request handler panicked", r.Pattern, "method", r.Method, "path", shownPath(r.URL.Path), "panic", v, "stack", stack())
	if w.status != 0 {
		a.metrics.requests.WithLabelValues("aborted", methodLabel(r.Method)).Inc()
		panic(http.ErrAbortHandler)
	}
	a.fail(w, &request{Request: r}, &apiError{status: http.StatusInternalServerError, code: codeInternal,
		message: "internal error occurred"})
}
