package resource

import (
	"math"
	"time"
)

// TurnAnnotation is the key of an annotation that the backend puts on the check of a request which is a turn of a
// round-robin check. Agents copy it into the result, stock agents too: by it the backend knows which turn is done. Agents
// copy no other field that is not the user's.
const TurnAnnotation = "lapwing.io/turn"

// RunView has what PeekRun reads.
type RunView struct {
	// Turn is the value of TurnAnnotation.
	Turn []byte
	// ProxyEntity is the entity that the check was run for, and ProcessedBy the agent that ran it; empty if it says nothing.
	ProxyEntity, ProcessedBy []byte
	// Duration is how long the run took; 0 if that is no sensible time.
	Duration time.Duration
}

// PeekRun reads the protobuf encoding of an Event: who ran its check, and for which turn.
func PeekRun(event []byte) (RunView, error) {
	view, err := PeekEvent(event)
	if err != nil {
		return RunView{}, err
	}
	var run RunView
	var meta []byte
	for b := view.Check; len(b) > 0; {
		f, n, err := nextField("Check", b)
		if err != nil {
			return RunView{}, err
		}
		b = b[n:]
		switch f.tag {
		case 13<<3 | 2:
			run.ProxyEntity = f.v
		case 22<<3 | 1:
			if d := math.Float64frombits(f.x); d > 0 && d < (24*time.Hour).Seconds() {
				run.Duration = time.Duration(d * float64(time.Second))
			}
		case 38<<3 | 2:
			err = setOnce(&meta, f)
		case 45<<3 | 2:
			run.ProcessedBy = f.v
		}
		if err != nil {
			return RunView{}, fieldError("Check", f.tag, 0, err)
		}
	}
	run.Turn, err = peekAnnotation(meta, TurnAnnotation)
	return run, err
}

// peekAnnotation reads an annotation of an encoded ObjectMeta; nil if it has none of that key.
func peekAnnotation(meta []byte, key string) (value []byte, err error) {
	for len(meta) > 0 {
		f, n, err := nextField("ObjectMeta", meta)
		if err != nil {
			return nil, err
		}
		meta = meta[n:]
		if f.tag != 4<<3|2 {
			continue
		}
		var k, v []byte
		for b := f.v; len(b) > 0; {
			part, n, err := nextField("annotation", b)
			if err != nil {
				return nil, err
			}
			b = b[n:]
			switch part.tag {
			case 1<<3 | 2:
				k = part.v
			case 2<<3 | 2:
				v = part.v
			}
		}
		if string(k) == key {
			value = v
		}
	}
	return value, nil
}
