package remote

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/lapwing-monitoring/lapwing/metric/promname"
)

const (
	// maxBatchBytes bounds a batch before compression, whatever the length of its names.
	maxBatchBytes = 4 << 20
	// maxNames and maxNameBytes bound the labels that a shard remembers in encoded form.
	maxNames     = 100_000
	maxNameBytes = 16 << 20
)

// Fields of the messages of remote write 1: WriteRequest, TimeSeries, Label, Sample.
const (
	fieldSeries          = 1
	fieldLabels          = 1
	fieldSamples         = 2
	fieldLabelName       = 1
	fieldLabelValue      = 2
	fieldSampleValue     = 1
	fieldSampleTimestamp = 2
)

// appendSeries appends a time series of one sample to a WriteRequest. encoded are its labels.
func appendSeries(dst, encoded []byte, unixMilli int64, value float64) []byte {
	const fixed = 1 + 8 + 1 // the value and the tags of a sample
	sample := fixed + protowire.SizeVarint(uint64(unixMilli))
	series := len(encoded) + 1 + protowire.SizeVarint(uint64(sample)) + sample
	dst = protowire.AppendTag(dst, fieldSeries, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(series))
	dst = append(dst, encoded...)
	dst = protowire.AppendTag(dst, fieldSamples, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(sample))
	dst = protowire.AppendTag(dst, fieldSampleValue, protowire.Fixed64Type)
	dst = protowire.AppendFixed64(dst, math.Float64bits(value))
	dst = protowire.AppendTag(dst, fieldSampleTimestamp, protowire.VarintType)
	return protowire.AppendVarint(dst, uint64(unixMilli))
}

func compress(request []byte) []byte { return slices.Clip(snappy.Encode(nil, request)) }

// record returns b as the overflow has it: the time of its first sample in Unix milliseconds, the number of samples, and
// the body.
func (b *batch) record() []byte {
	record := binary.AppendUvarint(make([]byte, 0, len(b.body)+16), uint64(max(0, b.since.UnixMilli())))
	record = binary.AppendUvarint(record, uint64(b.samples))
	return append(record, b.body...)
}

var errRecord = errors.New("the record does not begin with a time and a number of samples")

func readRecord(record []byte) (*batch, error) {
	milli, n := binary.Uvarint(record)
	if n <= 0 || milli > math.MaxInt64 {
		return nil, errRecord
	}
	samples, m := binary.Uvarint(record[n:])
	if m <= 0 || samples == 0 || samples > maxBatchSamples {
		return nil, errRecord
	}
	b := &batch{record[n+m:], int(samples), time.UnixMilli(int64(milli))}
	if _, err := snappy.DecodedLen(b.body); err != nil {
		return nil, fmt.Errorf("the record is not compressed: %w", err)
	}
	return b, nil
}

// names makes the encoded labels of stored names, and remembers them. All series come again and again.
type names struct {
	external []labels.Label
	sanitize bool
	encoded  map[string][]byte
	bytes    int
}

func (n *names) init(o Options) {
	n.sanitize = o.Sanitize
	n.encoded = map[string][]byte{}
	for name, value := range o.Labels {
		n.external = append(n.external, labels.Label{Name: name, Value: value})
	}
}

func (n *names) labels(name []byte) []byte {
	if e, ok := n.encoded[string(name)]; ok {
		return e
	}
	e := n.encode(string(name))
	if len(n.encoded) >= maxNames || n.bytes >= maxNameBytes {
		clear(n.encoded)
		n.bytes = 0
	}
	n.encoded[string(name)] = e
	n.bytes += len(name) + len(e)
	return e
}

func (n *names) encode(name string) (dst []byte) {
	b := labels.NewBuilder(labels.EmptyLabels())
	promname.Each(name, func(name, value string) {
		if n.sanitize {
			if name == labels.MetricName {
				value = sanitize(value, true)
			}
			name = sanitize(name, false)
		}
		b.Set(name, value)
	})
	for _, l := range n.external {
		if b.Get(l.Name) == "" {
			b.Set(l.Name, l.Value)
		}
	}
	// The receivers want the labels sorted, and so they are.
	b.Labels().Range(func(l labels.Label) {
		size := 1 + protowire.SizeBytes(len(l.Name)) + 1 + protowire.SizeBytes(len(l.Value))
		dst = protowire.AppendTag(dst, fieldLabels, protowire.BytesType)
		dst = protowire.AppendVarint(dst, uint64(size))
		dst = protowire.AppendTag(dst, fieldLabelName, protowire.BytesType)
		dst = protowire.AppendString(dst, l.Name)
		dst = protowire.AppendTag(dst, fieldLabelValue, protowire.BytesType)
		dst = protowire.AppendString(dst, l.Value)
	})
	return dst
}

// sanitize replaces what PromQL takes only in quotes.
func sanitize(name string, colon bool) string {
	out := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || colon && r == ':' {
			return r
		}
		return '_'
	}, name)
	if out != "" && out[0] >= '0' && out[0] <= '9' {
		return "_" + out
	}
	return out
}
