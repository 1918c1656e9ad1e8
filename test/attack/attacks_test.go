//go:build attack

package attack

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// bombs are expressions that ended the process or kept a core busy.
var bombs = map[string]string{
	"nested eval":         `eval('('.repeat(1000000))`,
	"Function":            `Function('return ' + '('.repeat(1000000))()`,
	"constructor":         `(function(){}).constructor('return ' + '['.repeat(1000000))()`,
	"generator function":  `(function*(){}).constructor('yield ' + '('.repeat(1000000))()`,
	"BigInt shift":        `BigInt(1) << BigInt(8e10)`,
	"BigInt asUintN":      `BigInt.asUintN(1e15, -1n)`,
	"String.raw":          `String.raw({raw: {length: 1e15}})`,
	"endless delegation":  `(function(){ function* g(){ yield* g() } for (const x of g()) {} })()`,
	"endless loop":        `(function(){ for(;;){} })()`,
	"deep recursion":      `(function f(){ return f() + 1 })()`,
	"array of a billion":  `new Array(1e9).fill(0).length`,
	"repeat":              `'x'.repeat(1e9).length > 0`,
	"join":                `new Array(1e8).join('xxxxxxxxxx').length`,
	"large throw":         `(function(){ throw 'x'.repeat(1 << 20) })()`,
	"exponential pattern": `/^(a+)+$/.test('a'.repeat(40) + 'b')`,
}

var attacks = []attack{
	{"22 filters that users write", filterBombs},
	{"22 entity_attributes", attributeBombs},
	{"23 long names through the API", longNames},
	{"23 long name through the agent's local API", localLongName},
	{"25 user names of 700 kB", longUsers},
	{"25 headers of 900 kB", longHeaders},
	{"26 200 connections with invented users", inventedUsers},
	{"26 guesses at the agents' port", agentGuesses},
	{"27 requests that are logged", logFlood},
	{"28 idle connections and partial messages", partialMessages},
	{"28 messages of 60 kB from 300 agents", largeMessages(300, 60_000)},
	{"28 messages of 7 kB from 300 agents", largeMessages(300, 7_000)},
	{"28 messages of 1 MB from 30 agents", largeMessages(30, 1_000_000)},
	{"28 300 unfinished messages of 1 MB", unfinishedMessages},
	{"29 a label that becomes a command", labelCommand},
	{"30 agents' credentials at the API", agentCredentials},
	{"30 another agent's keepalive", forgedKeepalive},
	{"32 secrets of handlers", handlerSecrets},
	{"32 password_file", passwordFile},
	{"32 API key of another user", otherKey},
	{"33 prune without credentials", largePrune},
	{"33 TTL that overflows", largeTTL},
	{"33 60 proxies of 3.9 MB", largeProxies},
	{"34 StatsD sets", statsdSets},
	{"34 cached tokens", cachedTokens},
}

func filterBombs(_ context.Context, b *bed, wrong func(string, ...any)) string {
	n := 0
	for name, expression := range bombs {
		id := strings.ReplaceAll(name, " ", "-")
		b.put("/api/core/v2/namespaces/default/filters/"+id, fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"default"},"action":"allow","expressions":[%q]}`, id, expression))
		b.put("/api/core/v2/namespaces/default/handlers/"+id, fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"default"},"type":"pipe","command":"cat","filters":[%q]}`, id, id))
		for i := range 4 { // the fourth comes after three workers have died
			b.post("/api/core/v2/namespaces/default/events", fmt.Sprintf(`{"entity":{"metadata":{"name":"bomb","namespace":"default"},"entity_class":"proxy"},
				"check":{"metadata":{"name":%q,"namespace":"default"},"status":2,"output":"%d","handlers":[%q]}}`, id, i, id))
			n++
		}
		if done := b.handled(id, 4); !b.alive() {
			wrong("the backend died of the expression %q", name)
			b.startBackend()
		} else if !done {
			wrong("the expression %q holds up its handler", name)
		}
	}
	for name := range bombs {
		id := strings.ReplaceAll(name, " ", "-")
		b.call(b.token, "DELETE", "/api/core/v2/namespaces/default/handlers/"+id, nil)
		b.call(b.token, "DELETE", "/api/core/v2/namespaces/default/filters/"+id, nil)
	}
	return fmt.Sprintf("%d events through %d expressions", n, len(bombs))
}

