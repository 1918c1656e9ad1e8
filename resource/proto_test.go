package resource

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// messages has every message of the frames; the other messages are parts of these.
var messages = []protoMessage{new(Event), new(CheckRequest), new(EntityConfig), new(EntityState)}

// jsonOnly are lapwing's own fields of Sensu's messages. They never travel as protobuf.
var jsonOnly = map[string]bool{
	"CheckConfig.DependsOn": true, "CheckConfig.Calendars": true, "CheckConfig.FallbackPipeline": true, "CheckConfig.TTLStatus": true,
	"CheckConfig.TTLWithoutKeepalive": true,
	"Entity.DependsOn":                true, "Entity.TTL": true, "EntityConfig.DependsOn": true, "EntityConfig.TTL": true,
}

// fill sets every field of v to a value that is not zero, lists and maps to several elements. Fields in jsonOnly stay
// as they are.
func fill(v reflect.Value, seed *int) {
	*seed++
	switch v.Kind() {
	case reflect.String:
		v.SetString(strings.Repeat("s", 1+*seed%300))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(-int64(*seed))
	case reflect.Uint32:
		v.SetUint(math.MaxUint32 - uint64(*seed))
	case reflect.Uint8:
		v.SetUint(uint64(*seed % 256))
	case reflect.Float64:
		v.SetFloat(float64(*seed) / 3)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), seed)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 3, 3))
		for i := range v.Len() {
			fill(v.Index(i), seed)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for _, key := range []string{"b", "a", ""} {
			value := reflect.New(v.Type().Elem()).Elem()
			fill(value, seed)
			v.SetMapIndex(reflect.ValueOf(key), value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if !jsonOnly[v.Type().Name()+"."+v.Type().Field(i).Name] {
				fill(v.Field(i), seed)
			}
		}
	default:
		panic("fill: " + v.Kind().String())
	}
}

func TestProtoRoundTripOfEveryField(t *testing.T) {
	for _, m := range messages {
		typ := reflect.TypeOf(m).Elem()
		t.Run(typ.Name(), func(t *testing.T) {
			full := reflect.New(typ)
			fill(full.Elem(), new(int))
			encoded := full.Interface().(protoMessage).AppendProto(nil)
			got := reflect.New(typ)
			if err := got.Interface().(protoMessage).UnmarshalProto(encoded); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got.Interface(), full.Interface()) {
				t.Errorf("round trip\n got %+v\nwant %+v", got.Interface(), full.Interface())
			}
			// A message may be cut anywhere without a panic. Other tests check that the cut is an error.
			for i := 0; i < len(encoded); i += 1 + len(encoded)/500 {
				_ = got.Interface().(protoMessage).UnmarshalProto(encoded[:i])
			}
		})
	}
}

func TestAppendProto(t *testing.T) {
	tests := []struct {
		name string
		m    protoMessage
		want string
	}{
		{"zero", &MetricTag{}, ""},
		{"sub-messages by value are always there", &Event{}, "\x2a\x00"},
		{"nested", &System{}, "\x32\x00"},
		{"empty pointer", &Event{Metrics: &Metrics{}}, "\x22\x00\x2a\x00"},
		{"negative int32", &Hook{Status: -1}, "\x0a\x02\x0a\x00\x30\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"},
		{"double", &MetricPoint{Value: 1}, "\x11\x00\x00\x00\x00\x00\x00\xf0\x3f"},
		{"negative zero", &MetricPoint{Value: math.Copysign(0, -1)}, "\x11\x00\x00\x00\x00\x00\x00\x00\x80"},
		{"empty list", &Metrics{Handlers: []string{}}, ""},
		{"list of empty strings", &Metrics{Handlers: []string{"", "a"}}, "\x0a\x00\x0a\x01a"},
		{"sorted map", &ObjectMeta{Labels: map[string]string{"b": "2", "a": "", "": "3"}},
			"\x1a\x05\x0a\x00\x12\x013" + "\x1a\x05\x0a\x01a\x12\x00" + "\x1a\x06\x0a\x01b\x12\x012"},
		{"nil in a list", &Asset{Builds: []*AssetBuild{nil}}, "\x32\x00\x42\x00"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.m.AppendProto(nil); string(got) != tt.want {
				t.Errorf("got %x, want %x", got, tt.want)
			}
		})
	}
}

