package agent

import (
	"context"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// announceAfter is how long a turn runs, or waits for a slot, before the agent says so. The result of a faster one says
// enough.
const announceAfter = 2 * time.Second

// turn is one run of a round-robin check, which the backend gives to one agent after the other until there is a result.
// The zero turn is none.
type turn struct{ check, entity, value string }

// repeats reports whether a turn was given again. The last part of the value says when it was given.
func (t turn) repeats(before turn) bool {
	run := func(t turn) string { return t.value[:max(0, strings.LastIndexByte(t.value, ' '))] }
	return t != (turn{}) && t.check == before.check && t.entity == before.entity && run(t) == run(before)
}

// turnOf returns the turn of a request for the given check. On another check the annotation is a user's.
func turnOf(c *resource.CheckConfig) turn {
	value := c.Metadata.Annotations[resource.TurnAnnotation]
	if value == "" || !c.RoundRobin {
		return turn{}
	}
	return turn{check: c.Metadata.Name, entity: c.ProxyEntityName, value: value}
}

// keepTurn gives a check whose tokens were replaced its turn back as it was. A turn may contain the name of a
// subscription, which may look like a token, and the backend compares the whole text.
func keepTurn(replaced, given *resource.CheckConfig) {
	value := given.Metadata.Annotations[resource.TurnAnnotation]
	if replaced.Metadata.Annotations[resource.TurnAnnotation] != value {
		replaced.Metadata.Annotations[resource.TurnAnnotation] = value // the map is a copy because this value was replaced
	}
}

// report sends the backend a receipt for a turn, if it is one.
func (a *Agent) report(t turn, outcome wire.Outcome, reason string) {
	if t != (turn{}) {
		r := wire.Receipt{Check: t.check, Entity: t.entity, Turn: t.value, Outcome: outcome, Reason: reason}
		a.transport.SendReceipt(&r)
	}
}

// declines are the verdicts for which a turn is declined, with the reason that the backend gets.
var declines = map[verdict]string{
	duplicate:  "the agent has another run of the check for the same second",
	outdated:   "the agent has taken a later request of the check",
	inProgress: "another run of the check is in progress",
	stopping:   "the agent is stopping",
}

// answer reports what a verdict means for a turn.
func (a *Agent) answer(t turn, v verdict) {
	if v == turnRuns {
		a.report(t, wire.OutcomeRunning, "")
	} else if reason, ok := declines[v]; ok {
		a.report(t, wire.OutcomeDeclined, reason)
	}
}

// announce reports a turn as running after a time, unless the caller stops that. For other requests it does nothing.
func (a *Agent) announce(ctx context.Context, t turn) (stop func() bool) {
	if t == (turn{}) {
		return func() bool { return false }
	}
	return time.AfterFunc(announceAfter, func() {
		if ctx.Err() == nil { // or it was declined
			a.report(t, wire.OutcomeRunning, "")
		}
	}).Stop
}

// stayConnected keeps a backend connected until ctx ends. That kills the commands of the running checks, so it declines
// their turns before it disconnects: the backend can give them to other agents at once.
func (a *Agent) stayConnected(ctx context.Context) {
	connected, disconnect := context.WithCancel(context.WithoutCancel(ctx))
	defer disconnect()
	context.AfterFunc(ctx, func() {
		for _, t := range a.requests.stop() {
			a.answer(t, stopping)
		}
		disconnect()
	})
	a.transport.Run(connected)
}
