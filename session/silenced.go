package session

import (
	"context"
	"fmt"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/silence"
)

// silencedEncoded names the silences that apply to an event given as protobuf, and notes in its record that there are some. The
// record must name the entity that the event is about, which is another one than was sent if the check names it (proxied).
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
	} else if !proxied { // an agent's that is not registered yet
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

// silenced is silencedEncoded for an event that is decoded. entity is what was sent of it, and may be nil.
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

// match notes in a record the silences that apply to its subject, and which of them a resolution is free of: those that end
// with it, and those that let it pass. Whether it is one the fold will know.
func (i *Intake) match(
	sn *config.Snapshot, rec *eventlog.Record, subject *silence.Subject, subscriptions [][]byte, now time.Time,
) (names []string) {
	subject.Namespace, subject.Entity, subject.Check, subject.Status = rec.Namespace, rec.Entity, rec.Check, rec.Status
	if subscriptions == nil {
		subscriptions = [][]byte{} // there are none, and nobody else need look
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

// reminderCheck is the check of reminders, and reminderEntity what they are about if their silence is not about one entity.
const (
	reminderCheck  = "silence-reminder"
	reminderEntity = "silences"
)

// RemindOfSilence logs an event that only the handlers see which the silence names for that. It has no state, and nothing
// silences it.
func (i *Intake) RemindOfSilence(ctx context.Context, r *silence.Reminder) error {
	now, s := time.Now(), r.Silence
	entity, ok := silence.EntityOf(s)
	if !ok {
		entity = reminderEntity
	}
	handlers := s.RemindHandlers
	if len(handlers) == 0 {
		handlers = []string{resource.DefaultRemindHandler}
	}
	ends := r.Ends.UTC().Format(time.RFC3339)
	ev := resource.Event{
		Timestamp: now.Unix(), ID: resource.NewEventID(), Metadata: resource.ObjectMeta{Namespace: s.Metadata.Namespace, CreatedBy: s.Creator},
		Check: &resource.Check{
			Metadata: resource.ObjectMeta{
				Namespace: s.Metadata.Namespace, Name: reminderCheck, CreatedBy: s.Creator,
				Annotations: map[string]string{
					"silence": s.Metadata.Name, "silence_creator": s.Creator, "silence_reason": s.Reason, "silence_ends": ends,
				},
			},
			Interval: 1, Status: 1, Handlers: handlers, Executed: now.Unix(), Issued: now.Unix(),
			Output: fmt.Sprintf("Silence %s, made by %s (%s), ends in %s, at %s. It silences %d events, of which %d fail.\n",
				s.Metadata.Name, s.Creator, s.Reason, r.Ends.Sub(now).Round(time.Second), ends, r.Events, r.Failing),
		},
	}
	rec := eventlog.Record{
		Kind: eventlog.KindEvent, Flags: eventlog.FlagStateless | eventlog.FlagHandlers, Received: now.UnixMilli(),
		Namespace: s.Metadata.Namespace, Entity: entity, Check: reminderCheck, Status: 1, Executed: now.Unix(), Body: encodeBody(&ev),
	}
	if err := i.append(ctx, &rec, nil, 0); err != nil {
		return fmt.Errorf("append reminder of silence %s: %w", s.Metadata.Name, err)
	}
	return nil
}
