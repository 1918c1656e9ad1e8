package store

import (
	"math"

	"github.com/lapwing-monitoring/lapwing/metric/series"
)

// roll takes a point of the finest archive into account in the open slots. newest says that no later point is known.
func (sh *shard) roll(se *Series, sec int64, newest bool, v float64, n *tally) {
	l := &se.levels[0]
	step := se.plan.Archives[0].Step
	if sec >= l.slot && sec < l.slot+step {
		switch {
		case !newest: // the slot has a later point already
		case l.open:
			l.value = v
		default:
			sh.outdated(se, 1, l.slot, n)
		}
		return
	}
	slot := series.Floor(sec, step)
	if slot < l.slot {
		sh.outdated(se, 1, slot, n)
		return
	}
	if l.open {
		sh.fold(se, 1, l.slot, l.value, n)
	}
	l.slot, l.value, l.open = slot, v, true
	for k := 1; k < len(se.levels); k++ {
		c, step := &se.levels[k], se.plan.Archives[k].Step
		if slot >= c.slot+step {
			if c.open {
				sh.close(se, k, n)
			}
			// A slot that began before Open may be in the tier, and may have values that c does not get.
			if s := series.Floor(slot, step); s <= se.opened {
				*c = level{ref: c.ref, slot: s, open: true, partial: true}
			}
		} else if !c.open {
			c.open, c.partial = true, true // it was closed too early
		}
	}
}

// fold adds the value of a slot of level k-1 that has been closed to level k's open slot.
func (sh *shard) fold(se *Series, k int, at int64, v float64, n *tally) {
	if k == len(se.levels) {
		return
	}
	l := &se.levels[k]
	step := se.plan.Archives[k].Step
	if at < l.slot || at >= l.slot+step {
		slot := series.Floor(at, step)
		if slot < l.slot {
			sh.outdated(se, k, at, n)
			return
		}
		if l.open {
			sh.close(se, k, n)
		}
		// A slot that began before Open may have values from then.
		*l = level{ref: l.ref, slot: slot, value: v, known: 1, open: true, partial: slot <= se.opened}
		return
	}
	if !l.open || l.partial {
		sh.outdated(se, k, at, n)
		return
	}
	l.known++
	switch se.plan.Method {
	case series.Last:
		l.value = v
	case series.Max:
		l.value = max(l.value, v)
	case series.Min:
		l.value = min(l.value, v)
	case series.AbsMax:
		if math.Abs(v) > math.Abs(l.value) {
			l.value = v
		}
	case series.AbsMin:
		if math.Abs(v) < math.Abs(l.value) {
			l.value = v
		}
	default:
		l.value += v
	}
}

// close writes the value of level k's open slot and folds it into the next level.
func (sh *shard) close(se *Series, k int, n *tally) {
	l := &se.levels[k]
	l.open = false
	if l.partial {
		sh.wrongSlot(k, slotKey{se, l.slot}, n)
		sh.outdated(se, k+1, l.slot, n)
		return
	}
	p := se.plan
	if float64(l.known)/float64(p.ratios[k]) < p.XFilesFactor {
		return
	}
	v := l.value
	switch p.Method {
	case series.Average:
		v /= float64(l.known)
	case series.AvgZero:
		v /= float64(p.ratios[k])
	}
	if sh.append(se, k, l.slot*1000, v, n) {
		sh.fold(se, k+1, l.slot, v, n)
	}
}

// outdated notes that a value of level k-1 at time at has changed behind the back of the open slots: level k and all
// coarser ones must be computed from the tiers.
func (sh *shard) outdated(se *Series, k int, at int64, n *tally) {
	for ; k < len(se.levels); k++ {
		step := se.plan.Archives[k].Step
		slot := series.Floor(at, step)
		l := &se.levels[k]
		switch {
		case slot == l.slot:
			l.open, l.partial = true, true
		case slot > l.slot:
			// No value of the slot has been folded yet. Open it, so that the next one finds it partial.
			if l.open {
				sh.close(se, k, n)
			}
			*l = level{ref: l.ref, slot: slot, open: true, partial: true}
		default:
			sh.wrongSlot(k, slotKey{se, slot}, n)
			continue
		}
		// After a crash, recover finds the open slots of the newest point. Others are computed now, too: so the journal
		// has them while they are open.
		if newest := series.Floor(se.last/1000, step); slot != newest && slot != newest-step {
			sh.wrongSlot(k, slotKey{se, slot}, n)
		}
	}
}

func (sh *shard) wrongSlot(k int, key slotKey, n *tally) {
	m := sh.wrong[k]
	if m == nil {
		m = map[slotKey]bool{}
		sh.wrong[k] = m
	}
	if taken, ok := m[key]; ok {
		if taken {
			m[key] = false
			sh.mark(k, key)
			sh.store.wakeCorrector()
		}
		return
	}
	if c := &sh.store.counts.wrong; c.Add(1) > int64(sh.store.o.MaxCorrections) {
		c.Add(-1)
		n.wrongLost++
		return
	}
	m[key] = false
	sh.mark(k, key)
	sh.store.wakeCorrector()
}

// closeSeries closes the slots of a series that ended before a time in seconds.
func (sh *shard) closeSeries(se *Series, before int64, n *tally) {
	if len(se.levels) < 2 {
		return
	}
	if l := &se.levels[0]; l.open && l.slot+se.plan.Archives[0].Step <= before {
		l.open = false
		sh.fold(se, 1, l.slot, l.value, n)
	}
	for k := 1; k < len(se.levels); k++ {
		if l := &se.levels[k]; l.open && l.slot+se.plan.Archives[k].Step <= before {
			sh.close(se, k, n)
		}
	}
}

// closeSlots closes the slots of all series that ended before a time in seconds.
func (sh *shard) closeSlots(before int64) {
	const portion = 2048
	for from := 0; ; from += portion {
		sh.mu.Lock()
		var n tally
		to := min(from+portion, len(sh.series))
		for _, se := range sh.series[from:to] {
			// A series that gets points closes its slots itself, even if its sender is behind the clock.
			if se.seen <= before {
				sh.closeSeries(se, before, &n)
			}
		}
		sh.commit(&n)
		end := to == len(sh.series)
		sh.mu.Unlock()
		sh.store.counts.add(&n)
		if end {
			return
		}
	}
}
