package promapi

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/value"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/lapwing-monitoring/lapwing/metric/promname"
)

// decoder walks over a remote write request and gives its samples to a Writer. It copies no text out of the request:
// the only thing that it builds is the stored name of a series.
type decoder struct {
	writer  Writer
	maxName int

	builder promname.Builder
	// badLabel says why the series at hand cannot be stored.
	badLabel error
	name     []byte
	symbols  [][]byte

	// samples is the number of samples that the Writer took. stale, nan, invalid, refused and histograms count those
	// that it did not get or did not want.
	samples, stale, nan, invalid, refused, histograms int
	// firstBad says why the first sample was invalid or refused.
	firstBad error
}

// malformedError says that a request is not what its content type says.
type malformedError struct{ err error }

func (e *malformedError) Error() string { return "malformed request: " + e.err.Error() }
func (e *malformedError) Unwrap() error { return e.err }

func malformed(format string, args ...any) error { return &malformedError{fmt.Errorf(format, args...)} }

// maxSymbols bounds the symbols of a request. A symbol takes two bytes in a request and 24 in memory.
const maxSymbols = 1 << 20

func (d *decoder) reset(w Writer) {
	clear(d.symbols)
	if cap(d.symbols) > maxSymbols/16 {
		d.symbols = nil
	}
	*d = decoder{writer: w, maxName: d.maxName, builder: d.builder, name: d.name, symbols: d.symbols[:0]}
}

// fields calls f with each field of a message. For a field of length-delimited type, data is its content; for others,
// number is its value as the wire has it.
func fields(message []byte, f func(num protowire.Number, kind protowire.Type, data []byte, number uint64) error) error {
	for len(message) > 0 {
		num, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return malformed("field: %w", protowire.ParseError(n))
		}
		message = message[n:]
		var data []byte
		var number uint64
		switch kind {
		case protowire.BytesType:
			data, n = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(message)
		case protowire.Fixed64Type:
			number, n = protowire.ConsumeFixed64(message)
		case protowire.Fixed32Type:
			_, n = protowire.ConsumeFixed32(message)
		default:
			n = protowire.ConsumeFieldValue(num, kind, message)
		}
		if n < 0 {
			return malformed("field %d: %w", num, protowire.ParseError(n))
		}
		message = message[n:]
		if err := f(num, kind, data, number); err != nil {
			return err
		}
	}
	return nil
}

func expect(what string, got, want protowire.Type) error {
	if got != want {
		return malformed("%s has wire type %d, not %d", what, got, want)
	}
	return nil
}

// v1 decodes a prometheus.WriteRequest: timeseries are field 1; the metadata is of no use to the store.
func (d *decoder) v1(message []byte) error {
	return fields(message, func(num protowire.Number, kind protowire.Type, data []byte, _ uint64) error {
		if num != 1 {
			return nil
		}
		if err := expect("timeseries", kind, protowire.BytesType); err != nil {
			return err
		}
		return d.series1(data)
	})
}

// series1 decodes a prometheus.TimeSeries: labels are field 1, samples 2, exemplars 3, histograms 4. A field may stand
// anywhere, so the labels take a walk of their own.
func (d *decoder) series1(message []byte) error {
	d.builder.Reset()
	d.badLabel = nil
	if err := fields(message, func(num protowire.Number, kind protowire.Type, data []byte, _ uint64) error {
		switch num {
		case 1:
			if err := expect("a label", kind, protowire.BytesType); err != nil {
				return err
			}
			return d.label1(data)
		case 2:
			return expect("a sample", kind, protowire.BytesType)
		case 4:
			return expect("a histogram", kind, protowire.BytesType)
		}
		return nil
	}); err != nil {
		return err
	}
	bad := d.finish()
	return fields(message, func(num protowire.Number, _ protowire.Type, data []byte, _ uint64) error {
		switch num {
		case 2:
			return d.sample(data, bad)
		case 4:
			d.histograms++
		}
		return nil
	})
}

func (d *decoder) label1(message []byte) error {
	var name, text []byte
	if err := fields(message, func(num protowire.Number, kind protowire.Type, data []byte, _ uint64) error {
		switch num {
		case 1:
			name = data
			return expect("the name of a label", kind, protowire.BytesType)
		case 2:
			text = data
			return expect("the value of a label", kind, protowire.BytesType)
		}
		return nil
	}); err != nil {
		return err
	}
	d.add(name, text)
	return nil
}

var (
	errLabel = errors.New("a label has no name, or is not UTF-8")
	errLong  = errors.New("the name of a series with its labels is too long")
)