func attributeBombs(_ context.Context, b *bed, wrong func(string, ...any)) string {
	n := 0
	b.post("/api/core/v2/namespaces/default/events", `{"entity":{"metadata":{"name":"target","namespace":"default"},"entity_class":"proxy"},
		"check":{"metadata":{"name":"c","namespace":"default"}}}`)
	asked := func() float64 {
		return b.metric("lapwing_expression_questions_total", "") + b.metric("lapwing_schedule_proxy_errors_total", "")
	}
	for name, expression := range bombs {
		before := asked()
		id := "proxy-" + strings.ReplaceAll(name, " ", "-")
		b.put("/api/core/v2/namespaces/default/checks/"+id, fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"default"},"command":"true","interval":1,"publish":true,
			"subscriptions":["none"],"proxy_requests":{"entity_attributes":[%q]}}`, id, expression))
		n++
		ran := b.eventually(func() bool { return asked() > before || !b.alive() })
		b.call(b.token, "DELETE", "/api/core/v2/namespaces/default/checks/"+id, nil)
		if !b.alive() {
			wrong("the backend died of the expression %q", name)
			b.startBackend()
			b.call(b.token, "DELETE", "/api/core/v2/namespaces/default/checks/"+id, nil)
		} else if !ran {
			wrong("the expression %q was asked of no entity, so nothing was tried", name)
		}
	}
	return fmt.Sprintf("%d checks", n)
}

func longNames(_ context.Context, b *bed, wrong func(string, ...any)) string {
	name := strings.Repeat("n", 4000)
	got := map[string]string{}
	try := func(what, method, path, body string) {
		a := b.call(b.token, method, path, strings.NewReader(body))
		got[what] = a.String()
		if a.err != nil || a.status < 400 || a.status >= 500 {
			wrong("%s with a name of 4,000 bytes: %s", what, a)
		}
	}
	meta := `"metadata":{"name":"` + name + `","namespace":"default"}`
	try("event", "POST", "/api/core/v2/namespaces/default/events", `{"entity":{`+meta+`,"entity_class":"proxy"},"check":{"metadata":{"name":"c","namespace":"default"}}}`)
	try("event of check", "POST", "/api/core/v2/namespaces/default/events", `{"entity":{"metadata":{"name":"e","namespace":"default"},"entity_class":"proxy"},"check":{`+meta+`}}`)
	try("check", "PUT", "/api/core/v2/namespaces/default/checks/"+name, `{`+meta+`,"command":"true","interval":60,"subscriptions":["x"]}`)
	try("user", "PUT", "/api/core/v2/users/"+name, `{"username":"`+name+`","password":"P@ssw0rd!"}`)
	try("namespace", "PUT", "/api/core/v2/namespaces/"+name, `{"name":"`+name+`"}`)
	try("silence", "POST", "/api/core/v2/namespaces/default/silenced", `{"metadata":{"namespace":"default"},"subscription":"`+name+`"}`)
	try("entity", "PUT", "/api/core/v2/namespaces/default/entities/"+name, `{`+meta+`,"entity_class":"proxy"}`)
	conn, err := dialAgent(b, "intruder", nil)
	if err != nil {
		return "no agent's connection: " + err.Error()
	}
	defer conn.Close(wire.CloseGoingAway, "")
	_ = conn.Write(eventFrame(name, "c", nil))
	_ = conn.Write(eventFrame("intruder", name, nil))
	if !b.follows(conn, "after-long-names") {
		wrong("the session takes nothing after the long names")
	}
	return fmt.Sprint(got)
}

func localLongName(_ context.Context, b *bed, wrong func(string, ...any)) string {
	body := `{"entity":{"metadata":{"name":"` + strings.Repeat("n", 4000) + `"}},"check":{"metadata":{"name":"c"},"output":"x"}}`
	do := func(header http.Header) answer {
		req, _ := http.NewRequest("POST", "http://"+b.local+"/events", strings.NewReader(body))
		for k, v := range header {
			req.Header[k] = v
			if k == "Host" {
				req.Host = v[0]
			}
		}
		return send(req)
	}
	direct := do(http.Header{"Content-Type": {"application/json"}})
	body = `{"check":{"metadata":{"name":"crossed"},"output":"x","status":2}}`
	crossed := do(http.Header{"Content-Type": {"text/plain"}, "Origin": {"http://evil.example"}, "Sec-Fetch-Site": {"cross-site"}})
	rebound := do(http.Header{"Content-Type": {"application/json"}, "Host": {"evil.example"}})
	for what, a := range map[string]answer{"a name of 4,000 bytes": direct, "a page of another site": crossed, "another Host": rebound} {
		if a.err != nil || a.status < 400 {
			wrong("the agent's API takes an event with %s: %s", what, a)
		}
	}
	// The agent sends its events in order: when this one is there, the others would be.
	body = `{"check":{"metadata":{"name":"follows"},"output":"x","status":0}}`
	if own := do(http.Header{"Content-Type": {"application/json"}}); own.err != nil || own.status >= 300 {
		wrong("the agent's API refuses an event of its host: %s", own)
	} else if !b.eventually(func() bool { return b.has("healthy", "follows") }) {
		wrong("the agent's events do not arrive any more")
	} else if b.has("healthy", "crossed") {
		wrong("an event of another site's page arrives")
	}
	return fmt.Sprintf("long %s, cross-site %s, other host %s", direct, crossed, rebound)
}

// inParallel runs f n times, on so many goroutines, until ctx ends.
func inParallel(ctx context.Context, goroutines, n int, f func(i int)) {
	var next atomic.Int64
	var running sync.WaitGroup
	for range goroutines {
		running.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				f(i)
			}
		})
	}
	running.Wait()
}

// tally counts answers by status.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func (t *tally) add(a answer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[string]int{}
	}
	t.counts[a.String()]++
}

func (t *tally) String() string { return strings.TrimPrefix(fmt.Sprint(t.counts), "map") }

func longUsers(ctx context.Context, b *bed, _ func(string, ...any)) string {
	var got tally
	inParallel(ctx, 50, 2000, func(i int) {
		req, _ := http.NewRequest("GET", "http://"+b.api+"/auth", nil)
		req.SetBasicAuth(fmt.Sprint(i)+strings.Repeat("u", 700_000), "x")
		got.add(send(req))
	})
	return got.String()
}

func longHeaders(ctx context.Context, b *bed, wrong func(string, ...any)) string {
	var mu sync.Mutex
	var conns []net.Conn
	header := []byte("GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + strings.Repeat("h", 900_000))
	inParallel(ctx, 50, 2000, func(i int) {
		address := b.api
		if i%2 == 1 {
			address = b.agents
		}
		conn, err := net.DialTimeout("tcp", address, 5*time.Second)
		if err != nil {
			return
		}
		_ = conn.SetWriteDeadline(time.Now().Add(5 * time.Second))
		_, _ = conn.Write(header)
		mu.Lock()
		conns = append(conns, conn)
		mu.Unlock()
	})
	open, deadline := 0, time.Now().Add(recovery)
	for _, c := range conns {
		_ = c.SetReadDeadline(deadline)
		if _, err := io.Copy(io.Discard, c); os.IsTimeout(err) {
			open++
		}
		c.Close()
	}
	if open > 0 {
		wrong("%d connections with headers that never end stay open", open)
	}
	return fmt.Sprintf("%d connections", len(conns))
}

func inventedUsers(ctx context.Context, b *bed, wrong func(string, ...any)) string {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var got tally
	var right, refused atomic.Int64
	var signing sync.WaitGroup
	signing.Go(func() {
		for ctx.Err() == nil {
			if b.signIn("admin", password) != "" {
				right.Add(1)
			} else {
				refused.Add(1)
			}
			time.Sleep(200 * time.Millisecond) // how often the user signs in
		}
	})
	inParallel(ctx, 200, 1<<30, func(i int) {
		req, _ := http.NewRequest("GET", "http://"+b.api+"/auth", nil)
		req.SetBasicAuth(fmt.Sprint("user", i), "guess")
		got.add(send(req))
	})
	signing.Wait()
	if refused.Load() > 0 || right.Load() == 0 {
		wrong("the right password was refused %d times of %d", refused.Load(), refused.Load()+right.Load())
	}
	return fmt.Sprintf("%s; the right password signed in %d times, was refused %d times", got.String(), right.Load(), refused.Load())
}

func agentGuesses(ctx context.Context, b *bed, wrong func(string, ...any)) string {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var guesses, right, refused atomic.Int64
	var signing sync.WaitGroup
	signing.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			conn, err := dialAgent(b, fmt.Sprint("right-", i%3), nil)
			if err != nil {
				refused.Add(1)
			} else {
				right.Add(1)
				_ = conn.Close(wire.CloseGoingAway, "")
			}
			time.Sleep(200 * time.Millisecond) // how often an agent connects
		}
	})
	inParallel(ctx, 100, 20_000, func(i int) {
		_, _ = dialAgentAs(ctx, b, fmt.Sprint("guess-", i), "agent", fmt.Sprint("guess", i), nil)
		guesses.Add(1)
	})
	signing.Wait()
	if refused.Load() > 0 || right.Load() == 0 {
		wrong("the right password was refused %d times of %d at the agents' port", refused.Load(), refused.Load()+right.Load())
	}
	return fmt.Sprintf("%d guesses; right %d, refused %d", guesses.Load(), right.Load(), refused.Load())
}

func logFlood(ctx context.Context, b *bed, wrong func(string, ...any)) string {
	before := b.logSize()
	var got tally
	inParallel(ctx, 20, 400, func(i int) {
		req, _ := http.NewRequest("GET", "http://"+b.api+"/auth", nil)
		req.SetBasicAuth(strings.Repeat("u", 250)+fmt.Sprint(i), "x")
		req.Header.Set("X-Forwarded-For", strings.Repeat("f", 30_000))
		req.Header.Set("User-Agent", strings.Repeat("a", 20_000))
		got.add(send(req))
		big, _ := http.NewRequest("GET", "http://"+b.api+"/auth", nil)
		big.SetBasicAuth(strings.Repeat("u", 590_000)+fmt.Sprint(i), "x")
		got.add(send(big))
	})
	time.Sleep(time.Second) // too short a time can miss late lines, but cannot cause any
	if n := b.logSize() - before; n > 1<<20 {
		wrong("%d requests wrote %d MiB of log", 800, n>>20)
	}
	return got.String()
}

func partialMessages(ctx context.Context, b *bed, wrong func(string, ...any)) string {
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for range 500 { // nothing is ever sent on these
		if c, err := net.DialTimeout("tcp", b.agents, 5*time.Second); err == nil {
			conns = append(conns, c)
		}
	}
	half := bytes.Repeat([]byte{0}, 3<<20)
	started := 0
	for i := range 200 {
		c, err := rawAgent(b, fmt.Sprint("partial-", i))
		if err != nil {
			continue
		}
		conns = append(conns, c)
		// A frame of 4 MB of which 3 MB come.
		_ = c.SetWriteDeadline(time.Now().Add(5 * time.Second))
		if _, err := c.Write([]byte{0x82, 0xff, 0, 0, 0, 0, 0, 0x3d, 0x09, 0x00, 0, 0, 0, 0}); err == nil {
			_, _ = c.Write(half)
			started++
		}
		if ctx.Err() != nil {
			break
		}
	}
	peak := memory(b.backend.Process.Pid)
	if peak > 1<<30 {
		wrong("%d partial messages hold %d MiB", started, peak>>20)
	}
	closed := 0
	deadline := time.Now().Add(30 * time.Second)
	for _, c := range conns[:min(500, len(conns))] {
		_ = c.SetReadDeadline(deadline)
		if _, err := c.Read(make([]byte, 512)); err != nil && !os.IsTimeout(err) {
			closed++
		}
	}
	if closed == 0 {
		wrong("idle connections are never closed")
	}
	return fmt.Sprintf("%d partial messages, RSS %d MiB; %d of %d idle connections closed within 30 s", started, peak>>20, closed, min(500, len(conns)))
}

// largeMessages has connections with the agents' password send valid events of so many bytes without a pause.
func largeMessages(conns, size int) func(context.Context, *bed, func(string, ...any)) string {
	return func(ctx context.Context, b *bed, wrong func(string, ...any)) string {
		return sendLarge(ctx, b, conns, size, wrong)
	}
}

func sendLarge(ctx context.Context, b *bed, conns, size int, wrong func(string, ...any)) string {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var sent atomic.Int64
	var peak int64
	var all sync.WaitGroup
	for i := range conns {
		name := fmt.Sprint("large-", i)
		conn, err := dialAgent(b, name, nil)
		if err != nil {
			return err.Error()
		}
		frame := largeFrame(name, size)
		all.Go(func() {
			for conn.Write(frame) == nil {
				sent.Add(1)
			}
		})
		context.AfterFunc(ctx, func() { conn.Close(wire.CloseGoingAway, "") })
	}
	for ctx.Err() == nil {
		peak = max(peak, memory(b.backend.Process.Pid))
		time.Sleep(100 * time.Millisecond) // between two reads of the memory, until the attack ends
	}
	all.Wait()
	if peak > memoryLimit*3/2 {
		wrong("the backend has %d MiB", peak>>20)
	}
	return fmt.Sprintf("%d MB in 20 s", sent.Load()*int64(size)/1_000_000)
}

// unfinishedMessages has 300 connections with the agents' password begin a message of 1 MB and leave it unfinished.
func unfinishedMessages(ctx context.Context, b *bed, _ func(string, ...any)) string {
	started := 0
	for i := range 300 {
		conn, err := rawAgent(b, fmt.Sprint("unfinished-", i))
		if err != nil {
			continue
		}
		defer conn.Close()
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = conn.Write([]byte{0x82, 0xff, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0}) // 1 MiB, masked with zeros
		if _, err := conn.Write(make([]byte, 1<<20-1)); err == nil {
			started++
		}
	}
	select {
	case <-time.After(10 * time.Second):
	case <-ctx.Done():
	}
	return fmt.Sprintf("%d messages lack a byte for 10 s", started)
}

func labelCommand(_ context.Context, b *bed, wrong func(string, ...any)) string {
	proof := filepath.Join(b.dir, "pwned")
	b.put("/api/core/v2/namespaces/default/checks/http", `{"metadata":{"name":"http","namespace":"default"},"command":"echo checking {{ .labels.url | default \"none\" }}","interval":1,
		"subscriptions":["healthy"],"publish":true,"proxy_requests":{"entity_attributes":["entity.entity_class == 'proxy' && entity.name.indexOf('site-') == 0"]}}`)
	conn, err := dialAgent(b, "intruder", nil)
	if err != nil {
		return err.Error()
	}
	defer conn.Close(wire.CloseGoingAway, "")
	_ = conn.Write(eventFrame("site-1", "made", map[string]string{"url": "x; touch " + proof}))
	ran := b.eventually(func() bool {
		return b.call(b.token, "GET", "/api/core/v2/namespaces/default/events/site-1/http", nil).status == 200
	})
	b.call(b.token, "DELETE", "/api/core/v2/namespaces/default/checks/http", nil)
	if _, err := os.Stat(proof); err == nil {
		wrong("a label of one agent's event ran as a command on another host")
		return "ran"
	}
	if !ran {
		wrong("the check did not run for the proxy entity, so nothing was tried")
	}
	return "the check ran without the label"
}

func agentCredentials(_ context.Context, b *bed, wrong func(string, ...any)) string {
	token := b.signIn("agent", password)
	list := b.call(token, "GET", "/api/core/v2/namespaces/default/events", nil)
	gone := b.call(token, "DELETE", "/api/core/v2/namespaces/default/events/after/after", nil)
	if list.status == 200 || gone.status < 300 {
		wrong("agents' credentials list (%s) and delete (%s) events", list, gone)
	}
	return fmt.Sprintf("list %s, delete %s", list, gone)
}

func forgedKeepalive(_ context.Context, b *bed, wrong func(string, ...any)) string {
	conn, err := dialAgent(b, "intruder", nil)
	if err != nil {
		return err.Error()
	}
	defer conn.Close(wire.CloseGoingAway, "")
	// An event of the healthy agent's check, through the intruder's session.
	ev := resource.Event{
		Timestamp: time.Now().Unix(), ID: resource.NewEventID(), Sequence: 1,
		Entity: &resource.Entity{EntityClass: resource.EntityAgentClass, Metadata: resource.ObjectMeta{Name: "healthy", Namespace: "default"}},
		Check:  &resource.Check{Metadata: resource.ObjectMeta{Name: "forged", Namespace: "default"}, Status: 2, Interval: 10, Executed: time.Now().Unix()},
	}
	frame, err := wire.Append(nil, wire.TypeEvent, wire.Protobuf, &ev)
	if err != nil {
		return err.Error()
	}
	_ = conn.Write(frame)
	if !b.follows(conn, "after-forgery") {
		wrong("the session takes nothing after the forged event")
	}
	a := b.call(b.token, "GET", "/api/core/v2/namespaces/default/events/healthy/forged", nil)
	if a.status == 200 {
		wrong("a session reports for another agent's entity")
	}
	return "the forged event: " + a.String()
}

func handlerSecrets(_ context.Context, b *bed, wrong func(string, ...any)) string {
	b.put("/api/core/v2/namespaces/default/handlers/hook", `{"metadata":{"name":"hook","namespace":"default"},"type":"webhook","webhook":{"url":"http://127.0.0.1:1/hook","headers":{"Authorization":"Bearer topsecret"}}}`)
	b.put("/api/core/v2/users/reader", `{"username":"reader","password":"P@ssw0rd!","groups":["readers"]}`)
	b.put("/api/core/v2/clusterrolebindings/readers", `{"metadata":{"name":"readers"},"role_ref":{"type":"ClusterRole","name":"view"},"subjects":[{"type":"Group","name":"readers"}]}`)
	a := b.call(b.newUser("reader", wrong), "GET", "/api/core/v2/namespaces/default/handlers/hook", nil)
	if a.status != http.StatusOK {
		wrong("the reader cannot look at the handler")
	}
	if strings.Contains(string(a.body), "topsecret") {
		wrong("the role view reads a handler's secret")
		return "read"
	}
	return "not shown (" + a.String() + ")"
}

func passwordFile(_ context.Context, b *bed, wrong func(string, ...any)) string {
	var got atomic.Value
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got.Store(r.Header.Get("Authorization") + string(body))
	}))
	defer srv.Close()
	def := b.put("/api/core/v2/namespaces/default/handlers/thief", `{"metadata":{"name":"thief","namespace":"default"},"type":"webhook","webhook":{"url":"`+srv.URL+`","username":"u","password_file":"/etc/passwd","body":"x"}}`)
	b.post("/api/core/v2/namespaces/default/events", `{"entity":{"metadata":{"name":"thief","namespace":"default"},"entity_class":"proxy"},
		"check":{"metadata":{"name":"thief","namespace":"default"},"status":2,"handlers":["thief"]}}`)
	if def.status < 300 && !b.handled("thief", 1) {
		wrong("the handler does not end")
	}
	b.call(b.token, "DELETE", "/api/core/v2/namespaces/default/handlers/thief", nil)
	text, _ := got.Load().(string)
	_, encoded, _ := strings.Cut(text, "Basic ")
	plain, _ := base64.StdEncoding.DecodeString(strings.TrimSuffix(encoded, "x"))
	if strings.Contains(text, "root:") || strings.Contains(string(plain), "root:") {
		wrong("/etc/passwd arrives at a webhook")
		return "arrived"
	}
	return "did not arrive; definition " + def.String()
}

func otherKey(_ context.Context, b *bed, wrong func(string, ...any)) string {
	b.put("/api/core/v2/users/keymaker", `{"username":"keymaker","password":"P@ssw0rd!","groups":["keymakers"]}`)
	b.put("/api/core/v2/clusterroles/keymakers", `{"metadata":{"name":"keymakers"},"rules":[{"verbs":["create","get","list"],"resources":["apikeys"]}]}`)
	b.put("/api/core/v2/clusterrolebindings/keymakers", `{"metadata":{"name":"keymakers"},"role_ref":{"type":"ClusterRole","name":"keymakers"},"subjects":[{"type":"Group","name":"keymakers"}]}`)
	a := b.call(b.newUser("keymaker", wrong), "POST", "/api/core/v2/apikeys", strings.NewReader(`{"username":"admin"}`))
	if a.status < 300 {
		wrong("who may make API keys makes the administrator's")
	}
	return a.String()
}

func largePrune(ctx context.Context, b *bed, wrong func(string, ...any)) string {
	var got tally
	body := []byte(`{"resources":[` + strings.Repeat(`{"type":"CheckConfig","api_version":"core/v2","metadata":{"name":"a","namespace":"default"},"spec":{}},`, 400_000))
	body = append(body[:len(body)-1], "]}"...)
	before := memory(b.backend.Process.Pid)
	inParallel(ctx, 6, 6, func(int) {
		got.add(b.call(b.signIn("agent", password), "POST", "/api/enterprise/prune/v1alpha?types=checks&namespaces=default", bytes.NewReader(body)))
	})
	if grown := memory(b.backend.Process.Pid) - before; grown > 1<<30 {
		wrong("six requests take %d MiB", grown>>20)
	}
	return fmt.Sprintf("6 × %d MB: %s", len(body)>>20, got.String())
}

func largeTTL(_ context.Context, b *bed, wrong func(string, ...any)) string {
	var got tally
	for i := range 40 {
		got.add(b.post("/api/core/v2/namespaces/default/events", fmt.Sprintf(`{"entity":{"metadata":{"name":"ttl","namespace":"default"},"entity_class":"proxy"},
			"check":{"metadata":{"name":"ttl-%d","namespace":"default"},"status":0,"ttl":9223372036854776,"interval":10}}`, i)))
	}
	// A TTL that has passed already fails before one that is yet to pass.
	b.post("/api/core/v2/namespaces/default/events", `{"entity":{"metadata":{"name":"ttl-witness","namespace":"default"},"entity_class":"proxy"},
		"check":{"metadata":{"name":"short","namespace":"default"},"status":0,"ttl":5,"interval":1}}`)
	missed := func(entity string) int {
		a := b.call(b.token, "GET", "/api/core/v2/namespaces/default/events/"+entity, nil)
		return strings.Count(string(a.body), "Last check execution was")
	}
	if !b.eventually(func() bool { return missed("ttl-witness") > 0 }) {
		wrong("no TTL fails")
	}
	if n := missed("ttl"); n > 0 {
		wrong("%d false incidents", n)
	}
	return got.String()
}

func largeProxies(_ context.Context, b *bed, wrong func(string, ...any)) string {
	conn, err := dialAgent(b, "intruder", nil)
	if err != nil {
		return err.Error()
	}
	defer conn.Close(wire.CloseGoingAway, "")
	sent := 0
	for i := range 60 {
		ev := resource.Event{
			Timestamp: time.Now().Unix(), ID: resource.NewEventID(), Sequence: 1,
			Entity: &resource.Entity{EntityClass: resource.EntityProxyClass, Metadata: resource.ObjectMeta{Name: fmt.Sprint("large-proxy-", i), Namespace: "default"}},
			Check: &resource.Check{Metadata: resource.ObjectMeta{Name: "c", Namespace: "default"}, Interval: 10, Executed: time.Now().Unix(),
				Output: strings.Repeat("x", 3_900_000)},
		}
		frame, err := wire.Append(nil, wire.TypeEvent, wire.Protobuf, &ev)
		if err != nil || conn.Write(frame) != nil {
			break
		}
		sent++
	}
	if !b.follows(conn, "after-large") {
		wrong("the session takes nothing after the large events")
	}
	made, taken := 0, 0
	for i := range 60 {
		if b.call(b.token, "GET", fmt.Sprint("/api/core/v2/namespaces/default/entities/large-proxy-", i), nil).status == 200 {
			made++
		}
		if b.call(b.token, "GET", fmt.Sprintf("/api/core/v2/namespaces/default/events/large-proxy-%d/c", i), nil).status == 200 {
			taken++
		}
	}
	if taken == 0 {
		wrong("no event was taken, so the quota was not tried")
	}
	if taken > 34 { // --agent-quota-bytes is 128 MiB
		wrong("%d proxies with events of 3.9 MB each are taken from one agent", taken)
	}
	return fmt.Sprintf("%d sent, %d entities made, %d events taken", sent, made, taken)
}

func statsdSets(_ context.Context, b *bed, wrong func(string, ...any)) string {
	conn, err := net.Dial("udp", b.statsd)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	before := memory(b.agent.Process.Pid)
	for i := range 10_000 {
		_, _ = fmt.Fprintf(conn, "set:%d%s|s", i, strings.Repeat("m", 60_000))
		if i%100 == 0 {
			time.Sleep(5 * time.Millisecond) // or the system drops most
		}
	}
	grown := memory(b.agent.Process.Pid) - before
	if grown > 128<<20 {
		wrong("the agent grew by %d MiB", grown>>20)
	}
	return fmt.Sprintf("10,000 members of 60 kB; the agent grew by %d MiB", max(0, grown)>>20)
}

func cachedTokens(_ context.Context, b *bed, wrong func(string, ...any)) string {
	req, _ := http.NewRequest("GET", "http://"+b.api+"/auth", nil)
	req.SetBasicAuth("admin", password)
	a := send(req)
	if a.header.Get("Cache-Control") != "no-store" {
		wrong("tokens come with Cache-Control %q", a.header.Get("Cache-Control"))
	}
	return "Cache-Control: " + a.header.Get("Cache-Control")
}

func agentHeader(name, user, secret string) http.Header {
	return http.Header{
		wire.HeaderAgentName: {name}, wire.HeaderNamespace: {"default"}, wire.HeaderUser: {user}, wire.HeaderSubscriptions: {"intruders"},
		"Accept":        {wire.ContentType(wire.Protobuf)},
		"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+secret))},
	}
}

func dialAgent(b *bed, name string, extra http.Header) (*wire.Conn, error) {
	return dialAgentAs(context.Background(), b, name, "agent", password, extra)
}

func dialAgentAs(ctx context.Context, b *bed, name, user, secret string, extra http.Header) (*wire.Conn, error) {
	h := agentHeader(name, user, secret)
	for k, v := range extra {
		h[k] = v
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, _, err := wire.Dial(ctx, "ws://"+b.agents, h, wire.DialOptions{})
	return conn, err
}

// rawAgent makes an agent's handshake and returns the bare connection.
func rawAgent(b *bed, name string) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", b.agents, 5*time.Second)
	if err != nil {
		return nil, err
	}
	var req strings.Builder
	fmt.Fprintf(&req, "GET / HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", b.agents)
	for k, v := range agentHeader(name, "agent", password) {
		fmt.Fprintf(&req, "%s: %s\r\n", k, v[0])
	}
	req.WriteString("\r\n")
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(conn, req.String()); err != nil {
		conn.Close()
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		conn.Close()
		return nil, errNoConnection
	}
	_ = conn.SetDeadline(time.Time{})
	return conn, nil
}

// largeFrame is a result of so many bytes for the agent's own entity.
func largeFrame(agent string, size int) []byte {
	now := time.Now().Unix()
	ev := resource.Event{
		Timestamp: now, ID: resource.NewEventID(), Sequence: 1,
		Entity: &resource.Entity{EntityClass: resource.EntityAgentClass, Metadata: resource.ObjectMeta{Name: agent, Namespace: "default"}},
		Check: &resource.Check{
			Metadata: resource.ObjectMeta{Name: "c", Namespace: "default"}, Interval: 10, Executed: now, Output: strings.Repeat("x", size),
		},
	}
	frame, err := wire.Append(nil, wire.TypeEvent, wire.Protobuf, &ev)
	if err != nil {
		panic(err)
	}
	return frame
}

// eventFrame is a result as an agent sends it; its entity is a proxy with the labels.
func eventFrame(entity, check string, labels map[string]string) []byte {
	now := time.Now().Unix()
	ev := resource.Event{
		Timestamp: now, ID: resource.NewEventID(), Sequence: 1,
		Entity: &resource.Entity{EntityClass: resource.EntityProxyClass, Metadata: resource.ObjectMeta{Name: entity, Namespace: "default", Labels: labels}},
		Check:  &resource.Check{Metadata: resource.ObjectMeta{Name: check, Namespace: "default"}, Interval: 10, Executed: now, Output: "x"},
	}
	frame, err := wire.Append(nil, wire.TypeEvent, wire.Protobuf, &ev)
	if err != nil {
		panic(err)
	}
	return frame
}
