package send

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	pagerDutyURL     = "https://events.pagerduty.com/v2/enqueue"
	pagerDutyKey     = "{{.Namespace}}/{{.Name}}"
	pagerDutySummary = "{{.State}} {{.Name}}{{with .Output}}: {{. | lines 1}}{{end}}"
	// The API's bounds, in characters.
	maxPagerDutyKey     = 255
	maxPagerDutySummary = 1024
)

type pagerDutyEvent struct {
	RoutingKey string            `json:"routing_key"`
	Action     string            `json:"event_action"`
	DedupKey   string            `json:"dedup_key"`
	Client     string            `json:"client,omitempty"`
	ClientURL  string            `json:"client_url,omitempty"`
	Payload    *pagerDutyPayload `json:"payload,omitempty"`
}

type pagerDutyPayload struct {
	Summary   string         `json:"summary"`
	Source    string         `json:"source"`
	Severity  string         `json:"severity"`
	Timestamp string         `json:"timestamp,omitempty"`
	Component string         `json:"component,omitempty"`
	Group     string         `json:"group,omitempty"`
	Class     string         `json:"class,omitempty"`
	Details   map[string]any `json:"custom_details,omitempty"`
}

// runPagerDuty triggers, updates or resolves the alert of the event's pair.
func (s *Sender) runPagerDuty(ctx context.Context, h *resource.Handler, job Job) Result {
	o := h.PagerDuty
	if o == nil {
		return permanent(errors.New("pagerduty handler has no routing key"))
	}
	r, err := job.renderer(ctx)
	if err != nil {
		return permanent(err)
	}
	v := r.view
	if v.Check == nil {
		return Result{Output: []byte("nothing to send: the event has no check")}
	}
	key := r.text("pagerduty dedup_key", o.DedupKey, pagerDutyKey)
	if len(key) > maxPagerDutyKey {
		// Two pairs could share a key that is merely cut.
		sum := sha256.Sum256([]byte(key))
		key = key[:maxPagerDutyKey-17] + "-" + hex.EncodeToString(sum[:8])
	}
	event := pagerDutyEvent{Action: "resolve", DedupKey: key}
	if v.Check.Status != 0 {
		event.Action, event.Client, event.ClientURL = "trigger", "lapwing", r.text("pagerduty link", o.Link, "")
		event.Payload = &pagerDutyPayload{
			Summary:   truncate(maxPagerDutySummary, r.text("pagerduty summary", o.Summary, pagerDutySummary)),
			Source:    v.Entity.Name,
			Severity:  pagerDutySeverity(o.Severities, v.Check.Status),
			Component: r.text("pagerduty component", o.Component, ""),
			Group:     r.text("pagerduty group", o.Group, ""),
			Class:     r.text("pagerduty class", o.Class, ""),
			Details: map[string]any{
				"namespace": v.Namespace, "entity": v.Entity.Name, "check": v.Check.Name, "status": v.Check.Status, "occurrences": v.Check.Occurrences,
				"output": truncate(8000, v.Output),
			},
		}
		if at := cmp.Or(v.Check.Executed, v.Timestamp); at > 0 {
			event.Payload.Timestamp = time.Unix(at, 0).UTC().Format(time.RFC3339)
		}
	}
	if r.err != nil {
		return r.failure()
	}
	if event.RoutingKey, err = s.files.secret(o.RoutingKey, o.RoutingKeyFile); err != nil {
		return unreadable(err)
	}
	url := cmp.Or(o.URL, pagerDutyURL)
	severity := pagerDutySeverity(o.Severities, v.Check.Status)
	return s.callJSON(ctx, call{url: url, tls: o.TLS}, event).to(hostOf(url) + " " + severity)
}

// pagerDutySeverity returns PagerDuty's name for a status.
func pagerDutySeverity(own map[string]string, status uint32) string {
	if s := cmp.Or(own[strconv.FormatUint(uint64(status), 10)], own["default"]); s != "" {
		return s
	}
	switch status {
	case 0:
		return "info"
	case 1:
		return "warning"
	case 2:
		return "critical"
	}
	return "error"
}
