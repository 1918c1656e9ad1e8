package send

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	slackAPI   = "https://slack.com/api"
	slackTitle = "{{.State}}: {{.Name | mrkdwn}}"
	slackText  = "{{with .Output}}```{{. | trunc 2500 | mrkdwn}}```{{end}}"
)

// slackMessage is the message for both ways to Slack.
type slackMessage struct {
	Channel     string            `json:"channel,omitempty"`
	Username    string            `json:"username,omitempty"`
	IconURL     string            `json:"icon_url,omitempty"`
	IconEmoji   string            `json:"icon_emoji,omitempty"`
	Attachments []slackAttachment `json:"attachments"`
}

type slackAttachment struct {
	Fallback  string       `json:"fallback"`
	Color     string       `json:"color"`
	Title     string       `json:"title"`
	Text      string       `json:"text"`
	Fields    []slackField `json:"fields,omitempty"`
	Markdown  []string     `json:"mrkdwn_in"`
	Footer    string       `json:"footer"`
	Timestamp int64        `json:"ts,omitempty"`
}

type slackField struct {
	Title string `json:"title"`
	Value string `json:"value"`
	Short bool   `json:"short"`
}

// runSlack posts a message to a channel.
func (s *Sender) runSlack(ctx context.Context, h *resource.Handler, job Job) Result {
	o := h.Slack
	if o == nil {
		return permanent(errors.New("slack handler has no url and no token"))
	}
	r, err := job.renderer(ctx)
	if err != nil {
		return permanent(err)
	}
	v := r.view
	attachment := slackAttachment{
		Color: slackColor(v), Title: truncate(250, r.text("slack title", o.Title, slackTitle)),
		Text: truncate(8000, r.text("slack text", o.Text, slackText)), Markdown: []string{"text"}, Footer: "lapwing", Timestamp: v.Timestamp,
	}
	attachment.Fallback = attachment.Title
	attachment.Fields = append(attachment.Fields, slackField{"Entity", mrkdwn(v.Entity.Name), true},
		slackField{"Namespace", mrkdwn(v.Namespace), true})
	if v.Check != nil {
		attachment.Fields = append(attachment.Fields, slackField{"Check", mrkdwn(v.Check.Name), true},
			slackField{"Occurrences", fmt.Sprint(v.Check.Occurrences), true})
	}
	message := slackMessage{
		Channel: r.text("slack channel", o.Channel, ""), Username: o.Username, IconURL: o.IconURL, IconEmoji: o.IconEmoji,
		Attachments: []slackAttachment{attachment},
	}
	if r.err != nil {
		return r.failure()
	}
	if o.Token != "" || o.TokenFile != "" {
		url := strings.TrimRight(cmp.Or(o.APIURL, slackAPI), "/") + "/chat.postMessage"
		return slackVerdict(s.callJSON(ctx,
			call{url: url, tls: o.TLS, auth: &resource.HandlerAuth{Token: o.Token, TokenFile: o.TokenFile}}, message)).
			to(message.Channel)
	}
	url, err := s.files.secret(o.URL, o.URLFile)
	if err != nil {
		return unreadable(err)
	}
	return s.callJSON(ctx, call{url: url, tls: o.TLS}, message).to(cmp.Or(message.Channel, hostOf(url)))
}

func slackColor(v *view) string {
	switch v.Severity {
	case "ok":
		return "good"
	case "warning":
		return "warning"
	case "critical":
		return "danger"
	}
	return "#6d6d6d"
}

// slackTemporary are the errors of Slack that end after a while.
var slackTemporary = []string{
	"ratelimited", "rate_limited", "internal_error", "fatal_error", "service_unavailable", "request_timeout",
	"team_added_to_org",
}

// slackVerdict reads an answer of Slack's web API, which has status 200 for failures too. The answer may be cut.
func slackVerdict(res Result) Result {
	if res.Err != nil {
		return res
	}
	ok, reason := false, ""
	dec := json.NewDecoder(bytes.NewReader(res.Output))
	if t, err := dec.Token(); err == nil && t == json.Delim('{') {
		for dec.More() && !ok {
			key, err := dec.Token()
			if err != nil {
				break
			}
			var value json.RawMessage
			if dec.Decode(&value) != nil {
				break
			}
			switch key {
			case "ok":
				ok = string(value) == "true"
			case "error":
				_ = json.Unmarshal(value, &reason)
			}
		}
	}
	switch {
	case ok:
	case reason == "":
		// Something other than Slack answers, for now.
		res.Err, res.Temporary, res.Kind = errors.New("the answer does not come from Slack"), true, KindFailed
	default:
		res.Err, res.Kind = fmt.Errorf("slack refuses the message: %s", reason), KindFailed
		res.Temporary = slices.Contains(slackTemporary, reason)
	}
	return res
}

// mrkdwn escapes a text against Slack's markup, which could notify a whole channel.
func mrkdwn(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}
