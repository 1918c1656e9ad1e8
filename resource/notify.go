package resource

import (
	"errors"
	"fmt"
	"net/mail"
	"net/url"
	"slices"
	"strings"
	"text/template/parse"
	"time"
)

// The structs of this file are lapwing's own: handlers that need no command. Fields called templates are Go templates
// over the event (docs/handlers.md). A field called ..._file names a file with the value of the field without that
// suffix; it is read at each attempt.

// HandlerTLS says which servers a handler trusts, and which certificate it presents.
type HandlerTLS struct {
	CAFile             string `json:"ca_file,omitempty"`   // PEM; default the system's authorities
	CertFile           string `json:"cert_file,omitempty"` // PEM
	KeyFile            string `json:"key_file,omitempty"`  // PEM
	ServerName         string `json:"server_name,omitempty"`
	InsecureSkipVerify bool   `json:"insecure_skip_verify,omitempty"`
}

// HandlerAuth is how a handler signs in to a web service: by name and password, or with a token.
type HandlerAuth struct {
	Username     string `json:"username,omitempty"`
	Password     string `json:"password,omitempty"`
	PasswordFile string `json:"password_file,omitempty"`
	Token        string `json:"token,omitempty"`
	TokenFile    string `json:"token_file,omitempty"`
}

// HandlerStream holds the lasting connections of a tcp_stream handler to its socket.
type HandlerStream struct {
	TLS         *HandlerTLS `json:"tls,omitempty"`         // nil means none
	Separator   string      `json:"separator,omitempty"`   // written after each event; default a line feed
	Connections uint32      `json:"connections,omitempty"` // default 1
}

// HandlerSlack is a channel of Slack, or of a compatible service: by the URL of an incoming webhook, or by a token and
// the channel's name.
type HandlerSlack struct {
	URL       string      `json:"url,omitempty"`
	URLFile   string      `json:"url_file,omitempty"`
	Token     string      `json:"token,omitempty"`
	TokenFile string      `json:"token_file,omitempty"`
	APIURL    string      `json:"api_url,omitempty"` // API for tokens; default https://slack.com/api
	Channel   string      `json:"channel,omitempty"` // template
	Username  string      `json:"username,omitempty"`
	IconURL   string      `json:"icon_url,omitempty"`
	IconEmoji string      `json:"icon_emoji,omitempty"`
	Title     string      `json:"title,omitempty"` // template
	Text      string      `json:"text,omitempty"`  // template
	TLS       *HandlerTLS `json:"tls,omitempty"`
}

// HandlerPagerDuty is a service of PagerDuty, or of a service compatible with its Events API v2.
type HandlerPagerDuty struct {
	RoutingKey     string `json:"routing_key,omitempty"`
	RoutingKeyFile string `json:"routing_key_file,omitempty"`
	URL            string `json:"url,omitempty"`       // default https://events.pagerduty.com/v2/enqueue
	DedupKey       string `json:"dedup_key,omitempty"` // template; the same for all events of an incident
	Summary        string `json:"summary,omitempty"`   // template
	Component      string `json:"component,omitempty"` // template
	Group          string `json:"group,omitempty"`     // template
	Class          string `json:"class,omitempty"`     // template
	Link           string `json:"link,omitempty"`      // template of a URL
	// Severities maps statuses to critical, error, warning or info; "default" is for statuses not listed.
	Severities map[string]string `json:"severities,omitempty"`
	TLS        *HandlerTLS       `json:"tls,omitempty"`
}

// HandlerEmail has the recipients of mail and the server that sends it.
type HandlerEmail struct {
	Host         string            `json:"host"`
	Port         uint32            `json:"port,omitempty"`     // default 465 with tls, 25 with none, else 587
	Security     string            `json:"security,omitempty"` // starttls (default), tls, opportunistic or none
	Auth         string            `json:"auth,omitempty"`     // plain, login or cram-md5; default what the server offers
	Username     string            `json:"username,omitempty"`
	Password     string            `json:"password,omitempty"`
	PasswordFile string            `json:"password_file,omitempty"`
	Hello        string            `json:"hello,omitempty"` // name in the SMTP greeting; default the host's name
	From         string            `json:"from"`
	To           []string          `json:"to"`           // templates; each gives one or more addresses
	Cc           []string          `json:"cc,omitempty"` // templates
	Subject      string            `json:"subject,omitempty"`
	Text         string            `json:"text,omitempty"`    // template
	HTML         string            `json:"html,omitempty"`    // template
	Headers      map[string]string `json:"headers,omitempty"` // templates
	TLS          *HandlerTLS       `json:"tls,omitempty"`
}

