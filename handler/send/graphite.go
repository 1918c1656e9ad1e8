package send

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	graphitePort   = 2003
	graphitePrefix = `sensu.{{.Entity.Name | replace "." "_"}}` // as in the dashboards of Sensu's users
	// maxGraphiteLine is carbon's bound on a line; it closes the connection on a longer one.
	maxGraphiteLine = 16384
)

// runGraphite sends the event's metrics as lines.
func (s *Sender) runGraphite(ctx context.Context, h *resource.Handler, job Job) Result {
	o := h.Graphite
	if o == nil {
		return permanent(errors.New("graphite handler has no host"))
	}
	r, err := job.renderer(ctx)
	if err != nil {
		return permanent(err)
	}
	if r.view.Metrics == nil {
		return Result{Output: []byte("nothing to send: the event has no metrics")}
	}
	prefix := graphitePrefix
	if o.Prefix != nil {
		prefix = *o.Prefix
	}
	prefix = r.text("graphite prefix", prefix, "")
	if r.err != nil {
		return r.failure()
	}
	lines, skipped := graphiteLines(r.view, prefix, o.DropTags)
	res := Result{}
	addr := address(o.Host, cmp.Or(o.Port, graphitePort))
	switch {
	case len(lines) == 0:
	case o.Protocol == "udp":
		err := s.dial.writeDatagrams(ctx, addr, datagrams(lines))
		res = Result{Err: err, Temporary: err != nil}
	default:
		res = s.stream(ctx, h, target{addr: addr, host: o.Host, tls: o.TLS, connections: 4}, bytes.Join(lines, nil))
	}
	if res.Err == nil {
		res.Output = fmt.Appendf(nil, "%d points sent, %d left out", len(lines), skipped)
	}
	return res
}

// graphiteLines returns the points that Graphite can store, and how many it cannot.
func graphiteLines(v *view, prefix string, dropTags bool) (lines [][]byte, skipped int) {
	if prefix = strings.Trim(graphiteName(prefix), "."); prefix != "" {
		prefix += "."
	}
	for i := range v.Metrics.Points {
		p := &v.Metrics.Points[i]
		if !usable(p) {
			skipped++
			continue
		}
		line := append([]byte(prefix), graphiteName(p.Name)...)
		if !dropTags {
			for _, tag := range p.Tags {
				if name, value := graphiteTag(tag.Name), strings.TrimLeft(graphiteTag(tag.Value), "~"); name != "" && value != "" {
					line = append(append(append(append(line, ';'), name...), '='), value...)
				}
			}
		}
		line = strconv.AppendFloat(append(line, ' '), p.Value, 'g', -1, 64)
		line = strconv.AppendInt(append(line, ' '), pointTime(p, v.Timestamp).Unix(), 10)
		if line = append(line, '\n'); len(line) > maxGraphiteLine {
			skipped++
			continue
		}
		lines = append(lines, line)
	}
	return lines, skipped
}

// graphiteName replaces characters that would end a name, or the line. Carbon splits lines at all spaces of Unicode.
func graphiteName(s string) string {
	return strings.Map(func(c rune) rune {
		if c <= ' ' || c == 0x7f || c == ';' || unicode.IsSpace(c) {
			return '_'
		}
		return c
	}, strings.ToValidUTF8(s, "_"))
}

// graphiteTag replaces characters that names and values of tags must not have.
func graphiteTag(s string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c <= ' ', c == 0x7f, c == ';', c == '!', c == '^', c == '=', unicode.IsSpace(c):
			return '_'
		}
		return c
	}, strings.ToValidUTF8(s, "_"))
}
