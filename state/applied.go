package state

import (
	"strconv"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Applied is an event right after the fold, with what the pipeline needs to decide cheaply. It is valid, and may be
// read, only until Route returns.
type Applied struct {
	Partition int
	Seq       uint64 // sequence number of its message in the log
	Sub       int    // its place in the message

	Namespace, Entity, Check string // Check is "" for an event with metrics only
	Status                   uint32
	Received                 int64 // when this backend received it, Unix milliseconds
	Incident, Resolution     bool
	Silenced                 bool
	HasMetrics               bool
	HasHandlers              bool // names handlers or pipelines
	// Ended names the silences that applied to the event and are over, because it resolves an incident.
	Ended []string

	partition *partition
	body      []byte
	pair      *pair
	event     *resource.Event
}

// ID names the event for ever: the same after a crash and replay.
func (a *Applied) ID() string {
	b := strconv.AppendInt(nil, int64(a.Partition), 10)
	b = append(b, '-')
	b = strconv.AppendUint(b, a.Seq, 10)
	b = append(b, '-')
	b = strconv.AppendInt(b, int64(a.Sub), 10)
	return string(b)
}

// Event is the whole event: with its entity, its metrics and the state after it. It is decoded at the first call and
// must not be changed.
func (a *Applied) Event() (*resource.Event, error) {
	if a.event != nil {
		return a.event, nil
	}
	// The pair is read without mu: only the goroutine that calls Route writes it.
	ev, err := a.partition.build(a.Namespace, a.Entity, a.body, a.pair, nil)
	if err != nil {
		return nil, err
	}
	a.event = ev
	return ev, nil
}
