package load

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// turn is a request's turn: the tick of its check in the group of one subscription.
type turn struct {
	text string // the value of resource.TurnAnnotation; "" if the request is no turn
	tick int64  // Unix seconds
	key  uint64 // hash of the check, its proxy entity and the turn, the same in all processes of a run
}

func (t *turn) subscription() string {
	_, rest, _ := strings.Cut(t.text, " ")
	return rest[:max(0, strings.LastIndexByte(rest, ' '))]
}

// parseTurn reads the value of the annotation: the tick in Unix seconds, with "!" if a user asked for it, the
// subscriptions, and when the turn was given. A turn that is given again has another time.
func parseTurn(value []byte) (turn, error) {
	text := string(value)
	tick, rest, _ := strings.Cut(text, " ")
	at, err := strconv.ParseInt(strings.TrimSuffix(tick, "!"), 10, 64)
	end := strings.LastIndexByte(text, ' ')
	if err != nil || strings.LastIndexByte(rest, ' ') < 1 {
		return turn{}, fmt.Errorf("%q is not a tick, a subscription and a time", text)
	}
	return turn{text: text, tick: at, key: mix64(stringHash(text[:end]))}, nil
}

// Fields of a request, of the definition of its check, and of the definition's metadata.
const (
	fieldDefinition         = protowire.Number(1)
	fieldIssued             = protowire.Number(4)
	fieldDefinitionMetadata = protowire.Number(26)
	fieldAnnotations        = protowire.Number(4)
	fieldKey                = protowire.Number(1)
	fieldValue              = protowire.Number(2)
)

var turnKey = []byte(resource.TurnAnnotation)

// cutTurn takes the annotation of a turn out of an encoded definition. It returns the rest, appended to dst, and the
// annotation's value. All turns of a check have the same rest, so definitions are decoded and kept once. A definition
// without the annotation is returned as it is, and costs a search.
func cutTurn(dst, definition []byte) (rest, value []byte, err error) {
	if !bytes.Contains(definition, turnKey) {
		return definition, nil, nil
	}
	for at := 0; at < len(definition); {
		f, n, err := nextField(definition[at:])
		if err != nil {
			return nil, nil, err
		}
		if f.is(fieldDefinitionMetadata, protowire.BytesType) {
			begin, end, value, err := findTurn(f.content)
			if err != nil {
				return nil, nil, err
			}
			if value != nil {
				dst = append(dst, definition[:at]...)
				dst = protowire.AppendTag(dst, f.num, f.typ)
				dst = protowire.AppendVarint(dst, uint64(len(f.content)-(end-begin)))
				dst = append(append(dst, f.content[:begin]...), f.content[end:]...)
				return append(dst, definition[at+n:]...), value, nil
			}
		}
		at += n
	}
	return definition, nil, nil
}

// findTurn returns the place of the annotation's entry in encoded metadata, and its value; nil if there is none.
func findTurn(metadata []byte) (begin, end int, value []byte, err error) {
	for at := 0; at < len(metadata); {
		f, n, err := nextField(metadata[at:])
		if err != nil {
			return 0, 0, nil, err
		}
		if f.is(fieldAnnotations, protowire.BytesType) {
			key, value, err := splitEntry(f.content)
			if err != nil {
				return 0, 0, nil, err
			}
			if bytes.Equal(key, turnKey) {
				return at, at + n, value, nil
			}
		}
		at += n
	}
	return 0, 0, nil, nil
}

// splitEntry returns the key and the value of an encoded entry of a map of strings. The value is not nil.
func splitEntry(entry []byte) (key, value []byte, err error) {
	value = []byte{}
	for at := 0; at < len(entry); {
		f, n, err := nextField(entry[at:])
		if err != nil {
			return nil, nil, err
		}
		switch {
		case f.is(fieldKey, protowire.BytesType):
			key = f.content
		case f.is(fieldValue, protowire.BytesType):
			value = f.content
		}
		at += n
	}
	return key, value, nil
}

// field is a field of an encoded message.
type field struct {
	num     protowire.Number
	typ     protowire.Type
	content []byte // of the type Bytes
	number  uint64 // of the type Varint
}

func (f *field) is(num protowire.Number, typ protowire.Type) bool {
	return f.num == num && f.typ == typ
}

// nextField returns the first field of an encoded message, and its length with the tag.
func nextField(b []byte) (f field, n int, err error) {
	num, typ, tag := protowire.ConsumeTag(b)
	if tag < 0 {
		return f, 0, protowire.ParseError(tag)
	}
	f.num, f.typ = num, typ
	switch typ {
	case protowire.BytesType:
		f.content, n = protowire.ConsumeBytes(b[tag:])
	case protowire.VarintType:
		f.number, n = protowire.ConsumeVarint(b[tag:])
	default:
		n = protowire.ConsumeFieldValue(num, typ, b[tag:])
	}
	if n < 0 {
		return f, 0, protowire.ParseError(n)
	}
	return f, tag + n, nil
}

// splitTurns divides results into those of turns and the others, in their order. What it returns may be results itself.
func splitTurns(results []result) (turns, others []result) {
	n := 0
	for i := range results {
		if results[i].turn.text != "" {
			n++
		}
	}
	switch n {
	case 0:
		return nil, results
	case len(results):
		return results, nil
	}
	for _, r := range results {
		if r.turn.text != "" {
			turns = append(turns, r)
		} else {
			others = append(others, r)
		}
	}
	return turns, others
}
