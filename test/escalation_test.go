package test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// mailbox is a mail server that keeps what it gets.
type mailbox struct {
	addr string
	mu   sync.Mutex
	all  []letter
}

type letter struct{ to, id, body string }

func newMailbox(t testing.TB) *mailbox {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &mailbox{addr: l.Addr().String()}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() { m.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		served.Wait()
	})
	return m
}

// serve speaks as much of SMTP as a client without extensions needs.
func (m *mailbox) serve(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	c := textproto.NewConn(conn)
	_ = c.PrintfLine("220 mailbox")
	var got letter
	for {
		line, err := c.ReadLine()
		if err != nil {
			return
		}
		switch verb := strings.ToUpper(line[:min(4, len(line))]); verb {
		case "RCPT":
			got.to = strings.Trim(strings.TrimPrefix(line, "RCPT TO:"), "<>")
			_ = c.PrintfLine("250 ok")
		case "DATA":
			_ = c.PrintfLine("354 go on")
			body, err := io.ReadAll(c.DotReader())
			if err != nil {
				return
			}
			got.body = string(body)
			header, _ := textproto.NewReader(bufio.NewReader(strings.NewReader(got.body))).ReadMIMEHeader()
			got.id = header.Get("Message-ID")
			m.mu.Lock()
			m.all = append(m.all, got)
			m.mu.Unlock()
			_ = c.PrintfLine("250 ok")
		case "QUIT":
			_ = c.PrintfLine("221 bye")
			return
		default:
			_ = c.PrintfLine("250 ok")
		}
	}
}

// about returns the mails to an address whose text contains something.
func (m *mailbox) about(to, text string) (found []letter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, one := range m.all {
		if one.to == to && strings.Contains(one.body, text) {
			found = append(found, one)
		}
	}
	return found
}

// beeper receives webhooks of escalations.
type beeper struct {
	*httptest.Server
	mu   sync.Mutex
	keys map[string]map[string]bool // by entity, contact and step
}

func newBeeper(t testing.TB) *beeper {
	p := &beeper{keys: map[string]map[string]bool{}}
	p.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var ev resource.Event
		if json.NewDecoder(r.Body).Decode(&ev) != nil || ev.Check == nil {
			return
		}
		a := ev.Check.Metadata.Annotations
		place := strings.Join([]string{ev.Entity.Metadata.Name, a["lapwing.io/contact"], a["lapwing.io/escalation-step"]}, " ")
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.keys[place] == nil {
			p.keys[place] = map[string]bool{}
		}
		p.keys[place][r.Header.Get("Idempotency-Key")] = true
	}))
	t.Cleanup(p.Close)
	return p
}

// got returns with how many keys a contact was notified of an entity in a step; "" for its resolution.
func (p *beeper) got(entity, contact, step string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.keys[strings.Join([]string{entity, contact, step}, " ")])
}

var acknowledgeLink = regexp.MustCompile(`http://\S+/acknowledge/\S+`)

