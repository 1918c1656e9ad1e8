package carbon

import (
	"fmt"
	"slices"

	message "github.com/lapwing-monitoring/lapwing/metric/frame"
)

type point struct {
	name    string
	seconds int64
	value   float64
}

// asLines returns points as lines of text, with all digits of their values.
func asLines(points []point) (out []byte) {
	for _, p := range points {
		out = fmt.Appendf(out, "%s %v %d\n", p.name, p.value, p.seconds)
	}
	return out
}

// asPickle and asProtobuf return points as the relay sends them.
func asPickle(points ...point) []byte   { return messages(message.Pickle, points) }
func asProtobuf(points ...point) []byte { return messages(message.Protobuf, points) }

func messages(f message.Format, points []point) (out []byte) {
	for some := range slices.Chunk(points, message.MaxPoints) {
		start := len(out)
		out = f.Begin(out)
		for _, p := range some {
			out = f.Append(out, []byte(p.name), p.seconds, p.value)
		}
		out = f.End(out, start)
	}
	return out
}
