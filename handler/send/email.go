package send

import (
	"bytes"
	"cmp"
	"context"
	"crypto/fips140"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/mail"
	"net/smtp"
	"net/textproto"
	"os"
	"strings"
	"time"

	message "github.com/emersion/go-message/mail"

	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	emailSubject = "[{{.Namespace}}] {{.State}} {{.Name}}{{with .Output}}: {{. | lines 1 | trunc 100}}{{end}}"
	emailText    = `{{.State}}: {{.Name}}
Namespace:   {{.Namespace}}
Entity:      {{.Entity.Name}}{{with .Entity.System.Hostname}} ({{.}}){{end}}
{{with .Check}}Check:       {{.Name}}
Status:      {{.Status}}, {{.Occurrences}} times in a row
Executed:    {{date "2006-01-02 15:04:05" .Executed}} UTC
{{with .Command}}Command:     {{.}}
{{end}}{{end}}
{{.Output | trunc 20000}}
{{with .Contact.AcknowledgeURL}}
Acknowledge: {{.}}
{{end}}`
	// maxReplies is how many bytes a mail server may send in all.
	maxReplies = 1 << 20
	// maxRecipients is how many addresses the rendered templates may have.
	maxRecipients = 100
	// partialFrom is the attempt from which a mail goes out although the server refuses some recipients for now.
	// Before that it goes to none, so that no recipient gets it twice.
	partialFrom = 3
)

// runEmail hands a mail to a server.
func (s *Sender) runEmail(ctx context.Context, h *resource.Handler, job Job) Result {
	o := h.Email
	if o == nil {
		return permanent(errors.New("email handler has no server"))
	}
	r, err := job.renderer(ctx)
	if err != nil {
		return permanent(err)
	}
	m, err := newLetter(r, o)
	if r.err != nil {
		return r.failure()
	}
	if err != nil {
		return permanent(err)
	}
	password, err := s.files.secret(o.Password, o.PasswordFile)
	if err != nil {
		return unreadable(err)
	}
	config, _, err := s.files.tlsConfig(o.TLS)
	if err != nil {
		return unreadable(err)
	}
	config.ServerName = cmp.Or(config.ServerName, o.Host)
	res := s.dial.deliver(ctx, o, config, password, m, job.Attempt)
	res.Recipients = m.to
	if res.Err != nil && ctx.Err() != nil {
		res.Err, res.Temporary, res.Status = fmt.Errorf("talk to the mail server: %w", ctx.Err()), true, 0
	}
	return res
}

// letter is a mail with its envelope.
type letter struct {
	from string
	to   []string
	text []byte
}

