package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

const (
	syncTime    = 10 * time.Second       // for an event to be stored
	defaultWait = 5 * time.Second        // for the awaited effect of a step
	settleTime  = 300 * time.Millisecond // for the last change of a document, and for an unexpected delivery
	pollEvery   = 15 * time.Millisecond
	keepalive   = "keepalive"
)

// player plays one sequence.
type player struct {
	ctx     context.Context
	target  *Target
	seq     *Sequence
	ns      string
	dir     string
	begin   time.Time
	events  int // number of results sent so far
	agents  map[string]*connection
	earlier []*connection // of agents that connected again
	// keepalives are the numbers of the agents' newest keepalives. A new connection of an agent goes on counting: its first
	// keepalive must not be taken for an earlier one.
	keepalives map[string]int
	sinks      map[string]*sink
	result     *Result
}

func play(ctx context.Context, t *Target, s *Sequence, dir string) *Result {
	p := &player{
		ctx: ctx, target: t, seq: s, ns: t.namespaceOf(s), dir: filepath.Join(dir, s.Name), begin: time.Now(),
		agents: map[string]*connection{}, keepalives: map[string]int{}, sinks: map[string]*sink{}, result: &Result{Sequence: s},
	}
	defer func() {
		for _, a := range slices.AppendSeq(p.earlier, maps.Values(p.agents)) {
			a.close()
		}
		for _, k := range p.sinks {
			k.close()
		}
		p.result.Took = time.Since(p.begin)
	}()
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		p.fail("0", "directory", "made", err.Error())
		return p.result
	}
	if s.Agent != nil {
		a := *s.Agent
		a.Register = true
		if err := p.connect("0", &a); err != nil {
			p.fail("0", "agent", "connected", err.Error())
			return p.result
		}
	}
	for i := range s.Steps {
		if err := p.step(strconv.Itoa(i+1), &s.Steps[i]); err != nil {
			p.fail(strconv.Itoa(i+1), "step", "done", err.Error())
			return p.result
		}
	}
	_ = pause(ctx, settleTime*t.Patience)
	for _, name := range slices.Sorted(maps.Keys(p.sinks)) {
		if rest := p.sinks[name].take(-1); len(rest) > 0 {
			p.fail("end", "deliveries to "+name, "no more", p.brief(rest))
		}
	}
	return p.result
}

func (p *player) fail(step, field, want, got string) {
	p.result.Problems = append(p.result.Problems, Problem{p.seq.Name, step, field, want, got})
}

func (p *player) record(step, what string, doc any) {
	p.result.Records = append(p.result.Records, Record{step, what, doc})
}

// step does one step. An error ends the sequence; a deviation from an expectation is noted.
func (p *player) step(n string, s *Step) error {
	if s.Table == nil {
		p.result.Steps++
	}
	switch {
	case s.Agent != nil:
		if err := p.connect(n, s.Agent); err != nil {
			return err
		}
		if s.Agent.Refused != 0 {
			p.result.Checked++
		}
	case s.Close != "":
		p.agents[s.Close].close()
		delete(p.agents, s.Close)
	case s.Closed != "":
		p.result.Checked++
		select {
		case <-p.agents[s.Closed].done:
		case <-time.After(p.within(s)):
			p.fail(n, "connection of "+s.Closed, "closed", "open")
		}
	case s.Keepalive != nil:
		at, err := p.sendKeepalive(p.fill(s.Keepalive).(map[string]any))
		if err != nil {
			return err
		}
		if err := p.expectEvent(n, at, s.Expect); err != nil {
			return err
		}
	case s.Event != nil:
		at, err := p.sendEvent(p.fill(s.Event).(map[string]any), s.Code)
		if err != nil {
			return err
		}
		if err := p.expectEvent(n, at, s.Expect); err != nil {
			return err
		}
	case s.Table != nil:
		if err := p.table(n, s.Table); err != nil {
			return err
		}
	case s.Frame != nil:
		if err := p.frame(n, s); err != nil {
			return err
		}
	case s.Handler != nil:
		if err := p.handler(p.fill(s.Handler).(map[string]any)); err != nil {
			return err
		}
	case s.Put != nil:
		for _, path := range slices.Sorted(maps.Keys(s.Put)) {
			if err := p.request(n, http.MethodPut, path, p.fill(s.Put[path]), s); err != nil {
				return err
			}
		}
	case s.Post != nil:
		for _, path := range slices.Sorted(maps.Keys(s.Post)) {
			if err := p.request(n, http.MethodPost, path, p.fill(s.Post[path]), s); err != nil {
				return err
			}
		}
	case s.Delete != "":
		if err := p.request(n, http.MethodDelete, s.Delete, nil, s); err != nil {
			return err
		}
	case s.Silence != nil:
		body := p.fill(s.Silence).(map[string]any)
		body["metadata"] = map[string]any{"name": silenceName(body), "namespace": p.ns}
		if err := p.request(n, http.MethodPost, "silenced", body, s); err != nil {
			return err
		}
		if err := pause(p.ctx, p.target.SilenceDelay); err != nil {
			return err
		}
	case s.Unsilence != "":
		if err := p.request(n, http.MethodDelete, "silenced/"+s.Unsilence, nil, s); err != nil {
			return err
		}
		if err := pause(p.ctx, p.target.SilenceDelay); err != nil {
			return err
		}
	case s.Settle:
		if err := pause(p.ctx, p.target.SilenceDelay); err != nil {
			return err
		}
	case s.Get != "":
		if err := p.get(n, s); err != nil {
			return err
		}
	case s.Wait > 0:
		if err := pause(p.ctx, time.Duration(s.Wait*float64(time.Second))); err != nil {
			return err
		}
	}
	return p.delivered(n, s)
}

