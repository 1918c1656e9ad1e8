package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

const (
	jsonType = "application/json"
	textType = "text/plain; charset=utf-8"
)

// response is a ResponseWriter that remembers the status.
type response struct {
	http.ResponseWriter
	status int // 0 until the header is sent
}

func (w *response) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// maxWarning bounds the text of a warning, in bytes. Clients and proxies refuse long headers.
const maxWarning = 4096

// warn adds a text for the author of an object to the answer, in a header: the body stays Sensu's.
func (w *response) warn(text string) {
	if text != "" {
		w.Header().Set("Warning", "299 - "+quotedWarning(text))
	}
}

func quotedWarning(text string) string {
	if len(text) > maxWarning {
		text = strings.ToValidUTF8(text[:maxWarning], "") + "…"
	}
	return strconv.Quote(text)
}

// advise adds a text for the user of a request that was done. It is a header, as in Kubernetes: the body stays Sensu's.
func (w *response) advise(text string) { w.Header().Add("Warning", "299 lapwing "+quotedWarning(text)) }

// warnOf adds the warnings about the object of an act.
func (w *response) warnOf(t *act) {
	w.warn(t.warning)
	if t.unseen != "" {
		w.advise(t.unseen)
	}
}

// written answers a write without a body. The answer has the warning even if the write failed.
func (w *response) written(r *request, status int, err error) error {
	w.warnOf(r.act)
	if err != nil {
		return err
	}
	if r.change != "" {
		w.Header().Set(changeHeader, r.change)
	}
	return w.empty(status)
}

// changeHeader says of a PUT or POST whether it created the object, updated it, or left it unchanged.
const changeHeader = "Lapwing-Change"

// text answers with text, or with JSON that Sensu labels as text.
func (w *response) text(status int, body string) {
	w.Header().Set("Content-Type", textType)
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

// empty answers a write without a body.
func (w *response) empty(status int) error {
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(status)
	return nil
}

// object answers with JSON.
func (w *response) object(v any) error {
	body, err := encode(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", jsonType)
	_, _ = w.Write(body)
	return nil
}

// tagged answers with JSON and its entity tag. It answers 304 to a GET whose client has the content already.
func (w *response) tagged(r *request, v any) error {
	body, err := encode(v)
	if err != nil {
		return err
	}
	tag := entityTag(body)
	w.Header().Set("Etag", tag)
	if r.Method == http.MethodGet && noneMatch(r.Header, tag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	w.Header().Set("Content-Type", jsonType)
	_, _ = w.Write(body)
	return nil
}

func encode(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	return body, nil
}

// entityTag returns a tag that is the same for the same content, on all backends.
func entityTag(body []byte) string {
	return `"` + strconv.FormatUint(xxhash.Sum64(body), 16) + `"`
}
