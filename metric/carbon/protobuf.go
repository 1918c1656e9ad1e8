package carbon

import (
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// The fields of carbon's messages:
//
//	Payload{ repeated Metric metrics = 1 }
//	Metric{ string metric = 1; repeated Point points = 2 }
//	Point{ uint32 timestamp = 1; double value = 2 }
const (
	payloadMetrics protowire.Number = 1
	metricName     protowire.Number = 1
	metricPoints   protowire.Number = 2
	pointTimestamp protowire.Number = 1
	pointValue     protowire.Number = 2
)

// Protobuf reads a frame of carbon's protobuf, without its length. It returns an error, and passes nothing on, if any
// of it cannot be read. A metric without a name or without points is counted, and the others are taken.
func (p *Parser) Protobuf(frame []byte, to Adder) error {
	if err := p.payload(frame, 0, nil); err != nil {
		p.reject(BadFrame, nil, err)
		return fmt.Errorf("read protobuf: %w", err)
	}
	return p.payload(frame, p.unixNow(), to)
}

// payload reads a Payload. With a nil Adder it only checks.
func (p *Parser) payload(b []byte, now int64, to Adder) error {
	metrics := 0
	for len(b) > 0 {
		number, kind, data, rest, err := protoField(b)
		if err != nil {
			return err
		}
		b = rest
		if number != payloadMetrics {
			continue
		}
		if kind != protowire.BytesType {
			return fmt.Errorf("field metrics has the type %d", kind)
		}
		metrics++
		if err := p.metric(data, now, to); err != nil {
			return err
		}
	}
	if metrics == 0 {
		return errors.New("no metrics in the payload")
	}
	return nil
}

// metric reads a Metric: its name first, because fields come in any order.
func (p *Parser) metric(b []byte, now int64, to Adder) error {
	var name []byte
	points := 0
	for rest := b; len(rest) > 0; {
		number, kind, data, after, err := protoField(rest)
		if err != nil {
			return err
		}
		rest = after
		if (number == metricName || number == metricPoints) && kind != protowire.BytesType {
			return fmt.Errorf("field %d of a metric has the type %d", number, kind)
		}
		switch number {
		case metricName:
			name = data
		case metricPoints:
			points++
			if _, _, err := protoPoint(data); err != nil {
				return err
			}
		}
	}
	if to == nil {
		return nil
	}
	if len(name) == 0 || points == 0 {
		p.reject(BadItem, name, nil)
		return nil
	}
	for rest := b; len(rest) > 0; {
		number, _, data, after, err := protoField(rest)
		if err != nil {
			return err
		}
		rest = after
		if number != metricPoints {
			continue
		}
		ts, value, err := protoPoint(data)
		if err != nil {
			return err
		}
		p.point(name, ts, value, now, to)
	}
	return nil
}

// protoPoint reads a Point.
func protoPoint(b []byte) (ts int64, value float64, err error) {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0, 0, protowire.ParseError(n)
		}
		b = b[n:]
		switch {
		case number == pointTimestamp && kind == protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return 0, 0, protowire.ParseError(n)
			}
			ts, b = int64(uint32(v)), b[n:]
		case number == pointValue && kind == protowire.Fixed64Type:
			v, n := protowire.ConsumeFixed64(b)
			if n < 0 {
				return 0, 0, protowire.ParseError(n)
			}
			value, b = math.Float64frombits(v), b[n:]
		case number == pointTimestamp || number == pointValue:
			return 0, 0, fmt.Errorf("field %d of a point has the type %d", number, kind)
		default:
			n := protowire.ConsumeFieldValue(number, kind, b)
			if n < 0 {
				return 0, 0, protowire.ParseError(n)
			}
			b = b[n:]
		}
	}
	return ts, value, nil
}

// protoField reads one field. data is the content of one of bytes.
func protoField(b []byte) (number protowire.Number, kind protowire.Type, data, rest []byte, err error) {
	number, kind, n := protowire.ConsumeTag(b)
	if n < 0 {
		return 0, 0, nil, nil, protowire.ParseError(n)
	}
	b = b[n:]
	if kind == protowire.BytesType {
		data, n = protowire.ConsumeBytes(b)
	} else {
		n = protowire.ConsumeFieldValue(number, kind, b)
	}
	if n < 0 {
		return 0, 0, nil, nil, protowire.ParseError(n)
	}
	return number, kind, data, b[n:], nil
}
