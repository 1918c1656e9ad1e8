package send

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// runWebhook sends the data, or the output of a template, to the handler's URL.
func (s *Sender) runWebhook(ctx context.Context, h *resource.Handler, job Job) Result {
	w := h.Webhook
	if w == nil {
		return permanent(errors.New("webhook handler has no url"))
	}
	url, err := s.files.secret(w.URL, w.URLFile)
	if err != nil {
		return unreadable(err)
	}
	contentType := "application/json"
	var body []byte
	if w.Body == "" {
		if body, err = job.data(); err != nil {
			return permanent(err)
		}
		if h.Mutator == "only_check_output" {
			contentType = "text/plain; charset=utf-8"
		}
	} else {
		r, err := job.renderer(ctx)
		if err != nil {
			return permanent(err)
		}
		body = []byte(r.text("webhook body", w.Body, ""))
		if r.err != nil {
			return r.failure()
		}
	}
	return s.do(ctx, call{
		method: cmp.Or(w.Method, http.MethodPost), url: url, body: body, contentType: cmp.Or(w.ContentType, contentType),
		tls: w.TLS, auth: &w.HandlerAuth,
		prepare: func(req *http.Request) {
			for name, value := range w.Headers {
				if strings.EqualFold(name, "Host") {
					req.Host = value
					continue
				}
				req.Header.Set(name, value)
			}
			req.Header.Set("Idempotency-Key", job.ID)
		},
	}).to(hostOf(url))
}
