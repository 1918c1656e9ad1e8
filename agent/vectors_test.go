package agent

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// The tests below compare docs/agent-protocol.md with the code, so that neither can change alone.

// block is a fenced block of the document: ```kind name.
type block struct{ kind, name, text string }

func protocolDocument(t *testing.T) (text string, blocks []block) {
	t.Helper()
	b, err := os.ReadFile("../docs/agent-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```(\\w+) ([\\w-]+)\n(.*?)^```$").FindAllStringSubmatch(string(b), -1) {
		blocks = append(blocks, block{m[1], m[2], m[3]})
	}
	return string(b), blocks
}

func named(t *testing.T, name string) string {
	t.Helper()
	_, blocks := protocolDocument(t)
	for _, b := range blocks {
		if b.name == name {
			return b.text
		}
	}
	t.Fatalf("the document has no block %s", name)
	return ""
}

// vectors are the code's encodings of each example in the document.
func vectors(t *testing.T) map[string][]byte {
	t.Helper()
	disk := resource.Event{
		Timestamp: 946684801,
		Entity:    &resource.Entity{EntityClass: "agent", Metadata: resource.ObjectMeta{Name: "web-1", Namespace: "default"}},
		Check: &resource.Check{
			Metadata: resource.ObjectMeta{Name: "disk", Namespace: "default"}, Interval: 10, Status: 2, Output: "full\n",
			Executed: 946684800, Issued: 946684800,
		},
	}
	alive := resource.Event{
		Timestamp: 946684801,
		Entity:    disk.Entity,
		Check:     &resource.Check{Metadata: resource.ObjectMeta{Name: "keepalive", Namespace: "default"}, Interval: 20, Timeout: 120},
	}
	request := func(name string, change func(*resource.CheckConfig)) []byte {
		c := &resource.CheckConfig{Metadata: resource.ObjectMeta{Name: name, Namespace: "default"}, Command: "check-" + name, Subscriptions: []string{"linux"}, Publish: true}
		change(c)
		return (&resource.CheckRequest{Config: c}).AppendProto(nil)
	}
	disks := wire.ScheduleEntry{PhaseMillis: 3250, Request: request("disk", func(c *resource.CheckConfig) { c.Interval = 10 })}
	certs := wire.ScheduleEntry{PhaseMillis: 250, Request: request("cert", func(c *resource.CheckConfig) { c.Cron = "TZ=Asia/Kathmandu 0 6 * * *" })}
	members := wire.Members{URLs: []string{"ws://10.0.0.1:8081", "ws://10.0.0.2:8081"}, Self: "ws://10.0.0.1:8081"}
	move := members
	move.Next = members.URLs[1]
	batch := wire.AppendEvents(nil, 41, []wire.Item{{Event: disk.AppendProto(nil)}, {Keepalive: true, Event: alive.AppendProto(nil)}})
	running := wire.Receipt{Check: "disk", Turn: "946684800 linux 7", Outcome: wire.OutcomeRunning}
	declined := wire.Receipt{Check: "ping", Entity: "sw-1", Turn: "946684800 linux 7", Outcome: wire.OutcomeDeclined, Reason: "busy"}
	return map[string][]byte{
		"number-0":          binary.AppendUvarint(nil, 0),
		"number-127":        binary.AppendUvarint(nil, 127),
		"number-300":        binary.AppendUvarint(nil, 300),
		"unknown-agent":     unknownAgent(t),
		"event-disk":        disk.AppendProto(nil),
		"events":            batch,
		"events-empty":      wire.AppendEvents(nil, 43, nil),
		"refused-42":        wire.AppendRefused(nil, 42, "too large"),
		"ack-42":            wire.AppendAck(nil, 42),
		"ack-300":           wire.AppendAck(nil, 300),
		"schedule-replace":  wire.AppendSchedule(nil, 1, true, []wire.ScheduleEntry{disks, certs}),
		"schedule-change":   wire.AppendSchedule(nil, 2, false, []wire.ScheduleEntry{{Remove: "cert"}}),
		"schedule-none":     wire.AppendSchedule(nil, 1, true, nil),
		"pace-go":           wire.AppendPace(nil, wire.PaceGo, 0),
		"pace-slow":         wire.AppendPace(nil, wire.PaceSlow, 250*time.Millisecond),
		"pace-spool":        wire.AppendPace(nil, wire.PaceSpool, 0),
		"pace-leave":        wire.AppendPace(nil, wire.PaceLeave, 0),
		"members":           wire.AppendMembers(nil, members),
		"members-move":      wire.AppendMembers(nil, move),
		"receipt-running":   wire.AppendReceipt(nil, &running),
		"receipt-declined":  wire.AppendReceipt(nil, &declined),
		"frame-ack":         written(t, func(c *wire.Conn) error { return c.Write(wire.AppendAck(nil, 42)) }),
		"frame-close":       written(t, func(c *wire.Conn) error { return c.Close(wire.CloseGoingAway, "bye") }),
		"frame-events-mask": masked(append([]byte{0x82, 0x80 | 8}, 0x37, 0xfa, 0x21, 0x3d), wire.AppendEvents(nil, 1, nil)),
		"frame-ping-mask":   masked([]byte{0x89, 0x80, 0x37, 0xfa, 0x21, 0x3d}, nil),
	}
}

