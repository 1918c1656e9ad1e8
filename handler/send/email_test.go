package send

import (
	"context"
	"crypto/fips140"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/smtp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	gomail "github.com/emersion/go-message/mail"
	"github.com/emersion/go-sasl"
	gosmtp "github.com/emersion/go-smtp"

	"github.com/lapwing-monitoring/lapwing/internal/testcert"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// mailServer is a real server that refuses commands as a test wants.
type mailServer struct {
	addr *net.TCPAddr

	mu      sync.Mutex
	mails   []mailOf
	refuse  func(command, argument string) error // nil accepts everything
	logins  []string
	offered []string
}

type mailOf struct {
	from string
	to   []string
	text string
}

type mailSession struct {
	s    *mailServer
	mail mailOf
}

func (s *mailServer) ask(command, argument string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse == nil {
		return nil
	}
	return s.refuse(command, argument)
}

func (s *mailSession) AuthMechanisms() []string { return s.s.offered }

func (s *mailSession) Auth(mech string) (sasl.Server, error) {
	check := func(username, password string) error {
		s.s.mu.Lock()
		defer s.s.mu.Unlock()
		s.s.logins = append(s.s.logins, mech+" "+username)
		if username != "bob" || password != "pass" {
			return &gosmtp.SMTPError{Code: 535, EnhancedCode: gosmtp.EnhancedCode{5, 7, 8}, Message: "wrong"}
		}
		return nil
	}
	if mech == "LOGIN" {
		return &loginServer{check: check}, nil
	}
	return sasl.NewPlainServer(func(_, username, password string) error { return check(username, password) }), nil
}

// loginServer is the server side of LOGIN.
type loginServer struct {
	step     int
	username string
	check    func(username, password string) error
}

func (l *loginServer) Next(response []byte) ([]byte, bool, error) {
	l.step++
	switch l.step {
	case 1:
		return []byte("Username:"), false, nil
	case 2:
		l.username = string(response)
		return []byte("Password:"), false, nil
	}
	return nil, true, l.check(l.username, string(response))
}

func (s *mailSession) Mail(from string, _ *gosmtp.MailOptions) error {
	s.mail = mailOf{from: from}
	return s.s.ask("MAIL", from)
}

func (s *mailSession) Rcpt(to string, _ *gosmtp.RcptOptions) error {
	if err := s.s.ask("RCPT", to); err != nil {
		return err
	}
	s.mail.to = append(s.mail.to, to)
	return nil
}

func (s *mailSession) Data(r io.Reader) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if err := s.s.ask("DATA", ""); err != nil {
		return err
	}
	s.mail.text = string(text)
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	s.s.mails = append(s.s.mails, s.mail)
	return nil
}

func (s *mailSession) Reset()        {}
func (s *mailSession) Logout() error { return nil }

// newMailServer serves with TLS from the start, or offers it, or has none if config is nil.
func newMailServer(t testing.TB, config *tls.Config, fromTheStart bool) *mailServer {
	t.Helper()
	s := &mailServer{offered: []string{"PLAIN"}}
	srv := gosmtp.NewServer(gosmtp.BackendFunc(func(*gosmtp.Conn) (gosmtp.Session, error) { return &mailSession{s: s}, nil }))
	srv.Domain, srv.ErrorLog, srv.AllowInsecureAuth = "mail.example.org", quietLog, true
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().(*net.TCPAddr)
	if fromTheStart {
		l = tls.NewListener(l, config)
	} else {
		srv.TLSConfig = config
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = srv.Shutdown(ctx)
		<-done
	})
	return s
}

// got returns the next mail, which must be there.
func (s *mailServer) got(t testing.TB) mailOf {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mails) == 0 {
		t.Fatal("there is no mail")
	}
	m := s.mails[0]
	s.mails = s.mails[1:]
	return m
}

