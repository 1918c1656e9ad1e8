package resource

import (
	"fmt"
	"hash/maphash"
)

// Traits are what selectors can match in an event except for the result: the check's definition and the event's labels.
// Nearly all events of a check have the same traits.
type Traits struct {
	Handlers, RuntimeAssets, Subscriptions, Pipelines []string
	Publish, RoundRobin                               bool
	// Interval, Cron, Timeout and Subdues say when the next result is to be expected.
	Interval, Timeout uint32
	Cron              string
	Subdues           []TimeWindowRepeated
	// Named says that the check itself names the entity of the result.
	Named                    bool
	CheckLabels, EventLabels map[string]string
}

// TraitsOf decodes the traits of an encoded event.
func TraitsOf(event []byte) (*Traits, error) {
	var ev Event
	if err := ev.UnmarshalProto(event); err != nil {
		return nil, fmt.Errorf("decode event: %w", err)
	}
	return TraitsOfEvent(&ev), nil
}

// TraitsOfEvent is TraitsOf for a decoded event. They share its lists and maps.
func TraitsOfEvent(ev *Event) *Traits {
	t := &Traits{EventLabels: ev.Metadata.Labels}
	c := ev.Check
	if c == nil {
		return t
	}
	t.Handlers, t.RuntimeAssets, t.Subscriptions = c.Handlers, c.RuntimeAssets, c.Subscriptions
	t.Publish, t.RoundRobin, t.CheckLabels = c.Publish, c.RoundRobin, c.Metadata.Labels
	t.Interval, t.Cron, t.Timeout, t.Subdues = c.Interval, c.Cron, c.Timeout, c.Subdues
	t.Named = c.ProxyEntityName != ""
	for _, p := range c.Pipelines {
		t.Pipelines = append(t.Pipelines, p.Name)
	}
	return t
}

// Sum is like the sum of PeekTraits, for decoded traits.
func (t *Traits) Sum(seed maphash.Seed) uint64 {
	var order, sum uint64
	for i, list := range [...][]string{t.Handlers, t.RuntimeAssets, t.Subscriptions, t.Pipelines} {
		for _, s := range list {
			order = mix(order + uint64(i) + maphash.String(seed, s))
		}
	}
	order = mix(order + uint64(t.Interval)<<32 + uint64(t.Timeout) + maphash.String(seed, t.Cron))
	for i := range t.Subdues {
		order = mix(order + maphash.Bytes(seed, t.Subdues[i].AppendProto(nil)))
	}
	for i, set := range [...]bool{t.Publish, t.RoundRobin, t.Named} {
		if set {
			order = mix(order + uint64(i) + 9)
		}
	}
	for i, labels := range [...]map[string]string{t.CheckLabels, t.EventLabels} {
		for k, v := range labels {
			sum += mix(uint64(i) + mix(maphash.String(seed, k)) + maphash.String(seed, v))
		}
	}
	return sum + order
}

// TraitsView is what PeekTraits reads.
type TraitsView struct {
	Timestamp int64
	// Sum is a hash of the traits: events with different traits have different sums. Equal traits nearly always have the
	// same sum. The order of a map's entries, which encoders choose, makes no difference.
	Sum uint64
	// Ran says that the event looks like the result of a run: its check was issued, and no user sent the event.
	Ran bool
}

// PeekTraits reads an encoded event without decoding it.
func PeekTraits(seed maphash.Seed, event []byte) (TraitsView, error) {
	var view TraitsView
	issued, sent := false, false
	for b := event; len(b) > 0; {
		f, n, err := nextField("Event", b)
		if err != nil {
			return TraitsView{}, err
		}
		b = b[n:]
		switch f.tag {
		case 1<<3 | 0:
			view.Timestamp = int64(f.x)
		case 3<<3 | 2:
			issued, err = sumCheck(seed, &view.Sum, f.v)
		case 5<<3 | 2:
			sent, err = sumMeta(seed, &view.Sum, f.v, 3)
		}
		if err != nil {
			return TraitsView{}, err
		}
	}
	view.Ran = issued && !sent
	return view, nil
}

// sumCheck adds the traits of an encoded check. It reports whether the check was issued.
func sumCheck(seed maphash.Seed, sum *uint64, check []byte) (issued bool, err error) {
	var order uint64 // a list's order counts
	for b := check; len(b) > 0; {
		f, n, err := nextField("Check", b)
		if err != nil {
			return false, err
		}
		b = b[n:]
		switch f.tag {
		// handlers, runtime_assets, subscriptions, cron, pipelines, subdues
		case 3<<3 | 2, 10<<3 | 2, 11<<3 | 2, 17<<3 | 2, 46<<3 | 2, 48<<3 | 2:
			order = mix(order + f.tag + maphash.Bytes(seed, f.v))
		case 5<<3 | 0, 19<<3 | 0: // interval, timeout
			order = mix(order + f.tag + f.x<<16)
		case 9<<3 | 0, 21<<3 | 0: // publish, round_robin
			if f.x != 0 {
				order = mix(order + f.tag)
			}
		case 13<<3 | 2: // proxy_entity_name
			if len(f.v) > 0 {
				order = mix(order + f.tag)
			}
		case 25<<3 | 0:
			issued = f.x != 0
		case 38<<3 | 2:
			if _, err := sumMeta(seed, sum, f.v, 5); err != nil {
				return false, err
			}
		}
	}
	*sum += order
	return issued, nil
}

// sumMeta adds the labels in an encoded ObjectMeta, in any order. weight distinguishes one map from another. It reports
// whether the object names its author.
func sumMeta(seed maphash.Seed, sum *uint64, meta []byte, weight uint64) (authored bool, err error) {
	for b := meta; len(b) > 0; {
		f, n, err := nextField("ObjectMeta", b)
		if err != nil {
			return false, err
		}
		b = b[n:]
		switch f.tag {
		case 3<<3 | 2:
			*sum += mix(weight + maphash.Bytes(seed, f.v))
		case 5<<3 | 2:
			authored = len(f.v) > 0
		}
	}
	return authored, nil
}

// mix spreads a change of x over all of the result.
func mix(x uint64) uint64 {
	x ^= x >> 32
	x *= 0x9e3779b97f4a7c15
	x ^= x >> 29
	return x
}
