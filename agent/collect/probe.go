package collect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// metricName turns any text into a part of a metric's path.
func metricName(s string) string { return strings.Trim(notLabel.ReplaceAllString(s, "_"), "_") }

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// httpCollector makes a request.
type httpCollector struct {
	url, method, body, expect, label string
	headers, statuses                list
	insecure, follow                 bool
	timeout                          time.Duration
	slow, days                       thresholds
}

func (c *httpCollector) flags(fs *flag.FlagSet) {
	fs.StringVar(&c.url, "url", "", "what to request")
	fs.StringVar(&c.method, "method", http.MethodGet, "method")
	fs.StringVar(&c.body, "body", "", "body")
	fs.Var(&c.headers, "header", "headers, each like Name: value")
	fs.Var(&c.statuses, "status", "statuses that are good, such as 200 or 2xx; default 2xx")
	fs.StringVar(&c.expect, "expect", "", "regular expression that the answer must match")
	fs.BoolVar(&c.insecure, "insecure", false, "do not verify the certificate")
	fs.BoolVar(&c.follow, "follow", false, "follow redirects")
	fs.StringVar(&c.label, "label", "", "name in the metrics; default from the URL")
	fs.DurationVar(&c.timeout, "timeout", 10*time.Second, "longest time to wait")
	c.slow.register(fs, "", "", "", "above so many milliseconds")
	c.days.register(fs, "-days", "", "", "below so many days until the certificate expires")
	c.days.lower()
}

// maxAnswer bounds how much of a response is read.
const maxAnswer = 1 << 20

