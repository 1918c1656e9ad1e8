// Package wire is the agent protocol: messages of Sensu Go 6 and of lapwing, and the websocket connection that carries
// them. Agents and sessions use the same Conn, Split, Append and Decode.
//
// A message is a type, a line feed and a payload, in one websocket message. Sensu's types carry one resource in
// protobuf or JSON. Lapwing's carry a batch of events (AppendEvents), its acknowledgement (AppendAck), the refusal of
// one event (AppendRefused), the checks that an agent is to run by itself (AppendSchedule), how fast it may send
// (AppendPace), the backends that it may connect to (AppendMembers), and what became of a request that is a turn of a
// round-robin check (AppendReceipt). A Poller reads for many connections on one
// goroutine; Partials bounds the memory of incomplete and waiting messages. The meaning of messages, and when to send
// them, is up to session and agent.
package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Types of messages.
const (
	TypeKeepalive    = "keepalive"     // agent to backend, an Event
	TypeEvent        = "event"         // agent to backend, an Event
	TypeEntityConfig = "entity_config" // backend to agent, an EntityConfig
	TypeCheckRequest = "check_request" // backend to agent, a CheckRequest

	TypeEvents   = "events"   // lapwing agent to backend: see AppendEvents
	TypeAck      = "ack"      // backend to lapwing agent: see AppendAck
	TypeSchedule = "schedule" // backend to lapwing agent: see AppendSchedule
	TypePace     = "pace"     // backend to lapwing agent: see AppendPace
	TypeRefused  = "refused"  // backend to lapwing agent: see AppendRefused
	TypeMembers  = "members"  // backend to lapwing agent: see AppendMembers
	TypeReceipt  = "receipt"  // lapwing agent to backend: see AppendReceipt
)

// Headers of the handshake, as in an http.Header.
const (
	HeaderAgentName     = "Sensu-Agentname"
	HeaderNamespace     = "Sensu-Namespace"
	HeaderUser          = "Sensu-User"
	HeaderSubscriptions = "Sensu-Subscriptions" // separated by commas
	HeaderBackendID     = "Backend-Id"

	// HeaderProtocol is sent by lapwing agents, and echoed by lapwing backends: both then speak lapwing's types too.
	// Its value is ProtocolVersion.
	HeaderProtocol = "Lapwing-Protocol"
	// HeaderEpoch is 16 random hex digits of an agent process. Sequence numbers count within an epoch.
	HeaderEpoch = "Lapwing-Epoch"

	ProtocolVersion = "1"

	// HeaderMembers is sent by lapwing agents that know TypeMembers. Its value is MembersFollow or MembersStay.
	HeaderMembers = "Lapwing-Members"
	// MembersFollow says that the agent uses TypeMembers, and moves when it asks for that.
	MembersFollow = "follow"
	// MembersStay says that the agent chooses backends in an order of its own, and must not be moved only to make the
	// members even.
	MembersStay = "stay"
)

// Encoding is the encoding of resources in Sensu's messages. Both ends use the same one for a whole connection.
type Encoding uint8

// The encodings.
const (
	Protobuf Encoding = iota
	JSON
)

// ContentType is the name of e in the handshake's Accept and Content-Type headers.
func ContentType(e Encoding) string {
	if e == JSON {
		return "application/json"
	}
	return "application/octet-stream"
}

// Message is a resource that can be sent.
type Message interface {
	AppendProto(b []byte) []byte
	UnmarshalProto(b []byte) error
}

// ErrNoSeparator says that a message has no line feed after its type.
var ErrNoSeparator = errors.New("message has no type")

// Split returns the type and the payload of msg. The payload is part of msg.
func Split(msg []byte) (typ string, payload []byte, err error) {
	head, payload, ok := bytes.Cut(msg, []byte{'\n'})
	if !ok {
		return "", nil, ErrNoSeparator
	}
	return typeName(head), payload, nil
}

// typeName saves an allocation for known types.
func typeName(b []byte) string {
	switch string(b) {
	case TypeKeepalive:
		return TypeKeepalive
	case TypeEvent:
		return TypeEvent
	case TypeEvents:
		return TypeEvents
	case TypeAck:
		return TypeAck
	case TypeEntityConfig:
		return TypeEntityConfig
	case TypeCheckRequest:
		return TypeCheckRequest
	case TypeSchedule:
		return TypeSchedule
	case TypePace:
		return TypePace
	case TypeRefused:
		return TypeRefused
	case TypeMembers:
		return TypeMembers
	case TypeReceipt:
		return TypeReceipt
	}
	return string(b)
}

func appendType(dst []byte, typ string) []byte {
	return append(append(dst, typ...), '\n')
}

// Append appends a whole message of the given type, type included, that carries m.
func Append(dst []byte, typ string, enc Encoding, m Message) ([]byte, error) {
	dst = appendType(dst, typ)
	if enc == Protobuf {
		return m.AppendProto(dst), nil
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %s message: %w", typ, err)
	}
	return append(dst, b...), nil
}

// Decode sets m from a message's payload. It keeps no reference to payload.
func Decode(payload []byte, enc Encoding, m Message) error {
	if enc == Protobuf {
		return m.UnmarshalProto(payload)
	}
	return json.Unmarshal(payload, m)
}
