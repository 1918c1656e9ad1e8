package graphite

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/lapwing-monitoring/lapwing/metric/pickle"
	"github.com/lapwing-monitoring/lapwing/metric/plot"
	"github.com/lapwing-monitoring/lapwing/metric/render"
)

func (c *call) renderJSON(list []*render.Series, noNullPoints bool) error {
	return c.json(true, func(j *jsonWriter) error {
		j.open('[')
		for _, s := range list {
			if j.err != nil || c.ctx.Err() != nil {
				break
			}
			if noNullPoints && !slices.ContainsFunc(s.Values, known) {
				continue
			}
			j.open('{')
			j.textField("target", s.Name)
			j.key("tags")
			writeTags(j, s.Tags)
			j.key("datapoints")
			j.open('[')
			at := s.Start
			for _, v := range s.Values {
				if !noNullPoints || known(v) {
					j.point(v, at)
				}
				at += s.Step
			}
			j.close(']')
			j.close('}')
		}
		j.close(']')
		return c.ctx.Err()
	})
}

func known(v float64) bool { return !math.IsNaN(v) }

func writeTags(j *jsonWriter, tags map[string]string) {
	names := make([]string, 0, len(tags))
	for name := range tags {
		names = append(names, name)
	}
	slices.Sort(names)
	j.open('{')
	for _, name := range names {
		j.textField(name, tags[name])
	}
	j.close('}')
}

// text answers with the text that write appends for each series.
func (c *call) text(list []*render.Series, write func(b []byte, s *render.Series) []byte) error {
	var b []byte
	for _, s := range list {
		if c.ctx.Err() != nil {
			return c.ctx.Err()
		}
		if b = write(b, s); len(b) < flushAt {
			continue
		}
		if _, err := c.w.Write(b); err != nil {
			return err
		}
		b = b[:0]
	}
	_, err := c.w.Write(b)
	return err
}

func (c *call) renderCSV(list []*render.Series, loc *time.Location) error {
	c.w.Header().Set("Content-Type", "text/csv")
	return c.text(list, func(b []byte, s *render.Series) []byte {
		name := csvField(s.Name)
		at := s.Start
		for _, v := range s.Values {
			b = append(append(b, name...), ',')
			b = time.Unix(at, 0).In(loc).AppendFormat(b, "2006-01-02 15:04:05")
			b = append(b, ',')
			if known(v) {
				b = appendPythonFloat(b, v)
			}
			b = append(b, '\r', '\n')
			at += s.Step
		}
		return b
	})
}

// csvField quotes a field as Excel wants it, if it needs that.
func csvField(s string) string {
	if !strings.ContainsAny(s, ",\"\r\n") {
		return s
	}
	return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
}

func (c *call) renderRaw(list []*render.Series) error {
	c.w.Header().Set("Content-Type", "text/plain")
	return c.text(list, func(b []byte, s *render.Series) []byte {
		b = append(append(b, s.Name...), ',')
		b = append(strconv.AppendInt(b, s.Start, 10), ',')
		b = append(strconv.AppendInt(b, s.End, 10), ',')
		b = append(strconv.AppendInt(b, s.Step, 10), '|')
		for i, v := range s.Values {
			if i > 0 {
				b = append(b, ',')
			}
			if known(v) {
				b = appendPythonFloat(b, v)
			} else {
				b = append(b, "None"...)
			}
		}
		return append(b, '\n')
	})
}

// appendPythonFloat is appendFloat with infinity as Python prints it.
func appendPythonFloat(b []byte, v float64) []byte {
	switch {
	case math.IsInf(v, 1):
		return append(b, "inf"...)
	case math.IsInf(v, -1):
		return append(b, "-inf"...)
	}
	return appendFloat(b, v)
}

// valuesPerPoint is 1 for series that are not consolidated.
func valuesPerPoint(s *render.Series) int64 { return max(s.ValuesPerPoint, 1) }

// consolidation is the name of the function, in the spelling of graphite-web.
func consolidation(s *render.Series) string {
	if s.Consolidation == "" {
		return "average"
	}
	return s.Consolidation
}

func pickleSeries(list []*render.Series) []any {
	values := make([]any, 0, len(list))
	for _, s := range list {
		values = append(values, pickle.Dict{
			{Key: "name", Value: s.Name},
			{Key: "start", Value: s.Start},
			{Key: "end", Value: s.End},
			{Key: "step", Value: s.Step},
			{Key: "values", Value: s.Values},
			{Key: "pathExpression", Value: s.PathExpression},
			{Key: "valuesPerPoint", Value: valuesPerPoint(s)},
			{Key: "consolidationFunc", Value: consolidation(s)},
			{Key: "xFilesFactor", Value: s.XFilesFactor},
		})
	}
	return values
}