func (c *httpCollector) collect(ctx context.Context, r *run) error {
	u, err := url.Parse(c.url)
	if err != nil || u.Host == "" {
		return errors.New("--url is required, such as https://example.com/health")
	}
	expect, err := regexp.Compile(c.expect)
	if err != nil {
		return fmt.Errorf("--expect: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, c.method, c.url, strings.NewReader(c.body))
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "lapwing")
	for _, h := range c.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return fmt.Errorf("--header %q is not like Name: value", h)
		}
		if strings.EqualFold(name, "Host") {
			req.Host = strings.TrimSpace(value)
			continue
		}
		req.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true // each run must see what a new client sees
	transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: c.insecure}
	client := http.Client{Transport: transport}
	if !c.follow {
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	var connected, answered time.Time
	trace := &httptrace.ClientTrace{
		GotConn:              func(httptrace.GotConnInfo) { connected = time.Now() },
		GotFirstResponseByte: func() { answered = time.Now() },
	}
	begin := time.Now()
	resp, err := client.Do(req.WithContext(httptrace.WithClientTrace(ctx, trace)))
	if err != nil {
		r.metric("http."+c.name(u)+".up", 0)
		r.fail(Critical, "%s: %v", c.url, withoutURL(err))
		return nil
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	took := time.Since(begin)
	p := "http." + c.name(u) + "."
	r.metric(p+"up", 1)
	r.metric(p+"status", float64(resp.StatusCode))
	r.metric(p+"time_connect_ms", millis(connected.Sub(begin)))
	r.metric(p+"time_first_byte_ms", millis(answered.Sub(begin)))
	r.metric(p+"time_ms", millis(took))
	r.metric(p+"bytes", float64(len(answer)))
	switch {
	case err != nil:
		r.fail(Critical, "%s: read answer: %v", c.url, err)
	case !c.good(resp.StatusCode):
		r.fail(Critical, "%s: status %s", c.url, resp.Status)
	case !expect.Match(answer):
		r.fail(Critical, "%s: the answer does not match %q", c.url, c.expect)
	default:
		r.say("%s: status %d, %d bytes", c.url, resp.StatusCode, len(answer))
	}
	r.judge("time", millis(took), "ms", &c.slow, number(millis(took))+" ms")
	if resp.TLS != nil && len(resp.TLS.PeerCertificates) > 0 {
		days := resp.TLS.PeerCertificates[0].NotAfter.Sub(r.now).Hours() / 24
		r.metric(p+"certificate_days", days)
		r.judge("certificate_days", days, "", &c.days, "certificate expires in "+number(days)+" days")
	}
	return nil
}

func (c *httpCollector) name(u *url.URL) string {
	if c.label != "" {
		return metricName(c.label)
	}
	return metricName(u.Host + u.Path)
}

func (c *httpCollector) good(status int) bool {
	if len(c.statuses) == 0 {
		return status >= 200 && status < 300
	}
	text := fmt.Sprint(status)
	return slices.ContainsFunc(c.statuses, func(s string) bool {
		return s == text || len(s) == 3 && strings.EqualFold(s[1:], "xx") && s[0] == text[0]
	})
}

func withoutURL(err error) error {
	var with *url.Error
	if errors.As(err, &with) {
		return with.Err
	}
	return err
}

// portCollector opens a connection.
type portCollector struct {
	address, send, expect string
	timeout               time.Duration
	slow                  thresholds
}

func (c *portCollector) flags(fs *flag.FlagSet) {
	fs.StringVar(&c.address, "address", "", "host and port, such as db:5432")
	fs.StringVar(&c.send, "send", "", `what to write; \r and \n are understood`)
	fs.StringVar(&c.expect, "expect", "", "regular expression that what is read must match")
	fs.DurationVar(&c.timeout, "timeout", 5*time.Second, "longest time to wait")
	c.slow.register(fs, "", "", "", "above so many milliseconds until the connection is there")
}

func (c *portCollector) collect(ctx context.Context, r *run) error {
	if _, _, err := net.SplitHostPort(c.address); err != nil {
		return errors.New("--address is required, such as db:5432")
	}
	expect, err := regexp.Compile(c.expect)
	if err != nil {
		return fmt.Errorf("--expect: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	p := "port." + metricName(c.address) + "."
	begin := time.Now()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.address)
	if err != nil {
		r.metric(p+"up", 0)
		r.fail(Critical, "%s: %v", c.address, err)
		return nil
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	took := time.Since(begin)
	r.metric(p+"up", 1)
	r.metric(p+"time_ms", millis(took))
	if c.send != "" {
		if _, err := io.WriteString(conn, strings.NewReplacer(`\r`, "\r", `\n`, "\n").Replace(c.send)); err != nil {
			r.fail(Critical, "%s: write: %v", c.address, err)
		}
	}
	if c.expect != "" {
		got, matched := make([]byte, 0, 4096), false
		for !matched && len(got) < cap(got) {
			n, err := conn.Read(got[len(got):cap(got)])
			got = got[:len(got)+n]
			if matched = expect.Match(got); err != nil {
				break
			}
		}
		if !matched {
			r.fail(Critical, "%s: %q does not match %q", c.address, got[:min(len(got), 100)], c.expect)
		}
	}
	r.judge("time", millis(took), "ms", &c.slow, fmt.Sprintf("%s connected in %s ms", c.address, number(millis(took))))
	return nil
}

// dnsCollector looks up a name.
type dnsCollector struct {
	name, kind, server string
	expect             list
	timeout            time.Duration
	slow               thresholds
}

func (c *dnsCollector) flags(fs *flag.FlagSet) {
	fs.StringVar(&c.name, "name", "", "what to look up")
	fs.StringVar(&c.kind, "type", "A", "A, AAAA, CNAME, MX, NS, TXT or PTR")
	fs.StringVar(&c.server, "server", "", "which server to ask, host or host:port; default that of the system")
	fs.Var(&c.expect, "expect", "answers that must be among those that come")
	fs.DurationVar(&c.timeout, "timeout", 5*time.Second, "longest time to wait")
	c.slow.register(fs, "", "", "", "above so many milliseconds")
}

func (c *dnsCollector) collect(ctx context.Context, r *run) error {
	if c.name == "" {
		return errors.New("--name is required")
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	resolver := net.DefaultResolver
	if c.server != "" {
		server := c.server
		if _, _, err := net.SplitHostPort(server); err != nil {
			server = net.JoinHostPort(server, "53")
		}
		resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, server)
		}}
	}
	begin := time.Now()
	answers, err := c.ask(ctx, resolver)
	took := time.Since(begin)
	p := "dns." + metricName(c.name) + "."
	if err != nil {
		r.metric(p+"up", 0)
		r.fail(Critical, "%s %s: %v", c.kind, c.name, err)
		return nil
	}
	r.metric(p+"up", 1)
	r.metric(p+"time_ms", millis(took))
	r.metric(p+"answers", float64(len(answers)))
	for _, want := range c.expect {
		if !slices.ContainsFunc(answers, func(a string) bool {
			return strings.EqualFold(strings.TrimSuffix(a, "."), strings.TrimSuffix(want, "."))
		}) {
			r.fail(Critical, "%s is not among the answers %s", want, strings.Join(answers, " "))
		}
	}
	r.judge("time", millis(took), "ms", &c.slow, fmt.Sprintf("%s %s is %s, in %s ms", c.kind, c.name, strings.Join(answers, " "), number(millis(took))))
	return nil
}

func (c *dnsCollector) ask(ctx context.Context, resolver *net.Resolver) (answers []string, err error) {
	switch strings.ToUpper(c.kind) {
	case "A", "AAAA":
		network := map[string]string{"A": "ip4", "AAAA": "ip6"}[strings.ToUpper(c.kind)]
		ips, err := resolver.LookupIP(ctx, network, c.name)
		for _, ip := range ips {
			answers = append(answers, ip.String())
		}
		return answers, err
	case "CNAME":
		name, err := resolver.LookupCNAME(ctx, c.name)
		return []string{name}, err
	case "MX":
		all, err := resolver.LookupMX(ctx, c.name)
		for _, mx := range all {
			answers = append(answers, mx.Host)
		}
		return answers, err
	case "NS":
		all, err := resolver.LookupNS(ctx, c.name)
		for _, ns := range all {
			answers = append(answers, ns.Host)
		}
		return answers, err
	case "TXT":
		return resolver.LookupTXT(ctx, c.name)
	case "PTR":
		return resolver.LookupAddr(ctx, c.name)
	}
	return nil, fmt.Errorf("type %q cannot be asked for", c.kind)
}

// pingCollector sends echo requests.
type pingCollector struct {
	host              string
	count             int
	interval, timeout time.Duration
	loss, slow        thresholds
}

func (c *pingCollector) flags(fs *flag.FlagSet) {
	fs.StringVar(&c.host, "host", "", "who is to answer")
	fs.IntVar(&c.count, "count", 3, "requests")
	fs.DurationVar(&c.interval, "interval", 200*time.Millisecond, "time between them")
	fs.DurationVar(&c.timeout, "timeout", 2*time.Second, "longest time to wait for each")
	c.loss.register(fs, "-loss", "20", "60", "above so many percent of them without an answer")
	c.slow.register(fs, "", "", "", "above so many milliseconds on average")
}

func (c *pingCollector) collect(ctx context.Context, r *run) error {
	if c.host == "" || c.count < 1 {
		return errors.New("--host is required, and --count of at least 1")
	}
	ips, err := net.DefaultResolver.LookupIP(ctx, "ip", c.host)
	if err != nil {
		r.fail(Critical, "%s: %v", c.host, err)
		return nil
	}
	e, err := newEcho(ips[0])
	if err != nil {
		return fmt.Errorf("send ICMP: %w (on Linux it needs net.ipv4.ping_group_range or the capability NET_RAW)", err)
	}
	defer e.conn.Close()
	defer context.AfterFunc(ctx, func() { e.conn.Close() })()
	answered := 0
	var total, worst time.Duration
	for n := range c.count {
		if n > 0 {
			timer := time.NewTimer(c.interval)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return ctx.Err()
			}
		}
		took, err := e.ping(n, c.timeout)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			answered++
			total += took
			worst = max(worst, took)
		}
	}
	lost := 100 * float64(c.count-answered) / float64(c.count)
	p := "ping." + metricName(c.host) + "."
	r.metric(p+"loss_percent", lost)
	r.judge("loss", lost, "%", &c.loss, fmt.Sprintf("%s %s%% lost", c.host, number(lost)))
	if answered > 0 {
		mean := millis(total / time.Duration(answered))
		r.metric(p+"time_ms", mean)
		r.metric(p+"time_max_ms", millis(worst))
		r.judge("time", mean, "ms", &c.slow, number(mean)+" ms")
	}
	return nil
}

