package send

import (
	"math"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// maxDatagram is a size that usual networks carry in one piece.
const maxDatagram = 1400

// usable reports whether a point has a name and a value that metric stores accept.
func usable(p *resource.MetricPoint) bool {
	return p.Name != "" && !math.IsNaN(p.Value) && !math.IsInf(p.Value, 0)
}

// pointTime returns a point's time. Its unit depends on the point's source, and follows from its size: seconds are
// this large in the year 5138, milliseconds in 1973. A point without a time has its event's.
func pointTime(p *resource.MetricPoint, event int64) time.Time {
	switch t := p.Timestamp; {
	case t <= 0:
		if event <= 0 {
			return time.Now()
		}
		return time.Unix(event, 0)
	case t < 1e11:
		return time.Unix(t, 0)
	case t < 1e14:
		return time.UnixMilli(t)
	case t < 1e17:
		return time.UnixMicro(t)
	default:
		return time.Unix(0, t)
	}
}

// datagrams joins lines into pieces of a size that networks carry.
func datagrams(lines [][]byte) [][]byte {
	var out [][]byte
	var piece []byte
	for _, line := range lines {
		if len(piece) > 0 && len(piece)+len(line) > maxDatagram {
			out = append(out, piece)
			piece = nil
		}
		piece = append(piece, line...)
	}
	if len(piece) > 0 {
		out = append(out, piece)
	}
	return out
}