func (p *player) within(s *Step) time.Duration {
	if s.Within > 0 {
		return time.Duration(s.Within*float64(time.Second)) * p.target.Patience
	}
	return defaultWait * p.target.Patience
}

// fill replaces words in a step's input: "now" is the present, tN the time of the N-th result, {{dir}} the directory of
// the sequence and {{ns}} its namespace; "x*N" repeated text is written {{N x}}.
func (p *player) fill(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, e := range v {
			m[k] = p.fill(e)
		}
		return m
	case []any:
		l := make([]any, len(v))
		for i, e := range v {
			l[i] = p.fill(e)
		}
		return l
	case string:
		if v == "now" {
			return time.Now().Unix()
		}
		if d, ok := strings.CutPrefix(v, "now+"); ok {
			if n, err := strconv.ParseInt(d, 10, 64); err == nil {
				return time.Now().Unix() + n
			}
		}
		return strings.NewReplacer("{{dir}}", p.dir, "{{ns}}", p.ns).Replace(v)
	}
	return v
}

// sentTo says where an event will be stored. Without a name nothing is stored, so there is nothing to wait for.
type sentTo struct {
	entity, check string
	sequence      int
}

// sendEvent sends a result through an agent's connection, or through the API if it names no agent. Most members are the
// check's; the others are agent, entity, check (its name), event (members of the event), metrics and sync.
func (p *player) sendEvent(e map[string]any, code int) (at sentTo, err error) {
	p.events++
	take := func(key string) any {
		v := e[key]
		delete(e, key)
		return v
	}
	agent, _ := take("agent").(string)
	name, _ := take("check").(string)
	entity := take("entity")
	fields, _ := take("event").(map[string]any)
	metrics := take("metrics")
	sync := take("sync")
	wantsCheck := take("no_check") == nil
	if agent == "" && p.seq.Agent != nil && take("api") == nil {
		agent = p.seq.Agent.Name
	}
	if name == "" {
		name = "c"
	}

	ev := map[string]any{"id": eventID(p.events), "sequence": p.events, "timestamp": firstSecond + p.events}
	if agent == "" {
		delete(ev, "id")
	}
	var ent map[string]any
	switch v := entity.(type) {
	case map[string]any:
		ent = p.entity(text(v["name"]), v)
	case string:
		ent = p.entity(v, nil)
	default:
		if agent != "" {
			ent = p.agents[agent].entity(p)
		} else {
			ent = p.entity("e", nil)
		}
	}
	if agent != "" && ent["entity_class"] == nil {
		ent["entity_class"] = "agent"
	}
	ev["entity"] = ent
	if metrics != nil {
		ev["metrics"] = metrics
	}
	if wantsCheck {
		check := map[string]any{"metadata": map[string]any{"name": name, "namespace": p.ns},
			"executed": firstSecond + p.events, "issued": firstSecond + p.events, "interval": 10}
		if md, ok := take("check_metadata").(map[string]any); ok {
			maps.Copy(check["metadata"].(map[string]any), md)
		}
		maps.Copy(check, e)
		ev["check"] = check
		at = sentTo{entity: text(ent["metadata"].(map[string]any)["name"]), check: name, sequence: p.events}
		if proxy := text(check["proxy_entity_name"]); proxy != "" {
			at.entity = proxy
		}
	}
	maps.Copy(ev, fields)
	if md, ok := ev["metadata"].(map[string]any); ok && md["namespace"] == nil && agent != "" {
		md["namespace"] = p.ns
	}
	if sync == false {
		at = sentTo{}
	}
	if agent != "" {
		return at, p.agents[agent].send(wire.TypeEvent, ev)
	}
	got, body, err := p.target.do(p.ctx, http.MethodPost, p.path("events"), ev)
	if err != nil {
		return sentTo{}, err
	}
	p.result.Checked++
	if want := max(code, 201); got != want && (code != 0 || got/100 != 2) {
		return sentTo{}, fmt.Errorf("post event: status %d, want %d: %s", got, want, bytes.TrimSpace(body))
	}
	if code >= 300 {
		return sentTo{}, nil
	}
	return at, nil
}

