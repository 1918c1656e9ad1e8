package backend

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/intake"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/silence"
	"github.com/lapwing-monitoring/lapwing/state"
)

// announced is how many events are looked for at a time to tell those who watch them.
const announced = 5000

// watcherOptions wires the watcher of silences to the events.
func watcherOptions(
	definitions *config.Store, matcher *silence.Matcher, events *state.State, in *intake.Intake,
	log *slog.Logger, r prometheus.Registerer,
) silence.WatcherOptions {
	incidents, _ := selector.Parse("", "event.is_incident == true") // it is ours, and good
	return silence.WatcherOptions{
		Config: definitions, Matcher: matcher, Remind: in.RemindOfSilence, Logger: log, Registerer: r,
		Announce: func(ctx context.Context, namespace string, covers silence.Covers) error {
			query := state.Query{Namespace: namespace, Where: covers, Limit: announced}
			for events.Watched() {
				page, err := events.Select(ctx, query)
				if err != nil {
					return err
				}
				events.Announce(page)
				if page.Next == "" {
					break
				}
				query.After = page.Next
			}
			return nil
		},
		Count: func(ctx context.Context, namespace string, covers silence.Covers) (all, failing int, err error) {
			page, err := events.Select(ctx, state.Query{Namespace: namespace, Where: covers})
			if err != nil {
				return 0, 0, err
			}
			bad, err := events.Select(ctx, state.Query{Namespace: namespace, Where: covers, Selector: incidents})
			if err != nil {
				return 0, 0, err
			}
			return page.Len(), bad.Len(), nil
		},
		Failing: func(namespace, entity, check string) bool {
			ev, err := events.Event(namespace, entity, check)
			return err == nil && ev.IsIncident()
		},
	}
}
