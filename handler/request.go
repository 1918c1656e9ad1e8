package handler

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/lapwing-monitoring/lapwing/eventlog"
)

// wishesPerRequest bounds a request, so that its record waits behind few others in the log.
const wishesPerRequest = 256

// requests is what one call wants with dead letters, as requests to their partitions.
type requests struct {
	wishes map[int][]wish // that are not requested yet, by partition
	sent   []*request
}

// request is one record of them.
type request struct {
	id   uint64
	done chan error // receives when the record is folded here, or the log is closed
}

// Logged implements eventlog.Acker.
func (r *request) Logged(_ uint64, _ int, _ uint64, err error) { r.done <- err }

// add adds a wish for a dead letter of a partition.
func (all *requests) add(ctx context.Context, d *Dispatcher, partition int, w wish) error {
	if all.wishes == nil {
		all.wishes = map[int][]wish{}
	}
	all.wishes[partition] = append(all.wishes[partition], w)
	if len(all.wishes[partition]) < wishesPerRequest {
		return nil
	}
	return all.send(ctx, d, partition)
}

// send appends the wishes of a partition to the log.
func (all *requests) send(ctx context.Context, d *Dispatcher, partition int) error {
	r := &request{id: rand.Uint64(), done: make(chan error, 1)}
	body := encodeRequest(r.id, all.wishes[partition])
	delete(all.wishes, partition)
	d.letters.expect(r.id)
	rec := eventlog.Record{Kind: eventlog.KindDeliveries, Received: time.Now().UnixMilli(), Body: body}
	if err := d.opts.Log.AppendTo(ctx, partition, &rec, r, 0); err != nil {
		d.letters.answered(r.id)
		return err
	}
	all.sent = append(all.sent, r)
	return nil
}

// finish sends the rest, unless err is not nil, and returns how many of the wished dead letters were there when the
// requests were folded.
func (all *requests) finish(ctx context.Context, d *Dispatcher, err error) (n int, _ error) {
	for partition := range all.wishes {
		if err == nil {
			err = all.send(ctx, d, partition)
		}
	}
	for _, r := range all.sent {
		select {
		case logged := <-r.done:
			err = errors.Join(err, logged)
		case <-ctx.Done():
			err = errors.Join(err, ctx.Err())
		}
		n += d.letters.answered(r.id)
	}
	return n, err
}
