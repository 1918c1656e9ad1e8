package handler

import (
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/delivery"
)

// localPartition is the lane of deliveries that are not of the log: dead letters that are sent again, and deliveries
// that replace dead letters. addLocal numbers them. Each is stored before it is queued, so no replay has to restore
// it.
const localPartition = math.MaxUint16

// addLocal stores deliveries and queues them. It commits them with a batch that removes the dead letter they come
// from; the batch may be nil.
func (d *Dispatcher) addLocal(b *pebble.Batch, dls ...*delivery.Delivery) error {
	d.local.Lock() // a lane gets its deliveries in order
	defer d.local.Unlock()
	if b == nil {
		b = d.opts.DB.NewBatch()
		defer b.Close()
	}
	ledger := d.ledger(localPartition)
	items := make([]*item, len(dls))
	for i, dl := range dls {
		d.localSeq++
		dl.Partition, dl.Seq, dl.Sub = localPartition, d.localSeq, 0
		items[i] = &item{Delivery: dl, pos: position{dl.Seq, 0}, ledger: ledger, stored: true, written: true}
		if err := b.Set(items[i].key(), items[i].value(), nil); err != nil {
			return err
		}
	}
	if err := b.Commit(pebble.NoSync); err != nil {
		return err
	}
	for _, it := range items {
		d.enqueue(it)
	}
	d.noteEnd()
	return nil
}
