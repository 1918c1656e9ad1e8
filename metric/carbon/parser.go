package carbon

import (
	"bytes"
	"errors"
	"math"
	"time"
)

// Adder takes the points of a parser.
type Adder interface {
	// Add takes one point. It must not keep name. It may block, which holds up the sender. An error means that this point
	// was not taken; the parser counts it and continues.
	Add(name []byte, unixMilli int64, value float64) error
}

// Reason is why a point, a line or a frame was not taken.
type Reason uint8

const (
	// BadFormat is a line without two or three fields.
	BadFormat Reason = iota
	// BadValue is a value that is no number.
	BadValue
	// BadTimestamp is a timestamp that is no number.
	BadTimestamp
	// NaN is a value that is not a number by its own word.
	NaN
	// Infinite is an infinite value.
	Infinite
	// Past is a timestamp of 0 or before.
	Past
	// Future is a timestamp more than a day ahead.
	Future
	// NameTooLong is a name above the limit.
	NameTooLong
	// LineTooLong is a line that is longer than one with a name of that length can be.
	LineTooLong
	// BadItem is a part of a frame that is no point, where the rest of the frame could be read.
	BadItem
	// BadFrame is a frame that could not be read. It counts as one, whatever was in it.
	BadFrame
	// Refused is a point that the writer refused.
	Refused
	// Incomplete is a line or frame whose connection broke before its end.
	Incomplete

	// Reasons is the number of reasons.
	Reasons
)

var reasonNames = [Reasons]string{BadFormat: "format", BadValue: "value", BadTimestamp: "timestamp", NaN: "nan", Infinite: "inf",
	Past: "past", Future: "future", NameTooLong: "name_too_long", LineTooLong: "line_too_long", BadItem: "item",
	BadFrame: "frame", Refused: "refused", Incomplete: "incomplete"}

// String returns the reason as the metrics have it.
func (r Reason) String() string {
	if r < Reasons {
		return reasonNames[r]
	}
	return "unknown"
}

// Counts are what a parser took and what it did not take.
type Counts struct {
	// Points is the number of points that the Adder took.
	Points uint64
	// Rejected is the number of points, lines and frames that were not taken, by Reason.
	Rejected [Reasons]uint64
}

// Sample is the first thing that a parser rejected since its counts were taken, for a log line.
type Sample struct {
	Reason Reason
	// Text is the begin of the line, or the name, as far as it is known.
	Text string
	// Err says more, if there is more to say.
	Err error
}

const (
	// DefaultMaxName is the longest name of a point, in bytes.
	DefaultMaxName = 4096
	// DefaultMaxLine is the longest line, in bytes. A longer one closes the connection.
	DefaultMaxLine = 64 << 10
	// numbersRoom is what a line may have besides its name. Numbers need 50 bytes of it.
	numbersRoom = 128
	// maxAhead is how far in the future a point may be, in seconds.
	maxAhead = 24 * 60 * 60
	// sampleLength bounds Sample.Text.
	sampleLength = 200
)

// ErrLineTooLong is returned for a line above Parser.MaxLine. What follows it cannot be trusted.
var ErrLineTooLong = errors.New("a line is longer than the limit")

// Parser reads points in carbon's three encodings, and passes them to an Adder. The zero value is ready. Bad input is
// counted and never a panic. A Parser may not be used by several goroutines at once.
//
// Names are bytes. The parsers look for the end of a name and at its length, at nothing else: tags, empty nodes and
// characters are package name's.
type Parser struct {
	// MaxName bounds names, in bytes. Default DefaultMaxName.
	MaxName int
	// MaxLine bounds lines, in bytes. Default DefaultMaxLine.
	MaxLine int
	// KeepInfinite takes infinite values. Graphite's JSON has no way to write them.
	KeepInfinite bool
	// Now is the clock. Default time.Now.
	Now func() time.Time

	counts  Counts
	sample  Sample
	sampled bool
}

// TakeCounts returns the counts since the last call.
func (p *Parser) TakeCounts() Counts {
	c := p.counts
	p.counts = Counts{}
	return c
}

// TakeSample returns the first thing that was rejected since the last call, and whether there is one.
func (p *Parser) TakeSample() (Sample, bool) {
	s, ok := p.sample, p.sampled
	p.sample, p.sampled = Sample{}, false
	return s, ok
}