// echo is a socket for echo requests to one address.
type echo struct {
	conn     *icmp.PacketConn
	to       net.Addr
	ask      icmp.Type
	protocol int
	id       int
	cookie   []byte
}

// newEcho prefers the kind of socket that needs no privileges.
func newEcho(ip net.IP) (*echo, error) {
	e := &echo{id: os.Getpid() & 0xffff, cookie: fmt.Appendf(nil, "lapwing %016x", rand.Uint64())}
	open := func(plain, raw, any string) (err error) {
		e.to = &net.UDPAddr{IP: ip}
		if e.conn, err = icmp.ListenPacket(plain, any); err == nil && runtime.GOOS != "windows" {
			return nil
		}
		e.to = &net.IPAddr{IP: ip}
		e.conn, err = icmp.ListenPacket(raw, any)
		return err
	}
	if ip.To4() != nil {
		e.ask, e.protocol = ipv4.ICMPTypeEcho, 1
		return e, open("udp4", "ip4:icmp", "0.0.0.0")
	}
	e.ask, e.protocol = ipv6.ICMPTypeEchoRequest, 58
	return e, open("udp6", "ip6:ipv6-icmp", "::")
}

func (e *echo) ping(n int, timeout time.Duration) (time.Duration, error) {
	msg, err := (&icmp.Message{Type: e.ask, Body: &icmp.Echo{ID: e.id, Seq: n, Data: e.cookie}}).Marshal(nil)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := e.conn.SetReadDeadline(begin.Add(timeout)); err != nil {
		return 0, err
	}
	if _, err := e.conn.WriteTo(msg, e.to); err != nil {
		return 0, err
	}
	buf := make([]byte, 1500)
	for {
		size, _, err := e.conn.ReadFrom(buf)
		if err != nil {
			return 0, err
		}
		took := time.Since(begin)
		answer, err := icmp.ParseMessage(e.protocol, buf[:size])
		if err != nil || answer.Type == e.ask {
			continue
		}
		// The kernel may have replaced the id; the cookie is ours.
		if body, ok := answer.Body.(*icmp.Echo); ok && body.Seq == n && string(body.Data) == string(e.cookie) {
			return took, nil
		}
	}
}