// HandlerAlertmanager has the Alertmanagers, all of one cluster, that get each alert.
type HandlerAlertmanager struct {
	URLs        []string          `json:"urls"`
	Labels      map[string]string `json:"labels,omitempty"`      // templates; added to the labels of every alert
	Annotations map[string]string `json:"annotations,omitempty"` // templates
	Link        string            `json:"link,omitempty"`        // template of a URL: the alert's generator
	Expire      uint32            `json:"expire,omitempty"`      // seconds until an alert ends unless renewed; default a day
	TLS         *HandlerTLS       `json:"tls,omitempty"`
	HandlerAuth
}

// HandlerGraphite is a store that takes Graphite's lines.
type HandlerGraphite struct {
	Host     string      `json:"host"`
	Port     uint32      `json:"port,omitempty"`      // default 2003
	Protocol string      `json:"protocol,omitempty"`  // tcp (default), which stays connected, or udp
	Prefix   *string     `json:"prefix,omitempty"`    // template before point names; default sensu and the entity
	DropTags bool        `json:"drop_tags,omitempty"` // write names without the points' tags
	TLS      *HandlerTLS `json:"tls,omitempty"`       // nil means none
}

// HandlerInflux is a store that takes InfluxDB's line protocol.
type HandlerInflux struct {
	URL             string            `json:"url"`                        // http, https or udp
	Database        string            `json:"database,omitempty"`         // version 1
	RetentionPolicy string            `json:"retention_policy,omitempty"` // version 1
	Org             string            `json:"org,omitempty"`              // version 2
	Bucket          string            `json:"bucket,omitempty"`           // version 2
	Tags            map[string]string `json:"tags,omitempty"`             // templates; added to every point
	TLS             *HandlerTLS       `json:"tls,omitempty"`
	HandlerAuth
}

// HandlerTypes are the types of handlers. The first four are Sensu's.
var HandlerTypes = []string{
	"pipe", "tcp", "udp", "set", "tcp_stream", "webhook", "slack", "pagerduty", "email", "alertmanager", "graphite", "influx",
	EscalationType,
}

// validateKind is Validate for the types that Sensu does not have.
func (h *Handler) validateKind() error {
	switch h.Type {
	case "tcp_stream":
		if h.Socket == nil || h.Socket.Host == "" || h.Socket.Port == 0 {
			return InField("socket", errors.New("tcp_stream handlers need a socket with host and port"))
		}
		if h.Stream == nil {
			return nil
		}
		if h.Stream.Connections > 64 {
			return InField("stream.connections", errors.New("stream connections must not be more than 64"))
		}
		return InField("stream.tls", h.Stream.TLS.validate())
	case "webhook":
		return InField(h.Type, h.Webhook.validate())
	case "slack":
		return InField(h.Type, h.Slack.validate())
	case "pagerduty":
		return InField(h.Type, h.PagerDuty.validate())
	case "email":
		return InField(h.Type, h.Email.validate())
	case "alertmanager":
		return InField(h.Type, h.Alertmanager.validate())
	case "graphite":
		return InField(h.Type, h.Graphite.validate())
	case "influx":
		return InField(h.Type, h.Influx.validate())
	case EscalationType:
		return InField("escalation", h.validateEscalation())
	}
	return InField("type", fmt.Errorf("unknown handler type: %s", h.Type))
}

func (t *HandlerTLS) validate() error {
	if t != nil && (t.CertFile == "") != (t.KeyFile == "") {
		return errors.New("tls cert_file and key_file must come together")
	}
	return nil
}

func (a *HandlerAuth) validate() error {
	switch {
	case a.Password != "" && a.PasswordFile != "":
		return errors.New("password and password_file exclude each other")
	case a.Token != "" && a.TokenFile != "":
		return errors.New("token and token_file exclude each other")
	case a.Username != "" && (a.Token != "" || a.TokenFile != ""):
		return errors.New("username and token exclude each other")
	case a.Username == "" && (a.Password != "" || a.PasswordFile != ""):
		return errors.New("a password needs a username")
	}
	return nil
}