func newLetter(r *renderer, o *resource.HandlerEmail) (*letter, error) {
	from, err := mail.ParseAddress(o.From)
	if err != nil {
		return nil, fmt.Errorf("read from address: %w", err)
	}
	m := &letter{from: from.Address}
	var h message.Header
	for _, list := range []struct {
		field string
		texts []string
	}{{"To", o.To}, {"Cc", o.Cc}} {
		addresses, err := recipients(r, list.texts)
		if err != nil {
			return nil, err
		}
		if len(addresses) > 0 {
			h.SetAddressList(list.field, addresses)
		}
		for _, a := range addresses {
			m.to = append(m.to, a.Address)
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	if len(m.to) == 0 || len(m.to) > maxRecipients {
		return nil, fmt.Errorf("the mail has %d recipients, and must have 1 to %d", len(m.to), maxRecipients)
	}
	_, domain, _ := strings.Cut(from.Address, "@")
	h.SetAddressList("From", []*message.Address{{Name: from.Name, Address: from.Address}})
	h.SetSubject(truncate(250, oneLine(r.text("email subject", o.Subject, emailSubject))))
	h.SetDate(time.Now())
	// The same at each attempt, so that mailboxes recognise a repeat. All mails of a pair are one conversation.
	h.SetMessageID(digest(r.view.Delivery) + "@" + domain)
	h.SetMsgIDList("References", []string{digest(r.view.Namespace, r.view.Name) + "@" + domain})
	h.Set("Auto-Submitted", "auto-generated")
	h.Set("X-Lapwing-Delivery", oneLine(r.view.Delivery))
	for name, text := range r.all("email header", o.Headers) {
		h.SetText(name, oneLine(text))
	}
	text, html := "", ""
	if o.Text != "" || o.HTML == "" {
		text = r.text("email text", o.Text, emailText)
	}
	if o.HTML != "" {
		html = r.html("email html", o.HTML)
	}
	if r.err != nil {
		return nil, r.err
	}
	m.text, err = compose(h, text, html)
	return m, err
}

// compose writes a mail, with two alternatives if it has both texts.
func compose(h message.Header, text, html string) ([]byte, error) {
	var b bytes.Buffer
	write := func(w io.WriteCloser, err error, text string) error {
		if err != nil {
			return err
		}
		_, err = io.WriteString(w, strings.ToValidUTF8(text, "\uFFFD"))
		return errors.Join(err, w.Close())
	}
	describe := func(h interface {
		SetContentType(string, map[string]string)
		Set(k, v string)
	}, kind string) {
		h.SetContentType(kind, map[string]string{"charset": "utf-8"})
		h.Set("Content-Transfer-Encoding", "quoted-printable")
	}
	if text == "" || html == "" {
		kind := "text/plain"
		if html != "" {
			kind = "text/html"
		}
		describe(&h, kind)
		w, err := message.CreateSingleInlineWriter(&b, h)
		if err := write(w, err, text+html); err != nil {
			return nil, fmt.Errorf("write mail: %w", err)
		}
		return b.Bytes(), nil
	}
	parts, err := message.CreateInlineWriter(&b, h)
	if err != nil {
		return nil, fmt.Errorf("write mail: %w", err)
	}
	for _, part := range []struct{ kind, text string }{{"text/plain", text}, {"text/html", html}} {
		var ph message.InlineHeader
		describe(&ph, part.kind)
		w, err := parts.CreatePart(ph)
		if err := write(w, err, part.text); err != nil {
			return nil, fmt.Errorf("write mail: %w", err)
		}
	}
	if err := parts.Close(); err != nil {
		return nil, fmt.Errorf("write mail: %w", err)
	}
	return b.Bytes(), nil
}

// recipients renders lists of addresses. It leaves out empty results.
func recipients(r *renderer, texts []string) ([]*message.Address, error) {
	var out []*message.Address
	for _, text := range texts {
		list := strings.Trim(strings.TrimSpace(r.text("email recipient", text, "")), ",")
		if list == "" {
			continue
		}
		addresses, err := mail.ParseAddressList(list)
		if err != nil {
			return nil, fmt.Errorf("read recipients %q: %w", truncate(200, list), err)
		}
		for _, a := range addresses {
			out = append(out, &message.Address{Name: a.Name, Address: a.Address})
		}
	}
	return out, nil
}

func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// oneLine keeps event data from adding lines to a header.
func oneLine(s string) string {
	return strings.TrimSpace(strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(s, "\uFFFD")))
}

// deliver has the conversation with the server.
func (d dialer) deliver(ctx context.Context, o *resource.HandlerEmail, config *tls.Config, password string, m *letter, attempt int) Result {
	port := o.Port
	if port == 0 {
		port = map[string]uint32{"tls": 465, "none": 25}[o.Security]
	}
	plain, err := d.withAnswer(ctx, "tcp", address(o.Host, cmp.Or(port, 587)))
	if err != nil {
		return temporary(err)
	}
	release := context.AfterFunc(ctx, func() { plain.Close() })
	defer release()
	defer plain.Close()
	var conn net.Conn = &quietConn{Conn: plain, left: maxReplies}
	if o.Security == "tls" {
		secured := tls.Client(conn, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			return temporary(fmt.Errorf("TLS handshake: %w", err))
		}
		conn = secured
	}
	c, err := smtp.NewClient(conn, o.Host)
	if err != nil {
		return smtpFailure("greeting", err)
	}
	if err := c.Hello(hello(o)); err != nil {
		return smtpFailure("hello", err)
	}
	if o.Security == "" || o.Security == "starttls" || o.Security == "opportunistic" {
		if ok, _ := c.Extension("STARTTLS"); ok {
			if err := c.StartTLS(config); err != nil {
				return smtpFailure("starttls", err)
			}
		} else if o.Security != "opportunistic" {
			return permanent(errors.New("the mail server offers no STARTTLS"))
		}
	}
	if o.Username != "" {
		auth, err := smtpAuth(c, o, password)
		if err != nil {
			return permanent(err)
		}
		if err := c.Auth(auth); err != nil {
			return smtpFailure("sign in", err)
		}
	}
	if err := c.Mail(m.from); err != nil {
		return smtpFailure("sender", err)
	}
	var refused []string
	var last Result
	accepted, later := 0, false
	for _, to := range m.to {
		err := c.Rcpt(to)
		if err == nil {
			accepted++
			continue
		}
		res := smtpFailure("recipient "+to, err)
		if res.Status == 0 {
			return res // the conversation is over
		}
		refused = append(refused, res.Err.Error())
		if res.Temporary || last.Err == nil {
			last = res
		}
		later = later || res.Temporary
	}
	if accepted == 0 || later && attempt < partialFrom {
		_ = c.Quit()
		last.Temporary, last.Output = later, []byte(strings.Join(refused, "\n"))
		return last
	}
	w, err := c.Data()
	if err != nil {
		return smtpFailure("data", err)
	}
	if _, err := w.Write(m.text); err != nil {
		return smtpFailure("data", err)
	}
	if err := w.Close(); err != nil {
		return smtpFailure("data", err)
	}
	_ = c.Quit() // the server has accepted the mail already
	return Result{Status: 250, Output: []byte(strings.Join(refused, "\n"))}
}

// smtpFailure classifies a server's answer by its first digit, as the protocol defines it. Any other error is a broken
// connection.
func smtpFailure(step string, err error) Result {
	res := Result{Err: fmt.Errorf("%s: %w", step, err), Temporary: true}
	var answer *textproto.Error
	if errors.As(err, &answer) {
		res.Status, res.Temporary, res.Kind = answer.Code, answer.Code < 500, KindFailed
	}
	return res
}

// smtpAuth returns the method to sign in: the definition's, or the first one that the server offers.
func smtpAuth(c *smtp.Client, o *resource.HandlerEmail, password string) (smtp.Auth, error) {
	way := o.Auth
	if way == "" {
		_, offered := c.Extension("AUTH")
		for _, candidate := range []string{"PLAIN", "LOGIN", "CRAM-MD5"} {
			if strings.Contains(" "+strings.ToUpper(offered)+" ", " "+candidate+" ") {
				way = strings.ToLower(candidate)
				break
			}
		}
	}
	if _, secure := c.TLSConnectionState(); !secure && way != "cram-md5" && !local(o.Host) {
		return nil, errors.New("the password is not sent without TLS")
	}
	switch way {
	case "plain":
		return smtp.PlainAuth("", o.Username, password, o.Host), nil
	case "login":
		return &loginAuth{o.Username, password}, nil
	case "cram-md5":
		if fips140.Enforced() {
			return nil, errors.New("cram-md5 is not allowed here: GODEBUG is fips140=only")
		}
		return smtp.CRAMMD5Auth(o.Username, password), nil
	}
	return nil, errors.New("the mail server offers no way to sign in that lapwing knows")
}

// local reports whether a server is on this host, where the connection cannot be tapped. Package smtp has the same
// rule.
func local(host string) bool { return host == "localhost" || host == "127.0.0.1" || host == "::1" }

// loginAuth is a method that some servers need instead of PLAIN: the same data in two answers.
type loginAuth struct{ username, password string }

func (a *loginAuth) Start(*smtp.ServerInfo) (string, []byte, error) { return "LOGIN", nil, nil }

func (a *loginAuth) Next(prompt []byte, more bool) ([]byte, error) {
	switch text := strings.ToLower(string(prompt)); {
	case !more:
		return nil, nil
	case strings.HasPrefix(text, "user"):
		return []byte(a.username), nil
	case strings.HasPrefix(text, "pass"):
		return []byte(a.password), nil
	}
	return nil, errors.New("the mail server asks for something other than name and password")
}

func hello(o *resource.HandlerEmail) string {
	if o.Hello != "" {
		return oneLine(o.Hello)
	}
	if name, err := os.Hostname(); err == nil && name != "" {
		return oneLine(name)
	}
	return "localhost"
}

// quietConn bounds how much a server may send: the protocol sets no bound.
type quietConn struct {
	net.Conn
	left int
}

func (c *quietConn) Read(b []byte) (int, error) {
	if c.left <= 0 {
		return 0, fmt.Errorf("the server says more than %d bytes", maxReplies)
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}
