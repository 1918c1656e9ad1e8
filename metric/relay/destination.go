package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/metric/ring"
	"github.com/lapwing-monitoring/lapwing/metric/spill"
)

const (
	// batchBytes is the room of a batch. Batches wait in memory and on disk, and are sent again, as a whole.
	batchBytes = 32 << 10
	// maxRecycled bounds the empty batches that are kept for use.
	maxRecycled = 64
	// spillRetry is how long a disk that failed, or a spill that was full, is left alone.
	spillRetry = time.Second
)

// DestinationOptions are the settings of a destination.
type DestinationOptions struct {
	ring.Destination
	// Protocol is Pickle by default.
	Protocol Protocol
	// TLS, if set, returns the configuration that encrypts a new connection. The server's name is the host by default.
	TLS func() *tls.Config

	// MaxQueueBytes bounds the points in memory, 64 MiB by default. Half of it is used before points go to disk.
	MaxQueueBytes int
	// SpillDir has the points that wait on disk. Empty means that none do.
	SpillDir string
	// MaxSpillBytes bounds them, 1 GiB by default. Beyond it new points are dropped.
	MaxSpillBytes int64

	// FlushInterval is how long a point may wait for others to be sent with, 100 ms by default.
	FlushInterval time.Duration
	// DialTimeout bounds an attempt to connect, 10 s by default. It includes the TLS handshake.
	DialTimeout time.Duration
	// WriteTimeout breaks a connection that takes no data for so long, 30 s by default.
	WriteTimeout time.Duration
	// MaxReconnectDelay bounds the wait between two attempts, 5 s by default.
	MaxReconnectDelay time.Duration
	// Dial connects, instead of a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

func (o *DestinationOptions) check() error {
	setDefault(&o.MaxQueueBytes, 64<<20)
	setDefault(&o.MaxSpillBytes, spill.DefaultMaxBytes)
	setDefault(&o.FlushInterval, 100*time.Millisecond)
	setDefault(&o.DialTimeout, 10*time.Second)
	setDefault(&o.WriteTimeout, 30*time.Second)
	setDefault(&o.MaxReconnectDelay, 5*time.Second)
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	switch {
	case int(o.Protocol) >= len(protocolNames):
		return fmt.Errorf("unknown %v", o.Protocol)
	case o.TLS != nil && o.Protocol == UDP:
		return errors.New("TLS does not work with udp")
	case o.MaxQueueBytes < 4*batchBytes:
		return fmt.Errorf("MaxQueueBytes is %d: the least is %d", o.MaxQueueBytes, 4*batchBytes)
	case o.FlushInterval < 0 || o.DialTimeout < 0 || o.WriteTimeout < 0 || o.MaxReconnectDelay < 0:
		return errors.New("FlushInterval, DialTimeout, WriteTimeout and MaxReconnectDelay must not be negative")
	}
	_, err := ring.New([]ring.Destination{o.Destination}, ring.Options{Method: ring.JumpFNV1aCH})
	return err
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// batch is some points in the form of appendPoint. It has batchBytes of room.
type batch struct {
	data   []byte
	points int
}

// Destination sends points to one receiver. Points wait in memory first and, when half of that is full, on disk. A
// receiver that is slow or away delays neither the callers of Add nor other destinations.
//
// Points leave in the order in which they came, except for those that were in flight when the destination was stopped.
// After a connection breaks, the points that the receiver's host had not acknowledged are sent again (on Linux;
// elsewhere only the batch that was being written). So a point may arrive twice, which changes nothing in a Graphite
// store. These points are lost:
//   - those that the receiver's host had acknowledged and its program had not read or kept when it was killed;
//   - those in memory when this process is killed: half of MaxQueueBytes at most, if the disk keeps up;
//   - all datagrams that do not arrive;
//   - those that the counters of drops name.
type Destination struct {
	opts   DestinationOptions
	log    *rarelog.Log
	spill  *spill.Spill // nil without SpillDir
	counts counts

	// wake and wakeSpiller have room for one signal each: there is something to do for the sender, the spiller.
	wake, wakeSpiller chan struct{}
	stopping          chan struct{}      // closed by Stop: send what is there, and end
	abort             context.CancelFunc // ends the sender now
	ctx               context.Context
	running           sync.WaitGroup
	stopOnce          sync.Once
	stopped           chan struct{} // closed when Stop is through
	stopErr           error

	// unsent are the batches that the last connection could not deliver, oldest first. Only the sender uses them until
	// it ends.
	unsent []sentBatch

	mu           sync.Mutex // guards the fields below; nothing waits for disk or network with it
	started      bool
	closed       bool // Add drops everything
	current      batch
	currentSince time.Time
	queue        []batch // oldest first; all are older than current
	points       int     // in current and queue
	maxPoints    int     // the most since the last Stats
	recycled     [][]byte
	moving       bool // the spiller writes queue[0] to the disk
	spilled      bool // the spill may have records, which are older than queue
	spillCount   int  // of records that were spilled
	spillReadAt  time.Time
	spillProblem string // the reason for drops while the spill takes nothing
}

func newDestination(o DestinationOptions, log *slog.Logger) (*Destination, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("destination %s: %w", o.Destination, err)
	}
	d := &Destination{opts: o, log: rarelog.New(log), wake: make(chan struct{}, 1), wakeSpiller: make(chan struct{}, 1),
		stopping: make(chan struct{}), stopped: make(chan struct{})}
	d.ctx, d.abort = context.WithCancel(context.Background())
	if o.SpillDir != "" {
		var err error
		if d.spill, err = spill.Open(spill.Options{Dir: o.SpillDir, MaxBytes: o.MaxSpillBytes}); err != nil {
			d.abort()
			return nil, fmt.Errorf("destination %s: %w", o.Destination, err)
		}
		d.spilled = d.spill.Bytes() > 0
	}
	return d, nil
}

// String returns host:port[:instance].
func (d *Destination) String() string { return d.opts.Destination.String() }

// Add queues a point. It never waits. It returns false for a point that was dropped, which is counted.
func (d *Destination) Add(name []byte, unixSeconds int64, value float64) bool {
	d.counts.attempted.Add(1)
	reason := d.add(name, unixSeconds, value)
	if reason != "" {
		d.counts.drop(reason, 1)
	}
	return reason == ""
}

// add returns the reason, for the counters, if the point is dropped.
func (d *Destination) add(name []byte, unixSeconds int64, value float64) (reason string) {
	if len(name) == 0 || len(name) > maxName || math.IsNaN(value) {
		return dropUnusable
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return dropStopped
	}
	if len(d.current.data)+len(name)+pointOverhead > batchBytes {
		if !d.hasRoom(1) {
			return d.fullReason()
		}
		d.enqueue()
	}
	if d.current.data == nil {
		if !d.hasRoom(0) {
			return d.fullReason()
		}
		d.current.data = d.emptyBatch()
		d.currentSince = time.Now()
		notify(d.wake)
	}
	d.current.data = appendPoint(d.current.data, name, unixSeconds, value)
	d.current.points++
	d.points++
	d.maxPoints = max(d.maxPoints, d.points)
	if !d.counts.connected.Load() {
		d.counts.queuedUntilConnected.Add(1)
	}
	return ""
}

// hasRoom reports whether one more batch fits into the memory beside the queue and so many others.
func (d *Destination) hasRoom(others int) bool {
	return (len(d.queue)+others+1)*batchBytes <= d.opts.MaxQueueBytes
}

func (d *Destination) fullReason() string {
	if d.spillProblem != "" {
		return d.spillProblem
	}
	return dropQueueFull
}

// enqueue moves current to the queue.
func (d *Destination) enqueue() {
	d.queue = append(d.queue, d.current)
	d.current = batch{}
	notify(d.wake)
	if d.spill != nil && d.mustSpill() {
		notify(d.wakeSpiller)
	}
}

// mustSpill reports whether the oldest batch belongs on disk.
func (d *Destination) mustSpill() bool {
	return len(d.queue)*batchBytes > d.opts.MaxQueueBytes/2
}

func (d *Destination) emptyBatch() []byte {
	if n := len(d.recycled); n > 0 {
		b := d.recycled[n-1]
		d.recycled = d.recycled[:n-1]
		return b
	}
	return make([]byte, 0, batchBytes)
}

func (d *Destination) recycle(b []byte) {
	if cap(b) >= batchBytes && len(d.recycled) < maxRecycled {
		d.recycled = append(d.recycled, b[:0])
	}
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// popQueue takes the oldest batch off the queue.
func (d *Destination) popQueue() batch {
	b := d.queue[0]
	d.queue[0] = batch{}
	if d.queue = d.queue[1:]; len(d.queue) == 0 {
		d.queue = nil
	}
	d.points -= b.points
	return b
}

// take returns the oldest points that were not sent. Without any it returns how long to wait for wake at most. A part
// of a batch counts after FlushInterval, or at once with all.
func (d *Destination) take(all bool) (b batch, ok bool, wait time.Duration) {
	for {
		d.mu.Lock()
		now := time.Now()
		if !d.spillReadAt.IsZero() && !now.Before(d.spillReadAt) {
			d.spilled, d.spillReadAt = true, time.Time{}
		}
		switch {
		case d.moving: // the spiller wakes the sender
		case d.spilled:
			count := d.spillCount
			d.mu.Unlock()
			if b, ok := d.takeSpilled(count); ok {
				return b, true, 0
			}
			continue
		case len(d.queue) > 0:
			b, ok = d.popQueue(), true
		case d.current.points > 0:
			if wait = d.currentSince.Add(d.opts.FlushInterval).Sub(now); wait <= 0 || all {
				b, ok = d.current, true
				d.current = batch{}
				d.points -= b.points
			}
		}
		if wait <= 0 {
			wait = time.Minute
		}
		if !d.spillReadAt.IsZero() {
			wait = min(wait, d.spillReadAt.Sub(now))
		}
		d.mu.Unlock()
		return b, ok, wait
	}
}

// takeSpilled returns the oldest batch of the spill. count is spillCount at a time when the caller had seen no more.
func (d *Destination) takeSpilled(count int) (batch, bool) {
	record, err := d.spill.Next()
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case errors.Is(err, io.EOF):
		d.spilled = d.spillCount != count
	case err != nil:
		d.log.Error("cannot read the points that wait on disk", d.String(), "destination", d.String(), "err", err)
		d.spilled, d.spillReadAt = false, time.Now().Add(spillRetry)
	default:
		data := append(d.emptyBatch(), record...)
		d.spill.Done()
		if d.spillProblem != "" {
			notify(d.wakeSpiller) // there may be room again
		}
		points, _ := countPoints(data)
		return batch{data, points}, true
	}
	return batch{}, false
}

// runSpiller moves the oldest batches to the disk when the memory is half full.
func (d *Destination) runSpiller() {
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	for {
		select {
		case <-d.wakeSpiller:
		case <-retry.C:
		case <-d.stopping:
			return
		}
		for {
			moved, err := d.spillOldest()
			if err != nil {
				retry.Reset(spillRetry)
			}
			if !moved {
				break
			}
		}
	}
}

// spillOldest moves the oldest batch to the disk if the memory is half full.
func (d *Destination) spillOldest() (moved bool, err error) {
	d.mu.Lock()
	if !d.mustSpill() {
		d.mu.Unlock()
		return false, nil
	}
	b := d.queue[0]
	d.moving = true // the sender leaves the queue alone, so that the order is kept
	d.mu.Unlock()
	err = d.spill.Append(b.data)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.moving = false
	notify(d.wake)
	if err != nil {
		d.log.Warn("cannot keep points on disk", d.String(), "destination", d.String(), "err", err)
		d.spillProblem = dropDisk
		if errors.Is(err, spill.ErrFull) {
			d.spillProblem = dropSpillFull
		}
		return false, err
	}
	d.popQueue()
	d.recycle(b.data)
	d.counts.spilled.Add(uint64(b.points))
	d.spilled, d.spillProblem = true, ""
	d.spillCount++
	return true, nil
}

func (d *Destination) start() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.started || d.closed {
		return
	}
	d.started = true
	d.running.Go(d.runSender)
	if d.spill != nil {
		d.running.Go(d.runSpiller)
		notify(d.wakeSpiller)
	}
}

