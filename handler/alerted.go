package handler

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/resource"
)

func onlyAfterAlert(h *resource.Handler) bool { return h.Resolve != nil && h.Resolve.OnlyAfterAlert }

func alertKey(it *item) []byte {
	b := []byte("da")
	for _, s := range [...]string{it.Namespace, it.Handler, it.Entity, it.Check} {
		b = append(b, s...)
		b = append(b, 0)
	}
	return b
}

// alerted reports whether the handler got the pair's incident.
func (d *Dispatcher) alerted(it *item) bool {
	_, closer, err := d.opts.DB.Get(alertKey(it))
	if err != nil {
		if !errors.Is(err, pebble.ErrNotFound) {
			d.metrics.storeErrors.Inc()
		}
		return !errors.Is(err, pebble.ErrNotFound) // a resolution too many is better than one too few
	}
	_ = closer.Close()
	return true
}

// noteAlert stores what alerted reads, before the delivery is finished. It returns the change for the log, which comes
// with the end of the delivery.
func (d *Dispatcher) noteAlert(h *resource.Handler, it *item) []change {
	if !onlyAfterAlert(h) || !it.Resolution && !it.Incident {
		return nil
	}
	c := change{key: alertKey(it)}
	if it.Incident {
		c.value = binary.BigEndian.AppendUint64(nil, uint64(time.Now().UnixMilli()))
	}
	if err := it.ledger.mark(c); err != nil {
		d.rare.Error("record of a sent alert could not be stored", "", "delivery", it.ID, "err", err)
	}
	return []change{c}
}
