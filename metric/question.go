package metric

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/lapwing-monitoring/lapwing/metric/graphite"
	"github.com/lapwing-monitoring/lapwing/metric/series"
	"github.com/lapwing-monitoring/lapwing/metric/store"
)

// This file has the questions about stored metrics that members ask each other. The member that a user asks checks the
// user's rights, and passes the view on.

// Names of questions.
const (
	questionQuery = "metric-query"
	// questionPart asks for a further part of an answer that was too large for one message.
	questionPart = "metric-part"
)

// questionVersion is the newest version of questions. A member refuses newer ones.
const questionVersion = 1

// about is what a question is about.
type about uint8

const (
	aboutFind about = iota + 1
	aboutTagged
	aboutFetch
	aboutNodes
	aboutAll
	aboutTags
	aboutTagsOf
	aboutValuesOf
	aboutTagSeries
	aboutDelete
	aboutSelect
	aboutLabelNames
	aboutLabelValues
	aboutRemoved
)

// question is a question about metrics. Each kind uses some of the fields.
type question struct {
	Version          int
	About            about
	View             View
	Text             string // a pattern, filter, tag, label or path
	Prefix           string
	Texts            []string // expressions, names or paths
	Limit            int
	From, Until, Now int64 // seconds, of labels and samples milliseconds
	LabelsOnly       bool
	Matchers         []matcher
}

type matcher struct {
	Type        int
	Name, Value string
}

// answer is the answer to a question. Each kind uses some of the fields.
type answer struct {
	Names  []string
	Nodes  []graphite.Node
	Ranges []rangeAnswer
	Series []seriesAnswer
	// Bad is why the question is wrong.
	Bad string
}

// rangeAnswer is a series.Range.
type rangeAnswer struct {
	Name         string
	Start, Step  int64
	Values       []byte // floats of 8 bytes
	Aggregation  uint8
	XFilesFactor float64
}

// seriesAnswer is a series with its samples.
type seriesAnswer struct {
	Name   string // canonical
	Times  []byte // in milliseconds, as varints of the differences
	Values []byte // floats of 8 bytes
}

func packFloats(values []float64) []byte {
	b := make([]byte, 0, 8*len(values))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	return b
}

