package graphite

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/metric/plot"
	"github.com/lapwing-monitoring/lapwing/metric/render"
)

// cacheSeconds is how long graphite-web lets an answer of render be kept, unless the request says otherwise.
const cacheSeconds = 60

// renderRequest are the parameters of /render, without those of an image.
type renderRequest struct {
	targets []string
	span
	format        string
	maxDataPoints int
	noNullPoints  bool
	xFilesFactor  float64
	templates     map[string]string
	// cache is for how many seconds the client may keep the answer.
	cache int
}

func (a *API) renderRequest(p params) (renderRequest, error) {
	blank := func(target string) bool { return strings.TrimSpace(target) == "" }
	r := renderRequest{targets: slices.DeleteFunc(slices.Clone(p.list("target")), blank), format: renderFormat(p),
		noNullPoints: p.has("noNullPoints")}
	switch kind := p.get("graphType"); kind {
	case "", "line":
	case "pie":
		return r, badRequest("parameter graphType: pie charts are not available")
	default:
		return r, badRequest("parameter graphType: %q is not line", kind)
	}
	var err error
	if r.cache, err = p.int("cacheTimeout", cacheSeconds); err != nil {
		return r, err
	}
	if p.has("noCache") || r.cache < 0 {
		r.cache = 0
	}
	if p.has("xFilesFactor") {
		text := p.get("xFilesFactor")
		if r.xFilesFactor, err = strconv.ParseFloat(text, 64); err != nil || math.IsNaN(r.xFilesFactor) {
			return r, badRequest("parameter xFilesFactor: %q is no number", text)
		}
	}
	// As graphite-web, anything but digits is ignored.
	if n, err := strconv.ParseUint(p.get("maxDataPoints"), 10, 31); err == nil {
		r.maxDataPoints = int(n)
	}
	for name := range p {
		if inner, ok := strings.CutPrefix(name, "template["); ok && inner != "" {
			if r.templates == nil {
				r.templates = map[string]string{}
			}
			r.templates[strings.TrimSuffix(inner, "]")] = p.get(name)
		}
	}
	if r.span, err = a.readSpan(p, 24*time.Hour); err != nil {
		return r, err
	}
	if r.from.After(r.until) {
		r.from, r.until = r.until, r.from
	}
	if r.from.Unix() == r.until.Unix() {
		return r, badRequest("parameters from and until are the same time: the range is empty")
	}
	return r, nil
}

// renderFormat returns the format of an answer. rawData and pickle are older spellings of two of them.
func renderFormat(p params) string {
	switch {
	case p.has("format"):
		return p.get("format")
	case p.has("rawData"):
		return "raw"
	case p.has("pickle"):
		return "pickle"
	}
	return "png"
}

func (a *API) render(c *call) error {
	r, err := a.renderRequest(c.params)
	if err != nil {
		return err
	}
	if r.format == "pdf" {
		return badRequest("parameter format: pdf is not available; use png or svg")
	}
	draw, err := plotOptions(c.params, &r)
	if err != nil {
		return err
	}
	list, err := a.evaluate(c, &r)
	if err != nil {
		return err
	}
	points := 0
	for _, s := range list {
		points += len(s.Values)
	}
	a.metrics.points.Add(float64(points))
	c.renderCache(r.cache, r.now)
	switch r.format {
	case "json":
		return c.renderJSON(list, r.noNullPoints)
	case "csv":
		return c.renderCSV(list, r.loc)
	case "raw":
		return c.renderRaw(list)
	case "pickle":
		return c.pickle(pickleSeries(list))
	case "msgpack":
		return c.renderMsgpack(list)
	case "dygraph":
		return c.renderDygraph(list)
	case "rickshaw":
		return c.renderRickshaw(list)
	case "svg":
		return c.renderSVG(list, draw)
	}
	return c.renderPNG(list, draw) // any other format too, as graphite-web has it
}

// plotOptions reads the options of an image. A request for data may have any; they have no effect there.
func plotOptions(p params, r *renderRequest) (plot.Options, error) {
	switch r.format {
	case "json", "csv", "raw", "pickle", "msgpack", "dygraph", "rickshaw":
		return plot.Options{}, nil
	}
	o, err := plot.ParseOptions(p.get)
	if err != nil {
		return o, badRequest("%v", err)
	}
	o.Location = r.loc
	return o, nil
}

// evaluate returns the series of the targets. Only JSON is consolidated to maxDataPoints, as graphite-web has it.
func (a *API) evaluate(c *call, r *renderRequest) ([]*render.Series, error) {
	if len(r.targets) == 0 {
		return nil, nil
	}
	engine, err := render.New(render.Options{Source: c.src, Events: a.eventTimes(c.r), MaxSeries: a.opts.MaxSeries,
		MaxPoints: a.opts.MaxPoints})
	if err != nil {
		return nil, err
	}
	list, err := engine.Evaluate(c.ctx, r.targets, render.Request{From: r.from.Unix(), Until: r.until.Unix(),
		Now: r.now.Unix(), Location: r.loc, MaxDataPoints: r.maxDataPoints, XFilesFactor: r.xFilesFactor,
		Templates: r.templates})
	if err != nil {
		return nil, err
	}
	if r.format == "json" {
		list = render.Consolidate(list, r.maxDataPoints)
	}
	return list, nil
}

// eventTimes returns the source of the function events() for a request.
func (a *API) eventTimes(r *http.Request) func(context.Context, []string, int64, int64) ([]int64, error) {
	if a.opts.Events == nil {
		return nil
	}
	if !a.seesEvents(r) {
		return func(context.Context, []string, int64, int64) ([]int64, error) { return nil, nil }
	}
	return func(_ context.Context, tags []string, from, until int64) ([]int64, error) {
		var times []int64
		for _, e := range a.opts.Events.Range(from, until-1, tags, false) {
			times = append(times, e.When)
		}
		return times, nil
	}
}

// renderCache says how long the answer may be kept. It is private, because it may be a restricted view.
func (c *call) renderCache(seconds int, now time.Time) {
	h := c.w.Header()
	if seconds == 0 {
		h.Set("Cache-Control", "max-age=0, no-cache, no-store, must-revalidate, private")
		h.Set("Expires", now.UTC().Format(http.TimeFormat))
		return
	}
	h.Set("Cache-Control", fmt.Sprintf("max-age=%d, private", seconds))
}