// written is what a backend's connection puts on the wire.
func written(t *testing.T, do func(*wire.Conn) error) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	got := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(theirs)
		got <- b
	}()
	c := wire.NewServerConn(ours, nil, 0)
	if err := do(c); err != nil {
		t.Error(err)
	}
	ours.Close()
	return <-got
}

// masked appends p to a frame's header, which ends with the mask, as RFC 6455 defines.
func masked(header, p []byte) []byte {
	mask := header[len(header)-4:]
	for i, b := range p {
		header = append(header, b^mask[i%4])
	}
	return header
}

func TestProtocolVectors(t *testing.T) {
	t.Parallel()
	want := vectors(t)
	_, blocks := protocolDocument(t)
	seen := map[string]bool{}
	for _, b := range blocks {
		if b.kind != "hex" {
			continue
		}
		seen[b.name] = true
		got, err := parseHex(b.text)
		if err != nil {
			t.Errorf("%s: %v", b.name, err)
		} else if !bytes.Equal(got, want[b.name]) {
			t.Errorf("%s: the document has\n%s\nthe code\n%s", b.name, hex.Dump(got), hex.Dump(want[b.name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !seen[name] {
			t.Errorf("the document lacks %s:\n% x", name, want[name])
		}
	}
}

// parseHex reads hexadecimal bytes, with blanks between and comments from "#" to the end of the line.
func parseHex(text string) (out []byte, err error) {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		b, err := hex.DecodeString(strings.Join(strings.Fields(line), ""))
		if err != nil {
			return nil, fmt.Errorf("line %q: %w", line, err)
		}
		out = append(out, b...)
	}
	return out, nil
}

// TestProtocolFrames plays the document's frames of an agent to a backend's connection.
func TestProtocolFrames(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	v := vectors(t)
	pong := make(chan []byte, 1)
	go func() {
		_, _ = theirs.Write(v["frame-ping-mask"])
		b := make([]byte, 2)
		_, _ = io.ReadFull(theirs, b)
		pong <- b
		_, _ = theirs.Write(v["frame-events-mask"])
		_, _ = theirs.Write(masked([]byte{0x88, 0x85, 0x37, 0xfa, 0x21, 0x3d}, v["frame-close"][2:]))
		_, _ = io.Copy(io.Discard, theirs)
	}()
	c := wire.NewServerConn(ours, nil, 0)
	msg, err := c.Read()
	if err != nil || string(msg) != "events\n\x01" {
		t.Errorf("read %q, %v", msg, err)
	}
	if got := receive(t, pong); !bytes.Equal(got, []byte{0x8a, 0}) {
		t.Errorf("a ping is answered by % x", got)
	}
	_, err = c.Read()
	if closed, ok := errors.AsType[*wire.CloseError](err); !ok || *closed != (wire.CloseError{Code: 1001, Reason: "bye"}) {
		t.Errorf("closed by %v", err)
	}
}

// TestProtocolDueTimes reads "interval 10, phase 3250, after A: due D, issued I" and the same with cron.
func TestProtocolDueTimes(t *testing.T) {
	t.Parallel()
	line := regexp.MustCompile(`^(interval (\d+)|cron (.+)), phase (\d+), after (\d+): due (\d+), issued (\d+)$`)
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	lines := strings.Split(strings.TrimSpace(named(t, "due-times")), "\n")
	for _, l := range lines {
		m := line.FindStringSubmatch(l)
		if m == nil {
			t.Fatalf("cannot read %q", l)
		}
		c := &resource.CheckConfig{Metadata: resource.ObjectMeta{Name: "disk"}, Cron: m[3]}
		if m[2] != "" {
			c.Interval = uint32(number(m[2]))
		}
		s := newSchedule(nil, new(logged).logger(), newScheduleMetrics(nil))
		now := time.UnixMilli(number(m[5]))
		s.now = func() time.Time { return now }
		s.apply(true, entries(wire.ScheduleEntry{PhaseMillis: uint64(number(m[4])), Request: (&resource.CheckRequest{Config: c}).AppendProto(nil)}))
		if len(s.queue) != 1 {
			t.Fatalf("%s: cannot be scheduled", l)
		}
		due := s.queue[0].due
		now = time.Unix(0, due)
		runs, _ := s.due()
		if due != number(m[6])*int64(time.Millisecond) || len(runs) != 1 || runs[0].Issued != number(m[7]) {
			t.Errorf("%s: due %d, issued %d", l, due/int64(time.Millisecond), runs[0].Issued)
		}
	}
	if len(lines) < 5 {
		t.Errorf("%d examples", len(lines))
	}
}

// TestProtocolHandshake has a transport make the handshake of the document, and gives it the document's answer.
func TestProtocolHandshake(t *testing.T) {
	t.Parallel()
	read := func(name string) string { return strings.ReplaceAll(named(t, name)+"\n", "\n", "\r\n") }
	want, err := http.ReadRequest(bufio.NewReader(strings.NewReader(read("handshake-request"))))
	if err != nil {
		t.Fatal(err)
	}
	answer := read("handshake-answer")
	const key, accept = "dGhlIHNhbXBsZSBub25jZQ==", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
	if want.Header.Get("Sec-Websocket-Key") != key || !strings.Contains(answer, accept) {
		t.Errorf("the document's key or its digest is wrong")
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	connected := make(chan Connection, 1)
	runTransport(t, &fakeBackend{url: "ws://" + l.Addr().String()}, func(o *TransportOptions) {
		o.Subscriptions, o.Password = []string{"linux", "web"}, "P@ssw0rd!"
		o.OnConnect = func(c Connection) { connected <- c }
	})
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	got, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte(strings.ReplaceAll(answer, accept, digest(got.Header.Get("Sec-Websocket-Key"))))); err != nil {
		t.Fatal(err)
	}
	epoch := regexp.MustCompile(`^[0-9a-f]{16}$`)
	if e := want.Header.Get(wire.HeaderEpoch); !epoch.MatchString(e) || !epoch.MatchString(got.Header.Get(wire.HeaderEpoch)) {
		t.Errorf("epochs %q and %q", e, got.Header.Get(wire.HeaderEpoch))
	}
	for _, h := range []http.Header{want.Header, got.Header} {
		h.Del("Sec-Websocket-Key")
		h.Del(wire.HeaderEpoch)
	}
	if fmt.Sprint(got.Header) != fmt.Sprint(want.Header) || got.Method+got.URL.Path+got.Proto != want.Method+want.URL.Path+want.Proto {
		t.Errorf("sent %s %s %v\nthe document has %v", got.Method, got.URL, got.Header, want.Header)
	}
	if c := receive(t, connected); !c.Lapwing || c.Encoding != wire.Protobuf || c.BackendID != "backend-1" {
		t.Errorf("the answer was understood as %+v", c)
	}
}

// TestProtocolNames: the document names all types, headers and close codes.
func TestProtocolNames(t *testing.T) {
	t.Parallel()
	text, _ := protocolDocument(t)
	for _, name := range []string{
		wire.TypeKeepalive, wire.TypeEvent, wire.TypeEntityConfig, wire.TypeCheckRequest, wire.TypeEvents, wire.TypeAck, wire.TypeSchedule, wire.TypePace, wire.TypeRefused,
		wire.TypeMembers, wire.TypeReceipt, wire.HeaderMembers, resource.TurnAnnotation,
		wire.HeaderAgentName, wire.HeaderNamespace, wire.HeaderUser, wire.HeaderSubscriptions, wire.HeaderBackendID, wire.HeaderProtocol, wire.HeaderEpoch,
		fmt.Sprint(wire.CloseGoingAway), fmt.Sprint(wire.CloseProtocol), fmt.Sprint(wire.CloseTooBig),
	} {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("the document does not name %s", name)
		}
	}
}

// digest is the reply to a websocket key.
func digest(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}
