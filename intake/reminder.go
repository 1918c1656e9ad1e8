package intake

import (
	"context"
	"fmt"
	"time"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/silence"
)

// reminderCheck is the check of reminders, and reminderEntity their entity if the silence is not about one entity.
const (
	reminderCheck  = "silence-reminder"
	reminderEntity = "silences"
)

// RemindOfSilence logs an event for the handlers that the silence names as its reminders. The event has no state, and
// nothing silences it.
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
	rec := recordOf(&ev, s.Metadata.Namespace, entity, now)
	rec.Flags |= eventlog.FlagStateless
	rec.Body = encodeBody(&ev) // nothing silences it
	if err := i.append(ctx, &rec, nil, 0); err != nil {
		return fmt.Errorf("append reminder of silence %s: %w", s.Metadata.Name, err)
	}
	return nil
}
