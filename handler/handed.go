package handler

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/internal/fields"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// handOver folds a hand-over: from now on the deliveries are in the handed lane of the partition. One that was handed
// over before is passed over, even if it has ended: an owner may have died before its end in its own partition was in
// the log, or was late and had lost its partition.
func (f *folding) handOver(l *ledger, at position, body []byte) error {
	name, floors, all, err := decodeHandOver(body)
	if err != nil {
		return fields.Unreadable(err)
	}
	if again, err := f.foldedBefore(at); err != nil || again {
		return err
	}
	lowest := map[int]uint64{}
	for _, fl := range floors {
		if lowest[fl.lane], err = f.raise(name, fl); err != nil {
			return err
		}
	}
	for i, h := range all {
		known := handedKey(name, h.lane, h.seq, h.id)
		again, err := f.has(known)
		if err != nil {
			return err
		}
		if h.seq < lowest[h.lane] || again {
			continue
		}
		key := deliveryKey(name, handedLane(f.partition), position{at.seq, at.sub*handedMost + uint32(i)})
		if err := checkValue(key, h.value); err != nil {
			return err
		}
		if err := errors.Join(f.batch.Set(known, nil, nil), f.batch.Set(key, h.value, nil)); err != nil {
			return err
		}
		if len(h.progress) > 0 {
			if err := f.batch.Set(progressKeyOf(key), h.progress, nil); err != nil {
				return err
			}
		}
		f.handed[name]++
		f.queued = append(f.queued, key)
	}
	return f.commit(l)
}

// foldedBefore reports whether the hand-over at a position was folded before, and notes that it is. A replay must not
// bring back what has ended since: the report with the end may be of an earlier term, and is passed over then.
func (f *folding) foldedBefore(at position) (bool, error) {
	key, mark := handedUpToKey(f.partition), appendPosition(nil, at)
	stored, closer, err := f.batch.Get(key)
	if err == nil {
		before := bytes.Compare(mark, stored) <= 0
		if err := closer.Close(); err != nil || before {
			return before, err
		}
	} else if !errors.Is(err, pebble.ErrNotFound) {
		return false, err
	}
	return false, f.batch.Set(key, mark, nil)
}

// handedUpToKey has the position of the last hand-over to a partition that was folded.
func handedUpToKey(partition int) []byte {
	return binary.BigEndian.AppendUint16([]byte("dg"), uint16(partition))
}

// raise forgets what was handed over from below a floor. It returns the first message of the lane that may still be
// handed over: any of local deliveries, because their numbers are times of several clocks.
func (f *folding) raise(name resource.Name, fl floor) (uint64, error) {
	var was uint64
	if !isLocal(fl.lane) {
		var err error
		if was, err = f.floor(name, fl.lane); err != nil || was >= fl.seq {
			return was, err
		}
		if err := f.batch.Set(floorKey(name, fl.lane), binary.BigEndian.AppendUint64(nil, fl.seq), nil); err != nil {
			return 0, err
		}
	}
	it, err := f.d.opts.DB.NewIter(&pebble.IterOptions{
		LowerBound: handedKey(name, fl.lane, was, ""), UpperBound: handedKey(name, fl.lane, fl.seq, ""),
	})
	if err != nil {
		return 0, err
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		err = f.batch.Delete(it.Key(), nil)
	}
	if err := errors.Join(err, it.Error(), it.Close()); err != nil || isLocal(fl.lane) {
		return 0, err
	}
	return fl.seq, nil
}

// floor returns the stored floor of a lane, 0 if there is none.
func (f *folding) floor(name resource.Name, lane int) (uint64, error) {
	value, closer, err := f.batch.Get(floorKey(name, lane))
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer closer.Close()
	if len(value) != 8 {
		return 0, errMalformed
	}
	return binary.BigEndian.Uint64(value), nil
}

// handedKey is there while a delivery that was handed over from a lane may come again.
func handedKey(name resource.Name, lane int, seq uint64, id string) []byte {
	b := binary.BigEndian.AppendUint16(queueKey(name), uint16(lane))
	b[1] = 'h'
	return append(binary.BigEndian.AppendUint64(b, seq), id...)
}

// floorKey has the floor of a lane that deliveries to a handler were handed over from.
func floorKey(name resource.Name, lane int) []byte {
	b := binary.BigEndian.AppendUint16(queueKey(name), uint16(lane))
	b[1] = 'f'
	return b
}

// handedCount counts the unfinished deliveries of each handler that were handed over, to any member.
type handedCount struct {
	mu sync.RWMutex // guards of
	of map[resource.Name]int
}

func (c *handedCount) add(counts map[resource.Name]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, n := range counts {
		if c.of == nil {
			c.of = map[resource.Name]int{}
		}
		if c.of[name] += n; c.of[name] == 0 {
			delete(c.of, name)
		}
	}
}

func (c *handedCount) any(name resource.Name) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.of[name] > 0
}