// TestEscalationInACluster: alice gets a mail at once, the contact on call a webhook some seconds later, whichever member is
// killed in between; alice acknowledges with the link in her mail, and both hear of the resolution.
func TestEscalationInACluster(t *testing.T) {
	all := newMembers(t, 3, "--public-url", "http://lapwing.invalid")
	all.start()
	var clients []*client.Client
	for _, p := range all {
		clients = append(clients, p.client())
	}
	mail, page := newMailbox(t), newBeeper(t)
	host, port, _ := net.SplitHostPort(mail.addr)
	files := fmt.Sprintf(`[
		{"type": "Handler", "api_version": "core/v2", "metadata": {"name": "mail"}, "spec": {"type": "email", "email": {
			"host": %q, "port": %s, "security": "none", "from": "lapwing@example.org", "to": ["{{.Contact.Email}}"]}}},
		{"type": "Handler", "api_version": "core/v2", "metadata": {"name": "pager"}, "spec": {"type": "webhook", "webhook": {"url": %q}}},
		{"type": "Contact", "api_version": "lapwing/v1", "metadata": {"name": "alice"}, "spec": {"email": "alice@example.org", "handlers": ["mail"]}},
		{"type": "Contact", "api_version": "lapwing/v1", "metadata": {"name": "bob"}, "spec": {"handlers": ["pager"]}},
		{"type": "Rota", "api_version": "lapwing/v1", "metadata": {"name": "ops"}, "spec": {"contacts": ["bob"], "start": "2026-01-01T00:00", "shift": 86400}},
		{"type": "Handler", "api_version": "core/v2", "metadata": {"name": "alarm"}, "spec": {"type": "escalation", "escalation": {"steps": [
			{"notify": [{"contact": "alice"}]}, {"after": 5, "notify": [{"rota": "ops"}]}]}}}
	]`, host, port, page.URL)
	var docs []struct {
		Type     string              `json:"type"`
		Metadata resource.ObjectMeta `json:"metadata"`
		Spec     map[string]any      `json:"spec"`
	}
	if err := json.Unmarshal([]byte(files), &docs); err != nil {
		t.Fatal(err)
	}
	paths := map[string]string{"Handler": "/api/core/v2/namespaces/default/handlers/", "Contact": "/api/lapwing/v1/namespaces/default/contacts/",
		"Rota": "/api/lapwing/v1/namespaces/default/rotas/"}
	for _, doc := range docs {
		doc.Spec["metadata"] = map[string]string{"name": doc.Metadata.Name, "namespace": "default"}
		if err := clients[0].Do(t.Context(), http.MethodPut, paths[doc.Type]+doc.Metadata.Name, doc.Spec, nil); err != nil {
			t.Fatal(err)
		}
	}
	for i, victim := range all {
		entity, through := fmt.Sprint("srv-", i), (i+1)%len(all)
		fails(t, clients[through], entity, 2)
		eventually(t, time.Minute, "alice gets a mail about "+entity, func() bool { return len(mail.about("alice@example.org", entity)) > 0 })
		victim.kill(syscall.SIGKILL)
		eventually(t, time.Minute, "bob is paged about "+entity, func() bool { return page.got(entity, "bob", "2") > 0 })
		victim.launch()
		victim.ready()

		link := acknowledgeLink.FindString(undoLines(mail.about("alice@example.org", entity)[0].body))
		u, err := url.Parse(link)
		if err != nil || link == "" {
			t.Fatalf("no link in %s", mail.about("alice@example.org", entity)[0].body)
		}
		resp, err := http.PostForm("http://"+victim.api+u.EscapedPath(), url.Values{"comment": {"looking"}}) // any member takes it
		if err != nil {
			t.Fatal(err)
		}
		answer, _ := io.ReadAll(resp.Body)
		if _ = resp.Body.Close(); resp.StatusCode != http.StatusOK {
			t.Fatalf("the link answers %s: %s", resp.Status, answer)
		}
		for m, c := range clients {
			eventually(t, time.Minute, fmt.Sprint("member ", m, " shows the acknowledgement of ", entity), func() bool {
				var list resource.EscalationList
				if c.Do(t.Context(), http.MethodGet, "/api/lapwing/v1/namespaces/default/escalations", nil, &list) != nil {
					return false
				}
				for _, e := range list.Escalations {
					if e.Entity == entity {
						return e.Held == "acknowledged by contact alice: looking" && strings.Join(e.Notified, " ") == "alice bob"
					}
				}
				return false
			})
		}
		fails(t, clients[through], entity, 0)
		eventually(t, time.Minute, "both hear that "+entity+" is resolved", func() bool {
			return page.got(entity, "bob", "") > 0 && len(mail.about("alice@example.org", "RESOLVED: "+entity)) > 0
		})
		for _, step := range []string{"2", ""} {
			if n := page.got(entity, "bob", step); n != 1 {
				t.Errorf("bob heard of %s, step %q, under %d keys", entity, step, n)
			}
		}
		ids := map[string]bool{}
		for _, one := range mail.about("alice@example.org", "CRITICAL: "+entity) {
			ids[one.id] = true
		}
		if len(ids) != 1 {
			t.Errorf("alice got mails about %s under the IDs %v", entity, ids)
		}
	}
}

// undoLines joins the lines that quoted-printable has broken.
func undoLines(body string) string {
	return strings.NewReplacer("=\r\n", "", "=\n", "", "=3D", "=").Replace(body)
}

// fails submits a result of a proxy entity for the handler alarm.
func fails(t testing.TB, c *client.Client, entity string, status uint32) {
	t.Helper()
	ev := resource.Event{
		Entity: &resource.Entity{Metadata: resource.ObjectMeta{Namespace: "default", Name: entity}, EntityClass: "proxy"},
		Check: &resource.Check{Metadata: resource.ObjectMeta{Namespace: "default", Name: "disk"}, Status: status, Handlers: []string{"alarm"},
			Output: "of " + entity, Interval: 60},
	}
	eventually(t, time.Minute, "the result of "+entity+" is taken", func() bool {
		return c.Do(t.Context(), http.MethodPost, "/api/core/v2/namespaces/default/events", &ev, nil) == nil
	})
}
