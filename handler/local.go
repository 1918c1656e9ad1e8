package handler

import (
	"hash/fnv"
	"time"

	"github.com/lapwing-monitoring/lapwing/delivery"
)

// localBit marks the lane of a partition's deliveries that are not events of the log: dead letters that are sent again,
// and deliveries that replace dead letters. They come from records of the log alone: the owner queues them when it
// folds the record.
const localBit = 1 << 15

func localLane(partition int) int { return partition | localBit }
func isLocal(lane int) bool       { return lane&localBit != 0 }

// partitionOf returns the partition whose records are about a delivery.
func (d *Dispatcher) partitionOf(dl *delivery.Delivery) int {
	if dl.Partition == oldLocal {
		return d.opts.Log.Partition(dl.Namespace, dl.Entity)
	}
	return dl.Partition &^ (localBit | handedBit)
}

// nextLocal returns the position of a new local delivery. No two backends return the same.
func (d *Dispatcher) nextLocal() position {
	d.local.Lock()
	defer d.local.Unlock()
	d.localSeq = max(d.localSeq+1, uint64(time.Now().UnixNano()))
	return position{d.localSeq, d.localSub}
}

// localItem makes a local delivery of another one.
func localItem(dl *delivery.Delivery, partition int, pos position, l *ledger) *item {
	moved := *dl
	moved.Partition, moved.Seq, moved.Sub = localLane(partition), pos.seq, int(pos.sub)
	return &item{Delivery: &moved, pos: pos, ledger: l}
}

// addLocal has the log add deliveries that replace another one of the ledger. The log has each one before the changes
// that follow it, so no crash keeps the end of a delivery without the delivery that replaces it.
func (l *ledger) addLocal(dls []*delivery.Delivery) bool {
	var its []*item
	for _, dl := range dls {
		its = append(its, localItem(dl, l.partition, l.d.nextLocal(), l))
	}
	return l.add(its)
}

// localSub distinguishes the local deliveries of the backends of a cluster.
func localSub(origin string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(origin))
	return h.Sum32() >> 1
}