func unpackFloats(b []byte) []float64 {
	values := make([]float64, len(b)/8)
	for i := range values {
		values[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return values
}

func packTimes(times []int64) []byte {
	b := make([]byte, 0, 3*len(times))
	var last int64
	for _, t := range times {
		b = binary.AppendVarint(b, t-last)
		last = t
	}
	return b
}

func unpackTimes(b []byte) ([]int64, error) {
	times := make([]int64, 0, len(b)/2)
	var last int64
	for len(b) > 0 {
		d, n := binary.Varint(b)
		if n <= 0 {
			return nil, errors.New("a time is cut off")
		}
		last += d
		times, b = append(times, last), b[n:]
	}
	return times, nil
}

// answerHere answers a question with what this member has.
func (s *Server) answerHere(ctx context.Context, q *question) (*answer, error) {
	src := &source{s, q.View}
	a := &answer{}
	var err error
	switch q.About {
	case aboutFind:
		a.Names, err = src.Find(ctx, q.Text)
	case aboutTagged:
		a.Names, err = src.FindTagged(ctx, q.Texts)
	case aboutFetch:
		var ranges []series.Range
		ranges, err = src.Fetch(ctx, q.Texts, q.From, q.Until, q.Now)
		for i := range ranges {
			r := &ranges[i]
			a.Ranges = append(a.Ranges, rangeAnswer{
				r.Name, r.Start, r.Step, packFloats(r.Values), uint8(r.Aggregation), r.XFilesFactor,
			})
		}
	case aboutNodes:
		a.Nodes, err = src.Nodes(ctx, q.Text)
	case aboutAll:
		err = src.All(ctx, func(name string) bool { a.Names = append(a.Names, name); return true })
	case aboutTags:
		a.Names, err = src.Tags(ctx, q.Text, q.Limit)
	case aboutTagsOf:
		a.Names, err = src.AutoCompleteTags(ctx, q.Texts, q.Prefix, q.Limit)
	case aboutValuesOf:
		a.Names, err = src.AutoCompleteValues(ctx, q.Texts, q.Text, q.Prefix, q.Limit)
	case aboutTagSeries:
		var name string
		name, err = src.TagSeries(ctx, q.Text)
		a.Names = []string{name}
	case aboutDelete:
		err = src.DeleteSeries(ctx, q.Texts)
	case aboutSelect, aboutLabelNames, aboutLabelValues:
		err = s.selectHere(ctx, q, a)
	case aboutRemoved:
		if s.members != nil {
			a.Names = s.members.Removed()
		}
	default:
		err = fmt.Errorf("this member does not know questions of kind %d: upgrade it", q.About)
	}
	return a, err
}

// selectHere answers a question of PromQL.
func (s *Server) selectHere(ctx context.Context, q *question, a *answer) (err error) {
	querier, err := queryable{s.store, q.View}.Querier(q.From, q.Until)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, querier.Close()) }()
	ms := make([]*labels.Matcher, 0, len(q.Matchers))
	for _, m := range q.Matchers {
		one, err := labels.NewMatcher(labels.MatchType(m.Type), m.Name, m.Value)
		if err != nil {
			return badRequest{err}
		}
		ms = append(ms, one)
	}
	hints := &storage.LabelHints{Limit: q.Limit}
	switch q.About {
	case aboutLabelNames:
		a.Names, _, err = querier.LabelNames(ctx, hints, ms...)
		return err
	case aboutLabelValues:
		a.Names, _, err = querier.LabelValues(ctx, q.Text, hints, ms...)
		return err
	}
	set := querier.Select(ctx, true, nil, ms...)
	points := 0
	for set.Next() {
		one := seriesAnswer{Name: store.Name(set.At().Labels())}
		if !q.LabelsOnly {
			times, values, err := samples(set.At())
			if err != nil {
				return err
			}
			if points += len(times); points > s.opts.MaxPoints {
				return badRequest{fmt.Errorf("the query would read more than %d samples of a member", s.opts.MaxPoints)}
			}
			one.Times, one.Values = packTimes(times), packFloats(values)
		}
		a.Series = append(a.Series, one)
	}
	return set.Err()
}

// samples reads all samples of a series.
func samples(from storage.Series) (times []int64, values []float64, err error) {
	it := from.Iterator(nil)
	for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
		if kind != chunkenc.ValFloat {
			continue // only numbers are stored
		}
		t, v := it.At()
		times, values = append(times, t), append(values, v)
	}
	return times, values, it.Err()
}

const (
	// partBytes bounds an answer in one message.
	partBytes = 3 << 20
	// answerBytes bounds an answer after compression, and unpackedBytes before it.
	answerBytes, unpackedBytes = 64 << 20, 1 << 30
	// allPartBytes bounds the answers whose parts were not all fetched, keepParts how long they are kept.
	allPartBytes = 256 << 20
	keepParts    = 20 * time.Second

	// The first byte of an answer: it is whole, or an id and its length follow, and the first part.
	wholeAnswer = 0
	firstPart   = 1
)

// parts are the further parts of answers.
type parts struct {
	mu    sync.Mutex // guards the fields below
	next  uint64
	bytes int
	open  map[uint64][]byte
}

// keep keeps an answer until it is fetched, for a while.
func (p *parts) keep(data []byte) (uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bytes+len(data) > allPartBytes {
		return 0, errors.New("too many large answers at a time")
	}
	if p.open == nil {
		p.open = map[uint64][]byte{}
	}
	p.next++
	id := p.next
	p.open[id] = data
	p.bytes += len(data)
	time.AfterFunc(keepParts, func() { p.forget(id) })
	return id, nil
}

func (p *parts) forget(id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes -= len(p.open[id])
	delete(p.open, id)
}