// certCollector checks when certificates expire.
type certCollector struct {
	addresses, files list
	name             string
	timeout          time.Duration
	days             thresholds
}

func (c *certCollector) flags(fs *flag.FlagSet) {
	fs.Var(&c.addresses, "address", "servers, such as example.com:443")
	fs.Var(&c.files, "file", "PEM files, or patterns")
	fs.StringVar(&c.name, "server-name", "", "name to ask servers for; default their own")
	fs.DurationVar(&c.timeout, "timeout", 10*time.Second, "longest time to wait for each server")
	c.days.register(fs, "", "30", "7", "below so many days")
	c.days.lower()
}

func (c *certCollector) collect(ctx context.Context, r *run) error {
	if len(c.addresses)+len(c.files) == 0 {
		return errors.New("--address or --file is required")
	}
	for _, address := range c.addresses {
		chain, err := c.fetch(ctx, address)
		if err != nil {
			r.fail(Critical, "%s: %v", address, err)
			continue
		}
		c.judge(r, address, chain)
	}
	for _, pattern := range c.files {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return fmt.Errorf("--file %s: %w", pattern, err)
		}
		if len(paths) == 0 {
			r.fail(Critical, "%s is not there", pattern)
		}
		for _, path := range paths {
			b, err := os.ReadFile(path)
			if err != nil {
				r.fail(Critical, "%v", err)
				continue
			}
			chain, err := certificates(b)
			if err != nil {
				r.fail(Critical, "%s: %v", path, err)
				continue
			}
			c.judge(r, path, chain)
		}
	}
	return nil
}

// fetch gets a server's certificates without verifying them, so that expired ones can be reported.
func (c *certCollector) fetch(ctx context.Context, address string) ([]*x509.Certificate, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host, address = address, net.JoinHostPort(address, "443")
	}
	if c.name != "" {
		host = c.name
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	d := tls.Dialer{Config: &tls.Config{ServerName: host, InsecureSkipVerify: true}}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates, nil
}

func certificates(b []byte) (chain []*x509.Certificate, err error) {
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		one, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		chain = append(chain, one)
	}
	if len(chain) == 0 {
		return nil, errors.New("there is no certificate in it")
	}
	return chain, nil
}

// judge reports the certificate of a chain that expires first.
func (c *certCollector) judge(r *run, what string, chain []*x509.Certificate) {
	first := slices.MinFunc(chain, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	days := first.NotAfter.Sub(r.now).Hours() / 24
	r.metric("cert."+metricName(what)+".days", days)
	text := fmt.Sprintf("%s (%s) expires in %s days", what, first.Subject.CommonName, number(days))
	switch {
	case days < 0:
		r.fail(Critical, "%s (%s) expired %s days ago", what, first.Subject.CommonName, number(-days))
		r.perf = append(r.perf, fmt.Sprintf("%s=%s", what, number(days)))
	case first.NotBefore.After(r.now):
		r.fail(Critical, "%s (%s) is valid only from %s on", what, first.Subject.CommonName, first.NotBefore.Format(time.RFC3339))
	default:
		r.judge(what, days, "", &c.days, text)
	}
}
