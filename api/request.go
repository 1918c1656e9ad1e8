package api

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/selector"
)

// body returns a reader of the request's body, up to the limit.
func (a *API) body(w *response, r *request) io.Reader {
	// With the server's own writer, the server closes the connection of a client that sends more.
	return http.MaxBytesReader(w.ResponseWriter, r.Body, a.limits.Load().Request)
}

// decode reads the first JSON value of the body, for any Content-Type.
func (a *API) decode(w *response, r *request, v any) error {
	if err := json.NewDecoder(a.body(w, r)).Decode(v); err != nil {
		return invalid("%v", err)
	}
	return nil
}

// decodeAction reads the body of an action, which is one of our own. A field that is not known is refused: a misspelt one
// must not make a dry run a real one, nor a few objects all.
func (a *API) decodeAction(w *response, r *request, v any) error {
	if err := strictly(a.body(w, r), v); err != nil {
		return invalid("%v", err)
	}
	return nil
}

func strictly(body io.Reader, v any) error {
	in := json.NewDecoder(body)
	in.DisallowUnknownFields()
	if err := in.Decode(v); err != nil {
		return err
	}
	if _, err := in.Token(); err != io.EOF {
		return errors.New("the body has more than one JSON value")
	}
	return nil
}

// Errors for a body that does not match its URL.
func namespaceMismatch(body, uri string) error {
	return invalid("the namespace of the resource (%s) does not match the namespace of the URI (%s)", body, uri)
}

func nameMismatch(body, uri string) error {
	return invalid("the name of the resource (%s) does not match the name of the URI (%s)", body, uri)
}

// needNamespace refuses to write into a namespace that does not exist.
func (a *API) needNamespace(name string) error {
	if _, ok := config.Get(a.opts.Config.Snapshot(), config.Namespaces, "", name); !ok {
		return &apiError{status: http.StatusNotFound, code: codeNotFound, message: fmt.Sprintf("the namespace %s does not exist", name)}
	}
	return nil
}

const mergePatchType = "application/merge-patch+json"

// patch reads the body of a PATCH.
func (a *API) patch(w *response, r *request) ([]byte, error) {
	switch header := r.Header.Get("Content-Type"); header {
	case "application/json-patch+json":
		return nil, invalid("JSON Patch is not supported yet. Allowed values: %s", mergePatchType)
	default:
		if t, _, err := mime.ParseMediaType(header); err != nil || t != mergePatchType {
			return nil, invalid("invalid Content-Type header: %s.  Allowed values: %s", header, mergePatchType)
		}
	}
	patch, err := io.ReadAll(a.body(w, r))
	if err != nil {
		return nil, invalid("%v", err)
	}
	return patch, nil
}

// merged returns old with a merge patch (RFC 7386) applied.
func merged[T any](old *T, patch []byte) (*T, error) {
	doc, err := json.Marshal(old)
	if err != nil {
		return nil, fmt.Errorf("encode resource to patch: %w", err)
	}
	if doc, err = jsonpatch.MergePatch(doc, patch); err != nil {
		return nil, invalid("%v", err)
	}
	obj := new(T)
	if err := json.Unmarshal(doc, obj); err != nil {
		return nil, invalid("%v", err)
	}
	return obj, nil
}

// conditional reports whether an act has preconditions. Sensu checks them only in a PATCH.
func (t *act) conditional() bool {
	return len(t.header.Values("If-Match")) > 0 || len(t.header.Values("If-None-Match")) > 0
}

// mustExist reports whether an act is only for an existing resource.
func (t *act) mustExist() bool { return len(t.header.Values("If-Match")) > 0 }

// precondition tests an act's preconditions against the existing resource, in all its representations.
func (t *act) precondition(shown ...any) error {
	if !t.conditional() {
		return nil
	}
	tags := make([]string, len(shown))
	for i, v := range shown {
		body, err := encode(v)
		if err != nil {
			return err
		}
		tags[i] = entityTag(body)
	}
	return checkPreconditions(t.header, tags...)
}

// checkPreconditions tests If-Match and If-None-Match against the tags of an existing resource, one for each
// representation.
func checkPreconditions(h http.Header, tags ...string) error {
	if values := h.Values("If-Match"); len(values) > 0 && !matches(values, false, tags) {
		return errPrecondition
	}
	if noneMatch(h, tags...) {
		return errPrecondition
	}
	return nil
}

// noneMatch reports whether If-None-Match has one of the tags.
func noneMatch(h http.Header, tags ...string) bool {
	values := h.Values("If-None-Match")
	return len(values) > 0 && matches(values, true, tags)
}

// matches reports whether a header with a list of entity tags has one of tags, or means any. Weak tags match only if
// weak is set; a value without quotes is no tag.
func matches(values []string, weak bool, tags []string) bool {
	for _, list := range values {
		for list != "" {
			list = strings.TrimLeft(list, " \t,")
			if strings.HasPrefix(list, "*") {
				return true
			}
			rest, isWeak := strings.CutPrefix(list, "W/")
			end := -1
			if strings.HasPrefix(rest, `"`) {
				end = strings.IndexByte(rest[1:], '"')
			}
			if end < 0 { // not a tag: continue after it
				_, list, _ = strings.Cut(list, ",")
				continue
			}
			for _, tag := range tags {
				if tag == rest[:end+2] && (weak || !isWeak) {
					return true
				}
			}
			list = rest[end+2:]
		}
	}
	return false
}

// page is the part of a list that a client wants, and may see.
type page struct {
	limit    int    // 0 = all
	after    string // decoded continue token
	selector *selector.Selector
	err      error // the client's selector is invalid
}

// pageOf reads a request for a list of resources like the given one, as selectors see them. Nil is for lists without
// field selectors.
func pageOf(r *request, like any) page {
	q := r.URL.Query()
	var p page
	if n, err := strconv.Atoi(q.Get("limit")); err == nil && n > 0 {
		p.limit = n
	}
	// An invalid token begins at the start, as in Sensu.
	if after, err := base64.RawURLEncoding.DecodeString(q.Get("continue")); err == nil {
		p.after = string(after)
	}
	asked, err := selector.ParseAll(q["labelSelector"], q["fieldSelector"])
	if err == nil && like != nil {
		err = selector.NamesOf(like).Check(asked)
	}
	if err != nil {
		p.err = invalid("%v", err)
	}
	p.selector = selector.All(asked, r.permit.Selector())
	return p
}

// fieldsAsked returns the field selector of a request for a list that is no list of resources; nil if it has none. like
// is an item of the list. A role that is limited by labels has no part in it.
func fieldsAsked(r *request, like any) (*selector.Selector, error) {
	texts := r.URL.Query()["fieldSelector"]
	if strings.TrimSpace(strings.Join(texts, "")) == "" {
		return nil, nil
	}
	s, err := selector.NamesOf(like).ParseAll(nil, texts)
	if err != nil {
		return nil, invalid("%v", err)
	}
	return s, nil
}

func continueToken(after string) string { return base64.RawURLEncoding.EncodeToString([]byte(after)) }
