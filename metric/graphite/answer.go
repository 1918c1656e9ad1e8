package graphite

import (
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// gzipFrom is the size from which an answer is compressed.
const gzipFrom = 4 << 10

// answer is a http.ResponseWriter that compresses large answers if the client takes them. It holds back the first bytes
// until it knows whether the answer is large.
type answer struct {
	to     http.ResponseWriter
	accept bool // the client takes gzip
	head   bool
	status int
	held   []byte
	// started is set once the header is on its way.
	started bool
	zip     *gzip.Writer
	err     error
}

func newAnswer(w http.ResponseWriter, r *http.Request) *answer {
	return &answer{to: w, accept: takesGzip(r.Header.Get("Accept-Encoding")), head: r.Method == http.MethodHead,
		status: http.StatusOK}
}

// takesGzip reads an Accept-Encoding header.
func takesGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		coding, quality, _ := strings.Cut(part, ";")
		if coding = strings.TrimSpace(coding); !strings.EqualFold(coding, "gzip") && coding != "*" {
			continue
		}
		q, found := strings.CutPrefix(strings.TrimSpace(quality), "q=")
		if !found {
			return true
		}
		n, err := strconv.ParseFloat(q, 64)
		return err == nil && n > 0
	}
	return false
}

func (w *answer) Header() http.Header { return w.to.Header() }

// WriteHeader sets the status. It has no effect after the first byte of the answer.
func (w *answer) WriteHeader(status int) {
	if !w.started {
		w.status = status
	}
}

func (w *answer) Write(b []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	if !w.started {
		if len(w.held)+len(b) < gzipFrom {
			w.held = append(w.held, b...)
			return len(b), nil
		}
		w.start(true)
	}
	n := len(b)
	if w.head {
		return n, nil
	}
	if w.zip != nil {
		_, w.err = w.zip.Write(b)
	} else {
		_, w.err = w.to.Write(b)
	}
	return n, w.err
}

// reset drops the bytes that are held back, so that an error can be answered instead.
func (w *answer) reset() { w.held = w.held[:0] }

// start sends the header and the bytes that were held back.
func (w *answer) start(large bool) {
	w.started = true
	h := w.to.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	// Images are compressed already.
	if kind := h.Get("Content-Type"); !strings.HasPrefix(kind, "image/png") {
		h.Add("Vary", "Accept-Encoding")
		if large && w.accept && h.Get("Content-Encoding") == "" {
			h.Set("Content-Encoding", "gzip")
			if !w.head {
				w.zip, _ = gzip.NewWriterLevel(w.to, gzip.BestSpeed) // an error means a wrong level
			}
		}
	}
	if !large {
		h.Set("Content-Length", strconv.Itoa(len(w.held)))
	}
	w.to.WriteHeader(w.status)
	if w.head {
		return
	}
	var to io.Writer = w.to
	if w.zip != nil {
		to = w.zip
	}
	_, w.err = to.Write(w.held)
	w.held = nil
}

// finish sends the rest of the answer.
func (w *answer) finish() {
	if w.status == statusClientGone {
		return
	}
	if !w.started {
		w.start(false)
	}
	if w.zip != nil && w.err == nil {
		w.err = w.zip.Close()
	}
}