func (s *mailServer) refuses(f func(command, argument string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = f
}

func email(addr *net.TCPAddr) *resource.Handler {
	h := handler("email")
	h.Email = &resource.HandlerEmail{
		Host: "127.0.0.1", Port: uint32(addr.Port), Security: "none", From: "Lapwing <lapwing@example.org>", To: []string{"ops@example.org"},
	}
	return h
}

// read splits a mail into its header and its texts by type.
func read(t testing.TB, m mailOf) (gomail.Header, map[string]string) {
	t.Helper()
	for i, line := range strings.Split(m.text, "\r\n") {
		if len(line) > 998 || strings.Contains(line, "\n") {
			t.Errorf("line %d is no line of a mail: %.100q", i, line)
		}
	}
	r, err := gomail.CreateReader(strings.NewReader(m.text))
	if err != nil {
		t.Fatalf("%v in %s", err, m.text)
	}
	texts := map[string]string{}
	for {
		p, err := r.NextPart()
		if errors.Is(err, io.EOF) {
			return r.Header, texts
		}
		if err != nil {
			t.Fatalf("%v in %s", err, m.text)
		}
		kind, _, _ := p.Header.(*gomail.InlineHeader).ContentType()
		body, err := io.ReadAll(p.Body)
		if err != nil {
			t.Fatal(err)
		}
		texts[kind] = strings.ReplaceAll(string(body), "\r\n", "\n")
	}
}

func TestEmail(t *testing.T) {
	srv := newMailServer(t, nil, false)
	s := setup(t, Options{SecretDirs: []string{"/no/such"}})
	h := email(srv.addr)
	f := func(job Job) (gomail.Header, map[string]string, mailOf) {
		t.Helper()
		want(t, "send", s.Run(t.Context(), h, job), KindOK, false, "")
		m := srv.got(t)
		header, texts := read(t, m)
		return header, texts, m
	}
	header, texts, m := f(job(event(2, 0)))
	subject, _ := header.Subject()
	id, _ := header.MessageID()
	thread, _ := header.MsgIDList("References")
	from, _ := header.AddressList("From")
	if m.from != "lapwing@example.org" || len(m.to) != 1 || m.to[0] != "ops@example.org" ||
		subject != "[default] CRITICAL web1/disk: DISK <full>" ||
		!strings.HasSuffix(id, "@example.org") || len(thread) != 1 || from[0].Name != "Lapwing" ||
		header.Get("Auto-Submitted") != "auto-generated" {
		t.Errorf("got %s", m.text)
	}
	if text := texts["text/plain"]; len(texts) != 1 || !strings.Contains(text, "CRITICAL: web1/disk\nNamespace:   default\n"+
		"Entity:      web1 (web1.example.org)\nCheck:       disk\nStatus:      2, 3 times in a row\n"+
		"Executed:    2023-11-14 22:14:50 UTC\nCommand:     check-disk\n\nDISK <full>\nsecond & last line\n") {
		t.Errorf("got %q", texts)
	}
	// A second attempt has the same ID; another event of the pair has the same conversation.
	again, _, _ := f(Job{ID: "event-1/h", Event: event(2, 0), Attempt: 2})
	if other, _ := again.MessageID(); other != id {
		t.Errorf("got %s and %s", id, other)
	}
	next, _, _ := f(Job{ID: "event-2/h", Event: event(0, 2)})
	other, _ := next.MessageID()
	conversation, _ := next.MsgIDList("References")
	if other == id || conversation[0] != thread[0] {
		t.Errorf("got %s, %s", other, conversation)
	}

	h.Email.To = []string{"{{.Check.Annotations.team}}@example.org, Bob <bob@example.org>", "{{.Check.Annotations.nothing}}"}
	h.Email.Cc = []string{"cc@example.org"}
	h.Email.Subject, h.Email.Text = "Ünïcode {{.State}}\r\nBcc: evil@example.org {{.Output}}", "{{.Output}}\n.\nend"
	h.Email.HTML = "<p>{{.Output}}</p>"
	h.Email.Headers = map[string]string{"X-Team": "{{.Check.Annotations.team}} ü\r\nX-Evil: yes"}
	header, texts, m = f(job(event(2)))
	subject, _ = header.Subject()
	team, _ := header.Text("X-Team")
	if fmt.Sprint(m.to) != "[storage@example.org bob@example.org cc@example.org]" ||
		subject != "Ünïcode CRITICAL  Bcc: evil@example.org DISK <full> second & last line" ||
		header.Get("Bcc") != "" || header.Get("X-Evil") != "" || team != "storage ü  X-Evil: yes" {
		t.Errorf("to %v, got %s", m.to, m.text)
	}
	if texts["text/plain"] != "DISK <full>\nsecond & last line\n.\nend" ||
		texts["text/html"] != "<p>DISK &lt;full&gt;\nsecond &amp; last line</p>" {
		t.Errorf("got %q", texts)
	}
	h.Email.Text = ""
	if _, texts, _ = f(job(event(2))); len(texts) != 1 || texts["text/html"] == "" {
		t.Errorf("got %q", texts)
	}
	long := event(2)
	long.Check.Output = strings.Repeat("ü", 100_000) + "\x00\xff"
	h.Email.HTML = ""
	if _, texts, _ = f(job(long)); len([]rune(texts["text/plain"])) > 21_000 {
		t.Errorf("%d bytes", len(texts["text/plain"]))
	}

	h.Email.To, h.Email.Cc = []string{"{{.Check.Annotations.nothing}}"}, nil
	want(t, "nobody", s.Run(t.Context(), h, job(event(2))), KindError, false, "0 recipients")
	h.Email.To = []string{"{{.Output}}"}
	want(t, "no address", s.Run(t.Context(), h, job(event(2))), KindError, false, "read recipients")
	h.Email.To = []string{"{{.Nothing}}"}
	want(t, "template", s.Run(t.Context(), h, job(event(2))), KindError, false, "can't evaluate field Nothing")
	h.Email.To, h.Email.PasswordFile = []string{"a@b"}, "/no/such/file"
	want(t, "password", s.Run(t.Context(), h, job(event(2))), KindError, true, "read secret")
}

func TestEmailRefused(t *testing.T) {
	srv := newMailServer(t, nil, false)
	s := setup(t, Options{})
	h := email(srv.addr)
	f := func(at string, code int, temporary bool) {
		t.Helper()
		srv.refuses(func(command, _ string) error {
			if command != at {
				return nil
			}
			return &gosmtp.SMTPError{Code: code, EnhancedCode: gosmtp.EnhancedCode{code / 100, 0, 0}, Message: "no"}
		})
		res := s.Run(t.Context(), h, job(event(2)))
		want(t, fmt.Sprint(at, code), res, KindFailed, temporary, fmt.Sprint(code))
		if res.Status != code {
			t.Errorf("%s: status %d, want %d", at, res.Status, code)
		}
	}
	f("MAIL", 421, true)
	f("MAIL", 550, false)
	f("RCPT", 450, true)
	f("RCPT", 451, true)
	f("RCPT", 550, false)
	f("DATA", 452, true)
	f("DATA", 552, false)
	f("DATA", 554, false)
}

// TestEmailToSome: the server takes some recipients and refuses others.
func TestEmailToSome(t *testing.T) {
	srv := newMailServer(t, nil, false)
	srv.refuses(func(command, argument string) error {
		switch {
		case command == "RCPT" && strings.HasPrefix(argument, "grey"):
			return &gosmtp.SMTPError{Code: 450, EnhancedCode: gosmtp.EnhancedCode{4, 7, 1}, Message: "come back later"}
		case command == "RCPT" && strings.HasPrefix(argument, "gone"):
			return &gosmtp.SMTPError{Code: 550, EnhancedCode: gosmtp.EnhancedCode{5, 1, 1}, Message: "no such user"}
		}
		return nil
	})
	s := setup(t, Options{})
	h := email(srv.addr)
	f := func(attempt int, to string) Result {
		h.Email.To = []string{to}
		return s.Run(t.Context(), h, Job{ID: "1/a", Event: event(2), Attempt: attempt})
	}
	res := f(1, "gone@b, ops@b")
	want(t, "one is gone", res, KindOK, false, "")
	if m := srv.got(t); fmt.Sprint(m.to) != "[ops@b]" || !strings.Contains(string(res.Output), "recipient gone@b: 550") {
		t.Errorf("to %v, output %q", m.to, res.Output)
	}
	// While one recipient has to wait none gets the mail, so that none gets it twice; but not for ever.
	for attempt := 1; attempt < partialFrom; attempt++ {
		res := f(attempt, "ops@b, grey@b, gone@b")
		want(t, "one has to wait", res, KindFailed, true, "recipient grey@b: 450")
		if !strings.Contains(string(res.Output), "gone@b") || len(srv.mails) != 0 {
			t.Errorf("output %q, %d mails", res.Output, len(srv.mails))
		}
	}
	want(t, "one has to wait", f(partialFrom, "ops@b, grey@b, gone@b"), KindOK, false, "")
	if m := srv.got(t); fmt.Sprint(m.to) != "[ops@b]" {
		t.Errorf("to %v", m.to)
	}
	want(t, "all have to wait", f(partialFrom, "grey@b"), KindFailed, true, "450")
	want(t, "all are gone", f(1, "gone@b, gone2@b"), KindFailed, false, "550")
}

func TestEmailTLS(t *testing.T) {
	ca := testcert.New(t, "ours")
	config := serverTLS(t, ca.Issue(t, []string{"127.0.0.1"}, nil))
	config.ClientAuth = tls.NoClientCert
	for _, security := range []string{"tls", "starttls"} {
		srv := newMailServer(t, config, security == "tls")
		s := setup(t, Options{})
		h := email(srv.addr)
		h.Email.Security, h.Email.TLS = security, &resource.HandlerTLS{CAFile: ca.File}
		h.Email.Username, h.Email.Password = "bob", "pass"
		want(t, security, s.Run(t.Context(), h, job(event(2))), KindOK, false, "")
		srv.got(t)
		srv.offered = []string{"LOGIN"}
		want(t, security, s.Run(t.Context(), h, job(event(2))), KindOK, false, "")
		srv.got(t)
		if got := fmt.Sprint(srv.logins); got != "[PLAIN bob LOGIN bob]" {
			t.Errorf("signed in %s", got)
		}
		srv.offered = []string{"GSSAPI"}
		want(t, security, s.Run(t.Context(), h, job(event(2))), KindError, false, "no way to sign in")
		srv.offered = []string{"PLAIN", "LOGIN"}
		h.Email.Password = "wrong"
		want(t, security, s.Run(t.Context(), h, job(event(2))), KindFailed, false, "535")
		h.Email.Auth = "login"
		want(t, security, s.Run(t.Context(), h, job(event(2))), KindFailed, false, "535")
		h.Email.TLS = nil
		want(t, security, s.Run(t.Context(), h, job(event(2))), KindError, true, "unknown authority")
	}
	plain := newMailServer(t, nil, false)
	s := setup(t, Options{})
	h := email(plain.addr)
	h.Email.Security = ""
	want(t, "no STARTTLS", s.Run(t.Context(), h, job(event(2))), KindError, false, "no STARTTLS")
	h.Email.Security = "opportunistic"
	want(t, "opportunistic", s.Run(t.Context(), h, job(event(2))), KindOK, false, "")
	h.Email.Security = "tls"
	want(t, "no TLS", s.Run(t.Context(), h, job(event(2))), KindError, true, "TLS handshake")
}

// TestEmailKeepsThePassword: the password is never sent over an open connection.
func TestEmailKeepsThePassword(t *testing.T) {
	o := &resource.HandlerEmail{Host: "mail.example.org", Username: "bob"}
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	go func() { fmt.Fprint(theirs, "220 hello\r\n") }()
	c, err := smtp.NewClient(ours, o.Host)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		buf := make([]byte, 100)
		_, _ = theirs.Read(buf)
		fmt.Fprint(theirs, "250-mail\r\n250 AUTH PLAIN LOGIN CRAM-MD5\r\n")
	}()
	if _, err := smtpAuth(c, o, "pass"); err == nil || !strings.Contains(err.Error(), "not sent without TLS") {
		t.Errorf("got %v", err)
	}
	o.Auth = "cram-md5" // does not send it
	if _, err := smtpAuth(c, o, "pass"); err != nil {
		t.Errorf("got %v", err)
	}
}

