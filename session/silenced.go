package session

import (
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/silence"
)

// silencedEncoded names the silences that apply to an event given as protobuf, and notes in its record that there are some. The
// record must name the entity that the event is about, which is another one than was sent if the check names it (proxied).
func (i *Intake) silencedEncoded(rec *eventlog.Record, check, entity []byte, proxied bool, now time.Time) ([]string, error) {
	sn := i.opts.Config.Snapshot()
	if check == nil || config.Len(sn, config.Silences) == 0 {
		return nil, nil
	}
	var room [8][]byte
	subscriptions, err := resource.AppendCheckSubscriptions(room[:0], check)
	if err != nil {
		return nil, err
	}
	var own []string
	if cfg, ok := config.Get(sn, config.Entities, rec.Namespace, rec.Entity); ok {
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
	return i.match(sn, rec, silence.Common(subscriptions, own, proxied), now), nil
}

// silenced is silencedEncoded for an event that is decoded. check may be nil.
func (i *Intake) silenced(rec *eventlog.Record, check *resource.Check, entity *resource.Entity, now time.Time) []string {
	sn := i.opts.Config.Snapshot()
	if check == nil || config.Len(sn, config.Silences) == 0 {
		return nil
	}
	var subscriptions [][]byte
	for _, s := range check.Subscriptions {
		subscriptions = append(subscriptions, []byte(s))
	}
	var own []string
	if cfg, ok := config.Get(sn, config.Entities, rec.Namespace, rec.Entity); ok {
		own = cfg.Subscriptions
	} else if entity != nil {
		own = entity.Subscriptions
	}
	return i.match(sn, rec, silence.Common(subscriptions, own, check.ProxyEntityName != ""), now)
}

func (i *Intake) match(sn *config.Snapshot, rec *eventlog.Record, subscriptions [][]byte, now time.Time) (names []string) {
	for _, s := range silence.Match(sn, now, &silence.Subject{
		Namespace: rec.Namespace, Entity: rec.Entity, Check: rec.Check, Subscriptions: subscriptions,
	}) {
		names = append(names, s.Metadata.Name)
		if s.ExpireOnResolve {
			rec.Flags |= eventlog.FlagOnResolve
			rec.OnResolve = append(rec.OnResolve, s.Metadata.Name)
		}
	}
	if names != nil {
		rec.Flags |= eventlog.FlagSilenced
		i.metrics.silenced.Inc()
	}
	return names
}