// part answers a question for a part: the id of the answer, and where the part begins.
func (p *parts) part(_ context.Context, payload []byte) ([]byte, error) {
	if len(payload) != 16 {
		return nil, errors.New("a question for a part of an answer has the wrong length")
	}
	id, from := binary.LittleEndian.Uint64(payload), binary.LittleEndian.Uint64(payload[8:])
	p.mu.Lock()
	data := p.open[id]
	p.mu.Unlock()
	if from >= uint64(len(data)) {
		return nil, errors.New("the rest of the answer is gone: it was not fetched in time")
	}
	rest := data[from:]
	if len(rest) <= partBytes {
		p.forget(id)
	}
	return rest[:min(len(rest), partBytes)], nil
}

// answerQuery answers another member's question.
func (s *Server) answerQuery(ctx context.Context, payload []byte) ([]byte, error) {
	q := &question{}
	if err := msgpack.Unmarshal(payload, q); err != nil {
		return nil, fmt.Errorf("read a question about metrics: %w", err)
	}
	if q.Version > questionVersion {
		return nil, fmt.Errorf("the question has version %d, and this member knows version %d: upgrade it",
			q.Version, questionVersion)
	}
	a, err := s.answerHere(ctx, q)
	var bad interface{ BadRequest() bool }
	if errors.As(err, &bad) && bad.BadRequest() {
		a, err = &answer{Bad: err.Error()}, nil
	}
	if err != nil {
		return nil, err
	}
	raw, err := msgpack.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("encode an answer about metrics: %w", err)
	}
	if len(raw) > unpackedBytes {
		return nil, fmt.Errorf("the answer has %d bytes, more than %d", len(raw), unpackedBytes)
	}
	data := s2.Encode(nil, raw)
	switch {
	case len(data) <= partBytes:
		return append([]byte{wholeAnswer}, data...), nil
	case len(data) > answerBytes:
		return nil, fmt.Errorf("the compressed answer has %d bytes, more than %d", len(data), answerBytes)
	}
	id, err := s.parts.keep(data)
	if err != nil {
		return nil, err
	}
	out := binary.LittleEndian.AppendUint64([]byte{firstPart}, id)
	out = binary.LittleEndian.AppendUint64(out, uint64(len(data)))
	return append(out, data[:partBytes]...), nil
}

// unpack decompresses at most so many bytes.
func unpack(data []byte, most int) ([]byte, error) {
	size, err := s2.DecodedLen(data)
	if err != nil {
		return nil, err
	}
	if size > most {
		return nil, fmt.Errorf("it has %d bytes, more than %d", size, most)
	}
	return s2.Decode(nil, data)
}

// askMember asks another member, and puts the parts of its answer together.
func (s *Server) askMember(ctx context.Context, id string, payload []byte) (*answer, error) {
	ask := s.opts.Cluster.Ask
	body, err := ask(ctx, id, questionQuery, payload)
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		return nil, errors.New("the answer is empty")
	}
	data := body[1:]
	if body[0] != wholeAnswer {
		if body[0] != firstPart || len(data) < 16 {
			return nil, errors.New("the answer has an unknown form")
		}
		number, total := data[:8], binary.LittleEndian.Uint64(data[8:])
		if total > answerBytes {
			return nil, fmt.Errorf("the answer has %d bytes, more than %d", total, answerBytes)
		}
		for data = slices.Clone(data[16:]); uint64(len(data)) < total; {
			part, err := ask(ctx, id, questionPart, binary.LittleEndian.AppendUint64(slices.Clone(number), uint64(len(data))))
			if err != nil {
				return nil, err
			}
			if len(part) == 0 {
				return nil, errors.New("a part of the answer is empty")
			}
			data = append(data, part...)
		}
	}
	raw, err := unpack(data, unpackedBytes)
	if err != nil {
		return nil, fmt.Errorf("unpack the answer: %w", err)
	}
	a := &answer{}
	if err := msgpack.Unmarshal(raw, a); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	return a, nil
}