// add adds a label to the name. Nothing is built for a name that is too long.
func (d *decoder) add(name, text []byte) {
	switch {
	case d.badLabel != nil:
	case len(name) == 0 || !utf8.Valid(name) || !utf8.Valid(text):
		d.badLabel = errLabel
	case d.builder.Size()+len(name)+len(text) > d.maxName:
		d.badLabel = errLong
	default:
		d.builder.Add(name, text)
	}
}

// finish makes the stored name of the labels, or says why there is none.
func (d *decoder) finish() (bad error) {
	if d.badLabel != nil {
		return d.badLabel
	}
	if d.builder.Size() > d.maxName {
		return errLong
	}
	d.name, bad = d.builder.Append(d.name[:0])
	return bad
}

// sample decodes a Sample, which is the same in both versions: value is field 1, timestamp 2. bad says why the
// series of the sample cannot be stored.
func (d *decoder) sample(message []byte, bad error) error {
	var bits, milli uint64
	if err := fields(message, func(num protowire.Number, kind protowire.Type, _ []byte, number uint64) error {
		switch num {
		case 1:
			bits = number
			return expect("the value of a sample", kind, protowire.Fixed64Type)
		case 2:
			milli = number
			return expect("the time of a sample", kind, protowire.VarintType)
		}
		return nil
	}); err != nil {
		return err
	}
	v := math.Float64frombits(bits)
	switch {
	case bad != nil:
		d.invalid++
		d.bad(bad)
		return nil
	case value.IsStaleNaN(v):
		d.stale++
		return nil
	case math.IsNaN(v):
		d.nan++
		return nil
	}
	err := d.writer.Add(d.name, int64(milli), v)
	if errors.Is(err, ErrRefused) {
		d.refused++
		d.bad(err)
		return nil
	}
	if err != nil {
		return err
	}
	d.samples++
	return nil
}

func (d *decoder) bad(err error) {
	if d.firstBad == nil {
		d.firstBad = err
	}
}

// v2 decodes an io.prometheus.write.v2.Request: symbols are field 4, timeseries 5. The labels of a series are numbers
// of symbols.
func (d *decoder) v2(message []byte) error {
	if err := fields(message, func(num protowire.Number, kind protowire.Type, data []byte, _ uint64) error {
		if num == 4 {
			if len(d.symbols) == maxSymbols {
				return malformed("there are more than %d symbols", maxSymbols)
			}
			d.symbols = append(d.symbols, data)
			return expect("a symbol", kind, protowire.BytesType)
		}
		return nil
	}); err != nil {
		return err
	}
	return fields(message, func(num protowire.Number, kind protowire.Type, data []byte, _ uint64) error {
		if num != 5 {
			return nil
		}
		if err := expect("timeseries", kind, protowire.BytesType); err != nil {
			return err
		}
		return d.series2(data)
	})
}

// series2 decodes an io.prometheus.write.v2.TimeSeries: the numbers of the labels' symbols are field 1,
// samples 2, histograms 3.
func (d *decoder) series2(message []byte) error {
	d.builder.Reset()
	d.badLabel = nil
	var name []byte
	refs := 0
	ref := func(number uint64) error {
		if number >= uint64(len(d.symbols)) {
			return malformed("there is no symbol %d: the request has %d", number, len(d.symbols))
		}
		if symbol := d.symbols[number]; refs%2 == 0 {
			name = symbol
		} else {
			d.add(name, symbol)
		}
		refs++
		return nil
	}
	if err := fields(message, func(num protowire.Number, kind protowire.Type, data []byte, number uint64) error {
		switch {
		case num == 1 && kind == protowire.VarintType:
			return ref(number & math.MaxUint32)
		case num == 1:
			if err := expect("labels", kind, protowire.BytesType); err != nil {
				return err
			}
			for len(data) > 0 {
				number, n := protowire.ConsumeVarint(data)
				if n < 0 {
					return malformed("labels: %w", protowire.ParseError(n))
				}
				if err := ref(number & math.MaxUint32); err != nil {
					return err
				}
				data = data[n:]
			}
		case num == 2:
			return expect("a sample", kind, protowire.BytesType)
		case num == 3:
			return expect("a histogram", kind, protowire.BytesType)
		}
		return nil
	}); err != nil {
		return err
	}
	if refs%2 != 0 {
		return malformed("a series has %d numbers for its labels, which is odd", refs)
	}
	bad := d.finish()
	return fields(message, func(num protowire.Number, _ protowire.Type, data []byte, _ uint64) error {
		switch num {
		case 2:
			return d.sample(data, bad)
		case 3:
			d.histograms++
		}
		return nil
	})
}
