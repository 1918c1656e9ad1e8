package conformance

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// connection is one simulated agent.
type connection struct {
	spec     *Agent
	enc      wire.Encoding
	conn     *wire.Conn
	sequence int // of the newest keepalive
	frames   chan frame
	done     chan struct{} // closed when the backend has ended the connection
}

// frame is a message from the backend.
type frame struct {
	typ string
	doc any
}

// connect opens an agent's connection and reads its messages.
func (p *player) connect(n string, a *Agent) error {
	h := http.Header{
		wire.HeaderAgentName:     {a.Name},
		wire.HeaderNamespace:     {p.ns},
		wire.HeaderUser:          {p.target.AgentUser},
		wire.HeaderSubscriptions: {strings.Join(a.Subscriptions, ",")},
		"Accept":                 {wire.ContentType(wire.Protobuf)},
		"Authorization":          {"Basic " + base64.StdEncoding.EncodeToString([]byte(p.target.AgentUser+":"+p.target.AgentPassword))},
	}
	c := &connection{spec: a, enc: wire.Protobuf, frames: make(chan frame, 1000), done: make(chan struct{})}
	if a.JSON {
		c.enc = wire.JSON
		h.Set("Accept", wire.ContentType(wire.JSON))
	}
	for k, v := range a.Headers {
		h.Set(k, v)
	}
	conn, _, err := wire.Dial(p.ctx, p.target.Agent, h, wire.DialOptions{})
	if a.Refused != 0 {
		var refused *wire.HandshakeError
		if !errors.As(err, &refused) || refused.Status != a.Refused {
			if err == nil {
				_ = conn.Close(wire.CloseGoingAway, "bye")
			}
			return fmt.Errorf("handshake of %s: %v, want it refused with %d", a.Name, err, a.Refused)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("connect agent %s: %w", a.Name, err)
	}
	c.conn = conn
	if old := p.agents[a.Name]; old != nil {
		p.earlier = append(p.earlier, old)
	}
	p.agents[a.Name] = c
	go c.read()
	if !a.Register {
		return nil
	}
	k := map[string]any{}
	maps.Copy(k, a.Keepalive)
	k["agent"] = a.Name
	at, err := p.sendKeepalive(k)
	if err != nil {
		return err
	}
	return p.expectEvent(n, at, nil)
}

func (c *connection) read() {
	defer close(c.done)
	for {
		msg, err := c.conn.Read()
		if err != nil {
			return
		}
		typ, payload, err := wire.Split(msg)
		if err != nil {
			continue
		}
		doc, err := c.decode(typ, payload)
		if err != nil {
			doc = err.Error()
		}
		select {
		case c.frames <- frame{typ, doc}:
		default: // more messages than any test reads
		}
	}
}

func (c *connection) decode(typ string, payload []byte) (doc any, err error) {
	if c.enc == wire.JSON {
		err = decodeNumbers(payload, &doc)
		return doc, err
	}
	var m wire.Message
	switch typ {
	case wire.TypeEntityConfig:
		m = &resource.EntityConfig{}
	case wire.TypeCheckRequest:
		m = &resource.CheckRequest{}
	default:
		return nil, fmt.Errorf("unknown message %q", typ)
	}
	if err := m.UnmarshalProto(payload); err != nil {
		return nil, fmt.Errorf("decode %s: %w", typ, err)
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", typ, err)
	}
	err = decodeNumbers(b, &doc)
	return doc, err
}

func decodeNumbers(b []byte, doc *any) error {
	dec := json.NewDecoder(strings.NewReader(string(b)))
	dec.UseNumber()
	if err := dec.Decode(doc); err != nil {
		return fmt.Errorf("decode frame: %w", err)
	}
	return nil
}

// send writes an event in the connection's encoding.
func (c *connection) send(typ string, ev map[string]any) error {
	b, err := json.Marshal(ev)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	if c.enc == wire.JSON {
		return c.conn.Write(append([]byte(typ+"\n"), b...))
	}
	var event resource.Event
	if err := json.Unmarshal(b, &event); err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	if event.Entity != nil && event.Entity.Metadata.Name == "" && ev["entity"] == nil {
		event.Entity = nil
	}
	msg, err := wire.Append(nil, typ, wire.Protobuf, &event)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	return c.conn.Write(msg)
}

// entity returns the agent's own entity, as in its events.
func (c *connection) entity(p *player) map[string]any {
	ent := p.entity(c.spec.Name, p.fill(maps.Clone(c.spec.Entity)).(map[string]any))
	for k, v := range map[string]any{
		"entity_class": "agent", "sensu_agent_version": "6.12.0", "last_seen": time.Now().Unix(), "subscriptions": c.spec.Subscriptions,
		"system": map[string]any{"hostname": c.spec.Name, "os": "linux", "arch": "amd64"},
	} {
		if ent[k] == nil {
			ent[k] = v
		}
	}
	return ent
}

func (c *connection) close() {
	_ = c.conn.Close(wire.CloseGoingAway, "bye")
	<-c.done
}
