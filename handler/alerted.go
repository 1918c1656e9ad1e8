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

// noteAlert stores what alerted reads, before the delivery is finished: no crash keeps one without the other.
func (d *Dispatcher) noteAlert(h *resource.Handler, it *item) {
	if !onlyAfterAlert(h) {
		return
	}
	var err error
	switch {
	case it.Resolution:
		err = d.opts.DB.Delete(alertKey(it), pebble.NoSync)
	case it.Incident:
		err = d.opts.DB.Set(alertKey(it), binary.BigEndian.AppendUint64(nil, uint64(time.Now().UnixMilli())), pebble.NoSync)
	}
	if err != nil {
		d.metrics.storeErrors.Inc()
		d.rare.Error("record of a sent alert could not be stored", "", "delivery", it.ID, "err", err)
	}
}
