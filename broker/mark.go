package broker

import (
	"fmt"

	"github.com/lapwing-monitoring/lapwing/broker/blocks"
)

// Mark notes beside a stream how far it was written, so that the next start recognises a missing end. A note is one
// small write that is not synced, and nothing waits for it.
//
// In a cluster there are no marks: a Mark does nothing there. A member's copy may be behind what it acknowledged for
// the others, and may be replaced as a whole, so its files do not show what was lost. A majority of the members does. On
// NATS servers of its own there are none either: the stream's files are not here.
type Mark struct {
	broker *Broker
	stream string
	marker *blocks.Marker // nil where there are no marks
}

// Mark opens the mark of a stream. The broker must be running, and closes it when it stops.
func (b *Broker) Mark(stream string) (*Mark, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m := b.marks[stream]; m != nil {
		return m, nil
	}
	if !b.Alone() {
		return &Mark{}, nil
	}
	marker, err := blocks.OpenMarker(b.opts.Dir, stream)
	if err != nil {
		return nil, fmt.Errorf("open stream %s: %w", stream, err)
	}
	m := &Mark{broker: b, stream: stream, marker: marker}
	b.marks[stream] = m
	return m, nil
}

// Stored notes that a message was acknowledged.
func (m *Mark) Stored(seq uint64) {
	if m.marker != nil {
		m.check(m.marker.Stored(seq))
	}
}

// Trimmed notes, before it is done, that the messages below first are removed.
func (m *Mark) Trimmed(first uint64) {
	if m.marker != nil {
		m.check(m.marker.Trimmed(first))
	}
}

// Took notes that the reader of the stream has stored its results for the messages below next.
func (m *Mark) Took(next uint64) {
	if m.marker != nil {
		m.check(m.marker.Took(next))
	}
}

// Holds notes that after the messages up to seq, live keys hold a value.
func (m *Mark) Holds(seq, live uint64) {
	if m.marker != nil {
		m.check(m.marker.Holds(seq, live))
	}
}

// check logs why a note could not be written. The next start then recognises less damage; nothing else suffers.
func (m *Mark) check(err error) {
	if err != nil {
		m.broker.rare.Warn("cannot note how far a stream is written: the next start recognises less damage", m.stream, "stream", m.stream, "err", err)
	}
}
