package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
)

// Errors that an *Error matches by its status, for errors.Is.
var (
	ErrUnauthenticated = errors.New("unauthenticated")
	ErrDenied          = errors.New("permission denied")
	ErrNotFound        = errors.New("not found")
	ErrExists          = errors.New("already exists")
	ErrPrecondition    = errors.New("precondition failed")
)

// Error is a refusal by the server.
type Error struct {
	Status  int    // HTTP
	Code    int    // Sensu's, for example 2 for not found; 0 if the server sent none
	Message string // never empty
	// Method and Path are those of the request, the path with its query.
	Method, Path string
	// Mistakes are the rules that a definition breaks, as answers to dry runs list them.
	Mistakes []FieldMistake
	// Verb and Resource are the right that the user lacks, as in roles, if the server told it: the path does not tell it if a
	// request needs several.
	Verb, Resource string
}

// FieldMistake is a rule that a definition breaks.
type FieldMistake struct {
	// Field is a path such as subdues[0].begin, in the spec or from metadata on. It is "" if no single field is wrong.
	Field   string
	Message string
}

func (e *Error) Error() string { return e.Message }

// Is reports whether target is the Err value of e's status.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrUnauthenticated:
		return e.Status == http.StatusUnauthorized
	case ErrDenied:
		return e.Status == http.StatusForbidden
	case ErrNotFound:
		return e.Status == http.StatusNotFound
	case ErrExists:
		return e.Status == http.StatusConflict
	case ErrPrecondition:
		return e.Status == http.StatusPreconditionFailed
	}
	return false
}

// maxErrorBody bounds what is read of a refusal, in bytes. A list of mistakes may be long; mostErrorText bounds a body that
// is only text.
const (
	maxErrorBody  = 1 << 20
	mostErrorText = 64 << 10
)

// readError makes an Error from an answer and closes its body. The body is text, or JSON with a message and a code,
// with keys in either case. Any other body, for example a proxy's web page, is left out.
func readError(resp *http.Response) *Error {
	defer resp.Body.Close()
	e := &Error{Status: resp.StatusCode, Message: "the API returned: " + resp.Status}
	if resp.Request != nil {
		e.Method, e.Path = resp.Request.Method, resp.Request.URL.RequestURI()
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	body = bytes.TrimSpace(body)
	var parsed struct {
		Message  string
		Code     int
		Mistakes json.RawMessage
		Verb     string
		Resource string
	}
	if json.Unmarshal(body, &parsed) == nil {
		e.Code, e.Verb, e.Resource = parsed.Code, parsed.Verb, parsed.Resource
		if json.Unmarshal(parsed.Mistakes, &e.Mistakes) != nil {
			e.Mistakes = nil // the message counts without a list that cannot be read
		}
		e.Mistakes = slices.DeleteFunc(e.Mistakes, func(m FieldMistake) bool { return m.Message == "" })
		if parsed.Message != "" {
			e.Message = parsed.Message
		}
		return e
	}
	if len(body) > 0 && body[0] != '<' {
		e.Message = string(body[:min(len(body), mostErrorText)])
	}
	return e
}
