package send

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/influxdata/line-protocol/v2/lineprotocol"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// runInflux sends the event's metrics in InfluxDB's line protocol: over HTTP to version 1 or 2 and compatible servers,
// or as datagrams.
func (s *Sender) runInflux(ctx context.Context, h *resource.Handler, job Job) Result {
	o := h.Influx
	if o == nil {
		return permanent(errors.New("influx handler has no url"))
	}
	r, err := job.renderer(ctx)
	if err != nil {
		return permanent(err)
	}
	if r.view.Metrics == nil {
		return Result{Output: []byte("nothing to send: the event has no metrics")}
	}
	tags := r.all("influx tag", o.Tags)
	if r.err != nil {
		return r.failure()
	}
	lines, skipped := influxLines(r.view, tags)
	res := Result{}
	if len(lines) > 0 {
		res = s.writeInflux(ctx, o, lines)
	}
	if res.Err == nil {
		res.Output = fmt.Appendf(nil, "%d points sent, %d left out", len(lines), skipped)
	}
	return res
}

func (s *Sender) writeInflux(ctx context.Context, o *resource.HandlerInflux, lines [][]byte) Result {
	u, err := url.Parse(o.URL)
	if err != nil {
		return permanent(fmt.Errorf("read url: %w", withoutURL(err)))
	}
	if u.Scheme == "udp" {
		err := s.dial.writeDatagrams(ctx, u.Host, datagrams(lines))
		return Result{Err: err, Temporary: err != nil}
	}
	query := u.Query()
	query.Set("precision", "ns")
	path := "/write"
	if o.Bucket != "" {
		path = "/api/v2/write"
		query.Set("bucket", o.Bucket)
		if o.Org != "" {
			query.Set("org", o.Org)
		}
	} else {
		query.Set("db", o.Database)
		if o.RetentionPolicy != "" {
			query.Set("rp", o.RetentionPolicy)
		}
	}
	u = u.JoinPath(path)
	u.RawQuery = query.Encode()
	return s.do(ctx, call{
		method: http.MethodPost, url: u.String(), body: bytes.Join(lines, nil), contentType: "text/plain; charset=utf-8",
		tls: o.TLS, auth: &o.HandlerAuth, scheme: "Token",
	})
}

// influxLines returns the points with the names that Sensu's handler for InfluxDB gives them: the part of a point's
// name before the first dot is the measurement, the rest the field; the entity's name is a tag.
func influxLines(v *view, more map[string]string) (lines [][]byte, skipped int) {
	for i := range v.Metrics.Points {
		p := &v.Metrics.Points[i]
		value, ok := lineprotocol.FloatValue(p.Value)
		if !ok || !usable(p) {
			skipped++
			continue
		}
		measurement, field, ok := strings.Cut(p.Name, ".")
		if !ok || field == "" {
			field = "value"
		}
		tags := map[string]string{"sensu_entity_name": v.Entity.Name}
		for name, value := range more {
			tags[name] = value
		}
		for _, tag := range p.Tags {
			tags[tag.Name] = tag.Value
		}
		names := make([]string, 0, len(tags))
		for name, value := range tags {
			if name != "" && value != "" {
				names = append(names, name)
			}
		}
		slices.Sort(names) // the encoder needs them in order
		var enc lineprotocol.Encoder
		enc.SetPrecision(lineprotocol.Nanosecond)
		if rest, comment := strings.CutPrefix(measurement, "#"); comment {
			measurement = "_" + rest // else the whole line would be a comment
		}
		enc.StartLine(printable(measurement))
		for _, name := range names {
			enc.AddTag(printable(name), printable(tags[name]))
		}
		enc.AddField(printable(field), value)
		enc.EndLine(pointTime(p, v.Timestamp))
		line := enc.Bytes()
		if enc.Err() != nil || len(line) > 64<<10 {
			skipped++
			continue
		}
		if line[len(line)-1] != '\n' {
			line = append(line, '\n')
		}
		lines = append(lines, line)
	}
	return lines, skipped
}

// printable replaces characters that the protocol cannot write, and a backslash at the end, which would escape the
// next character.
func printable(s string) string {
	s = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return '_'
		}
		return c
	}, strings.ToValidUTF8(s, "_"))
	return strings.TrimRight(s, `\`)
}