func (w *HandlerWebhook) validate() error {
	if w == nil || (w.URL == "") == (w.URLFile == "") || w.URL != "" && !webURL(w.URL) {
		return errors.New("webhook handlers need a valid url")
	}
	return firstError(checkTemplates("webhook", "body", w.Body), w.HandlerAuth.validate(), w.TLS.validate())
}

func (s *HandlerSlack) validate() error {
	if s == nil {
		return errors.New("slack handlers need a url or a token")
	}
	ways := 0
	for _, way := range []string{s.URL, s.URLFile, s.Token, s.TokenFile} {
		if way != "" {
			ways++
		}
	}
	switch {
	case ways != 1:
		return errors.New("slack handlers need one of url, url_file, token and token_file")
	case s.URL != "" && !webURL(s.URL):
		return errors.New("slack handlers need a valid url")
	case s.APIURL != "" && !webURL(s.APIURL):
		return errors.New("slack api_url is not valid")
	case (s.Token != "" || s.TokenFile != "") && s.Channel == "":
		return errors.New("slack handlers with a token need a channel")
	}
	return firstError(checkTemplates("slack", "channel", s.Channel, "title", s.Title, "text", s.Text), s.TLS.validate())
}

var severities = []string{"critical", "error", "warning", "info"}

func (p *HandlerPagerDuty) validate() error {
	if p == nil || (p.RoutingKey == "") == (p.RoutingKeyFile == "") {
		return errors.New("pagerduty handlers need a routing_key or a routing_key_file")
	}
	if p.URL != "" && !webURL(p.URL) {
		return errors.New("pagerduty url is not valid")
	}
	for status, severity := range p.Severities {
		if status != "default" && !exitStatus(status) {
			return fmt.Errorf("pagerduty severities: %q is no exit status", status)
		}
		if !slices.Contains(severities, severity) {
			return fmt.Errorf("pagerduty severities: %q is none of %s", severity, strings.Join(severities, ", "))
		}
	}
	return firstError(checkTemplates("pagerduty", "dedup_key", p.DedupKey, "summary", p.Summary, "component", p.Component,
		"group", p.Group, "class", p.Class, "link", p.Link), p.TLS.validate())
}

func (m *HandlerEmail) validate() error {
	switch {
	case m == nil || m.Host == "":
		return errors.New("email handlers need the host of a mail server")
	case m.Port > 65535:
		return errors.New("email port is not valid")
	case m.From == "":
		return errors.New("email handlers need a from address")
	case len(m.To)+len(m.Cc) == 0:
		return errors.New("email handlers need a recipient")
	case !slices.Contains([]string{"", "starttls", "tls", "opportunistic", "none"}, m.Security):
		return fmt.Errorf("email security %q is none of starttls, tls, opportunistic, none", m.Security)
	case !slices.Contains([]string{"", "plain", "login", "cram-md5"}, m.Auth):
		return fmt.Errorf("email auth %q is none of plain, login, cram-md5", m.Auth)
	}
	if _, err := mail.ParseAddress(m.From); err != nil {
		return fmt.Errorf("email from address is not valid: %w", err)
	}
	auth := HandlerAuth{Username: m.Username, Password: m.Password, PasswordFile: m.PasswordFile}
	err := firstError(checkTemplates("email", "subject", m.Subject, "text", m.Text, "html", m.HTML), auth.validate(), m.TLS.validate())
	for _, list := range [][]string{m.To, m.Cc} {
		for _, recipient := range list {
			err = firstError(err, checkTemplates("email", "recipient", recipient))
			if err == nil && !strings.Contains(recipient, "{{") {
				if _, bad := mail.ParseAddressList(recipient); bad != nil {
					err = fmt.Errorf("email recipient %q is not valid: %w", recipient, bad)
				}
			}
		}
	}
	for name, value := range m.Headers {
		if !headerName(name) {
			err = firstError(err, fmt.Errorf("email header %q is not valid", name))
		}
		err = firstError(err, checkTemplates("email", "header "+name, value))
	}
	return err
}