// Lengths of sub-messages around the sizes at which their encoding grows.
func TestAppendProtoLengths(t *testing.T) {
	for _, n := range []int{0, 1, 125, 126, 127, 128, 129, 16380, 16383, 16384, 1 << 21} {
		m := Event{Check: &Check{Output: strings.Repeat("x", n)}, Sequence: 7}
		var got Event
		if err := got.UnmarshalProto(m.AppendProto(nil)); err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if len(got.Check.Output) != n || got.Sequence != 7 {
			t.Errorf("%d bytes came back as %d", n, len(got.Check.Output))
		}
	}
}

func TestUnmarshalProto(t *testing.T) {
	tests := []struct {
		name, in string
		want     Event
	}{
		{"empty", "", Event{}},
		{"unknown fields", "\x98\x06\x01" + "\x08\x05" + "\xa2\x06\x01x" + "\xa9\x0612345678" + "\xab\x06\x08\x01\xac\x06" + "\x4a\x00",
			Event{Timestamp: 5}},
		{"wrong wire type", "\x0a\x01x", Event{}},
		{"last scalar counts", "\x08\x01\x08\x02", Event{Timestamp: 2}},
		{"pieces of a message are merged", "\x22\x03\x0a\x01a" + "\x22\x03\x0a\x01b",
			Event{Metrics: &Metrics{Handlers: []string{"a", "b"}}}},
		{"empty bytes", "\x32\x00", Event{}},
		{"invalid UTF-8", "\x1a\x05\xd2\x01\x02\xff\xfe", Event{Check: &Check{Output: "\xff\xfe"}}},
		{"long varint", "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", Event{Timestamp: -1}},
		{"map entry without value", "\x2a\x05\x1a\x03\x0a\x01k", Event{Metadata: ObjectMeta{Labels: map[string]string{"k": ""}}}},
		{"scattered list", "\x42\x03\x0a\x01a" + "\x08\x01" + "\x42\x03\x0a\x01b",
			Event{Timestamp: 1, Pipelines: []ResourceReference{{Name: "a"}, {Name: "b"}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Event{Sequence: 99} // must go
			if err := got.UnmarshalProto([]byte(tt.in)); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestUnmarshalProtoErrors(t *testing.T) {
	tests := []struct {
		name, in, want string
	}{
		{"cut tag", "\x80", "decode Event: unexpected EOF"},
		{"cut value", "\x08", "decode Event field 1: unexpected EOF"},
		{"cut message", "\x12\x05", "decode Event field 2: unexpected EOF"},
		{"cut inside", "\x1a\x03\xb2\x02\x01", "decode Event field 3: decode Check field 38: unexpected EOF"},
		{"cut map entry", "\x2a\x03\x1a\x01\x0a", "decode Event field 5: decode ObjectMeta field 3: decode map entry field 1: unexpected EOF"},
		{"field 0", "\x00\x00", "decode Event: invalid field number"},
		{"field beyond the last", "\xf8\xff\xff\xff\xff\x01\x00", "invalid field number"},
		{"end of a group", "\x0c", "mismatching end group marker"},
		{"varint too long", "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "variable length integer overflow"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := new(Event).UnmarshalProto([]byte(tt.in))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

func TestUnmarshalProtoCopies(t *testing.T) {
	var full Event
	fill(reflect.ValueOf(&full).Elem(), new(int))
	encoded := full.AppendProto(nil)
	var got Event
	if err := got.UnmarshalProto(encoded); err != nil {
		t.Fatal(err)
	}
	clear(encoded)
	if !reflect.DeepEqual(got, full) {
		t.Error("the event changed with the bytes it was decoded from")
	}
}

// Newer core types have fields that we do not know; some are messages. They must be skipped.
func TestUnmarshalProtoNewerFields(t *testing.T) {
	b := (&Check{Status: 2}).AppendProto(nil)
	b = protowire.AppendTag(b, 49, protowire.BytesType)
	b = protowire.AppendBytes(b, []byte("\x0a\x01f"))
	b = protowire.AppendTag(b, 50, protowire.VarintType)
	b = protowire.AppendVarint(b, 2)
	var c Check
	if err := c.UnmarshalProto(b); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(c.AppendProto(nil), (&Check{Status: 2}).AppendProto(nil)) {
		t.Errorf("got %+v", c)
	}
}