func (p *Parser) reject(r Reason, text []byte, err error) {
	p.counts.Rejected[r]++
	if !p.sampled {
		p.sampled = true
		p.sample = Sample{r, string(text[:min(len(text), sampleLength)]), err}
	}
}

func (p *Parser) maxName() int {
	if p.MaxName > 0 {
		return p.MaxName
	}
	return DefaultMaxName
}

func (p *Parser) maxLine() int {
	if p.MaxLine > 0 {
		return p.MaxLine
	}
	return DefaultMaxLine
}

// usefulLine is the length above which a line cannot hold a point.
func (p *Parser) usefulLine() int { return min(p.maxName()+numbersRoom, p.maxLine()) }

func (p *Parser) unixNow() int64 {
	if p.Now != nil {
		return p.Now().Unix()
	}
	return time.Now().Unix()
}

// point checks a point and passes it on. ts and now are Unix seconds.
func (p *Parser) point(name []byte, ts int64, value float64, now int64, to Adder) {
	switch {
	case value-value != 0 && !p.finite(name, value):
		return
	case ts <= 0:
		p.reject(Past, name, nil)
		return
	case ts > now+maxAhead:
		p.reject(Future, name, nil)
		return
	case len(name) > p.maxName():
		p.reject(NameTooLong, name, nil)
		return
	}
	if err := to.Add(name, ts*1000, value); err != nil {
		p.reject(Refused, name, err)
		return
	}
	p.counts.Points++
}

// finite rejects a value that is NaN or infinite, unless it may be taken.
func (p *Parser) finite(name []byte, value float64) bool {
	if math.IsNaN(value) {
		p.reject(NaN, name, nil)
		return false
	}
	if !p.KeepInfinite {
		p.reject(Infinite, name, nil)
		return false
	}
	return true
}

// Lines reads the complete lines in data: name, value and timestamp, separated by blanks or tabs. It returns the number
// of bytes up to the end of the last line. The only error is ErrLineTooLong, for a line at that position.
func (p *Parser) Lines(data []byte, to Adder) (int, error) {
	now := p.unixNow()
	tabs := bytes.IndexByte(data, '\t') >= 0
	useful := p.usefulLine()
	for at := 0; ; {
		n := bytes.IndexByte(data[at:], '\n')
		if n < 0 {
			return at, nil
		}
		line := data[at : at+n]
		if n > useful {
			if n > p.maxLine() {
				return at, ErrLineTooLong
			}
			p.reject(LineTooLong, line, nil)
			at += n + 1
			continue
		}
		at += n + 1
		// Most lines have one blank between name and value.
		if !tabs {
			if i := bytes.IndexByte(line, ' '); i > 0 {
				if value, ts, ok := plainNumbers(line[i+1:]); ok {
					p.point(line[:i], ts, value, now, to)
					continue
				}
			}
		}
		p.anyLine(line, now, to)
	}
}

// Line reads one line without its line feed, for example the last one of a connection.
func (p *Parser) Line(line []byte, to Adder) error {
	if len(line) > p.maxLine() {
		return ErrLineTooLong
	}
	if len(line) > p.usefulLine() {
		p.reject(LineTooLong, line, nil)
		return nil
	}
	p.anyLine(line, p.unixNow(), to)
	return nil
}

// anyLine reads a line of any valid form. An empty one is nothing.
func (p *Parser) anyLine(line []byte, now int64, to Adder) {
	name, rest := field(line)
	if len(name) == 0 {
		return
	}
	text, rest := field(rest)
	if len(text) == 0 {
		p.reject(BadFormat, line, nil)
		return
	}
	stamp, rest := field(rest)
	if more, _ := field(rest); len(more) != 0 {
		p.reject(BadFormat, line, nil)
		return
	}
	value, ok := parseFloat(text)
	if !ok {
		p.reject(BadValue, line, nil)
		return
	}
	ts := now
	if len(stamp) > 0 {
		if ts, ok = parseTimestamp(stamp, now); !ok {
			p.reject(BadTimestamp, line, nil)
			return
		}
	}
	p.point(name, ts, value, now, to)
}

func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' }

// field returns the first field of a line and what follows it.
func field(line []byte) (first, rest []byte) {
	i := 0
	for i < len(line) && blank(line[i]) {
		i++
	}
	begin := i
	for i < len(line) && !blank(line[i]) {
		i++
	}
	return line[begin:i], line[i:]
}
