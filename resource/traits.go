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

// PeekTraits reads an encoded event without decoding it. sum is a hash of its traits: events with different traits have
// different sums. Equal traits nearly always have the same sum. The order of a map's entries, which encoders choose,
// makes no difference.
func PeekTraits(seed maphash.Seed, event []byte) (timestamp int64, sum uint64, err error) {
	for b := event; len(b) > 0; {
		f, n, err := nextField("Event", b)
		if err != nil {
			return 0, 0, err
		}
		b = b[n:]
		switch f.tag {
		case 1<<3 | 0:
			timestamp = int64(f.x)
		case 3<<3 | 2:
			err = sumCheck(seed, &sum, f.v)
		case 5<<3 | 2:
			err = sumLabels(seed, &sum, f.v, 3)
		}
		if err != nil {
			return 0, 0, err
		}
	}
	return timestamp, sum, nil
}

// sumCheck adds the traits of an encoded check.
func sumCheck(seed maphash.Seed, sum *uint64, check []byte) error {
	var order uint64 // a list's order counts
	for b := check; len(b) > 0; {
		f, n, err := nextField("Check", b)
		if err != nil {
			return err
		}
		b = b[n:]
		switch f.tag {
		case 3<<3 | 2, 10<<3 | 2, 11<<3 | 2, 46<<3 | 2: // handlers, runtime_assets, subscriptions, pipelines
			order = mix(order + f.tag + maphash.Bytes(seed, f.v))
		case 9<<3 | 0, 21<<3 | 0: // publish, round_robin
			if f.x != 0 {
				order = mix(order + f.tag)
			}
		case 13<<3 | 2: // proxy_entity_name
			if len(f.v) > 0 {
				order = mix(order + f.tag)
			}
		case 38<<3 | 2:
			if err := sumLabels(seed, sum, f.v, 5); err != nil {
				return err
			}
		}
	}
	*sum += order
	return nil
}

// sumLabels adds the labels in an encoded ObjectMeta, in any order. weight distinguishes one map from another.
func sumLabels(seed maphash.Seed, sum *uint64, meta []byte, weight uint64) error {
	for b := meta; len(b) > 0; {
		f, n, err := nextField("ObjectMeta", b)
		if err != nil {
			return err
		}
		b = b[n:]
		if f.tag == 3<<3|2 {
			*sum += mix(weight + maphash.Bytes(seed, f.v))
		}
	}
	return nil
}

// mix spreads a change of x over all of the result.
func mix(x uint64) uint64 {
	x ^= x >> 32
	x *= 0x9e3779b97f4a7c15
	x ^= x >> 29
	return x
}