// TestEmailServersThatMisbehave connects to servers that do not speak SMTP.
func TestEmailServersThatMisbehave(t *testing.T) {
	t.Parallel()
	s := setup(t, Options{})
	serve := func(f func(conn net.Conn)) *net.TCPAddr {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				f(conn)
				conn.Close()
			}
		}()
		t.Cleanup(func() { l.Close(); <-done })
		return l.Addr().(*net.TCPAddr)
	}
	f := func(what string, addr *net.TCPAddr, kind string, temporary bool, err string) {
		t.Helper()
		h := email(addr)
		h.Timeout = 300
		if kind == KindTimeout || strings.Contains(what, "a little") {
			h.Timeout = 1
		}
		begin := time.Now()
		want(t, what, s.Run(t.Context(), h, job(event(2))), kind, temporary, err)
		if took := time.Since(begin); took > 2*time.Minute {
			t.Errorf("%s: held the attempt for %v", what, took)
		}
	}
	f("accepts and never greets", silent(t), KindTimeout, true, "deadline")
	f("hangs up", serve(func(net.Conn) {}), KindError, true, "greeting")
	f("says no", serve(func(conn net.Conn) { fmt.Fprint(conn, "554 go away\r\n") }), KindFailed, false, "554")
	f("is busy", serve(func(conn net.Conn) { fmt.Fprint(conn, "421 too busy\r\n") }), KindFailed, true, "421")
	f("is a web server", serve(func(conn net.Conn) { fmt.Fprint(conn, "HTTP/1.1 400 Bad Request\r\n\r\n") }), KindError, true, "greeting")
	f("greets for ever", serve(func(conn net.Conn) {
		for line := strings.Repeat("220-hello\r\n", 1000); ; {
			if _, err := fmt.Fprint(conn, line); err != nil {
				return
			}
		}
	}), KindError, true, "says more than")
	f("never ends its line", serve(func(conn net.Conn) {
		fmt.Fprint(conn, "220 ")
		for line := strings.Repeat("x", 10000); ; {
			if _, err := fmt.Fprint(conn, line); err != nil {
				return
			}
		}
	}), KindError, true, "says more than")
	f("greets and is silent", serve(func(conn net.Conn) {
		fmt.Fprint(conn, "220 hello\r\n")
		_, _ = io.Copy(io.Discard, conn)
	}), KindTimeout, true, "deadline")
	refused, err := net.ResolveTCPAddr("tcp", closedAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	f("is not there", refused, KindError, true, "refused")
	h := email(refused)
	h.Email.TLS = &resource.HandlerTLS{CAFile: filepath.Join(t.TempDir(), "none")}
	want(t, "no authorities", s.Run(t.Context(), h, job(event(2))), KindError, true, "read TLS file")
}

// TestEmailUnderFIPS: where MD5 is refused, a sign-in that needs it is an error and no crash.
func TestEmailUnderFIPS(t *testing.T) {
	if !fips140.Enforced() {
		cmd := exec.Command(os.Args[0], "-test.run=^TestEmailUnderFIPS$", "-test.v")
		cmd.Env = append(os.Environ(), "GODEBUG=fips140=only")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	o := &resource.HandlerEmail{Host: "mail.example.com", Username: "user", Auth: "cram-md5"}
	if _, err := smtpAuth(new(smtp.Client), o, "pass"); err == nil || !strings.Contains(err.Error(), "fips140=only") {
		t.Errorf("got %v", err)
	}
}