func (p *player) entity(name string, fields map[string]any) map[string]any {
	ent := map[string]any{"metadata": map[string]any{"name": name, "namespace": p.ns}}
	for k, v := range fields {
		switch k {
		case "name":
		case "metadata", "labels", "annotations":
			md := ent["metadata"].(map[string]any)
			if k == "metadata" {
				maps.Copy(md, v.(map[string]any))
			} else {
				md[k] = v
			}
		default:
			ent[k] = v
		}
	}
	return ent
}

// sendKeepalive sends an agent's keepalive. Members are those of the check, except for agent, entity (fields) and event.
func (p *player) sendKeepalive(k map[string]any) (sentTo, error) {
	name, _ := k["agent"].(string)
	if name == "" && p.seq.Agent != nil {
		name = p.seq.Agent.Name
	}
	a := p.agents[name]
	if a == nil {
		return sentTo{}, fmt.Errorf("no agent %q is connected", name)
	}
	fields, _ := k["event"].(map[string]any)
	entity, _ := k["entity"].(map[string]any)
	sync := k["sync"]
	noCheck := k["no_check"]
	for _, key := range []string{"agent", "event", "entity", "sync", "no_check"} {
		delete(k, key)
	}
	a.sequence = p.keepalives[name] + 1
	p.keepalives[name] = a.sequence
	ent := a.entity(p)
	if entity != nil {
		more := p.entity(name, entity)
		maps.Copy(ent["metadata"].(map[string]any), more["metadata"].(map[string]any))
		delete(more, "metadata")
		maps.Copy(ent, more)
	}
	check := map[string]any{"metadata": map[string]any{"name": keepalive, "namespace": p.ns}, "interval": 20, "timeout": 120}
	maps.Copy(check, k)
	now := time.Now().Unix()
	ent["last_seen"] = now
	ev := map[string]any{
		"id": eventID(900 + a.sequence), "sequence": a.sequence, "timestamp": now, "entity": ent, "check": check,
		"metadata": map[string]any{"namespace": p.ns},
	}
	if noCheck != nil {
		delete(ev, "check")
	}
	for key, v := range fields {
		if md, ok := v.(map[string]any); ok && key == "metadata" {
			maps.Copy(ev["metadata"].(map[string]any), md)
		} else {
			ev[key] = v
		}
	}
	at := sentTo{entity: text(ent["metadata"].(map[string]any)["name"]), check: keepalive, sequence: a.sequence}
	if sync == false {
		at = sentTo{}
	}
	return at, a.send(wire.TypeKeepalive, ev)
}

