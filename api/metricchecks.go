package api

import (
	"net/http"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// metricChecks serves metric checks. They are lapwing's own, and so are their paths.
type metricChecks struct {
	kind[resource.MetricCheck]
}

func (a *API) serveMetricChecks() {
	c := &metricChecks{kind[resource.MetricCheck]{
		api: a, Kind: config.MetricChecks, base: ours, accept: a.acceptMetricCheck, reason: resourceInvalid,
	}}
	c.finish = withAuthor(a, func(m *resource.MetricCheck) **resource.Author { return &m.Author }, c.Meta)
	c.serve()
	a.route(c.collection()+"/{name}/preview", access{resource: c.String(), name: namePath, labels: true},
		methods{http.MethodGet: c.preview})
	a.route(c.collection()+"/preview", access{resource: c.String(), reads: true}, methods{http.MethodPost: c.previewDraft})
}

// acceptMetricCheck checks an expression.
func (a *API) acceptMetricCheck(def *resource.MetricCheck) error {
	if a.opts.ParseMetricCheck == nil {
		return nil
	}
	return a.opts.ParseMetricCheck(def)
}

// preview answers with what a metric check would have done between two times.
func (c *metricChecks) preview(w *response, r *request) error {
	def, err := c.find(r.act)
	if err != nil {
		return err
	}
	seen := *def
	seen.Author = r.user.Author() // the answer shows values that the user must be allowed to see
	return c.answerPreview(w, r, &seen)
}

// previewDraft is preview of a definition that is not stored.
func (c *metricChecks) previewDraft(w *response, r *request) error {
	def := new(resource.MetricCheck)
	if err := c.api.decode(w, r, def); err != nil {
		return err
	}
	def.Metadata.Namespace = r.act.namespace
	if def.Metadata.Name == "" {
		def.Metadata.Name = "draft"
	}
	if err := def.Validate(); err != nil {
		return invalid("%v", err)
	}
	if err := c.api.acceptMetricCheck(def); err != nil {
		return invalid("%v", err)
	}
	def.Author = r.user.Author()
	return c.answerPreview(w, r, def)
}

// previewTime is how far a preview reaches back if the request does not say.
const previewTime = 6 * time.Hour

func (c *metricChecks) answerPreview(w *response, r *request, def *resource.MetricCheck) error {
	if c.api.opts.PreviewMetricCheck == nil {
		return errNoMetrics
	}
	now, q := c.api.opts.Now(), r.URL.Query()
	until, err := instant(q.Get("until"), now)
	if err != nil {
		return err
	}
	if until.IsZero() {
		until = now
	}
	since, err := instant(q.Get("since"), now)
	if err != nil {
		return err
	}
	if since.IsZero() {
		since = until.Add(-previewTime)
	}
	p, err := c.api.opts.PreviewMetricCheck(r.Context(), def, since.Unix(), until.Unix())
	if err != nil {
		if r.Context().Err() != nil {
			return err
		}
		return invalid("%v", err)
	}
	return w.object(p)
}