func (a *HandlerAlertmanager) validate() error {
	if a == nil || len(a.URLs) == 0 {
		return errors.New("alertmanager handlers need urls")
	}
	if len(a.URLs) > 16 {
		return errors.New("alertmanager urls must not be more than 16")
	}
	for _, u := range a.URLs {
		if !webURL(u) {
			return errors.New("alertmanager handlers need valid urls")
		}
	}
	if time.Duration(a.Expire)*time.Second > 365*24*time.Hour {
		return errors.New("alertmanager expire must not be more than a year")
	}
	for name, text := range a.Labels {
		if !labelName(name) {
			return fmt.Errorf("alertmanager label %q is not a valid name", name)
		}
		if err := checkTemplates("alertmanager", "label "+name, text); err != nil {
			return err
		}
	}
	for name, text := range a.Annotations {
		if !labelName(name) {
			return fmt.Errorf("alertmanager annotation %q is not a valid name", name)
		}
		if err := checkTemplates("alertmanager", "annotation "+name, text); err != nil {
			return err
		}
	}
	return firstError(checkTemplates("alertmanager", "link", a.Link), a.HandlerAuth.validate(), a.TLS.validate())
}

func (g *HandlerGraphite) validate() error {
	switch {
	case g == nil || g.Host == "":
		return errors.New("graphite handlers need a host")
	case g.Port > 65535:
		return errors.New("graphite port is not valid")
	case g.Protocol != "" && g.Protocol != "tcp" && g.Protocol != "udp":
		return fmt.Errorf("graphite protocol %q is none of tcp, udp", g.Protocol)
	case g.Protocol == "udp" && g.TLS != nil:
		return errors.New("graphite over udp has no tls")
	}
	if g.Prefix != nil {
		if err := checkTemplates("graphite", "prefix", *g.Prefix); err != nil {
			return err
		}
	}
	return g.TLS.validate()
}

func (i *HandlerInflux) validate() error {
	if i == nil {
		return errors.New("influx handlers need a url")
	}
	u, err := url.Parse(i.URL)
	if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "udp"}, u.Scheme) {
		return errors.New("influx handlers need a valid url")
	}
	switch {
	case u.Scheme == "udp" && u.Port() == "":
		return errors.New("influx handlers over udp need a port in the url")
	case u.Scheme != "udp" && (i.Database == "") == (i.Bucket == ""):
		return errors.New("influx handlers need a database (version 1) or a bucket (version 2)")
	}
	for name, text := range i.Tags {
		if name == "" {
			return errors.New("influx tags need names")
		}
		if err := checkTemplates("influx", "tag "+name, text); err != nil {
			return err
		}
	}
	return firstError(i.HandlerAuth.validate(), i.TLS.validate())
}

func webURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// labelName reports whether Prometheus accepts s as the name of a label.
func labelName(s string) bool {
	return s != "" && checkChars(s, isWord) == nil && (s[0] < '0' || s[0] > '9')
}

func headerName(s string) bool {
	return s != "" && checkChars(s, func(c byte) bool { return isWord(c) || c == '-' }) == nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// maxTemplate is the size of a template in bytes.
const maxTemplate = 64 << 10

// TemplateFuncs are the names of the functions that templates have in addition to Go's own.
var TemplateFuncs = []string{
	"contains", "date", "default", "duration", "hasPrefix", "hasSuffix", "join", "lines", "lower", "mrkdwn",
	"replace", "severity", "toJson",
	"trim", "trunc", "upper", "Hostname", "UnixTime", "UUIDFromBytes",
}

// goFuncs are Go's own functions.
var goFuncs = []string{
	"and", "call", "html", "index", "slice", "js", "len", "not", "or", "print", "printf", "println", "urlquery",
	"eq", "ge", "gt", "le", "lt", "ne",
}

// checkTemplates refuses templates that do not parse. Names and texts alternate.
func checkTemplates(of string, namesAndTexts ...string) error {
	known := map[string]any{}
	for _, name := range slices.Concat(goFuncs, TemplateFuncs) {
		known[name] = true
	}
	for i := 0; i < len(namesAndTexts); i += 2 {
		name, text := of+" "+namesAndTexts[i], namesAndTexts[i+1]
		if len(text) > maxTemplate {
			return InField(namesAndTexts[i], fmt.Errorf("%s must not be longer than %d bytes", name, maxTemplate))
		}
		if _, err := parse.Parse(name, text, "", "", known); err != nil {
			return InField(namesAndTexts[i], fmt.Errorf("%s is no valid template: %w", name, err))
		}
	}
	return nil
}