// expectEvent waits until an event is stored and compares it.
func (p *player) expectEvent(n string, at sentTo, expect any) error {
	if at.check == "" {
		return nil
	}
	path := p.path("events/" + at.entity + "/" + at.check)
	want, _ := expect.(map[string]any)
	var doc any
	deadline := time.Now().Add(syncTime * p.target.Patience)
	for settled := false; ; {
		code, body, err := p.target.do(p.ctx, http.MethodGet, path, nil)
		if err != nil {
			return err
		}
		if code == http.StatusOK {
			if doc, err = p.parse(body); err != nil {
				return err
			}
			ev, _ := doc.(map[string]any)
			if text(ev["sequence"]) == strconv.Itoa(at.sequence) {
				var m matcher
				m.event(want, doc)
				if len(m.problems) == 0 || settled {
					p.note(n, &m)
					p.record(n, at.entity+"/"+at.check, doc)
					return nil
				}
				settled = true
				if err := pause(p.ctx, settleTime*p.target.Patience); err != nil {
					return err
				}
				continue
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("event %d is not stored as %s/%s (last answer: %d %s)", at.sequence, at.entity,
				at.check, code, bytes.TrimSpace(body[:min(len(body), 300)]))
		}
		if err := pause(p.ctx, pollEvery); err != nil {
			return err
		}
	}
}

// note adds a matcher's findings.
func (p *player) note(n string, m *matcher) {
	p.result.Checked += m.checked
	for _, pr := range m.problems {
		p.fail(n, pr.Field, pr.Want, pr.Got)
	}
}

// table sends the results of a table one by one.
func (p *player) table(n string, t *Table) error {
	with, rows := map[string][]string{}, map[string][]string{}
	columns := 0
	for k, row := range t.With {
		with[k] = strings.Fields(row)
		if columns == 0 {
			columns = len(with[k])
		}
		if len(with[k]) != columns {
			return fmt.Errorf("table: row %s has %d columns, others %d", k, len(with[k]), columns)
		}
	}
	for k, row := range t.Rows {
		rows[k] = strings.Fields(row)
		if len(rows[k]) != columns {
			return fmt.Errorf("table: row %s has %d columns, others %d", k, len(rows[k]), columns)
		}
	}
	for c := range columns {
		p.result.Steps++
		ev := p.fill(t.Send).(map[string]any)
		for k, row := range with {
			if i, err := strconv.Atoi(row[c]); err == nil {
				ev[k] = i
			} else {
				ev[k] = p.fill(row[c])
			}
		}
		want := map[string]any{}
		for k, row := range rows {
			if row[c] != "." {
				want[k] = row[c]
			}
		}
		at, err := p.sendEvent(ev, 0)
		if err != nil {
			return fmt.Errorf("column %d: %w", c+1, err)
		}
		if err := p.expectEvent(n+"."+strconv.Itoa(c+1), at, want); err != nil {
			return fmt.Errorf("column %d: %w", c+1, err)
		}
	}
	return nil
}

func (p *player) path(rest string) string { return p.apiPath("core/v2", rest) }

func (p *player) apiPath(group, rest string) string {
	return "/api/" + group + "/namespaces/" + p.ns + "/" + rest
}

// request sends a definition or a command. Definitions get their metadata from the path.
func (p *player) request(n, method, path string, body any, s *Step) error {
	if m, ok := body.(map[string]any); ok && method == http.MethodPut {
		md, _ := m["metadata"].(map[string]any)
		if md == nil {
			md = map[string]any{}
		}
		if md["name"] == nil && strings.Count(path, "/") == 1 {
			md["name"] = path[strings.LastIndex(path, "/")+1:]
		}
		md["namespace"] = p.ns
		if !strings.HasPrefix(path, "events/") {
			m["metadata"] = md
		}
	}
	code, answer, err := p.target.do(p.ctx, method, p.path(path), body)
	if err != nil {
		return err
	}
	p.result.Checked++
	switch {
	case s.Code != 0 && code != s.Code:
		p.fail(n, method+" "+path, strconv.Itoa(s.Code), fmt.Sprintf("%d %s", code, bytes.TrimSpace(answer)))
	case s.Code == 0 && code/100 != 2:
		return fmt.Errorf("%s %s: status %d: %s", method, path, code, bytes.TrimSpace(answer))
	}
	return nil
}

// get repeats a request until the answer matches or the time is over.
func (p *player) get(n string, s *Step) error {
	deadline := time.Now().Add(p.within(s))
	for {
		code, body, err := p.target.do(p.ctx, http.MethodGet, p.path(s.Get), nil)
		if err != nil {
			return err
		}
		var m matcher
		m.value("status", max(s.Code, 200), code)
		var doc any
		if code == http.StatusOK {
			if doc, err = p.parse(body); err != nil {
				return err
			}
			switch want := s.Expect.(type) {
			case map[string]any:
				if strings.Count(s.Get, "/") == 2 && strings.HasPrefix(s.Get, "events/") {
					m.event(want, doc)
				} else {
					m.value("answer", want, doc)
				}
			case []any:
				m.value("answer", want, doc)
			}
		}
		if len(m.problems) == 0 || time.Now().After(deadline) {
			p.note(n, &m)
			if doc != nil {
				p.record(n, s.Get, doc)
			}
			return nil
		}
		if err := pause(p.ctx, 2*pollEvery); err != nil {
			return err
		}
	}
}

// frame waits for a message to an agent.
func (p *player) frame(n string, s *Step) error {
	a := p.agents[s.Frame.Agent]
	if a == nil {
		return fmt.Errorf("no agent %q is connected", s.Frame.Agent)
	}
	timeout := time.After(p.within(s))
	want, _ := s.Expect.(map[string]any)
	var last *matcher
	for {
		select {
		case f := <-a.frames:
			if f.typ != s.Frame.Type {
				continue
			}
			var m matcher
			doc := simplify(f.doc, p.ns, p.begin)
			m.value("frame", want, doc)
			if len(m.problems) == 0 {
				p.note(n, &m)
				p.record(n, f.typ, doc)
				return nil
			}
			last = &m
		case <-timeout:
			if last == nil {
				p.fail(n, s.Frame.Type, "sent", "not sent")
				return nil
			}
			p.note(n, last)
			return nil
		}
	}
}

// delivered compares the deliveries to handlers.
func (p *player) delivered(n string, s *Step) error {
	for _, name := range slices.Sorted(maps.Keys(s.Deliver)) {
		want := s.Deliver[name]
		k := p.sinks[name]
		if k == nil {
			return fmt.Errorf("no handler %q of the runner", name)
		}
		deadline := time.Now().Add(p.within(s))
		for k.len() < len(want) && time.Now().Before(deadline) {
			if err := pause(p.ctx, pollEvery); err != nil {
				return err
			}
		}
		got := k.take(len(want))
		p.result.Checked++
		if len(got) != len(want) {
			p.fail(n, "deliveries to "+name, strconv.Itoa(len(want)), strconv.Itoa(len(got))+" "+p.brief(got))
			continue
		}
		for i := range want {
			var m matcher
			if w, ok := want[i].(map[string]any); ok {
				doc, err := p.parse(got[i])
				if err != nil {
					m.add("data", text(w), string(got[i]))
				} else {
					m.event(w, doc)
					p.record(n, "delivery to "+name, doc)
				}
			} else {
				m.value("data", want[i], string(got[i]))
			}
			for j := range m.problems {
				m.problems[j].Field = fmt.Sprintf("%s[%d].%s", name, i, m.problems[j].Field)
			}
			p.note(n, &m)
		}
	}
	return nil
}

// brief describes deliveries.
func (p *player) brief(deliveries [][]byte) string {
	var l []string
	for _, d := range deliveries {
		var ev resource.Event
		if json.Unmarshal(d, &ev) == nil && ev.Check != nil {
			l = append(l, fmt.Sprintf("%s=%d", ev.Check.Metadata.Name, ev.Check.Status))
		} else {
			l = append(l, string(d[:min(len(d), 60)]))
		}
	}
	return strings.Join(l, " ")
}

// handler defines a handler. One without a type sends its events to the runner.
func (p *player) handler(h map[string]any) error {
	name := text(h["name"])
	delete(h, "name")
	switch {
	case h["type"] == nil:
		k, err := listen()
		if err != nil {
			return err
		}
		p.sinks[name] = k
		h["type"], h["socket"] = "tcp", map[string]any{"host": "127.0.0.1", "port": k.port()}
	case h["type"] == "udp" && h["socket"] == nil:
		k, err := listenPacket()
		if err != nil {
			return err
		}
		p.sinks[name] = k
		h["socket"] = map[string]any{"host": "127.0.0.1", "port": k.port()}
	case h["type"] == "pipe":
		k := watch(filepath.Join(p.dir, name))
		p.sinks[name] = k
		h["command"] = strings.ReplaceAll(text(h["command"]), "{{out}}", k.dir)
		if err := os.MkdirAll(k.dir, 0o777); err != nil {
			return fmt.Errorf("make directory of handler %s: %w", name, err)
		}
	}
	h["metadata"] = map[string]any{"name": name, "namespace": p.ns}
	code, body, err := p.target.do(p.ctx, http.MethodPut, p.path("handlers/"+name), h)
	if err != nil {
		return err
	}
	if code/100 != 2 {
		return fmt.Errorf("define handler %s: status %d: %s", name, code, bytes.TrimSpace(body))
	}
	return nil
}

func silenceName(s map[string]any) string {
	part := func(k string) string {
		if v := text(s[k]); v != "" {
			return v
		}
		return "*"
	}
	return part("subscription") + ":" + part("check")
}

// parse reads a JSON document and simplifies it.
func (p *player) parse(b []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("read document: %w", err)
	}
	return simplify(v, p.ns, p.begin), nil
}
