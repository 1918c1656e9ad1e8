package send

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	alertExpire      = 24 * time.Hour
	alertSummary     = "{{.State}} {{.Name}}{{with .Output}}: {{. | lines 1 | trunc 200}}{{end}}"
	alertDescription = "{{.Output | trunc 4000}}"
)

type alert struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations,omitempty"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL,omitempty"`
}

// runAlertmanager sends the alerts to all Alertmanagers of a cluster. One success is enough: they share their
// notifications, but not the alerts.
func (s *Sender) runAlertmanager(ctx context.Context, h *resource.Handler, job Job) Result {
	o := h.Alertmanager
	if o == nil || len(o.URLs) == 0 {
		return permanent(errors.New("alertmanager handler has no urls"))
	}
	r, err := job.renderer(ctx)
	if err != nil {
		return permanent(err)
	}
	if r.view.Check == nil {
		return Result{Output: []byte("nothing to send: the event has no check")}
	}
	alerts := makeAlerts(r, o, time.Now())
	if r.err != nil {
		return r.failure()
	}
	results := make([]Result, len(o.URLs))
	var wg sync.WaitGroup
	for i, url := range o.URLs {
		wg.Go(func() {
			results[i] = s.callJSON(ctx, call{url: strings.TrimRight(url, "/") + "/api/v2/alerts", tls: o.TLS, auth: &o.HandlerAuth}, alerts)
		})
	}
	wg.Wait()
	return best(results)
}

// best merges the results of several attempts, of which one must succeed. The output mentions the others.
func best(results []Result) Result {
	at, failed := 0, []string{}
	for i, res := range results {
		switch now := results[at]; {
		case now.Err != nil && res.Err == nil, now.Err != nil && !now.Temporary && res.Temporary:
			at = i
		}
		if res.Err != nil {
			failed = append(failed, fmt.Sprintf("number %d: %v", i+1, res.Err))
		}
	}
	res := results[at]
	if len(results) > 1 && len(failed) > 0 {
		res.Output = append([]byte(strings.Join(failed, "; ")+"\n"), res.Output...)
	}
	return res
}

// makeAlerts makes the alert of the event's pair. Its severity is a label, and Alertmanager regards alerts with
// different labels as different. So alerts of the incident's earlier severities are ended at the same time.
func makeAlerts(r *renderer, o *resource.HandlerAlertmanager, now time.Time) []alert {
	c := r.view.Check
	labels := map[string]string{"alertname": c.Name, "namespace": r.view.Namespace, "entity": r.view.Entity.Name}
	annotations := map[string]string{
		"summary":     r.text("alertmanager summary", alertSummary, ""),
		"description": r.text("alertmanager description", alertDescription, ""),
	}
	maps.Copy(labels, r.all("alertmanager label", o.Labels))
	maps.Copy(annotations, r.all("alertmanager annotation", o.Annotations))
	for _, m := range []map[string]string{labels, annotations} {
		maps.DeleteFunc(m, func(_, value string) bool { return value == "" })
	}
	link := r.text("alertmanager link", o.Link, "")

	since, had := incident(c, now)
	ends := now.Add(cmp.Or(time.Duration(o.Expire)*time.Second, alertExpire))
	over := earlier(time.Unix(cmp.Or(c.Executed, r.view.Timestamp, now.Unix()), 0), now)
	if over.Before(since) {
		over = since
	}
	one := func(severity string, endsAt time.Time) alert {
		own := maps.Clone(labels)
		if _, ok := o.Labels["severity"]; !ok {
			own["severity"] = severity
		}
		return alert{Labels: own, Annotations: annotations, StartsAt: since, EndsAt: endsAt, GeneratorURL: link}
	}
	if _, fixed := o.Labels["severity"]; fixed {
		had = nil // one alert for all severities
		if c.Status == 0 {
			return []alert{one("", over)}
		}
	}
	var alerts []alert
	if c.Status != 0 {
		alerts = append(alerts, one(r.view.Severity, ends))
	}
	for _, severity := range had {
		if c.Status == 0 || severity != r.view.Severity {
			alerts = append(alerts, one(severity, over))
		}
	}
	return alerts
}

// incident returns since when a check has failed, without an OK in between, and which severities it has had in that
// time, as far as its history goes back.
func incident(c *checkView, now time.Time) (since time.Time, severities []string) {
	h := c.History
	end := len(h)
	if c.Status == 0 {
		for end > 0 && h[end-1].Status == 0 {
			end--
		}
	}
	begin := end
	seen := map[string]bool{}
	note := func(status uint32) {
		if name := severity(status); !seen[name] {
			seen[name] = true
			severities = append(severities, name)
		}
	}
	for begin > 0 && h[begin-1].Status != 0 {
		begin--
		note(h[begin].Status)
	}
	at := cmp.Or(c.Executed, now.Unix())
	if begin < end && h[begin].Executed > 0 {
		at = h[begin].Executed
	}
	if c.Status == 0 && begin == end {
		// The history does not have the severities. Ending an alert that does not exist does no harm.
		for _, status := range []uint32{1, 2, 3} {
			note(status)
		}
	}
	return earlier(time.Unix(at, 0), now), severities
}

// earlier returns the earlier time, so that an agent's wrong clock puts no alert into the future, where it would not
// have ended yet.
func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b.UTC()
	}
	return a.UTC()
}