// stop sends what is in memory until ctx ends, and moves the rest to the spill. With a spill it does not wait for a
// receiver that is away, or that is behind by what is on disk already.
func (d *Destination) stop(ctx context.Context) error {
	d.stopOnce.Do(func() {
		defer close(d.stopped)
		d.mu.Lock()
		d.closed = true
		d.mu.Unlock()
		close(d.stopping)
		release := context.AfterFunc(ctx, d.abort)
		d.running.Wait()
		release()
		d.abort()
		d.stopErr = d.keepRest()
	})
	<-d.stopped
	return d.stopErr
}

// keepRest moves all points to the spill. It counts and logs those that find no room there.
func (d *Destination) keepRest() error {
	d.mu.Lock()
	batches := make([]batch, 0, len(d.unsent)+len(d.queue)+1)
	for _, s := range d.unsent {
		batches = append(batches, batch{s.data, s.points})
	}
	batches = append(append(batches, d.queue...), d.current)
	d.queue, d.current, d.points, d.unsent = nil, batch{}, 0, nil
	d.mu.Unlock()
	batches = slices.DeleteFunc(batches, func(b batch) bool { return b.points == 0 })
	var err error
	lost := 0
	for _, b := range batches {
		if d.spill == nil || err != nil {
			lost += b.points
		} else if err = d.spill.Append(b.data); err != nil {
			lost += b.points
		} else {
			d.counts.spilled.Add(uint64(b.points))
		}
	}
	if lost > 0 {
		d.counts.drop(dropStopped, uint64(lost))
		d.log.Warn("points were dropped at the stop", d.String(), "destination", d.String(), "points", lost, "err", err)
	}
	if d.spill == nil {
		return nil
	}
	return d.spill.Close()
}
