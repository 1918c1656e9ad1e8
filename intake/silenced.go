package intake

import (
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/silence"
)

// silencedEncoded returns the names of the silences that apply to an event given as protobuf, and sets the record's
// flags for them. The record must have the event's entity. If the check names another entity than the one that was
// sent, proxied is set.
func (i *Intake) silencedEncoded(rec *eventlog.Record, body, check, entity []byte, proxied bool, now time.Time) ([]string, error) {
	sn := i.opts.Config.Snapshot()
	if check == nil || !i.opts.Silences.Any(sn) {
		return nil, nil
	}
	var room [8][]byte
	subscriptions, err := resource.AppendCheckSubscriptions(room[:0], check)
	if err != nil {
		return nil, err
	}
	var own []string
	cfg, ok := config.Get(sn, config.Entities, rec.Namespace, rec.Entity)
	if ok {
		own = cfg.Subscriptions
	} else if !proxied { // the entity of an agent that is not registered yet
		sent, err := resource.AppendEntitySubscriptions(nil, entity)
		if err != nil {
			return nil, err
		}
		for _, s := range sent {
			own = append(own, string(s))
		}
	}
	subject := &silence.Subject{Silenceable: resource.Silenceable{Config: cfg}, Body: body}
	return i.match(sn, rec, subject, silence.Common(subscriptions, own, proxied), now), nil
}

// silenced is silencedEncoded for a decoded event. entity is the entity that was sent, and may be nil.
func (i *Intake) silenced(rec *eventlog.Record, ev *resource.Event, entity *resource.Entity, now time.Time) []string {
	sn, check := i.opts.Config.Snapshot(), ev.Check
	if check == nil || !i.opts.Silences.Any(sn) {
		return nil
	}
	var subscriptions [][]byte
	for _, s := range check.Subscriptions {
		subscriptions = append(subscriptions, []byte(s))
	}
	var own []string
	cfg, ok := config.Get(sn, config.Entities, rec.Namespace, rec.Entity)
	if ok {
		own = cfg.Subscriptions
	} else if entity != nil {
		own = entity.Subscriptions
	}
	subject := &silence.Subject{Silenceable: resource.Silenceable{Config: cfg, Traits: resource.TraitsOfEvent(ev)}}
	return i.match(sn, rec, subject, silence.Common(subscriptions, own, check.ProxyEntityName != ""), now)
}

// match sets a record's flag if silences apply to it, and returns their names. It marks those that do not apply to a
// resolution, because they end with it or let it pass: only the fold knows which event resolves.
func (i *Intake) match(
	sn *config.Snapshot, rec *eventlog.Record, subject *silence.Subject, subscriptions [][]byte, now time.Time,
) (names []string) {
	subject.Namespace, subject.Entity, subject.Check, subject.Status = rec.Namespace, rec.Entity, rec.Check, rec.Status
	if subscriptions == nil {
		subscriptions = [][]byte{} // there are none, so the matcher need not search for them
	}
	for _, s := range i.opts.Silences.Match(sn, now, subject, subscriptions) {
		names = append(names, s.Metadata.Name)
		if s.ExpireOnResolve || s.PassResolve {
			rec.Flags |= eventlog.FlagOnResolve
			rec.OnResolve = append(rec.OnResolve, s.Metadata.Name)
		}
	}
	if names != nil {
		rec.Flags |= eventlog.FlagSilenced
	}
	return names
}