func (c *call) renderMsgpack(list []*render.Series) error {
	return c.msgpack(func(e *msgpack.Encoder) error {
		err := e.EncodeArrayLen(len(list))
		for _, s := range list {
			if err != nil {
				break
			}
			err = packSeries(e, s)
		}
		return err
	})
}

func packSeries(e *msgpack.Encoder, s *render.Series) error {
	const fields = 9
	if err := e.EncodeMapLen(fields); err != nil {
		return err
	}
	if err := e.EncodeMulti("name", s.Name, "start", s.Start, "end", s.End, "step", s.Step, "values"); err != nil {
		return err
	}
	if err := e.EncodeArrayLen(len(s.Values)); err != nil {
		return err
	}
	for _, v := range s.Values {
		var err error
		if known(v) {
			err = e.EncodeFloat64(v)
		} else {
			err = e.EncodeNil()
		}
		if err != nil {
			return err
		}
	}
	return e.EncodeMulti("pathExpression", s.PathExpression, "valuesPerPoint", valuesPerPoint(s),
		"consolidationFunc", consolidation(s), "xFilesFactor", s.XFilesFactor)
}

// renderDygraph answers with rows of all series for the dygraphs library. The rows are those of the first series, in
// milliseconds; series with other steps are lined up by index, as graphite-web has it.
func (c *call) renderDygraph(list []*render.Series) error {
	return c.json(true, func(j *jsonWriter) error {
		j.pretty = false // graphite-web never indents this format
		if len(list) == 0 {
			j.buf = append(j.buf, "{}"...)
			return nil
		}
		j.buf = append(j.buf, `{"labels" : `...)
		j.open('[')
		j.text("Time")
		for _, s := range list {
			j.text(s.Name)
		}
		j.close(']')
		j.buf = append(j.buf, `, "data" : `...)
		j.open('[')
		first := list[0]
		at := first.Start
		for i := range first.Values {
			if j.err != nil || c.ctx.Err() != nil {
				break
			}
			j.open('[')
			j.int(at * 1000)
			for _, s := range list {
				j.item()
				j.buf = appendDygraph(j.buf, s.Values, i)
			}
			j.close(']')
			at += first.Step
		}
		j.close(']')
		j.buf = append(j.buf, '}')
		return c.ctx.Err()
	})
}

func appendDygraph(b []byte, values []float64, i int) []byte {
	switch {
	case i >= len(values) || math.IsNaN(values[i]):
		return append(b, "null"...)
	case math.IsInf(values[i], 1):
		return append(b, "Infinity"...)
	case math.IsInf(values[i], -1):
		return append(b, "-Infinity"...)
	}
	return appendFloat(b, values[i])
}

// renderRickshaw answers for the Rickshaw library. Infinity is 1e9999 here too; graphite-web writes a word that is no
// JSON.
func (c *call) renderRickshaw(list []*render.Series) error {
	return c.json(true, func(j *jsonWriter) error {
		j.open('[')
		for _, s := range list {
			if j.err != nil || c.ctx.Err() != nil {
				break
			}
			j.open('{')
			j.textField("target", s.Name)
			j.key("datapoints")
			j.open('[')
			at := s.Start
			for _, v := range s.Values {
				j.open('{')
				j.intField("x", at)
				j.key("y")
				j.float(v)
				j.close('}')
				at += s.Step
			}
			j.close(']')
			j.close('}')
		}
		j.close(']')
		return c.ctx.Err()
	})
}

// An image is drawn into memory first, so that an error can still be answered.

func (c *call) renderPNG(list []*render.Series, o plot.Options) error {
	var b bytes.Buffer
	if err := plot.PNG(c.ctx, &b, list, o); err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", "image/png")
	_, err := c.w.Write(b.Bytes())
	return err
}

func (c *call) renderSVG(list []*render.Series, o plot.Options) error {
	var b bytes.Buffer
	if err := plot.SVG(c.ctx, &b, list, o); err != nil {
		return err
	}
	if c.get("jsonp") != "" {
		return c.json(true, func(j *jsonWriter) error {
			j.text(b.String())
			return nil
		})
	}
	c.w.Header().Set("Content-Type", "image/svg+xml")
	// A page must not run scripts from a name of a series, even if the escaping had a hole.
	c.w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	_, err := c.w.Write(b.Bytes())
	return err
}
